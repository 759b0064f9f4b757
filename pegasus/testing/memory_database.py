"""A database in memory for tests in virtual time, which several nodes share. It loses, delays and repeats as a real one may.

Each node has a link of its own. A call over it is one transaction, done at one moment between the call and its answer, as a whole or
not at all. What can happen to it is a `Fate`: it is lost before it is done, or done with its answer lost, or done long after its
caller has given up. A link can be cut and mended, the server can be stopped or refuse to write, and a process can be killed.

    database = MemoryDatabase()
    a, b = database.link("a"), database.link("b")
    database.plan("a", Fate.UNANSWERED)         # of the next call of a
    database.cut("b")                           # calls of b hang, then fail with DatabaseDown

Transactions that are under way are kept by the times at which they are done, and are done when somebody calls next. Nobody can see
the difference to a server that does them at those times, and no task is needed that would outlive its caller: a process that is
killed may have sent a transaction which is done after its end.

Time is Trio's, so leases end in virtual time. Nothing here reads a clock of a node.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Collection
from contextlib import aclosing, asynccontextmanager
from enum import Enum
from functools import partial
from typing import Any, Final, TypeVar, cast

import attrs
import outcome
import trio

from pegasus.storage.database import Content, Database, DatabaseDown, Notice
from pegasus.testing.memory_tables import MemoryTables

T = TypeVar("T")

WRITES: Final = frozenset(
    {
        "register",
        "renew",
        "leave",
        "drain",
        "take",
        "claim",
        "give_back",
        "accept",
        "discard",
        "note",
        "commit",
        "connect",
        "replace",
        "archive",
        "remove",
        "put_rows",
        "reserve",
        "settle",
        "fill",
    }
)
"""Methods that change something. A database that is full or read-only refuses them."""


class Fate(Enum):
    """Outcome of a call over a link. Of all but the first its caller hears nothing, and gets DatabaseDown after a while.

    Example: `database.plan("a", Fate.DONE, Fate.UNANSWERED)` for the next two calls of node a.
    """

    DONE = "it is done and answered"
    LOST = "it is never done"
    UNANSWERED = "it is done, and the answer is lost"
    LATE = "it is done after its caller has given up"


def _is_done(link: str, method: str) -> Fate:
    """Return the fate of calls in a world without faults."""
    return Fate.DONE


@attrs.define(eq=False)
class _Transaction:
    """A call that may be done."""

    work: Callable[[], Any]
    result: outcome.Outcome[Any] | None = None
    """None: it is not done."""


class MemoryDatabase:
    """The database, with its links. tables: all that it holds, for tests that look at it.

    fate: decides what becomes of each call, by the name of the link and the method. latency: returns the seconds that a request or an
    answer or a notice takes. loses_notice: decides whether a notice gets lost on its way to a link. patience: seconds after which
    a call without an answer fails. clock: wall clock of the database, ms since the epoch.
    """

    def __init__(
        self,
        *,
        fate: Callable[[str, str], Fate] = _is_done,
        latency: Callable[[], float] = lambda: 0.0,
        loses_notice: Callable[[], bool] = lambda: False,
        patience: float = 2.0,
        clock: Callable[[], int] = lambda: int(trio.current_time() * 1000),
    ) -> None:
        self.tables = MemoryTables(self._announce, clock)
        self.patience = patience
        self.lateness = 4 * patience
        """Seconds after which a call that is late is done."""
        self.latency = latency
        self.fate = fate
        self.refusal = ""
        """Reason why it writes nothing, such as "the disk is full"; "" = it writes."""
        self.is_stopped = False
        """True while no server runs."""
        self.starts = 0
        """Starts of the server so far. An answer does not outlive the server that has made it."""
        self.calls = 0
        """Calls of all links so far."""
        self._loses_notice = loses_notice
        self._links: dict[str, _DatabaseLink] = {}
        self._under_way: list[tuple[float, int, _Transaction]] = []
        """Transactions that are not done, by the times at which they will be."""
        self.numbers = itertools.count()
        """Numbers by which what happens at the same time has an order."""

    def link(self, name: str) -> Database:
        """Return the link of a new process. One of this name from before is that of a process which is gone."""
        self.kill(name)
        link = self._links[name] = _DatabaseLink(name, self)
        return cast("Database", link)

    def plan(self, name: str, *fates: Fate) -> None:
        """Decide what becomes of the next calls over a link."""
        self._links[name].planned.extend(fates)

    def cut(self, name: str) -> None:
        """Let nothing pass over a link. Its calls wait, and fail if that lasts."""
        self._links[name].cut()

    def mend(self, name: str) -> None:
        """Let everything pass again."""
        self._links[name].mend()

    def kill(self, name: str) -> None:
        """End the process of a link: what it has sent may be done, and its calls fail at once from now on."""
        if name in self._links:
            self._links[name].is_dead = True
            self._links[name].mend()

    def stop(self) -> None:
        """Stop the server at once. What was committed stays; what was not done never is."""
        self._do_due()
        self._under_way.clear()
        self.is_stopped = True
        for link in self._links.values():
            link.lose_notices()

    def start(self) -> None:
        """Start the server again."""
        self.starts += 1
        self.is_stopped = False

    def send(self, transaction: _Transaction, seconds: float) -> None:
        """Have a transaction done in so many seconds."""
        heapq.heappush(self._under_way, (trio.current_time() + seconds, next(self.numbers), transaction))

    def _do_due(self) -> None:
        """Do the transactions whose time has come, in the order of their times."""
        while self._under_way and self._under_way[0][0] <= trio.current_time():
            transaction = heapq.heappop(self._under_way)[2]
            transaction.result = outcome.capture(transaction.work)

    def answer(self, transaction: _Transaction) -> Any:
        """Return the answer to a transaction whose time has come, or raise its error."""
        self._do_due()
        if transaction.result is None:
            raise DatabaseDown("the server was stopped")
        return transaction.result.unwrap()

    def _announce(self, notice: Notice) -> None:
        for link in self._links.values():
            if not self._loses_notice():
                link.hear(notice)


class _DatabaseLink:
    """The way of one process to the database. Its other methods are those of `MemoryTables`."""

    def __init__(self, name: str, database: MemoryDatabase) -> None:
        self.planned: deque[Fate] = deque()
        self.is_dead = False
        self._name = name
        self._database = database
        self._mended = trio.Event()
        self._mended.set()
        self._notices: list[tuple[float, int, Notice]] = []
        """Notices by the times at which they are heard."""
        self._has_lost = False
        """Notices may have been lost since the last call of `next_notices`."""
        self._begins = False
        """The next call of `next_notices` is the first that hears again."""
        self._news = trio.Event()

    def __getattr__(self, method: str) -> Callable[..., Awaitable[Any]]:
        work = getattr(self._database.tables, method)

        async def call(*args: Any, **options: Any) -> Any:
            """Have the method of the tables done as a transaction."""
            return await self._transact(method, partial(work, *args, **options))

        return call

    async def fill(self, mark: str, contents: Callable[[], AsyncIterable[Content]]) -> bool:
        """Gather all contents, and have them put into the tables."""
        found = [content async for content in contents()]
        return bool(await self._transact("fill", partial(self._database.tables.fill, mark, found)))

    @asynccontextmanager
    async def contents(self, paths: Collection[str] = ()) -> AsyncIterator[AsyncIterator[Content]]:
        """Return what the tables hold now."""
        found = await self._transact("contents", partial(self._database.tables.contents, paths))

        async def each() -> AsyncGenerator[Content, None]:
            """Iterate with checkpoints, as over rows that arrive."""
            for content in found:
                await trio.lowlevel.checkpoint()
                yield content

        async with aclosing(each()) as contents:
            yield contents

    async def _transact(self, method: str, work: Callable[[], Any]) -> Any:
        database = self._database
        database.calls += 1
        fate = self.planned.popleft() if self.planned else database.fate(self._name, method)
        transaction = _Transaction(work)
        await self._reach(method)
        there, back, starts = database.latency(), database.latency(), database.starts
        if fate is not Fate.LOST:
            database.send(transaction, there + (database.lateness if fate is Fate.LATE else 0.0))
        if fate is Fate.DONE:
            await trio.sleep(there + back)
            await self._reach(method)
            if starts == database.starts:
                return database.answer(transaction)
        else:
            await trio.sleep(database.patience)
        raise DatabaseDown("the database has not answered")

    async def _reach(self, method: str) -> None:
        """Return when something can pass over the link. Raises DatabaseDown."""
        if not self._mended.is_set():
            with trio.move_on_after(self._database.patience):
                await self._mended.wait()
        if self.is_dead:
            raise DatabaseDown("this process has ended")
        if not self._mended.is_set():
            raise DatabaseDown("the database does not answer")
        if self._database.is_stopped:
            raise DatabaseDown("no server is there")
        if self._database.refusal and method in WRITES:
            raise DatabaseDown(self._database.refusal)

    def cut(self) -> None:
        """Let nothing pass."""
        self._mended = trio.Event()
        self.lose_notices()

    def mend(self) -> None:
        """Let everything pass."""
        self._mended.set()
        self._news.set()

    # ------------------------------------------------------------------ notices

    def hear(self, notice: Notice) -> None:
        """Take a notice, unless nothing can pass."""
        if self._mended.is_set() and not self.is_dead:
            when = trio.current_time() + self._database.latency()
            heapq.heappush(self._notices, (when, next(self._database.numbers), notice))
            self._news.set()

    def lose_notices(self) -> None:
        """Forget what was not heard yet, as a connection that breaks."""
        self._notices.clear()
        self._has_lost = self._begins = True
        self._news.set()

    async def next_notices(self) -> tuple[Notice, ...]:
        """See `Database`."""
        while True:
            await trio.lowlevel.checkpoint()
            await self._reach("next_notices")
            if self._has_lost:
                self._has_lost = False
                raise DatabaseDown("the connection for notices was lost")
            if self._begins:
                self._begins = False
                return ()
            self._news = trio.Event()
            heard = []
            while self._notices and self._notices[0][0] <= trio.current_time():
                heard.append(heapq.heappop(self._notices)[2])
            if heard:
                return tuple(heard)
            with trio.move_on_at(self._notices[0][0] if self._notices else float("inf")):
                await self._news.wait()

    async def aclose(self) -> None:
        """End the process of this link."""
        self.is_dead = True
        self._news.set()
        await trio.lowlevel.checkpoint()


__all__ = ["Fate", "MemoryDatabase"]
