// The page of the server in a browser, on the real server: FORESAY_PROGRAM=... FORESAY_BROWSER=... node --test
// FORESAY_SCREENSHOTS names a folder for pictures of it.
import assert from 'node:assert';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { chromium } from 'playwright-core';
import { serve } from './server.mjs';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
let server, browser;
before(async () => {
  server = await serve();
  browser = await chromium.launch({ executablePath: process.env.FORESAY_BROWSER, args: ['--no-sandbox'] });
});
after(async () => {
  await browser?.close();
  assert.equal(await server.stop(), 0);
});

// A fresh page; what it complains about or asks of others fails the test.
async function open(settings = {}, options = {}, url = server.url) {
  const context = await browser.newContext({ permissions: ['clipboard-read', 'clipboard-write'], ...options });
  const page = await context.newPage();
  const wrong = [];
  page.on('pageerror', (error) => wrong.push(error.message));
  page.on('console', (message) => { if (message.type() === 'error') wrong.push(message.text()); });
  page.on('request', (request) => {
    if (!request.url().startsWith(url) && !request.url().startsWith('data:')) wrong.push(request.url());
  });
  await page.addInitScript((values) => {
    if (!localStorage.getItem('settings')) localStorage.setItem('settings', JSON.stringify(values));
  }, { max_tokens: 24, seed: 7, temperature: 0.6, ...settings });
  await page.goto(url);
  await until(page, () => document.getElementById('model').textContent !== '');
  return { page, wrong, context };
}

// Playwright's own way to wait needs eval, which the page's policy forbids.
async function until(page, holds, what = holds.toString()) {
  for (const begun = Date.now(); Date.now() - begun < 30_000;) {
    if (await page.evaluate(holds)) return;
    await new Promise((resolve) => { setTimeout(resolve, 50); });
  }
  assert.fail(`this did not come to hold: ${what}; status: ${await page.textContent('#status')}`);
}

function newKey() {
  const said = execFileSync(process.env.FORESAY_PROGRAM, ['serve', '--new-key', 'page'], { encoding: 'utf8' });
  return { key: said.match(/key: +(\S+)/)[1], line: said.match(/line: +(.*)/)[1] };
}

async function send(page, text) {
  await page.fill('#input', text);
  await page.keyboard.press('Enter');
}
const ended = (page) => until(page, () => document.getElementById('stop').disabled
  && document.querySelector('.message:not(.user) .body')?.textContent);
// In the page: whether the store has a conversation with an answer.
const saved = () => new Promise((resolve) => {
  const request = indexedDB.open('foresay', 1);
  request.onsuccess = () => {
    const all = request.result.transaction('conversations').objectStore('conversations').getAll();
    all.onsuccess = () => {
      resolve(all.result.some((one) => one.nodes.some((node) => node.role === 'assistant' && node.text)));
      request.result.close();
    };
  };
});
const answer = (page) => page.locator('.message:not(.user) .body').last().textContent();
const press = (page, name) => page.getByRole('button', { name, exact: true }).last().click();

async function accessible(page, what) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run());
  assert.deepEqual(violations.map((v) => `${what}: ${v.id}: ${v.nodes[0].html}`), []);
}

test('it is small, and its policy lets nothing in', async () => {
  const folder = process.env.FORESAY_PAGE;
  const size = readdirSync(folder).filter((name) => /\.(html|css|js)$/.test(name))
    .reduce((sum, name) => sum + gzipSync(readFileSync(`${folder}/${name}`)).length, 0);
  assert.ok(size <= 60 * 1024, `${size} bytes compressed`);
  const response = await fetch(server.url);
  assert.match(response.headers.get('content-security-policy'), /default-src 'none'; script-src 'self'/);
  assert.equal((await fetch(`${server.url}/page/nonesuch.js`)).status, 404);
  assert.equal((await fetch(`${server.url}/page/../page.h`)).status, 404);
});

test('a chat: send, retry as branch, edit, continue, reload', async () => {
  const { page, wrong } = await open();
  await send(page, 'def add(a, b):');
  await ended(page);
  const first = await answer(page);
  assert.ok(first.length > 5);
  assert.match(await page.textContent('#status'), /\d+ tokens · \d+ tok\/s · prompt \d+/);
  await press(page, 'Retry');
  await ended(page);
  assert.match(await page.locator('.message:not(.user) .head').textContent(), /2\/2.*seed 7, branch 1/);
  assert.notEqual(await answer(page), first);
  await press(page, '‹');
  assert.equal(await answer(page), first);
  // The same branch of the same seed, asked of the server itself.
  const direct = await (await fetch(`${server.url}/v1/chat/completions`, { method: 'POST', body: JSON.stringify({
    messages: [{ role: 'user', content: 'def add(a, b):' }], max_tokens: 24, seed: 7, temperature: 0.6 }) })).json();
  assert.equal(first, direct.choices[0].message.content);
  await press(page, 'Edit');
  await page.getByLabel('Text', { exact: true }).fill('    return sum(');
  await page.getByRole('button', { name: 'Continue', exact: true }).last().click();
  await ended(page);
  assert.ok((await answer(page)).startsWith('    return sum('));
  await page.waitForTimeout(100);
  await page.reload();
  await page.getByRole('button', { name: 'Conversations' }).click();
  await page.getByRole('button', { name: 'def add(a, b):', exact: true }).click();
  assert.ok((await answer(page)).startsWith('    return sum('));
  assert.deepEqual(wrong, []);
});

