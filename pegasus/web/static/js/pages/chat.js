// The conversation: messages, the draft of the reply that is being written, what is at work, and the field to write in.

import { announce, h, keepList, name } from "../dom.js";
import { clockTime, dayName, duration, fullTime } from "../format.js";
import { icon, wing } from "../icons.js";
import { copyButton, insert, plainText } from "../markdown.js";
import { T } from "../texts.js";
import { Composer } from "./composer.js";

const PAGE = 100;
const CHUNK = 20;
const NEAR = 120; // pixels from the end within which the newest message stays in view
const TOP = 800; // pixels from the top within which older messages are loaded

const OVERRIDES = /[\u202a-\u202e\u2066-\u2069]/g; // characters that turn the direction of what stands behind them

const LINE = { from: "line", ts: 0 };
const DRAWS_LINE = /^\/(new|clear|resume\s+\S)/;

// What was said stays while the page is open, so that coming back to the chat shows it at once.
const log = { messages: [], keys: new Set(), before: undefined, isOwn: false };

export function open(app) {
  const view = new Chat(app);
  return { element: view.element, focus: view.composer.field, close: () => view.close(), opened: () => view.opened(), sayWaiting: () => view.sayWaiting() };
}

class Chat {
  constructor(app) {
    this.app = app;
    this.composer = new Composer(app, (text, media) => this.say(text, media), () => this.interrupt());
    this.list = h("div", { class: "messages", role: "list", "aria-label": T.chat.label });
    this.top = h("div", { class: "top" });
    this.live = h("div", { class: "live" });
    this.scroller = h("div", { class: "scroller", tabindex: "-1" }, h("div", { class: "reading" }, this.top, this.list, this.live));
    this.latest = h("button", { class: "latest", type: "button", hidden: true, "aria-label": T.chat.latest, title: T.chat.latest, onclick: () => this.toEnd(true) }, icon("down"));
    this.work = h("div", { class: "work" });
    this.asking = h("div", { class: "asking" });
    this.showsAll = false;
    this.others = h("button", { class: "quiet others", type: "button", hidden: true, onclick: () => this.showAll(!this.showsAll) });
    this.element = h("section", { class: "chat" }, h("h1", { class: "sr-only" }, T.pages.chat), this.scroller, h("div", { class: "foot" }, this.latest, this.asking, this.others, this.work, this.composer.element));
    this.draft = null;
    this.editing = null; // {message, form, field, end} while a message is written anew
    this.isAtEnd = true;
    this.lastTop = 0; // where the window stood at the last scroll
    this.seen = new IntersectionObserver((entries) => this.layOut(entries), { root: this.scroller, rootMargin: "1500px 0px" });
    this.scroller.addEventListener("scroll", () => this.scrolled(), { passive: true });
    this.resized = new ResizeObserver(() => this.isAtEnd && this.toEnd());
    this.resized.observe(this.live);
    this.resized.observe(this.list);
    this.resized.observe(this.scroller);
    const { connection, state } = app;
    this.off = [
      connection.on("reply", (reply) => this.takeReply(reply)),
      connection.on("said", (said) => this.takeSaid(said)),
      connection.on("progress", (progress) => this.takeDraft(progress)),
      connection.on("accepted", (id) => this.mark(id, "accepted")),
      connection.on("refused", ({ id, message }) => this.mark(id, "refused", message)),
      connection.on("state", () => this.showWaiting()),
      state.on("typing", () => this.showTyping()),
      state.on("tasks", () => this.showWork()),
      state.on("approvals", () => this.showApprovals()),
      app.whenOpen(() => this.load()),
    ];
    this.timer = setInterval(() => this.tick(), 1000);
    for (const message of log.messages) this.place(message, false);
    this.showTyping();
    this.showWork();
    this.showApprovals();
    this.showTop();
  }

  opened() {
    this.toEnd();
  }

  close() {
    this.off.forEach((off) => off());
    clearInterval(this.timer);
    for (const observer of [this.seen, this.resized]) observer.disconnect();
  }

  // ------------------------------------------------------------------ history

