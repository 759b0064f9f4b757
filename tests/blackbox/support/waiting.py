"""Waiting for facts outside this process, always with a deadline."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import trio

T = TypeVar("T")

POLL = 0.01
"""Seconds between two looks at a file or a process: what has no event to wait for."""


async def until(look: Callable[[], T], what: str, timeout: float = 10.0) -> T:
    """The first true value that `look` gives. Fails the test after `timeout` seconds, saying `what` was missing."""
    value = look()
    with trio.move_on_after(timeout):
        while not value:
            await trio.sleep(POLL)
            value = look()
    if not value:
        raise AssertionError(f"not within {timeout:g} s: {what}")
    return value
