// Requests to the server that this page comes from.
import { settings } from './settings.js';

export function headers() {
  const key = settings.value('key');
  return { 'content-type': 'application/json', ...(key ? { authorization: `Bearer ${key}` } : {}) };
}

async function problemOf(response) {
  const text = await response.text();
  try {
    return new Error(JSON.parse(text).error.message);
  } catch {
    return new Error(`${response.status} ${response.statusText}`);
  }
}

export async function ask(path, body) {
  const response = await fetch(path, body ? { method: 'POST', headers: headers(), body: JSON.stringify(body) }
    : { headers: headers() });
  if (!response.ok) throw await problemOf(response);
  return response.json();
}

// Gives each event of a stream to `take`. What the reader holds back is at most one event.
export async function stream(path, body, take, signal) {
  const response = await fetch(path, { method: 'POST', headers: headers(), body: JSON.stringify(body), signal });
  if (!response.ok) throw await problemOf(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    held += value;
    for (let end = held.indexOf('\n\n'); end >= 0; end = held.indexOf('\n\n')) {
      const line = held.slice(0, end);
      held = held.slice(end + 2);
      if (!line.startsWith('data: ') || line === 'data: [DONE]') continue;
      const event = JSON.parse(line.slice(6));
      if (event.error) throw new Error(event.error.message);
      take(event);
    }
  }
}

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
export function curl(path, body) {
  const key = settings.value('key') ? " -H 'authorization: Bearer KEY'" : '';
  return `curl ${location.origin}${path} -H 'content-type: application/json'${key} -d ${quoted(JSON.stringify(body))}`;
}
