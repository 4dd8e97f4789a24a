// What goes wrong, as the libraries tell their programs: the class of the error, and how often they asked. They come
// again where the server says so (a full queue, a model that loads), and nowhere else.
import assert from 'node:assert';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import OpenAI from 'openai';
import Anthropic from '@anthropic-ai/sdk';
import { Ollama } from 'ollama';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { APICallError, generateText, streamText } from 'ai';
import { serve } from './server.mjs';

const folder = mkdtempSync(join(tmpdir(), 'foresay-errors-'));
let server, key;
before(async () => {
  const made = execFileSync(process.env.FORESAY_PROGRAM, ['serve', '--new-key', 'ann'], { encoding: 'utf8' });
  key = made.match(/key: +(\S+)/)[1];
  writeFileSync(join(folder, 'keys'), made.match(/line: +(.*)/)[1] + '\n');
  server = await serve('--keys', join(folder, 'keys'), '--only-model', '--name', 'coder');
});
after(async () => {
  assert.equal(await server?.stop(), 0);
  rmSync(folder, { recursive: true, force: true });
});

const content = 'def add(a, b):';
const messages = [{ role: 'user', content }];

// Each library on a server: ask() asks for a few tokens, `more` is added to the body of the request, and `requests`
// counts what it sent.
function clients(url, { apiKey = 'x', maxRetries } = {}) {
  const make = (build) => {
    const one = { requests: 0 };
    const counting = (...all) => { one.requests += 1; return fetch(...all); };
    return Object.assign(one, build(counting));
  };
  const retries = maxRetries === undefined ? {} : { maxRetries };
  return {
    openai: make((counting) => {
      const client = new OpenAI({ baseURL: url + '/v1', apiKey, fetch: counting, ...retries });
      return { ask: (more, model = 'coder') => client.chat.completions.create(
        { model, messages, max_tokens: 2, ...more }) };
    }),
    responses: make((counting) => {
      const client = new OpenAI({ baseURL: url + '/v1', apiKey, fetch: counting, ...retries });
      return { ask: (more, model = 'coder') => client.responses.create(
        { model, input: content, max_output_tokens: 2, ...more }) };
    }),
    anthropic: make((counting) => {
      const client = new Anthropic({ baseURL: url, apiKey, fetch: counting, ...retries });
      return { ask: (more, model = 'coder') => client.messages.create({ model, messages, max_tokens: 2, ...more }) };
    }),
    ollama: make((counting) => {
      const client = new Ollama({ host: url, fetch: counting, headers: { authorization: `Bearer ${apiKey}` } });
      return { ask: ({ temperature, ...more } = {}, model = 'coder') => client.chat(
        { model, messages, options: { num_predict: 2, temperature }, ...more }) };
    }),
    ai: make((counting) => {
      const provider = createOpenAICompatible({ name: 'own', baseURL: url + '/v1', apiKey, fetch: counting });
      return { ask: ({ temperature } = {}, model = 'coder') => generateText(
        { model: provider(model), prompt: content, maxOutputTokens: 2, temperature, ...retries }) };
    }),
  };
}

// The class by its name, which openai's and Anthropic's libraries share but where `wanted` has one of each.
function expectClass(name, error, both, status) {
  const wanted = typeof both === 'string' ? both : both[name === 'anthropic' ? 'anthropic' : 'openai'];
  if (name === 'ollama') {
    assert.equal(error.name, 'ResponseError');
    assert.equal(error.status_code, status);
  } else if (name === 'ai') {
    assert.ok(APICallError.isInstance(error), `${error}`);
    assert.equal(error.statusCode, status);
  } else {
    const library = name === 'anthropic' ? Anthropic : OpenAI;
    assert.ok(error instanceof library[wanted], `${name}: ${error.constructor.name} is no ${wanted}`);
    if (wanted !== 'APIError') assert.equal(error.constructor, library[wanted], name);
    assert.equal(error.status, status);
  }
  assert.ok(error.message.length > 10, error.message);
}

