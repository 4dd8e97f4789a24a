// The chat: messages as a tree, answers as they come.
import { curl, stream } from './api.js';
import { button, copy, el, find, say, sentence } from './dom.js';
import { highlight, markdown } from './markdown.js';
import { classOf, Meter } from './meter.js';
import { settings } from './settings.js';
import { save } from './store.js';
import { add, childrenOf, groupOf, makeConversation, nextBranch, pathOf, show } from './tree.js';

let conversation = makeConversation();
let running = null;  // the AbortController of the answer that comes
let files = [];
const shown = new Map();  // by node: its body, which is drawn again while the answer comes
const asTokens = new Set();

// ---- drawing

function tokenView(node) {
  return el('div', { className: 'tokens' }, ...(node.tokens ?? []).map((token) => {
    const name = `token ${classOf(token.source)}`.trim();
    const title = token.source ? `drafted: ${token.source}` : '';
    if (!token.top) return el('span', { className: name, title }, token.text);
    return el('button', { className: name, title, type: 'button', onclick: () => showAlternatives(token) }, token.text);
  }));
}

function bodyOf(node) {
  const body = el('div', { className: 'body' });
  if (node.reasoning) body.append(el('details', { className: 'reasoning', open: !node.text },
    el('summary', {}, 'Reasoning'), el('div', { className: 'plain' }, node.reasoning)));
  if (asTokens.has(node.id)) body.append(tokenView(node));
  else if (node.role === 'user') body.append(el('div', { className: 'plain' }, node.text));
  else if (settings.plain()) body.append(el('div', { className: 'plain' }, highlight(node.text, 'python')));
  else body.append(markdown(node.text));
  if (node.unfinished) body.append(el('p', { className: 'unfinished' }, node.unfinished));
  if (node.problem) body.append(el('p', { className: 'error' }, node.problem));
  return body;
}

function redraw(node) {
  const old = shown.get(node.id);
  if (!old || old.pending) return;
  old.pending = true;
  requestAnimationFrame(() => {
    old.pending = false;
    const holder = find('messages'), low = holder.scrollHeight - holder.scrollTop - holder.clientHeight < 80;
    const body = bodyOf(node);
    old.element.replaceWith(body);
    old.element = body;
    if (low) holder.scrollTop = holder.scrollHeight;
  });
}

function buttonsOf(node) {
  const out = [];
  const siblings = childrenOf(conversation, node.parent);
  const place = siblings.indexOf(node);
  if (siblings.length > 1) {
    const to = (step) => () => { show(conversation, siblings.at((place + step) % siblings.length).id); draw(); };
    out.push(button('‹', 'The one before', to(-1)), `${place + 1}/${siblings.length}`,
      button('›', 'The next one', to(1)));
  }
  out.push(button('Copy', 'Copy the text', () => copy(node.text, 'Text')));
  out.push(button('Edit', node.role === 'user' ? 'Ask another way' : 'Change the answer', () => edit(node)));
  if (node.role === 'assistant') {
    out.push(button('Retry', 'Another answer: the next branch of its seed (Alt+R)', () => retry(node)));
    out.push(button('Continue', 'Let the model write on', () => goOn(node, node.text)));
    if (node.tokens?.length) out.push(button('Tokens', 'Show who drafted what', () => {
      if (!asTokens.delete(node.id)) asTokens.add(node.id);
      redraw(node);
    }));
    out.push(button('curl', 'Copy as curl',
      () => copy(curl('/v1/chat/completions', requestOf(node.parent, node)), 'Command')));
  }
  return out;
}

function messageOf(node) {
  const element = bodyOf(node);
  shown.set(node.id, { element });
  const facts = node.seed === undefined ? '' : `seed ${node.seed}, branch ${node.branch}`;
  return el('article', { className: `message ${node.role}` },
    el('div', { className: 'head' }, el('strong', {}, node.role === 'user' ? 'You' : 'Model'), ...buttonsOf(node),
      el('span', { className: 'space' }), facts), element);
}

export function draw() {
  shown.clear();
  const parts = [];
  for (const node of pathOf(conversation)) {
    const group = groupOf(conversation, node);
    if (group.length === 1) {
      parts.push(messageOf(node));
      continue;
    }
    parts.push(el('div', { className: 'columns' }, ...group.map((one) => {
      const message = messageOf(one);
      const choose = () => { conversation.at = one.id; draw(); save(conversation); };
      message.querySelector('.head').prepend(
        button(one === node ? 'Chosen' : 'Choose', 'Go on with this answer', choose));
      return message;
    })));
  }
  find('messages').replaceChildren(...parts);
  find('messages').scrollTop = find('messages').scrollHeight;
}

function showAlternatives(token) {
  find('alternatives-rows').replaceChildren(...token.top.map((one) => el('tr', {},
    el('td', {}, JSON.stringify(one.token)), el('td', {}, `${(100 * Math.exp(one.logprob)).toFixed(2)} %`))));
  find('alternatives').showModal();
}

// ---- asking

