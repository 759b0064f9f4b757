"""Waiting for facts outside this process, always with a deadline."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
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


async def until_async(
    look: Callable[[], Awaitable[bool]], what: str, timeout: float = 10.0, shown: Callable[[], object] = lambda: ""
) -> None:
    """The same for what has to be asked for. shown: returns what was found at last, for the failure."""
    with trio.move_on_after(timeout):
        while not await look():  # noqa: ASYNC110  another process tells nobody
            await trio.sleep(5 * POLL)
        return
    raise AssertionError(f"not within {timeout:g} s: {what}; {shown()}")
