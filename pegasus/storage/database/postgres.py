"""PostgreSQL as the database of several nodes: each method of `Database` is one statement, which is one transaction.

What decides within a transaction is a function of the server (`schema.sql`), so that a durable step takes one round trip. This file
puts values into arguments and rows into values.

Renewals have a connection of their own: they must not wait behind the work of a busy node, which would lose its lease by that. Notices
have another one, which does nothing but listen. So a node has at most two connections more than its pool.
"""

# ruff: noqa: S608  (statements are put together of constants of this file)

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterable, AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from random import Random
from typing import Any, Final, LiteralString

import attrs
import psycopg
import trio
from psycopg import generators

from pegasus.messages import Address, ChannelInfo, OutboundMessage, escape_field
from pegasus.storage.database.connection import PATIENCE, Pool, TrioConnection, explained, fetch
from pegasus.storage.database.contents import contents_of, fill_from
from pegasus.storage.database.schema import prepare, steps
from pegasus.storage.database.tables import (
    AcceptedItem,
    Content,
    DurableStep,
    Heard,
    KnownAddress,
    NameTaken,
    NewItem,
    NodeFacts,
    NodeState,
    Notice,
    Numbering,
    Renewal,
    Rows,
    StoredItem,
    StoredReply,
)
from pegasus.storage.inbox_messages import Overloaded
from pegasus.storage.leases import Lease, LeaseLost
from pegasus.storage.messages import Changed, UnacknowledgedReply
from pegasus.wire import decode_object, encode_json, from_wire, to_wire

_BYTES_A_SECOND: Final = 4_000_000
"""Bytes that even a busy server has written in a second."""
_TABLES_TAKE: Final = 30.0
"""Seconds that a busy server may take to make the tables, beside those of any call."""
_FORGET_EVERY: Final = 3600.0
"""Seconds between two times at which a node forgets what is old."""
_FORGOTTEN_AT_ONCE: Final = 2_000
"""Rows of each kind that one transaction removes, so that nobody waits for it."""
_NEW_ITEM: Final = "row(" + ", ".join(["%s"] * 16) + ")::pegasus.new_item"
_ITEM: Final = (
    "i.n, i.key, i.type, i.channel_id, i.dedupe, i.message, i.lane, i.priority, i.at, i.is_owners, i.sender, i.is_apart, "
    "i.is_internal, i.discarded"
)
_REPLY: Final = "r.key, r.seq, r.channel, r.message, r.seq <= coalesce(n.acked, 0)"
_REPLIES: Final = "pegasus.reply r left join pegasus.numbering n on n.type = r.type and n.channel_id = r.channel_id"


