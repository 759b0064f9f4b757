// Choosing the model: a list of those that the agent knows, which sends the command /model.

import { fill, h, visible } from "./dom.js";
import { icon } from "./icons.js";
import { T } from "./texts.js";

export async function pickModel(app) {
  let models;
  try {
    ({ models } = await app.call("completions"));
  } catch (error) {
    app.failed(error);
    return;
  }
  const current = app.state.status?.model;
  const choose = (model) => {
    dialog.close();
    app.say(`/model ${model}`);
    setTimeout(() => app.state.refresh(), 1500);
  };
  const list = h("ul", { class: "rows select", "aria-label": T.models.title });
  const find = h("input", { type: "search", "aria-label": T.models.find, placeholder: T.models.find, oninput: () => draw() });
  const draw = () => {
    const wanted = find.value.trim().toLowerCase();
    const fitting = [...models, "default"].filter((model) => model.toLowerCase().includes(wanted));
    fill(list, fitting.map((model) => h("li", {}, h("button", { class: "choice-row", type: "button", "aria-pressed": String(model === current), onclick: () => choose(model) }, h("span", { class: "mono" }, ...visible(model)), model === current ? icon("check") : null))), fitting.length ? null : h("li", { class: "hint" }, T.models.none));
  };
  const dialog = h("dialog", { class: "picker", "aria-label": T.models.title }, h("header", { class: "page-head" }, h("h2", {}, T.models.title), h("button", { class: "icon-button", type: "button", "aria-label": T.close, onclick: () => dialog.close() }, icon("cross"))), h("p", { class: "hint" }, T.models.hint), models.length > 8 ? find : null, list);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  draw();
  document.body.append(dialog);
  dialog.showModal();
}
