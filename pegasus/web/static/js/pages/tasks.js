// Background tasks: the list, and one of them as a picture of its steps with all details below.

import { debounced, fill, h, keepList, name, splitPage, visible } from "../dom.js";
import { duration, fromNow, fullTime } from "../format.js";
import { icon } from "../icons.js";
import { T } from "../texts.js";
import { approvalCard, callDetails } from "./approval_card.js";
import { drawPicture, spansOf } from "./task_picture.js";

const LIVE = new Set(["idle", "reasoning", "acting", "suspended"]);

export function open(app, [id]) {
  const view = new Tasks(app);
  view.show([id]);
  return { element: view.element, show: (rest) => view.show(rest), close: () => view.close() };
}

class Tasks {
  constructor(app) {
    this.app = app;
    this.tasks = [];
    this.rows = h("ul", { class: "rows select", "aria-label": T.pages.tasks });
    this.none = h("div", { class: "empty", hidden: true }, icon("tasks"), h("h2", {}, T.tasks.none), h("p", {}, T.tasks.noneHint));
    this.day = h("input", { type: "date", "aria-label": T.tasks.onDay, onchange: () => this.load() });
    this.detail = h("section", { class: "detail" });
    this.element = splitPage(T.pages.tasks, this.day, [this.rows, this.none], this.detail);
    const reload = debounced(() => this.load(), 150);
    this.off = [
      app.whenOpen(() => {
        this.load();
        if (this.id) this.loadDetail();
      }),
      app.connection.on("event", (event) => {
        if (!event.taskId && event.type !== "gap") return;
        reload();
        if (event.taskId === this.taskId || event.type === "gap") this.takeEvent(event);
      }),
      app.state.on("approvals", () => this.drawAsking()),
    ];
    this.timer = setInterval(() => this.tick(), 1000);
    this.resized = new ResizeObserver(() => this.drawPicture());
  }

  close() {
    this.off.forEach((off) => off());
    clearInterval(this.timer);
    this.resized.disconnect();
  }

  show([id]) {
    this.id = id;
    this.taskId = null;
    this.element.classList.toggle("chosen", Boolean(id));
    this.mark();
    if (id) {
      fill(this.detail, h("p", { class: "hint" }, T.loading));
      this.loadDetail();
    } else fill(this.detail, h("div", { class: "empty" }, icon("tasks"), h("p", {}, T.tasks.choose)));
  }

  // ------------------------------------------------------------------ the list

  async load() {
    try {
      const { tasks } = await this.app.call("tasks.list", this.day.value ? { date: this.day.value } : {});
      const isLive = (task) => LIVE.has(task.state);
      this.tasks = tasks.sort((one, other) => isLive(other) - isLive(one) || other.createdAt - one.createdAt);
      keepList(this.rows, this.tasks, (task) => task.taskId, taskRow, updateRow);
      this.none.hidden = tasks.length > 0;
      this.mark();
    } catch (error) {
      this.app.notLoaded(error);
    }
  }