  async load() {
    try {
      const page = await this.page({});
      const isFirst = log.before === undefined;
      if (isFirst) log.before = page.before;
      this.merge(page, isFirst);
      for (const frame of this.app.connection.outbox.values()) this.addOwn(frame.id, frame.text, frame.media ?? []);
      this.showTop();
      this.toEnd();
      this.layOutAgain();
      this.fillTop();
    } catch (error) {
      this.app.notLoaded(error);
    }
    this.sayWaiting();
  }

  /** Say what another part of the page wants to be said. */
  sayWaiting() {
    const { toSay } = this.app;
    this.app.toSay = "";
    if (toSay) this.say(toSay, []);
  }

  async older() {
    if (!log.before || this.isLoading) return;
    this.isLoading = true;
    this.showTop();
    try {
      const page = await this.page({ before: log.before });
      log.before = page.before;
      this.prepend(page.begins ? [...page.messages, LINE] : page.messages);
    } catch {
      // asked again when the top is reached again
    }
    this.isLoading = false;
    this.showTop();
    this.fillTop();
  }

  /** Read everything anew: the chat goes on with another conversation. */
  startAnew() {
    log.messages.length = 0;
    log.keys.clear();
    log.before = undefined;
    this.redraw();
    this.load();
  }

  /** A page of the conversation on all its channels, or, for a token that may not see those, of this one's. */
  async page(params) {
    if (!log.isOwn) {
      try {
        return await this.app.call("history.show", { limit: PAGE, ...params });
      } catch (error) {
        if (error.code !== "bad_frame" || params.before) throw error;
        log.isOwn = true;
      }
    }
    return this.app.call("history", { limit: PAGE, ...params });
  }

  /** Load older messages while the top of what is there is near. */
  fillTop() {
    if (this.scroller.isConnected && this.scroller.scrollTop < TOP && this.app.connection.state === "open") this.older();
  }

  /** Add messages of the history that are not known yet. Its order counts: replies may have come before it was there. */
  merge(page, isFirst) {
    const ordered = page.messages.flatMap((line) => {
      const parts = fromHistory(line);
      const known = log.messages.find((other) => other.keys.some((key) => parts.at(-1).keys.includes(key)));
      if (!known) {
        parts.forEach(remember);
        return parts;
      }
      known.ts = parts.at(-1).ts;
      return [...(isFirst ? parts.slice(0, -1) : []), known]; // else its line was drawn when it came
    });
    if (isFirst) {
      const rest = log.messages.filter((message) => message.from !== "line" && !ordered.includes(message));
      const place = this.placeOfNews(ordered);
      const [old, fresh] = [true, false].map((isOld) => rest.filter((message) => Boolean(message.isOld) === isOld));
      log.messages.splice(0, log.messages.length, ...ordered.slice(0, place), ...old, ...ordered.slice(place), ...fresh);
      this.redraw();
    } else {
      const fresh = ordered.filter((message) => !log.messages.includes(message));
      const [news, place] = [ordered, log.messages].map((messages) => this.placeOfNews(messages));
      const old = fresh.filter((message) => ordered.indexOf(message) < news);
      const isWithin = old.length && place < log.messages.length;
      log.messages.splice(place, 0, ...old);
      log.messages.push(...fresh.slice(old.length));
      if (isWithin) this.redraw();
      else for (const message of fresh) this.place(message, false);
    }
    const last = ordered.at(-1);
    if (page.begins && !log.messages.slice(log.messages.indexOf(last) + 1).some((message) => message.from === "line")) this.drawLine(last);
  }

  prepend(lines) {
    const fresh = lines.flatMap(fromHistory).filter((message) => !isKnown(message));
    fresh.forEach(remember);
    log.messages.unshift(...fresh);
    const height = this.scroller.scrollHeight;
    const chunks = [];
    for (let end = fresh.length; end > 0; end -= CHUNK) {
      const chunk = this.newChunk();
      for (let index = Math.max(0, end - CHUNK); index < end; index++) this.addTo(chunk, fresh[index], fresh[index - 1]);
      chunks.unshift(chunk);
    }
    const first = this.list.firstElementChild?.querySelector(".day[data-ts]"); // not the line that a /new draws
    if (first && fresh.length && sameDay(fresh.at(-1).ts, Number(first.dataset.ts))) first.remove();
    this.list.prepend(...chunks);
    if (this.scroller.scrollTop < NEAR) this.scroller.scrollTop += this.scroller.scrollHeight - height;
  }

