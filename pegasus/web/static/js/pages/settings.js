// The settings as they are in force, and a form to change one of them.

import { fill, h, visible } from "../dom.js";
import { icon } from "../icons.js";
import { T } from "../texts.js";
import { notificationsCard } from "./notifications.js";

export function open(app) {
  const view = new SettingsPage(app);
  return { element: view.element, close: view.off };
}

class SettingsPage {
  constructor(app) {
    this.app = app;
    this.query = h("input", { type: "search", placeholder: T.settings.filter, "aria-label": T.settings.filter, oninput: () => this.draw() });
    this.changed = h("input", { type: "checkbox", id: "changed", onchange: () => this.draw() });
    const reload = h("button", { class: "secondary", type: "button", onclick: () => this.readAgain() }, T.settings.reload);
    this.body = h("div", { class: "settings" });
    this.result = h("div", { class: "hint", role: "status" });
    this.element = h("div", { class: "page" }, h("header", { class: "page-head" }, h("h1", {}, T.pages.settings), reload), notificationsCard(app), h("p", { class: "hint" }, T.settings.intro), h("div", { class: "filters" }, this.query, h("label", { for: "changed" }, this.changed, T.settings.changed)), this.result, this.body);
    this.sections = [];
    this.off = app.whenOpen(() => this.load());
  }

  async load() {
    try {
      const { sections, mayEdit } = await this.app.call("config.show");
      this.sections = sections;
      this.mayEdit = mayEdit;
      if (!this.body.querySelector("form")) this.draw(); // what somebody types there stays
    } catch (error) {
      this.app.notLoaded(error);
    }
  }

  async readAgain() {
    try {
      this.showResult(await this.app.call("config.reload"));
      await this.load();
    } catch (error) {
      fill(this.result, h("p", {}, T.settings.refused), ...problem(error));
    }
  }

  showResult({ changed, afterRestart }) {
    fill(this.result, h("p", {}, T.settings.reloaded(changed)), afterRestart.length ? h("p", {}, T.settings.later(afterRestart)) : null);
  }

  draw() {
    const words = this.query.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (section, key) => (!this.changed.checked || key.origin !== undefined) && words.every((word) => `${section.name}.${key.key} ${key.value} ${key.doc ?? ""}`.toLowerCase().includes(word));
    const shown = this.sections.map((section) => ({ ...section, keys: section.keys.filter((key) => fits(section, key)) })).filter((section) => section.keys.length);
    fill(
      this.body,
      shown.map((section) => h("section", { class: "section" }, h("h2", { class: "mono" }, section.name ? `[${section.name}]` : T.settings.root), h("ul", { class: "keys" }, section.keys.map((key) => this.row(section, key))))),
      shown.length ? null : h("p", { class: "hint" }, this.sections.length ? T.settings.none : T.loading),
    );
  }

  row(section, key) {
    const path = [...section.path, key.key];
    const edit = h("button", { class: "icon-button small", type: "button", "aria-label": T.settings.edit(path.join(".")), title: T.settings.edit(key.key), onclick: () => this.edit(path, key, row) }, icon("edit"));
    const row = h(
      "li",
      { class: key.origin === undefined ? "key" : "key set", "data-key": path.join("."), title: key.fixed ?? null },
      h("span", { class: "mono key-name" }, key.key.split(/(?<=_)/u).flatMap((part) => [part, h("wbr")])),
      h("span", { class: "mono key-value" }, h("span", { class: "value" }, ...visible(key.value)), this.mayEdit && !key.fixed ? edit : null, key.restart ? h("span", { class: "hint origin" }, T.settings.restart) : null, key.origin ? h("span", { class: "hint origin" }, ...visible(key.origin)) : null),
    );
    return row;
  }

  /** Put what a key means, and a field to change it, in its place. */
  edit(path, key, row) {
    const label = path.join(".");
    const isText = key.value.startsWith('"') && !key.choices;
    const now = key.value.startsWith('"') ? JSON.parse(key.value) : key.value;
    const field = key.choices
      ? h("select", { "aria-label": label }, key.choices.map((choice) => h("option", { value: choice, selected: choice === now }, choice || "—")))
      : key.value.length > 60 || key.value.startsWith("[") || key.value.startsWith("{")
        ? h("textarea", { "aria-label": label, rows: "3", spellcheck: "false", class: isText ? null : "mono", value: now })
        : h("input", { type: "text", "aria-label": label, spellcheck: "false", autocapitalize: "off", autocomplete: "off", class: isText ? null : "mono", value: now });
    const trouble = h("div", { class: "problem", role: "alert" });
    const end = () => {
      place.replaceWith(row);
      row.querySelector("button").focus();
    };
    const send = async (value) => {
      try {
        this.showResult(await this.app.call("config.set", { path, was: key.value, value }));
        place.remove();
        await this.load();
        this.body.querySelector(`[data-key="${CSS.escape(label)}"] button`)?.focus();
      } catch (error) {
        fill(trouble, h("p", {}, T.settings.notSaved), ...problem(error));
      }
    };
    const save = (event) => {
      event.preventDefault();
      if (field.value === now) end();
      else send(field.value);
    };
    const form = h(
      "form",
      { onsubmit: save },
      h("p", { class: "mono strong" }, label),
      h("p", { class: "hint" }, [key.doc, key.allowed && T.settings.allowed(key.allowed), T.settings.effect].filter(Boolean).map((text) => h("span", {}, `${text[0].toUpperCase()}${text.slice(1)}`.replace(/([^.])$/, "$1."), " "))),
      field,
      trouble,
      h("div", { class: "buttons" }, h("button", { class: "primary", type: "submit" }, T.settings.save), h("button", { class: "secondary", type: "button", onclick: end }, T.settings.cancel), key.origin === undefined ? null : h("button", { class: "quiet", type: "button", onclick: () => send(null) }, T.settings.unset)),
    );
    form.addEventListener("keydown", (event) => event.key === "Escape" && end());
    const place = h("li", { class: "key-form card" }, form);
    row.replaceWith(place);
    field.focus();
  }
}

function problem(error) {
  return error.message.split("\n").map((line) => h("p", { class: "mono" }, ...visible(line)));
}
