"""Where one process ends: chats that talk side by side without a pause, with a model that takes a second.

The ideal is a turn a second for each chat. What is missing is work of the daemon, and at last its one core.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import attrs
import trio

from benchmarks.provider import Provider, provider
from benchmarks.report import Result
from benchmarks.talk import Talker, talker
from benchmarks.wires import WIRES
from benchmarks.workplace import Workplace

LATENCY = 1.0
"""Seconds that the model takes for an answer."""
CHATS = {50: 1.25, 200: 1.67}
"""Chats that talk at once, and the limit of the ideal against what is reached: 0.8 of it and 0.6."""
WARM = 4.0  # seconds until all chats are in memory and have a session


@attrs.define
class Count:
    """Turns since the beginning."""

    turns: int = 0


def measure_chats(place: Workplace) -> Iterator[Result]:
    for chats, limit in CHATS.items():
        with provider(place.log, latency=LATENCY) as server:
            yield trio.run(_measure_crowd, place, server, chats, limit)


async def _measure_crowd(place: Workplace, server: Provider, chats: int, limit: float) -> Result:
    seconds = place.rounds(20, 5)
    async with _talkers(place, server, chats) as (talkers, cpu), trio.open_nursery() as nursery:
        count = Count()
        for number, one in enumerate(talkers):
            nursery.start_soon(talk, one, number / chats, count)
        await trio.sleep(WARM)
        turns, spent, began = count.turns, cpu(), trio.current_time()
        await trio.sleep(seconds)
        passed = trio.current_time() - began
        reached, core = (count.turns - turns) / passed, (cpu() - spent) / passed
        nursery.cancel_scope.cancel()
    ideal = chats / LATENCY
    detail = {"core": core, "cpu_of_a_turn": core / reached}
    return Result(
        f"{chats} chats talk at once", reached, ideal, "ideal", "turns/s", ideal / reached, limit, detail=detail
    )


async def talk(one: Talker, later: float, count: Count) -> None:
    """Say something as soon as the last answer is there. later: part of a second after which it begins."""
    await trio.sleep(later * LATENCY)
    for number in itertools.count():
        await one.turn(f"message {number}.")
        count.turns += 1


@asynccontextmanager
async def _talkers(
    place: Workplace, server: Provider, chats: int
) -> AsyncIterator[tuple[Sequence[Talker], Callable[[], float]]]:
    """Clients of that many chats of a daemon, and a function with the CPU seconds of it so far."""
    wire = WIRES["openai"]
    home = place.home(provider=wire.name, base_url=server.base_url(wire))
    settings = home / "pegasus.toml"
    wanted = f'[agent]\nscope = "chat"\nmax_active_chats = {chats}\n[models]\nmax_concurrent_calls = {chats}\n'
    settings.write_text(settings.read_text().replace("[models]\n", wanted))
    with place.daemon(home) as daemon:
        async with AsyncExitStack() as stack:
            names = [f"chat-{number}" for number in range(chats)]
            talkers = [await stack.enter_async_context(talker(daemon.url, channel_id=name)) for name in names]
            yield talkers, daemon.process.cpu
