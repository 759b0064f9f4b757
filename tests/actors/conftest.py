"""Every test of this folder runs in virtual time, and within a limit of it.

Without the limit, a test of something that never happens would wait for ever on the real clock: virtual time only moves
when there is a deadline to move to.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

LIMIT = 1e7
"""Seconds of virtual time; longer than any backoff or timeout that a test waits for."""


def in_virtual_time(main: Callable[[], Any], *, clock: None, instruments: Any) -> Any:
    async def limited() -> Any:
        with trio.fail_after(LIMIT):
            return await main()

    return trio.run(limited, clock=trio.testing.MockClock(autojump_threshold=0), instruments=instruments)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents and iscoroutinefunction(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.trio(run=in_virtual_time))
