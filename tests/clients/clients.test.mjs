// The libraries that programs use, unmodified: npm ci && FORESAY_PROGRAM=... node --test
import assert from 'node:assert';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import OpenAI from 'openai';
import Anthropic from '@anthropic-ai/sdk';
import { Ollama } from 'ollama';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateObject, generateText, jsonSchema, streamText } from 'ai';
import { serve } from './server.mjs';

let server, openai, anthropic, ollama;
before(async () => {
  server = await serve();
  openai = new OpenAI({ baseURL: server.url + '/v1', apiKey: 'x' });
  anthropic = new Anthropic({ baseURL: server.url, apiKey: 'x' });
  ollama = new Ollama({ host: server.url });
});
after(async () => {
  assert.equal(await server.stop(), 0);
});

const messages = [{ role: 'user', content: 'def add(a, b):' }];

test('openai: a chat, whole and streamed, is the same text', async () => {
  const body = { model: 'gpt-4', messages, max_tokens: 24, seed: 5, temperature: 0.8, ignore_eos: true };
  const whole = await openai.chat.completions.create(body);
  const runner = openai.chat.completions.stream({ ...body, stream_options: { include_usage: true } });
  let text = '';
  runner.on('content', (delta) => { text += delta; });
  const final = await runner.finalChatCompletion();
  assert.equal(text, whole.choices[0].message.content);
  assert.equal(final.choices[0].message.content, text);
  assert.equal(final.choices[0].finish_reason, 'length');
  assert.equal(final.usage.completion_tokens, 24);
  assert.equal(final.system_fingerprint, whole.system_fingerprint);
});

test('openai: log probabilities and several answers', async () => {
  const answer = await openai.chat.completions.create(
    { model: 'm', messages, max_tokens: 5, n: 2, logprobs: true, top_logprobs: 2 });
  assert.equal(answer.choices.length, 2);
  assert.equal(answer.choices[1].logprobs.content.length, 5);
  assert.equal(answer.choices[1].logprobs.content[0].top_logprobs.length, 2);
});

test('openai: the classes of its errors, and no retry of what stays wrong', async () => {
  let requests = 0;
  const counting = new OpenAI({ baseURL: server.url + '/v1', apiKey: 'x',
    fetch: (...all) => { requests += 1; return fetch(...all); } });
  await assert.rejects(counting.chat.completions.create({ model: 'm', messages, temperature: -1 }), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.equal(error.param, 'temperature');
    assert.equal(error.code, 'invalid_value');
    return true;
  });
  await assert.rejects(counting.models.retrieve('nonesuch'), OpenAI.NotFoundError);
  await assert.rejects(counting.embeddings.create({ model: 'm', input: 'x' }), (error) => error.status === 501);
  assert.equal(requests, 3);
  await assert.rejects(openai.completions.create({ model: 'm', prompt: 'x = 1\n'.repeat(2000) }),
    (error) => error.code === 'context_length_exceeded');
});

test('openai: an abort ends the answer and frees the place', async () => {
  const stream = await openai.chat.completions.create(
    { model: 'm', messages, max_tokens: 900, stream: true, ignore_eos: true });
  for await (const chunk of stream) {
    if (chunk.choices[0].delta.content) break;
  }
  stream.controller.abort();
  const short = await openai.chat.completions.create({ model: 'm', messages, max_tokens: 1 });
  assert.equal(short.usage.completion_tokens, 1);
});

test('openai: responses', async () => {
  const body = { model: 'm', input: 'x = 1', max_output_tokens: 12, seed: 1, ignore_eos: true };
  const whole = await openai.responses.create(body);
  assert.equal(whole.status, 'incomplete');
  const stream = openai.responses.stream(body);
  let text = '';
  stream.on('response.output_text.delta', (event) => { text += event.delta; });
  const final = await stream.finalResponse();
  assert.equal(text, whole.output_text);
  assert.equal(final.output[0].content[0].text, text);
  const tool = { type: 'function', name: 'weather', parameters: { type: 'object', properties: {} }, strict: false };
  const next = await openai.responses.create({ model: 'm', max_output_tokens: 3, tools: [tool], ignore_eos: true,
    input: [{ role: 'user', content: 'x' }, { type: 'function_call', call_id: 'c1', name: 'weather', arguments: '{}' },
      { type: 'function_call_output', call_id: 'c1', output: 'rain' }] });
  assert.equal(next.usage.output_tokens, 3);
});

