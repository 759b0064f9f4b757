// Sessions and archives, line by line, as Pegasus sees them.

import { fill, h, keepList, splitPage, visible } from "../dom.js";
import { bytes, fullTime } from "../format.js";
import { icon } from "../icons.js";
import { T } from "../texts.js";
import { callDetails } from "./approval_card.js";

const PAGE = 100;
const ROWS = 100;
const MOST_ROWS = 500;

export function open(app, [file]) {
  const rows = h("ul", { class: "rows select", "aria-label": T.pages.sessions });
  const none = h("p", { class: "hint", hidden: true }, T.sessions.none);
  const find = h("input", { type: "search", "aria-label": T.sessions.find, placeholder: T.sessions.find, hidden: true });
  const older = h("button", { class: "secondary", type: "button", hidden: true }, T.sessions.more);
  const detail = h("section", { class: "detail" });
  const element = splitPage(T.pages.sessions, null, [find, rows, older, none], detail);
  let chosen = file;
  let shown = ROWS;
  let waiting;

  async function list() {
    try {
      const wanted = find.value.trim();
      const { sessions, total } = await app.call("sessions.list", { limit: shown, ...(wanted && { chat: wanted }) });
      keepList(rows, sessions, (session) => session.file, sessionRow, updateRow);
      none.hidden = sessions.length > 0;
      older.hidden = total <= sessions.length || shown >= MOST_ROWS;
      find.hidden = !wanted && total <= ROWS && !sessions.some((session) => session.chat);
      mark();
    } catch (error) {
      if (error.code !== "offline") app.notify(T.failed(error.message), true);
    }
  }

  async function load() {
    await list();
    read();
  }

  older.addEventListener("click", () => {
    shown = Math.min(shown + ROWS, MOST_ROWS);
    list();
  });
  find.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      shown = ROWS;
      list();
    }, 250);
  });

  function mark() {
    element.classList.toggle("chosen", Boolean(chosen));
    for (const row of rows.children) {
      if (row.dataset.key === chosen) row.firstElementChild.setAttribute("aria-current", "true");
      else row.firstElementChild.removeAttribute("aria-current");
    }
  }

  async function read() {
    const back = h("a", { class: "back", href: "#/sessions" }, icon("back"), T.pages.sessions);
    if (!chosen) {
      fill(detail, h("div", { class: "empty" }, icon("sessions"), h("p", {}, T.sessions.choose)));
      return;
    }
    const lines = h("ol", { class: "lines" });
    const more = h("button", { class: "secondary", type: "button", hidden: true }, T.sessions.more);
    const title = h("h2", { class: "mono" }, ...visible(chosen));
    fill(detail, back, title, lines, more);
    const here = chosen;
    let offset = 1;
    const next = async () => {
      more.hidden = true;
      try {
        const page = await app.call("sessions.show", { file: here, offset, limit: PAGE });
        if (chosen !== here) return;
        if (page.chat) fill(title, ...visible(page.chat));
        lines.append(...page.lines.map(line));
        offset = page.next;
        more.hidden = page.next === null;
      } catch (error) {
        if (error.code !== "offline") lines.append(h("li", { class: "problem" }, error.message));
      }
    };
    more.addEventListener("click", next);
    await next();
  }

  const off = app.whenOpen(load);
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

function sessionRow(session) {
  const isCurrent = !session.archive;
  const name = session.chat ?? (isCurrent ? T.sessions.current : session.file.replace(/\.jsonl$/, ""));
  return h("li", {}, h("a", { href: `#/sessions/${encodeURIComponent(session.file)}` }, icon(isCurrent ? "chat" : "sessions"), h("span", { class: "title" }, ...visible(name)), h("span", { class: "facts hint" })));
}

function updateRow(row, session) {
  const archived = session.archive && session.chat ? `${T.sessions.archived} · ` : "";
  row.querySelector(".facts").textContent = `${archived}${bytes(session.bytes)} · ${fullTime(session.changed)}`;
}

function line(entry) {
  if (entry.damaged !== undefined) return h("li", { class: "line damaged" }, h("h3", {}, T.sessions.damaged), h("pre", {}, ...visible(entry.damaged)));
  const kind = [T.sessions.roles[entry.role] ?? entry.role, entry.type, entry.failed && T.sessions.failed].filter(Boolean).join(" · ");
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