test('stop ends the answer here and on the server', async () => {
  const { page } = await open({ max_tokens: 900, stop: '' });
  await send(page, 'import os\n');
  await until(page, () => document.querySelector('.message:not(.user) .body')?.textContent.length > 10);
  await page.keyboard.press('Escape');
  await until(page, () => document.getElementById('stop').disabled);
  assert.match(await page.textContent('#status'), /Stopped|tokens/);
  await until(page, async () => (await (await fetch('/metrics')).text()).includes('foresay_requests_running{')
    && /foresay_requests_running\{[^}]*\} 0\n/.test(await (await fetch('/metrics')).text()));
});

test('a key is asked for, and used', async () => {
  const { key, line } = newKey();
  const folder = mkdtempSync(join(tmpdir(), 'foresay-page-'));
  writeFileSync(join(folder, 'keys'), `${line}\n`);
  const guarded = await serve('--keys', join(folder, 'keys'));
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(guarded.url);
  await until(page, () => /wants a key/.test(document.getElementById('status').textContent));
  await page.getByRole('button', { name: 'Settings' }).click();
  await page.getByLabel('Key').fill(key);
  await page.getByRole('button', { name: 'Close' }).first().click();
  await until(page, () => document.getElementById('model').textContent !== '');
  assert.equal(await page.evaluate(() => JSON.stringify(localStorage)).then((text) => text.includes('key')), false);
  assert.equal(await guarded.stop(), 0);
});

test('conversations can be read while the server is away', async () => {
  const away = await serve();
  const { page, context } = await open({}, {}, away.url);
  await send(page, 'q = ');
  await ended(page);
  const text = await answer(page);
  await until(page, () => navigator.serviceWorker.controller !== null);
  await until(page, saved);
  assert.equal(await away.stop(), 0);
  await page.reload();
  await page.getByRole('button', { name: 'Conversations' }).click();
  await page.getByRole('button', { name: 'q =', exact: true }).click();
  assert.equal(await answer(page), text);
  await send(page, 'r = ');
  await until(page, () => document.querySelector('p.error')
    || /not|fail/i.test(document.getElementById('status').textContent));
  await context.close();
});

test('answers side by side, one of which is chosen', async () => {
  const { page, wrong } = await open({ n: 3, temperature: 1 });
  await send(page, 'x = ');
  await ended(page);
  assert.equal(await page.locator('.columns .message').count(), 3);
  await page.getByRole('button', { name: 'Choose', exact: true }).last().click();
  await send(page, 'y = ');
  await ended(page);
  assert.equal(await page.locator('.message.user').count(), 2);
  assert.deepEqual(wrong, []);
});

test('drafted tokens are shaded, and tokens tell their alternatives', async () => {
  // Whether drafting pays is measured, so it is not left to that.
  const drafting = await serve('--parallel', '1', '--set', 'speculation.mode="fixed"');
  const { page } = await open({ alternatives: 4, max_tokens: 60 }, {}, drafting.url);
  await send(page, 'a = 1\nb = 2\nc = 3\na = 1\nb = 2\nc = 3\na = 1\nb = 2\n');
  await ended(page);
  await press(page, 'Tokens');
  await until(page, () => document.querySelectorAll('.tokens .token').length > 20);
  assert.ok(await page.locator('.tokens .ngram, .tokens .draft, .tokens .other').count() > 0);
  assert.match(await page.textContent('#legend'), /\d+ of \d+/);
  await page.locator('.tokens button.token').nth(3).click();
  assert.equal(await page.locator('#alternatives-rows tr').count(), 4);
  await accessible(page, 'alternatives');
  assert.equal(await drafting.stop(), 0);
});