  mark() {
    for (const row of this.rows.children) {
      const link = row.firstElementChild;
      if (row.dataset.key === this.id || row.dataset.key === this.taskId) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  }

  // ------------------------------------------------------------------ one task

  async loadDetail() {
    const { id } = this;
    try {
      const { task, events } = await this.app.call("tasks.log", { taskId: id });
      if (this.id !== id) return;
      this.task = task;
      this.taskId = task.taskId;
      this.events = events;
      this.drawDetail();
      this.mark();
    } catch (error) {
      if (this.id === id && error.code !== "offline") fill(this.detail, backLink(), h("p", { class: "problem" }, error.message));
    }
  }

  takeEvent(event) {
    if (event.type === "TOOL_CALL_REQUESTED") {
      this.events.push(event); // not in the log of the task, but the picture shows it
      this.task.state = "acting";
      this.drawPicture();
      return;
    }
    clearTimeout(this.reloading);
    this.reloading = setTimeout(() => this.loadDetail(), 120);
  }

  drawDetail() {
    const { task } = this;
    const isKnown = this.detail.dataset.task === task.taskId;
    if (!isKnown) {
      this.detail.dataset.task = task.taskId;
      this.resized.disconnect();
      this.plot = h("div", { class: "plot" });
      this.resized.observe(this.plot);
      this.head = h("header", { class: "task-head" });
      this.asking = h("div", { class: "stack" });
      this.answering = h("div");
      this.outcome = h("div");
      this.steps = h("ol", { class: "steps" });
      fill(this.detail, backLink(), this.head, this.asking, this.answering, this.plot, this.outcome, h("h2", {}, T.tasks.steps), this.steps);
    }
    const kind = kindOf(task);
    const total = (LIVE.has(task.state) ? Date.now() : task.updatedAt) - task.createdAt;
    const facts = [`${T.tasks.number(task.number)}`, task.taskType, fullTime(task.createdAt), duration(total)];
    fill(this.head, h("div", {}, h("h2", {}, ...visible(task.description)), h("p", { class: "hint mono" }, facts.join(" · "))), h("span", { class: "state", "data-state": kind }, T.tasks.states[kind]), this.pauseButton(kind), this.cancelButton());
    this.drawAsking();
    this.drawAnswering(kind);
    this.drawPicture();
    this.drawOutcome();
    keepList(this.steps, stepsOf(this.events), (step) => step.key, (step) => stepItem(step, task.createdAt), (element, step) => step.update?.(element));
  }

  /** A button that lets the task rest, or go on; none for one that waits for somebody anyway. */
  pauseButton(kind) {
    if (!["idle", "reasoning", "acting", "pausing", "paused"].includes(kind)) return null;
    const { taskId } = this.task;
    const isPaused = kind === "paused" || kind === "pausing";
    const act = async () => {
      try {
        this.app.notify((await this.app.call(isPaused ? "tasks.continue" : "tasks.suspend", { taskId })).text);
      } catch (error) {
        this.app.failed(error);
      }
      this.loadDetail();
    };
    return h("button", { class: "secondary", type: "button", onclick: act }, isPaused ? T.tasks.continue : T.tasks.pause);
  }

  cancelButton() {
    if (!LIVE.has(this.task.state)) return null;
    const { taskId } = this.task;
    return sureButton(T.tasks.cancel, T.tasks.cancelSure, async () => {
      try {
        await this.app.call("tasks.cancel", { taskId });
      } catch (error) {
        this.app.failed(error);
      }
      this.loadDetail();
    });
  }

  drawAsking() {
    if (!this.task || !this.asking) return;
    const waiting = [...this.app.state.approvals.values()].filter((notice) => notice.taskId === this.task.taskId);
    keepList(this.asking, waiting, (notice) => notice.id, (notice) => approvalCard(this.app, notice));
  }

  /** A field for what the task waits for, or for more work after its end. */
  drawAnswering(kind) {
    const wanted = kind === "approval" || kind === "paused" || kind === "pausing" || kind === "reasoning" || kind === "acting" || kind === "idle" || kind === "stopped" ? "" : `${this.task.taskId}:${kind}`;
    if (this.answering.dataset.for === wanted) return;
    this.answering.dataset.for = wanted;
    if (!wanted) {
      this.answering.replaceChildren();
      return;
    }
    const question = this.events.findLast((event) => event.type === "NEED_MORE_INFO")?.data.question;
    const isQuestion = kind === "answer" && question;
    const field = h("textarea", { id: "answer", rows: "2", dir: "auto" });
    const { taskId } = this.task;
    const form = h(
      "form",
      { class: isQuestion ? "answer asked" : "answer" },
      isQuestion ? h("p", { class: "question", dir: "auto" }, ...visible(question)) : null,
      h("label", { for: "answer" }, kind === "answer" ? T.tasks.answerLabel : T.tasks.goOn),
      field,
      h("div", { class: "buttons" }, h("button", { class: "secondary", type: "submit" }, kind === "answer" ? T.tasks.answer : T.tasks.resume)),
    );
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      try {
        await this.app.call("tasks.resume", { taskId, input: field.value.trim() });
        field.value = "";
      } catch (error) {
        this.app.failed(error);
      }
      this.loadDetail();
    });
    const details = isQuestion || kind === "suspended" ? form : h("details", { class: "more" }, h("summary", {}, T.tasks.goOn), form);
    fill(this.answering, details);
  }

  drawPicture() {
    if (!this.plot || !this.task || !this.plot.isConnected) return;
    const width = Math.floor(this.plot.clientWidth);
    if (width) fill(this.plot, drawPicture(spansOf(this.events, this.task.state, Date.now()), width));
  }

  drawOutcome() {
    const over = this.events.findLast((event) => event.type === "TASK_COMPLETED" || event.type === "TASK_FAILED");
    const found = LIVE.has(this.task.state) ? null : (over?.data.finalResult ?? over?.data.error);
    const text = typeof found?.response === "string" ? found.response : found;
    const key = text == null ? "" : typeof text === "string" ? text : `\`\`\`json\n${JSON.stringify(text, null, 2)}\n\`\`\``;
    if (this.outcome.dataset.text === key) return;
    this.outcome.dataset.text = key;
    if (!key) {
      this.outcome.replaceChildren();
      return;
    }
    const kind = kindOf(this.task);
    const title = { failed: T.tasks.error, stopped: T.tasks.ended }[kind] ?? T.tasks.result;
    const body = h("div", { dir: "auto" });
    fill(this.outcome, h("section", { class: { failed: "result failed", stopped: "result stopped" }[kind] ?? "result" }, h("h2", {}, title), body));
    this.app.markdown.show(body, key);
  }

  tick() {
    if (this.task && (this.task.state === "acting" || this.task.state === "reasoning")) this.drawPicture();
    this.tasks.forEach((task) => {
      const row = this.rows.querySelector(`[data-key="${CSS.escape(task.taskId)}"]`);
      if (row) updateRow(row, task);
    });
  }
}

