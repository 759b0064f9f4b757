// One approval: exactly what will run, and the answers. Nothing of it comes from others but as visible text.

import { h, name, visible } from "../dom.js";
import { clockTime, fromNow } from "../format.js";
import { icon } from "../icons.js";
import { T } from "../texts.js";

const ARMED_AFTER = 700; // ms: a click that was meant for something else must not answer

export function approvalCard(app, notice) {
  const calls = notice.calls?.length ? notice.calls : [notice];
  const isOne = !notice.calls?.length;
  const form = notice.question ? questionForm(notice) : null;
  const [before, tool] = form ? T.approvals.question(notice.question.source, notice.tool) : isOne ? T.approvals.title(app.connection.agent, notice.tool) : [T.approvals.several(app.connection.agent, calls.length, notice.isPlan), ""];
  const boxes = calls.map((call, place) => h("input", { type: "checkbox", checked: true, id: `${notice.id}-${place}`, onchange: () => (buttons[0].disabled = !boxes.some((box) => box.checked)) }));
  const scope = reach(notice);
  const answer = async (decision) => {
    if (decision === "allow" && form && !form.element.reportValidity()) return;
    buttons.forEach((button) => (button.disabled = true));
    const chosen = boxes.flatMap((box, place) => (box.checked ? [place] : []));
    const only = decision === "allow" && chosen.length < calls.length ? chosen : undefined;
    try {
      await app.state.answerApproval(notice.id, decision, decision === "allow" ? scope.value() : "once", decision === "allow" ? form?.values() : undefined, only);
    } catch (error) {
      app.failed(error);
      buttons.forEach((button) => (button.disabled = false));
    }
  };
  const buttons = [
    h("button", { class: "primary", type: "button", disabled: true, onclick: () => answer("allow") }, icon("check"), form ? T.approvals.send : T.approvals.allow),
    h("button", { class: "secondary danger", type: "button", disabled: true, onclick: () => answer("deny") }, icon("cross"), T.approvals.deny),
  ];
  setTimeout(() => buttons.forEach((button) => (button.disabled = false)), ARMED_AFTER);
  const heading = h("h2", { id: `approval-${notice.id}` }, before, tool ? h("code", {}, ...visible(tool)) : null);
  return h(
    "section",
    { class: "approval", "aria-labelledby": heading.id },
    h("header", {}, icon("approvals"), heading, h("span", { class: "id mono" }, notice.id)),
    form?.element,
    isOne ? [callDetails(notice.tool, notice.arguments), filesOf(notice)] : h("ol", { class: "calls" }, calls.map((call, place) => h("li", {}, h("label", { for: boxes[place].id }, boxes[place], h("code", {}, ...visible(call.tool)), h("span", { class: "hint" }, ...visible(call.why))), callDetails(call.tool, call.arguments), filesOf(call)))),
    (notice.notes ?? []).map((note) => h("p", { class: "warning" }, T.approvals.lookTwice, ...visible(note))),
    notice.isPlan ? h("p", { class: "hint" }, T.approvals.read(notice.read ?? [])) : null,
    h("p", { class: "hint" }, ...visible(notice.why), " · ", T.approvals.until(fromNow(notice.expires)), notice.channel ? [" · ", name(`${notice.channel.type}:${notice.channel.userId ?? notice.channel.channelId}`), ` (${notice.who})`] : null),
    notice.words ? h("figure", { class: "words" }, h("figcaption", { class: "hint" }, T.approvals.words), h("blockquote", {}, ...visible(notice.words))) : null,
    h("div", { class: "buttons" }, buttons[0], scope.element, buttons[1], notice.taskId ? h("a", { class: "link", href: `#/tasks/${encodeURIComponent(notice.taskId)}` }, T.approvals.task) : null),
    scope.warning,
  );
}

/** The choice of how far a yes reaches, which warns where it is for any arguments. */
function reach(notice) {
  const scopes = notice.question ? ["once"] : notice.scopes ?? ["once"];
  if (scopes.length < 2) return { element: null, warning: null, value: () => "once" };
  const warning = h("p", { class: "warning", hidden: true, role: "status" }, T.approvals.anyArguments);
  const element = h(
    "select",
    { "aria-label": T.approvals.reach, onchange: () => (warning.hidden = ["once", "arguments"].includes(element.value)) },
    scopes.map((scope) => h("option", { value: scope }, T.approvals.scopes[scope] ?? scope)),
  );
  return { element, warning, value: () => element.value };
}

/** The files that a command names, with the beginning of the hash of what is in them: the answer is bound to it. */
function filesOf(call) {
  const files = Object.entries(call.files ?? {});
  return files.length ? h("p", { class: "hint" }, T.approvals.files, files.map(([path, hash], n) => [n ? ", " : "", h("code", {}, ...visible(path)), ` (${String(hash).slice(0, 12)})`])) : null;
}

/** A row of what was allowed for later calls. `revoke` is called with its id. */
export function grantRow(grant, revoke) {
  const what = grant.tool || T.approvals.allOf(grant.server);
  return h(
    "li",
    { class: "row" },
    h("code", {}, ...visible(what)),
    h("span", { class: "hint" }, T.approvals.scopes[grant.scope] ?? grant.scope, grant.shown ? [": ", ...visible(grant.shown)] : null, grant.until ? ` · ${T.approvals.ends(fromNow(grant.until))}` : ""),
    h("span", { class: "hint" }, T.approvals.by(grant.by)),
    h("button", { class: "secondary", type: "button", onclick: () => revoke(grant.id), "aria-label": `${T.approvals.revoke} ${what}` }, T.approvals.revoke),
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

/** The arguments of a call, each in full. A text that replaces another one stands below it, line by line. */
export function callDetails(tool, values) {
  const { old_string: before, new_string: after, ...others } = values ?? {};
  const isChange = typeof before === "string" && typeof after === "string";
  const entries = Object.entries(isChange ? others : values ?? {});
  if (entries.length === 1 && (entries[0][0] === "command" || entries[0][0] === "code")) {
    return h("pre", { class: "call", tabindex: "0" }, h("code", {}, ...visible(entries[0][1])));
  }
  const list = h(
    "dl",
    { class: "call" },
    entries.map(([key, value]) => [h("dt", {}, ...visible(key)), h("dd", {}, h("pre", { tabindex: "0" }, ...visible(typeof value === "string" ? value : JSON.stringify(value, null, 2))))]),
  );
  return isChange ? h("div", { class: "change" }, list, difference(before, after)) : list;
}

/** What is removed and added; lines that are the same at the beginning and at the end stand around it. */
function difference(before, after) {
  const old = before.split("\n");
  const fresh = after.split("\n");
  const most = Math.min(old.length, fresh.length);
  let head = 0;
  while (head < most && old[head] === fresh[head]) head++;
  let tail = 0;
  while (tail < most - head && old.at(-1 - tail) === fresh.at(-1 - tail)) tail++;
  const lines = (texts, mark, kind) => texts.map((text) => h("span", { class: kind }, `${mark} `, ...visible(text)));
  return h("pre", { class: "diff", tabindex: "0" }, lines(old.slice(0, head), " "), lines(old.slice(head, old.length - tail), "−", "removed"), lines(fresh.slice(head, fresh.length - tail), "+", "added"), lines(old.slice(old.length - tail), " "));
}
