// Skills: what each is for, who may call it, and its text.

import { h, visible } from "../dom.js";
import { icon } from "../icons.js";
import { T } from "../texts.js";

export function open(app) {
  const list = h("div", { class: "stack" });
  const element = h("div", { class: "page" }, h("h1", {}, T.pages.skills), list);
  async function load() {
    try {
      const { skills, proposed, problems } = await app.call("skills.list");
      list.replaceChildren(
        ...(proposed.length ? [h("section", { class: "card warn" }, h("h2", {}, T.skills.proposed), proposed.map((each) => h("p", {}, h("code", {}, ...visible(each.name)), " ", h("span", { class: "hint" }, each.problem ?? T.skills.proposedHint(each.name))))) ] : []),
        ...(problems.length ? [h("section", { class: "card warn" }, h("h2", {}, T.skills.problems), problems.map((problem) => h("p", { class: "mono" }, ...visible(problem))))] : []),
        ...(skills.length ? skills.map((skill) => card(app, skill)) : [h("p", { class: "hint" }, T.skills.none)]),
      );
    } catch (error) {
      app.notLoaded(error);
    }
  }
  return { element, close: app.whenOpen(load) };
}

function card(app, skill) {
  const body = h("div", { class: "skill-text" });
  const text = h("details", {}, h("summary", { class: "hint" }, T.skills.text), body);
  text.addEventListener("toggle", () => text.open && app.markdown.show(body, skill.text), { once: true });
  const callers = [skill.userInvocable && T.skills.you, skill.modelInvocable && T.skills.model].filter(Boolean).join(", ");
  const tags = [T.skills.source[skill.source] ?? skill.source, skill.context === "fork" && T.skills.fork, skill.model].filter(Boolean);
  return h(
    "section",
    { class: "card" },
    h("header", { class: "page-head" }, h("h2", { class: "mono" }, `/${skill.name}`), tags.map((tag) => h("span", { class: "tag" }, tag)), h("span", { class: "hint end" }, `${T.skills.callers}: ${callers || "–"}`)),
    h("p", {}, ...visible(skill.description)),
    skill.installedFrom ? h("p", { class: "hint mono" }, ...visible([skill.installedFrom, skill.revision].filter(Boolean).join(" · "))) : null,
    skill.allowedTools ? h("p", { class: "hint" }, icon("tool"), " ", h("span", { class: "mono" }, skill.allowedTools.join(", "))) : null,
    text,
  );
}
