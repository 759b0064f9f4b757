// MCP servers: their state, and their tools in four groups by what a call can do. The owner says whether a server is trusted, and
// what each tool does.

import { fill, h, visible } from "../dom.js";
import { T } from "../texts.js";
import { sureButton } from "./tasks.js";

const KINDS = ["private_reader", "open_reader", "act", "destructive"];
const LISTS = { private_reader: "reads", open_reader: "fetches", act: "acts", destructive: "asks" };
const MOST_SHOWN = 100; // of one group; a server may have thousands of tools

/** The card with a line for each server. `opened` keeps what is unfolded while the card is drawn anew. */
export function servers(app, list, opened) {
  if (!list.length) return null;
  return h("section", { class: "card" }, h("h2", {}, T.servers.title), h("ul", { class: "rows" }, list.map((server) => row(app, server, opened))));
}

function row(app, server, opened) {
  const body = h("div", { class: "stack" });
  const state = [h("span", { class: "state-dot" }), h("span", { class: "strong" }, ...visible(server.name)), h("span", { class: "hint" }, server.state), h("span", { class: "hint" }, T.servers.tools(server.tools)), server.reason ? h("span", { class: "problem" }, ...visible(server.reason)) : null];
  const element = h("details", { "data-state": { up: "completed", down: "failed" }[server.state] ?? "acting", open: opened.has(server.name) }, h("summary", {}, state.flatMap((part) => [part, " "])), body);
  const load = async () => {
    try {
      draw(app, body, await app.call("mcp.tools", { name: server.name }), load);
    } catch (error) {
      fill(body, h("p", { class: "problem" }, ...visible(error.message)));
    }
  };
  element.addEventListener("toggle", () => {
    if (element.open) opened.add(server.name);
    else opened.delete(server.name);
    if (element.open) load();
  });
  return h("li", {}, element);
}

function draw(app, body, answer, load) {
  const change = async (params) => {
    try {
      await app.call("mcp.trust", { name: answer.name, ...params });
    } catch (error) {
      app.failed(error);
    }
    load();
  };
  const isTrusted = answer.trust === "hints";
  const says = answer.tools.some((tool) => tool.says);
  // While nobody has said anything about them, the groups show what trusting the server would mean.
  const preview = !answer.isSorted && says;
  const trust = isTrusted
    ? h("button", { class: "secondary", type: "button", onclick: () => change({ trust: "none" }) }, T.servers.distrust)
    : says
      ? sureButton(T.servers.trust, T.servers.trustSure, () => change({ trust: "hints" }))
      : null;
  const groups = KINDS.map((kind) => group(answer, kind, (tool) => (preview ? tool.ifTrusted : tool.kind), change)).filter(Boolean);
  fill(body, h("p", { class: "hint" }, isTrusted ? T.servers.trusted : preview ? T.servers.unsorted : says ? T.servers.untrusted : T.servers.silent), h("p", {}, trust), groups, answer.total > answer.tools.length ? h("p", { class: "hint" }, T.servers.more(answer.total - answer.tools.length)) : null);
}

function group(answer, kind, kindOf, change) {
  const tools = answer.tools.filter((tool) => kindOf(tool) === kind);
  if (!tools.length) return null;
  const rows = tools.slice(0, MOST_SHOWN).map((tool) => {
    const choice = h("select", { "aria-label": T.servers.kindOf(tool.name), onchange: () => change(listed(answer, tool.name, choice.value)) }, KINDS.map((each) => h("option", { value: each, selected: each === kind }, T.servers.kinds[each])));
    return h("li", { class: "row" }, h("code", {}, ...visible(tool.name)), h("span", { class: "hint" }, tool.says || T.servers.saysNothing), h("span", { class: "end" }, choice));
  });
  const rest = tools.length - rows.length;
  return h("section", {}, h("h3", {}, T.servers.groups[kind]), h("p", { class: "hint" }, T.servers.meanings[kind]), h("ul", { class: "rows" }, rows), rest ? h("p", { class: "hint" }, T.servers.more(rest)) : null);
}

/** The lists of the settings with a tool moved into the one for this kind. */
function listed(answer, name, kind) {
  const lists = Object.fromEntries(Object.values(LISTS).map((list) => [list, answer[list].filter((each) => each !== name)]));
  lists[LISTS[kind]].push(name);
  return lists;
}
