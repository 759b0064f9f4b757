// Notifications of this browser: a card of the settings.

import { fill, h } from "../dom.js";
import { choice, choose, obstacle, stop } from "../push.js";
import { T } from "../texts.js";

export function notificationsCard(app) {
  const body = h("div", { class: "push" });
  const show = () => {
    const why = obstacle();
    const now = choice();
    if (why) {
      fill(body, h("p", { class: "hint" }, T.push.obstacles[why]));
      return;
    }
    const about = h("select", { id: "push-about" }, ["off", "all", "approvals"].map((value) => h("option", { value, selected: value === (now?.about ?? "off") }, T.push.about[value])));
    const text = h("input", { id: "push-text", type: "checkbox", checked: now?.text ?? true });
    const save = h("button", { class: "primary", type: "submit" }, T.push.apply);
    const trouble = h("p", { class: "problem", role: "alert" });
    // Browsers ask for the permission only behind a press of a button.
    const change = async (event) => {
      event.preventDefault();
      save.disabled = true;
      trouble.textContent = "";
      try {
        if (about.value === "off") await stop();
        else await choose(about.value, text.checked);
        app.notify(about.value === "off" ? T.push.isOff : T.push.isOn);
        show();
      } catch (error) {
        show();
        const [problem] = body.querySelectorAll(".problem");
        if (problem) problem.textContent = T.push.failed(error.message);
      }
      body.querySelector("button")?.focus();
    };
    fill(body, h("form", { onsubmit: change }, h("label", { for: about.id }, T.push.tell, about), h("label", { for: text.id }, text, T.push.text), h("p", { class: "hint" }, T.push.intro), trouble, h("div", { class: "buttons" }, save)));
  };
  show();
  return h("section", { class: "card" }, h("h2", {}, T.push.title), body);
}
