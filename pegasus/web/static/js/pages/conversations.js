// All conversations and archives: find one, read it as it was said or as Pegasus sees it, name it, go on with it.

import { debounced, decoded, fill, h, keepList, name, splitPage, visible } from "../dom.js";
import { fullTime } from "../format.js";
import { icon } from "../icons.js";
import { T } from "../texts.js";
import { callDetails } from "./approval_card.js";

const ROWS = 50;
const PAGE = 50;
const LINES = "lines"; // in the address, behind a conversation: what Pegasus sees of it
const ARCHIVE = /(?:^|\.)(\d{4}-\d\d-\d\d-\d{6}(?:-\d+)?)$/;
const OWN = "web:main"; // the chat of this page, where each chat has a conversation of its own

export function open(app, rest) {
  const view = new Conversations(app, rest);
  return { element: view.element, show: (rest) => view.show(rest), close: view.off };
}

class Conversations {
  constructor(app, [key, view]) {
    this.app = app;
    this.rows = h("ul", { class: "rows select", "aria-label": T.pages.conversations });
    this.none = h("p", { class: "hint", role: "status" });
    this.find = h("input", { type: "search", "aria-label": T.conversations.find, placeholder: T.conversations.find, oninput: debounced(() => this.list(true), 250) });
    this.more = h("button", { class: "secondary", type: "button", hidden: true, onclick: () => this.list(false) }, T.conversations.more);
    this.detail = h("section", { class: "detail" });
    this.element = splitPage(T.pages.conversations, null, [this.find, this.none, this.rows, this.more], this.detail);
    this.shown = [];
    this.next = 0;
    this.asked = 0;
    [this.key, this.view] = [key, view];
    this.off = app.whenOpen(async () => {
      await this.list(true);
      if (!this.detail.querySelector("form")) this.read(); // what somebody types there stays
    });
  }

  show([key, view]) {
    if (key === this.key && view === this.view) return;
    [this.key, this.view] = [key, view];
    this.mark();
    this.read();
  }

  // ------------------------------------------------------------------ the list

  async list(isNew) {
    const number = ++this.asked;
    const wanted = this.find.value.trim();
    try {
      const page = await this.app.call("history.list", { limit: ROWS, offset: isNew ? 0 : this.next, ...(wanted && { find: wanted }) });
      if (number !== this.asked) return; // somebody has typed on meanwhile
      this.shown = isNew ? page.conversations : [...this.shown, ...page.conversations];
      this.next = page.next;
      keepList(this.rows, this.shown, (row) => row.key, makeRow, updateRow);
      this.none.textContent = this.shown.length ? "" : wanted ? T.conversations.notFound : T.conversations.none;
      this.more.hidden = this.next === null;
      this.mark();
    } catch (error) {
      this.app.notLoaded(error);
    }
  }

  mark() {
    this.element.classList.toggle("chosen", Boolean(this.key));
    for (const row of this.rows.children) {
      if (row.dataset.key === this.key) row.firstElementChild.setAttribute("aria-current", "true");
      else row.firstElementChild.removeAttribute("aria-current");
    }
  }

  // ------------------------------------------------------------------ one conversation

  async read() {
    const { key, view } = this;
    if (!key) {
      fill(this.detail, h("div", { class: "empty" }, icon("conversations"), h("p", {}, T.conversations.choose)));
      return;
    }
    const lines = h("ol", { class: "lines" });
    const more = h("button", { class: "secondary", type: "button", hidden: true }, view === LINES ? T.conversations.more : T.conversations.older);
    const parts = view === LINES ? [lines, more] : [more, lines];
    fill(this.detail, h("a", { class: "back", href: "#/conversations" }, icon("back"), T.pages.conversations), this.head(), ...parts);
    const read = view === LINES ? this.sessionLines(key) : this.messages(key);
    const load = async () => {
      more.hidden = true;
      try {
        const { done, value } = await read.next();
        if (!lines.isConnected) return;
        if (view === LINES) lines.append(...value.lines);
        else lines.prepend(...value.lines);
        more.hidden = done || value.isLast;
      } catch (error) {
        if (error.code !== "offline" && lines.isConnected) lines.append(h("li", { class: "problem" }, error.message));
      }
    };
    more.addEventListener("click", load);
    await load();
  }

