"""The programs of actors_programs with autogen-core: agents of a single-threaded runtime on asyncio; nothing restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from autogen_core import (
    AgentId,
    MessageContext,
    RoutedAgent,
    SingleThreadedAgentRuntime,
    TopicId,
    TypeSubscription,
    message_handler,
)

from benchmarks.actors_programs import Clock, timed


@dataclass
class Plus:
    """It wants messages to be dataclasses."""

    amount: int


@dataclass
class Sum:
    label: str


class Counter(RoutedAgent):
    def __init__(self) -> None:
        super().__init__("counter")
        self._total = 0

    @message_handler
    async def add(self, message: Plus, ctx: MessageContext) -> None:
        self._total += message.amount

    @message_handler
    async def total(self, message: Sum, ctx: MessageContext) -> int:
        return self._total


ME = AgentId("counter", "first")


def tell(times: int, clock: Clock) -> float:
    return asyncio.run(_run(clock, _tell, times))


def ask(times: int, clock: Clock) -> float:
    return asyncio.run(_run(clock, _ask, times))


def start(times: int, clock: Clock) -> float:
    return asyncio.run(_run(clock, _start, times))


async def _run(clock: Clock, work: Callable[[SingleThreadedAgentRuntime, int], Awaitable[None]], times: int) -> float:
    runtime = SingleThreadedAgentRuntime()
    await Counter.register(runtime, "counter", Counter)
    await runtime.add_subscription(TypeSubscription("additions", "counter"))
    runtime.start()
    await runtime.send_message(Sum("warm"), ME)
    seconds = await timed(clock, work, runtime, times)
    await runtime.stop()
    return seconds


async def _tell(runtime: SingleThreadedAgentRuntime, times: int) -> None:
    """Publishing is what it has for messages without an answer."""
    for _ in range(times):
        await runtime.publish_message(Plus(1), TopicId("additions", "first"))
    while await runtime.send_message(Sum("now"), ME) < times:  # published messages are handled side by side
        pass


async def _ask(runtime: SingleThreadedAgentRuntime, times: int) -> None:
    for _ in range(times):
        await runtime.send_message(Sum("now"), ME)


async def _start(runtime: SingleThreadedAgentRuntime, times: int) -> None:
    for n in range(times):
        await runtime.get(AgentId("counter", f"child-{n}"), lazy=False)
