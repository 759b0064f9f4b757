// Long-term memory: files to read and edit, the log of changes, and undo.

import { fill, h, keepList, name, splitPage, visible } from "../dom.js";
import { bytes, fromNow, fullTime } from "../format.js";
import { icon } from "../icons.js";
import { T } from "../texts.js";
import { sureButton } from "./tasks.js";

const CHANGES = "~changes"; // in the address, in the place of a file

export function open(app, [path]) {
  const view = new Memory(app);
  view.show([path]);
  return { element: view.element, show: (rest) => view.show(rest), close: () => view.off.forEach((off) => off()) };
}

class Memory {
  constructor(app) {
    this.app = app;
    this.files = [];
    this.rows = h("ul", { class: "rows select", "aria-label": T.memory.files });
    this.query = h("input", { type: "search", placeholder: T.memory.search, "aria-label": T.memory.search, oninput: () => this.search() });
    this.none = h("div", { class: "empty", hidden: true }, icon("memory"), h("h2", {}, T.memory.none), h("p", {}, T.memory.noneHint));
    this.detail = h("section", { class: "detail" });
    const create = h("button", { class: "icon-button", type: "button", "aria-label": T.memory.create, title: T.memory.create, onclick: () => this.edit("", "") }, icon("plus"));
    const changes = h("a", { class: "secondary", href: `#/memory/${CHANGES}` }, icon("clock"), T.memory.changes);
    this.element = splitPage(T.pages.memory, create, [this.query, changes, this.rows, this.none], this.detail);
    this.off = [
      app.whenOpen(() => this.load()),
      app.connection.on("event", ({ type }) => ["TOOL_CALL_COMPLETED", "REFLECTION_COMPLETE", "MESSAGE_RECEIVED"].includes(type) && this.load()),
    ];
  }

  show([path]) {
    this.path = path === CHANGES ? undefined : path;
    this.isEditing = false;
    this.element.classList.toggle("chosen", Boolean(path));
    this.mark();
    if (this.app.connection.state === "open") this.loadDetail();
  }

  async load() {
    try {
      this.files = (await this.app.call("memory.list")).files;
      if (!this.query.value) this.list(this.files);
      this.none.hidden = this.files.length > 0;
      if (!this.isEditing) await this.loadDetail();
    } catch (error) {
      this.app.notLoaded(error);
    }
  }

  list(files) {
    keepList(this.rows, files, (file) => file.key ?? file.path, fileRow, updateFile);
    this.mark();
  }

  mark() {
    for (const row of this.rows.children) {
      if (row.dataset.key === this.path) row.firstElementChild.setAttribute("aria-current", "true");
      else row.firstElementChild.removeAttribute("aria-current");
    }
  }

  async search() {
    const query = this.query.value.trim();
    if (!query) return this.list(this.files);
    try {
      const { hits = [] } = await this.app.call("memory.search", { query, limit: 20 });
      if (this.query.value.trim() !== query) return null;
      this.list(hits.filter((hit) => hit.path && this.files.some((file) => file.path === hit.path)).map((hit, index) => ({ ...hit, key: `${hit.path}:${index}`, summary: hit.text ?? hit.snippet ?? "" })));
      if (!this.rows.childElementCount) fill(this.rows, h("li", { class: "hint" }, T.memory.noHits));
    } catch (error) {
      this.app.failed(error);
    }
    return null;
  }

  // ------------------------------------------------------------------ a file, or the changes of all

  async loadDetail() {
    const { path } = this;
    try {
      const { changes } = await this.app.call("memory.log", path ? { path, limit: 30 } : { limit: 60 });
      const file = path ? await this.app.call("memory.show", { path }) : null;
      if (this.path !== path || this.isEditing) return;
      const key = JSON.stringify([path, changes[0]?.n, changes.length, file?.content.length]);
      if (this.detail.dataset.key === key) return;
      this.detail.dataset.key = key;
      this.draw(file, changes);
    } catch (error) {
      if (error.code !== "offline" && this.path === path) {
        delete this.detail.dataset.key;
        fill(this.detail, backLink(), h("p", { class: "problem" }, error.message));
      }
    }
  }

