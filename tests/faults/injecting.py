"""What goes wrong: each fault takes hold of a node or of the database, lets go again, and leaves everything running."""

from __future__ import annotations

import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final

import attrs
import trio

from tests.faults.house import LEASE, House, Node
from tests.faults.server import END_CONNECTIONS, NodesServer


@attrs.frozen
class Moment:
    """What a fault is given: the house, the node that it is for, and how long it lasts."""

    house: House
    node: Node
    choices: random.Random

    async def short(self) -> None:
        """Wait for less than a lease."""
        await trio.sleep(self.choices.uniform(0, 0.6) * LEASE)

    async def long(self) -> None:
        """Wait until the lease of a node has ended, and another one may have taken over."""
        await trio.sleep(LEASE * self.choices.uniform(1.1, 1.5))


Fault = Callable[[Moment], Awaitable[None]]


# ------------------------------------------------------------------ of a node


async def kill(at: Moment) -> None:
    """Kill -9, and start it again."""
    at.node.daemon.kill()
    await at.node.start()


async def kill_for_long(at: Moment) -> None:
    """Kill -9, and leave its chats to the others."""
    at.node.daemon.kill()
    await at.long()
    await at.node.start()


async def stop(at: Moment) -> None:
    """SIGTERM, as an upgrade does, and start it again."""
    await at.node.daemon.stop(timeout=40)
    await at.node.start()


async def pause(at: Moment) -> None:
    """SIGSTOP for less than a lease."""
    at.node.daemon.signal(signal.SIGSTOP)
    try:
        await at.short()
    finally:
        at.node.daemon.signal(signal.SIGCONT)


async def pause_for_long(at: Moment) -> None:
    """SIGSTOP for more than a lease: it comes back and knows nothing of what happened."""
    at.node.daemon.signal(signal.SIGSTOP)
    try:
        await at.long()
    finally:
        at.node.daemon.signal(signal.SIGCONT)


# ------------------------------------------------------------------ of the way to the database


async def cut(at: Moment) -> None:
    """Break its connections, and refuse new ones for a while."""
    await at.node.link.cut()
    await at.short()
    at.node.link.restore()


async def cut_for_long(at: Moment) -> None:
    """Break its connections, and refuse new ones until others may have taken over."""
    await at.node.link.cut()
    await at.long()
    at.node.link.restore()


async def silence(at: Moment) -> None:
    """Carry nothing for a while, without a word to either side."""
    at.node.link.silence()
    await at.short()
    at.node.link.restore()


async def silence_for_long(at: Moment) -> None:
    """Carry nothing until others may have taken over. What was asked before arrives then."""
    at.node.link.silence()
    await at.long()
    at.node.link.restore()


async def delay(at: Moment) -> None:
    """Carry everything late."""
    at.node.link.delay = at.choices.uniform(0.02, 0.3)
    await at.short()
    at.node.link.restore()


async def lose_answer(at: Moment) -> None:
    """Lose the answer to something that was asked, which is done."""
    await _lose_answer(at, b"")


async def lose_answer_to_step(at: Moment) -> None:
    """Lose the answer to a durable step, which is done."""
    await _lose_answer(at, b'"lease_keys"')


async def _lose_answer(at: Moment, words: bytes) -> None:
    with trio.move_on_after(LEASE):
        await at.node.link.lose_answer(words)
    at.node.link.restore()


# ------------------------------------------------------------------ of the database


@asynccontextmanager
async def _server(at: Moment) -> AsyncIterator[NodesServer]:
    """The database, for one fault at a time."""
    async with at.house.one_at_a_time:
        yield at.house.database


async def crash_database(at: Moment) -> None:
    """The database stops at once, and comes back by its log."""
    async with _server(at) as server:
        await server.stop("immediate")
        await trio.sleep(at.choices.random())
        await server.start()


async def restart_database(at: Moment) -> None:
    """The database is restarted in order, which ends all connections."""
    async with _server(at) as server:
        await server.stop("fast")
        await server.start()


async def refuse_writes(at: Moment) -> None:
    """The database is read-only for a while, as a replica is."""
    async with _server(at) as server:
        await server.execute("alter role node set default_transaction_read_only = on", END_CONNECTIONS)
        await at.short()
        await server.execute("alter role node reset default_transaction_read_only", END_CONNECTIONS)


async def fill_disk(at: Moment) -> None:
    """Nothing can be added to the tables that grow, as on a full disk, while all that is there can be read and changed."""
    async with _server(at) as server, server.without_space():
        await at.short()


async def refuse_connections(at: Moment) -> None:
    """The connections of the nodes break, and others have taken all that there are."""
    async with _server(at) as server, server.without_connections():
        await at.short()


async def freeze_database(at: Moment) -> None:
    """Every process of the database stands still, while its machine keeps the connections open."""
    async with _server(at) as server:
        server.signal(signal.SIGSTOP)
        try:
            await at.choices.choice((at.short, at.long))()
        finally:
            server.signal(signal.SIGCONT)


async def refuse_nodes(at: Moment) -> None:
    """The nodes may not log in for a while, as when a password was changed."""
    async with _server(at) as server:
        await server.execute("alter role node nologin", END_CONNECTIONS)
        await at.short()
        await server.execute("alter role node login")


async def end_connections(at: Moment) -> None:
    """An administrator ends every connection."""
    async with _server(at) as server:
        await server.execute(END_CONNECTIONS)


async def fail_over(at: Moment) -> None:
    """The database stops at once, and a synchronous replica whose replay lags takes its place."""
    async with _server(at) as server:
        await server.fail_over(at.choices.uniform(0, 1))
        for node in at.house.nodes:
            node.link.target = server.port


FAULTS: Final[Mapping[str, Fault]] = {
    "kill -9": kill,
    "SIGTERM": stop,
    "SIGSTOP": pause,
    "kill -9 for longer than the lease": kill_for_long,
    "SIGSTOP for longer than the lease": pause_for_long,
    "link cut": cut,
    "link cut for longer than the lease": cut_for_long,
    "link silent": silence,
    "link silent for longer than the lease": silence_for_long,
    "link slow": delay,
    "answer lost": lose_answer,
    "answer to a step lost": lose_answer_to_step,
    "database crashes": crash_database,
    "database restarted": restart_database,
    "database read-only": refuse_writes,
    "database out of connections": refuse_connections,
    "database without space": fill_disk,
    "database frozen": freeze_database,
    "database refuses the nodes": refuse_nodes,
    "database fails over": fail_over,
    "connections ended": end_connections,
}
"""Faults of nodes, of their ways to the database, and of the database."""
