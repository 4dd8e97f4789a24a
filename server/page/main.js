// The page of foresay serve. Nothing comes from elsewhere, and nothing is sent elsewhere.
import { ask } from './api.js';
import { attach, draw, open, retryLast, send, stop } from './chat.js';
import { button, download, el, find, say } from './dom.js';
import { setUpFill, stopFill } from './fill.js';
import { settings } from './settings.js';
import { all, forget, save } from './store.js';

async function readModel() {
  try {
    const { data } = await ask('/v1/models');
    const props = await ask('/props');
    settings.model = { converses: Boolean(props.chat_template), context: data[0].meta.n_ctx };
    find('model').textContent = data[0].id;
    draw();
    say('Ready.');
  } catch (problem) {
    say(problem.status === 401 ? 'This server wants a key: enter it in the settings.' : problem.message, true);
    if (problem.status === 503) setTimeout(readModel, 2000);  // the model is being loaded
  }
}

function view(name) {
  for (const one of ['chat', 'fill']) {
    find(one).hidden = one !== name;
    find(`show-${one}`).setAttribute('aria-pressed', String(one === name));
  }
  find(name === 'chat' ? 'input' : 'prefix').focus();
}

async function showList() {
  const items = (await all()).map((one) => {
    const item = el('li');
    item.append(el('button', { type: 'button', onclick: () => { find('list').close(); open(one); } },
      one.title || 'Without a title'), button('Delete', `Delete ${one.title}`, async () => {
      await forget(one.id);
      item.remove();
    }));
    return item;
  });
  find('list-items').replaceChildren(...items);
  if (!find('list').open) find('list').showModal();
}

async function importFrom(file) {
  try {
    for (const line of (await file.text()).split('\n').filter(Boolean)) {
      const one = JSON.parse(line);
      if (typeof one.id !== 'string' || !Array.isArray(one.nodes)) throw new Error('a line is no conversation');
      await save(one);
    }
    showList();
  } catch (problem) {
    say(`${file.name} was not imported: ${problem.message}`, true);
  }
}

function setUp() {
  settings.applyTheme();
  setUpFill();
  find('composer').onsubmit = (event) => { event.preventDefault(); send(); };
  find('input').onkeydown = (event) => {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  };
  find('stop').onclick = stop;
  find('attach').onclick = () => find('file-input').click();
  find('file-input').onchange = (event) => { attach(event.target.files); event.target.value = ''; };
  document.ondragover = (event) => event.preventDefault();
  document.ondrop = (event) => { event.preventDefault(); attach(event.dataTransfer.files); };
  document.onkeydown = (event) => {
    if (event.key === 'Escape') { stop(); stopFill(); }
    if (event.altKey && event.key === 'n') { event.preventDefault(); open(); }
    if (event.altKey && event.key === 'r') { event.preventDefault(); retryLast(); }
  };
  find('show-chat').onclick = () => view('chat');
  find('show-fill').onclick = () => view('fill');
  find('new-chat').onclick = () => open();
  find('open-settings').onclick = () => { settings.fillDialog(); find('settings').showModal(); };
  find('settings').onclose = () => readModel();
  find('open-list').onclick = showList;
  find('export').onclick = async () => download('conversations.jsonl',
    (await all()).map((one) => JSON.stringify(one)).join('\n') + '\n');
  find('import').onclick = () => find('import-input').click();
  find('import-input').onchange = (event) => { importFrom(event.target.files[0]); event.target.value = ''; };
  open();
  readModel();
  // Only on this machine or over TLS; elsewhere browsers have none.
  navigator.serviceWorker?.register('/page/worker.js', { scope: '/' }).catch(() => {});
}

setUp();
