"""Blocking work in short pieces, so that it can be cancelled between them and never keeps the event loop waiting.

The work is a generator: each `yield` is a place where it may be stopped (its `finally` and `with` clean up), and gives it a
bool: whether its time is nearly up, so that a search can come back with what it has.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Final, TypeAlias, TypeVar, TypeVarTuple

import trio

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

Work: TypeAlias = Generator[None, bool, T]

PIECE: Final = 0.02
"""Seconds after which a thread comes back at the next `yield`."""
ENOUGH: Final = 0.75
"""Part of the time until the deadline after which the work is told that its time is nearly up."""


async def in_pieces(start: Callable[[*Ts], Work[T]], *args: *Ts) -> T:
    """Do the work of `start(*args)` in threads and give what it returns; what it raises is raised here.

    Cancelled: the piece that runs is finished, the work is closed, and nothing of it happens after that.
    """
    work = start(*args)
    now, deadline = trio.current_time(), trio.current_effective_deadline()
    hurry_at = now + (deadline - now) * ENOUGH
    word: bool | None = None  # what starts a generator
    try:
        while (result := await trio.to_thread.run_sync(_advance, work, word)) is None:
            word = trio.current_time() >= hurry_at
    except trio.Cancelled:
        with trio.CancelScope(shield=True), suppress(OSError):
            await trio.to_thread.run_sync(work.close)
        raise
    return result[0]


def _advance(work: Work[T], word: bool | None) -> tuple[T] | None:
    """Some of the work; its result in a tuple if that was the end."""
    until = time.perf_counter() + PIECE
    try:
        work.send(word)  # type: ignore[arg-type]  # None starts it, which the type does not say
        while time.perf_counter() < until:
            work.send(bool(word))
    except StopIteration as end:
        return (end.value,)
    return None
