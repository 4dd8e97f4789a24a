// Writes cases.json: small tokenizers with one part each that tokenizer.json may have, and the ids and texts that the
// Hugging Face tokenizers library gives.
//
// Run it after adding a case, where `npm install tokenizers@0.23.2` was run: NODE_PATH=.../node_modules node make.js
const fs = require('fs');
const { Tokenizer } = require('tokenizers');

const letters = [...'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,!?;:()[]<>#$%&*+-/=_@"\'`~^|{}\\\n\t'];
const marked = ['▁', ...letters, 'é', 'è', 'ü', 'ñ', 'ß', '中', '文', 'Å', 'ﬁ', '½', '²', '́', '你', 'e\u0301'.slice(1), '٣'];
const unique = (list) => [...new Set(list)];

function bpe(symbols, merges, options = {}) {
  const vocab = {};
  const tokens = unique([...symbols, ...merges.map(([a, b]) => a + b)]);
  tokens.forEach((token, id) => (vocab[token] = id));
  return { type: 'BPE', dropout: null, unk_token: null, continuing_subword_prefix: null, end_of_word_suffix: null,
    fuse_unk: false, byte_fallback: false, ignore_merges: false, vocab, merges, ...options };
}
const words = [['t', 'h'], ['th', 'e'], ['▁', 'the'], ['l', 'o'], ['h', 'e'], ['l', 'lo'], ['he', 'llo'], ['▁', 'hello'],
  ['▁', '▁'], ['▁▁', '▁▁'], ['o', 'r'], ['w', 'or'], ['l', 'd'], ['wor', 'ld'], ['▁', 'world'], ['1', '2'], ['12', '3'],
  ['.', '.'], ['..', '.'], ['a', 'b'], ['ab', 'c'], ['\n', '\n'], ['e', '\u0301'], ['i', 'n']];
const bytes = [...Array(256).keys()].map((b) => '<0x' + b.toString(16).toUpperCase().padStart(2, '0') + '>');
function alphabet() {
  const list = [];
  let next = 256;
  for (let b = 0; b < 256; ++b) {
    const plain = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    list.push(String.fromCodePoint(plain ? b : next++));
  }
  return list;
}
const byteWords = [['t', 'h'], ['th', 'e'], ['Ġ', 'the'], ['h', 'e'], ['l', 'l'], ['he', 'll'], ['hell', 'o'], ['Ġ', 'hello'],
  ['Ġ', 'Ġ'], ['ĠĠ', 'ĠĠ'], ['1', '2'], ['12', '3'], ['Ċ', 'Ċ'], ['Ã', '©'], ['a', 'b']];
const models = {
  literal: bpe(['<unk>', ...marked], words, { unk_token: '<unk>' }),
  fused: bpe(['<unk>', ...marked], words, { unk_token: '<unk>', fuse_unk: true }),
  none: bpe(marked, words),
  fallback: bpe(['<unk>', ...bytes, ...marked], words, { unk_token: '<unk>', byte_fallback: true, fuse_unk: true }),
  whole: bpe(['<unk>', ...marked, 'hel', '▁wor'], words, { unk_token: '<unk>', ignore_merges: true }),
  bytes: bpe(alphabet(), byteWords),
  unigram: { type: 'Unigram', unk_id: 0, byte_fallback: false, vocab: [['<unk>', 0], ['▁', -2.5], ['▁the', -3], ['the', -4.25],
    ['▁hello', -3.5], ['hello', -5], ['he', -4], ['llo', -4.5], ['▁w', -4], ['or', -3.75], ['ld', -4], ['▁world', -6],
    ...letters.filter((c) => c !== '@').map((c, i) => [c, -7 - i / 64]), ['é', -8], ['中', -9], ['123', -6.5], ['..', -6]] },
  unigram_bytes: { type: 'Unigram', unk_id: 0, byte_fallback: true, vocab: [['<unk>', 0], ...bytes.map((b) => [b, -20]),
    ['▁', -2.5], ['▁the', -3], ['hello', -5], ...letters.filter((c) => c !== '@').map((c) => [c, -7]), ['é', -8]] },
};
const split = (pattern, behavior, invert = false) => ({ type: 'Split', pattern, behavior, invert });
const sequence = (kind, ...parts) => ({ type: 'Sequence', [kind]: parts });
const mark = { type: 'Replace', pattern: { String: ' ' }, content: '▁' };
const unmark = sequence('decoders', { type: 'Replace', pattern: { String: '▁' }, content: ' ' }, { type: 'ByteFallback' },
  { type: 'Fuse' });
const llama = sequence('decoders', ...unmark.decoders, { type: 'Strip', content: ' ', start: 1, stop: 0 });
const metaspace = (prepend_scheme, cut) => ({ type: 'Metaspace', replacement: '▁', prepend_scheme, split: cut });
const byteLevel = (add_prefix_space, use_regex) => ({ type: 'ByteLevel', add_prefix_space, trim_offsets: true, use_regex });
const added = (id, content, flags = {}) => ({ id, content, single_word: false, lstrip: false, rstrip: false, normalized: false,
  special: false, ...flags });
