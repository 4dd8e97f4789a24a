// TLS in front of the server, with the files of examples/deploy: a stream arrives through it piece by piece, and a
// client that goes is noticed. Certificates are made here; Caddy makes its own.
import assert from 'node:assert';
import { execFileSync, spawn } from 'node:child_process';
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:https';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { serve } from '../clients/server.mjs';

const front = process.env.FORESAY_FRONT;
const folder = mkdtempSync(join(tmpdir(), 'foresay-tls-'));
const certificate = join(folder, 'foresay.pem');
let server, proxy, port, ca;

const sleep = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });
const freePort = () => new Promise((resolve) => {
  const taken = createServer().listen(0, '127.0.0.1', () => {
    const number = taken.address().port;
    taken.close(() => resolve(number));
  });
});

// The file of a front, with this test's places in it, and what runs it.
const fronts = {
  caddy: () => ['Caddyfile', (text) => `{\n\tadmin off\n\tskip_install_trust\n\tauto_https disable_redirects\n`
    + `\tstorage file_system ${folder}/caddy\n}\n${text.replaceAll('models.example.org', `https://localhost:${port}`)
      .replaceAll('127.0.0.1:8080', new URL(server.url).host)}`,
  (file) => ['caddy', ['run', '--adapter', 'caddyfile', '--config', file]]],
  stunnel: () => ['stunnel.conf', (text) => text.replace('accept = 443', `accept = 127.0.0.1:${port}`)
    .replaceAll('/run/foresay/http.sock', join(folder, 'http.sock')).replace('/etc/stunnel/foresay.pem', certificate),
  (file) => ['stunnel', [file]]],
  nginx: () => ['nginx.conf', (text) => text.replaceAll(/127\.0\.0\.1:808[12]/g, new URL(server.url).host)
    .replace('listen 127.0.0.1:8080;', `listen 127.0.0.1:${port} ssl;\n    ssl_certificate ${certificate};\n`
      + `    ssl_certificate_key ${certificate};`),
  (file) => ['nginx', ['-p', folder, '-c', file, '-g', 'daemon off;']]],
  haproxy: () => ['haproxy.cfg', (text) => text.replaceAll(/127\.0\.0\.1:808[12]/g, new URL(server.url).host)
    .replace('bind 127.0.0.1:8080', `bind 127.0.0.1:${port} ssl crt ${certificate}`),
  (file) => ['haproxy', ['-db', '-f', file]]],
};

before(async () => {
  port = await freePort();
  const more = front === 'stunnel' ? ['--listen', `unix:${folder}/http.sock`] : [];
  server = await serve('--parallel', '2', ...more);
  execFileSync('openssl', ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', '-subj', '/CN=localhost',
    '-addext', 'subjectAltName=DNS:localhost', '-keyout', join(folder, 'key'), '-out', join(folder, 'cert')],
  { stdio: 'ignore' });
  writeFileSync(certificate, readFileSync(join(folder, 'cert'), 'utf8') + readFileSync(join(folder, 'key'), 'utf8'));
  chmodSync(certificate, 0o600);
  const [name, adapted, command] = fronts[front]();
  const file = join(folder, name);
  writeFileSync(file, adapted(readFileSync(join(process.env.FORESAY_DEPLOY, name), 'utf8')));
  const [program, options] = command(file);
  proxy = spawn(program, options, { stdio: 'ignore', env: { ...process.env, HOME: folder } });
  const root = front === 'caddy' ? join(folder, 'caddy/pki/authorities/local/root.crt') : join(folder, 'cert');
  for (let i = 0; i < 200; ++i) {
    if (existsSync(root)) {
      ca = readFileSync(root);
      if (await ask('GET', '/ready').then((response) => response.statusCode === 200, () => false)) return;
    }
    await sleep(50);
  }
  throw new Error(`${front} does not answer`);
});
after(async () => {
  proxy?.kill('SIGTERM');
  await server?.stop();
  rmSync(folder, { recursive: true, force: true });
});

function ask(method, path, body) {
  return new Promise((resolve, reject) => {
    const sent = request({ host: '127.0.0.1', servername: 'localhost', port, path, method, ca,
      headers: { host: 'localhost', 'content-type': 'application/json' } }, resolve);
    sent.on('error', reject);
    sent.end(body ? JSON.stringify(body) : undefined);
  });
}
const metric = async (name) => Number((await (await fetch(`${server.url}/metrics`)).text())
  .match(new RegExp(`^foresay_${name}\\{[^}]*\\} (\\d+)`, 'm'))[1]);
const textOf = async (response) => {
  let text = '';
  for await (const piece of response) text += piece;
  return text;
};

const body = { messages: [{ role: 'user', content: 'x = ' }], max_tokens: 24, seed: 5, temperature: 0.9,
  ignore_eos: true };

test('an answer is the same through it', async () => {
  const whole = JSON.parse(await textOf(await ask('POST', '/v1/chat/completions', body)));
  const direct = await (await fetch(`${server.url}/v1/chat/completions`,
    { method: 'POST', body: JSON.stringify(body) })).json();
  assert.deepEqual(whole.choices, direct.choices);
});

test('the first piece of a stream arrives while there is no other', async () => {
  // Both places are taken, by clients of the server itself.
  const controller = new AbortController();
  for (let i = 0; i < 2; ++i) {
    const other = await fetch(`${server.url}/v1/chat/completions`, { method: 'POST', signal: controller.signal,
      body: JSON.stringify({ ...body, seed: i, stream: true, max_tokens: 990 }) });
    await other.body.getReader().read();
  }
  const response = await ask('POST', '/v1/chat/completions', { ...body, stream: true });
  const pieces = response[Symbol.asyncIterator]();
  const first = String((await pieces.next()).value);
  assert.equal(await metric('requests_waiting'), 1, 'it arrives when the text has its place, and not before');
  controller.abort();
  assert.match(first, /"role":"assistant"/);
  let text = first;
  for (let piece = await pieces.next(); !piece.done; piece = await pieces.next()) text += piece.value;
  assert.match(text, /\[DONE\]/);
});

test('a client that goes is noticed', async () => {
  const response = await ask('POST', '/v1/chat/completions', { ...body, stream: true, max_tokens: 990 });
  await response[Symbol.asyncIterator]().next();
  const before = await metric('generated_tokens_total');
  response.destroy();
  while (await metric('requests_running') > 0) await sleep(5);
  assert.ok(await metric('generated_tokens_total') < before + 990, 'it is not written to its end');
});