// ------------------------------------------------------------------ parts

function backLink() {
  return h("a", { class: "back", href: "#/tasks" }, icon("back"), T.tasks.all);
}

function kindOf(task) {
  if (task.state === "failed" && task.reason) return "stopped";
  if (task.state !== "suspended") return task.pausing ? "pausing" : task.state;
  return { approval: "approval", person: "paused" }[task.waitsFor] ?? (task.waitsFor ? "answer" : "suspended");
}

function taskRow(task) {
  return h("li", {}, h("a", { class: "task-row", href: `#/tasks/${encodeURIComponent(task.taskId)}` }, h("span", { class: "state-dot" }), h("span", { class: "task-name" }, name(task.description)), h("span", { class: "facts hint" })));
}

function updateRow(row, task) {
  const kind = kindOf(task);
  const link = row.firstElementChild;
  link.dataset.state = kind;
  const when = LIVE.has(task.state) ? duration(Math.floor((Date.now() - task.createdAt) / 1000) * 1000) : `${duration(task.updatedAt - task.createdAt)} · ${fromNow(task.updatedAt)}`;
  link.querySelector(".facts").textContent = `${T.tasks.number(task.number)} · ${T.tasks.states[kind]} · ${when}`;
}

/** A button that asks once more before it acts. */
export function sureButton(label, sure, act) {
  const button = h("button", { class: "secondary danger", type: "button" }, label);
  let timer = 0;
  button.addEventListener("click", () => {
    if (button.dataset.sure) {
      button.disabled = true;
      act();
      return;
    }
    button.dataset.sure = "1";
    button.textContent = `${sure}?`;
    clearTimeout(timer);
    timer = setTimeout(() => {
      delete button.dataset.sure;
      button.textContent = label;
    }, 4000);
  });
  return button;
}

