// Stacked bars by day, drawn as SVG with a table behind them for people who do not see them.

import { h, s } from "../dom.js";
import { shortDay } from "../format.js";
import { T } from "../texts.js";

const HEIGHT = 190;
const LEFT = 52;
const BOTTOM = 24;

/** Bars of `days`: [{day, parts: {name: value}}]; `names` in the order of their colours; `label` formats a value. */
export function stackedBars(days, names, width, label, title) {
  const total = (day) => Object.values(day.parts).reduce((sum, value) => sum + value, 0);
  const most = niceTop(Math.max(...days.map(total), 1e-9));
  const plot = Math.max(60, width - LEFT - 4);
  const y = (value) => HEIGHT - BOTTOM - ((HEIGHT - BOTTOM - 12) * value) / most;
  const step = plot / days.length;
  const bar = Math.max(2, Math.min(34, step * 0.68));
  const parts = [];
  for (const share of [0, 0.5, 1]) {
    parts.push(s("line", { class: "grid", x1: LEFT, x2: width - 4, y1: y(most * share), y2: y(most * share) }));
    parts.push(s("text", { class: "tick", x: LEFT - 8, y: y(most * share) + 4, "text-anchor": "end" }, label(most * share)));
  }
  const every = Math.ceil(days.length / Math.max(2, Math.floor(plot / 64)));
  days.forEach((day, index) => {
    const x = LEFT + step * index + (step - bar) / 2;
    const when = shortDay(Date.parse(day.day));
    if ((days.length - 1 - index) % every === 0) parts.push(s("text", { class: "tick", x: Math.min(x + bar / 2, width - 22), y: HEIGHT - 6, "text-anchor": "middle" }, when));
    let below = 0;
    for (const [place, name] of names.entries()) {
      const value = day.parts[name];
      if (!value) continue;
      const top = y(below + value);
      parts.push(s("rect", { class: `series s${place}`, x, y: top, width: bar, height: Math.max(1, y(below) - top) }, s("title", {}, `${when}, ${name}: ${label(value)}`)));
      below += value;
    }
  });
  return s("svg", { class: "chart", viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "img", "aria-label": title }, parts);
}

/** Names with the colours of their bars. */
export function legend(names) {
  return h("ul", { class: "legend" }, names.map((name, place) => h("li", {}, s("svg", { viewBox: "0 0 12 12", width: 12, height: 12, "aria-hidden": "true" }, s("rect", { class: `series s${place}`, width: 12, height: 12, rx: 3 })), name)));
}

/** The numbers of a chart. */
export function asTable(days, names, label) {
  const shown = days.filter((day) => Object.values(day.parts).some(Boolean)).reverse();
  return h("details", { class: "more" }, h("summary", {}, T.usage.asTable), h("div", { class: "table" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, T.usage.day), names.map((name) => h("th", { scope: "col", class: "number" }, name)))), h("tbody", {}, shown.map((day) => h("tr", {}, h("th", { scope: "row" }, day.day), names.map((name) => h("td", { class: "number" }, day.parts[name] ? label(day.parts[name]) : "–"))))))));
}

function niceTop(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((top) => top >= value);
}
