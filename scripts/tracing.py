"""Two walks through the running program, recorded with `sys.setprofile`: how many files does a reader have to open?

A real daemon runs in a process of its own, with a model provider on loopback and a WebSocket client. Within the daemon each
call of a Python function is recorded with its time and the Trio task that makes it. A coroutine that is resumed after waiting
is not called again, so it is not recorded again. The walk of a message is all that happens between two moments seen from
outside: the client sends the frame, and the provider receives the request (or the client receives the reply). The walk of a task
event begins when a tool's command ends and ends when the Main Agent asks its model about the notification.

A walk is printed task by task, in the order in which they make their first call, since that is how code is read: one actor at a
time. A task is named by the address of its actor. A task that an actor has opened beside its own also has the name of the
function that it runs. Threads are recorded from Python 3.12 on, each by itself.

A walk has the files that take part in it, and two counts of file changes, which is how often a call leads from one file of
`pegasus` to another one. Returns are not counted.

- *file changes* are counted within each task, and the beginning of each task counts as one.
- *interleaved* counts the same calls in order of time. Tasks take turns in the event loop, so a frame that is written to a client
  in the middle of a thought counts twice: on the way to the frame, and on the way back to the thought.

Everything that runs meanwhile in the event loop is counted, so the figures vary by a few from run to run, the interleaved ones
most.
"""

from __future__ import annotations

import argparse
import dis
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import groupby
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import attrs
import trio
from trio.lowlevel import Task, current_task
from trio_websocket import open_websocket_url

ROOT = Path(__file__).resolve().parents[1]
TOKEN = "token-of-the-trace"
LATENCY = 0.3
"""Seconds that the provider thinks: what is still done for the call before is then over when the next walk begins."""
SETTLE = 1.0
"""Seconds between two walks."""
REFLECTED: Final = 7.0
"""Seconds after the result of a task at which its reflection is over. That of the first task is no part of the walks."""


# ------------------------------------------------------------------ inside the daemon


@cache
def _start_of(code: CodeType) -> int:
    """Return the offset of the instruction at which a call of this function begins; beyond it, a coroutine is being resumed."""
    return next(op.offset for op in dis.get_instructions(code) if op.opname == "RESUME" and op.arg == 0)


def _current_task() -> Task | str:
    """Return the task that runs; in a thread, its name. Trio names a worker thread by its function and the task that waits for it."""
    try:
        return current_task()
    except RuntimeError:
        return threading.current_thread().name


def _describe_task(task: Task | str) -> str:
    """Return the address of the task's actor, and the function of a task that the actor has opened beside its own.

    The own task of an actor has its address as its name, and an address contains a slash.
    """
    if isinstance(task, str) or "/" in task.name:
        return str(getattr(task, "name", task))
    function = task.name.removeprefix("pegasus.")
    above: Task | None = task
    while above is not None and "/" not in above.name:
        above = above.parent_nursery.parent_task if above.parent_nursery else None
    return f"{above.name}: {function}" if above else function


