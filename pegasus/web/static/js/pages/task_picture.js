// The picture of a task: one line of time, on which every thought and every tool call is a bar. Long waits are cut short.

import { h, s } from "../dom.js";
import { duration } from "../format.js";
import { T } from "../texts.js";

const LONG_WAIT = 0.12; // part of the picture that one wait may take
const ROW = 26;
const TOP = 26;

/** The spans of a task, from its events: {kind, label, start, end, failed}. `now` ends what is still going on. */
export function spansOf(events, state, now) {
  const spans = [];
  let thinkingSince = null;
  let waitingSince = null;
  const running = [];
  for (const { type, ts, data } of events) {
    switch (type) {
      case "TASK_CREATED":
        thinkingSince = ts;
        break;
      case "REASON_DONE":
        if (thinkingSince !== null) spans.push({ kind: "thought", label: T.tasks.thinking, start: thinkingSince, end: ts });
        thinkingSince = null;
        break;
      case "TOOL_CALL_REQUESTED":
        running.push({ name: data.toolName, ts });
        break;
      case "TOOL_CALL_COMPLETED":
      case "TOOL_CALL_FAILED": {
        const index = running.findIndex((call) => call.name === data.toolName);
        if (index >= 0) running.splice(index, 1);
        spans.push({ kind: "tool", label: data.toolName, start: ts - (data.durationMs ?? 0), end: ts, failed: type === "TOOL_CALL_FAILED" });
        thinkingSince = ts;
        break;
      }
      case "STEP_COMPLETED":
        thinkingSince = ts;
        break;
      case "TASK_SUSPENDED":
        waitingSince = ts;
        thinkingSince = null;
        running.length = 0;
        break;
      case "TASK_RESUMED":
        if (waitingSince !== null) spans.push({ kind: "wait", label: T.tasks.waiting, start: waitingSince, end: ts });
        waitingSince = null;
        thinkingSince = ts;
        break;
      case "TASK_COMPLETED":
      case "TASK_FAILED":
        running.length = 0;
        thinkingSince = null;
        break;
    }
  }
  if (state === "suspended" && waitingSince !== null) spans.push({ kind: "wait", label: T.tasks.waiting, start: waitingSince, end: now, open: true });
  else if (state === "acting") for (const call of running) spans.push({ kind: "tool", label: call.name, start: call.ts, end: now, open: true });
  else if (state === "reasoning" && thinkingSince !== null) spans.push({ kind: "thought", label: T.tasks.thinking, start: thinkingSince, end: now, open: true });
  return spans.sort((one, other) => one.start - other.start);
}

/** A function from time to place (0 to 1), in which waits take at most their share. */
function axis(spans, begin, end) {
  const total = Math.max(1, end - begin);
  const waits = spans.filter((span) => span.kind === "wait");
  const waited = waits.reduce((sum, span) => sum + span.end - span.start, 0);
  const worked = Math.max(1, total - waited);
  const most = worked * LONG_WAIT;
  const cuts = waits.map((span) => ({ start: span.start, end: span.end, length: Math.min(span.end - span.start, most) }));
  const length = worked + cuts.reduce((sum, cut) => sum + cut.length, 0);
  return (time) => {
    let place = time - begin;
    for (const cut of cuts) {
      if (time >= cut.end) place -= cut.end - cut.start - cut.length;
      else if (time > cut.start) place -= (time - cut.start) * (1 - cut.length / Math.max(1, cut.end - cut.start));
    }
    return Math.max(0, Math.min(1, place / length));
  };
}

/** Draw the spans. `width` is that of the place for it, in pixels; `choose` is called with the index of a bar. */
export function drawPicture(spans, width) {
  if (!spans.length) return h("p", { class: "hint" }, T.loading);
  const begin = spans[0].start;
  const end = Math.max(...spans.map((span) => span.end), begin + 1);
  const labels = [...new Set(spans.filter((span) => span.kind === "tool").map((span) => span.label))];
  const isNarrow = width < 520;
  const left = isNarrow ? 8 : Math.min(150, 24 + 7.4 * Math.max(8, ...labels.map((label) => label.length)));
  const plot = Math.max(80, width - left - 12);
  const place = axis(spans, begin, end);
  const x = (time) => left + plot * place(time);
  const rows = ["", ...labels];
  const step = isNarrow ? ROW + 14 : ROW;
  const height = TOP + rows.length * step + 6;
  const parts = [];
  for (const time of ticks(begin, end, place)) {
    if (spans.some((span) => span.kind === "wait" && time >= span.start && time <= span.end)) continue;
    parts.push(s("line", { class: "grid", x1: x(time), x2: x(time), y1: TOP - 6, y2: height - 4 }));
    parts.push(s("text", { class: "tick", x: x(time), y: 12, "text-anchor": place(time) > 0.94 ? "end" : place(time) < 0.06 ? "start" : "middle" }, time === begin ? "0" : duration(time - begin)));
  }
  rows.forEach((label, row) => {
    const y = TOP + row * step + (isNarrow ? 26 : 15);
    const text = label || T.tasks.thinking;
    parts.push(s("text", { class: label ? "lane tool" : "lane", x: isNarrow ? left : left - 10, y: isNarrow ? y - 14 : y, "text-anchor": isNarrow ? "start" : "end" }, text.length > 18 ? `${text.slice(0, 17)}…` : text));
  });
  const tops = [];
  for (const span of spans) {
    const row = span.kind === "tool" ? rows.indexOf(span.label) : 0;
    const from = x(span.start);
    const wide = Math.max(span.kind === "wait" ? 10 : 3, x(span.end) - from);
    const y = TOP + row * step + (isNarrow ? 18 : 4);
    const group = s("g", { class: `bar ${span.kind}${span.failed ? " failed" : ""}${span.open ? " open" : ""}` }, s("title", {}, `${span.label}, ${duration(span.end - span.start)}`));
    if (span.kind === "wait") {
      group.append(s("rect", { x: from, y: TOP - 2, width: wide, height: height - TOP - 4, rx: 4 }));
      if (wide > 60) group.append(s("text", { class: "tick", x: from + wide / 2, y: 12, "text-anchor": "middle" }, duration(span.end - span.start)));
    }
    else group.append(s("rect", { x: from, y, width: wide, height: 16, rx: Math.min(4, wide / 2) }));
    if (span.failed) group.append(s("path", { d: `M${from + wide / 2 - 3} ${y + 5}l6 6m0-6l-6 6` }));
    (span.kind === "wait" ? parts : tops).push(group);
  }
  const thoughts = spans.filter((span) => span.kind === "thought").length;
  const tools = spans.filter((span) => span.kind === "tool").length;
  const label = T.tasks.picture(thoughts, tools, duration(end - begin));
  return s("svg", { class: "picture", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label }, parts, tops);
}

/** Round times for the axis, few enough to be read. */
function ticks(begin, end, place) {
  const total = end - begin;
  const sizes = [100, 250, 500, 1000, 2000, 5000, 10000, 15000, 30000, 60000, 120000, 300000, 600000, 1800000, 3600000, 7200000, 21600000, 86400000];
  const size = sizes.find((candidate) => total / candidate <= 6) ?? 604800000;
  const found = [begin];
  for (let time = begin + size; time < end; time += size) if (place(time) - place(found.at(-1)) > 0.1) found.push(time);
  return found;
}