/** The entries of the log that people care about, in order. */
function stepsOf(events) {
  const steps = [];
  events.forEach((event, index) => {
    const { type, ts, data } = event;
    const add = (kind, mark, title, ...body) => steps.push({ key: `${index}:${type}`, ts, kind, mark, title, body });
    switch (type) {
      case "TASK_CREATED":
        add("start", "play", T.tasks.created, h("div", { class: "quote", dir: "auto" }, ...visible(data.inputText ?? "")));
        break;
      case "REASON_DONE": {
        const { response, toolCalls = [] } = data.reasoning ?? {};
        if (response) add("thought", "thought", null, h("p", { dir: "auto" }, ...visible(response)));
        for (const [place, call] of toolCalls.entries()) {
          steps.push({ key: `${index}:${place}:${call.id}`, ts, kind: "tool", mark: "tool", title: call.name, isTool: true, call, callId: call.id, body: [] });
        }
        break;
      }
      case "TOOL_CALL_COMPLETED":
      case "TOOL_CALL_FAILED": {
        const result = data.newMessages?.[0];
        const step = steps.findLast((other) => other.isTool && !other.result && (other.callId === result?.toolCallId || (!result && other.title === data.toolName)));
        if (step) Object.assign(step, { result: result?.content ?? "", took: data.durationMs, failed: type === "TOOL_CALL_FAILED", isDone: true });
        break;
      }
      case "NEED_MORE_INFO":
        add("wait", "pause", T.tasks.asked, h("p", { dir: "auto" }, ...visible(data.question ?? "")));
        break;
      case "TASK_NOTIFY":
        add("note", "chat", T.tasks.notified, h("p", { dir: "auto" }, ...visible(typeof data.message === "string" ? data.message : JSON.stringify(data.message))));
        break;
      case "TASK_SUSPENDED":
        add("wait", "pause", T.tasks.suspended(data.suspendReason ?? ""));
        break;
      case "TASK_RESUMED":
        add("start", "play", T.tasks.resumed, data.newInput ? h("p", { dir: "auto" }, ...visible(String(data.newInput))) : null);
        break;
      case "REFLECTION_COMPLETE":
        if (data.assessment) add("thought", "thought", T.tasks.reflected, h("p", { dir: "auto" }, ...visible(String(data.assessment))));
        break;
      case "TASK_COMPLETED":
        add("done", "check", T.tasks.states.completed);
        break;
      case "TASK_FAILED":
        // Logs of earlier versions have no reason.
        if (data.reason || String(data.error).startsWith("stopped by ")) add("start", "stop", T.tasks.states.stopped, h("p", { dir: "auto" }, ...visible(String(data.error ?? ""))));
        else add("failed", "cross", T.tasks.states.failed, h("p", { dir: "auto" }, ...visible(String(data.error ?? ""))));
        break;
    }
  });
  for (const step of steps) if (step.isTool) step.update = (element) => updateTool(element, step);
  return steps;
}

function stepItem(step, begin) {
  const time = h("time", { class: "hint mono", title: fullTime(step.ts) }, `+${duration(step.ts - begin)}`);
  if (!step.isTool) return h("li", { class: `step ${step.kind}` }, h("span", { class: "mark" }, icon(step.mark)), h("div", { class: "step-body" }, step.title ? h("h3", {}, step.title) : null, step.body), time);
  const facts = h("span", { class: "hint mono took" });
  const details = h("details", {}, h("summary", {}, h("code", {}, ...visible(step.title)), h("span", { class: "brief mono" }, ...visible(brief(step.call.arguments))), facts), h("h4", {}, T.tasks.arguments), callDetails(step.title, step.call.arguments));
  return h("li", { class: "step tool" }, h("span", { class: "mark" }, icon("tool")), h("div", { class: "step-body" }, details), time);
}

function updateTool(element, step) {
  if (!step.isDone || element.dataset.done) return;
  element.dataset.done = "1";
  element.classList.toggle("failed", Boolean(step.failed));
  element.querySelector(".took").textContent = duration(step.took ?? 0);
  element.querySelector("details").append(h("h4", {}, T.tasks.output), h("pre", { class: "output", tabindex: "0" }, ...visible(pretty(step.result))));
}

function brief(values) {
  const first = Object.values(values ?? {})[0];
  const text = typeof first === "string" ? first : first === undefined ? "" : JSON.stringify(first);
  return text.split("\n")[0].slice(0, 120);
}

/** A result as people read it: JSON laid out, with the text of a command as it was printed. */
function pretty(text) {
  try {
    const value = JSON.parse(text);
    if (typeof value?.stdout === "string") return [value.stdout, value.stderr].filter(Boolean).join("\n") || `(exit code ${value.exitCode})`;
    if (typeof value?.content === "string" && Object.keys(value).length < 6) return value.content;
    return typeof value === "string" ? value : JSON.stringify(value, null, 2);
  } catch {
    return text;
  }
}
