// All conversations and archives: find one, read it, go on with it.

import { debounced, fill, h, keepList, splitPage, visible } from "../dom.js";
import { fullTime } from "../format.js";
import { icon } from "../icons.js";
import { T } from "../texts.js";

const ROWS = 50;
const PAGE = 50;

export function open(app, [key]) {
  const rows = h("ul", { class: "rows select", "aria-label": T.pages.conversations });
  const none = h("p", { class: "hint", role: "status" });
  const find = h("input", { type: "search", "aria-label": T.conversations.find, placeholder: T.conversations.find });
  const more = h("button", { class: "secondary", type: "button", hidden: true, onclick: () => list(false) }, T.sessions.more);
  const detail = h("section", { class: "detail" });
  const element = splitPage(T.pages.conversations, null, [find, none, rows, more], detail);
  let chosen = key;
  let shown = [];
  let next = 0;
  let asked = 0;

  async function list(isNew) {
    const number = ++asked;
    const wanted = find.value.trim();
    try {
      const page = await app.call("history.list", { limit: ROWS, offset: isNew ? 0 : next, ...(wanted && { find: wanted }) });
      if (number !== asked) return; // somebody has typed on meanwhile
      shown = isNew ? page.conversations : [...shown, ...page.conversations];
      next = page.next;
      keepList(rows, shown, (row) => row.key, makeRow, updateRow);
      none.textContent = shown.length ? "" : wanted ? T.conversations.notFound : T.conversations.none;
      more.hidden = next === null;
      mark();
    } catch (error) {
      if (error.code !== "offline") app.notify(T.failed(error.message), true);
    }
  }

  find.addEventListener("input", debounced(() => list(true), 250));

  function mark() {
    element.classList.toggle("chosen", Boolean(chosen));
    for (const row of rows.children) {
      if (row.dataset.key === chosen) row.firstElementChild.setAttribute("aria-current", "true");
      else row.firstElementChild.removeAttribute("aria-current");
    }
  }

  async function read() {
    if (!chosen) {
      fill(detail, h("div", { class: "empty" }, icon("conversations"), h("p", {}, T.conversations.choose)));
      return;
    }
    const here = chosen;
    const row = shown.find((each) => each.key === here);
    const lines = h("ol", { class: "lines" });
    const older = h("button", { class: "secondary", type: "button", hidden: true }, T.conversations.older);
    const back = h("a", { class: "back", href: "#/conversations" }, icon("back"), T.pages.conversations);
    const goOn = row && !row.archived ? (row.chat ? null : h("a", { class: "secondary", href: "#/chat" }, T.conversations.open)) : here ? h("button", { class: "secondary", type: "button", onclick: () => resume(here) }, T.conversations.goOn) : null;
    fill(detail, back, h("header", { class: "page-head" }, h("h2", {}, ...visible(row?.title || here)), goOn), older, lines);
    let before;
    const load = async () => {
      older.hidden = true;
      try {
        const page = await app.call("history.show", { key: here, limit: PAGE, ...(before && { before }) });
        if (chosen !== here) return;
        // What stands above the line that a /new has drawn is a conversation of its own in the list.
        const begin = page.messages.findLastIndex((message) => message.begins);
        const own = page.begins ? [] : page.messages.slice(Math.max(0, begin));
        lines.prepend(...own.map((message) => line(app, message)));
        before = page.begins || begin >= 0 ? null : page.before;
        older.hidden = before === null;
      } catch (error) {
        if (error.code !== "offline") lines.append(h("li", { class: "problem" }, error.message));
      }
    };
    older.addEventListener("click", load);
    await load();
  }

  /** Go on with an archive: what was said in the chat until now becomes one. */
  function resume(name) {
    const id = `p-${Date.now().toString(36)}-${Math.random().toString(36).slice(2, 8)}`;
    app.connection.say(id, `/resume ${name}`, []);
    app.go("chat");
  }

  const off = app.whenOpen(async () => {
    await list(true);
    read();
  });
  return {
    element,
    close: off,
    show([name]) {
      if (name === chosen) return;
      chosen = name;
      mark();
      read();
    },
  };
}

function makeRow(row) {
  return h("li", {}, h("a", { href: `#/conversations/${encodeURIComponent(row.key)}` }, icon(row.archived ? "sessions" : "chat"), h("span", { class: "title" }), h("span", { class: "facts hint" })));
}

function updateRow(element, row) {
  fill(element.querySelector(".title"), ...visible(row.title || row.chat || row.key));
  const facts = [row.archived ? T.sessions.archived : T.conversations.running, row.chat, row.messages === null ? "" : T.conversations.messages(row.messages), fullTime(row.last)];
  fill(element.querySelector(".facts"), ...visible(facts.filter(Boolean).join(" · ")));
}

function line(app, message) {
  const who = message.from === "user" ? T.you : app.connection.agent;
  const body = h("div", { class: "body", dir: "auto" });
  body.textContent = message.text;
  if (message.from === "agent") app.markdown.show(body, message.text);
  const door = message.channel ? `${message.channel.type}:${message.channel.channelId}` : "";
  return h(
    "li",
    { class: `line ${message.from === "user" ? "user" : "assistant"}` },
    h("header", {}, h("span", {}, h("span", { class: "strong" }, who), " ", h("span", { class: "hint" }, ...visible(door))), h("time", { class: "hint mono" }, fullTime(message.ts))),
    body,
    (message.media ?? []).map((file) => h("span", { class: "file" }, icon("file"), ...visible(file))),
  );
}
