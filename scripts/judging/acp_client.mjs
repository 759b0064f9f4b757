// An editor made of the official SDK: drives `pegasus acp`, prints one JSON line for each case, and keeps what went over the wire.
// Arguments: the folder of the session, the file for the wire, and the command of the agent.
import { spawn } from "node:child_process";
import { appendFileSync, readFileSync, writeFileSync } from "node:fs";
import { Readable, Writable } from "node:stream";
import { PROTOCOL_VERSION, client, methods, ndJsonStream } from "@agentclientprotocol/sdk";

const [folder, wire, program, ...args] = process.argv.slice(2);
const { agent, client: editor } = methods;
const updates = [];
const terminals = new Map();
const files = new Map();
let answer = () => "once";
let asked = [];

function kept(from) {
  return new TransformStream({
    transform(chunk, controller) {
      appendFileSync(`${wire}-${part}.${from}`, chunk);
      controller.enqueue(chunk);
    },
  });
}

function start() {
  const child = spawn(program, args, { stdio: ["pipe", "pipe", "inherit"], cwd: folder });
  const out = kept("editor");
  out.readable.pipeTo(Writable.toWeb(child.stdin)).catch(() => {});
  return { child, stream: ndJsonStream(out.writable, Readable.toWeb(child.stdout).pipeThrough(kept("agent"))) };
}

const app = client({ name: "judge" })
  .onNotification(editor.session.update, ({ params }) => { updates.push(params); })
  .onRequest(editor.session.requestPermission, async ({ params }) => {
    asked.push(params);
    const option = await answer(params);
    return { outcome: option ? { outcome: "selected", optionId: option } : { outcome: "cancelled" } };
  })
  .onRequest(editor.fs.readTextFile, ({ params }) => ({ content: files.get(params.path) ?? readFileSync(params.path, "utf8") }))
  .onRequest(editor.fs.writeTextFile, ({ params }) => { files.set(params.path, params.content); writeFileSync(params.path, params.content); return {}; })
  .onRequest(editor.terminal.create, ({ params }) => {
    const child = spawn(params.command, params.args ?? [], { cwd: params.cwd, detached: true });
    const terminal = { child, output: "", status: null };
    terminal.ended = new Promise((resolve) => child.on("close", (exitCode, signal) => resolve((terminal.status = { exitCode, signal }))));
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk) => { terminal.output += chunk; });
    const terminalId = `terminal-${terminals.size}`;
    terminals.set(terminalId, terminal);
    return { terminalId };
  })
  .onRequest(editor.terminal.waitForExit, ({ params }) => terminals.get(params.terminalId).ended)
  .onRequest(editor.terminal.output, ({ params }) => {
    const { output, status } = terminals.get(params.terminalId);
    return { output, truncated: false, exitStatus: status };
  })
  .onRequest(editor.terminal.kill, ({ params }) => end(params.terminalId))
  .onRequest(editor.terminal.release, ({ params }) => end(params.terminalId));

function end(terminalId) {
  const { child, status } = terminals.get(terminalId);
  if (!status) process.kill(-child.pid, "SIGKILL");
  return {};
}

function said(sessionId, since = 0) {
  return updates.slice(since)
    .filter((each) => each.sessionId === sessionId && each.update.sessionUpdate === "agent_message_chunk")
    .map((each) => each.update.content.text).join("");
}

async function until(what, look) {
  for (let left = 300; left > 0; left -= 1) {
    if (look()) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`not within 15 s: ${what}`);
}

async function check(name, work) {
  try {
    const why = await work();
    console.log(JSON.stringify({ case: name, passed: !why, why: why || "" }));
  } catch (error) {
    console.log(JSON.stringify({ case: name, passed: false, why: `${error.message} ${JSON.stringify(error.data ?? "")}` }));
  }
}

const refused = (work, code) => work.then(() => "it was not refused", (error) => (error.code === code ? "" : `code ${error.code}: ${error.message}`));
const prompt = (ctx, sessionId, ...blocks) =>
  ctx.request(agent.session.prompt, { sessionId, prompt: blocks.map((each) => (typeof each === "string" ? { type: "text", text: each } : each)) });
const open = { cwd: folder, mcpServers: [] };
const capabilities = { fs: { readTextFile: true, writeTextFile: true }, terminal: true };
let sessionId;
let part = 0;

