"""kill -9 with tasks in every state, in both modes of recovery; what really happened is counted in a file."""

from __future__ import annotations

import os
import re
from contextlib import AsyncExitStack

import attrs
import trio

from pegasus.testing.provider_answer import Call
from tests.blackbox.support import until
from tests.blackbox.support.work import (
    Effects,
    Office,
    TaskView,
    act,
    answer,
    below,
    events,
    gone,
    later,
    open_source,
    rest,
)

RESTARTED = "failed: process restarted, task cancelled"
UNKNOWN = "this call was under way when the process stopped; it may or may not have happened"
MANY = 3000
"""Files, which take a while to delete."""


@attrs.frozen
class Case:
    """A task, and what becomes of it when it is killed.

    thoughts: its pages. before, after: what its person hears, as patterns; after: under "resume", under "fail" it is the failure,
    unless the task was over. effects: what has happened, and how often.
    """

    thoughts: list
    after: str
    before: tuple[str, ...] = ()
    effects: dict[str, int] = attrs.field(factory=dict)
    over: bool = False

    def heard(self, mode):
        return (*self.before, self.after if mode == "resume" or self.over else RESTARTED)


def every_state(work, url, told, deleting, killed):
    """Cases by what their tasks are at when they are killed. Nothing that waits for `killed`, and no `sleep`, ends before."""

    def result(view):
        return answer(view.last)

    return {
        "thinking": Case([later(killed, answer("thought"))], "completed: thought"),
        "thinking about a result": Case(
            [act(work.shell("one")), later(killed, result)], 'completed: {"exitCode":0,.*', effects={"one": 1}
        ),
        "running a command": Case(
            [act(work.shell("two", "sleep 600")), result], f"completed: Error: {UNKNOWN}", effects={"two": 1}
        ),
        "looking at a page": Case([act(Call("http_get", {"url": url})), result], "completed: .*here it is.*"),
        "at the second of three": Case(
            [
                act(work.shell("first"), work.shell("second", "sleep 600"), work.shell("third")),
                lambda view: answer(" / ".join(view.results)),
            ],
            f'completed: {{"exitCode":0.* / Error: {UNKNOWN} / {{"exitCode":0.*',
            effects={"first": 1, "second": 1, "third": 1},
        ),
        "after some news": Case(
            [act(Call("notify", {"message": "half"})), later(killed, answer("whole"))],
            "completed: whole",
            before=("update: half",),
        ),
        "deleting": Case(
            [later(deleting, act(Call("delete_file", {"path": "old"}))), result], 'completed: .*"deleted":true.*'
        ),
        "done, not told": Case([later(told, answer("told"))], "completed: told", over=True),
        "next in line": Case([later(killed, answer("at last"))], "completed: at last"),
        "waiting in line": Case([answer("waited")], "completed: waited"),
    }


async def test_in_every_state(recovering, name, tmp_path):
    """One kill, ten tasks: each person gets exactly one outcome, and nothing that was done is done again."""
    work = Effects(tmp_path)
    told, deleting, killed = trio.Event(), trio.Event(), trio.Event()
    async with open_source() as source:
        cases = every_state(work, source.url, told, deleting, killed)
        book = Office({case: one.thoughts for case, one in cases.items()})
        async with recovering.play(book, name) as daemon:
            old = _many_files(daemon.home / "workspace" / "old")
            await _set_the_scene(daemon, book, cases, name, work, source)
            book.hold(only=lambda view: not isinstance(view, TaskView) and '"input":"done, not told"' in view.newest)
            told.set()
            await book.waiting()
            await book.thought("next in line")
            assert events(daemon.home, "waiting in line") == ["TASK_CREATED"]
            processes = below(daemon.pid)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.to_thread.run_sync, _kill_when_files_vanish, daemon, old)
                deleting.set()
            assert "TOOL_CALL_COMPLETED" not in events(daemon.home, "deleting")
            await gone(processes)
            assert work.processes() == []
            killed.set()
            source.open.set()
            book.release()
            await daemon.start()
            await rest(daemon)
            for case, one in cases.items():
                await _assert_heard(daemon, f"{name}-{case}", one.heard(recovering.mode))
                for effect, times in one.effects.items():
                    happened = 0 if recovering.mode == "fail" and effect == "third" else times
                    assert work.count(effect) == happened, (case, effect)
            assert source.requests == (2 if recovering.mode == "resume" else 1)
            assert old.exists() == (recovering.mode == "fail")


async def _set_the_scene(daemon, book, cases, name, work, source):
    """Every task where it is to be killed, but for the one that will kill."""
    async with AsyncExitStack() as stack:
        for case, one in cases.items():
            client = await stack.enter_async_context(daemon.client("web", f"{name}-{case}"))
            await client.say(f"do {case}")
            for expected in one.before:
                assert re.fullmatch(expected, (await client.reply())["text"])
        for case, count in {
            "thinking": 1,
            "thinking about a result": 2,
            "after some news": 2,
            "deleting": 1,
        }.items():
            await book.thought(case, count)
        for effect in ("one", "two", "first", "second"):
            await work.happened(effect)
        await until(lambda: source.requests == 1, "a request to the page")
        await until(lambda: events(daemon.home, "waiting in line"), "all tasks")


def _many_files(folder):
    folder.mkdir(parents=True)
    for n in range(MANY):
        (folder / str(n)).touch()
    return folder


def _kill_when_files_vanish(daemon, folder):
    """Looks as often as it can."""
    while daemon.alive:
        if len(os.listdir(folder)) < MANY:
            daemon.kill()


async def _assert_heard(daemon, channel, expected):
    """All that this channel has ever been told."""
    async with daemon.client("web", channel, lastSeq=0) as client:
        texts = [frame["text"] for frame in await client.replies(client.welcome["seq"])]
    assert len(texts) == len(expected), (channel, texts, expected)
    for text, pattern in zip(texts, expected, strict=True):
        assert re.fullmatch(pattern, text, re.DOTALL), (channel, text, pattern)
