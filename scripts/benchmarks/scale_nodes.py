"""Turns of one, two and three nodes over one PostgreSQL on this machine, with a model that takes a second.

Nodes, database, clients and model share the cores. So nothing is said here of how fast three machines are, but what a turn costs each
of them: by arithmetic, that says how many nodes a database carries.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import attrs
import trio

from benchmarks.provider import Provider, provider
from benchmarks.report import Result
from benchmarks.scale_chats import LATENCY, WARM, Count, talk
from benchmarks.talk import Talker, talker
from benchmarks.wires import WIRES
from benchmarks.workplace import Daemon, Workplace
from tests.faults.server import NodesServer, open_server

NODES, CHATS = (1, 2, 3), 60
"""Numbers of nodes, and chats that talk at once: all parts share the cores, which these do not fill."""
TRANSACTIONS = 4
"""Transactions of a turn, of which each is one round trip."""
QUIET = 3.0  # seconds in which nobody talks, for what nodes do without work


@attrs.frozen
class Spent:
    """Counts and seconds of the processor so far."""

    at: float
    turns: int
    nodes: float
    database: float
    clients: float
    transactions: int


def measure_nodes(place: Workplace) -> Iterator[Result]:
    for nodes in NODES:
        with provider(place.log, latency=LATENCY) as model:
            yield from trio.run(_measure, place, model, nodes)


async def _measure(place: Workplace, model: Provider, nodes: int) -> list[Result]:
    async with open_server() as server, _talkers(place, server, model, nodes) as (daemons, talkers):
        count = Count()

        async def spent() -> Spent:
            cpu = sum(daemon.process.cpu() for daemon in daemons)
            return Spent(
                trio.current_time(), count.turns, cpu, server.cpu(), time.process_time(), await server.transactions()
            )

        before = await spent()
        await trio.sleep(QUIET)
        idle = ((await spent()).transactions - before.transactions) / QUIET
        async with trio.open_nursery() as nursery:
            for number, one in enumerate(talkers):
                nursery.start_soon(talk, one, number / CHATS, count)
            await trio.sleep(WARM)
            before = await spent()
            await trio.sleep(place.rounds(20, 5))
            after = await spent()
            nursery.cancel_scope.cancel()
    passed, turns = after.at - before.at, after.turns - before.turns
    made = (after.transactions - before.transactions - idle * passed) / turns
    spent_of = {
        "nodes": (after.nodes - before.nodes) / turns * 1e3,
        "database": (after.database - before.database) / turns * 1e3,
        "clients": (after.clients - before.clients) / turns * 1e3,
    }
    every = sum(spent_of.values())
    reached, ideal, carried = turns / passed, CHATS / LATENCY, 1e3 / spent_of["database"]
    place_of = f"{nodes} node{'s' * (nodes > 1)}"
    detail = {"transactions_a_second_without_work": idle}
    return [
        Result(
            f"{CHATS} chats talk at once, {place_of}",
            reached,
            ideal,
            "ideal",
            "turns/s",
            ideal / reached,
            detail=detail,
        ),
        *(
            Result(f"processor of a turn, {who}, {place_of}", ms, every, "all", "ms", ms / every)
            for who, ms in spent_of.items()
        ),
        Result(
            f"a core of the database carries, {place_of}", carried, reached, "reached", "turns/s", reached / carried
        ),
        Result(f"transactions of a turn, {place_of}", made, TRANSACTIONS, "limit", "", made / TRANSACTIONS, 1.0),
    ]


@asynccontextmanager
async def _talkers(
    place: Workplace, server: NodesServer, model: Provider, nodes: int
) -> AsyncIterator[tuple[Sequence[Daemon], Sequence[Talker]]]:
    """Nodes that are ready, and clients that are connected to one after the other."""
    wire = WIRES["openai"]
    async with AsyncExitStack() as stack:
        daemons = []
        for number in range(nodes):
            home = place.home(provider=wire.name, base_url=model.base_url(wire))
            settings = home / "pegasus.toml"
            chats = f'[agent]\nscope = "chat"\nmax_active_chats = {CHATS}\n[models]\nmax_concurrent_calls = {CHATS}\n'
            shared = f'[storage]\nurl = "{server.url()}"\n[node]\nname = "node-{number}"\n'
            settings.write_text(settings.read_text().replace("[models]\n", chats) + shared)
            daemons.append(stack.enter_context(place.daemon(home)))
        talkers = [
            await stack.enter_async_context(talker(daemons[n % nodes].url, channel_id=f"chat-{n}"))
            for n in range(CHATS)
        ]
        yield daemons, talkers
