"""Programs made of actors, timed from inside: what the floors and the other libraries are compared with.

Each function does the same thing `times` times in a Trio run of its own, and gives the seconds that took by `clock`,
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
"""Seconds; never reached."""
NEVER = Intensity(10**9)


@attrs.frozen
class Add:
    amount: int


@attrs.frozen
class Total:
    """What an actor is asked; the floors send the very same with a channel in the place of the Reply."""

    reply: Reply[int]
    label: str


@attrs.frozen
class Crash:
    pass


class Boom(Exception):
    """What an actor crashes with when it is told to."""


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
    """Seconds. The garbage of others is collected before, and nobody's meanwhile."""
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
    """The last answer says that all has been handled."""
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
    """Up at once, from a list."""
    return trio.run(_start_tree, times, clock)


async def _start_tree(times: int, clock: Clock) -> float:
    with quiet():
        began = clock()
        async with open_supervisor([Child(f"child-{n}", idle) for n in range(times)]):
            return clock() - began


def up_and_down(times: int, clock: Clock) -> float:
    """A tree of that many, from before it is opened until all of it has ended."""
    return trio.run(_up_and_down, times, clock)


async def _up_and_down(times: int, clock: Clock) -> float:
    with quiet():
        began = clock()
        async with open_supervisor([Child(f"child-{n}", idle) for n in range(times)]):
            pass
        return clock() - began


# ------------------------------------------------------------ restarts


def restart(times: int, clock: Clock) -> float:
    """Crash it, and ask its successor."""
    return trio.run(_with_shaky, clock, crash_often, times)


async def _with_shaky(clock: Clock, work: Callable[..., Awaitable[None]], *args: object) -> float:
    async with open_supervisor([Child("counter", counter)], intensity=NEVER) as supervisor:
        return await timed(clock, work, supervisor.ref("counter"), *args)


async def crash_often(ref: Ref[Total | Crash], times: int) -> None:
    for _ in range(times):
        ref.tell_nowait(CRASH)
        assert await ref.ask(Total, "after") == 0


CRASH = Crash()
