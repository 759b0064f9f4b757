"""Time for simulating a program of three actors under many schedules."""

from __future__ import annotations

import time
from collections.abc import Iterator

import attrs
import trio

from actors import Child, Inbox, Ref, Reply, open_supervisor
from actors.testing import simulate
from benchmarks.report import Result
from benchmarks.workplace import Workplace

SCHEDULES = 10_000
LIMIT = 15.0
"""Seconds of CPU for so many schedules."""


@attrs.frozen
class Deposit:
    reply: Reply[int]
    amount: int


async def account(inbox: Inbox[Deposit]) -> None:
    balance = 0
    async for message in inbox:
        balance += message.amount
        message.reply.send(balance)


async def clerk(inbox: Inbox[Deposit], at: Ref[Deposit]) -> None:
    async for message in inbox:
        message.reply.send(await at.ask(Deposit, message.amount))


async def program() -> None:
    """Ask two clerks at once, who share one account."""
    async with open_supervisor([Child("account", account)]) as supervisor:
        at: Ref[Deposit] = supervisor.ref("account")
        clerks = [await supervisor.start_child(Child(name, clerk, at)) for name in ("left", "right")]
        async with trio.open_nursery() as nursery:
            for ref in clerks:
                nursery.start_soon(ref.ask, Deposit, 1)
        assert await clerks[0].ask(Deposit, 1) == 3


def measure(place: Workplace) -> Iterator[Result]:
    """Measure CPU seconds, including the repetitions by which `simulate` compares runs."""
    count = place.rounds(SCHEDULES, SCHEDULES // 10)
    simulate(program, seeds=range(10))
    began = time.process_time()
    report = simulate(program, seeds=range(count))
    seconds = time.process_time() - began
    limit = LIMIT * count / SCHEDULES
    detail = {"runs": report.runs, "steps": report.steps}
    yield Result(f"{count:,} schedules simulated", seconds, limit, "limit", "s", seconds, limit, detail=detail)