async function expectRejected(name, client, call, wanted, status) {
  const asked = client.requests;
  await assert.rejects(call(), (error) => {
    expectClass(name, error, wanted, status);
    return true;
  });
  return client.requests - asked;
}

test('what stays wrong has its class, and is asked once', async () => {
  const known = clients(server.url, { apiKey: key }), unknown = clients(server.url, { apiKey: 'fs-wrong' });
  for (const name of Object.keys(known)) {
    const client = known[name];
    await client.ask();
    const cases = [
      [unknown[name], () => unknown[name].ask(), 'AuthenticationError', 401],
      [client, () => client.ask({}, 'gpt-4'), 'NotFoundError', 404],
      [client, () => client.ask({ temperature: -1 }), 'BadRequestError', 400],
    ];
    if (name !== 'ollama' && name !== 'ai') {
      cases.push([client, () => client.ask({ foresay: { priority: 5 } }), 'PermissionDeniedError', 403]);
      // No prompt of this length is read in a millisecond.
      const long = 'x = 1\n'.repeat(150);
      cases.push([client, () => client.ask({ foresay: { deadline_ms: 1 },
        ...(name === 'responses' ? { input: long } : { messages: [{ role: 'user', content: long }] }) }),
      { openai: 'APIError', anthropic: 'RequestTimeoutError' }, 408]);
    }
    for (const [asking, call, wanted, status] of cases)
      assert.equal(await expectRejected(name, asking, call, wanted, status), 1, `${name} ${status}`);
  }
  const openai = new OpenAI({ baseURL: server.url + '/v1', apiKey: key });
  await assert.rejects(openai.get('/chat/completions'), (error) => error.status === 405);
  await assert.rejects(openai.chat.completions.create({ model: 'coder', messages, temperature: -1 }),
    (error) => error.param === 'temperature' && error.code === 'invalid_value'
      && error.type === 'invalid_request_error');
  const anthropic = new Anthropic({ baseURL: server.url, apiKey: key });
  await assert.rejects(anthropic.messages.create({ model: 'coder', messages, max_tokens: 2, temperature: -1 }),
    (error) => error.error.error.type === 'invalid_request_error' && /^req_/.test(error.requestID));
});

test('a full queue is a rate limit, and asked again', async (t) => {
  const busy = await serve('--parallel', '2', '--queue', '1');
  t.after(busy.kill);
  // Two texts run and one waits.
  const fill = () => fetch(`${busy.url}/v1/completions`, { method: 'POST', signal: controller.signal,
    body: JSON.stringify({ prompt: content, max_tokens: 900, n: 3, ignore_eos: true, stream: true }) });
  const controller = new AbortController();
  const filled = await fill();
  await filled.body.getReader().read();
  const once = clients(busy.url, { maxRetries: 0 });
  for (const [name, client] of Object.entries(once)) {
    const wanted = { openai: 'RateLimitError', anthropic: 'OverloadedError' };
    const status = name === 'anthropic' ? 529 : 429;
    assert.equal(await expectRejected(name, client, () => client.ask(), wanted, status), 1);
  }
  const again = clients(busy.url, { maxRetries: 5 });
  const answers = ['openai', 'responses', 'anthropic'].map((name) => again[name].ask());
  await new Promise((resolve) => { setTimeout(resolve, 300); });
  controller.abort();
  await Promise.all(answers);
  for (const name of ['openai', 'responses', 'anthropic'])
    assert.ok(again[name].requests > 1, `${name} was told to come again, and came`);
  assert.equal(await busy.stop(), 0);
});

