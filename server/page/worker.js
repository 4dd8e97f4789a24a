// Keeps the page itself, so that its conversations can be read while the server is away. The server's files come first
// whenever it answers, and nothing but these files is kept.
const kept = 'foresay-page';
const files = ['/', ...['style.css', 'main.js', 'api.js', 'chat.js', 'dom.js', 'fill.js', 'markdown.js', 'meter.js',
  'settings.js', 'store.js', 'tree.js'].map((name) => `/page/${name}`)];

self.oninstall = (event) => event.waitUntil(
  caches.open(kept).then((cache) => cache.addAll(files)).then(() => self.skipWaiting()));
self.onactivate = (event) => event.waitUntil(self.clients.claim());
self.onfetch = (event) => {
  const { pathname } = new URL(event.request.url);
  if (event.request.method !== 'GET' || !files.includes(pathname)) return;
  event.respondWith((async () => {
    const cache = await caches.open(kept);
    try {
      const response = await fetch(event.request);
      if (response.ok) await cache.put(pathname, response.clone());
      return response;
    } catch {
      return await cache.match(pathname) ?? Response.error();
    }
  })());
};
