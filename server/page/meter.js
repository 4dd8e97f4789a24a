// Counts the tokens of an answer while it comes: how fast, and who drafted them.
import { el, find } from './dom.js';

const kinds = { draft: 'draft', model: 'draft', ngram: 'ngram', suffix: 'ngram', prediction: 'prediction' };
export const classOf = (source) => (source ? kinds[source] ?? 'other' : '');

export class Meter {
  #start = performance.now();
  #first = 0;
  #tokens = 0;
  #sources = new Map();

  add(tokens) {
    if (!this.#first) this.#first = performance.now();
    for (const token of tokens) {
      this.#tokens += 1;
      if (token.source) this.#sources.set(token.source, (this.#sources.get(token.source) ?? 0) + 1);
    }
  }

  // While it comes: by our own clock.
  text() {
    const seconds = (performance.now() - this.#first) / 1000;
    const rate = this.#tokens > 1 && seconds > 0 ? `${((this.#tokens - 1) / seconds).toFixed(0)} tok/s` : '';
    const drafted = [...this.#sources.values()].reduce((sum, count) => sum + count, 0);
    const share = this.#tokens ? ` · ${Math.round((100 * drafted) / this.#tokens)} % drafted` : '';
    return `${this.#tokens} tokens ${rate}${drafted ? share : ''}`;
  }

  // At the end: by the server's.
  static summary(last) {
    const { timings, usage, foresay } = last;
    const parts = [`${usage.completion_tokens} tokens`, `${timings.predicted_per_second.toFixed(0)} tok/s`,
      `prompt ${usage.prompt_tokens} (${usage.prompt_tokens_details.cached_tokens} cached)`];
    const { drafted, accepted } = foresay.speculation;
    if (drafted) parts.push(`${accepted} of ${drafted} drafted tokens accepted`);
    return parts.join(' · ');
  }

  static legend(sources) {
    find('legend').replaceChildren(...Object.entries(sources).filter(([, { drafted }]) => drafted > 0)
      .map(([name, { drafted, accepted }]) =>
        el('span', { className: classOf(name) }, `${name}: ${accepted} of ${drafted}`)));
  }
}