function requestOf(parent, { seed, branch, n = 1, begun = '' } = {}) {
  const body = settings.request(branch ?? 0);
  if (seed !== undefined) body.seed = seed;
  const alternatives = settings.value('alternatives');
  if (alternatives > 0) Object.assign(body, { logprobs: true, top_logprobs: alternatives });
  if (n > 1) body.n = n;
  const system = settings.value('system');
  body.messages = [...(system ? [{ role: 'system', content: system }] : []),
    ...pathOf(conversation, parent).map((node) => ({ role: node.role, content: node.text }))];
  if (begun) {
    body.messages.push({ role: 'assistant', content: begun });
    body.continue_final_message = true;
    body.add_generation_prompt = false;
  }
  return body;
}

function take(event, nodes, meter) {
  if (event.seed !== undefined) {
    for (const node of nodes) node.seed ??= event.seed;
  }
  for (const choice of event.choices) {
    const node = nodes[choice.index], delta = choice.delta ?? {};
    const text = delta.content ?? '';
    if (delta.reasoning_content) node.reasoning = (node.reasoning ?? '') + delta.reasoning_content;
    node.text += text;
    const told = choice.foresay?.tokens ?? [], rows = choice.logprobs?.content ?? [];
    if (text) node.tokens.push({ text, source: told[0]?.source, top: rows[0]?.top_logprobs });
    if (delta.content || delta.reasoning_content) meter.add(told.length ? told : [{}]);
    if (choice.foresay?.unfinished) node.unfinished = sentence(choice.foresay.unfinished);
    redraw(node);
  }
  if (event.timings) {
    // Of answers side by side each says it below itself, and one of them here.
    const cut = nodes.find((node) => node.unfinished);
    say([...(cut ? [cut.unfinished] : []), Meter.summary(event)].join(' · '), Boolean(cut));
    Meter.legend(event.foresay.speculation.sources);
    if (settings.model.context) find('context').value = event.usage.total_tokens / settings.model.context;
  } else {
    say(meter.text());
  }
}

async function answer(parent, { n = 1, seed, branch = 0, begun = '' } = {}) {
  if (running) return;
  running = new AbortController();
  const controller = running;
  const group = n > 1 ? Date.now() : undefined;
  const body = requestOf(parent, { seed, branch, n, begun });
  const nodes = Array.from({ length: n }, (_, i) => add(conversation, parent, 'assistant', begun,
    { tokens: begun ? [{ text: begun }] : [], branch: branch + i, seed, group }));
  conversation.at = nodes[0].id;
  if (settings.value('explain') === 'live') for (const node of nodes) asTokens.add(node.id);
  draw();
  find('stop').disabled = false;
  find('send').disabled = true;
  const meter = new Meter();
  try {
    await stream('/v1/chat/completions', body, (event) => take(event, nodes, meter), controller.signal);
  } catch (problem) {
    if (problem.name === 'AbortError') {
      say(`Stopped. ${meter.text()}`);
    } else {
      for (const node of nodes) node.problem = problem.message;
      say(problem.message, true);
    }
  }
  running = null;
  find('stop').disabled = true;
  find('send').disabled = false;
  conversation.changed = Date.now();
  draw();
  save(conversation);
}

export function send() {
  const input = find('input');
  let text = input.value;
  if (running || (!text.trim() && !files.length)) return;
  for (const file of files) text += `\n\n${file.name}:\n\`\`\`\n${file.text}\n\`\`\``;
  files = [];
  drawFiles();
  input.value = '';
  const node = add(conversation, conversation.at, 'user', text);
  answer(node.id, { n: settings.value('n') });
}

function retry(node) {
  answer(node.parent, { seed: node.seed, branch: nextBranch(conversation, node.parent, node.seed) });
}
export function retryLast() {
  const last = pathOf(conversation).at(-1);
  if (last?.role === 'assistant') retry(last);
}
const goOn = (node, text) => answer(node.parent, { begun: text, seed: node.seed, branch: node.branch });

function edit(node) {
  const old = shown.get(node.id);
  const area = el('textarea', { rows: Math.min(20, node.text.split('\n').length + 1), value: node.text,
    'aria-label': 'Text' });
  const row = el('div', { className: 'row' });
  if (node.role === 'user') {
    row.append(button('Send', 'Ask this', () => {
      const asked = add(conversation, node.parent, 'user', area.value);
      answer(asked.id, { n: settings.value('n') });
    }));
  } else {
    row.append(button('Continue', 'Let the model write on from here', () => goOn(node, area.value)));
    row.append(button('Keep', 'Keep it as another answer', () => {
      add(conversation, node.parent, 'assistant', area.value);
      draw();
      save(conversation);
    }));
  }
  row.append(button('Cancel', 'Change nothing', draw));
  old.element.replaceChildren(area, row);
  area.focus();
}

export function stop() { running?.abort(); }

// ---- files

function drawFiles() {
  find('files').replaceChildren(...files.map((file) => el('span', { className: 'file' }, file.name,
    button('×', `Leave ${file.name} out`, () => { files = files.filter((one) => one !== file); drawFiles(); }))));
}

export async function attach(list) {
  for (const file of list) {
    if (file.size > 1 << 20) {
      say(`${file.name} has more than 1 MiB.`, true);
      continue;
    }
    const text = await file.text();
    if (text.includes('\0')) say(`${file.name} is no text.`, true);
    else files.push({ name: file.name, text });
  }
  drawFiles();
}

// ---- conversations

export function open(other = makeConversation()) {
  if (running) return;
  conversation = other;
  asTokens.clear();
  draw();
  find('input').focus();
}
