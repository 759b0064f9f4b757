// The settings as they are in force.

import { fill, h, visible } from "../dom.js";
import { T } from "../texts.js";

export function open(app) {
  const query = h("input", { type: "search", placeholder: T.settings.filter, "aria-label": T.settings.filter, oninput: () => draw() });
  const changed = h("input", { type: "checkbox", id: "changed", onchange: () => draw() });
  const reload = h("button", { class: "secondary", type: "button", onclick: () => readAgain() }, T.settings.reload);
  const body = h("div", { class: "settings" });
  const result = h("div", { class: "hint", role: "status" });
  const element = h("div", { class: "page" }, h("header", { class: "page-head" }, h("h1", {}, T.pages.settings), reload), h("p", { class: "hint" }, T.settings.intro), h("div", { class: "filters" }, query, h("label", { for: "changed" }, changed, T.settings.changed)), result, body);
  let sections = [];

  async function load() {
    try {
      ({ sections } = await app.call("config.show"));
      draw();
    } catch (error) {
      if (error.code !== "offline") app.notify(T.failed(error.message), true);
    }
  }

  async function readAgain() {
    try {
      const { changed: now, afterRestart } = await app.call("config.reload");
      fill(result, h("p", {}, T.settings.reloaded(now)), afterRestart.length ? h("p", {}, T.settings.later(afterRestart)) : null);
      load();
    } catch (error) {
      fill(result, h("p", {}, T.settings.refused), ...error.message.split("\n").map((line) => h("p", { class: "mono" }, ...visible(line))));
    }
  }

  function draw() {
    const words = query.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (section, key) => (!changed.checked || key.origin !== undefined) && words.every((word) => `${section.name}.${key.key} ${key.value}`.toLowerCase().includes(word));
    const shown = sections.map((section) => ({ ...section, keys: section.keys.filter((key) => fits(section, key)) })).filter((section) => section.keys.length);
    fill(
      body,
      shown.map((section) =>
        h("section", { class: "section" }, h("h2", { class: "mono" }, section.name ? `[${section.name}]` : T.settings.root), h("dl", { class: "keys" }, section.keys.map((key) => h("div", { class: key.origin === undefined ? "key" : "key set" }, h("dt", { class: "mono" }, key.key.split(/(?<=_)/u).flatMap((part) => [part, h("wbr")])), h("dd", { class: "mono" }, ...visible(key.value), key.restart ? h("span", { class: "hint origin" }, T.settings.restart) : null, key.origin ? h("span", { class: "hint origin" }, key.origin) : null))))),
      ),
      shown.length ? null : h("p", { class: "hint" }, sections.length ? T.settings.none : T.loading),
    );
  }

  return { element, close: app.whenOpen(load) };
}
