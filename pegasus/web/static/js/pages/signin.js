// Signing in: the token is exchanged for a cookie, and is not kept.

import { h } from "../dom.js";
import { wing } from "../icons.js";
import { T } from "../texts.js";

export function open(done, refusal) {
  const field = h("input", { id: "token", type: "password", autocomplete: "current-password", required: true, spellcheck: "false", "aria-describedby": "problem" });
  const problem = h("p", { id: "problem", class: "problem", role: "alert" }, refusal);
  const button = h("button", { class: "primary", type: "submit" }, T.signIn.button);
  const form = h("form", {}, h("label", { for: "token" }, T.signIn.token), field, problem, button);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    problem.textContent = "";
    try {
      const answer = await fetch("/api/login", {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ token: field.value.trim() }),
      });
      if (answer.ok) {
        field.value = "";
        done();
        return;
      }
      problem.textContent = answer.status === 401 ? T.signIn.wrong : ((await answer.json()).error?.message ?? answer.statusText);
    } catch {
      problem.textContent = T.signIn.unreachable;
    }
    button.disabled = false;
    field.select();
  });
  const command = h("code", {}, T.signIn.command);
  // The program may have another name here, such as ./scripts/run.
  fetch("/api/login")
    .then(async (answer) => answer.ok && (command.textContent = (await answer.json()).command))
    .catch(() => {});
  const element = h(
    "main",
    { class: "sign-in" },
    h("div", { class: "sign-in-card" }, wing(), h("h1", {}, T.signIn.title), form, h("p", { class: "hint" }, T.signIn.intro), h("pre", {}, command)),
  );
  return { element, focus: field };
}
