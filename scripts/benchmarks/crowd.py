"""500 clients connected, 50 of them talking: no reply lost, and what a turn costs beside the same with one client.

Two daemons, blocks of turns in alternation, equal histories.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager

import trio

from benchmarks.history import conversation
from benchmarks.provider import Provider, provider
from benchmarks.report import Result, compared
from benchmarks.talk import Talker, talker
from benchmarks.wires import WIRES
from benchmarks.workplace import Daemon, Workplace

CONNECTED, TALKING, EACH = 500, 50, 2
LIMIT = 1.3
MESSAGES = 300


def measure(place: Workplace) -> Iterator[Result]:
    with provider(place.log) as server:
        one, crowd = trio.run(_sample, place, server, place.rounds(8, 2))
    name = f"CPU of a turn, {CONNECTED} connected, {TALKING} talking"
    detail = {"replies": len(crowd) * TALKING * EACH, "lost": 0}
    yield compared(name, crowd, one, "one client", LIMIT, detail=detail)


async def _sample(place: Workplace, server: Provider, rounds: int) -> tuple[list[float], list[float]]:
    """CPU seconds of a turn, by round: with one client, in the crowd. A reply that is lost or doubled raises BenchError."""
    alone: list[float] = []
    together: list[float] = []
    async with _daemon(place, server, 1) as (one, (single,)), _daemon(place, server, CONNECTED) as (many, talkers):
        await single.turn("warm")
        await talkers[0].turn("warm")
        for block in range(rounds):
            before = one.process.cpu()
            for n in range(TALKING * EACH):
                await single.turn(f"block {block} message {n}.")
            alone.append((one.process.cpu() - before) / (TALKING * EACH))
            before = many.process.cpu()
            async with trio.open_nursery() as nursery:
                for number, one_of_many in enumerate(talkers[:TALKING]):
                    nursery.start_soon(_talk, one_of_many, f"block {block} talker {number}")
            together.append((many.process.cpu() - before) / (TALKING * EACH))
    return alone, together


async def _talk(client: Talker, text: str) -> None:
    for n in range(EACH):
        await client.turn(f"{text} message {n}.")


@asynccontextmanager
async def _daemon(place: Workplace, server: Provider, clients: int) -> AsyncIterator[tuple[Daemon, list[Talker]]]:
    wire = WIRES["openai"]
    home = place.home(conversation(MESSAGES), provider=wire.name, base_url=server.base_url(wire))
    with place.daemon(home) as daemon:
        async with AsyncExitStack() as stack:
            talkers = [
                await stack.enter_async_context(talker(daemon.url, channel_id=f"c{number}"))
                for number in range(clients)
            ]
            yield daemon, talkers
