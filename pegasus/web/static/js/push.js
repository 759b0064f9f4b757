// The service worker, and notifications of this browser: what it can do, what is chosen, and changing it.

import { keep, recall } from "./connection.js";

const CHOICE = "pegasus.push"; // {about, text} of this browser
const WORKER = "/sw.js";
const trusted = window.trustedTypes?.createPolicy("pegasus-worker", {
  createScriptURL(url) {
    if (url !== WORKER) throw new TypeError(`no worker: ${url}`);
    return url;
  },
});

/** Let the page open without a connection. A browser without service workers, and one that is not over https, goes on without. */
export async function startWorker() {
  if (!("serviceWorker" in navigator)) return;
  try {
    await navigator.serviceWorker.register(trusted ? trusted.createScriptURL(WORKER) : WORKER, { scope: "/" });
    if (choice()) await renew();
  } catch (error) {
    console.warn("there is no service worker:", error.message);
  }
}

/** Why this browser cannot be notified: "", "insecure", "home-screen", "missing" or "denied". */
export function obstacle() {
  if (!isSecureContext) return "insecure";
  if (!("serviceWorker" in navigator) || !("PushManager" in window) || !("Notification" in window)) {
    const isApple = /iPad|iPhone/.test(navigator.userAgent) || (navigator.platform === "MacIntel" && navigator.maxTouchPoints > 1);
    return isApple && !matchMedia("(display-mode: standalone)").matches ? "home-screen" : "missing";
  }
  return Notification.permission === "denied" ? "denied" : "";
}

/** What this browser is told of: {about, text}, or null for nothing. */
export function choice() {
  try {
    return JSON.parse(recall(CHOICE) || "null");
  } catch {
    return null;
  }
}

/** Subscribe, or change what is told. Has to be called from a click. Rejects with an Error whose message is for people. */
export async function choose(about, text) {
  if ((await Notification.requestPermission()) !== "granted") throw new Error("denied");
  await subscribe({ about, text });
  keep(CHOICE, JSON.stringify({ about, text }));
}

async function subscribe(wanted) {
  const { key } = await ask("GET", "/api/push");
  const { pushManager } = await navigator.serviceWorker.ready;
  let subscription = await pushManager.getSubscription();
  // A home that has another key than before cannot send to the old subscription.
  if (subscription && encoded(subscription.options.applicationServerKey) !== key) {
    await subscription.unsubscribe();
    subscription = null;
  }
  subscription ??= await pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: key });
  const { endpoint, keys } = subscription.toJSON();
  await ask("POST", "/api/push", { endpoint, keys, ...wanted });
}

/** Make good what was lost meanwhile: the browser's push service may end a subscription, and a sign-in begins anew. */
async function renew() {
  if (Notification.permission === "granted") await subscribe(choice());
}

/** Be told nothing more. */
export async function stop() {
  keep(CHOICE, "");
  const registration = await navigator.serviceWorker?.getRegistration("/");
  const subscription = await registration?.pushManager?.getSubscription();
  if (!subscription) return;
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(subscription.endpoint)));
  const id = [...digest.slice(0, 16)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  await subscription.unsubscribe();
  await ask("DELETE", `/api/push/${id}`).catch(() => {}); // the push service says that it is gone
}

/** Leave nothing in this browser: when somebody signs out. */
export async function forgetEverything() {
  try {
    await stop();
    const registration = await navigator.serviceWorker?.getRegistration("/");
    for (const notification of (await registration?.getNotifications()) ?? []) notification.close();
    await registration?.unregister();
    for (const name of (await globalThis.caches?.keys()) ?? []) await caches.delete(name);
  } catch (error) {
    console.warn("not everything was forgotten:", error.message);
  }
}

/** Take back the notifications about what is in front of somebody now. */
export async function takeBack(tag) {
  const registration = await navigator.serviceWorker?.getRegistration("/");
  for (const notification of (await registration?.getNotifications({ tag })) ?? []) notification.close();
}

async function ask(method, path, body) {
  const headers = body ? { "content-type": "application/json" } : {};
  const answer = await fetch(path, { method, headers, body: body && JSON.stringify(body) });
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error?.message ?? answer.statusText);
  return found;
}

function encoded(buffer) {
  return btoa(String.fromCharCode(...new Uint8Array(buffer ?? []))).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
}
