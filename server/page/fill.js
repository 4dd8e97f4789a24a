// What is missing between two texts; with nothing after it, a text goes on.
import { curl, stream } from './api.js';
import { copy, el, find, say, sentence } from './dom.js';
import { classOf, Meter } from './meter.js';
import { settings } from './settings.js';

let running = null, branch = 0;

function request() {
  const suffix = find('suffix').value;
  return { ...settings.request(branch), prompt: find('prefix').value, ...(suffix ? { suffix } : {}) };
}

async function run() {
  if (running) return;
  running = new AbortController();
  find('fill-stop').disabled = false;
  const middle = find('middle');
  middle.replaceChildren();
  const meter = new Meter();
  let unfinished = '';
  try {
    await stream('/v1/completions', request(), (event) => {
      for (const choice of event.choices) {
        const told = choice.foresay?.tokens ?? [];
        if (choice.text) middle.append(el('span', { className: classOf(told[0]?.source) }, choice.text));
        if (choice.text) meter.add(told.length ? told : [{}]);
        if (choice.foresay?.unfinished) unfinished = `${sentence(choice.foresay.unfinished)} · `;
      }
      say(event.timings ? unfinished + Meter.summary(event) : meter.text(), unfinished !== '');
      if (event.timings) Meter.legend(event.foresay.speculation.sources);
    }, running.signal);
  } catch (problem) {
    const stopped = problem.name === 'AbortError';
    say(stopped ? 'Stopped.' : problem.message, !stopped);
  }
  running = null;
  find('fill-stop').disabled = true;
}

export function stopFill() { running?.abort(); }

export function setUpFill() {
  find('fill-run').onclick = () => { branch = 0; run(); };
  find('fill-retry').onclick = () => { branch += 1; run(); };
  find('fill-stop').onclick = stopFill;
  find('fill-accept').onclick = () => {
    find('prefix').value += find('middle').textContent;
    find('middle').replaceChildren();
  };
  find('fill-curl').onclick = () => copy(curl('/v1/completions', request()), 'Command');
}
