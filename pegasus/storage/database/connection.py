"""Connections to PostgreSQL on Trio: one, a pool of them, and one that listens.

psycopg speaks the protocol in generators that say which way of the socket they wait for. Its asynchronous connection uses asyncio for
that wait and for a lock, and for nothing else, so `TrioConnection` has another wait and no lock. A connection is opened by psycopg's
synchronous code in a thread, because names are resolved, and passwords and certificates read, by calls that block; statements need no
thread.

**Outcomes.** A statement that is cancelled, or whose connection breaks, has happened or not. Its connection is closed, never used
again. Who calls `Pool.run` must be able to make the call again: it is, if the connection broke or the server asked for it
(`Pool.run`).

**Time.** A call fails with DatabaseDown after `patience` seconds in which nothing came and nothing could be sent, whatever the network
does: a partition shows in nothing but silence. TCP's own timeouts end a dead connection in about the same time, and the server ends
statements whose client may be gone.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from functools import partial
from random import Random
from typing import Any, Final, LiteralString, TypeVar

import attrs
import psycopg
import trio
from psycopg import AsyncConnection, conninfo, errors
from psycopg.abc import PQGen
from psycopg.waiting import Ready, Wait

from pegasus.retry import Pauses
from pegasus.storage.database.tables import DatabaseDown
from pegasus.storage.messages import StorageError

T = TypeVar("T")

MOST_CONNECTIONS: Final = 8
"""Connections of a pool. Ten nodes fit into the 100 that a server has by default; more did not make steps faster."""
PATIENCE: Final = 3.0
"""Seconds of silence after which a call fails. It is less than a lease, so that a node hears of a failure while it may still act."""
_CONNECTION: Final = {
    "fallback_application_name": "pegasus",
    "client_encoding": "UTF8",
    "connect_timeout": "3",
    "keepalives_idle": "2",
    "keepalives_interval": "1",
    "keepalives_count": "2",
    "tcp_user_timeout": "4000",
}
"""Parameters of a connection, unless the address has them, or the environment has the time to connect. A dead peer is noticed in 4 s,
less than a lease."""
IS_SHARED: Final = "coalesce(current_setting('pegasus.session', true), '') <> ''"
"""Condition: this session of the server is another client's, too, as behind a pooler that shares them out by transaction. Statements
that were prepared by one client would then be another's."""
TAKE_SESSION: Final = "set_config('pegasus.session', 'taken', false)"
"""Column that makes IS_SHARED true for whoever is given this session, too."""
SHARED: Final = (
    "a pooler gives one session of the database to several clients; let it work in session mode (pgbouncer: pool_mode)"
)
_SESSION: Final = f"""select {IS_SHARED}, {TAKE_SESSION},
    set_config('statement_timeout', '60s', false), set_config('lock_timeout', '10s', false),
    set_config('idle_in_transaction_session_timeout', '15s', false), set_config('idle_session_timeout', '0', false),
    set_config('timezone', 'UTC', false),
    set_config('synchronous_commit', case current_setting('synchronous_commit') when 'off' then 'on'
    else current_setting('synchronous_commit') end, false)"""
"""Settings of each session: nothing of a client that is gone holds a lock for long, and a commit is on the server's disk."""


class DatabaseRefused(StorageError):
    """The database cannot be used as it is; somebody has to change the settings or the database. The text says what.

    Example: the address is malformed, the user may not create tables, or the tables are those of a newer version.
    """


class TrioConnection(AsyncConnection[tuple[Any, ...]]):
    """A connection whose waits are Trio's. Use by one task at a time; `shut` may be called by another one."""

    def __init__(self, opened: psycopg.Connection[Any]) -> None:
        super().__init__(opened.pgconn)
        self._opened = opened
        """Kept, because psycopg warns of a connection that goes away while it is open."""
        self.lock = nullcontext()  # type: ignore[assignment]  # a lock of Trio would be one more turn of its loop
        self.prepare_threshold = 1
        self._autocommit = opened.autocommit
        self.on_progress: Callable[[], None] = lambda: None
        """Called whenever something came or was sent."""

    async def wait(self, gen: PQGen[T], interval: float = 0.0, timeout: float | None = None) -> T:
        """Drive a generator of psycopg to its end. Cancelled: the connection is closed. No caller gives a timeout."""
        fileno = self.pgconn.socket
        try:
            state = next(gen)
            while True:
                ready = await _ready(fileno, state)
                self.on_progress()
                state = gen.send(ready)
        except StopIteration as stop:
            value: T = stop.value
            return value
        except (OSError, trio.ClosedResourceError) as error:
            raise errors.OperationalError(f"the connection was closed: {error}") from None
        except trio.Cancelled:
            self.shut()
            raise

    def shut(self) -> None:
        """Close the connection at once. A task that waits for it gets an OperationalError."""
        if not self.closed:
            trio.lowlevel.notify_closing(self.pgconn.socket)
            self.pgconn.finish()