const cases = [];
// The library gives added tokens that are not in the vocabulary the ids after it, whatever the file says.
const add = (name, model, parts) => {
  let next = Object.keys(models[model].vocab).length;
  const shifted = {};
  const added_tokens = (parts.added_tokens || []).map((token) => {
    const known = Array.isArray(models[model].vocab) ? undefined : models[model].vocab[token.content];
    const id = known === undefined ? next++ : known;
    shifted[token.id] = id;
    return { ...token, id };
  });
  const post_processor = parts.post_processor ? JSON.parse(JSON.stringify(parts.post_processor)) : null;
  for (const token of Object.values(post_processor ? post_processor.special_tokens : {})) token.ids = token.ids.map((id) => shifted[id]);
  cases.push({ name, model, parts: { normalizer: null, pre_tokenizer: null, decoder: unmark, ...parts, added_tokens, post_processor } });
};

for (const behavior of ['Isolated', 'Removed', 'MergedWithPrevious', 'MergedWithNext', 'Contiguous'])
  for (const invert of [false, true]) {
    const name = behavior + (invert ? ' inverted' : '');
    add('split letters ' + name, 'literal', { pre_tokenizer: split({ Regex: '[a-z]+' }, behavior, invert), normalizer: mark });
    add('split one dot ' + name, 'literal', { pre_tokenizer: split({ String: '.' }, behavior, invert), normalizer: mark });
    add('split empty matches ' + name, 'literal', { pre_tokenizer: split({ Regex: 'x*|(?=\\d)' }, behavior, invert) });
  }
for (const behavior of ['Isolated', 'Removed', 'MergedWithPrevious', 'MergedWithNext', 'Contiguous'])
  add('punctuation ' + behavior, 'literal', { pre_tokenizer: { type: 'Punctuation', behavior }, normalizer: mark });
for (const individual_digits of [false, true])
  add('digits ' + individual_digits, 'literal', { pre_tokenizer: { type: 'Digits', individual_digits }, normalizer: mark });
add('whitespace', 'literal', { pre_tokenizer: { type: 'Whitespace' } });
add('whitespace split', 'literal', { pre_tokenizer: { type: 'WhitespaceSplit' } });
add('delimiter', 'literal', { pre_tokenizer: { type: 'CharDelimiterSplit', delimiter: '-' }, normalizer: mark });
for (const scheme of ['always', 'first', 'never'])
  for (const cut of [true, false]) {
    const parts = { pre_tokenizer: metaspace(scheme, cut), decoder: metaspace(scheme, cut) };
    add(`metaspace ${scheme} ${cut}`, 'fused', parts);
    add(`metaspace ${scheme} ${cut} added`, 'fallback', { ...parts, added_tokens: [added(0, '<unk>', { special: true }),
      added(2000, '<s>', { special: true }), added(2001, 'TOK'), added(2002, 'NORM', { normalized: true })] });
    add(`unigram ${scheme} ${cut}`, 'unigram', parts);
    add(`unigram with bytes ${scheme} ${cut}`, 'unigram_bytes', { ...parts,
      decoder: sequence('decoders', { type: 'ByteFallback' }, metaspace(scheme, cut)) });
  }
add('words then metaspace', 'literal', { pre_tokenizer: sequence('pretokenizers', { type: 'WhitespaceSplit' },
  metaspace('always', true)), decoder: metaspace('always', true) });
add('llama, first spelling', 'fallback', { normalizer: sequence('normalizers', { type: 'Prepend', prepend: '▁' }, mark),
  decoder: llama, added_tokens: [added(2000, '<s>', { special: true }), added(2001, 'TOK'),
    added(2002, 'NORM', { normalized: true })] });
add('gemma', 'fallback', { normalizer: mark, pre_tokenizer: split({ String: ' ' }, 'MergedWithPrevious'), decoder: unmark,
  added_tokens: [added(2000, '▁▁', { normalized: true }), added(2001, '\n\n', { normalized: true })] });
add('unknown dropped', 'none', { normalizer: mark });
add('unknown kept', 'literal', { normalizer: mark });
add('unknown fused', 'fused', { normalizer: mark });
add('whole words', 'whole', { pre_tokenizer: metaspace('first', true), decoder: metaspace('first', true) });
for (const form of ['NFC', 'NFD', 'NFKC', 'NFKD'])
  add(form, 'fallback', { normalizer: sequence('normalizers', { type: form }, mark) });
add('strip both', 'fallback', { normalizer: sequence('normalizers', { type: 'Strip', strip_left: true, strip_right: true }, mark) });
add('strip left', 'fallback', { normalizer: sequence('normalizers', { type: 'Strip', strip_left: true, strip_right: false }, mark) });
add('replace by expression', 'fallback', { normalizer: sequence('normalizers',
  { type: 'Replace', pattern: { Regex: ' {2,}|[\\n\\r]+' }, content: ' ' }, mark) });
