"""One trial: clients talk, faults come one upon the other, and at the end everything that was promised must hold."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import trio

from tests.blackbox.support import connect
from tests.faults.checker import Conversation, Stored, find_anomalies
from tests.faults.house import TOKEN, House, Node
from tests.faults.injecting import Fault, Moment
from tests.faults.speaker import GONE, Speaker
from tests.faults.stored import read_tables

AT_ONCE = 2
"""Faults that may last at the same time."""
CALM = 60.0
"""Seconds after the last fault within which everything must be answered."""
PATIENCE = 20.0
"""Seconds after which a call counts as lost."""
SETTLING = 1.0
"""Seconds after the last reply in which its item is done, which nobody is told."""


@attrs.define
class Report:
    """What came of a trial.

    faults: how often each was made. messages, replies: of all clients. exits: nodes that ended without being told to, which their
    supervisor starts again.
    """

    faults: Counter[str] = attrs.field(factory=Counter)
    messages: int = 0
    replies: int = 0
    seconds: float = 0.0
    exits: list[str] = attrs.field(factory=list)
    anomalies: list[str] = attrs.field(factory=list)
    conversations: list[Conversation] = attrs.field(factory=list)
    stored: Stored | None = None


async def run_trial(
    house: House,
    faults: Mapping[str, Fault],
    count: int,
    choices: random.Random,
    chats: int = 6,
) -> Report:
    """Make so many faults while that many chats are at work, and check what is stored when all clients are at rest."""
    began, report = trio.current_time(), Report()
    names = [f"chat{choices.randrange(10**9)}" for _ in range(chats)]
    speakers = [Speaker(name, house.urls, TOKEN, random.Random(choices.random())) for name in names]
    async with trio.open_nursery() as nursery:
        for node in house.nodes:
            nursery.start_soon(_supervise, node, report)
        async with trio.open_nursery() as talking:
            for speaker in speakers:
                talking.start_soon(speaker.talk)
            await _schedule(house, speakers, count, choices)
            await _inject(house, faults, count, choices, report)
            for speaker in speakers:
                speaker.stop()
            if not await _is_quiet(speakers):
                talking.cancel_scope.cancel()
        await trio.sleep(SETTLING)
        report.anomalies += [
            f"{speaker.seen.address}: waits in vain; its last error: {speaker.errors[-1:]}"
            for speaker in speakers
            if not speaker.is_over
        ]
        report.stored = await trio.to_thread.run_sync(read_tables, house.database.url(user="agent"))
        report.conversations = [speaker.seen for speaker in speakers]
        report.anomalies += find_anomalies(report.conversations, report.stored)
        nursery.cancel_scope.cancel()
    report.messages = sum(len(speaker.seen.accepted) for speaker in speakers)
    report.replies = sum(len(speaker.seen.heard) for speaker in speakers)
    report.seconds = trio.current_time() - began
    return report


async def _schedule(house: House, speakers: Sequence[Speaker], count: int, choices: random.Random) -> None:
    """Add a job for each conversation, which is due while the faults are made."""
    for speaker in speakers:
        job = {"prompt": f"job {speaker.name}", "channel": speaker.seen.address, "missed": "once"}
        seconds = house.ahead + 1 + choices.random() * count
        while not await _is_added(choices.choice(house.urls()), job, seconds):  # noqa: ASYNC110
            await trio.sleep(0.2)  # a node may still recover from the faults before
        speaker.seen.jobs.append(speaker.name)


async def _is_added(url: str, job: Mapping[str, Any], seconds: float) -> bool:
    """Add the job, due in so many seconds, unless it is there: nobody knows what became of a call whose connection broke."""
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))
    is_added = False
    try:
        with trio.fail_after(PATIENCE):
            async with connect(url) as peer:
                await peer.hello(TOKEN, "web", "jobs", callsOnly=True)
                if job["prompt"] not in {each["prompt"] for each in (await peer.call("cron.list"))["jobs"]}:
                    await peer.call("cron.add", **job, schedule={"at": at})
                is_added = True
    except* (*GONE, AssertionError):
        pass
    return is_added


async def _is_quiet(speakers: Sequence[Speaker]) -> bool:
    """Wait until everything is answered; False if that takes too long."""
    with trio.move_on_after(CALM):
        for speaker in speakers:
            await speaker.over.wait()
        return True
    return False


async def _supervise(node: Node, report: Report) -> None:
    """Start the node again when it has ended by itself."""
    while True:
        await trio.sleep(0.2)
        if not node.is_busy and not node.daemon.alive:
            report.exits.append(
                f"exit code {node.daemon.process and node.daemon.process.poll()}: {node.daemon.stderr[-500:]}"
            )
            node.is_busy = True
            await node.start()
            node.is_busy = False


async def _inject(
    house: House, faults: Mapping[str, Fault], count: int, choices: random.Random, report: Report
) -> None:
    """Make faults at random moments, each of a node that is free: all kinds once, then all once more, in another order."""
    async with trio.open_nursery() as nursery:
        names = [name for _ in range(0, count, len(faults)) for name in choices.sample(sorted(faults), len(faults))]
        for name in names[:count]:
            await trio.sleep(choices.uniform(0.05, 0.6))
            while not (free := [node for node in house.nodes if not node.is_busy]) or _busy(house) >= AT_ONCE:  # noqa: ASYNC110
                await trio.sleep(0.02)  # nodes may be taken by their supervisor, too
            node = choices.choice(free)
            report.faults[name] += 1
            node.is_busy = True
            nursery.start_soon(_make, faults[name], Moment(house, node, choices))


def _busy(house: House) -> int:
    return sum(node.is_busy for node in house.nodes)


async def _make(fault: Fault, at: Moment) -> None:
    try:
        await fault(at)
    finally:
        at.node.is_busy = False