async def _ready(fileno: int, state: Wait) -> Ready:
    """Wait until the socket is ready in the way that a generator asks for."""
    if state == Wait.R:
        await trio.lowlevel.wait_readable(fileno)
        return Ready.R
    if state == Wait.W:
        await trio.lowlevel.wait_writable(fileno)
        return Ready.W
    # Both: while much is sent, the server's answers to the beginning must be read, or each side waits for the other.
    ready = 0
    async with trio.open_nursery() as nursery:

        async def wait_for(wait: Callable[[int], Awaitable[None]], flag: Ready) -> None:
            """Note that one direction is ready, and end the wait."""
            nonlocal ready
            await wait(fileno)
            ready |= flag
            nursery.cancel_scope.cancel()

        nursery.start_soon(wait_for, trio.lowlevel.wait_readable, Ready.R)
        nursery.start_soon(wait_for, trio.lowlevel.wait_writable, Ready.W)
    return Ready(ready)


# ------------------------------------------------------------------ errors

_MOST_REPEATS: Final = 20
"""Times in a row that a transaction is made again because it met another one, with pauses of three seconds in all."""
_FIRST_PAUSE: Final = 0.002
"""Seconds before the first of these repeats, about as long as a transaction takes."""
_LONGEST_PAUSE: Final = 0.2
_READ_ONLY: Final = "25006"
_TOO_MANY: Final = "53300"
_DOWN: Final = {
    _READ_ONLY: "it is read-only, as a replica is",
    "53100": "its disk is full",
    "53200": "it is out of memory",
    _TOO_MANY: "it has too many connections; raise its max_connections, or run fewer nodes",
    "57014": "a statement took too long",
    "55P03": "a row was locked for too long",
    "57P01": "an administrator stops it",
    "57P02": "it has crashed, and recovers",
    "57P03": "it starts, stops or recovers",
    "57P05": "an administrator ended the connection",
    "58030": "it cannot read or write its disk",
    "25P03": "a transaction was held open for too long",
}
"""By SQLSTATE, conditions that pass or that the operator of the database ends."""
_REFUSED: Final = re.compile(
    "password authentication failed|no password supplied|(role|user|database) .* does not exist|no pg_hba.conf entry|certificate|"
    "not support SSL|invalid .*value|not permitted to log in|permission denied|unrecognized configuration parameter|"
    "service .* not found|channel binding required"
)
"""Words of errors that settings or grants end. A connection that is refused has no SQLSTATE."""
_NO_ROOM: Final = re.compile("too many (connections|clients)|connection slots are reserved")
"""Words of such an error that passes."""
_OTHER_TABLES: Final = ("42P01", "42703", "42883", "3F000")
"""States after which no repeat helps: a table, a column, a function or the schema is missing."""
_AGAIN: Final = ("40001", "40P01", "40003", "23505")
"""States after which the transaction may simply be made again: it met another one. A unique violation is one of those, since every
statement looks for what it inserts."""


def explain(error: psycopg.Error, *, has_worked: bool = False) -> StorageError:
    """Return the error for an operator. It holds no password: psycopg and libpq never repeat one but of a malformed address.

    has_worked: it has worked before. Rights, passwords and certificates that are changed meanwhile are waited for, as a server is that
    is down: a process that ends because of them loses no less, and somebody would have to start it again.
    """
    refused = DatabaseDown if has_worked else DatabaseRefused
    state = error.sqlstate or ""
    # Of several attempts each has its line, and most are the same. What libpq guesses about a cause is indented. Of the error of a
    # statement only the first part is kept: what follows may hold values.
    text = error.diag.message_primary or str(error)
    lines = [line for line in text.splitlines() if not line.startswith("\t")]
    words = " ".join(dict.fromkeys(line.strip().removeprefix("connection failed: ") for line in lines))
    if state == "42501":
        return refused(f"the database user has too few rights: {words}")
    if state in _OTHER_TABLES:
        return DatabaseRefused(f"the tables of the database are not those that this program makes: {words}")
    if isinstance(error, _SharedSession) or (not state and _REFUSED.search(words)):
        return refused(f"the database refuses the connection: {words}")
    if not state and _NO_ROOM.search(words):
        state = _TOO_MANY
    if reason := _DOWN.get(state):
        return DatabaseDown(f"the database cannot do it: {reason} ({words})")
    return DatabaseDown(f"the database cannot be reached: {words}" if not state else f"the database failed: {words}")


