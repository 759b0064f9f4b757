// Sessions and archives, line by line, as Pegasus sees them.

import { fill, h, keepList, splitPage, visible } from "../dom.js";
import { bytes, fullTime } from "../format.js";
import { icon } from "../icons.js";
import { T } from "../texts.js";
import { callDetails } from "./approval_card.js";

const PAGE = 100;

export function open(app, [file]) {
  const rows = h("ul", { class: "rows select", "aria-label": T.pages.sessions });
  const none = h("p", { class: "hint", hidden: true }, T.sessions.none);
  const detail = h("section", { class: "detail" });
  const element = splitPage(T.pages.sessions, null, [rows, none], detail);
  let chosen = file;

  async function load() {
    try {
      const { sessions } = await app.call("sessions.list");
      keepList(rows, sessions, (session) => session.file, sessionRow, updateRow);
      none.hidden = sessions.length > 0;
      mark();
      read();
    } catch (error) {
      if (error.code !== "offline") app.notify(T.failed(error.message), true);
    }
  }

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
    const list = h("ol", { class: "lines" });
    const more = h("button", { class: "secondary", type: "button", hidden: true }, T.sessions.more);
    fill(detail, back, h("h2", { class: "mono" }, ...visible(chosen)), list, more);
    const here = chosen;
    let offset = 1;
    const next = async () => {
      more.hidden = true;
      try {
        const page = await app.call("sessions.show", { file: here, offset, limit: PAGE });
        if (chosen !== here) return;
        list.append(...page.lines.map(line));
        offset = page.next;
        more.hidden = page.next === null;
      } catch (error) {
        if (error.code !== "offline") list.append(h("li", { class: "problem" }, error.message));
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
  const isCurrent = session.file === "current.jsonl";
  return h("li", {}, h("a", { href: `#/sessions/${encodeURIComponent(session.file)}` }, icon(isCurrent ? "chat" : "sessions"), h("span", { class: "title" }, isCurrent ? T.sessions.current : session.file.replace(/\.jsonl$/, "")), h("span", { class: "facts hint" })));
}

function updateRow(row, session) {
  row.querySelector(".facts").textContent = `${bytes(session.bytes)} · ${fullTime(session.changed)}`;
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