add('replace a word', 'fallback', { normalizer: { type: 'Replace', pattern: { String: 'hello' }, content: 'the' } });
for (const prefix of [true, false])
  for (const regex of [true, false])
    add(`byte level ${prefix} ${regex}`, 'bytes', { pre_tokenizer: byteLevel(prefix, regex), decoder: byteLevel(true, true) });
add('byte level after digits', 'bytes', { decoder: byteLevel(true, true), pre_tokenizer: sequence('pretokenizers',
  { type: 'Digits', individual_digits: true }, byteLevel(false, true)) });
add('byte level, own expression', 'bytes', { decoder: byteLevel(true, true), normalizer: { type: 'NFC' },
  pre_tokenizer: sequence('pretokenizers', split({ Regex: '\\w+|\\s+(?!\\S)|[^\\w\\s]+|\\s+' }, 'Isolated'), byteLevel(false, false)) });
add('word boundaries', 'bytes', { decoder: byteLevel(true, true), pre_tokenizer: sequence('pretokenizers',
  split({ Regex: '\\b\\w|\\B\\w|\\W' }, 'Contiguous'), byteLevel(false, false)) });
add('class intersection', 'bytes', { decoder: byteLevel(true, true), pre_tokenizer: sequence('pretokenizers',
  split({ Regex: '[\\p{L}&&[^\\p{Han}]]+|\\p{Han}+' }, 'Isolated'), byteLevel(false, false)) });
const special = (id, token) => ({ [token]: { id: token, ids: [id], tokens: [token] } });
const single = (...parts) => parts.map((p) => (p === 'A' ? { Sequence: { id: 'A', type_id: 0 } }
  : { SpecialToken: { id: p, type_id: 0 } }));
add('template', 'bytes', { pre_tokenizer: byteLevel(false, true), decoder: byteLevel(true, true),
  added_tokens: [added(500, '<s>', { special: true }), added(501, '</s>', { special: true })],
  post_processor: { type: 'TemplateProcessing', single: single('<s>', 'A', '</s>'),
    pair: [...single('<s>', 'A'), { Sequence: { id: 'B', type_id: 1 } }], special_tokens: { ...special(500, '<s>'), ...special(501, '</s>') } } });
const flags = [{}, { lstrip: true }, { rstrip: true }, { single_word: true }, { lstrip: true, rstrip: true, single_word: true }];
flags.forEach((flag, i) => {
  for (const normalized of [false, true])
    add(`added ${JSON.stringify({ ...flag, normalized })}`, 'bytes', { normalizer: { type: 'NFKC' },
      pre_tokenizer: byteLevel(false, true), decoder: byteLevel(true, true),
      added_tokens: [added(500, 'TOK', { ...flag, normalized }), added(501, 'ﬁ', { ...flag, normalized, special: true })] });
});

const texts = ['', ' ', '   ', 'hello world', ' hello  world ', 'the hello, the world...', 'abc123 456..x', '1234567', 'a.b..c...d',
  '...', '.a.', 'x', 'xaxx1', 'Hello THE World', '\n', '\n\n\na\n\n', 'a \n b\t c', 'a-b--c-', 'caf\u00e9 cafe\u0301', '\u00c5\u212b A\u030a',
  'ﬁne ½ x²', '中文 你好 hello', '日本語', '😀👍🏽 ok', 'a\u0323\u0301 \u0301\u0323', '한국어 \u1112\u1161\u11ab', 'TOK', 'a TOK b', 'aTOKb',
  '  TOK  ', 'NORM', 'x NORM y', '<s>hello', 'hello<s> world</s>', '<unk> <0x41>', 'ﬁ', 'a ﬁ b', 'aﬁb TOKé _TOK', '٣٤ ½', 'é',
  '▁hello ▁▁ the', 'e\u0301\u0323', 'a\u00a0b\u3000c', "don't I'm we'll", 'a_b @x #y', '\u200d\u200c', 'ⓐⓑ x\u203fy', 'the@@hello@',
  'ẛ̣ Ω ﷺ', '\u0344 \u0f73 \ufb2c'];

(async () => {
  for (const one of cases) {
    const json = JSON.stringify({ version: '1.0', truncation: null, padding: null, model: models[one.model], ...one.parts });
    let tokenizer;
    try {
      tokenizer = Tokenizer.fromString(json);
    } catch (problem) {
      console.error(one.name, String(problem));
      process.exit(1);
    }
    one.ids = [];
    one.decoded = {};
    for (const [i, text] of texts.entries()) {
      const ids = [...(await tokenizer.encode(text, null, { addSpecialTokens: true })).getIds()];
      one.ids.push(ids);
      const decoded = await tokenizer.decode(ids, false);
      if (decoded !== text) one.decoded[i] = decoded;
    }
  }
  const lines = (list) => '[\n' + list.map((x) => JSON.stringify(x)).join(',\n') + '\n]';
  fs.writeFileSync('cases.json', '{"what": "ids and decoded texts by tokenizers 0.23.2",\n"models": ' + JSON.stringify(models) +
    ',\n"texts": ' + JSON.stringify(texts) + ',\n"cases": ' + lines(cases) + '}\n');
  console.log(cases.length, 'cases,', texts.length, 'texts');
})();