test('openai: stored responses, until they are forgotten', async () => {
  const body = { model: 'm', max_output_tokens: 6, seed: 1, ignore_eos: true };
  const first = await openai.responses.create({ ...body, input: 'a = 1', store: true });
  assert.equal((await openai.responses.retrieve(first.id)).output_text, first.output_text);
  const next = await openai.responses.create({ ...body, input: 'b = 2', previous_response_id: first.id });
  assert.ok(next.usage.input_tokens > first.usage.input_tokens + 4);
  await openai.responses.delete(first.id);
  await assert.rejects(openai.responses.retrieve(first.id), OpenAI.NotFoundError);
  await assert.rejects(openai.responses.create({ ...body, input: 'b', previous_response_id: first.id }),
    (error) => error.status === 404 && error.code === 'previous_response_not_found');
});

test('anthropic: messages, whole and streamed, and counts', async () => {
  const body = { model: 'claude', max_tokens: 16, messages, system: '# Python', seed: 3, ignore_eos: true };
  const whole = await anthropic.messages.create(body);
  assert.equal(whole.stop_reason, 'max_tokens');
  const final = await anthropic.messages.stream(body).finalMessage();
  assert.equal(final.content[0].text, whole.content[0].text);
  for (const message of [whole, final]) assert.equal(message.foresay.seed, 3);
  assert.equal(final.foresay.system_fingerprint, whole.foresay.system_fingerprint);
  const counted = await anthropic.messages.countTokens({ model: 'claude', messages, system: '# Python' });
  assert.equal(counted.input_tokens, whole.usage.input_tokens + whole.usage.cache_read_input_tokens);
  await assert.rejects(anthropic.messages.create({ model: 'c', max_tokens: 1, messages: [] }), Anthropic.BadRequestError);
});

test('ollama: chat, generate and what clients look for', async () => {
  const options = { num_predict: 12, seed: 2 };
  const whole = await ollama.chat({ model: 'm', messages, options });
  let text = '';
  for await (const part of await ollama.chat({ model: 'm', messages, options, stream: true })) text += part.message.content;
  assert.equal(text, whole.message.content);
  assert.equal(whole.eval_count, 12);
  assert.equal(whole.foresay.seed, 2);
  const filled = await ollama.generate({ model: 'm', prompt: 'def add(a, b):\n    return ', suffix: '\n', raw: true, options });
  assert.ok(filled.response.length > 0);
  assert.equal((await ollama.list()).models.length, 1);
  assert.ok((await ollama.show({ model: 'm' })).capabilities.includes('tools'));
  await assert.rejects(ollama.pull({ model: 'm' }), /neither fetches nor changes/);
});

test('ai: text and stream', async () => {
  const provider = createOpenAICompatible({ name: 'foresay', baseURL: server.url + '/v1' });
  const model = provider('m');
  const whole = await generateText({ model, prompt: 'x = 1', maxOutputTokens: 10, seed: 4 });
  const stream = streamText({ model, prompt: 'x = 1', maxOutputTokens: 10, seed: 4 });
  let text = '';
  for await (const part of stream.textStream) text += part;
  assert.equal(text, whole.text);
});

