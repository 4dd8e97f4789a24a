// A day in short: every protocol at once, with cancels and changes of the keys. The same request gives the same bytes
// from beginning to end, nothing fails, and memory stays flat. FORESAY_LOAD_SECONDS says how long.
import assert from 'node:assert';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { execFileSync } from 'node:child_process';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { serve } from '../clients/server.mjs';

const seconds = Number(process.env.FORESAY_LOAD_SECONDS ?? 600);

test(`a mixed load of ${seconds} s`, { timeout: (seconds + 120) * 1000 }, async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'foresay-load-'));
  const keys = join(folder, 'keys');
  const made = () => {
    const said = execFileSync(process.env.FORESAY_PROGRAM, ['serve', '--new-key', 'load'], { encoding: 'utf8' });
    return { key: said.match(/key: +(\S+)/)[1], line: said.match(/line: +(.*)/)[1] };
  };
  let current = made();
  writeFileSync(keys, `${current.line}\n`);
  const server = await serve('--keys', keys);
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
  const counts = { answers: 0, cancels: 0, keys: 0, compared: 0 };
  const end = Date.now() + seconds * 1000;

  async function one(random) {
    const [path, make, take] = kinds[random(kinds.length)];
    const seed = random(40), body = JSON.stringify(make(seed));
    const headers = { 'content-type': 'application/json', authorization: `Bearer ${current.key}` };
    if (random(6) === 0) {  // a client that goes
      const controller = new AbortController();
      const response = await fetch(server.url + '/v1/chat/completions', { method: 'POST', headers,
        signal: controller.signal,
        body: JSON.stringify({ messages: messages(seed), stream: true, max_tokens: 400, ignore_eos: true }) });
      assert.equal(response.status, 200);
      const reader = response.body.getReader();
      for (let i = random(6); i > 0; --i) await reader.read();
      controller.abort();
      counts.cancels += 1;
      return;
    }
    const response = await fetch(server.url + path, { method: 'POST', headers, body });
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
      writeFileSync(keys, `${current.line}\n${next.line}\n`);
      server.signal('SIGHUP');
      await new Promise((resolve) => { setTimeout(resolve, 300); });
      current = next;
      counts.keys += 1;
    }
  }
  const sizes = [];
  const sampling = setInterval(() => sizes.push(memory()), Math.max(200, seconds * 20));
  await Promise.all([...Array.from({ length: 8 }, (_, i) => worker(i)), changeKeys()]);
  clearInterval(sampling);
  const later = sizes.slice(Math.ceil(sizes.length * 0.4)), third = Math.ceil(later.length / 3);
  const mean = (list) => list.reduce((sum, one) => sum + one, 0) / list.length;
  const from = mean(later.slice(0, third)), to = mean(later.slice(-third));
  t.diagnostic(`${JSON.stringify(counts)}, memory ${Math.round(from)} to ${Math.round(to)} kB`);
  assert.ok(counts.answers > 10 && counts.cancels > 0 && counts.compared > 0 && counts.keys > 0);
  if (seconds >= 300) assert.ok(to < from * 1.02, `memory grows: ${sizes.join(' ')} kB`);
  assert.equal(await server.stop(), 0);
  rmSync(folder, { recursive: true, force: true });
});
