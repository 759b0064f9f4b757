// The log as it is written.

import { h, visible } from "../dom.js";
import { icon } from "../icons.js";
import { T } from "../texts.js";

const LEVELS = ["debug", "info", "warning", "error"];
const MOST = 2000;
const LINE = /^(\S+T\S+Z) (\w+)\s+([\w.]+): (.*)$/;

export function open(app) {
  const level = h("select", { "aria-label": T.log.level, onchange: () => filter() }, LEVELS.map((each) => h("option", { value: each }, T.log.levels[each])));
  const query = h("input", { type: "search", placeholder: T.log.filter, "aria-label": T.log.filter, oninput: () => filter() });
  const follow = h("button", { class: "secondary", type: "button", "aria-pressed": "true", onclick: () => setFollowing(!isFollowing) }, icon("pause"), T.log.pause);
  const lines = h("ol", { class: "log", tabindex: "0", "aria-label": T.log.label });
  const element = h("div", { class: "page wide log-page" }, h("header", { class: "page-head" }, h("h1", {}, T.pages.log), level, query, follow), lines);
  let end = null;
  let isFollowing = true;

  function setFollowing(value) {
    isFollowing = value;
    follow.setAttribute("aria-pressed", String(value));
    follow.replaceChildren(icon(value ? "pause" : "play"), value ? T.log.pause : T.log.follow);
    if (value) load();
  }

  const fits = (line) => LEVELS.indexOf(line.dataset.level) >= LEVELS.indexOf(level.value) && line.textContent.toLowerCase().includes(query.value.trim().toLowerCase());
  const filter = () => [...lines.children].forEach((line) => (line.hidden = !fits(line)));

  async function load() {
    if (!isFollowing || document.visibilityState !== "visible" || load.isRunning) return;
    load.isRunning = true;
    try {
      const answer = await app.call("log.tail", end === null ? {} : { after: end });
      if (end !== null && answer.end < end) lines.replaceChildren();
      end = answer.end;
      const isAtEnd = lines.scrollHeight - lines.scrollTop - lines.clientHeight < 60;
      for (const text of answer.lines) add(text);
      while (lines.childElementCount > MOST) lines.firstElementChild.remove();
      if (isAtEnd && answer.lines.length) lines.scrollTop = lines.scrollHeight;
    } catch {
      // the banner says that there is no connection
    }
    load.isRunning = false;
  }

  function add(text) {
    const found = parse(text);
    if (!found) {
      lines.lastElementChild?.querySelector(".event").append("\n", ...visible(text));
      return;
    }
    const line = h("li", { "data-level": found.level }, h("time", {}, found.time), h("span", { class: "level" }, found.level), h("span", { class: "who" }, found.logger), h("span", { class: "event" }, ...visible(found.event)));
    line.hidden = !fits(line);
    lines.append(line);
  }

  const off = app.whenOpen(load);
  const timer = setInterval(load, 1000);
  return {
    element,
    opened: () => (lines.scrollTop = lines.scrollHeight),
    close() {
      off();
      clearInterval(timer);
    },
  };
}

/** A line of the log in either of its formats; null for one that belongs to the line before it. */
function parse(text) {
  if (text.startsWith("{")) {
    try {
      const { ts, level, logger, event, ...fields } = JSON.parse(text);
      const rest = Object.entries(fields).map(([key, value]) => `${key}=${typeof value === "string" ? value : JSON.stringify(value)}`);
      return { time: clock(ts), level, logger, event: [event, ...rest].join(" ") };
    } catch {
      return null;
    }
  }
  const found = LINE.exec(text);
  return found && { time: clock(found[1]), level: found[2], logger: found[3], event: found[4] };
}

const clock = (text) => {
  const time = new Date(text);
  return Number.isNaN(time.getTime()) ? text : time.toLocaleTimeString(undefined, { hour12: false });
};
