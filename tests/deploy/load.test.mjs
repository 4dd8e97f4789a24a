// A day in short: every protocol at once, with cancels, changes of the keys, and the model loaded again. The same
// request gives the same bytes from beginning to end, nothing fails but what comes while the model is loaded, which is
// told to come again, and memory stays flat. FORESAY_LOAD_SECONDS says how long.
import assert from 'node:assert';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { execFileSync, spawnSync } from 'node:child_process';
import { tmpdir } from 'node:os';
import { join, resolve as absolute } from 'node:path';
import { test } from 'node:test';
import { serve } from '../clients/server.mjs';

const seconds = Number(process.env.FORESAY_LOAD_SECONDS ?? 1800);

test(`a mixed load of ${seconds} s`, { timeout: (seconds + 120) * 1000 }, async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'foresay-load-'));
  const keys = join(folder, 'keys');
  const made = (...more) => {
    const said = execFileSync(process.env.FORESAY_PROGRAM, ['serve', '--new-key', 'load', ...more],
      { encoding: 'utf8' });
    return { key: said.match(/key: +(\S+)/)[1], line: said.match(/line: +(.*)/)[1] };
  };
  let current = made();
  const admin = made('--admin');
  writeFileSync(keys, `${current.line}\n${admin.line}\n`);
  const models = join(folder, 'models');
  mkdirSync(models);
  const base = absolute(process.env.FORESAY_DEPLOY, '../../configs/python-coder.toml');
  for (const name of ['one', 'two']) writeFileSync(join(models, `${name}.toml`), `extends = "${base}"\n`);
  const server = await serve('--keys', keys, '--models', models);
  t.after(() => server.kill());
  const memory = () => Number(readFileSync(`/proc/${server.pid}/status`, 'utf8').match(/VmRSS:\s+(\d+)/)[1]);

  const messages = (seed) => [{ role: 'user', content: `# ${seed % 5}\ndef f_${seed}(a, b):\n` }];
  const common = (seed) => ({ seed, temperature: 0.8, max_tokens: 20 + (seed % 30) });
  const kinds = [
    ['/v1/chat/completions', (s) => ({ ...common(s), messages: messages(s), n: 1 + (s % 2) }),
      (json) => json.choices.map((choice) => choice.message.content).join('\u0001')],
    ['/v1/chat/completions', (s) => ({ ...common(s), messages: messages(s), response_format: { type: 'json_schema',
      json_schema: { schema: { type: 'object', properties: { a: { type: 'boolean' } }, required: ['a'],
        additionalProperties: false, title: `schema ${s}` } } } }), (json) => json.choices[0].message.content],
    ['/v1/completions', (s) => ({ ...common(s), prompt: `x_${s} = `, stop: ['\n\n'], logprobs: 2 }),
      (json) => json.choices[0].text],
    ['/v1/messages', (s) => ({ ...common(s), messages: messages(s) }), (json) => json.content[0]?.text ?? ''],
    ['/v1/responses', (s) => ({ seed: s, max_output_tokens: 20, input: `y_${s} = 1\n` }),
      (json) => JSON.stringify(json.output.map((item) => item.content?.[0]?.text))],
    ['/api/generate', (s) => ({ prompt: `z_${s} = `, stream: false, options: { seed: s, num_predict: 20 } }),
      (json) => json.response],
    ['/infill', (s) => ({ input_prefix: `def g_${s}(a):\n    return `, input_suffix: '\n', n_predict: 12, seed: s }),
      (json) => json.content],
  ];
  const known = new Map();
  const counts = { answers: 0, cancels: 0, keys: 0, compared: 0, loads: 0, again: 0 };
  const end = Date.now() + seconds * 1000;

  // As a client does that is told to come again; with the key of that time, because a key ends with the next change but
  // one.
  async function ask(path, options) {
    for (;;) {
      const headers = { 'content-type': 'application/json', authorization: `Bearer ${current.key}` };
      const response = await fetch(server.url + path, { method: 'POST', headers, ...options });
      if (response.status !== 503) return response;
      assert.ok(Number(response.headers.get('retry-after')) > 0);
      await response.text();
      counts.again += 1;
      await new Promise((resolve) => { setTimeout(resolve, 100); });
    }
  }
  async function one(random) {
    const [path, make, take] = kinds[random(kinds.length)];
    const seed = random(40), body = JSON.stringify(make(seed));
    if (random(6) === 0) {  // a client that goes
      const controller = new AbortController();
      const response = await ask('/v1/chat/completions', { signal: controller.signal,
        body: JSON.stringify({ messages: messages(seed), stream: true, max_tokens: 400, ignore_eos: true }) });
      assert.equal(response.status, 200);
      const reader = response.body.getReader();
      for (let i = random(6); i > 0; --i) await reader.read();
      controller.abort();
      counts.cancels += 1;
      return;
    }
    const response = await ask(path, { body });
    const text = await response.text();
    assert.equal(response.status, 200, `${path} ${body}: ${text}`);
    const answer = take(JSON.parse(text));
    if (known.has(path + body)) {
      assert.equal(answer, known.get(path + body), `${path} ${body}`);
      counts.compared += 1;
    }
    known.set(path + body, answer);
    counts.answers += 1;
  }
  async function worker(number) {
    let state = 12345 + number;
    const random = (below) => {
      state = (Math.imul(state, 1103515245) + 12345) >>> 0;
      return (state >>> 8) % below;
    };
    while (Date.now() < end) await one(random);
  }
  async function changeKeys() {
    while (Date.now() < end) {
      await new Promise((resolve) => { setTimeout(resolve, Math.min(5000, seconds * 100)); });
      const next = made();
      writeFileSync(keys, `${current.line}\n${next.line}\n${admin.line}\n`);
      server.signal('SIGHUP');
      await new Promise((resolve) => { setTimeout(resolve, 300); });
      current = next;
      counts.keys += 1;
    }
  }
  // Memory is read before each change, when the model has long been there: it is less while one is loaded.
  const sizes = [];
  async function changeModels() {
    for (let name = 'one'; Date.now() < end; name = name === 'one' ? 'two' : 'one') {
      await new Promise((resolve) => { setTimeout(resolve, Math.min(20_000, seconds * 200)); });
      sizes.push(memory());
      const response = await fetch(`${server.url}/v1/model/load`, { method: 'POST',
        headers: { authorization: `Bearer ${admin.key}` }, body: JSON.stringify({ model_name: name }) });
      assert.match(await response.text(), /"finished"/);
      counts.loads += 1;
    }
  }
  await Promise.all([...Array.from({ length: 8 }, (_, i) => worker(i)), changeKeys(),
    changeModels()]);
  const later = sizes.slice(Math.ceil(sizes.length * 0.4)), third = Math.ceil(later.length / 3);
  const mean = (list) => list.reduce((sum, one) => sum + one, 0) / list.length;
  const from = mean(later.slice(0, third)), to = mean(later.slice(-third));
  t.diagnostic(`${JSON.stringify(counts)}, memory ${Math.round(from)} to ${Math.round(to)} kB`);
  assert.ok(counts.answers > 10 && counts.cancels > 0 && counts.compared > 0 && counts.keys > 0
    && counts.loads > 0);
  if (seconds >= 300) assert.ok(to < from * 1.02, `memory grows: ${sizes.join(' ')} kB`);
  const text = await (await fetch(`${server.url}/metrics?aliases=no`,
    { headers: { authorization: `Bearer ${admin.key}` } })).text();
  const checked = spawnSync('promtool', ['check', 'metrics'], { input: text, encoding: 'utf8' });
  if (!checked.error) assert.equal(checked.status, 0, checked.stdout + checked.stderr);
  assert.equal(await server.stop(), 0);
  rmSync(folder, { recursive: true, force: true });
});
