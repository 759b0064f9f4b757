// What several pages show at once: approvals that wait, tasks that work, and how the conversation stands. Pages listen for changes.

import { debounced } from "./dom.js";

export class State {
  constructor(connection) {
    this.connection = connection;
    this.approvals = new Map();
    this.answered = [];
    this.tasks = new Map();
    this.typing = null; // since when the agent thinks, ms
    this.listeners = new Map();
    connection.on("approval", (notice) => this.takeApproval(notice));
    this.tellSeen = debounced(() => this.tellWhatIsSeen(), 200);
    document.addEventListener("visibilitychange", this.tellSeen);
    connection.on("task", (task) => this.takeTask(task));
    // Tasks of other conversations are not announced here; their events are.
    const look = debounced(() => this.lookAtTasks(), 300);
    connection.on("event", (event) => event.taskId && look());
    connection.on("typing", ({ active }) => {
      this.typing = active ? Date.now() : null;
      this.emit("typing");
    });
    connection.on("state", (state) => {
      if (state === "open") this.refresh();
      else if (this.typing) {
        this.typing = null;
        this.emit("typing");
      }
    });
  }

  on(name, listener) {
    if (!this.listeners.has(name)) this.listeners.set(name, new Set());
    this.listeners.get(name).add(listener);
    return () => this.listeners.get(name).delete(listener);
  }

  emit(name, value) {
    if (name === "approvals") this.tellSeen?.();
    for (const listener of [...(this.listeners.get(name) ?? [])]) listener(value);
  }

  /** Ask for everything that may have changed while there was no connection. */
  async refresh() {
    try {
      const { approvals } = await this.connection.call("approvals.list");
      this.approvals = new Map(approvals.map((notice) => [notice.id, notice]));
      this.emit("approvals");
    } catch {
      // asked again with the next connection
    }
    await this.lookAtTasks();
  }

  /** Say which approvals are in front of somebody, so that no device is notified of them. */
  async tellWhatIsSeen() {
    if (document.visibilityState !== "visible" || !this.approvals.size) return;
    const body = JSON.stringify({ approvals: [...this.approvals.keys()] });
    await fetch("/api/push/seen", { method: "POST", headers: { "content-type": "application/json" }, body }).catch(() => {});
  }

  async lookAtTasks() {
    try {
      this.status = await this.connection.call("status");
      this.tasks = new Map(this.status.running.map((task) => [task.taskId, { ...task, at: Date.now() }]));
      this.emit("tasks");
      this.emit("status");
    } catch {
      // asked again with the next connection
    }
  }

  takeApproval(notice) {
    if (notice.state === "open") this.approvals.set(notice.id, notice);
    else {
      this.approvals.delete(notice.id);
      this.answered = [notice, ...this.answered.filter((other) => other.id !== notice.id)].slice(0, 20);
    }
    this.emit("approvals", notice);
  }

  takeTask(task) {
    const isOver = task.state === "COMPLETED" || task.state === "FAILED";
    if (isOver) this.tasks.delete(task.taskId);
    else this.tasks.set(task.taskId, { ...task, at: Date.now() });
    this.emit("tasks", task);
  }

  /** Say yes or no. `calls`: places of the calls that a yes is for, of several; undefined: all. */
  async answerApproval(id, decision, scope, values = {}, calls = undefined) {
    const { approval } = await this.connection.call("approvals.answer", { id, decision, scope, values, calls });
    this.takeApproval(approval);
  }
}