  redraw() {
    this.keepingEdit(() => this.drawAll());
  }

  drawAll() {
    this.list.replaceChildren();
    this.lastPlaced = null;
    for (const message of log.messages) this.place(message, false);
  }

  showTop() {
    const { messages, before } = log;
    if (before === undefined) this.top.replaceChildren();
    else if (before) this.top.replaceChildren(h("p", { class: "quiet-text" }, this.isLoading ? T.loading : ""));
    else if (messages.length) this.top.replaceChildren(h("p", { class: "quiet-text" }, T.chat.beginning));
    else this.top.replaceChildren(this.welcome());
  }

  welcome() {
    const buttons = T.chat.suggestions.map((text) => h("button", { class: "suggestion", type: "button", onclick: () => this.say(text, []) }, text));
    return h("div", { class: "welcome" }, wing(), h("h2", {}, T.chat.empty), h("p", {}, T.chat.emptyHint), h("div", { class: "suggestions" }, buttons));
  }

  // ------------------------------------------------------------------ messages

  say(text, media) {
    const id = `p-${Date.now().toString(36)}-${Math.random().toString(36).slice(2, 8)}`;
    if (!this.app.connection.say(id, text, media)) {
      this.app.notify(T.chat.tooLong, true);
      return false;
    }
    this.addOwn(id, text, media);
    this.toEnd(true);
    return true;
  }

  addOwn(id, text, media) {
    this.add({ from: "user", text, ts: Date.now(), id, media, state: "sending", keys: [`u:${id}`] });
    this.showTop();
    this.showWaiting();
  }

  add(message, place = message.isOld ? this.placeOfNews(log.messages) : log.messages.length) {
    if (isKnown(message)) return null;
    remember(message);
    log.messages.splice(place, 0, message);
    if (message === log.messages.at(-1)) return this.place(message, true);
    this.redraw();
    return message.element;
  }

  /** Where what was said since this connection begins: a reply that was made before stands above it, when it comes again. */
  placeOfNews(messages) {
    const place = messages.findIndex((message) => message.from === "user" && this.app.connection.news.has(message.id));
    return place < 0 ? messages.length : place;
  }

  takeReply(frame) {
    const { inReplyTo = "", question } = frame.metadata ?? {};
    const { madeBefore, news } = this.app.connection;
    const isOld = frame.seq <= madeBefore && !news.has(inReplyTo);
    if (question && inReplyTo && !log.keys.has(`u:${inReplyTo}`)) {
      this.add({ from: "user", text: question, ts: Date.now(), id: inReplyTo, media: [], isOld, keys: [`u:${inReplyTo}`] });
    }
    const text = frame.text.trim();
    const keys = [`r:${frame.seq}`, `t:${inReplyTo}:${text}`];
    const asked = log.messages.findLast((message) => message.from === "user" && message.id === inReplyTo);
    if (asked && /^\/(new|clear)\b/.test(asked.text)) this.drawLine(asked);
    if (asked && /^\/resume\s+\S/.test(asked.text)) this.startAnew();
    this.takeDraft({ text: "" });
    const placed = this.add({ from: "agent", text, ts: Date.now(), id: inReplyTo, media: frame.media ?? [], usage: frame.metadata?.usage, isOld, isGuests: frame.metadata?.who === "guest", keys });
    if (placed) this.announceReply(text);
    this.showTop();
    if (!this.isAtEnd) this.latest.hidden = false;
  }

  /** Show what was said at another door, a line where a new conversation begins, and what replaces a message. */
  takeSaid(said) {
    if (said.begins) {
      // The command stands above its line, so that its answer, which may come before or behind this, draws no other one.
      this.add(fromHistory({ ...said, begins: false, ts: said.ts || Date.now() })[0]);
      this.drawLine(log.messages.findLast((message) => message.from === "user" && message.id === said.id));
      return;
    }
    this.keepingEdit(() => {
      if (said.replaces) this.takeBack(said.replaces);
      for (const message of fromHistory({ ...said, ts: said.ts || Date.now() })) {
        if (this.add(message) && message.from === "agent") this.announceReply(message.text);
        if (said.replaces && this.editing?.message.id === said.replaces) this.editing.message = message;
      }
    });
    this.showTop();
    if (!this.isAtEnd) this.latest.hidden = false;
  }

