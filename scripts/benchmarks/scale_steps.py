"""Durable steps through PostgreSQL beside the same through files, and what leases cost, in durable steps.

Server, client and disk are those of this machine. One chat after the other makes a step, ten do at once, and a hundred.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import attrs
import trio

from actors import Child, Mailbox, Ref, open_supervisor
from benchmarks.report import Result, compared
from benchmarks.samples import median
from benchmarks.workplace import Workplace
from pegasus.messages import Address, ChannelInfo
from pegasus.storage import Commit, FileDisk, JournalMessage, Lease, Post, TakeLease, chat_owner, run_journal
from pegasus.storage.database import NodeFacts, run_database_journal
from pegasus.storage.database.postgres import Postgres
from tests.faults.server import NodesServer, open_server

CHATS = {1: 2.0, 10: 2.0, 100: 5.0}
"""Chats that make a step at the same time, and the limit of PostgreSQL's time against that of files."""
LEAST_STEPS = 1_000
"""Steps a second at a hundred chats."""
KEYS, TAKEOVER = 10_000, 0.5
"""Chats of a node that is gone, which another one takes in one statement, and the seconds that it may take."""
LEASE = 300.0  # seconds; nobody is to lose it here
LINE = b'{"ts":1767225600000,"role":"user","content":"' + b"x" * 120 + b'"}\n'


@attrs.frozen(eq=False)
class Engine:
    """A journal, and the leases of its chats with the lines of their sessions."""

    journal: Ref[JournalMessage]
    leases: dict[int, Lease] = attrs.field(factory=dict)
    lines: dict[int, int] = attrs.field(factory=lambda: defaultdict(int))

    async def step(self, chat: int, number: int) -> None:
        """Append a line to the session of a chat and post a reply."""
        channel = ChannelInfo("web", f"chat{chat}")
        if (lease := self.leases.get(chat)) is None:
            lease = self.leases[chat] = await self.journal.ask(TakeLease, chat_owner(Address("web", f"chat{chat}")))
        post = Post(f"{chat}/{number}", "Hello!", channel.channel_id, channel)
        line = (f"sessions/web%3Achat{chat}.jsonl", LINE)
        await self.journal.ask(Commit, (line,), (post,), lease, (), self.lines[chat])
        self.lines[chat] += 1


def measure_steps(place: Workplace) -> Iterator[Result]:
    results, single = trio.run(_measure_steps, place)
    yield from results
    yield from trio.run(_measure_leases, place, single)


async def _measure_steps(place: Workplace) -> tuple[list[Result], float]:
    """The results, and the seconds of one chat's step through PostgreSQL."""
    rounds = place.rounds(60, 15)
    async with open_server() as server, _engines(place.folder, server) as (files, database):
        results, numbers = [], iter(range(10**9))
        for chats, limit in CHATS.items():
            samples: dict[Engine, list[float]] = {files: [], database: []}
            for number in range(rounds + 1):
                for engine, seconds in samples.items():
                    took = await _round(engine, chats, next(numbers))
                    if number:  # leases are taken, and files made, in the first round
                        seconds.append(took)
            detail = {
                name: chats / median(samples[engine])
                for name, engine in (("steps_per_s", database), ("files_steps_per_s", files))
            }
            name = f"a step of {chats} chat{'s' * (chats > 1)} through PostgreSQL"
            results.append(compared(name, samples[database], samples[files], "files", limit, detail=detail))
            if chats == 1:
                single = median(samples[database])
        steps = detail["steps_per_s"]
        results.append(Result("steps of 100 chats", steps, LEAST_STEPS, "least", "steps/s", LEAST_STEPS / steps, 1.0))
    return results, single


async def _round(engine: Engine, chats: int, number: int) -> float:
    began = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for chat in range(chats):
            nursery.start_soon(engine.step, chat, number)
    return time.perf_counter() - began


@asynccontextmanager
async def _engines(folder: Path, server: NodesServer) -> AsyncIterator[tuple[Engine, Engine]]:
    """The engine of files and that of PostgreSQL, side by side in this process."""
    database = Postgres(server.url())
    shared = partial(run_database_journal, facts=NodeFacts("bench"), clock=_now, scope="chat", lease=LEASE)
    async with open_supervisor() as root:
        files = await root.start_child(
            Child("files", partial(run_journal, clock=_now), FileDisk(folder / "files"), mailbox=Mailbox(256))
        )
        node = await root.start_child(Child("database", shared, database, mailbox=Mailbox(256)))
        yield Engine(files), Engine(node)
        await root.stop()
    await database.aclose()


async def _timed(call: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await call()
    return time.perf_counter() - began


def _now() -> int:
    return time.time_ns() // 1_000_000


async def _measure_leases(place: Workplace, step: float) -> list[Result]:
    """What leases cost beside a step of one chat, and a node that takes over the chats of another."""
    rounds = place.rounds(60, 15)
    async with open_server() as server:
        database = Postgres(server.url())
        node = await database.register(NodeFacts("a", instance="1"), LEASE)
        claims = [await _timed(partial(database.claim, node, f"chat/web%3Ac{number}")) for number in range(rounds)]
        renewals = [await _timed(partial(database.renew, node, LEASE)) for _ in range(rounds)]
        takeovers = []
        for _ in range(place.rounds(5, 2)):
            gone = await database.register(NodeFacts("gone", instance="2"), LEASE)
            await server.execute(
                "delete from pegasus.owned",
                "insert into pegasus.owned (key, token, owner, due_at) "
                f"select 'chat/web%3A' || n, 1, {gone}, now() from generate_series(1, {KEYS}) n",
                "analyze pegasus.owned",
                f"update pegasus.node set until = now() where id = {gone}",
            )
            began = time.perf_counter()
            taken = await database.take(node, ("chat",), KEYS)
            takeovers.append(time.perf_counter() - began)
            assert len(taken) == KEYS
        await database.aclose()
    seconds = median(takeovers)
    return [
        Result("taking a chat", median(claims) * 1e3, step * 1e3, "step", "ms", median(claims) / step),
        Result("renewing a node's lease", median(renewals) * 1e3, step * 1e3, "step", "ms", median(renewals) / step),
        Result(f"taking over {KEYS:,} chats", seconds, TAKEOVER, "limit", "s", seconds / TAKEOVER, 1.0),
    ]