class Postgres:
    """A PostgreSQL server as `Database`. Nothing is connected before the first call.

    Example::

        database = Postgres("postgresql://agent@db.example/pegasus?sslmode=verify-full")
        node = await database.register(NodeFacts("a"), lease=5.0)
        await database.aclose()
    """

    def __init__(
        self,
        url: str,
        patience: float = PATIENCE,
        versions: Sequence[str] | None = None,
        random: Random | None = None,
    ) -> None:
        """Know the address. patience: seconds until a call without an answer fails. versions: as `schema.steps` returns them.

        random: for pauses between repeats, so that nodes which met do not meet again. Raises DatabaseRefused if the address is none.
        """
        self._pool = Pool(url, patience=patience, random=random)
        # A renewal that hangs is sent once more before the lease ends.
        self._renewals = Pool(url, most=1, patience=patience / 2, random=random)
        self._listener: TrioConnection | None = None
        self._heard: list[Notice] = []
        self._versions = tuple(versions) if versions is not None else steps()
        self._preparing = trio.Lock()
        self._is_prepared = False
        self._forget_at = 0.0
        """Trio's clock when what is old is to be forgotten."""

    # ------------------------------------------------------------------ transactions

    async def prepare(self) -> None:
        """Make or extend the tables, once. Each other method begins with this. Raises DatabaseRefused."""
        if self._is_prepared:
            return
        async with self._preparing:
            if not self._is_prepared:
                await self._pool.run(lambda connection: prepare(connection, self._versions), _TABLES_TAKE)
                # The second connection shows whether a pooler gives one session to several clients.
                await self._renewals.run(lambda connection: fetch(connection, "select"))
                self._is_prepared = True

    async def _rows(
        self, statement: LiteralString, *values: Any, pool: Pool | None = None, size: int = 0
    ) -> list[tuple[Any, ...]]:
        """Return the rows of a statement. Raises ValueError for a text that the database cannot hold. size: bytes that it writes."""
        await self.prepare()
        try:
            return await (pool or self._pool).run(
                lambda connection: fetch(connection, statement, *values), size / _BYTES_A_SECOND
            )
        except psycopg.DataError as error:
            raise ValueError(f"the database cannot hold this: {error}") from None
        except psycopg.Error as error:
            if error.sqlstate == "PG001":
                raise LeaseLost("somebody else has the lease") from None
            raise Changed(str(error.diag.message_primary)) from None

    # ------------------------------------------------------------------ nodes and ownership

    async def register(self, facts: NodeFacts, lease: float) -> int:
        """See `Database`."""
        [(node,)] = await self._rows(
            "select pegasus.register(%s, %s, %s, %s, %s, %s, make_interval(secs => %s))",
            *(facts.name, facts.address, facts.version, facts.settings, facts.instance),
            *(len(self._versions), lease),
        )
        if node is None:
            raise NameTaken(f"a living node has the name {facts.name}")
        return int(node)

    async def renew(self, node: int, lease: float, settings: str = "") -> Renewal | None:
        """See `Database`."""
        found = await self._rows(
            "update pegasus.node set until = clock_timestamp() + make_interval(secs => %s), "
            "settings = coalesce(nullif(%s, ''), settings) where id = %s and until > clock_timestamp() "
            "returning is_draining, (select count(*) from pegasus.node where until > clock_timestamp())",
            *(lease, settings, node),
            pool=self._renewals,
        )
        return Renewal(*found[0]) if found else None

    async def leave(self, node: int) -> None:
        """See `Database`."""
        await self._rows("select pegasus.leave(%s::bigint)", node)

    async def drain(self, name: str) -> bool:
        """See `Database`."""
        return bool(
            await self._rows(
                "update pegasus.node set is_draining = true where name = %s and until > clock_timestamp() returning id",
                name,
            )
        )

    async def nodes(self) -> tuple[NodeState, ...]:
        """See `Database`."""
        found = await self._rows(
            "select id, name, address, version, settings, instance, extract(epoch from until - clock_timestamp())::float8, "
            "is_draining, array(select key from pegasus.owned where owner = id order by key) from pegasus.node "
            "where until > clock_timestamp() - interval '1 day' order by name"
        )
        return tuple(
            NodeState(id, NodeFacts(*facts), left, is_draining, tuple(keys))
            for id, *facts, left, is_draining, keys in found
        )

    async def take(
        self, node: int, kinds: Collection[str], limit: int, *, control_only: bool = False
    ) -> tuple[Lease, ...]:
        """See `Database`."""
        found = await self._rows(
            "select key, token from pegasus.take(%s::bigint, %s::text[], %s, %s)",
            node,
            list(kinds),
            limit,
            control_only,
        )
        return tuple(Lease(key, token) for key, token in found)

    async def claim(self, node: int, key: str) -> Lease | None:
        """See `Database`."""
        [(token,)] = await self._rows("select pegasus.claim(%s::bigint, %s)", node, key)
        return None if token is None else Lease(key, token)

    async def give_back(self, node: int, leases: Collection[Lease]) -> None:
        """See `Database`."""
        keys, tokens = [lease.owner for lease in leases], [lease.token for lease in leases]
        await self._rows("select pegasus.give_back(%s::bigint, %s::text[], %s::bigint[])", node, keys, tokens)

    # ------------------------------------------------------------------ inbox

    async def accept(self, node: int, item: NewItem, max_waiting: int) -> AcceptedItem | Overloaded | Heard:
        """See `Database`."""
        [(outcome, n, previous, words)] = await self._rows(
            f"select * from pegasus.accept(%s::bigint, {_NEW_ITEM}, %s)", node, *_item_values(item), max_waiting
        )
        match outcome:
            case "accepted":
                return AcceptedItem(n, previous=previous)
            case "duplicate":
                return AcceptedItem(n, duplicate=True)
            case "heard":
                return Heard(words)
        return Overloaded(n, of_sender=outcome == "sender")

    async def discard(
        self,
        node: int,
        report: NewItem,
        before: int,
        priority: int,
        senders: Collection[str] | None,
        spared: Collection[int],
        lease: Lease | None,
    ) -> int | Heard | None:
        """See `Database`."""
        [(outcome, count, words)] = await self._rows(
            f"select * from pegasus.discard(%s::bigint, {_NEW_ITEM}, %s, %s, %s::text[], %s::bigint[], %s::text[], %s::bigint[])",
            *(node, *_item_values(report), before, priority, None if senders is None else list(senders), list(spared)),
            *_lease_values(lease),
        )
        if outcome == "known":
            return None
        return Heard(words) if outcome == "heard" else int(count)

    async def items(self, seen: Mapping[str, int]) -> tuple[StoredItem, ...]:
        """See `Database`."""
        found = await self._rows(
            f"select {_ITEM} from pegasus.item i join unnest(%s::text[], %s::bigint[]) as s(key, n) on i.key = s.key and i.n > s.n "
            "where i.done_at is null order by i.n",
            *(list(seen), list(seen.values())),
        )
        return tuple(_stored_item(row) for row in found)

    async def newest_items(self, node: int) -> Mapping[Lease, int]:
        """See `Database`. Each node asks this twice a second; now and then it forgets what is old before."""
        if trio.current_time() >= self._forget_at:
            self._forget_at = trio.current_time() + _FORGET_EVERY
            if (await self._rows("select pegasus.forget(%s)", _FORGOTTEN_AT_ONCE))[0][0]:
                self._forget_at = trio.current_time() + 1.0
        rows = await self._rows(
            "select key, token, case when due_at is null then 0 else last_n end from pegasus.owned where owner = %s",
            node,
        )
        return {Lease(key, token): n for key, token, n in rows}

    async def note(self, done: Sequence[tuple[int, Lease | None, int]], acknowledged: Mapping[Address, int]) -> None:
        """See `Database`."""
        leases = [lease for _, lease, _ in done]
        await self._rows(
            "select pegasus.note(%s::bigint[], %s::text[], %s::bigint[], %s::bigint[], %s::text[], %s::text[], %s::bigint[])",
            [n for n, _, _ in done],
            [lease and lease.owner for lease in leases],
            [lease and lease.token for lease in leases],
            [at for _, _, at in done],
            *_address_values(acknowledged),
            list(acknowledged.values()),
        )

    async def open_items(self, numbers: Collection[int]) -> frozenset[int]:
        """See `Database`."""
        found = await self._rows(
            "select n from pegasus.item where n = any (%s::bigint[]) and done_at is null", list(numbers)
        )
        return frozenset(n for (n,) in found)

    async def waiting(
        self, address: Address | None, lane: str | None, priority: int | None, is_apart: bool | None
    ) -> int:
        """See `Database`."""
        [(count,)] = await self._rows(
            "select count(*) from pegasus.item where done_at is null and (%s::text is null or (type = %s and channel_id = %s)) "
            "and (%s::text is null or lane = %s) and (%s::int is null or priority <= %s) "
            "and (%s::bool is null or (key <> 'main') = %s)",
            *(address and address.type, address and address.type, address and address.channel_id),
            *(lane, lane, priority, priority, is_apart, is_apart),
        )
        return int(count)

    # ------------------------------------------------------------------ durable steps

    async def commit(self, step: DurableStep) -> tuple[StoredReply, ...]:
        """See `Database`."""
        files: dict[str, list[str]] = {}
        for path, lines in step.lines:
            files.setdefault(path, []).extend(lines)
        expected = step.after if files else None
        posts = step.posts
        types, ids = _address_values(post.message.channel.address for post in posts)
        asked: dict[str, Any] = {
            "request_id": step.id,
            "node_id": step.node,
            "lease_keys": [lease.owner for lease in step.leases],
            "tokens": [lease.token for lease in step.leases],
            # What has left lines at a known place, or replies alone, is recognised by these.
            "is_named": bool(files) and (expected is None or not next(iter(files.values()))),
            "expected": expected,
            "paths": list(files),
            "counts": [len(lines) for lines in files.values()],
            "sizes": [sum(len(line.encode()) + 1 for line in lines) for lines in files.values()],
            "bodies": [line for lines in files.values() for line in lines],
            "post_keys": [post.key for post in posts],
            "types": types,
            "channel_ids": ids,
            "channels": [encode_json(to_wire(post.message.channel)) for post in posts],
            "messages": [encode_json(to_wire(post.message)) for post in posts],
            "ats": [post.at for post in posts],
        }
        found = await self._rows("select * from pegasus.commit(%s::jsonb)", encode_json(asked))
        return tuple(
            StoredReply(
                attrs.evolve(post.message, seq=seq, key=post.key)
                if channel is None
                else _reply(post.key, seq, channel, message),
                is_acknowledged=is_acked,
                is_new=is_new,
            )
            for post, (seq, is_new, is_acked, channel, message) in zip(posts, found, strict=True)
        )

    async def posted(self, keys: Sequence[str]) -> tuple[StoredReply | None, ...]:
        """See `Database`."""
        found = await self._rows(f"select {_REPLY} from {_REPLIES} where r.key = any (%s::text[])", list(keys))
        known = {row[0]: _stored_reply(row) for row in found}
        return tuple(known.get(key) for key in keys)

    async def replies(self, after: Mapping[Address, int], limit: int) -> tuple[StoredReply, ...]:
        """See `Database`."""
        found = await self._rows(
            f"select {_REPLY} from {_REPLIES} join unnest(%s::text[], %s::text[], %s::bigint[]) as a(type, channel_id, seq) "
            "on r.type = a.type and r.channel_id = a.channel_id and r.seq > a.seq order by r.type, r.channel_id, r.seq limit %s",
            *(*_address_values(after), list(after.values()), limit),
        )
        return tuple(_stored_reply(row) for row in found)

    async def unacknowledged(self, type: str, channel_id: str | None, limit: int) -> tuple[StoredReply, ...]:
        """See `Database`."""
        found = await self._rows(
            f"select {_REPLY} from pegasus.numbering n join pegasus.reply r "
            "on r.type = n.type and r.channel_id = n.channel_id and r.seq > n.acked "
            "where n.acked < n.last and n.type = %s and (%s::text is null or n.channel_id = %s) "
            "order by r.type, r.channel_id, r.seq limit %s",
            *(type, channel_id, channel_id, limit),
        )
        return tuple(_stored_reply(row) for row in found)

    async def open_replies(self, address: Address | None, limit: int) -> tuple[UnacknowledgedReply, ...]:
        """See `Database`."""
        found = await self._rows(
            "select r.type, r.channel_id, r.seq, r.key from pegasus.numbering n join pegasus.reply r "
            "on r.type = n.type and r.channel_id = n.channel_id and r.seq > n.acked "
            "where n.acked < n.last and (%s::text is null or (n.type = %s and n.channel_id = %s)) "
            "order by r.type, r.channel_id, r.seq limit %s",
            *(address and address.type, address and address.type, address and address.channel_id, limit),
        )
        return tuple(UnacknowledgedReply(Address(type, id), seq, key) for type, id, seq, key in found)

    async def unfetched(self, before: int, limit: int) -> tuple[StoredReply, ...]:
        """See `Database`."""
        found = await self._rows(
            f"select distinct on (r.type, r.channel_id) {_REPLY} from pegasus.numbering n join pegasus.reply r "
            "on r.type = n.type and r.channel_id = n.channel_id and r.seq > n.acked and r.at < %s "
            "where n.acked < n.last order by r.type, r.channel_id, r.seq desc limit %s",
            *(before, limit),
        )
        return tuple(_stored_reply(row) for row in found)

    async def open_channels(self, type: str) -> tuple[str, ...]:
        """See `Database`."""
        found = await self._rows(
            "select channel_id from pegasus.numbering where type = %s and acked < last order by channel_id", type
        )
        return tuple(id for (id,) in found)

    async def numberings(self, addresses: Collection[Address]) -> Mapping[Address, Numbering]:
        """See `Database`."""
        found = await self._rows(
            "select n.type, n.channel_id, n.last, n.acked from pegasus.numbering n "
            "join unnest(%s::text[], %s::text[]) as a(type, channel_id) using (type, channel_id)",
            *_address_values(addresses),
        )
        return {Address(type, id): Numbering(last, acked) for type, id, last, acked in found}

    async def owed(self, node: int) -> Mapping[Address, Numbering]:
        """See `Database`."""
        found = await self._rows(
            "select n.type, n.channel_id, n.last, n.acked from pegasus.numbering n where n.acked < n.last and exists ("
            "select from pegasus.connection c where c.node = %s and c.type = n.type and (c.is_whole or c.channel_id = n.channel_id))",
            node,
        )
        return {Address(type, id): Numbering(last, acked) for type, id, last, acked in found}

    # ------------------------------------------------------------------ addresses

    async def connect(
        self, node: int, number: int, places: Collection[tuple[str, str | None]], *, is_connected: bool
    ) -> None:
        """See `Database`."""
        await self._rows(
            "select pegasus.connect(%s::bigint, %s::bigint, %s::text[], %s::text[], %s::text[], %s)",
            node,
            number,
            [type for type, _ in places],
            [id for _, id in places],
            [None if id is None else escape_field(id) for _, id in places],
            is_connected,
        )

    async def addresses(self, channel_id: str | None, limit: int) -> tuple[KnownAddress, ...]:
        """See `Database`."""
        escaped = None if channel_id is None else escape_field(channel_id)
        found = await self._rows(
            "select type, channel_id, heard from pegasus.address where %s::text is null or escaped = %s order by seen desc limit %s",
            *(escaped, escaped, limit),
        )
        return tuple(KnownAddress(Address(type, id), heard) for type, id, heard in found)

    async def served_types(self) -> frozenset[str]:
        """See `Database`."""
        found = await self._rows(
            "select c.type from pegasus.connection c join pegasus.node n on n.id = c.node "
            "where c.is_whole and n.until > clock_timestamp()"
        )
        return frozenset(type for (type,) in found)

    # ------------------------------------------------------------------ files

    async def read(self, path: str) -> bytes:
        """See `Database`."""
        found = await self._rows(
            "select f.content, (select string_agg(l.body || chr(10), '' order by l.no) from pegasus.line l where l.file = f.id) "
            "from pegasus.file f where f.path = %s",
            path,
        )
        content, lines = found[0] if found else (None, None)
        return bytes(content) if content is not None else (lines or "").encode()

    async def read_lines(self, after: Mapping[str, int]) -> Mapping[str, Sequence[str]]:
        """See `Database`."""
        found = await self._rows(
            "select f.path, l.body from unnest(%s::text[], %s::bigint[]) as a(path, no) join pegasus.file f on f.path = a.path "
            "join pegasus.line l on l.file = f.id and l.no > a.no order by l.file, l.no",
            *(list(after), list(after.values())),
        )
        lines = defaultdict[str, list[str]](list)
        for path, body in found:
            lines[path].append(body)
        return lines

    async def replace(self, path: str, content: bytes, at: int, lease: Lease | None) -> None:
        """See `Database`."""
        await self._rows(
            "select pegasus.replace(%s, %s::text[], %b, %s::bigint, %s::text[], %s::bigint[])",
            *(path, *_content_values(path, content), at, *_lease_values(lease)),
            size=len(content),
        )

    async def archive(self, id: str, path: str, name: str, content: bytes, at: int, lease: Lease | None) -> bool:
        """See `Database`."""
        [(is_done,)] = await self._rows(
            "select pegasus.archive(%s, %s, %s, %s::text[], %b, %s::bigint, %s::text[], %s::bigint[])",
            *(id, path, f"{path.rpartition('/')[0]}/{name}"),
            *(*_content_values(path, content), at, *_lease_values(lease)),
            size=len(content),
        )
        return bool(is_done)

    async def names(self, folder: str, beginning: str = "") -> tuple[tuple[str, int, int], ...]:
        """See `Database`."""
        start = folder.rstrip("/") + "/"
        found = await self._rows(
            # "0" follows "/": what lies between begins with the folder.
            "select substr(path, %s), size, at from pegasus.file where path >= %s and path < %s "
            "and strpos(substr(path, %s), '/') = 0 and starts_with(path, %s) order by path",
            *(len(start) + 1, start + beginning, start[:-1] + "0", len(start) + 1, start + beginning),
        )
        return tuple(found)

    async def remove(self, paths: Collection[str]) -> None:
        """See `Database`."""
        await self._rows("select pegasus.remove(%s::text[])", list(paths))

    # ------------------------------------------------------------------ rows and budgets

    async def read_rows(self, collection: str, owner: str) -> Rows:
        """See `Database`."""
        found = await self._rows(
            "select c.version, r.key, r.body from pegasus.collection c "
            "left join pegasus.row r on r.collection = c.name and r.owner = c.owner "
            "where c.name = %s and c.owner = %s order by r.place",
            *(collection, owner),
        )
        return Rows(found[0][0], {key: body for _, key, body in found if key is not None}) if found else Rows(0, {})

    async def put_rows(
        self, id: str, collection: str, owner: str, put: Mapping[str, str], delete: Collection[str], version: int
    ) -> int:
        """See `Database`."""
        [(new,)] = await self._rows(
            "select pegasus.put_rows(%s, %s, %s, %s::text[], %s::text[], %s::text[], %s::bigint)",
            *(id, collection, owner, list(put), list(put.values()), list(delete), version),
        )
        return int(new)

    async def versions(self, collections: Collection[tuple[str, str]]) -> Mapping[tuple[str, str], int]:
        """See `Database`."""
        found = await self._rows(
            "select c.name, c.owner, c.version from pegasus.collection c "
            "join unnest(%s::text[], %s::text[]) as a(name, owner) on c.name = a.name and c.owner = a.owner",
            *([name for name, _ in collections], [owner for _, owner in collections]),
        )
        return {(name, owner): version for name, owner, version in found}

    async def lengths(self, paths: Collection[str]) -> Mapping[str, int]:
        """See `Database`."""
        return dict(
            await self._rows(
                "select path, lines from pegasus.file where path = any (%s::text[]) and content is null", list(paths)
            )
        )

    async def reserve(self, node: int, budget: str, id: str, amount: float, limit: float) -> float | None:
        """See `Database`."""
        [(spent,)] = await self._rows(
            "select pegasus.reserve(%s::bigint, %s, %s, %s, %s)", node, budget, id, amount, limit
        )
        return None if spent is None else float(spent)

    async def settle(self, budget: str, id: str, spent: float) -> None:
        """See `Database`."""
        await self._rows("select pegasus.settle(%s, %s, %s)", budget, id, spent)

    # ------------------------------------------------------------------ moving

    async def fill(self, mark: str, contents: Callable[[], AsyncIterable[Content]]) -> bool:
        """See `Database`."""
        await self.prepare()
        with explained():
            async with self._pool.connection() as connection, connection.transaction():
                return await fill_from(connection, mark, contents)

    @asynccontextmanager
    async def contents(self, paths: Collection[str] = ()) -> AsyncIterator[AsyncIterator[Content]]:
        """See `Database`."""
        await self.prepare()
        with explained():
            async with self._pool.connection() as connection, connection.transaction():
                await connection.execute("set transaction isolation level repeatable read, read only")
                async with aclosing(contents_of(connection, paths)) as found:
                    yield found

    # ------------------------------------------------------------------ notices

    async def notify(self, notice: Notice) -> None:
        """See `Database`."""
        await self._rows("select pegasus.tell(%s, %s)", notice.kind, notice.payload)

    async def next_notices(self) -> tuple[Notice, ...]:
        """See `Database`. One task may wait at a time."""
        await self.prepare()
        try:
            with explained():
                if self._listener is None:
                    self._listener = await self._listen()
                    return ()
                while not self._heard:
                    await self._listener.wait(generators.notifies(self._listener.pgconn))
        finally:
            if self._listener is not None and self._listener.closed:
                self._listener = None
        heard, self._heard = tuple(self._heard), []
        return heard

    async def _listen(self) -> TrioConnection:
        """Return a connection that hears notices."""
        connection = await self._pool.open()
        connection.add_notify_handler(lambda notice: self._heard.append(Notice(*notice.payload.split(" ", 1))))
        try:
            await connection.execute("listen pegasus")
        except BaseException:
            connection.shut()
            raise
        return connection

    async def aclose(self) -> None:
        """See `Database`."""
        self._pool.close()
        self._renewals.close()
        if self._listener is not None:
            self._listener.shut()
        await trio.lowlevel.checkpoint()


