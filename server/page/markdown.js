// Markdown as models write it, and code in colour. Everything becomes text nodes; links are shown, not followed.
import { button, copy, el } from './dom.js';

const words = (text) => new Set(text.split(' '));
const cLike = words('auto bool break case catch char class const constexpr continue default delete do ' +
  'double else enum ' +
  'explicit extern false final float for friend if inline int long namespace new noexcept nullptr operator ' +
  'override private protected public return short signed sizeof static struct switch template this throw ' +
  'true try typedef typename union unsigned using virtual void volatile while include define ifdef endif ' +
  'package import interface extends implements instanceof super func defer go chan map range select type ' +
  'var let fn impl trait pub use mod mut match where crate async await function of in export from yield ' +
  'null undefined typeof');
const languages = {
  python: { keywords: words(
    'and as assert async await break class continue def del elif else except False finally for ' +
    'from global if import in is lambda None nonlocal not or pass raise return True try while with yield match case'),
    comment: '#', triple: true },
  sh: { keywords: words('if then else elif fi for while do done case esac in function return export local set'),
    comment: '#' },
  sql: { keywords: words('select from where insert into update delete create table and or not null join on group by ' +
    'order limit values set as primary key'), comment: '--', foldCase: true },
  c: { keywords: cLike, comment: '//', block: true },
};
const names = { py: 'python', python: 'python', sh: 'sh', bash: 'sh', shell: 'sh', toml: 'sh', yaml: 'sh', yml: 'sh',
  sql: 'sql' };

export function highlight(code, name) {
  const language = languages[names[name] ?? 'c'];
  const parts = [`(?<comment>${language.comment}[^\\n]*${language.block ? '|/\\*[^]*?(?:\\*/|$)' : ''})`,
    `(?<string>${language.triple ? '"""[^]*?(?:"""|$)|\'\'\'[^]*?(?:\'\'\'|$)|' : ''}` +
      '"(?:\\\\.|[^"\\\\\\n])*"?|\'(?:\\\\.|[^\'\\\\\\n])*\'?|`(?:\\\\.|[^`\\\\])*`?)',
    '(?<number>\\b\\d[\\w.]*)', '(?<word>[A-Za-z_]\\w*)'];
  const out = document.createDocumentFragment();
  let at = 0;
  for (const match of code.matchAll(new RegExp(parts.join('|'), 'g'))) {
    const { comment, string, number, word } = match.groups;
    const key = word && language.keywords.has(language.foldCase ? word.toLowerCase() : word);
    const kind = comment ? 'c' : string ? 's' : number ? 'n' : key ? 'k' : '';
    if (!kind) continue;
    out.append(code.slice(at, match.index), el('span', { className: kind }, match[0]));
    at = match.index + match[0].length;
  }
  out.append(code.slice(at));
  return out;
}

export function codeBlock(code, name) {
  return el('div', { className: 'code' },
    el('pre', { tabIndex: 0, role: 'group', 'aria-label': `Code ${name}` }, el('code', {}, highlight(code, name))),
    button('Copy', 'Copy this code', () => copy(code, 'Code')));
}

function inline(text) {
  const out = document.createDocumentFragment();
  let at = 0;
  for (const match of text.matchAll(/`([^`]+)`|\*\*([^*]+)\*\*|(?<![\w*])\*([^*\s][^*]*)\*(?!\w)/g)) {
    out.append(text.slice(at, match.index));
    if (match[1] !== undefined) out.append(el('code', { className: 'inline' }, match[1]));
    else out.append(el(match[2] !== undefined ? 'strong' : 'em', {}, match[2] ?? match[3]));
    at = match.index + match[0].length;
  }
  out.append(text.slice(at));
  return out;
}

export function markdown(text) {
  const out = document.createDocumentFragment();
  const lines = text.split('\n');
  let paragraph = [], list = null;
  const close = () => {
    if (paragraph.length) out.append(el('p', {}, inline(paragraph.join('\n'))));
    paragraph = [];
    list = null;
  };
  for (let i = 0; i < lines.length; ++i) {
    const fence = lines[i].match(/^\s*(```+|~~~+)\s*([\w+#.-]*)/);
    if (fence) {
      close();
      const code = [];
      while (++i < lines.length && !lines[i].trim().startsWith(fence[1])) code.push(lines[i]);
      out.append(codeBlock(code.join('\n'), fence[2].toLowerCase()));
      continue;
    }
    const heading = lines[i].match(/^#{1,6}\s+(.*)/), item = lines[i].match(/^\s*([-*+]|\d+[.)])\s+(.*)/);
    if (heading) {
      close();
      out.append(el('h3', {}, inline(heading[1])));
    } else if (item) {
      const kind = /\d/.test(item[1]) ? 'ol' : 'ul';
      if (!list || list.localName !== kind) {
        close();
        list = el(kind);
        out.append(list);
      }
      list.append(el('li', {}, inline(item[2])));
    } else if (!lines[i].trim()) {
      close();
    } else {
      if (list) close();
      paragraph.push(lines[i]);
    }
  }
  close();
  return out;
}
