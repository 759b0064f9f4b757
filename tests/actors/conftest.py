"""Every test of this folder runs in virtual time, and within a limit of it and of CPU time.

Without the first limit, a test of something that never happens would wait for ever on the real clock: virtual time only
moves when there is a deadline to move to. The second limit ends a test in an endless loop without an await.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from inspect import iscoroutinefunction
from types import FrameType
from typing import Any

import pytest
import trio
import trio.testing

LIMIT = 1e7
"""Seconds of virtual time; longer than any backoff or timeout that a test waits for."""
CPU_LIMIT = float(os.environ.get("ACTORS_TEST_CPU_LIMIT", "300"))
"""Seconds of CPU for one test. It does not depend on the load of the machine."""


@pytest.fixture(autouse=True)
def cpu_limit() -> Iterator[None]:
    def fail(number: int, frame: FrameType | None) -> None:
        raise RuntimeError(f"the test has taken {CPU_LIMIT:g} s of CPU")

    before = signal.signal(signal.SIGPROF, fail)
    signal.setitimer(signal.ITIMER_PROF, CPU_LIMIT)
    yield
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.signal(signal.SIGPROF, before)


def in_virtual_time(main: Callable[[], Any], *, clock: None, instruments: Any) -> Any:
    async def limited() -> Any:
        with trio.fail_after(LIMIT):
            return await main()

    return trio.run(limited, clock=trio.testing.MockClock(autojump_threshold=0), instruments=instruments)


def pytest_itemcollected(item: pytest.Item) -> None:
    if iscoroutinefunction(getattr(item, "obj", None)):
        item.add_marker(pytest.mark.trio(run=in_virtual_time))
