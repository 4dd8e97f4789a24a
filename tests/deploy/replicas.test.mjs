// Two replicas with a balancer in front: streams arrive piece by piece, a session stays where its cache is, and a
// replica that dies in the middle of the load costs no wrong byte.
import assert from 'node:assert';
import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { after, before, test } from 'node:test';
import { serve } from '../clients/server.mjs';

const front = process.env.FORESAY_FRONT;
const kPlaces = 2;  // texts that a replica generates at once
const folder = mkdtempSync(join(tmpdir(), 'foresay-replicas-'));
let replicas, balancer, url;

const freePort = () => new Promise((resolve) => {
  const server = createServer().listen(0, '127.0.0.1', () => {
    const { port } = server.address();
    server.close(() => resolve(port));
  });
});

before(async () => {
  replicas = await Promise.all([serve('--parallel', kPlaces), serve('--parallel', kPlaces)]);
  const port = await freePort();
  url = `http://127.0.0.1:${port}`;
  const name = { nginx: 'nginx.conf', haproxy: 'haproxy.cfg' }[front];
  const text = readFileSync(join(process.env.FORESAY_DEPLOY, name), 'utf8')
    .replaceAll('127.0.0.1:8081', new URL(replicas[0].url).host)
    .replaceAll('127.0.0.1:8082', new URL(replicas[1].url).host).replaceAll('127.0.0.1:8080', `127.0.0.1:${port}`);
  const file = join(folder, name);
  writeFileSync(file, text);
  balancer = front === 'nginx' ? spawn('nginx', ['-p', folder, '-c', file, '-g', 'daemon off;'], { stdio: 'inherit' })
    : spawn('haproxy', ['-db', '-f', file], { stdio: 'inherit' });
  for (let i = 0; i < 200; ++i) {
    if (await fetch(`${url}/ready`).then((response) => response.ok, () => false)) return;
    await new Promise((resolve) => { setTimeout(resolve, 50); });
  }
  throw new Error(`${front} does not answer`);
});
after(async () => {
  balancer?.kill('SIGTERM');
  await Promise.all(replicas.map((replica) => replica.stop().catch(() => {})));
  rmSync(folder, { recursive: true, force: true });
});

// A session is told by a header, or, for HAProxy, which reads bodies, by OpenAI's field.
const byField = (session) => front === 'haproxy' && session % 2 === 1;
const body = (session, more = {}) => JSON.stringify({ messages: [{ role: 'user', content: `# ${session}\nx = ` }],
  max_tokens: 24, seed: session, temperature: 0.9, ignore_eos: true,
  ...(byField(session) ? { prompt_cache_key: `s${session}` } : {}), ...more });
const ask = (base, session, more, signal) => fetch(`${base}/v1/chat/completions`, { method: 'POST', signal,
  body: body(session, more),
  headers: { 'content-type': 'application/json', ...(byField(session) ? {} : { 'x-session-id': `s${session}` }) } });
const textOf = async (response) => {
  assert.equal(response.status, 200, await response.clone().text());
  return (await response.json()).choices[0].message.content;
};
const metric = async (replica, pattern) => Number((await (await fetch(`${replica.url}/metrics`)).text())
  .match(pattern)?.[1] ?? 0);
const generated = (replica) => metric(replica, /foresay_requests_total\{[^}]*finish="length"[^}]*\} (\d+)/);
const waiting = async () => (await Promise.all(replicas.map((replica) =>
  metric(replica, /foresay_requests_waiting\{[^}]*\} (\d+)/)))).reduce((sum, one) => sum + one, 0);

// Until no text is generated or waits: what an earlier test gave up may still come to its end, and would be counted.
const running = async () => (await Promise.all(replicas.map((replica) =>
  metric(replica, /foresay_requests_running\{[^}]*\} (\d+)/)))).reduce((sum, one) => sum + one, 0);
async function allDone() {
  while (await running() + await waiting() > 0) await new Promise((resolve) => { setTimeout(resolve, 5); });
}

// All places are taken, so that a stream has its first event and no second one yet. Whether that event arrives before
// the others are done.
async function arrivesAtOnce(base) {
  const controller = new AbortController();
  const others = await Promise.all(replicas.flatMap((replica) => Array.from({ length: kPlaces }, (_, i) =>
    ask(replica.url, 100 + i, { stream: true, max_tokens: 600 }, controller.signal))));
  for (const other of others) await other.body.getReader().read();
  const response = await ask(base, 1, { stream: true });
  const reader = response.body.getReader();
  const first = new TextDecoder().decode((await reader.read()).value);
  const alone = await waiting() === 1;
  controller.abort();
  assert.match(first, /"role":"assistant"/);
  let text = first;
  for (let piece = await reader.read(); !piece.done; piece = await reader.read())
    text += new TextDecoder().decode(piece.value);
  assert.match(text, /\[DONE\]/);
  return alone;
}

