"""The programs of actors_programs with triotp: generic servers on Trio, under its supervisors."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable

import trio
from logbook import NullHandler
from triotp import dynamic_supervisor, gen_server, mailbox, supervisor

from benchmarks.actors_programs import ONE, Add, Boom, Clock, Crash, timed

_ME = sys.modules[__name__]
_OFTEN = supervisor.options(max_restarts=10**9, max_seconds=1)
_NAME = "counter"
_SAYS_UP, _IS_UP = trio.open_memory_channel[None](1)


# ------------------------------------------------------------ the server; its module is what triotp calls


async def init(_: object) -> int:
    _SAYS_UP.send_nowait(None)
    return 0


async def handle_cast(message: object, state: int) -> tuple[object, int]:
    if type(message) is Add:
        return gen_server.NoReply(), state + message.amount
    assert type(message) is Crash
    return gen_server.Stop(Boom()), state


async def handle_call(_: object, __: object, state: int) -> tuple[object, int]:
    return gen_server.Reply(state), state


async def terminate(_: BaseException | None, __: int) -> None:
    pass


# ------------------------------------------------------------ the programs


def tell(times: int, clock: Clock) -> float:
    return trio.run(_run, clock, _tell, times)


def ask(times: int, clock: Clock) -> float:
    return trio.run(_run, clock, _ask, times)


def start(times: int, clock: Clock) -> float:
    return trio.run(_run, clock, _start, times)


def restart(times: int, clock: Clock) -> float:
    return trio.run(_run, clock, _restart, times)


async def _run(clock: Clock, work: Callable[[int], Awaitable[None]], times: int) -> float:
    mailbox._init()
    with NullHandler().threadbound():
        async with trio.open_nursery() as nursery:
            await nursery.start(dynamic_supervisor.start, _OFTEN, "pool")
            await _start_server(_NAME)
            seconds = await timed(clock, work, times)
            nursery.cancel_scope.cancel()
    return seconds


async def _start_server(name: str) -> None:
    """Until it is up: start_child only sends the request."""
    spec = supervisor.child_spec(id=name, task=gen_server.start, args=[_ME, None, name])
    await dynamic_supervisor.start_child("pool", spec)
    await _IS_UP.receive()


async def _tell(times: int) -> None:
    for _ in range(times):
        await gen_server.cast(_NAME, ONE)
    assert await gen_server.call(_NAME, "now") == times


async def _ask(times: int) -> None:
    for _ in range(times):
        await gen_server.call(_NAME, "now")


async def _start(times: int) -> None:
    for n in range(times):
        await _start_server(f"child-{n}")


async def _restart(times: int) -> None:
    """A call to one that is down is an error, so its start is waited for."""
    for _ in range(times):
        await gen_server.cast(_NAME, Crash())
        await _IS_UP.receive()
        assert await gen_server.call(_NAME, "after") == 0
