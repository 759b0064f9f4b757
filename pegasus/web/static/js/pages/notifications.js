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
    const text = h("input", { id: "push-text", type: "checkbox", checked: now?.text ?? true, disabled: !now });
    const trouble = h("p", { class: "problem", role: "alert" });
    const change = async () => {
      about.disabled = text.disabled = true;
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
      body.querySelector("select")?.focus();
    };
    about.addEventListener("change", change);
    text.addEventListener("change", change);
    fill(body, h("label", { for: about.id }, T.push.tell, about), h("label", { for: text.id }, text, T.push.text), h("p", { class: "hint" }, T.push.intro), trouble);
  };
  show();
  return h("section", { class: "card" }, h("h2", {}, T.push.title), body);
}
