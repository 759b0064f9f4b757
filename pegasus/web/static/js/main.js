// The frame around the pages: navigation, the state of the connection, signing in and out, and which page is shown.

import { Connection, keep, recall } from "./connection.js";
import { announce, decoded, fill, h } from "./dom.js";
import { icon, wing } from "./icons.js";
import { Markdown } from "./markdown.js";
import { pickModel } from "./models.js";
import { forgetEverything, startWorker, takeBack } from "./push.js";
import { State } from "./state.js";
import { T } from "./texts.js";

const GROUPS = [
  ["talk", ["chat", "conversations", "tasks", "approvals", "schedule"]],
  ["mind", ["memory", "skills"]],
  ["machine", ["tree", "usage", "channels", "settings", "log"]],
];
const NAMES = GROUPS.flatMap(([, names]) => names);
const ON_PHONES = ["chat", "tasks", "approvals"];
const THEMES = ["auto", "light", "dark"];

const connection = new Connection();
const state = new State(connection);
const app = {
  connection,
  state,
  call: (method, params) => connection.call(method, params),
  markdown: new Markdown((method, params) => connection.call(method, params)),
  go: (path) => (location.hash = `#/${path}`),
  notify,
  failed: (error) => notify(T.failed(error.message), true),
  /** The same for what is loaded again with the next connection. */
  notLoaded: (error) => error.code !== "offline" && app.failed(error),
  /** Call `load` now if there is a connection, and with each new one. Returns a function that ends this. */
  whenOpen(load) {
    if (connection.state === "open") load();
    return connection.on("state", (name) => name === "open" && load());
  },
};

/** The server leads a browser here whose link does not count any more. It is said once: the address is cleaned. */
const usedLink = new URLSearchParams(location.search).get("link") === "used";
if (usedLink) history.replaceState(null, "", location.pathname + location.hash);

/** What another program shares with the page (the manifest's share_target) is put into the field to write in. */
const query = new URLSearchParams(location.search);
app.shared = ["title", "text", "url"].map((name) => query.get(name)).filter(Boolean).join("\n");
if (app.shared) history.replaceState(null, "", `${location.pathname}#/chat`);

/** Have the chat say what another part of the page wants to be said: nobody but it shows the text, and hears the answer. */
app.toSay = "";
app.say = (text) => {
  app.toSay = text;
  if (current?.name === "chat") current.page.sayWaiting();
  else app.go("chat");
};

let current = null; // {name, page}
let frame = null;

// ------------------------------------------------------------------ the frame

function buildFrame() {
  const links = new Map();
  const link = (name, where) => {
    const badge = h("span", { class: "badge", hidden: true });
    const element = h("a", { href: `#/${name}`, class: "nav-link" }, icon(name), h("span", { class: "nav-text" }, T.pages[name]), badge);
    links.set(`${where}:${name}`, { element, badge });
    return element;
  };
  const side = h(
    "nav",
    { class: "side", "aria-label": T.navigation },
    h("a", { class: "brand", href: "#/chat" }, wing(), h("span", {}, connection.agent)),
    GROUPS.map(([group, names]) => [h("h2", { class: "nav-group" }, T.groups[group]), names.map((name) => link(name, "side"))]),
    h("div", { class: "side-end" }, h("button", { class: "model", type: "button", title: T.models.title, onclick: () => pickModel(app) }), themeButton(), signOutButton()),
  );
  const sheet = h("dialog", { class: "sheet", "aria-label": T.more }, NAMES.filter((name) => !ON_PHONES.includes(name)).map((name) => link(name, "sheet")), h("div", { class: "sheet-end" }, h("button", { class: "secondary", type: "button", onclick: () => pickModel(app) }, T.models.title), themeButton(), signOutButton()));
  sheet.addEventListener("click", () => sheet.close());
  const more = h("button", { class: "nav-link", type: "button", "aria-haspopup": "dialog", onclick: () => sheet.showModal() }, icon("more"), h("span", { class: "nav-text" }, T.more));
  const tabs = h("nav", { class: "tabs", "aria-label": T.navigation }, ON_PHONES.map((name) => link(name, "tabs")), more);
  const banner = h("div", { class: "banner", role: "status", hidden: true });
  const main = h("main", { id: "content", tabindex: "-1" });
  const root = h("div", { class: "frame" }, h("a", { class: "skip", href: "#content", onclick: skip }, T.skip), h("a", { class: "skip", href: "#write", onclick: skipToField }, T.skipToField), side, h("div", { class: "column" }, banner, main), tabs, sheet);
  return { root, links, banner, main, side, more };
}

function skip(event) {
  event.preventDefault();
  frame.main.focus();
}

function skipToField(event) {
  event.preventDefault();
  const field = document.getElementById("write");
  if (field) field.focus();
  else app.go("chat");
}

function themeButton() {
  const button = h("button", { class: "icon-button", type: "button" });
  const show = () => {
    const theme = document.documentElement.dataset.theme ?? "auto";
    fill(button, icon({ auto: "contrast", light: "sun", dark: "moon" }[theme]));
    button.setAttribute("aria-label", T.theme[theme]);
    button.title = T.theme[theme];
  };
  button.addEventListener("click", (event) => {
    event.stopPropagation();
    const theme = document.documentElement.dataset.theme ?? "auto";
    setTheme(THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length]);
    show();
  });
  show();
  return button;
}

function setTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  keep("pegasus.theme", theme);
}

