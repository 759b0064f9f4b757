"""Blocking work on files in short steps, so that it never holds up the event loop and can be cancelled between two steps.

A system call on a file blocks, so it runs in a thread, and a thread cannot be interrupted. The work
is therefore written as a generator. Each `yield` is a point where it may be stopped; its `finally`
and `with` blocks clean up as usual. A thread executes it for about 20 ms and returns at the next
`yield`; then the event loop decides whether to go on. That bounds the time from a cancel to the end
of the work by one step: the longest stretch between two `yield`s. Work on data of any size must
yield about once per megabyte.

`yield` returns a bool: whether the time of the call is nearly up. A search can then return what it
has instead of being cancelled with nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Final, TypeAlias, TypeVar, TypeVarTuple

import trio

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

Steps: TypeAlias = Generator[None, bool, T]
"""Blocking work that yields between its steps, receives whether it should hurry, and returns a
T."""

STEP_SECONDS: Final = 0.02
"""Time after which a thread returns at the next `yield`. Long enough that starting a thread task
costs little in comparison, short enough that nobody notices the time until a cancel takes effect."""
HURRY_AFTER: Final = 0.75
"""Part of the time until the deadline after which the work is asked to hurry."""


async def run_in_steps(start: Callable[[*Ts], Steps[T]], *args: *Ts) -> T:
    """Run the generator `start(*args)` in threads and return its result. Its exceptions are raised here.

    On cancel, the current step is finished and the generator is closed in a thread; nothing of it
    runs after this returns.
    """
    work = start(*args)  # nothing of it runs yet
    now, deadline = trio.current_time(), trio.current_effective_deadline()
    hurry_at = now + (deadline - now) * HURRY_AFTER
    hurry: bool | None = None  # a generator must be started with None
    try:
        while (result := await trio.to_thread.run_sync(_advance, work, hurry)) is None:
            hurry = trio.current_time() >= hurry_at
    except trio.Cancelled:
        with trio.CancelScope(shield=True), suppress(OSError):
            await trio.to_thread.run_sync(work.close)
        raise
    return result[0]


def _advance(work: Steps[T], hurry: bool | None) -> tuple[T] | None:
    """Run the work for one step. Return its result in a tuple if it has finished."""
    until = time.perf_counter() + STEP_SECONDS
    try:
        work.send(hurry)  # type: ignore[arg-type]  # None starts it, which the type does not express
        while time.perf_counter() < until:
            work.send(bool(hurry))
    except StopIteration as end:
        return (end.value,)
    return None
