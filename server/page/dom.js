// Elements, made without any HTML text: what a model writes can only ever be text.
export function el(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith('on')) made.addEventListener(name.slice(2), value);
    else if (name in made && name !== 'list') made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

export const find = (id) => document.getElementById(id);

export function button(text, title, run) {
  return el('button', { type: 'button', className: 'small', title, onclick: run }, text);
}

export function say(text, wrong = false) {
  const status = find('status');
  status.textContent = text;
  status.className = wrong ? 'error' : '';
}

// The server's words as a sentence of this page.
export const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}.`;

export async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    say(`${what} copied.`);
  } catch {
    say('The browser does not let this page copy.', true);
  }
}

export function download(name, text) {
  const link = el('a', { href: URL.createObjectURL(new Blob([text])), download: name });
  link.click();
  URL.revokeObjectURL(link.href);
}