function signOutButton() {
  return h("button", { class: "icon-button", type: "button", "aria-label": T.signOut, title: T.signOut, onclick: signOut }, icon("out"));
}

async function signOut() {
  await forgetEverything();
  connection.forgetAll();
  await fetch("/api/logout", { method: "POST" }).catch(() => {});
  connection.close();
  connection.change("signed-out");
}

function badges() {
  const waiting = state.approvals.size;
  for (const [key, { badge }] of frame?.links ?? []) {
    const name = key.split(":")[1];
    const number = name === "approvals" ? waiting : name === "tasks" ? state.tasks.size : 0;
    badge.hidden = !number;
    badge.textContent = number || "";
    badge.classList.toggle("urgent", name === "approvals");
    if (name === "approvals") badge.setAttribute("aria-label", T.approvals.waiting(number));
  }
  showTitle();
}

let unread = 0;
function showTitle() {
  const parts = [current ? T.pages[current.name] : "", connection.agent].filter(Boolean);
  const marks = unread + state.approvals.size;
  document.title = `${marks ? `(${marks}) ` : ""}${parts.join(" · ")}`;
}

// ------------------------------------------------------------------ pages

async function show() {
  if (!frame) return;
  const [name = "", ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(decoded);
  const wanted = NAMES.includes(name) ? name : "chat";
  const token = (show.token = {}); // ends what another call still loads
  if (current?.name === wanted) {
    current.page.show?.(rest);
    return;
  }
  const { open } = await import(`./pages/${wanted}.js`);
  if (show.token !== token || !frame) return;
  current?.page.close?.();
  const page = open(app, rest);
  current = { name: wanted, page };
  fill(frame.main, page.element);
  frame.main.dataset.page = wanted;
  for (const [key, { element }] of frame.links) {
    if (key.endsWith(`:${wanted}`)) element.setAttribute("aria-current", "page");
    else element.removeAttribute("aria-current");
  }
  if (ON_PHONES.includes(wanted)) frame.more.removeAttribute("aria-current");
  else frame.more.setAttribute("aria-current", "true");
  showTitle();
  page.opened?.();
  if (document.activeElement === document.body || !frame.main.contains(document.activeElement)) {
    (page.focus ?? frame.main).focus({ preventScroll: true });
  }
}

/** A short message at the top of the page: about something that has just worked, or has not. */
function notify(text, isError = false) {
  const note = h("p", { class: isError ? "toast error" : "toast" }, text);
  document.querySelector(".toasts")?.remove();
  const box = h("div", { class: "toasts" }, note);
  document.body.append(box);
  announce(text);
  setTimeout(() => box.remove(), isError ? 8000 : 3000);
}

// ------------------------------------------------------------------ the connection

let ticking = 0;
let wasLost = false;
function showConnection() {
  clearInterval(ticking);
  if (connection.state === "signed-out") {
    showSignIn();
    return;
  }
  if (!frame) {
    frame = buildFrame();
    fill(document.getElementById("app"), frame.root);
    show();
  }
  const { banner } = frame;
  frame.root.dataset.connection = connection.state;
  if (connection.state === "waiting") {
    wasLost = true;
    const text = h("span", {});
    const tick = () => {
      const seconds = Math.ceil((connection.retryAt - Date.now()) / 1000);
      text.textContent = !navigator.onLine ? T.connection.offline : seconds > 0 ? T.connection.waiting(seconds) : T.connection.trying;
    };
    tick();
    ticking = setInterval(tick, 1000);
    fill(banner, h("span", { class: "dot" }), text, h("button", { class: "quiet", type: "button", onclick: () => connection.retryNow() }, T.connection.now));
    banner.setAttribute("aria-live", "off"); // the seconds are not read out; this is, once:
    if (banner.hidden) announce(T.connection.trying);
    banner.hidden = false;
  } else if (connection.state === "open") {
    startWorker();
    if (wasLost) announce(T.connection.back);
    wasLost = false;
    banner.hidden = true;
    frame.side.querySelector(".brand span").textContent = connection.agent;
  }
}

async function showSignIn() {
  current?.page.close?.();
  current = frame = null;
  const { open } = await import("./pages/signin.js");
  const page = open(() => {
    connection.state = "connecting";
    connection.open();
  }, connection.refusal ? T.signIn.refused(connection.refusal) : usedLink ? T.signIn.usedLink : "");
  fill(document.getElementById("app"), page.element);
  document.title = T.signIn.title;
  page.focus.focus();
}

state.on("approvals", (notice) => {
  badges();
  if (notice?.state === "open") announce(T.approvals.title(connection.agent, notice.tool).join(""));
});
state.on("tasks", badges);
state.on("status", () => {
  const model = frame?.side.querySelector(".model");
  if (model) fill(model, h("span", { class: "dot on" }), h("span", { class: "sr-only" }, `${T.models.title}: `), h("span", { class: "mono" }, state.status.model));
});
connection.on("state", showConnection);
connection.on("reply", () => {
  if (document.visibilityState !== "visible") {
    unread++;
    showTitle();
  }
});
document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "visible") {
    unread = 0;
    showTitle();
    takeBack("reply");
  }
});
navigator.serviceWorker?.addEventListener("message", ({ data }) => data?.go?.startsWith("#/") && (location.hash = data.go));
addEventListener("hashchange", show);

setTheme(recall("pegasus.theme") || "auto");
connection.start();
