"""A change to the files of a home while no daemon runs: with a journal of our own, which ends with us."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar

import trio

from actors import Child, Ref, open_supervisor
from pegasus.host import Home, own_home
from pegasus.storage import FileDisk, JournalMessage, journal

T = TypeVar("T")

Clock: TypeAlias = Callable[[], int]
"""Wall clock, ms since the epoch."""


def with_journal(home: Home, change: Callable[[Ref[JournalMessage], Clock], Awaitable[T]]) -> T:
    """Do this while the home is held, so that no daemon begins. Raises HomeBusy, and what `change` raises."""
    with own_home(home):
        return trio.run(_with_journal, home, change)


async def _with_journal(home: Home, change: Callable[[Ref[JournalMessage], Clock], Awaitable[T]]) -> T:
    async def run(inbox: Any) -> None:
        await journal(inbox, FileDisk(home.data), clock=_clock)

    async with open_supervisor([Child("journal", run)]) as supervisor:
        return await change(supervisor.ref("journal"), _clock)


def _clock() -> int:
    return time.time_ns() // 1_000_000