@contextmanager
def explained() -> Iterator[None]:
    """Raise errors of psycopg as `explain` returns them."""
    try:
        yield
    except psycopg.Error as error:
        raise explain(error) from None


def _is_broken(error: psycopg.Error, connection: TrioConnection) -> bool:
    """Return whether an error means that the connection is gone, or is about to be."""
    return connection.closed or (error.sqlstate or "").startswith(("08", "57P"))


def parameters_of(url: str) -> dict[str, str]:
    """Return the parameters of a connection. Raises DatabaseRefused without repeating the address, which may hold a password."""
    try:
        found = conninfo.conninfo_to_dict(url)
        # Errors of libpq repeat these. Where a password has "/" or "@" as it is, they hold a part of it.
        host, port = str(found.get("host") or ""), str(found.get("port") or "")
        if "@" in host[1:] or not (port.replace(",", "") or "0").isdigit():
            raise ValueError
    except (psycopg.Error, ValueError):
        raise DatabaseRefused(
            'storage.url is not an address that libpq understands; allowed: "postgresql://user@host:5432/name?sslmode=verify-full", '
            "each part may be left out, and special characters are written as %XX"
        ) from None
    defaults = {name: value for name, value in _CONNECTION.items() if f"PG{name.upper()}" not in os.environ}
    return {**defaults, **{name: str(value) for name, value in found.items() if value is not None}}


def place_of(parameters: dict[str, str]) -> str:
    """Return the server and the name of the database as people read them, without user and password."""
    hosts = parameters.get("host") or parameters.get("hostaddr") or "the server of libpq's settings"
    return f"{hosts}/{parameters.get('dbname', '')}".rstrip("/")


# ------------------------------------------------------------------ pool


