// What slow and hostile clients cost the others: Debian's slowhttptest with a thousand connections that send their
// headers or bodies byte by byte or read so, a thousand that stay half open, readers that never read, and clients that
// go in every phase. The others' answers all come and are the same; their rates beside the attack are told, with those
// before and after it, and the processor time of the threads that do not compute, which says on a busy machine, too,
// what an attack takes from the others. FORESAY_ROUNDS says how often each attack runs (1); report the medians.
import assert from 'node:assert';
import { spawn } from 'node:child_process';
import { readFileSync, readdirSync } from 'node:fs';
import { connect } from 'node:net';
import { test } from 'node:test';
import { serve } from '../clients/server.mjs';

const rounds = Number(process.env.FORESAY_ROUNDS ?? 1);
const kMany = 1000, kGone = 200, kLong = 400;
const kComputing = 2, kTicks = 100;  // compute threads of the server; ticks of Linux in a second
const sleep = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

test('slow clients, and clients that go', { timeout: (rounds * 600 + 120) * 1000 }, async (t) => {
  const server = await serve('--threads', kComputing);
  t.after(() => server.kill());
  const port = Number(new URL(server.url).port);
  const metric = async (name) => {
    const text = await (await fetch(`${server.url}/metrics?aliases=no`)).text();
    return Number(text.match(new RegExp(`^${name}\\{[^}]*\\} (\\S+)$`, 'm'))[1]);
  };
  // Seconds of processor time of the network and of those who read requests: all threads but the two that have most.
  function served() {
    const ticks = readdirSync(`/proc/${server.pid}/task`).map((thread) => {
      const fields = readFileSync(`/proc/${server.pid}/task/${thread}/stat`, 'utf8').split(') ')[1].split(' ');
      return Number(fields[11]) + Number(fields[12]);
    });
    return ticks.sort((a, b) => a - b).slice(0, -kComputing).reduce((sum, one) => sum + one, 0) / kTicks;
  }
  async function measured() {
    const from = served(), start = Date.now();
    const tokens = await rate();
    return { rate: tokens, share: (served() - from) * 1000 / (Date.now() - start) };
  }
  // The rate of four clients, whose answers are compared with those to the same requests before.
  async function rate(...more) {
    const child = spawn(process.env.FORESAY_PROGRAM, ['bench', 'serve', '--url', server.url, '--clients', '4',
      '--in', '100', '--out', '100', '--temperature', '0.6', '--json', ...more]);
    let said = '', wrong = '';
    child.stdout.on('data', (text) => { said += text; });
    child.stderr.on('data', (text) => { wrong += text; });
    const status = await new Promise((resolve) => { child.on('exit', resolve); });
    assert.equal(status, 0, wrong);
    return JSON.parse(said).rows[0].tokens_per_second;
  }
  function request(method, path, body, stream = false) {
    const text = body ? JSON.stringify({ ...body, stream }) : '';
    return `${method} ${path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: ${text.length}\r\n\r\n${text}`;
  }
  const long = { prompt: 'def f(x):\n', max_tokens: kLong, ignore_eos: true };

  // Each attack: starts, and returns what ends it.
  function slowhttptest(...options) {
    const child = spawn('slowhttptest', ['-c', kMany, '-r', kMany, '-i', 1, '-l', 120, '-u',
      `${server.url}/v1/completions`, ...options], { stdio: 'ignore' });
    const ended = new Promise((resolve) => { child.on('exit', resolve); });
    return async () => { child.kill('SIGKILL'); await ended; };
  }
  // Connections that send `text` and nothing more, and are made again when the server closes them.
  function hold(count, text, reads = true) {
    const sockets = new Set();
    let ended = false;
    const open = () => {
      const socket = connect(port, '127.0.0.1', () => socket.write(text));
      sockets.add(socket);
      socket.on('error', () => {});
      socket.on('close', () => { sockets.delete(socket); if (!ended) setTimeout(open, 50); });
      if (reads) socket.resume(); else socket.pause();
    };
    for (let i = 0; i < count; ++i) open();
    return async () => { ended = true; for (const socket of sockets) socket.destroy(); };
  }
  const attacks = {
    'slow headers': () => slowhttptest('-H', '-t', 'POST'),
    'slow bodies': () => slowhttptest('-B', '-s', 8192, '-f', 'application/json'),
    'slow readers': () => slowhttptest('-X', '-t', 'GET', '-u', `${server.url}/openapi.json`, '-k', 3, '-n', 1,
      '-w', 256, '-y', 512, '-z', 32),
    'half open': () => hold(kMany, 'POST /v1/completions HTTP/1.1\r\nx-slow: '),
    'readers that never read': () => hold(16, request('GET', '/openapi.json').repeat(400), false),
  };

  await rate('--verify');  // the others' prompts are in the cache from here on
  const shares = Object.fromEntries(Object.keys(attacks).map((name) => [name, []]));
  const costs = Object.fromEntries(Object.keys(attacks).map((name) => [name, []]));
  for (let round = 0; round < rounds; ++round) {
    for (const [name, start] of Object.entries(attacks)) {
      const before = await measured();
      const end = start();
      const wanted = name.endsWith('never read') ? 16 : 0.9 * kMany;
      let open = 0;
      for (let i = 0; i < 80 && open < wanted; ++i) {
        await sleep(100);
        open = await metric('foresay_connections');
      }
      const beside = await measured();
      await end();
      await sleep(500);
      const after = await measured();
      const cost = 100 * (beside.share - (before.share + after.share) / 2);
      shares[name].push(2 * beside.rate / (before.rate + after.rate));
      costs[name].push(cost);
      t.diagnostic(`${name}: ${open} connections, ${before.rate.toFixed(0)} tok/s before, ${beside.rate.toFixed(0)} `
        + `beside, ${after.rate.toFixed(0)} after; ${cost.toFixed(1)} % more of a core`);
      assert.ok(open >= wanted, `${open} connections are no attack`);
    }
  }
  await rate('--verify');

  // Clients that go: within the headers, within the body, before the answer, and after a piece of it.
  const tokens = await metric('foresay_generated_tokens_total');
  const whole = request('POST', '/v1/completions', long), stream = request('POST', '/v1/completions', long, true);
  const phases = [(go) => [whole.slice(0, 40), go, null], (go) => [whole.slice(0, -5), go, null],
    (go) => [whole, () => setTimeout(go, 20), null], (go) => [stream, null, go]];
  const before = await rate();
  const gone = Array.from({ length: kGone }, (_, i) => new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    const [text, sent, read] = phases[i % phases.length](() => socket.destroy());
    socket.on('error', () => {});
    socket.on('close', resolve);
    socket.on('connect', () => socket.write(text, () => sent?.()));
    socket.on('data', () => read?.());
  }));
  await Promise.all(gone);
  const left = Date.now();
  while (await metric('foresay_requests_running') + await metric('foresay_requests_waiting') > 0) {
    assert.ok(Date.now() - left < 20_000, 'places are not free again');
    await sleep(5);
  }
  const freed = Date.now() - left;
  const after = await rate();
  // Without those of the two rates and of their samples.
  const mine = await metric('foresay_generated_tokens_total') - tokens - 2 * (16 * 100 + 1);
  t.diagnostic(`clients that go: ${kGone}, ${kGone / 2} of them with a text of ${kLong} tokens; all are free `
    + `${freed} ms after the last has gone, with ${(mine / (kGone / 2)).toFixed(1)} tokens for each; `
    + `${before.toFixed(0)} tok/s before, ${after.toFixed(0)} after`);
  assert.ok(mine < 0.5 * kLong * (kGone / 2), `${mine} tokens were generated for clients that had gone`);
  const median = (list) => list.sort((a, b) => a - b)[Math.floor(list.length / 2)];
  t.diagnostic(`share of their rate that the others keep, medians: ${Object.entries(shares)
    .map(([name, list]) => `${name} ${median(list).toFixed(2)}`).join(', ')}`);
  t.diagnostic(`what it takes of a core, medians: ${Object.entries(costs)
    .map(([name, list]) => `${name} ${median(list).toFixed(1)} %`).join(', ')}`);
  assert.equal(await server.stop(), 0);
});
