"""Programs made of actors, for comparison with the floors and with other libraries.

Each function repeats a step `times` times in a Trio run of its own, and returns the seconds that this took by `clock`,
without what is set up before and torn down after.
"""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias, TypeVarTuple

import attrs
import trio

from actors import Child, Inbox, Intensity, Ref, Reply, Supervisor, open_pool, open_supervisor

Ts = TypeVarTuple("Ts")
Clock: TypeAlias = Callable[[], float]
Program: TypeAlias = Callable[[int, Clock], float]

DEADLINE = 60.0
"""Seconds. Long enough to be never reached."""
NEVER = Intensity(10**9)


@attrs.frozen
class Add:
    amount: int


@attrs.frozen
class Total:
    """Question for the counter. The floors send the same class with a channel in the place of the Reply."""

    reply: Reply[int]
    label: str


@attrs.frozen
class Crash:
    pass


class Boom(Exception):
    """Error of the counter when it receives Crash."""


async def counter(inbox: Inbox[Add | Total | Crash]) -> None:
    total = 0
    async for message in inbox:
        if type(message) is Add:
            total += message.amount
        elif type(message) is Total:
            message.reply.send(total)
        else:
            raise Boom


async def idle(inbox: Inbox[Add]) -> None:
    async for _ in inbox:
        pass


async def timed(clock: Clock, work: Callable[[*Ts], Awaitable[object]], *args: *Ts) -> float:
    """Return the seconds that the work takes. Garbage is collected before it and not during it."""
    with quiet():
        began = clock()
        await work(*args)
        return clock() - began


@contextmanager
def quiet() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


# ------------------------------------------------------------ messages


def tell(times: int, clock: Clock) -> float:
    return trio.run(_with_counter, clock, _tell, times)


def ask(times: int, clock: Clock) -> float:
    return trio.run(_with_counter, clock, _ask, times, None)


def ask_with_deadline(times: int, clock: Clock) -> float:
    return trio.run(_with_counter, clock, _ask, times, DEADLINE)


def request(times: int, clock: Clock) -> float:
    return trio.run(_with_counter, clock, _request, times)


async def _with_counter(clock: Clock, work: Callable[..., Awaitable[None]], *args: object) -> float:
    async with open_supervisor([Child("counter", counter)]) as supervisor:
        return await timed(clock, work, supervisor.ref("counter"), *args)


async def _tell(ref: Ref[Add | Total], times: int) -> None:
    """Tell, and ask once at the end, so that all messages have been handled."""
    for _ in range(times):
        await ref.tell(ONE)
    assert await ref.ask(Total, "last") == times


async def _ask(ref: Ref[Total], times: int, timeout: float | None) -> None:
    for _ in range(times):
        await ref.ask(Total, "now", timeout=timeout)


async def _request(ref: Ref[Total], times: int) -> None:
    for _ in range(times):
        answer = await ref.request(Total, "now")
        await answer.get()


ONE = Add(1)

# ------------------------------------------------------------ starts


def start_child(times: int, clock: Clock) -> float:
    return trio.run(_start, times, clock, False)


def start_in_pool(times: int, clock: Clock) -> float:
    return trio.run(_start, times, clock, True)


async def _start(times: int, clock: Clock, pool: bool) -> float:
    async with open_pool() if pool else open_supervisor() as supervisor:
        return await timed(clock, _start_all, supervisor, times)


async def _start_all(supervisor: Supervisor, times: int) -> None:
    for n in range(times):
        await supervisor.start_child(Child(f"child-{n}", idle))


def start_tree(times: int, clock: Clock) -> float:
    """Start all children with the supervisor, from its list."""
    return trio.run(_start_tree, times, clock)


async def _start_tree(times: int, clock: Clock) -> float:
    with quiet():
        began = clock()
        async with open_supervisor([Child(f"child-{n}", idle) for n in range(times)]):
            return clock() - began


def up_and_down(times: int, clock: Clock) -> float:
    """Open a tree of so many actors and close it. The time is that of the whole block."""
    return trio.run(_up_and_down, times, clock)


async def _up_and_down(times: int, clock: Clock) -> float:
    with quiet():
        began = clock()
        async with open_supervisor([Child(f"child-{n}", idle) for n in range(times)]):
            pass
        return clock() - began


# ------------------------------------------------------------ restarts


def restart(times: int, clock: Clock) -> float:
    """Crash an actor, and ask the run after the restart."""
    return trio.run(_with_shaky, clock, crash_often, times)


async def _with_shaky(clock: Clock, work: Callable[..., Awaitable[None]], *args: object) -> float:
    async with open_supervisor([Child("counter", counter)], intensity=NEVER) as supervisor:
        return await timed(clock, work, supervisor.ref("counter"), *args)


async def crash_often(ref: Ref[Total | Crash], times: int) -> None:
    for _ in range(times):
        ref.tell_nowait(CRASH)
        assert await ref.ask(Total, "after") == 0


CRASH = Crash()