test('an answer that ends before its grammar does says so', async () => {
  const under = await serve('--set', 'sampling.chain=["grammar", "temperature"]',
    '--set', 'sampling.grammar.language="regex"', '--set', 'sampling.grammar.text="[0-9]{40}"');
  const cut = 'The answer ends before the grammar of sampler \'grammar\' does: it has the 12 tokens that it may have; '
    + 'max_tokens allows more.';
  const { page, wrong } = await open({ max_tokens: 12, n: 2 }, {}, under.url);
  await send(page, 'x = ');
  await ended(page);
  const told = page.locator('.message:not(.user) .unfinished');
  assert.deepEqual(await told.allTextContents(), [cut, cut]);
  assert.ok((await page.textContent('#status')).startsWith(`${cut} · 24 tokens · `));
  await accessible(page, 'unfinished');
  await page.getByRole('button', { name: 'Fill', exact: true }).first().click();
  await page.fill('#prefix', 'x = ');
  await page.click('#fill-run');
  await until(page, () => document.getElementById('fill-stop').disabled
    && document.getElementById('middle').textContent);
  assert.ok((await page.textContent('#status')).startsWith(`${cut} · 12 tokens · `));
  assert.deepEqual(wrong, []);
  // It is kept with the conversation.
  await page.reload();
  await page.getByRole('button', { name: 'Conversations' }).click();
  await page.getByRole('button', { name: 'x =', exact: true }).click();
  assert.deepEqual(await told.allTextContents(), [cut, cut]);
  // One that reaches the end says nothing.
  const { page: other } = await open({ max_tokens: 60 }, {}, under.url);
  await send(other, 'x = ');
  await ended(other);
  assert.match(await answer(other), /^[0-9]{40}$/);
  assert.equal(await other.locator('.unfinished').count(), 0);
  assert.match(await other.textContent('#status'), /^\d+ tokens · /);
  assert.equal(await under.stop(), 0);
});

test('what a model writes is text, whatever it is', async () => {
  const { page, wrong } = await open({ view: 'markdown', stop: '' });
  const hostile = '<img src=x onerror=alert(1)> <script>alert(2)</script> [a](javascript:alert(3)) **b** `c`';
  await page.evaluate(async (text) => {
    const { markdown } = await import('/page/markdown.js');
    document.getElementById('messages').append(markdown(text + '\n\n```html\n' + text + '\n```\n- ' + text));
  }, hostile);
  const holder = page.locator('#messages');
  assert.equal(await holder.locator('img, script, a').count(), 0);
  assert.match(await holder.textContent(), /<img src=x onerror=alert\(1\)>/);
  assert.equal(await holder.locator('pre').count(), 1);
  await accessible(page, 'markdown');
  assert.deepEqual(wrong, []);
});

test('a hole is filled, accepted, and told as curl', async () => {
  const { page, wrong } = await open();
  await page.getByRole('button', { name: 'Fill', exact: true }).first().click();
  await page.fill('#prefix', 'def area(width, height):\n    return ');
  await page.fill('#suffix', '\n\nprint(area(2, 3))\n');
  await page.click('#fill-run');
  await until(page, () => document.getElementById('fill-stop').disabled
    && document.getElementById('middle').textContent);
  await page.click('#fill-curl');
  assert.match(await page.evaluate(() => navigator.clipboard.readText()), /^curl http.*\/v1\/completions .*"suffix"/);
  await page.click('#fill-accept');
  assert.ok((await page.inputValue('#prefix')).length > 40);
  await accessible(page, 'fill');
  assert.deepEqual(wrong, []);
});

test('files are attached, errors are told, settings are kept', async () => {
  const { page } = await open();
  await page.setInputFiles('#file-input', { name: 'a.py', mimeType: 'text/plain', buffer: Buffer.from('z = 1\n') });
  assert.match(await page.textContent('#files'), /a\.py/);
  await send(page, 'Look:');
  await ended(page);
  assert.match(await page.locator('.message.user .body').textContent(), /a\.py:\n```\nz = 1/);
  await page.getByRole('button', { name: 'Settings' }).click();
  await accessible(page, 'settings');
  await page.getByLabel('Sampler stages').fill('nonesuch');
  await page.getByRole('button', { name: 'Close' }).first().click();
  await send(page, 'x');
  await until(page, () => document.querySelector('p.error'));
  assert.match(await page.textContent('p.error'), /neither built in nor/);
  await page.reload();
  await page.getByRole('button', { name: 'Settings' }).click();
  assert.equal(await page.getByLabel('Sampler stages').inputValue(), 'nonesuch');
});

for (const [name, options] of Object.entries({
  phone: { viewport: { width: 360, height: 740 }, colorScheme: 'dark' },
  desk: { viewport: { width: 1280, height: 800 }, colorScheme: 'light' } })) {
  test(`${name}: nothing sticks out, and axe-core finds nothing`, async () => {
    const drafting = await serve('--parallel', '1', '--set', 'speculation.mode="fixed"');
    const { page } = await open({ max_tokens: 100, explain: 'live' }, options, drafting.url);
    await send(page, 'def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n    return a - b\n\n\ndef mul(a, b):\n');
    await ended(page);
    await page.waitForTimeout(50);
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth));
    await accessible(page, name);
    const folder = process.env.FORESAY_SCREENSHOTS;
    if (folder) {
      const shoot = (what) => page.screenshot({ path: `${folder}/${name}-${what}.png` });
      await shoot('chat');
      await page.getByRole('button', { name: 'Settings' }).click();
      await shoot('settings');
      await page.getByRole('button', { name: 'Close' }).first().click();
      await page.getByRole('button', { name: 'Conversations' }).click();
      await shoot('list');
      await page.getByRole('button', { name: 'Close' }).first().click();
      await page.getByRole('button', { name: 'Fill', exact: true }).first().click();
      await shoot('fill');
    }
    assert.equal(await drafting.stop(), 0);
  });
}
