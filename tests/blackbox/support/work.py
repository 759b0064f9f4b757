"""Background work in the tests: a model that is the Main Agent and its tasks at once, and what one can see of tasks from outside.

The desk (`desk`) is a Main Agent without a mind of its own: it spawns what a message says, passes on what tasks have to say, and
hands answers to them. What a task thinks is a page of the book, found by the first line of its input.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import attrs
import trio

from pegasus.models.base import AssistantTurn, ToolCall, UserTurn
from pegasus.testing.provider.answers import Call, ProviderAnswer
from pegasus.testing.provider.requests import ProviderRequest
from tests.blackbox.support.daemon import Daemon
from tests.blackbox.support.files import Line, lines
from tests.blackbox.support.model import SILENCE, Book, Page, Thought, View, say
from tests.blackbox.support.peer import Frame, Peer
from tests.blackbox.support.serving import Stage
from tests.blackbox.support.waiting import POLL, until

FOUND_NOTHING = ProviderAnswer("Nothing to keep.")
NOTICE = re.compile(
    r"\[Task (?P<id>\S+) (?P<what>completed|failed|stopped|update|needs information)\]\n(?P<text>.*)", re.DOTALL
)


# ------------------------------------------------------------------ the model


@attrs.frozen(eq=False)
class TaskView(View):
    """A request of a task."""

    @property
    def job(self) -> str:
        """The first line of its input."""
        return self.request.turns[0].text.partition("\n")[0]

    @property
    def _since(self) -> Sequence[Any]:
        return self.request.turns

    @property
    def last(self) -> str:
        """The newest thing it was told: an answer, or a result."""
        turn = self.request.turns[-1]
        assert isinstance(turn, UserTurn)
        return turn.text or turn.results[-1].content

    def made(self, name: str) -> list[ToolCall]:
        """All calls of this tool so far."""
        return [c for turn in self._since if isinstance(turn, AssistantTurn) for c in turn.calls if c.name == name]


def kind_of(request: ProviderRequest) -> str:
    """Who asks: "main", "task" or "reflection"."""
    if "reply" in request.tools:
        return "main"
    return "task" if "notify" in request.tools else "reflection"


def desk(view: View) -> ProviderAnswer:
    """`do <job>` (one a line) spawns, `tell <taskId> <text>` resumes, a task's word is passed on; each of it once."""
    text = view.question.text
    if notice := NOTICE.match(text):
        return SILENCE if view.replied else say(f"{notice['what']}: {_said(notice)}")
    if text.startswith("tell "):
        _, task_id, said = text.split(" ", 2)
        told = view.done("resume_task") or any("only suspended" in result for result in view.results)
        return SILENCE if told else Thought(calls=(resume(task_id, said),))
    if text.startswith("do "):
        jobs = [line.removeprefix("do ") for line in text.splitlines()]
        left = [job for job in jobs if job not in [call.arguments["input"] for call in view.done("spawn_subagent")]]
        return Thought(calls=tuple(map(spawn, left))) if left else SILENCE
    return SILENCE if view.replied else say(f"echo: {text}")


def _said(notice: re.Match[str]) -> str:
    if notice["what"] == "needs information":
        return f"{notice['id']} {notice['text']}"
    return str(json.loads(notice["text"])["response"]) if notice["what"] == "completed" else notice["text"]


def spawn(job: str, kind: str | None = None) -> Call:
    """A spawn_subagent call whose input is the job's name."""
    return Call("spawn_subagent", {"description": job, "input": job, **({"type": kind} if kind else {})})


def resume(task_id: str, text: str) -> Call:
    return Call("resume_task", {"taskId": task_id, "input": text})


def shell(command: str, **more: Any) -> Call:
    return Call("shell_exec", {"command": command, **more})


def act(*calls: Call) -> ProviderAnswer:
    """A thought of a task that calls tools."""
    return Thought("working on it", calls)


def answer(text: str) -> ProviderAnswer:
    """A task's last thought."""
    return Thought(text)