  /** Remove a message and all that was said since. */
  takeBack(id) {
    const index = log.messages.findIndex((message) => message.from === "user" && message.id === id);
    if (index < 0) return;
    for (const message of log.messages.splice(index)) message.keys.forEach((key) => log.keys.delete(key));
    this.drawAll();
  }

  /** Draw a line at the end, or behind the /new that has just been answered: something may have been written since. */
  drawLine(command = log.messages.at(-1)) {
    const place = log.messages.indexOf(command) + 1;
    if (!place || command.from === "line" || log.messages[place]?.from === "line") return; // nothing above it, or drawn already
    this.add(fromHistory(LINE)[0], place);
  }

  /** Read a reply out as it looks, not as it was written. */
  async announceReply(text) {
    const html = await this.app.markdown.render(text);
    announce(T.chat.said(this.app.connection.agent, html === null ? text : plainText(html)));
  }

  // ------------------------------------------------------------------ saying it again

  /** Put the buttons at the last message and at its last answer. */
  showRedo() {
    if (this.isRedoDue) return;
    this.isRedoDue = true;
    queueMicrotask(() => {
      this.isRedoDue = false;
      this.placeRedo();
    });
  }

  placeRedo() {
    for (const button of this.list.querySelectorAll(".redo")) button.remove();
    if (log.isOwn || this.app.state.typing !== null) return;
    const asked = log.messages.findLast((message) => message.from === "user" && message.id && !message.text.startsWith("/") && !["sending", "refused"].includes(message.state));
    const since = log.messages.slice(log.messages.indexOf(asked) + 1);
    // Nobody goes back behind a line, or a command that will draw one, nor before what is on its way.
    if (!asked || since.some((message) => message.from === "line" || message.state === "sending" || DRAWS_LINE.test(message.text))) return;
    const answer = since.findLast((message) => message.from === "agent");
    const button = (name, label, run) => h("button", { class: "icon-button small redo", type: "button", "aria-label": label, title: label, onclick: run }, icon(name));
    asked.element?.querySelector("footer").append(button("edit", T.chat.edit, () => this.edit(asked)));
    (answer ?? asked).element?.querySelector("footer").append(button("undo", T.chat.retry, () => this.redo("history.retry", {})));
  }

  async redo(method, params) {
    try {
      await this.app.call(method, params);
      return true;
    } catch (error) {
      this.app.failed(error);
      return false;
    }
  }

