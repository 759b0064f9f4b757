"""The screen's thread, seen from Trio: it lives exactly as long as the block that opened it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol

import trio

from pegasus.terminal.restore import restore_terminal
from pegasus.terminal.status import Status

CLOSE_SECONDS = 2.0
"""How long a screen may take to end; one that hangs in a write is left behind, and the terminal restored without it."""


class ScreenLike(Protocol):
    """What the conversation wants of a screen; `run` blocks, the others come back at once, in any thread."""

    def run(self) -> None: ...
    def reply(self, agent: str, text: str, shown: Callable[[], None]) -> None: ...
    def notice(self, text: str) -> None: ...
    def status(self, status: Status) -> None: ...
    def resized(self) -> None: ...
    def close(self) -> None: ...


@asynccontextmanager
async def running(screen: ScreenLike) -> AsyncIterator[trio.Event]:
    """Run the screen in a thread of its own; gives the event of its end.

    Leaving the block, by whatever way, closes the screen and waits for it, CLOSE_SECONDS at most. Raises what the
    screen's thread raised, unless the block raised itself.
    """
    ended = trio.Event()
    patience = trio.CancelScope(shield=True)
    failure: Exception | None = None

    async def run() -> None:
        nonlocal failure
        with patience:
            try:
                await trio.to_thread.run_sync(screen.run, abandon_on_cancel=True)
            except Exception as error:
                failure = error
        if patience.cancelled_caught:
            restore_terminal()
        ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        try:
            yield ended
        finally:
            screen.close()
            patience.deadline = trio.current_time() + CLOSE_SECONDS
    if failure is not None:
        raise failure
