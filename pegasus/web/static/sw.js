// The service worker: it keeps the files of the page, so that the page opens without a connection, and shows notifications.
//
// Only the files that the server names here are kept. What the agent says, and everything else of the API, goes past this file.
// With a connection the files of the server count, so that an update shows at once. The server writes the list, and with another
// version of any file this file is another one, too: the browser then installs it and forgets the old files.

const SHELL = JSON.parse('{shell}'); // {version, paths}
const CACHE = `pegasus-${SHELL.version}`;
const PATIENCE = 4000; // milliseconds that the server has before the kept file is shown
const WORDS = { allow: "Allow once", deny: "Deny" };
const DONE = { allow: "Allowed", deny: "Denied" };

addEventListener("install", (event) => event.waitUntil(keepFiles().then(() => skipWaiting())));
addEventListener("activate", (event) => event.waitUntil(forgetOthers().then(() => clients.claim())));

async function keepFiles() {
  const cache = await caches.open(CACHE);
  await cache.addAll(SHELL.paths.map((path) => new Request(path, { cache: "no-cache" })));
}

async function forgetOthers() {
  for (const name of await caches.keys()) if (name !== CACHE) await caches.delete(name);
}

addEventListener("fetch", (event) => {
  const { request } = event;
  const url = new URL(request.url);
  if (request.method === "GET" && url.origin === location.origin && SHELL.paths.includes(url.pathname)) {
    event.respondWith(fetched(request, url.pathname));
  }
});

/** The server's file, or the kept one if the server is not there. A proxy in front of it says so with a 5xx. */
async function fetched(request, path) {
  const answer = fetch(request);
  const kept = await caches.match(path, { cacheName: CACHE });
  if (!kept) return answer;
  const late = new Promise((resolve) => setTimeout(() => resolve(kept), PATIENCE));
  return Promise.race([answer.then((found) => (found.status >= 500 ? kept : found), () => kept), late]);
}

// ------------------------------------------------------------------ notifications

addEventListener("push", (event) => event.waitUntil(show(read(event.data))));

/** What the agent has sent. A browser shows something for each push, so one that cannot be read is told, too. */
function read(data) {
  try {
    return data.json();
  } catch {
    return { title: "Pegasus", body: "New message", tag: "reply" };
  }
}

async function show(notice, isQuiet = notice.kind === "answered") {
  const shown = await registration.getNotifications({ tag: notice.tag });
  // After a crash the agent may send again what was sent already. That makes no second sound.
  const isKnown = notice.seq !== undefined && shown.some(({ data }) => data?.seq === notice.seq);
  await registration.showNotification(notice.title, {
    body: notice.body,
    tag: notice.tag,
    icon: "/static/icons/192.png",
    badge: "/static/icons/badge.png",
    data: notice,
    renotify: !isQuiet && !isKnown,
    silent: isQuiet || isKnown,
    requireInteraction: notice.kind === "approval",
    actions: (notice.decisions ?? []).map((action) => ({ action, title: WORDS[action] })),
  });
}

addEventListener("notificationclick", (event) => {
  const notice = event.notification.data ?? {};
  event.notification.close();
  event.waitUntil(event.action in WORDS ? decide(notice, event.action) : openPage(notice.url));
});

/** Answer an approval with the session of this browser. Who may do so is decided by the server. */
async function decide(notice, decision) {
  let body = DONE[decision];
  try {
    const answer = await fetch(`/api/approvals/${encodeURIComponent(notice.id)}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ decision, scope: "once" }),
    });
    if (!answer.ok) body = `Not answered: ${(await answer.json()).error?.message ?? answer.status}`;
  } catch {
    body = "Not answered: there is no connection. Open the page to try again.";
  }
  await show({ ...notice, kind: "answered", body, decisions: [] });
}

async function openPage(url) {
  const place = typeof url === "string" && url.startsWith("/#/") ? url : "/";
  const [window] = await clients.matchAll({ type: "window", includeUncontrolled: true });
  if (!window) return clients.openWindow(place);
  window.postMessage({ go: place.slice(1) });
  await window.focus().catch(() => {}); // some browsers leave that to the person
}