  /** The title, and what can be done with the conversation. */
  head(given = "") {
    const { key, view } = this;
    const row = this.shown.find((each) => each.key === key);
    const archive = ARCHIVE.exec(key)?.[1];
    const chat = decoded(archive ? key.slice(0, -archive.length - 1) : key === "current" ? "" : key);
    const isOurs = !chat || chat === OWN;
    const goOn = !isOurs ? null : archive ? h("button", { class: "secondary", type: "button", onclick: () => this.app.say(`/resume ${archive}`) }, T.conversations.goOn) : h("a", { class: "secondary", href: "#/chat" }, T.conversations.open);
    const other = view === LINES ? [`#/conversations/${encodeURIComponent(key)}`, T.conversations.said] : [`#/conversations/${encodeURIComponent(key)}/${LINES}`, T.conversations.lines];
    const rename = h("button", { class: "icon-button small", type: "button", "aria-label": T.conversations.rename, title: T.conversations.rename, onclick: () => this.rename(row, head) }, icon("edit"));
    const facts = [row?.chat ?? chat, archive ? T.conversations.archived : T.conversations.running].filter(Boolean).join(" · ");
    const head = h("header", { class: "conversation-head" }, h("div", { class: "title-row" }, h("h2", {}, name(given || row?.title || row?.chat || chat || key)), rename), h("p", { class: "hint" }, ...visible(facts)), h("div", { class: "buttons" }, goOn, h("a", { class: "secondary", href: other[0] }, other[1])));
    return head;
  }

  /** Put a form for the name in the place of the head. */
  rename(row, head) {
    const { key } = this;
    const field = h("input", { type: "text", "aria-label": T.conversations.name, dir: "auto", maxlength: "80", value: row?.named ? row.title : "", placeholder: row?.title || T.conversations.name });
    const problem = h("p", { class: "problem", role: "alert" });
    const end = (anew = head) => {
      form.replaceWith(anew);
      anew.querySelector(".icon-button").focus();
    };
    const save = async (event) => {
      event.preventDefault();
      try {
        const given = (await this.app.call("history.rename", { key, name: field.value })).name;
        await this.list(true);
        if (form.isConnected) end(this.head(given));
      } catch (error) {
        problem.textContent = error.message;
      }
    };
    const form = h("form", { class: "conversation-head", onsubmit: save }, field, h("p", { class: "hint" }, T.conversations.nameHint), problem, h("div", { class: "buttons" }, h("button", { class: "primary", type: "submit" }, T.conversations.save), h("button", { class: "secondary", type: "button", onclick: () => end() }, T.conversations.cancel)));
    form.addEventListener("keydown", (event) => event.key === "Escape" && end());
    head.replaceWith(form);
    field.select();
  }

  // ------------------------------------------------------------------ what is in it

  /** What was said, the newest page first. */
  async *messages(key) {
    for (let before = null, isLast = false; !isLast; ) {
      const page = await this.app.call("history.show", { key, limit: PAGE, ...(before && { before }) });
      // What stands above the line that a /new has drawn is a conversation of its own in the list.
      const begin = page.messages.findLastIndex((message) => message.begins);
      const own = page.begins ? [] : page.messages.slice(Math.max(0, begin));
      before = page.before;
      isLast = page.begins || begin >= 0 || before === null;
      yield { lines: own.map((message) => messageLine(this.app, message)), isLast };
    }
  }

  /** The lines of the file, from the first on. */
  async *sessionLines(key) {
    for (let offset = 1; offset !== null; ) {
      const page = await this.app.call("sessions.show", { file: `${key}.jsonl`, offset, limit: PAGE });
      offset = page.next;
      yield { lines: page.lines.map(sessionLine), isLast: offset === null };
    }
  }
}

function makeRow(row) {
  return h("li", {}, h("a", { href: `#/conversations/${encodeURIComponent(row.key)}` }, icon(row.archived ? "archive" : "chat"), h("span", { class: "title" }), h("span", { class: "facts hint" })));
}

function updateRow(element, row) {
  fill(element.querySelector(".title"), name(row.title || row.chat || row.key));
  const facts = [row.archived ? T.conversations.archived : T.conversations.running, row.chat, row.messages === null ? "" : T.conversations.messages(row.messages), fullTime(row.last)];
  fill(element.querySelector(".facts"), ...visible(facts.filter(Boolean).join(" · ")));
}

function messageLine(app, message) {
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

function sessionLine(entry) {
  const texts = T.conversations;
  if (entry.damaged !== undefined) return h("li", { class: "line damaged" }, h("h3", {}, texts.damaged), h("pre", {}, ...visible(entry.damaged)));
  const kind = [texts.roles[entry.role] ?? entry.role, entry.type, entry.failed && texts.failed].filter(Boolean).join(" · ");
  const isLong = entry.role === "tool" && (entry.content ?? "").length > 300;
  const text = entry.content ? h("pre", { class: "words", dir: "auto", tabindex: isLong ? "0" : null }, ...visible(entry.content)) : null;
  return h(
    "li",
    { class: `line ${entry.role}${entry.failed ? " failed" : ""}` },
    h("header", {}, h("span", { class: "strong" }, kind), h("time", { class: "hint mono" }, fullTime(entry.ts))),
    isLong ? h("details", {}, h("summary", { class: "hint mono" }, `${entry.content.slice(0, 120)}…`), text) : text,
    (entry.calls ?? []).map((call) => h("div", { class: "made-call" }, h("p", {}, icon("tool"), h("code", {}, ...visible(call.name))), callDetails(call.name, call.arguments))),
  );
}