test('the first piece of a stream arrives while there is no other', async (t) => {
  assert.ok(await arrivesAtOnce(url), 'it arrives when the text has its place, and not before');
  // After a proxy that keeps pieces back it would not.
  const keeping = createHttpServer(async (request, response) => {
    const headers = { 'content-type': 'application/json', 'x-session-id': request.headers['x-session-id'] ?? '' };
    const answer = await fetch(url + request.url, { method: 'POST', headers, body: Readable.toWeb(request),
      duplex: 'half' });
    response.writeHead(answer.status, { 'content-type': 'text/event-stream' });
    response.end(await answer.text());
  });
  await new Promise((resolve) => { keeping.listen(0, '127.0.0.1', resolve); });
  t.after(() => keeping.close());
  assert.ok(!await arrivesAtOnce(`http://127.0.0.1:${keeping.address().port}`), 'the check sees a proxy that buffers');
});

test('a session stays with one replica', async () => {
  await allDone();
  for (let session = 1; session <= 8; ++session) {
    const before = await Promise.all(replicas.map(generated));
    for (let i = 0; i < 5; ++i) await textOf(await ask(url, session));
    const now = await Promise.all(replicas.map(generated));
    const counts = now.map((count, i) => count - before[i]).sort();
    assert.deepEqual(counts, [0, 5], `session ${session}`);
  }
});

test('the metrics are as promtool wants them', async (t) => {
  await textOf(await ask(url, 1));
  const text = await (await fetch(`${replicas[0].url}/metrics?aliases=no`)).text();
  const found = spawnSync('promtool', ['check', 'metrics'], { input: text, encoding: 'utf8' });
  if (found.error) return t.skip('promtool is missing; it is in the package prometheus of Debian');
  assert.equal(found.status, 0, found.stdout + found.stderr);
});

// The text of a stream, and whether it came to its end.
async function textOfStream(response) {
  let said = '', whole = false;
  try {
    for await (const piece of response.body.pipeThrough(new TextDecoderStream())) said += piece;
  } catch { /* the connection was cut */ }
  let text = '';
  for (const event of said.split('\n\n').slice(0, -1)) {  // the last one may be a part
    const data = event.replace(/^data: /, '');
    if (data === '[DONE]') whole = true;
    else if (!event.startsWith(':')) text += JSON.parse(data).choices?.[0]?.delta?.content ?? '';
  }
  return { text, whole };
}

test('a replica that dies costs no wrong byte, and SIGTERM drains', async () => {
  const long = { max_tokens: 150 };
  const kStreams = 18, expected = [];
  for (let session = 0; session < 24; ++session)
    expected.push(await textOf(await ask(replicas[1].url, session, session < kStreams ? long : {})));
  // As a client does: what fails is sent again. The first ones stream.
  let again = 0, cut = 0;
  const steadily = async (session) => {
    for (let i = 0; i < 100; ++i) {
      try {
        const stream = session < kStreams;
        const response = await ask(url, session, stream ? { stream, ...long } : {});
        if (response.ok && !stream) return await textOf(response);
        if (response.ok) {
          const { text, whole } = await textOfStream(response);
          if (whole) return text;
          assert.ok(expected[session].startsWith(text), `${session}: ${text}`);
          if (text !== '') cut += 1;
        }
      } catch (problem) {
        if (problem instanceof assert.AssertionError) throw problem;  // else the connection was cut
      }
      again += 1;
      await new Promise((resolve) => { setTimeout(resolve, 100); });
    }
    throw new Error(`session ${session} got no answer`);
  };
  const tokens = () => metric(replicas[0], /foresay_inter_token_seconds_count\{[^}]*\} (\d+)/);
  const begun = await tokens();
  const answers = Promise.all(expected.map((_, session) => steadily(session)));
  while (await tokens() < begun + 60) await new Promise((resolve) => { setTimeout(resolve, 2); });
  replicas[0].kill();
  assert.deepEqual(await answers, expected);
  assert.ok(again > 0, 'no request was under way at the replica that died');
  assert.ok(cut > 0, 'no stream was cut in the middle');
  const last = ask(url, 3, { stream: true, max_tokens: 300 });
  const response = await last;
  const ended = replicas[1].stop();
  assert.match(await response.text(), /\[DONE\]/);
  assert.equal(await ended, 0);
});