  /** Let the person write a message anew, in its place. */
  edit(message) {
    this.editing?.end();
    const field = h("textarea", { class: "rewrite", "aria-label": T.chat.edit, value: message.text, dir: "auto", rows: String(Math.min(12, message.text.split("\n").length + 1)) });
    const end = () => {
      form.remove();
      this.editing.message.element.classList.remove("editing");
      this.editing = null;
      this.composer.field.focus();
    };
    const send = async (event) => {
      event?.preventDefault();
      if (field.value.trim() && (await this.redo("history.edit", { id: this.editing.message.id, text: field.value }))) this.editing?.end();
    };
    const form = h("form", { class: "rewriting", onsubmit: send }, field, h("p", { class: "hint" }, T.chat.editHint), h("div", { class: "row-actions" }, h("button", { class: "primary", type: "submit" }, T.chat.send), h("button", { class: "secondary", type: "button", onclick: end }, T.chat.keep)));
    field.addEventListener("keydown", (event) => {
      if (event.key === "Escape") end();
      else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) send(event);
    });
    this.editing = { message, form, field, end };
    this.placeEdit();
    field.focus();
  }

  placeEdit() {
    const { element } = this.editing.message;
    element.classList.add("editing");
    element.querySelector(".said").append(this.editing.form);
  }

  /** Change the list, and keep what somebody is writing in place of a message, also if that was sent once more meanwhile. */
  keepingEdit(change) {
    const hasFocus = document.activeElement === this.editing?.field;
    change();
    if (!this.editing) return;
    if (!log.messages.includes(this.editing.message)) {
      this.editing.end();
      return;
    }
    this.placeEdit();
    if (hasFocus) this.editing.field.focus();
  }

  // ------------------------------------------------------------------ placing messages

  /** Put the element of a message at the end. */
  place(message, isNew) {
    let chunk = this.list.lastElementChild;
    if (!chunk || chunk.childElementCount >= CHUNK) this.list.append((chunk = this.newChunk()));
    const element = this.addTo(chunk, message, this.lastPlaced);
    this.lastPlaced = message;
    this.showRedo();
    if (isNew) {
      element.classList.add("new");
      this.layOutChunk(chunk);
    }
    return element;
  }

  addTo(chunk, message, before) {
    if (message.from === "line") {
      message.ts = before?.ts ?? 0; // so that the day of what follows is named if it is another one than that of what stands above
      message.element = h("div", { class: "day begins", role: "listitem" }, h("span", {}, T.chat.begins));
      chunk.append(message.element);
      return message.element;
    }
    if (!before || !sameDay(before.ts, message.ts)) {
      chunk.append(h("div", { class: "day", "data-ts": message.ts, role: "listitem" }, h("span", {}, dayName(message.ts))));
    }
    const element = this.draw(message, before && before.from === message.from && message.ts - before.ts < 300000 && sameDay(before.ts, message.ts));
    chunk.append(element);
    return element;
  }

  draw(message, isContinued) {
    const isUser = message.from === "user";
    const who = isUser ? T.you : this.app.connection.agent;
    const body = h("div", { class: "body", dir: "auto" });
    message.element = h(
      "div",
      { class: `message ${message.from}${isContinued ? " continued" : ""}${message.cut ? " cut" : ""}`, role: "listitem" },
      isUser ? null : h("span", { class: "avatar" }, wing()),
      h(
        "div",
        { class: "said" },
        h("span", { class: "sr-only" }, `${who}:`),
        message.text ? body : null,
        media(message.media),
        h("footer", {}, h("time", { datetime: new Date(message.ts).toISOString(), title: fullTime(message.ts) }, clockTime(message.ts)), message.door ? h("span", { class: "door" }, name(message.door)) : null, message.isGuests ? h("span", { class: "door" }, T.chat.guests) : null, h("span", { class: "sent-state" }), message.cut ? h("span", { class: "cut-mark" }, T.chat.cut) : null, message.usage ? h("span", { class: "usage" }, T.chat.usage(message.usage)) : null, isUser ? null : copyButton(() => message.text, T.chat.copy)),
      ),
    );
    body.textContent = message.text.replace(OVERRIDES, "");
    if (!isUser) message.element.waiting = { body, text: message.text };
    if (message.state) this.showState(message);
    return message.element;
  }

  /** Lay out the Markdown of the messages in chunks that come near the window. */
  layOut(entries) {
    for (const { target, isIntersecting } of entries) if (isIntersecting) this.layOutChunk(target);
  }

  layOutChunk(chunk) {
    if (this.app.connection.state !== "open") return;
    for (const element of chunk.children) {
      if (!element.waiting) continue;
      const { body, text } = element.waiting;
      element.waiting = null;
      this.app.markdown.show(body, text, () => (element.waiting = { body, text }));
    }
    if (chunk !== this.list.lastElementChild) this.seen.unobserve(chunk);
  }

  layOutAgain() {
    for (const chunk of this.list.children) {
      this.seen.unobserve(chunk);
      this.seen.observe(chunk);
    }
  }

  newChunk() {
    const chunk = h("div", { class: "chunk", role: "presentation" });
    this.seen.observe(chunk);
    return chunk;
  }

  // ------------------------------------------------------------------ what becomes of a message

  mark(id, state, problem) {
    const message = log.messages.findLast((other) => other.from === "user" && other.id === id);
    if (!message) return;
    message.state = state;
    message.problem = problem;
    this.showState(message);
    this.showRedo();
  }

  showState(message) {
    const place = message.element?.querySelector(".sent-state");
    if (!place) return;
    place.replaceChildren();
    if (message.state === "sending") place.append(this.app.connection.state === "open" ? T.chat.sending : T.chat.waits);
    else if (message.state === "refused") {
      place.append(h("span", { class: "problem" }, `${T.chat.notSent} `, message.problem ?? ""), " ");
      if (this.app.connection.outbox.has(message.id)) {
        place.append(h("button", { class: "link", type: "button", onclick: () => this.tryAgain(message) }, T.chat.again));
      }
    }
  }

  tryAgain(message) {
    message.state = "sending";
    this.showState(message);
    this.app.connection.again(message.id);
  }

  showWaiting() {
    for (const message of log.messages.slice(-50)) if (message.state === "sending") this.showState(message);
  }

  /** End the answer that is being made, and say what goes on. */
  async interrupt() {
    try {
      const receipt = await this.app.call("interrupt");
      this.app.notify(receipt.text);
    } catch (error) {
      this.app.failed(error);
    }
  }

  // ------------------------------------------------------------------ the draft, and signs of work

  takeDraft({ text = "", reasoning = "", activity = "", cut = false }) {
    if (cut) {
      this.takeCut(text.trim());
      text = "";
    }
    this.draftText = text;
    this.reasoning = reasoning;
    this.activity = activity;
    if (!text && !reasoning) {
      this.draft?.remove();
      this.draft = null;
      this.showThinking();
      return;
    }
    if (!this.draft) {
      this.thinking?.remove();
      this.thinking = null;
      const body = h("div", { class: "body", dir: "auto" });
      const thoughts = h("div", { class: "reasoning", hidden: true });
      this.draft = h("div", { class: "message agent draft", "aria-busy": "true" }, h("span", { class: "avatar busy" }, wing()), h("div", { class: "said" }, thoughts, body));
      this.draft.body = body;
      this.draft.thoughts = thoughts;
      this.live.prepend(this.draft);
    }
    this.draft.thoughts.hidden = !reasoning;
    this.draft.thoughts.textContent = reasoning;
    this.writeDraft();
  }

  /** Keep a draft that nobody goes on with. */
  takeCut(text) {
    const key = `c:${text}`;
    const keys = [log.keys.has(key) ? `${key}:${Date.now()}` : key];
    if (this.add({ from: "agent", text, ts: Date.now(), id: "", media: [], cut: true, keys })) announce(T.chat.cut);
  }

  async writeDraft() {
    if (this.isWriting) return;
    this.isWriting = true;
    while (this.draft && this.draftText && this.draft.shown !== this.draftText) {
      const { draft, draftText } = this;
      if (!draft.shown) draft.body.textContent = draftText;
      const html = await this.app.markdown.render(draftText);
      if (html === null) draft.body.textContent = draftText;
      else insert(draft.body, html);
      draft.shown = draftText;
    }
    this.isWriting = false;
  }

  showTyping() {
    const since = this.app.state.typing;
    this.composer.showStop(since !== null);
    this.showRedo();
    if (since === null) {
      this.thinking?.remove();
      this.thinking = null;
      this.takeDraft({});
    }
    this.showThinking();
  }

  /** Show that the agent thinks, or what delays its answer, while no draft does. */
  showThinking() {
    if (this.app.state.typing === null || this.draft) return;
    if (!this.thinking) {
      this.thinking = h("div", { class: "message agent thinking" }, h("span", { class: "avatar busy" }, wing()), h("span", { class: "pulse", "aria-hidden": "true" }, h("i"), h("i"), h("i")), h("span"));
      this.live.append(this.thinking);
    }
    this.thinking.lastChild.className = this.activity ? "activity" : "sr-only";
    this.thinking.lastChild.textContent = this.activity || `${this.app.connection.agent} ${T.chat.thinking}`;
  }

  showWork() {
    const tasks = [...this.app.state.tasks.values()];
    keepList(this.work, tasks, (task) => task.taskId, (task) => workChip(task), updateChip);
    this.work.hidden = !tasks.length;
  }

  /** Show what the owner is asked. The card is loaded with the first question, since most conversations have none. */
  async showApprovals() {
    const { approvalCard } = this.app.state.approvals.size ? await import("./approval_card.js") : {};
    const open = [...this.app.state.approvals.values()];
    keepList(this.asking, this.showsAll ? open : open.slice(0, 1), (notice) => notice.id, (notice) => approvalCard(this.app, notice));
    this.asking.hidden = !open.length;
    this.others.hidden = open.length < 2;
    this.others.textContent = this.showsAll ? T.approvals.fewer : T.approvals.others(open.length - 1);
    this.others.setAttribute("aria-expanded", String(this.showsAll));
  }

  /** Show all approvals that wait, or the first alone: many would leave no room for the conversation. */
  showAll(all) {
    this.showsAll = all;
    this.showApprovals();
  }

  tick() {
    for (const task of this.app.state.tasks.values()) {
      const chip = this.work.querySelector(`[data-key="${CSS.escape(task.taskId)}"]`);
      if (chip) updateChip(chip, task);
    }
  }

  // ------------------------------------------------------------------ scrolling

  scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    // What has grown meanwhile is no sign that somebody reads further up: only going up is.
    if (scrollHeight - scrollTop - clientHeight < NEAR) this.isAtEnd = true;
    else if (scrollTop < this.lastTop) this.isAtEnd = false;
    this.lastTop = scrollTop;
    this.fillTop();
    if (this.isAtEnd) this.latest.hidden = true;
    else if (scrollHeight - scrollTop - clientHeight > 2 * clientHeight) this.latest.hidden = false;
  }

  toEnd(always = false) {
    if (!always && !this.isAtEnd) return;
    this.isAtEnd = true;
    this.latest.hidden = true;
    this.scroller.scrollTop = this.scroller.scrollHeight;
  }
}