# ------------------------------------------------------------------ values


def _item_values(item: NewItem) -> list[Any]:
    """Return the values of `pegasus.new_item`."""
    return [
        *(item.key, item.address.type, item.address.channel_id, escape_field(item.address.channel_id), item.dedupe),
        *(item.message, item.lane, item.priority, item.at, item.is_owners, item.sender, item.max_of_sender),
        *(item.is_apart, item.is_internal, item.heard, item.hears),
    ]


def _lease_values(lease: Lease | None) -> tuple[list[str], list[int]]:
    """Return keys and tokens for `pegasus.are_held`."""
    return ([], []) if lease is None else ([lease.owner], [lease.token])


def _address_values(addresses: Any) -> tuple[list[str], list[str]]:
    """Return the types and the channelIds."""
    addresses = list(addresses)
    return [address.type for address in addresses], [address.channel_id for address in addresses]


def _content_values(path: str, content: bytes) -> tuple[list[str], bytes | None]:
    """Return lines and None, or no lines and the content."""
    if not path.endswith(".jsonl"):
        return [], content
    return (content.decode().removesuffix("\n").split("\n") if content else []), None


def _stored_item(row: tuple[Any, ...]) -> StoredItem:
    """Return an item of the columns of _ITEM."""
    n, key, type, channel_id, *values, discarded = row
    dedupe, message, lane, priority, at, is_owners, sender, is_apart, is_internal = values
    item = NewItem(key, Address(type, channel_id), dedupe, message, lane, priority, at, is_owners, sender)
    return StoredItem(n, attrs.evolve(item, is_apart=is_apart, is_internal=is_internal), discarded)


def _reply(key: str, seq: int, channel: str, message: str) -> OutboundMessage:
    """Return a reply of its columns; with the text "" if that was forgotten."""
    if not message:
        return OutboundMessage("", from_wire(decode_object(channel), ChannelInfo), seq, key=key)
    return attrs.evolve(from_wire(decode_object(message), OutboundMessage), seq=seq, key=key)


def _stored_reply(row: tuple[Any, ...]) -> StoredReply:
    """Return a reply of the columns of _REPLY."""
    key, seq, channel, message, is_acknowledged = row
    return StoredReply(_reply(key, seq, channel, message), is_acknowledged)