class Pool:
    """At most so many connections to one database, opened when they are needed.

    Example::

        rows = await pool.run(lambda connection: fetch(connection, "select 1"))
    """

    def __init__(
        self, url: str, most: int = MOST_CONNECTIONS, patience: float = PATIENCE, random: Random | None = None
    ) -> None:
        """Connect to nothing yet. random: for pauses, which have no random part without it.

        Raises DatabaseRefused for an address that is none.
        """
        self.parameters = parameters_of(url)
        self._patience = patience
        self._random = random
        self._limit = trio.CapacityLimiter(most)
        """Tasks that have a connection, or open one."""
        self._idle: list[TrioConnection] = []
        """Connections that nobody uses; the last one was used last."""
        self._all: set[TrioConnection] = set()
        """Connections that are open."""
        self._opening: _Opening | None = None
        """The connection that is being opened: one at a time, so that a server which comes back meets one client."""
        self._pauses = Pauses(first=0.1, limit=1.0)
        self._is_closed = False
        self._has_worked = False
        """True after the first call that was answered."""

    async def run(self, call: Callable[[TrioConnection], Awaitable[T]], extra: float = 0.0) -> T:
        """Return what a call over a connection returns.

        The call is made again on another connection when its own broke, and after a growing pause when the server says that it met
        another transaction, until nothing has happened for `patience` seconds. So it must be one transaction that may be repeated.
        extra: more seconds of silence, for what the server works on for long. Raises DatabaseDown, DatabaseRefused, what the call
        raises by itself, and errors that its values or its functions (PG…) have raised.
        """
        # The wait for a connection that others use is none for the server.
        async with self._limit:
            return await self._repeat(call, extra)

    async def _repeat(self, call: Callable[[TrioConnection], Awaitable[T]], extra: float) -> T:
        """Do what `run` says, as one of the tasks that may have a connection."""
        reason: StorageError = DatabaseDown(f"the database does not answer ({place_of(self.parameters)})")
        meetings = Pauses(_FIRST_PAUSE, _LONGEST_PAUSE, self._random)
        with trio.move_on_after(self._patience) as scope:

            def extend() -> None:
                """Begin to wait anew: the other side is there."""
                scope.deadline = trio.current_time() + self._patience + extra

            while True:
                try:
                    async with self._kept() as connection:
                        connection.on_progress = extend
                        extend()
                        result = await call(connection)
                        self._has_worked = True
                        return result
                except psycopg.Error as error:
                    if isinstance(error, psycopg.DataError) or (error.sqlstate or "").startswith("PG"):
                        raise
                    reason = explain(error, has_worked=self._has_worked)
                    if error.sqlstate == _READ_ONLY:
                        connection.shut()  # the next one may reach the server that has taken over
                    elif error.sqlstate in _AGAIN and meetings.failures < _MOST_REPEATS:
                        # Repeated at once, it would meet the next transaction of a task that makes one after the other.
                        await trio.sleep(meetings.next())
                        continue
                    elif error.sqlstate not in _AGAIN and _is_broken(error, connection):
                        await trio.lowlevel.checkpoint()
                        continue
                    raise reason from None
                except DatabaseDown as error:  # no connection; the next attempt has its pause
                    if self._is_closed:
                        raise
                    reason = error
        raise reason

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[TrioConnection]:
        """Hold a connection for as long as the block takes."""
        async with self._limit, self._kept() as connection:
            connection.on_progress = lambda: None
            yield connection

    @asynccontextmanager
    async def _kept(self) -> AsyncIterator[TrioConnection]:
        """Hold an idle connection or a new one. It is kept for others unless it broke."""
        connection = await self.open()
        self._all.add(connection)
        try:
            yield connection
        except BaseException:
            if not connection.closed and connection.pgconn.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                connection.shut()
            raise
        finally:
            if not connection.closed and not self._is_closed:
                self._idle.append(connection)
            else:
                connection.shut()
                self._all.discard(connection)

    def _taken(self) -> TrioConnection | None:
        """Return an idle connection, the one that was used last. Broken ones are dropped."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed:
                return connection
            self._all.discard(connection)
        return None

    async def open(self) -> TrioConnection:
        """Return an idle connection or a new one, which belongs to the caller. Raises DatabaseDown or DatabaseRefused, after a pause.

        Cancelled: what is being opened goes on, and is idle then. Of several hosts each may take longer than somebody waits, and the
        last one may be the one that answers.
        """
        while (connection := self._taken()) is None:
            if self._is_closed:
                raise DatabaseDown("the connections to the database are closed")
            if self._opening is None:
                self._opening = _Opening()
                trio.lowlevel.spawn_system_task(self._open, self._opening)
            opening = self._opening
            await opening.is_over.wait()
            if opening.error is not None:
                raise explain(opening.error, has_worked=self._has_worked)
        return connection

    async def _open(self, opening: _Opening) -> None:
        """Add a connection to the idle ones. A failure has its growing pause."""
        connection = None
        try:
            connection = await _open(self.parameters)
            with trio.move_on_after(self._patience) as scope:
                [(is_shared, *_)] = await fetch(connection, _SESSION)
            if scope.cancelled_caught:
                raise errors.ConnectionTimeout("the server does not answer")
            if is_shared:
                raise _SharedSession(SHARED)
            self._pauses.reset()
            self._idle.append(connection)
            if self._is_closed:
                self.close()
        except psycopg.Error as error:
            if connection is not None:
                connection.shut()
            await trio.sleep(self._pauses.next())
            opening.error = error
        finally:
            self._opening = None
            opening.is_over.set()

    def close(self) -> None:
        """Close all connections; calls that run fail with DatabaseDown, and so do those that come."""
        self._is_closed = True
        for connection in (*self._all, *self._idle):
            connection.shut()
        self._all.clear()
        self._idle.clear()


class _SharedSession(psycopg.OperationalError):
    """The session is another client's, too."""


@attrs.define(eq=False)
class _Opening:
    """The attempt to open a connection."""

    is_over: trio.Event = attrs.field(factory=trio.Event)
    error: psycopg.Error | None = None
    """Reason of its failure."""


async def _open(parameters: dict[str, str]) -> TrioConnection:
    """Open a connection in a thread. Cancelled at the end of the process: the thread goes on."""
    connect = partial(psycopg.Connection.connect, **parameters, autocommit=True)  # type: ignore[arg-type]
    return TrioConnection(await trio.to_thread.run_sync(connect, abandon_on_cancel=True))


async def fetch(connection: TrioConnection, statement: LiteralString, *values: Any) -> list[tuple[Any, ...]]:
    """Return the rows of a statement, which is a transaction of its own."""
    cursor = await connection.execute(statement, values)
    return await cursor.fetchall() if cursor.description else []