def later(event: trio.Event, page: Page) -> Callable[[View], Awaitable[ProviderAnswer]]:
    """A page that is given when the event has come."""

    async def wait(view: View) -> ProviderAnswer:
        await event.wait()
        return page(view) if callable(page) else page

    return wait


class Office(Book):
    """jobs: what a task thinks, by the first line of its input: a page, or a list for the first, second … thought (the last stays).

    A page may be a coroutine function too (`later`).

    pages, otherwise: the Main Agent's, as in Book. thinking: the requests of tasks, as they came.
    """

    def __init__(self, jobs: Mapping[str, Any] | None = None, pages: Any = None, otherwise: Page = desk) -> None:
        super().__init__(pages, otherwise)
        self.jobs = dict(jobs or {})
        self.thinking: list[TaskView] = []

    async def __call__(self, request: ProviderRequest) -> ProviderAnswer:
        kind = kind_of(request)
        if kind == "main":
            return await super().__call__(request)
        if kind == "reflection":
            return FOUND_NOTHING
        view = TaskView(request)
        self.thinking.append(view)
        self._notify()
        await self._pass(view)
        page = self.jobs.get(view.job, FOUND_NOTHING)  # a failed test may have left work to the next one
        if isinstance(page, list | tuple):
            page = page[min(view.thoughts, len(page) - 1)]
        found = page(view) if callable(page) else page
        return found if isinstance(found, ProviderAnswer) else await found

    def hold_tasks(self, after: int = 0) -> None:
        """As hold, for the thoughts of tasks alone."""
        self.hold(after, lambda view: isinstance(view, TaskView))

    def of(self, job: str) -> list[TaskView]:
        """The requests of the task with this job."""
        return [view for view in self.thinking if view.job == job]

    async def thinking_reached(self, count: int) -> None:
        """Return when tasks have asked so many times, all in all."""
        await self._until(lambda: len(self.thinking) >= count, f"thought number {count} of tasks")

    async def thought(self, job: str, count: int = 1) -> None:
        """Return when a task has asked so many times what to do about this job."""
        await self._until(lambda: len(self.of(job)) >= count, f"thought {count} about {job!r}")


# ------------------------------------------------------------------ a daemon with tasks


class Workplace(Stage):
    """A stage whose tests leave no task at work behind."""

    async def _come_to_rest(self, book: Book) -> None:
        await super()._come_to_rest(book)
        await idle(self.daemon)

    def finish(self) -> None:
        """At the very end: nothing is pending any more. Blocking."""
        deadline = time.monotonic() + 10
        while self.daemon.alive and unfinished(self.daemon.home):
            assert time.monotonic() < deadline, f"still pending: {unfinished(self.daemon.home)}"
            time.sleep(POLL)


async def idle(daemon: Daemon) -> None:
    """Return when no task is at work or waits for a place, and no message waits."""
    async with daemon.client("control", "idle") as control:
        while await _has_work(control, ("idle", "reasoning", "acting")):  # noqa: ASYNC110  another process tells nobody
            await trio.sleep(POLL)


async def _has_work(control: Peer, states: Container[str]) -> bool:
    if any(task["state"] in states for task in (await control.call("tasks.list"))["tasks"]):
        return True
    return bool((await control.call("status"))["waiting"])


async def rest(daemon: Daemon) -> None:
    """Return when nothing is left to do: no task is pending, no message waits."""
    await idle(daemon)
    await until(lambda: unfinished(daemon.home) == [], "an empty pending.json")
    await idle(daemon)


def tasks_folder(home: Path) -> Path:
    return home / "data" / "tasks"


def unfinished(home: Path) -> list[str]:
    """The ids in pending.json."""
    path = tasks_folder(home) / "pending.json"
    return [entry["taskId"] for entry in json.loads(path.read_text())] if path.exists() else []


def logs(home: Path) -> dict[str, list[Line]]:
    """The logs of all tasks by their ids, read strictly."""
    return {path.stem: lines(path) for path in sorted(tasks_folder(home).glob("*/*.jsonl"))}


