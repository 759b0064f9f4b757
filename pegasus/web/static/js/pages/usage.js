// What model calls have cost: by day, by model, by conversation, and how much of the budgets is left.

import { debounced, fill, h, name } from "../dom.js";
import { dollars, tokens } from "../format.js";
import { icon } from "../icons.js";
import { T } from "../texts.js";
import { asTable, legend, stackedBars } from "./charts.js";

const DAYS = 30;
const SERIES = 5;

export function open(app) {
  const body = h("div", { class: "stack" });
  const element = h("div", { class: "page" }, h("h1", {}, T.pages.usage), body);
  let report = null;
  const draw = () => report && fill(body, report.days.length || report.thisMonth.calls ? content(report, body.clientWidth) : h("div", { class: "empty" }, icon("usage"), h("h2", {}, T.usage.none), h("p", {}, T.usage.noneHint)));
  async function load() {
    try {
      report = await app.call("usage", { days: true });
      report.days ??= [];
      if (report.thisMonth) draw();
    } catch (error) {
      app.notLoaded(error);
    }
  }
  const off = app.whenOpen(load);
  const timer = setInterval(() => document.visibilityState === "visible" && load(), 5000);
  const resized = new ResizeObserver(debounced(draw, 100));
  resized.observe(element);
  return {
    element,
    close() {
      off();
      clearInterval(timer);
      resized.disconnect();
    },
  };
}

function content(report, width) {
  const days = lastDays(report);
  const names = largest(days);
  const hasCost = days.some((day) => day.cost > 0);
  const value = hasCost ? (sum) => sum.cost : (sum) => sum.promptTokens + sum.completionTokens;
  const label = hasCost ? dollars : tokens;
  const bars = days.map((day) => {
    const parts = {};
    for (const model of day.models) {
      const key = names.includes(model.model) ? model.model : T.usage.other;
      parts[key] = (parts[key] ?? 0) + value(model);
    }
    return { day: day.day, parts };
  });
  const title = hasCost ? T.usage.byDay : T.usage.tokensByDay;
  return [
    h("div", { class: "tiles" }, tile(T.usage.today, report.today), tile(T.usage.month, report.thisMonth), report.budgets.map(budget)),
    h("section", { class: "card" }, h("h2", {}, title), stackedBars(bars, names, Math.max(240, width - 42), label, title), legend(names), asTable(bars, names, label)),
    h("div", { class: "columns" }, sums(T.usage.models, report.models, "model"), sums(T.usage.channels, channelsOf(days), "channel")),
  ];
}

/** One entry for each of the last days, also where nothing was used. */
function lastDays(report) {
  const known = new Map(report.days.map((day) => [day.day, day]));
  const last = Date.parse(report.day);
  return Array.from({ length: DAYS }, (_, index) => {
    const day = new Date(last - (DAYS - 1 - index) * 86400000).toISOString().slice(0, 10);
    return known.get(day) ?? { day, cost: 0, promptTokens: 0, completionTokens: 0, models: [], channels: [] };
  });
}

function largest(days) {
  const totals = new Map();
  for (const day of days) for (const sum of day.models) totals.set(sum.model, (totals.get(sum.model) ?? 0) + sum.cost + (sum.promptTokens + sum.completionTokens) * 1e-9);
  const ranked = [...totals].sort((one, other) => other[1] - one[1]).map(([model]) => model);
  return ranked.length > SERIES ? [...ranked.slice(0, SERIES - 1), T.usage.other] : ranked;
}

function channelsOf(days) {
  const totals = new Map();
  for (const day of days) {
    for (const sum of day.channels) {
      const total = totals.get(sum.channel) ?? { channel: sum.channel, calls: 0, promptTokens: 0, completionTokens: 0, cost: 0 };
      for (const key of ["calls", "promptTokens", "completionTokens", "cost"]) total[key] += sum[key];
      totals.set(sum.channel, total);
    }
  }
  return [...totals.values()].sort((one, other) => other.cost - one.cost || other.promptTokens - one.promptTokens).slice(0, 10);
}

function tile(title, sum) {
  const facts = [T.usage.calls(sum.calls), `${tokens(sum.promptTokens)} ${T.usage.tokensIn}`, `${tokens(sum.completionTokens)} ${T.usage.tokensOut}`];
  if (sum.cacheReadTokens) facts.push(`${Math.round((100 * sum.cacheReadTokens) / Math.max(1, sum.promptTokens))} % ${T.usage.cached}`);
  return h("section", { class: "card tile" }, h("h2", {}, title), h("p", { class: "amount" }, dollars(sum.cost)), h("p", { class: "hint" }, facts.join(" · ")), sum.unpricedCalls ? h("p", { class: "hint" }, T.usage.unpriced(sum.unpricedCalls)) : null);
}

function budget(limit) {
  const [used, most, label] = limit.cost ? [limit.costUsed, limit.cost, dollars] : [limit.tokensUsed, limit.tokens, tokens];
  const share = Math.min(1, used / most);
  return h("section", { class: "card tile" }, h("h2", {}, T.usage.budgets), h("p", { class: "amount" }, `${label(used)} `, h("small", {}, `${T.usage.of} ${label(most)}`)), h("meter", { class: "meter", min: "0", max: "1", high: "0.8", value: String(share), "aria-label": limit.what }), h("p", { class: "hint" }, limit.what));
}

function sums(title, rows, key) {
  return h(
    "section",
    { class: "card" },
    h("h2", {}, title),
    rows.length
      ? h("div", { class: "table" }, h("table", { class: "full" }, h("tbody", {}, rows.map((row) => h("tr", {}, h("th", { scope: "row", class: "mono" }, name(row[key])), h("td", { class: "number" }, `${tokens(row.promptTokens)} / ${tokens(row.completionTokens)}`), h("td", { class: "number" }, dollars(row.cost)))))))
      : h("p", { class: "hint" }, "–"),
  );
}
