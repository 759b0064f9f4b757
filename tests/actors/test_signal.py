"""A signal wakes all who wait, and is missed by nobody who says what they have seen."""

from __future__ import annotations

import pytest
import trio
from trio.testing import assert_checkpoints

from actors import Signal
from tests.actors.kit import settle


async def test_each_notify_wakes_all_who_wait() -> None:
    signal, woken = Signal(), []

    async def wait_twice(name: str) -> None:
        for _ in range(2):
            await signal.wait()
            woken.append(name)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait_twice, "a")
        nursery.start_soon(wait_twice, "b")
        for expected in (["a", "b"], ["a", "a", "b", "b"]):
            await settle()
            signal.notify()
            await settle()
            assert sorted(woken) == expected


async def test_what_came_before_the_wait_counts_for_who_says_what_they_have_seen() -> None:
    signal = Signal()
    seen = signal.count
    signal.notify()
    with trio.fail_after(1), assert_checkpoints():
        await signal.wait(seen)
    for wait in (signal.wait, lambda: signal.wait(signal.count)):
        with pytest.raises(trio.TooSlowError), trio.fail_after(1):
            await wait()


async def test_who_is_cancelled_takes_nothing_from_the_others() -> None:
    signal = Signal()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(signal.wait)
        with trio.move_on_after(1):
            await signal.wait()
        signal.notify()