// ------------------------------------------------------------------ parts

const sameDay = (one, other) => new Date(one).toDateString() === new Date(other).toDateString();
const isKnown = (message) => message.keys.some((key) => log.keys.has(key));
const remember = (message) => message.keys.forEach((key) => log.keys.add(key));

/** The messages of a line of the history: itself, and before it the line that a /new has drawn. */
function fromHistory(line) {
  const { from, text, ts, id = "", seq = 0, media = [], cut = false, channel, begins = false } = line;
  const rule = { from: "line", ts, text: "", id: "", media: [], keys: [`l:${ts || Date.now()}`] };
  if (from === "line") return [rule];
  const door = channel && (channel.type !== "web" || channel.channelId !== "main") ? `${channel.type}:${channel.channelId}` : "";
  const keys = from === "user" ? [`u:${id || `${ts}:${text}`}`] : cut ? [`c:${text}`] : [seq ? `r:${door ? `${door}:` : ""}${seq}` : null, `t:${id}:${text}`].filter(Boolean);
  const message = { from, text, ts, id, seq, media: media.map((file) => (typeof file === "string" ? { name: file } : file)), cut, keys, door };
  return begins ? [rule, message] : [message];
}

function media(files) {
  if (!files.length) return null;
  return h("div", { class: "media" }, files.map((file) => {
    const label = name(file.name);
    if (!file.data) return h("span", { class: "file" }, icon("file"), label);
    const address = URL.createObjectURL(blobOf(file));
    const isPicture = /^image\/(png|jpeg|gif|webp|avif)$/.test(file.mime);
    const shown = isPicture ? h("img", { src: address, alt: file.name, loading: "lazy" }) : [icon("file"), label];
    return h("a", { class: isPicture ? "picture" : "file", href: address, download: file.name, "aria-label": T.chat.download(file.name) }, shown);
  }));
}

function blobOf({ data, mime }) {
  const binary = atob(data);
  const content = Uint8Array.from(binary, (character) => character.charCodeAt(0));
  // a type that a browser might run as a page becomes one that it only saves
  return new Blob([content], { type: /^(image\/(png|jpeg|gif|webp|avif)|audio\/|video\/)/.test(mime) ? mime : "application/octet-stream" });
}

function workChip(task) {
  return h("a", { class: "chip", href: `#/tasks/${encodeURIComponent(task.taskId)}` }, h("span", { class: "state-dot" }), h("span", { class: "chip-name" }, name(task.description)), h("span", { class: "chip-facts mono" }));
}

function updateChip(chip, task) {
  const kind = { approval: "approval", person: "paused" }[task.waitsFor] ?? task.state.toLowerCase();
  chip.dataset.state = kind;
  const elapsed = task.elapsedMs + (kind === "reasoning" || kind === "acting" ? Date.now() - task.at : 0);
  const facts = [task.tool || T.tasks.states[kind], task.step ? T.tasks.step(task.step) : "", elapsed ? duration(Math.floor(elapsed / 1000) * 1000) : ""];
  chip.querySelector(".chip-facts").textContent = facts.filter(Boolean).join(" · ");
}
