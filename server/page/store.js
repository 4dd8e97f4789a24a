// Conversations in IndexedDB, settings in localStorage. Without them the page works and forgets.
let opened = null;

function database() {
  opened ??= new Promise((resolve, reject) => {
    const request = indexedDB.open('foresay', 1);
    request.onupgradeneeded = () => request.result.createObjectStore('conversations', { keyPath: 'id' });
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
  return opened;
}

async function run(mode, action) {
  const store = (await database()).transaction('conversations', mode).objectStore('conversations');
  return new Promise((resolve, reject) => {
    const request = action(store);
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

export const save = (conversation) => run('readwrite', (store) => store.put(conversation)).catch(() => {});
export const forget = (id) => run('readwrite', (store) => store.delete(id)).catch(() => {});
export async function all() {
  const list = await run('readonly', (store) => store.getAll()).catch(() => []);
  return list.sort((a, b) => b.changed - a.changed);
}

export function readSettings() {
  try {
    return JSON.parse(localStorage.getItem('settings') ?? '{}');
  } catch {
    return {};
  }
}
export function writeSettings(settings) {
  try {
    localStorage.setItem('settings', JSON.stringify(settings));
  } catch { /* forgotten */ }
}
