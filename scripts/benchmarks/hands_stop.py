"""From `/stop` to nothing left running, through a real daemon: a message starts a task, the task a command, and `/stop` ends it.

The clock runs from the moment before the message `/stop` is sent until every process that the daemon has started for the command has
ended: the command with its children, the guard, and bubblewrap. They are taken from the process table before, and awaited without
looking again and again, which would take the processor from the daemon. Afterwards the table is looked at: a process that is there
and was not before the message is waited for, too, with its time.

The floor is the limit that was promised, so a ratio above 1 breaks the promise; it is that of the slowest round.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import attrs
import trio

from benchmarks.processes import BenchError
from benchmarks.report import Result
from benchmarks.samples import median
from benchmarks.talk import Talker, talker
from benchmarks.workplace import Workplace
from pegasus.sandbox import CommandLimits, Sandbox
from pegasus.testing.provider import open_provider
from pegasus.testing.provider.answers import Call, ProviderAnswer
from pegasus.testing.provider.requests import ProviderRequest

MARK = "PEGASUS_BENCH_STOP"
PATIENCE = 20.0
"""Seconds after which a command that does not begin, or does not end, fails the run."""


@attrs.frozen
class Stopped:
    """A command to stop. processes: how many it has when it is up. limit: seconds that were promised."""

    name: str
    command: str
    processes: int
    limit: float


HOSTILE = "trap '' TERM HUP; (setsid sh -c \"trap '' TERM HUP; sleep 600; sleep 600\" &); while :; do sleep 600; done"
COMMANDS = (
    Stopped("cooperative", "sleep 600; true", 2, 0.3),
    Stopped("hostile", HOSTILE, 4, CommandLimits().grace + 0.5),
)


def measure(place: Workplace, found: Sandbox) -> Iterator[Result]:
    """found: the walls of this machine. A second daemon has none."""
    for kind in (found.kind, "none") if found.kind != "none" else ("none",):
        for stopped in COMMANDS:
            whole, answered = trio.run(_rounds, place, kind, stopped, place.rounds(50, 5))
            worst = max(whole)
            detail = {"rounds": len(whole), "worst_ms": worst * 1e3, "answered_ms": median(answered) * 1e3}
            title = f"from /stop to nothing left, {stopped.name} ({kind}): median, ratio of the worst"
            limit = stopped.limit
            yield Result(title, median(whole) * 1e3, limit * 1e3, "limit", "ms", worst / limit, 1.0, None, detail)


async def _rounds(place: Workplace, kind: str, stopped: Stopped, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds until nothing was left, and until `/stop` was answered, round by round."""
    whole: list[float] = []
    answered: list[float] = []
    async with open_provider(_Model(stopped.command), keep=1) as server:
        home = place.home(provider="openai", base_url=server.openai_url)
        with (home / "pegasus.toml").open("a") as settings:
            settings.write(f'[sandbox]\nmode = "{"off" if kind == "none" else "auto"}"\n')
            settings.write('[[policy.rules]]\ntool = "shell_exec"\ndecision = "allow"\n')
        with place.daemon(home) as daemon:
            async with talker(daemon.url) as client:
                await client.turn("warm")
                for number in range(rounds):
                    mark = f"{os.getpid()}-{number}"
                    before = below(daemon.process.pid)
                    await client.turn(f"run {mark}")
                    await _until_up(f"{MARK}={mark}".encode(), stopped.processes)
                    seconds, reply = await _stop(client, daemon.process.pid, before, f"{MARK}={mark}".encode())
                    whole.append(seconds)
                    answered.append(reply)
        if server.invalid:
            raise BenchError(f"the provider refused a request: {server.invalid[0]}")
    return whole, answered


@attrs.frozen
class _Model:
    """A model whose Main Agent gives `run MARK` to a task, which runs the command with this mark."""

    command: str

    async def __call__(self, request: ProviderRequest) -> ProviderAnswer:
        text = request.turns[0].text if "notify" in request.tools else request.last.text
        order = re.search(r"run (\S+)", text)
        if "notify" in request.tools and order:
            call = Call("shell_exec", {"command": self.command, "env": {MARK: order[1]}})
            return ProviderAnswer("at work", (call,))
        asked = re.search(r"^(run \S+|warm)$", text, re.MULTILINE)
        if "reply" not in request.tools or asked is None:
            return ProviderAnswer("")  # what became of the task is not worth a word
        calls = [Call("reply", {"channelId": "bench", "text": asked[1]})]
        if order:
            calls.append(Call("spawn_subagent", {"description": "bench", "input": asked[1]}))
        return ProviderAnswer("", tuple(calls))


async def _until_up(mark: bytes, count: int) -> None:
    """Wait until a command has all its processes."""
    with trio.move_on_after(PATIENCE):
        while len(_marked(mark)) < count:  # noqa: ASYNC110  the process table tells nobody
            await trio.sleep(0.01)
        return
    raise BenchError(f"the command has {len(_marked(mark))} processes, it should have {count}")


async def _stop(client: Talker, daemon: int, before: set[int], mark: bytes) -> tuple[float, float]:
    """Say /stop. Return the seconds until every process that was not there before has ended, and until the answer came."""
    left = below(daemon) - before
    handles = [os.pidfd_open(pid) for pid in left | _marked(mark)]
    seconds = 0.0

    async def wait() -> None:
        nonlocal seconds
        for handle in handles:
            await trio.lowlevel.wait_readable(handle)
        seconds = time.perf_counter() - begun

    try:
        with trio.move_on_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                begun = time.perf_counter()
                nursery.start_soon(wait)
                answered = await client.turn("/stop")
            while _marked(mark) or below(daemon) - before:
                await trio.sleep(0.001)
                seconds = time.perf_counter() - begun
            return seconds, answered
    finally:
        for handle in handles:
            os.close(handle)
    raise BenchError(f"/stop has left {_marked(mark) | (below(daemon) - before)}")


# ------------------------------------------------------------------ the process table


def _marked(mark: bytes) -> set[int]:
    """The living processes with this mark in their environment."""
    found = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if mark in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                    found.add(int(name))
            except OSError:
                continue
    return found


def below(pid: int) -> set[int]:
    """The processes below this one, those that have ended and were not reaped included."""
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        at = waiting.pop()
        for tasks in Path(f"/proc/{at}/task").glob("*/children"):
            try:
                children = {int(word) for word in tasks.read_text().split()} - found
            except OSError:
                continue
            found |= children
            waiting += children
    return found
