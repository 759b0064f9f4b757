// Scheduled jobs: when each runs next, and pausing, running, removing and making them.

import { fill, h, keepList, name, visible } from "../dom.js";
import { fromNow, fullTime, roundSpan } from "../format.js";
import { icon } from "../icons.js";
import { T } from "../texts.js";
import { sureButton } from "./tasks.js";

export function open(app) {
  const rows = h("div", { class: "stack" });
  const none = h("div", { class: "empty", hidden: true }, icon("clock"), h("h2", {}, T.schedule.none), h("p", {}, T.schedule.noneHint));
  const place = h("div");
  const create = h("button", { class: "secondary", type: "button", onclick: () => showForm() }, icon("plus"), T.schedule.create);
  const element = h("div", { class: "page" }, h("header", { class: "page-head" }, h("h1", {}, T.pages.schedule), create), place, rows, none);

  async function load() {
    if (document.visibilityState !== "visible" || rows.querySelector("[data-sure]")) return;
    try {
      const { jobs } = await app.call("cron.list");
      jobs.sort((one, other) => (one.next ?? Infinity) - (other.next ?? Infinity));
      keepList(rows, jobs, (job) => JSON.stringify(job), card);
      none.hidden = jobs.length > 0 || place.childElementCount > 0;
      for (const time of rows.querySelectorAll("time[data-at]")) time.textContent = fromNow(Number(time.dataset.at));
    } catch (error) {
      app.notLoaded(error);
    }
  }

  async function act(method, params) {
    try {
      await app.call(`cron.${method}`, params);
      load();
      return "";
    } catch (error) {
      app.failed(error);
      return error.message;
    }
  }

  function card(job) {
    const { id } = job;
    const isOn = job.enabled !== false;
    const next = job.next ? [T.schedule.next, h("time", { "data-at": job.next, title: fullTime(job.next) }, fromNow(job.next))] : [job.over ? T.schedule.over : isOn ? T.schedule.running : T.schedule.paused];
    return h(
      "section",
      { class: "card", "data-state": job.failures ? "failed" : isOn && job.next ? "completed" : "idle" },
      h("header", { class: "page-head" }, h("span", { class: "state-dot" }), h("h2", {}, ...visible(job.name || job.prompt.split("\n")[0].slice(0, 80))), h("span", { class: "tag mono" }, when(job.schedule)), h("span", { class: "hint end" }, next)),
      job.name === job.prompt ? null : h("p", { class: "prompt", dir: "auto" }, ...visible(job.prompt)),
      h("p", { class: "hint" }, name(job.channel), ` · ${T.schedule.kinds[job.kind ?? "message"]} · ${T.schedule.runs(job.runs ?? 0)}`, job.last ? ` · ${T.schedule.last} ${fromNow(job.last)}` : "", job.failures ? h("span", { class: "problem" }, ` · ${T.schedule.failures(job.failures)}`) : ""),
      h(
        "div",
        { class: "buttons" },
        h("button", { class: "secondary", type: "button", onclick: () => act("run", { id }) }, icon("play"), T.schedule.run),
        job.over ? null : h("button", { class: "secondary", type: "button", onclick: () => act(isOn ? "pause" : "resume", { id }) }, isOn ? T.schedule.pause : T.schedule.resume),
        sureButton(T.schedule.remove, T.schedule.removeSure, () => act("remove", { id })),
      ),
    );
  }

  function showForm() {
    const field = (key, properties = {}) => h("input", { id: `job-${key}`, ...properties });
    const value = field("value", { required: true, placeholder: T.schedule.example });
    const prompt = h("textarea", { id: "job-prompt", rows: "3", required: true, dir: "auto" });
    const problem = h("p", { class: "problem", role: "alert" });
    const line = (label, input) => h("div", {}, h("label", { for: input.id }, label), input);
    const form = h("form", { class: "card" }, line(T.schedule.whenLabel, value), h("p", { class: "hint" }, T.schedule.examples), line(T.schedule.prompt, prompt), problem, h("div", { class: "buttons" }, h("button", { class: "primary", type: "submit" }, T.schedule.create), h("button", { class: "secondary", type: "button", onclick: () => (place.replaceChildren(), load()) }, T.close)));
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const schedule = { when: value.value.trim(), tz: Intl.DateTimeFormat().resolvedOptions().timeZone };
      problem.textContent = await act("add", { schedule, prompt: prompt.value.trim(), channel: "web:main" });
      if (!problem.textContent) place.replaceChildren();
    });
    fill(place, form);
    none.hidden = true;
    value.focus();
  }

  const off = app.whenOpen(load);
  const timer = setInterval(load, 3000);
  return {
    element,
    close() {
      off();
      clearInterval(timer);
    },
  };
}

function when({ cron, tz, every, at }) {
  if (cron) return tz ? `${cron} ${tz}` : cron;
  return every ? T.schedule.everySpan(roundSpan(every)) : fullTime(Date.parse(at));
}
