"""Floors of the ratios: the same work in bare Trio, without names, counters, supervision or dead letters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio

from benchmarks.actors_programs import DEADLINE, ONE, Add, Clock, Total, timed

CAPACITY = 64
"""Messages in the channel, as many as in an actor's mailbox."""


async def counter(receive: trio.MemoryReceiveChannel[Any]) -> None:
    total = 0
    async for message in receive:
        if type(message) is Add:
            total += message.amount
        else:
            message.reply.send_nowait(total)  # there is room: the channel is fresh, and has one slot


def send(times: int, clock: Clock) -> float:
    """Send into a memory channel of 64, to a task that iterates over it, until that task has received the last."""
    return trio.run(_with_counter, clock, _send, times)


def ask(times: int, clock: Clock) -> float:
    """Send a message with a fresh memory channel of one slot in it, and receive from that."""
    return trio.run(_with_counter, clock, _ask, times)


def ask_with_deadline(times: int, clock: Clock) -> float:
    """Do the same under `fail_after`. For information: the limit refers to the floor without a deadline."""
    return trio.run(_with_counter, clock, _ask_with_deadline, times)


async def _with_counter(clock: Clock, work: Callable[..., Awaitable[None]], *args: object) -> float:
    channel, receive = trio.open_memory_channel[Any](CAPACITY)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(counter, receive)
        seconds = await timed(clock, work, channel, *args)
        nursery.cancel_scope.cancel()
    return seconds


async def _send(channel: trio.MemorySendChannel[Any], times: int) -> None:
    for _ in range(times):
        await channel.send(ONE)
    assert await _once(channel) == times


async def _ask(channel: trio.MemorySendChannel[Any], times: int) -> None:
    for _ in range(times):
        await _once(channel)


async def _ask_with_deadline(channel: trio.MemorySendChannel[Any], times: int) -> None:
    for _ in range(times):
        with trio.fail_after(DEADLINE):
            await _once(channel)


async def _once(channel: trio.MemorySendChannel[Any]) -> int:
    reply, answer = trio.open_memory_channel[int](1)
    await channel.send(Total(reply, "now"))  # type: ignore[arg-type]
    return await answer.receive()


# ------------------------------------------------------------ starts


def start(times: int, clock: Clock) -> float:
    """Open a memory channel, and call `nursery.start` with a task that reports its start and then waits on it."""
    return trio.run(_start, times, clock)


async def _start(times: int, clock: Clock) -> float:
    async with trio.open_nursery() as nursery:
        seconds = await timed(clock, _start_all, nursery, times)
        nursery.cancel_scope.cancel()
    return seconds


async def _start_all(nursery: trio.Nursery, times: int) -> None:
    channels = []
    for _ in range(times):
        channels.append(trio.open_memory_channel[Add](CAPACITY))
        await nursery.start(_idle, channels[-1][1])


async def _idle(receive: trio.MemoryReceiveChannel[Add], task_status: trio.TaskStatus[None]) -> None:
    task_status.started()
    async for _ in receive:
        pass