test('a model that is not there is unavailable, and asked again', async (t) => {
  const made = execFileSync(process.env.FORESAY_PROGRAM, ['serve', '--new-key', 'root', '--admin'],
    { encoding: 'utf8' });
  const keys = join(folder, 'admin keys'), models = mkdtempSync(join(folder, 'models'));
  writeFileSync(keys, made.match(/line: +(.*)/)[1] + '\n');
  writeFileSync(join(models, 'coder.toml'), '[sampling]\nchain = ["top_k", "temperature"]\n');
  const { url, kill, stop } = await serve('--keys', keys, '--models', models);
  t.after(kill);
  const apiKey = made.match(/key: +(\S+)/)[1];
  const change = (what, body = {}) => fetch(`${url}/v1/model/${what}`, { method: 'POST', body: JSON.stringify(body),
    headers: { 'x-api-key': apiKey } }).then((response) => response.text());
  assert.match(await change('unload'), /"ok"/);
  const wanted = { openai: 'InternalServerError', anthropic: 'ServiceUnavailableError' };
  for (const [name, client] of Object.entries(clients(url, { apiKey, maxRetries: 0 })))
    assert.equal(await expectRejected(name, client, () => client.ask(), wanted, 503), 1);
  const again = clients(url, { apiKey, maxRetries: 8 });
  const names = ['openai', 'responses', 'anthropic'];
  const answers = names.map((name) => again[name].ask());
  while (names.some((name) => again[name].requests === 0)) await new Promise((resolve) => { setTimeout(resolve, 5); });
  await new Promise((resolve) => { setTimeout(resolve, 300); });  // they have been told to come again
  assert.match(await change('load', { model_name: 'coder' }), /"finished"/);
  await Promise.all(answers);
  for (const name of names) assert.ok(again[name].requests > 1, name);
  assert.equal(await stop(), 0);
});

test('a plugin that fails is not asked again, and ends a stream with an error', async (t) => {
  const file = join(folder, 'throws.toml');
  writeFileSync(file, '[sampling]\nchain = ["bad_throws", "temperature"]\n[[plugin]]\nname = "bad_throws"\n');
  process.env.FORESAY_PLUGIN_PATH = process.env.FORESAY_BAD_FOLDER;  // where plugins need not be allowed one by one
  const failing = await serve(file);
  t.after(failing.kill);
  const all = clients(failing.url);
  // The library ai goes by the status alone, and would come again.
  for (const name of ['openai', 'responses', 'anthropic', 'ollama']) {
    const client = all[name];
    assert.equal(await expectRejected(name, client, () => client.ask(), 'InternalServerError', 500), 1, name);
  }
  const ai = clients(failing.url, { maxRetries: 0 }).ai;
  assert.equal(await expectRejected('ai', ai, () => ai.ask(), '', 500), 1);

  const openai = new OpenAI({ baseURL: failing.url + '/v1', apiKey: 'x' });
  const read = async (stream) => { for await (const part of await stream) assert.ok(part); };
  await assert.rejects(read(openai.chat.completions.create({ model: 'm', messages, stream: true })),
    (error) => error instanceof OpenAI.APIError && /bad_throws/.test(error.message));
  await assert.rejects(openai.chat.completions.stream({ model: 'm', messages }).finalChatCompletion(), /bad_throws/);
  let failed;
  for await (const event of await openai.responses.create({ model: 'm', input: content, stream: true }))
    if (event.type === 'response.failed') failed = event.response.error.message;
  assert.match(failed, /bad_throws/);
  const anthropic = new Anthropic({ baseURL: failing.url, apiKey: 'x' });
  await assert.rejects(anthropic.messages.stream({ model: 'm', messages, max_tokens: 5 }).finalMessage(),
    (error) => error instanceof Anthropic.APIError && /bad_throws/.test(error.message));
  const ollama = new Ollama({ host: failing.url });
  await assert.rejects(read(ollama.chat({ model: 'm', messages, stream: true })), /bad_throws/);
  const model = createOpenAICompatible({ name: 'own', baseURL: failing.url + '/v1' })('m');
  const errors = [];
  const streamed = streamText({ model, prompt: content, onError: ({ error }) => { errors.push(error); } });
  for await (const part of streamed.fullStream) assert.ok(part);
  assert.match(JSON.stringify(errors, (name, value) => (value instanceof Error ? value.message : value)), /bad_throws/);
  assert.equal(await failing.stop(), 0);
});