async function first(ctx) {
  await check("a method before initialize is refused", () => refused(ctx.request(agent.session.new, open), -32600));
  await check("initialize with a version of the future", async () => {
    const result = await ctx.request(agent.initialize, { protocolVersion: 99, clientCapabilities: capabilities });
    return result.protocolVersion === PROTOCOL_VERSION ? "" : `version ${result.protocolVersion}`;
  });
  await check("initialize", async () => {
    const result = await ctx.request(agent.initialize, { protocolVersion: PROTOCOL_VERSION, clientCapabilities: capabilities });
    return result.agentCapabilities.loadSession && result.agentInfo.name === "pegasus" ? "" : JSON.stringify(result);
  });
  await check("session/new with options and modes", async () => {
    const result = await ctx.request(agent.session.new, open);
    sessionId = result.sessionId;
    return result.configOptions.length === 2 && result.modes.availableModes.length === 2 ? "" : JSON.stringify(result);
  });
  await check("available commands", () => until("commands", () => updates.some((each) => each.update.sessionUpdate === "available_commands_update")));
  await check("a prompt of text", async () => {
    const { stopReason } = await prompt(ctx, sessionId, "hello");
    return stopReason === "end_turn" && said(sessionId).includes("stand-in") ? "" : `${stopReason}: ${said(sessionId)}`;
  });
  await check("a prompt with an image, a resource and a link", async () => {
    const image = { type: "image", mimeType: "image/png", data: "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII=" };
    const resource = { type: "resource", resource: { uri: `file://${folder}/a.py`, text: "print()", mimeType: "text/x-python" } };
    const link = { type: "resource_link", name: "b.py", uri: `file://${folder}/b.py` };
    return (await prompt(ctx, sessionId, "what is this ", image, resource, link)).stopReason === "end_turn" ? "" : "another reason";
  });
  await check("permission for a command, which runs in the editor's terminal", async () => {
    const since = updates.length;
    await prompt(ctx, sessionId, "run echo from-the-terminal");
    await until("the result", () => said(sessionId, since).split("from-the-terminal").length > 2);
    const kinds = asked[0]?.options.map((each) => each.kind) ?? [];
    return terminals.size === 1 && kinds.includes("allow_once") && kinds.includes("reject_once") ? "" : `${terminals.size} ${kinds}`;
  });
  await check("tool calls, their end, and a plan", () => until("updates", () =>
    ["tool_call", "tool_call_update", "plan"].every((kind) => updates.some((each) => each.update.sessionUpdate === kind))));
  await check("a command that is denied does not run", async () => {
    answer = () => "deny";
    const since = updates.length;
    await prompt(ctx, sessionId, "run touch nothing");
    await until("a sentence", () => /failed|not run|denied/.test(said(sessionId, since)));
    return terminals.size === 1 ? "" : "a terminal was made";
  });
  await check("cancel ends the prompt, and what runs", async () => {
    answer = () => "once";
    await prompt(ctx, sessionId, "run sleep 300");
    await until("the terminal", () => terminals.size === 2);
    const pending = prompt(ctx, sessionId, "demo");
    await ctx.notify(agent.session.cancel, { sessionId });
    const { stopReason } = await pending;
    await until("the end of the command", () => terminals.get("terminal-1").status);
    return stopReason === "cancelled" ? "" : stopReason;
  });
  await check("session/set_mode", async () => {
    await ctx.request(agent.session.setMode, { sessionId, modeId: "walls" });
    return updates.some((each) => each.update.sessionUpdate === "config_option_update") ? "" : "no update";
  });
  await check("session/set_config_option", async () => {
    const { configOptions } = await ctx.request(agent.session.setConfigOption, { sessionId, configId: "mode", value: "terminal" });
    return configOptions.find((each) => each.id === "mode").currentValue === "terminal" ? "" : JSON.stringify(configOptions);
  });
  await check("an unknown mode is refused", () => refused(ctx.request(agent.session.setMode, { sessionId, modeId: "none" }), -32602));
  await check("an unknown session is refused", () => refused(prompt(ctx, "none", "hello"), -32002));
  await check("a folder that is none is refused", () => refused(ctx.request(agent.session.new, { ...open, cwd: "/no/such" }), -32602));
  await check("an unknown method is refused", () => refused(ctx.request("session/unknown", {}), -32601));
  await check("session/list", async () => {
    const { sessions } = await ctx.request(agent.session.list, { cwd: folder });
    return sessions.length === 1 && sessions[0].sessionId === sessionId ? "" : JSON.stringify(sessions);
  });
  await check("session/close", async () => {
    await ctx.request(agent.session.close, { sessionId });
    return refused(prompt(ctx, sessionId, "hello"), -32002);
  });
}

async function second(ctx) {
  await ctx.request(agent.initialize, { protocolVersion: PROTOCOL_VERSION });
  await check("session/load says all again, in another process", async () => {
    updates.length = 0;
    await ctx.request(agent.session.load, { sessionId, ...open });
    const kinds = updates.map((each) => each.update.sessionUpdate);
    return kinds[0] === "user_message_chunk" && kinds.includes("agent_message_chunk") ? "" : kinds.join(" ");
  });
  await check("session/resume", async () => {
    await ctx.request(agent.session.resume, { sessionId, ...open });
    return (await prompt(ctx, sessionId, "hello")).stopReason === "end_turn" ? "" : "another reason";
  });
}

for (const work of [first, second]) {
  part += 1;
  const { child, stream } = start();
  await app.connectWith(stream, work);
  child.stdin.end();
  child.kill();
}
process.exit(0);
