"""Every test of this folder runs in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any

import pytest
import trio
import trio.testing


def in_virtual_time(main: Callable[[], Any], *, clock: None, instruments: Any) -> Any:
    return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0), instruments=instruments)


def pytest_itemcollected(item: pytest.Item) -> None:
    if iscoroutinefunction(getattr(item, "obj", None)):
        item.add_marker(pytest.mark.trio(run=in_virtual_time))