def run_recorded(target: str, arguments: Sequence[str]) -> None:
    """Run `python -m pegasus ARGUMENTS`, and write each call to `target`: its time, file, function, and the number of its task.

    The names of the tasks are written beside them, by number.

    SIGUSR1 starts recording, and a second SIGUSR1 writes the file. Times are those of the monotonic clock, in seconds.
    """
    calls: list[tuple[float, CodeType, Task | str]] = []
    clock = time.monotonic

    def record(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_lasti <= _start_of(frame.f_code):
            calls.append((clock(), frame.f_code, _current_task()))

    def toggle(*_: object) -> None:
        if sys.getprofile() is None:
            calls.clear()
            threading.setprofile_all_threads(record) if sys.version_info >= (3, 12) else sys.setprofile(record)
            return
        sys.setprofile(None)
        numbers = {task: number for number, task in enumerate(dict.fromkeys(task for *_, task in calls))}
        recorded = {
            "tasks": [_describe_task(task) for task in numbers],
            "calls": [(at, code.co_filename, code.co_qualname, numbers[task]) for at, code, task in calls],
        }
        Path(f"{target}.part").write_text(json.dumps(recorded))
        os.replace(f"{target}.part", target)

    signal.signal(signal.SIGUSR1, toggle)
    from pegasus.__main__ import main

    sys.argv = ["pegasus", *arguments]
    sys.exit(main())


# ------------------------------------------------------------------ the provider


@attrs.define
class Provider:
    """A chat completions endpoint that answers by fixed rules.

    ended: when the tool's last command ended, as it printed it itself (ns since the epoch; walls let it write nowhere else).
    asked: (time, last message) of each request, in order.
    """

    ended: int = 0
    asked: list[tuple[float, str]] = attrs.field(factory=list)

    def answer(self, body: dict[str, Any]) -> tuple[str, dict[str, Any] | None]:
        """Return the text and the tool call of the next answer to this request."""
        messages = body["messages"]
        tools = {tool["function"]["name"] for tool in body.get("tools", ())}
        last = messages[-1]
        text = last["content"] if isinstance(last["content"], str) else json.dumps(last["content"])
        if "spawn_subagent" not in tools:
            if last["role"] != "tool":
                return "", _call("shell_exec", command="date +%s%N")
            if printed := re.search(r"\d{19}", text):
                self.ended = int(printed[0])
            return "done", None
        found = re.findall(r"\[channel: (\S+) \| id: (\S+?)(?: \||\])", text)
        if "work" in text and "[Task" not in text:
            return "", _call("spawn_subagent", description="work", input="work")
        return ("", _call("reply", text="answer", channelId=found[-1][1])) if found else ("", None)


def _call(name: str, **arguments: str) -> dict[str, Any]:
    return {"index": 0, "id": "c1", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


@contextmanager
def serve(provider: Provider) -> Iterator[str]:
    """Serve the provider on loopback, and give its base URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            arrived = time.monotonic()
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            provider.asked.append((arrived, str(body["messages"][-1]["content"])))
            text, call = provider.answer(body)
            time.sleep(LATENCY)
            delta: dict[str, Any] = {"role": "assistant", "content": text, **({"tool_calls": [call]} if call else {})}
            reason = "tool_calls" if call else "stop"
            chunks = [
                {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
                {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
            ]
            events = [
                f"data: {json.dumps({'id': 'x', 'object': 'chat.completion.chunk', **chunk})}\n\n" for chunk in chunks
            ]
            data = "".join([*events, "data: [DONE]\n\n"]).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()


# ------------------------------------------------------------------ the daemon and its client


@attrs.frozen
class Call:
    """One call of a function."""

    at: float
    """Seconds of the monotonic clock."""
    file: str
    function: str
    task: int
    """Number of the task that made it, within a recording."""
    task_name: str


@attrs.frozen
class Daemon:
    """A daemon under the recorder. calls: the file that it writes its calls to."""

    process: subprocess.Popen[str]
    url: str
    calls: Path

    def start_recording(self) -> None:
        """Let the traced process record its calls from now on."""
        self.process.send_signal(signal.SIGUSR1)

    def stop_recording(self) -> list[Call]:
        """End the recording, and return its calls."""
        self.calls.unlink(missing_ok=True)
        self.process.send_signal(signal.SIGUSR1)
        while not self.calls.exists():
            time.sleep(0.05)
        recorded = json.loads(self.calls.read_text())
        return [
            Call(at, file, function, task, recorded["tasks"][task]) for at, file, function, task in recorded["calls"]
        ]


@contextmanager
def run_daemon(folder: Path, base_url: str) -> Iterator[Daemon]:
    """Run a daemon with a home of its own, until the end of the block."""
    home = folder / "home"
    home.mkdir()
    (home / "token").write_text(TOKEN + "\n")
    (home / "token").chmod(0o600)
    settings = f"""
        [gateway]
        port = 0
        [http]
        port = 0
        [models]
        default = "trace/model"
        context_window = 128000
        [providers.trace]
        type = "openai"
        api_key = "none"
        base_url = "{base_url}"
        [log]
        level = "error"
    """
    (home / "pegasus.toml").write_text("\n".join(line.strip() for line in settings.splitlines()))
    (home / "pegasus.toml").chmod(0o600)
    calls = folder / "calls.json"
    command = [sys.executable, __file__, "--record", str(calls), "--", "--home", str(home), "run", "--no-cli"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    try:
        assert process.stdout is not None
        ready = process.stdout.readline()
        url = re.search(r"ws=(\S+)", ready)
        if url is None:
            raise SystemExit(f"the daemon did not start: {ready!r}")
        yield Daemon(process, url[1], calls)
    finally:
        process.terminate()
        process.wait()


async def send_message(url: str, text: str) -> tuple[float, float]:
    """Send a message and wait for the first reply; return when each of the two passed the socket."""
    channel = {"type": "web", "channelId": "trace"}
    async with open_websocket_url(url, subprotocols=["pegasus.v1"]) as socket:
        await socket.send_message(json.dumps({"type": "hello", "token": TOKEN, "channel": channel, "lastSeq": 10**6}))
        while json.loads(await socket.get_message())["type"] != "welcome":
            pass
        await trio.sleep(SETTLE)
        sent = time.monotonic()
        await socket.send_message(json.dumps({"type": "message", "id": f"m-{sent}", "text": text}))
        while True:
            frame = json.loads(await socket.get_message())
            if frame["type"] == "reply":
                replied = time.monotonic()
                await socket.send_message(json.dumps({"type": "ack", "seq": frame["seq"]}))
                await trio.sleep(SETTLE)
                return sent, replied


# ------------------------------------------------------------------ walks


def _count_changes(calls: Sequence[Call]) -> int:
    """Return how many calls lead from one file to another."""
    return sum(1 for _ in groupby(calls, key=lambda call: call.file)) - 1


@attrs.frozen
class Walk:
    """Calls between two moments, in order; only those in `pegasus`, with files relative to it."""

    name: str
    calls: tuple[Call, ...]

    @property
    def tasks(self) -> dict[int, list[Call]]:
        """The calls of each task, in order of the tasks' first calls."""
        tasks: dict[int, list[Call]] = {}
        for call in self.calls:
            tasks.setdefault(call.task, []).append(call)
        return tasks

    @property
    def figures(self) -> str:
        """The counts that describe it, in words."""
        tasks = self.tasks.values()
        files = {call.file for call in self.calls}
        functions = {(call.file, call.function) for call in self.calls}
        changes = sum(1 + _count_changes(calls) for calls in tasks)
        return (
            f"{len(files)} files, {changes} file changes in {len(tasks)} tasks"
            f" ({_count_changes(self.calls)} interleaved), {len(functions)} functions"
        )

    def print(self) -> None:
        """Print the walk task by task, and each of them file by file."""
        print(f"\n== {self.name}: {self.figures}")
        for calls in self.tasks.values():
            print(f"\n  {calls[0].task_name} (file changes: {1 + _count_changes(calls)})\n")
            for file, of_file in groupby(calls, key=lambda call: call.file):
                names = ", ".join(name for name, _ in groupby(call.function for call in of_file))
                print(f"    {file:45} {names}")


def make_walk(name: str, calls: Sequence[Call], begin: float, end: float) -> Walk:
    """Select the calls of the package between two moments."""
    package = ROOT / "pegasus"
    selected = [
        attrs.evolve(call, file=str(Path(call.file).relative_to(package)))
        for call in calls
        if begin <= call.at <= end and call.file.startswith(f"{package}/") and not call.function.startswith("<")
    ]
    return Walk(name, tuple(selected))


def record_walks(folder: Path) -> list[Walk]:
    """Run the program once and record both walks. The first message and the first task are not recorded: they import."""
    provider = Provider()
    with serve(provider) as base_url, run_daemon(folder, base_url) as daemon:
        send: Callable[[str], tuple[float, float]] = lambda text: trio.run(send_message, daemon.url, text)  # noqa: E731
        send("hello")
        send("work, please")
        time.sleep(REFLECTED)
        daemon.start_recording()
        before = len(provider.asked)
        sent, replied = send("hello again")
        asked = provider.asked[before][0]
        calls = daemon.stop_recording()
        walks = [
            make_walk("a message, from its frame to the model request", calls, sent, asked),
            make_walk("a message, from its frame to the reply's frame", calls, sent, replied),
        ]
        daemon.start_recording()
        send("work again, please")
        notified = max(at for at, text in provider.asked if "[Task" in text)
        calls = daemon.stop_recording()
        ended = provider.ended / 1e9 - (time.time() - time.monotonic())
        return [*walks, make_walk("a task event, from the tool's result to the notification", calls, ended, notified)]


def main() -> None:
    """Parse the arguments, and print the walks or run the daemon under the recorder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figures", action="store_true", help="print only the figures of each walk")
    parser.add_argument("--record", metavar="FILE", help=argparse.SUPPRESS)
    parser.add_argument("arguments", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.record:
        run_recorded(options.record, options.arguments)
    with tempfile.TemporaryDirectory() as folder:
        walks = record_walks(Path(folder))
    for walk in walks:
        if options.figures:
            print(f"{walk.name}: {walk.figures}")
        else:
            walk.print()


if __name__ == "__main__":
    main()
