// What the user may set: one table for the dialog, the storage and the requests.
import { el, find } from './dom.js';
import { readSettings, writeSettings } from './store.js';

const fields = [
  { name: 'system', label: 'System prompt', kind: 'text' },
  { name: 'temperature', label: 'Temperature', kind: 'number', field: 'temperature', step: 0.1, min: 0 },
  { name: 'top_p', label: 'Top p', kind: 'number', field: 'top_p', step: 0.05, min: 0, max: 1 },
  { name: 'top_k', label: 'Top k', kind: 'number', field: 'top_k', step: 1, min: 0 },
  { name: 'min_p', label: 'Min p', kind: 'number', field: 'min_p', step: 0.01, min: 0, max: 1 },
  { name: 'seed', label: 'Seed', kind: 'number', field: 'seed', step: 1, doc: 'Empty: another one for each answer.' },
  { name: 'max_tokens', label: 'Most tokens', kind: 'number', field: 'max_tokens', step: 1, min: 1, fallback: 512,
    doc: 'max_tokens of requests.' },
  { name: 'stop', label: 'Stop texts', kind: 'text', doc: 'One on each line.' },
  { name: 'n', label: 'Answers side by side', kind: 'number', step: 1, min: 1, max: 8, fallback: 1 },
  { name: 'chain', label: 'Sampler stages', kind: 'line', doc: 'Names in order; empty: as configured.' },
  { name: 'speculation', label: 'Speculation', kind: 'choice', choices: ['auto', 'off'],
    doc: 'The text is the same with it and without.' },
  { name: 'explain', label: 'Shade drafted tokens', kind: 'choice', choices: ['on demand', 'live', 'never'] },
  { name: 'alternatives', label: 'Alternatives of a token', kind: 'number', step: 1, min: 0, max: 20, fallback: 0,
    doc: '0: none are told.' },
  { name: 'view', label: 'Show answers as', kind: 'choice', choices: ['model', 'markdown', 'plain'],
    doc: 'model: as markdown if the model converses.' },
  { name: 'theme', label: 'Colours', kind: 'choice', choices: ['system', 'light', 'dark'] },
  { name: 'key', label: 'Key', kind: 'secret', doc: 'Kept until this page is closed.' },
];

class Settings {
  #values = readSettings();
  #key = '';
  model = { converses: true, context: 0 };

  value(name) {
    if (name === 'key') return this.#key;
    const field = fields.find((one) => one.name === name);
    return this.#values[name] ?? field.fallback ?? (field.kind === 'choice' ? field.choices[0] : '');
  }

  set(name, value) {
    if (name === 'key') this.#key = value;
    else if (value === '') delete this.#values[name];
    else this.#values[name] = value;
    writeSettings(this.#values);
    this.applyTheme();
  }

  applyTheme() {
    document.documentElement.className = { light: 'light', dark: 'dark' }[this.value('theme')] ?? '';
  }

  plain() {
    const view = this.value('view');
    return view === 'plain' || (view === 'model' && !this.model.converses);
  }

  // What every generating request has. A seed that is not set is chosen by the server.
  request(branch = 0) {
    const body = { stream: true, stream_options: { include_usage: true } };
    for (const { name, field } of fields) {
      if (field && this.value(name) !== '') body[field] = this.value(name);
    }
    const stop = this.value('stop').split('\n').filter(Boolean);
    if (stop.length) body.stop = stop;
    const chain = this.value('chain').split(/[\s,]+/).filter(Boolean);
    body.foresay = { branch, speculation: this.value('speculation'), explain: this.value('explain') !== 'never',
      ...(chain.length ? { chain } : {}) };
    return body;
  }

  fillDialog() {
    const holder = find('settings-fields');
    holder.replaceChildren(...fields.map((field) => {
      const id = `set-${field.name}`;
      const common = { id, onchange: (event) => this.#take(field, event.target) };
      const control = field.kind === 'text' ? el('textarea', { ...common, rows: 2, value: this.value(field.name) })
        : field.kind === 'choice' ? el('select', common, ...field.choices.map((c) => el('option', { value: c }, c)))
          : el('input', { ...common, type: { secret: 'password', number: 'number' }[field.kind] ?? 'text',
            value: this.value(field.name), autocomplete: 'off' });
      if (field.kind === 'choice') control.value = this.value(field.name);
      for (const name of ['min', 'max', 'step']) if (field[name] !== undefined) control[name] = field[name];
      return el('div', { className: 'field' }, el('label', { htmlFor: id }, field.label), control,
        ...(field.doc ? [el('small', {}, field.doc)] : []));
    }));
  }

  #take(field, control) {
    if (!control.reportValidity()) return;
    this.set(field.name, field.kind === 'number' && control.value !== '' ? Number(control.value) : control.value);
  }
}

export const settings = new Settings();