  draw(file, changes) {
    const log = h("ol", { class: "changes" }, changes.map((change) => this.change(change, !file)));
    if (!file) {
      fill(this.detail, backLink(), h("h2", {}, T.memory.changes), changes.length ? log : h("p", { class: "hint" }, T.memory.none));
      return;
    }
    const body = h("div", { dir: "auto" });
    this.app.markdown.show(body, file.content);
    const marked = this.files.find((other) => other.path === file.path)?.marked ?? [];
    const remove = sureButton(T.memory.remove, T.memory.removeSure, () => this.save(file.path, "", file.content));
    fill(
      this.detail,
      backLink(),
      h("header", { class: "task-head" }, h("div", {}, h("h2", { class: "mono" }, ...visible(file.path)), h("p", { class: "hint" }, T.memory.size(bytes(new Blob([file.content]).size)), marked.length ? ` · ${T.memory.outside}: ${marked.join(", ")}` : "")), h("button", { class: "secondary", type: "button", onclick: () => this.edit(file.path, file.content) }, icon("edit"), T.memory.edit), remove),
      h("article", { class: "card" }, body),
      h("h2", {}, T.memory.changes),
      log,
    );
  }

  change(change, hasPath) {
    const { by = {} } = change;
    const who = T.memory.by[by.kind] ?? by.kind ?? "";
    const line = (sign, text) => (text ? text.replace(/\n$/, "").split("\n").map((part) => h("span", { class: sign === "+" ? "added" : "removed" }, `${sign} `, ...visible(part))) : null);
    const undo = h("button", { class: "secondary", type: "button", onclick: () => this.undo(change.n, undo) }, icon("undo"), T.memory.undo);
    const lines = [line("−", change.removed), line("+", change.added)].filter(Boolean);
    return h(
      "li",
      { class: "change" },
      h("header", {}, h("p", {}, h("span", { class: "strong" }, who), ` ${(hasPath ? null : T.memory.howHere[change.how]) ?? T.memory.how[change.how] ?? change.how} `, hasPath ? h("a", { href: `#/memory/${encodeURIComponent(change.path)}`, class: "mono" }, ...visible(change.path)) : "", h("span", { class: "hint" }, " · ", h("time", { title: fullTime(change.ts) }, fromNow(change.ts)), by.why ? [" · ", ...visible(by.why)] : "", by.channel ? [" · ", name(by.channel)] : "")), undo),
      lines.length ? h("pre", { class: "diff", tabindex: "0" }, lines) : null,
    );
  }

  async undo(n, button) {
    button.disabled = true;
    try {
      await this.app.call("memory.undo", { n });
      this.app.notify(T.memory.undone);
      this.load();
    } catch (error) {
      this.app.failed(error);
      button.disabled = false;
    }
  }

  // ------------------------------------------------------------------ editing

  edit(path, content) {
    this.isEditing = true;
    delete this.detail.dataset.key;
    this.element.classList.add("chosen");
    const field = h("textarea", { id: "memory-text", rows: "18", class: "mono", spellcheck: "false", dir: "auto", value: content });
    const where = h("input", { id: "memory-path", value: path, required: true, readonly: Boolean(path), class: "mono", placeholder: "facts/garden.md" });
    const problem = h("p", { class: "problem", role: "alert" });
    const form = h(
      "form",
      { class: "stack" },
      h("div", {}, h("label", { for: "memory-path" }, T.memory.path), where),
      h("div", {}, h("label", { for: "memory-text" }, T.memory.content), field),
      problem,
      h("div", { class: "buttons" }, h("button", { class: "primary", type: "submit" }, T.memory.save), h("button", { class: "secondary", type: "button", onclick: () => this.leaveEditing() }, T.memory.cancel)),
    );
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      problem.textContent = await this.save(where.value.trim(), field.value, content);
    });
    fill(this.detail, h("h2", {}, path ? T.memory.edit : T.memory.create), form);
    (path ? field : where).focus();
  }

  leaveEditing() {
    this.isEditing = false;
    this.element.classList.toggle("chosen", location.hash.split("/").length > 2);
    this.loadDetail();
  }

  /** Write a file. Returns what is wrong, "" if it is written. */
  async save(path, content, was) {
    try {
      await this.app.call("memory.write", { path, content, was });
    } catch (error) {
      if (!this.isEditing) this.app.failed(error);
      return error.message;
    }
    this.isEditing = false;
    this.app.notify(T.memory.saved);
    this.app.go(content ? `memory/${encodeURIComponent(path)}` : "memory");
    this.load();
    return "";
  }
}

function backLink() {
  return h("a", { class: "back", href: "#/memory" }, icon("back"), T.pages.memory);
}

function fileRow(file) {
  return h("li", {}, h("a", { href: `#/memory/${encodeURIComponent(file.path)}` }, icon("file"), h("span", { class: "title mono" }, ...visible(file.path)), h("span", { class: "facts hint clip" })));
}

function updateFile(row, file) {
  row.querySelector(".facts").replaceChildren(...visible(file.summary ?? ""));
}
