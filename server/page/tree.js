// A conversation is a tree: a retry or an edit is another child. `at` names the last node of the path that is shown.
export function makeConversation() {
  return { id: crypto.randomUUID(), title: '', changed: Date.now(), nodes: [], at: -1 };
}

export function add(conversation, parent, role, text, more = {}) {
  const node = { id: conversation.nodes.length, parent, role, text, ...more };
  conversation.nodes.push(node);
  conversation.at = node.id;
  if (!conversation.title && role === 'user') conversation.title = text.trim().slice(0, 60);
  return node;
}

// From the first message to `at`.
export function pathOf(conversation, at = conversation.at) {
  const path = [];
  for (let id = at; id >= 0; id = conversation.nodes[id].parent) path.unshift(conversation.nodes[id]);
  return path;
}

export const childrenOf = (conversation, id) => conversation.nodes.filter((node) => node.parent === id);

// Shows `id` and what was said last below it.
export function show(conversation, id) {
  let below = childrenOf(conversation, id);
  for (; below.length; below = childrenOf(conversation, id)) id = below.at(-1).id;
  conversation.at = id;
}

// Answers that were asked for together stand side by side while nothing follows them.
export function groupOf(conversation, node) {
  if (node.group === undefined || conversation.at !== node.id) return [node];
  return childrenOf(conversation, node.parent).filter((other) => other.group === node.group);
}

// The branch that no answer of this seed below `parent` has yet.
export function nextBranch(conversation, parent, seed) {
  const taken = childrenOf(conversation, parent).filter((node) => node.seed === seed).map((node) => node.branch ?? 0);
  return taken.length ? Math.max(...taken) + 1 : 0;
}