// A template whose prompt opens the reasoning: what the model writes is reasoning until it closes it, if it does.
test('reasoning is what each of them calls it', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'foresay-thinks-'));
  const file = join(folder, 'thinks.jinja');
  writeFileSync(file, '{% for m in messages %}{{ m.content }}\n{% endfor %}<think>\n{# ends with </think> #}');
  const thinking = await serve('--set', 'chat.style="auto"', '--set', `chat.template="${file}"`);
  const common = { model: 'm', messages, max_tokens: 16, seed: 3, ignore_eos: true };
  const client = new Anthropic({ baseURL: thinking.url, apiKey: 'x' });
  const body = { ...common, max_tokens: 16, thinking: { type: 'enabled', budget_tokens: 1024 } };
  const whole = await client.messages.create(body);
  assert.equal(whole.content[0].type, 'thinking');
  assert.ok(whole.content[0].thinking.length > 0);
  let told = '';
  const stream = client.messages.stream(body).on('thinking', (delta) => { told += delta; });
  assert.deepEqual((await stream.finalMessage()).content, whole.content);
  assert.equal(told, whole.content[0].thinking);
  const chat = await new OpenAI({ baseURL: thinking.url + '/v1', apiKey: 'x' }).chat.completions.create(common);
  assert.equal(chat.choices[0].message.reasoning_content, told);
  assert.equal(chat.choices[0].message.content, whole.content[1]?.text ?? '');
  const { reasoning_tokens: reasoned } = chat.usage.completion_tokens_details;
  assert.ok(reasoned > 0 && reasoned <= 16, `${reasoned} tokens of reasoning`);
  const answer = await new Ollama({ host: thinking.url }).chat({ model: 'm', messages, think: true,
    options: { num_predict: 16, seed: 3, ignore_eos: true } });
  assert.ok(answer.message.thinking.length > 0);
  const model = createOpenAICompatible({ name: 'foresay', baseURL: thinking.url + '/v1' })('m');
  const text = await generateText({ model, prompt: messages[0].content, maxOutputTokens: 16, seed: 3 });
  assert.ok(text.reasoningText.length > 0);
  assert.equal(await thinking.stop(), 0);
  rmSync(folder, { recursive: true });
});

const schema = { type: 'object', properties: { ok: { type: 'boolean' }, size: { type: 'string', enum: ['S', 'L'] } },
  required: ['ok', 'size'], additionalProperties: false };
const check = (value) => {
  assert.deepEqual(Object.keys(value).sort(), ['ok', 'size']);
  assert.equal(typeof value.ok, 'boolean');
  assert.ok(['S', 'L'].includes(value.size));
};

test('openai: answers of a form and strict tools, as its helpers read them', async () => {
  const response_format = { type: 'json_schema', json_schema: { name: 'a', strict: true, schema } };
  const parsed = await openai.chat.completions.parse({ model: 'm', messages, response_format });
  check(parsed.choices[0].message.parsed);
  const tools = [{ type: 'function', function: { name: 'order', strict: true, parameters: schema } }];
  const final = await openai.chat.completions.stream({ model: 'm', messages, tools, tool_choice: 'required',
    parallel_tool_calls: false, temperature: 1, seed: 9 }).finalChatCompletion();
  assert.equal(final.choices[0].finish_reason, 'tool_calls');
  check(JSON.parse(final.choices[0].message.tool_calls[0].function.arguments));
  const response = await openai.responses.parse({ model: 'm', input: 'x = 1',
    text: { format: { type: 'json_schema', name: 'a', strict: true, schema } } });
  check(response.output_parsed);
});

test('anthropic, ollama, ai: answers of a form and required calls', async () => {
  const message = await anthropic.messages.stream({ model: 'c', max_tokens: 80, messages,
    tools: [{ name: 'order', input_schema: schema, strict: true }],
    tool_choice: { type: 'tool', name: 'order', disable_parallel_tool_use: true } }).finalMessage();
  assert.equal(message.stop_reason, 'tool_use');
  check(message.content[0].input);
  check(JSON.parse((await ollama.chat({ model: 'm', messages, format: schema })).message.content));
  const model = createOpenAICompatible({ name: 'foresay', baseURL: server.url + '/v1',
    supportsStructuredOutputs: true })('m');
  check((await generateObject({ model, prompt: 'x = 1', schema: jsonSchema(schema) })).object);
});
