// The connection to the daemon: the protocol pegasus.v1 (docs/gateway.md) over /ws. It connects again by itself, sends again what was
// not accepted, and asks for what was missed.

const CHANNEL = { type: "web", channelId: "main" };
const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 10000;
const WELCOME_TIME = 10000; // the gateway needs 8 s at most
const PATIENCE = 3000;
const KEPT = "pegasus.outbox";
const LARGEST = 1_000_000; // characters of a frame: the gateway takes 1 MiB

export class Refused extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

export class Connection {
  constructor() {
    this.state = "connecting"; // connecting, open, waiting, signed-out
    this.retryAt = 0;
    this.agent = "Pegasus";
    this.listeners = new Map();
    this.calls = new Map();
    this.number = 0;
    this.lastSeq = null;
    this.seenSeq = null; // the last reply that somebody had in front of them
    this.madeBefore = 0; // the last reply that was made before this connection
    this.news = new Set(); // ids of messages that were not accepted before it
    this.lastEvent = null;
    this.pause = FIRST_PAUSE;
    this.outbox = new Map(restored());
    this.socket = null;
    this.refusal = ""; // why the last connection was refused
    addEventListener("online", () => this.retryNow());
    document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && this.cameBack());
  }

  on(name, listener) {
    if (!this.listeners.has(name)) this.listeners.set(name, new Set());
    this.listeners.get(name).add(listener);
    return () => this.listeners.get(name).delete(listener);
  }

  emit(name, value) {
    for (const listener of [...(this.listeners.get(name) ?? [])]) listener(value);
  }

  change(state) {
    this.state = state;
    this.emit("state", state);
  }

  /** Connect, or find out that somebody has to sign in first. */
  async start() {
    if (recall("pegasus.signedIn") || (await isSignedIn())) this.open();
    else this.change("signed-out");
  }

  open() {
    clearTimeout(this.timer);
    if (this.socket) return;
    if (this.state !== "waiting") this.change("connecting");
    const address = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws`;
    const socket = (this.socket = new WebSocket(address, ["pegasus.v1"]));
    socket.onopen = () => {
      const hello = { type: "hello", channel: CHANNEL };
      if (this.lastSeq !== null) {
        hello.lastSeq = this.seenSeq;
        hello.everyReply = true;
      }
      socket.send(JSON.stringify(hello));
    };
    this.timer = setTimeout(() => socket.close(), WELCOME_TIME);
    socket.onmessage = ({ data }) => this.receive(JSON.parse(data));
    socket.onclose = ({ code }) => this.closed(code);
  }

  /** Forget the connection, as after signing out. */
  close() {
    clearTimeout(this.timer);
    const socket = this.socket;
    this.socket = null;
    if (socket) {
      socket.onclose = null;
      socket.close();
    }
    this.failCalls();
  }

  receive(frame) {
    switch (frame.type) {
      case "welcome":
        clearTimeout(this.timer);
        this.pause = FIRST_PAUSE;
        this.refusal = "";
        this.agent = frame.agent;
        this.madeBefore = frame.seq;
        this.news = new Set(this.outbox.keys());
        keep("pegasus.signedIn", "1");
        this.follow();
        this.change("open");
        for (const message of this.outbox.values()) this.send(message);
        return;
      case "result":
        this.calls.get(frame.id)?.resolve(frame.result);
        this.calls.delete(frame.id);
        return;
      case "error":
        if (frame.code === "unauthorized") this.refusal = frame.message;
        if (this.calls.has(frame.id)) {
          this.calls.get(frame.id).reject(new Refused(frame.code, frame.message));
          this.calls.delete(frame.id);
        } else if (this.outbox.has(frame.id)) {
          this.emit("refused", frame);
          if (frame.code === "bad_frame" || frame.code === "too_large") this.forget(frame.id);
        }
        return;
      case "accepted":
        this.forget(frame.id);
        this.emit("accepted", frame.id);
        return;
      case "reply":
        // One that was not acknowledged comes again with a new connection.
        if (this.lastSeq !== null && frame.seq <= this.lastSeq) return;
        this.lastSeq = frame.seq;
        this.seenSeq ??= frame.seq - 1;
        this.emit("reply", frame);
        this.acknowledge();
        return;
      case "event":
        this.lastEvent = frame.n;
        this.emit("event", frame.event);
        return;
      default:
        this.emit(frame.type, frame);
    }
  }

  async closed(code) {
    this.socket = null;
    this.failCalls();
    if (code === 1009) this.dropLarge();
    if (code === 4401 || !(await isSignedIn())) {
      keep("pegasus.signedIn", "");
      this.change("signed-out");
      return;
    }
    this.retryAt = Date.now() + this.pause * (0.7 + 0.6 * Math.random());
    this.pause = Math.min(this.pause * 2, LONGEST_PAUSE);
    this.change("waiting");
    this.timer = setTimeout(() => this.open(), this.retryAt - Date.now());
  }

  retryNow() {
    if (this.state === "waiting") this.open();
  }

  failCalls() {
    for (const { reject } of this.calls.values()) reject(new Refused("offline", "the connection was lost"));
    this.calls.clear();
  }

  send(frame) {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(frame));
  }

  /** Call a method of the control plane. Rejects with Refused. */
  call(method, params = {}) {
    if (this.socket?.readyState !== WebSocket.OPEN || this.state !== "open") {
      return Promise.reject(new Refused("offline", "there is no connection"));
    }
    const id = `c${++this.number}`;
    return new Promise((resolve, reject) => {
      this.calls.set(id, { resolve, reject });
      this.send({ type: "call", id, method, params });
    });
  }

  /** Follow events: from now on, or from the last one that was seen. */
  follow() {
    const id = `e${++this.number}`;
    this.calls.set(id, { resolve: ({ n }) => (this.lastEvent ??= n), reject() {} });
    const params = this.lastEvent === null ? {} : { after: this.lastEvent };
    this.send({ type: "call", id, method: "events.subscribe", params });
  }

  /** Give up messages that the gateway has found too large: sending them again would close each new connection, too. */
  dropLarge() {
    const large = [...this.outbox.values()].filter((frame) => JSON.stringify(frame).length > LARGEST / 16);
    for (const { id } of large) {
      this.forget(id);
      this.emit("refused", { id, message: "the message is too large (gateway.max_frame_bytes)" });
    }
  }

  /** Send a message. It is kept until the daemon has it, over lost connections and reloads of the page. Returns whether it fits. */
  say(id, text, media) {
    const frame = { type: "message", id, text };
    if (media.length) frame.media = media;
    if (new Blob([JSON.stringify(frame)]).size > LARGEST) return false;
    this.outbox.set(id, frame);
    this.news.add(id);
    this.keep();
    if (this.state === "open") this.send(frame);
    return true;
  }

  again(id) {
    const frame = this.outbox.get(id);
    if (frame && this.state === "open") this.send(frame);
  }

  forget(id) {
    this.outbox.delete(id);
    this.keep();
  }

  forgetAll() {
    this.outbox.clear();
    this.keep();
  }

  keep() {
    keep(KEPT, JSON.stringify([...this.outbox].filter(([, frame]) => !frame.media)));
  }

  /** Say what was seen. A page that nobody has in front of them says nothing: then other devices are notified. */
  acknowledge() {
    if (document.visibilityState !== "visible" || this.lastSeq === null) return;
    clearTimeout(this.acking);
    this.acking = setTimeout(() => {
      this.seenSeq = this.lastSeq;
      this.send({ type: "ack", seq: this.seenSeq });
    }, 150);
  }

  cameBack() {
    this.retryNow();
    this.acknowledge();
  }
}

/** Keep a text over reloads of the page. Without storage it is kept as long as the page. */
export function keep(key, text) {
  try {
    localStorage.setItem(key, text);
  } catch {
    // storage is full or switched off
  }
}

export function recall(key) {
  try {
    return localStorage.getItem(key) ?? "";
  } catch {
    return "";
  }
}

function restored() {
  try {
    return JSON.parse(recall(KEPT) || "[]");
  } catch {
    return [];
  }
}

/** Whether the cookie counts. A daemon that cannot be reached does not make anybody sign in again. */
async function isSignedIn() {
  try {
    return (await fetch("/api/status", { headers: { accept: "application/json" }, signal: AbortSignal.timeout(PATIENCE) })).status !== 401;
  } catch {
    return true;
  }
}
