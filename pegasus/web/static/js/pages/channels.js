// Channels and their state, people who want to write, people who were let in, MCP servers.

import { fill, h, name, visible } from "../dom.js";
import { fromNow, shortDay } from "../format.js";
import { T } from "../texts.js";
import { servers } from "./servers.js";
import { sureButton } from "./tasks.js";

export function open(app) {
  const body = h("div", { class: "stack" });
  const element = h("div", { class: "page" }, h("h1", {}, T.pages.channels), body);
  const opened = new Set();
  let shown = "";

  async function load() {
    if (document.visibilityState !== "visible" || body.querySelector("[data-sure]")) return;
    try {
      const [people, states, known, mcp, rules] = await Promise.all(["pair.list", "channels.list", "conversations.list", "mcp.list", "config.show"].map((method) => app.call(method)));
      const key = JSON.stringify([people, states, known, mcp]);
      if (key === shown) return;
      shown = key;
      fill(body, pairing(people.codes), channels(states.channels, rules.sections, known.conversations), servers(app, mcp.servers, opened), admitted(people.people));
    } catch (error) {
      app.notLoaded(error);
    }
  }

  async function act(method, params) {
    try {
      await app.call(method, params);
    } catch (error) {
      app.failed(error);
    }
    load();
  }

  function pairing(codes) {
    const rows = codes.map((code) => h("li", { class: "row" }, h("code", { class: "strong" }, code.code), name(code.who), h("span", { class: "hint" }, T.channels.until(fromNow(code.expires))), h("button", { class: "primary end", type: "button", onclick: () => act("pair.approve", { code: code.code }) }, T.channels.letIn)));
    return h("section", { class: rows.length ? "card warn" : "card" }, h("h2", {}, T.channels.pairing), rows.length ? h("ul", { class: "rows" }, rows) : h("p", { class: "hint" }, T.channels.noCodes));
  }

  function admitted(people) {
    if (!people.length) return null;
    const rows = people.map((person) => h("li", { class: "row" }, name(person.who), h("span", { class: "hint" }, T.channels.since(shortDay(person.since), person.by)), h("span", { class: "end" }, sureButton(T.channels.revoke, T.channels.revokeSure, () => act("pair.revoke", { who: person.who })))));
    return h("section", { class: "card" }, h("h2", {}, T.channels.people), h("ul", { class: "rows" }, rows));
  }

  const off = app.whenOpen(load);
  const timer = setInterval(load, 2000);
  return {
    element,
    close() {
      off();
      clearInterval(timer);
    },
  };
}

function channels(states, sections, conversations) {
  const setting = (type, key) => sections.find((section) => section.name === `channels.${type}`)?.keys.find((each) => each.key === key)?.value.replaceAll('"', "");
  const types = [...new Set([...sections.filter((section) => /^channels\.[^.]+$/.test(section.name)).map((section) => section.name.slice(9)), ...conversations.map((each) => each.type)])];
  const rows = types.map((type) => {
    const state = states.find((each) => each.type === type);
    const isOn = setting(type, "enabled") === "true" || Boolean(state);
    const here = conversations.filter((each) => each.type === type);
    const kind = state ? { up: "completed", parked: "failed", down: "suspended" }[state.state] ?? "acting" : isOn || here.length ? "completed" : "idle";
    const facts = [state?.name, setting(type, "access") && T.channels.access[setting(type, "access")]].filter(Boolean).join(" · ");
    return h(
      "li",
      { class: "row", "data-state": kind },
      h("span", { class: "state-dot" }),
      h("span", { class: "strong" }, type),
      h("span", { class: "hint" }, state?.state ?? (isOn || here.length ? T.channels.enabled : T.channels.disabled)),
      h("span", { class: "hint" }, facts),
      state?.reason ? h("span", { class: "problem" }, ...visible(state.reason)) : null,
      h("span", { class: "end tags" }, here.slice(0, 12).map((each) => h("span", { class: "tag mono" }, name(each.channelId)))),
    );
  });
  return h("section", { class: "card" }, h("h2", {}, T.channels.channels), h("ul", { class: "rows" }, rows));
}