def log_of(home: Path, job: str) -> list[Line]:
    """The log of the newest task with this job; [] if there is none."""
    found = [log for log in logs(home).values() if log and log[0]["data"]["inputText"].partition("\n")[0] == job]
    return max(found, key=lambda log: log[0]["ts"], default=[])


def events(home: Path, job: str) -> list[str]:
    """What is in that log, by name."""
    return [line["event"] for line in log_of(home, job)]


def task_id(home: Path, job: str) -> str:
    return str(log_of(home, job)[0]["taskId"])


def log_path(home: Path, task_id: str) -> Path:
    """Where the log of a task lies."""
    return next(tasks_folder(home).glob(f"*/{task_id}.jsonl"))


async def under_way(home: Path, *jobs: str) -> None:
    """Return when tasks with these jobs are on disk and in pending.json. (The model may be asked a moment before.)"""
    await until(lambda: set(jobs) <= _pending_jobs(home), f"tasks that are on disk: {jobs}")


def _pending_jobs(home: Path) -> set[str]:
    pending = set(unfinished(home))
    return {log[0]["data"]["inputText"].partition("\n")[0] for id, log in logs(home).items() if log and id in pending}


async def heard(client: Peer, count: int = 1) -> list[str]:
    """The texts of the next replies, which are acknowledged."""
    frames: list[Frame] = []
    for _ in range(count):
        frames.append(await client.reply())
        await client.ack(frames[-1])
    return [frame["text"] for frame in frames]


# ------------------------------------------------------------------ effects and processes


class Effects:
    """A file that commands append lines to: how often each thing has really happened."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "effects"
        self.mark = f"PEGASUS_TEST_WORK={os.getpid()}-{id(self)}-{folder.name}"

    def shell(self, what: str, then: str = "true") -> Call:
        """A command that has the effect `what`, then does something; every process of it carries the mark."""
        name, _, value = self.mark.partition("=")
        return shell(f"echo {what} >> {self.path}; {then}", env={name: value})

    def count(self, what: str) -> int:
        return self.path.read_text().split().count(what) if self.path.exists() else 0

    async def happened(self, what: str, times: int = 1) -> None:
        await until(lambda: self.count(what) >= times, f"effect {what!r}, {times} times")

    def processes(self) -> list[int]:
        """Living processes that the commands have started."""
        return [pid for pid in _pids() if self.mark.encode() in _bytes(pid, "environ").split(b"\0") and _is_alive(pid)]


def below(pid: int) -> set[int]:
    """All living processes below this one."""
    parents = {one: _parent(one) for one in _pids()}
    found = {pid}
    while more := {one for one, parent in parents.items() if parent in found} - found:
        found |= more
    return {one for one in found - {pid} if _is_alive(one)}


class Source:
    """A page on loopback whose requests are counted, and answered once it is open."""

    def __init__(self) -> None:
        self.requests = 0
        self.url = ""
        self.open = trio.Event()

    async def _serve(self, stream: trio.SocketStream) -> None:
        await stream.receive_some(65536)
        self.requests += 1
        await self.open.wait()
        with suppress(trio.BrokenResourceError):
            await stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\nhere it is")
            await stream.aclose()


@asynccontextmanager
async def open_source() -> AsyncIterator[Source]:
    """A Source for as long as the block lasts."""
    source = Source()
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        source.url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/"
        nursery.start_soon(trio.serve_listeners, source._serve, [listener])
        yield source
        nursery.cancel_scope.cancel()


async def gone(pids: set[int]) -> None:
    await until(lambda: not any(map(_is_alive, pids)), f"the end of processes {pids}")


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _bytes(pid: int, name: str) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/{name}").read_bytes()
    return b""


def _parent(pid: int) -> int:
    words = _bytes(pid, "stat").rpartition(b")")[2].split()
    return int(words[1]) if len(words) > 1 else 0


def _is_alive(pid: int) -> bool:
    words = _bytes(pid, "stat").rpartition(b")")[2].split()
    return bool(words) and words[0] not in (b"Z", b"X")
