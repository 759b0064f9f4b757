// One approval: exactly what will run, and the answers. Nothing of it comes from others but as visible text.

import { h, name, visible } from "../dom.js";
import { clockTime, fromNow } from "../format.js";
import { icon } from "../icons.js";
import { T } from "../texts.js";

const ARMED_AFTER = 700; // ms: a click that was meant for something else must not answer

export function approvalCard(app, notice) {
  const [before, tool] = notice.question ? T.approvals.question(notice.question.source, notice.tool) : T.approvals.title(app.connection.agent, notice.tool);
  const form = notice.question ? questionForm(notice) : null;
  const answer = async (decision, scope) => {
    if (decision === "allow" && form && !form.element.reportValidity()) return;
    buttons.forEach((button) => (button.disabled = true));
    try {
      await app.state.answerApproval(notice.id, decision, scope, decision === "allow" ? form?.values() : undefined);
    } catch (error) {
      app.notify(T.failed(error.message), true);
      buttons.forEach((button) => (button.disabled = false));
    }
  };
  const buttons = [
    h("button", { class: "primary", type: "button", disabled: true, onclick: () => answer("allow", "once") }, icon("check"), form ? T.approvals.send : T.approvals.allow),
    form ? null : h("button", { class: "secondary", type: "button", disabled: true, title: T.approvals.alwaysHint, onclick: () => answer("allow", "always") }, T.approvals.always),
    h("button", { class: "secondary danger", type: "button", disabled: true, onclick: () => answer("deny", "once") }, icon("cross"), T.approvals.deny),
  ].filter(Boolean);
  setTimeout(() => buttons.forEach((button) => (button.disabled = false)), ARMED_AFTER);
  const heading = h("h2", { id: `approval-${notice.id}` }, before, h("code", {}, ...visible(tool)));
  return h(
    "section",
    { class: "approval", "aria-labelledby": heading.id },
    h("header", {}, icon("approvals"), heading, h("span", { class: "id mono" }, notice.id)),
    form?.element,
    callDetails(notice.tool, notice.arguments),
    h("p", { class: "hint" }, ...visible(notice.why), " · ", T.approvals.until(fromNow(notice.expires)), notice.channel ? [" · ", name(`${notice.channel.type}:${notice.channel.userId ?? notice.channel.channelId}`), ` (${notice.who})`] : null),
    h("div", { class: "buttons" }, buttons, notice.taskId ? h("a", { class: "link", href: `#/tasks/${encodeURIComponent(notice.taskId)}` }, T.approvals.task) : null),
  );
}

/** The form of a question that a tool has asked while it ran: its element, and the values that were filled in. */
function questionForm({ id, question }) {
  const inputs = (question.fields ?? []).map((field) => {
    const key = `${id}-${field.name}`;
    const options = (field.choices ?? []).map((choice) => h("option", { value: choice.value }, choice.title || choice.value));
    let input;
    if (field.kind === "boolean") input = h("input", { id: key, type: "checkbox", checked: field.default === "true" || field.default === "yes" });
    else if (field.kind === "choice" || field.kind === "choices") input = h("select", { id: key, multiple: field.kind === "choices", required: field.isRequired }, field.kind === "choice" && !field.isRequired ? h("option", { value: "" }, "–") : null, options);
    else {
      const isNumber = field.kind === "number" || field.kind === "integer";
      const bounds = isNumber ? { type: "number", step: field.kind === "integer" ? "1" : "any", min: field.least, max: field.most } : { type: "text", minlength: field.least, maxlength: field.most };
      input = h("input", { id: key, ...bounds, required: field.isRequired, value: field.default ?? "" });
    }
    return { field, input, label: h("label", { for: key }, ...visible(field.description || field.name)) };
  });
  const values = () => {
    const filled = {};
    for (const { field, input } of inputs) {
      if (field.kind === "boolean") filled[field.name] = input.checked;
      else if (field.kind === "choices") filled[field.name] = [...input.selectedOptions].map((option) => option.value);
      else if (input.value !== "") filled[field.name] = field.kind === "number" || field.kind === "integer" ? Number(input.value) : input.value;
    }
    return filled;
  };
  const isWeb = /^https?:\/\//.test(question.url ?? "");
  const element = h(
    "form",
    { class: "question-form", onsubmit: (event) => event.preventDefault() },
    h("p", { class: "question", dir: "auto" }, ...visible(question.text)),
    isWeb ? h("p", {}, h("a", { href: question.url, target: "_blank", rel: "noopener noreferrer" }, ...visible(question.url))) : null,
    inputs.map(({ input, label }) => h("div", {}, label, input)),
  );
  return { element, values };
}

/** An approval that was answered, on one line. */
export function answeredRow(notice) {
  return h("li", { class: "row" }, h("span", { class: `mark ${notice.state}` }, icon(notice.state === "allowed" ? "check" : "cross")), h("span", {}, T.approvals.states[notice.state]), h("code", {}, ...visible(notice.tool)), h("span", { class: "hint" }, notice.by ? T.approvals.by(notice.by) : ""), h("time", { class: "hint" }, clockTime(Date.now())));
}

/** The arguments of a call, each in full. */
export function callDetails(tool, values) {
  const entries = Object.entries(values ?? {});
  if (entries.length === 1 && (entries[0][0] === "command" || entries[0][0] === "code")) {
    return h("pre", { class: "call", tabindex: "0" }, h("code", {}, ...visible(entries[0][1])));
  }
  return h(
    "dl",
    { class: "call" },
    entries.map(([key, value]) => [h("dt", {}, ...visible(key)), h("dd", {}, h("pre", { tabindex: "0" }, ...visible(typeof value === "string" ? value : JSON.stringify(value, null, 2))))]),
  );
}
