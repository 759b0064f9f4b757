"""All that a PostgreSQL holds as values, read at one moment or filled in one transaction."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Collection
from typing import Any, Final, LiteralString

import attrs

from pegasus.messages import Address, ChannelInfo, OutboundMessage, escape_field
from pegasus.storage.database.connection import TrioConnection, fetch
from pegasus.storage.database.tables import (
    Content,
    FileContents,
    InboxItem,
    KnownAddress,
    NewItem,
    Numbers,
    PostedReply,
    ReplyNumbers,
    RowsContents,
)
from pegasus.storage.row_files import ROW_FILES, rows_path
from pegasus.wire import decode_object, encode_json, from_wire, to_wire

_AT_ONCE: Final = 500
"""Rows of a table that are sent together."""
_NO_HURRY: Final = "set local statement_timeout = 0; set local idle_in_transaction_session_timeout = 0"
"""The other side of a move may be slow."""


# ------------------------------------------------------------------ reading


async def contents_of(connection: TrioConnection, paths: Collection[str]) -> AsyncGenerator[Content, None]:
    """Yield what `Database.contents` says. The connection is in a transaction that sees one moment."""
    await connection.execute(_NO_HURRY)
    starts = tuple(paths)

    def is_wanted(path: str) -> bool:
        return not starts or path.startswith(starts)

    if is_wanted("inbox/"):
        [(last_n,)] = await fetch(
            connection, "select case when is_called then last_value else 0 end from pegasus.item_numbers"
        )
        yield Numbers(last_n)
        async for type, id, heard in _each(
            connection, "select type, channel_id, heard from pegasus.address order by seen"
        ):
            yield KnownAddress(Address(type, id), heard)
        async for n, key, type, id, *values, done_at in _each(
            connection,
            "select n, key, type, channel_id, dedupe, message, lane, priority, at, is_owners, sender, is_apart, is_internal, done_at "
            "from pegasus.item order by n",
        ):
            dedupe, message, lane, priority, at, is_owners, sender, is_apart, is_internal = values
            item = NewItem(key, Address(type, id), dedupe, message, lane, priority, at, is_owners, sender)
            yield InboxItem(n, attrs.evolve(item, is_apart=is_apart, is_internal=is_internal), done_at)
    if is_wanted("outbox/"):
        known = None
        async for type, id, last, acked, key, seq, channel, message, at in _each(
            connection,
            "select n.type, n.channel_id, n.last, n.acked, r.key, r.seq, r.channel, r.message, r.at from pegasus.numbering n "
            "left join pegasus.reply r on r.type = n.type and r.channel_id = n.channel_id order by n.type, n.channel_id, r.seq",
        ):
            address = Address(type, id)
            if address != known:
                known = address
                yield ReplyNumbers(address, last, acked)
            if key is not None:
                yield PostedReply(key, from_wire(decode_object(channel), ChannelInfo), seq, _numbered(message, seq), at)
    async for file, path, content, at in _each(
        connection, "select id, path, content, at from pegasus.file order by path"
    ):
        if is_wanted(path):
            if content is None:
                lines = await fetch(connection, "select body from pegasus.line where file = %s order by no", file)
                content = "".join(f"{body}\n" for (body,) in lines).encode()
            yield FileContents(path, bytes(content), at)
    for name, owner in await fetch(connection, "select name, owner from pegasus.collection order by name, owner"):
        # A newer program may have collections that this one does not know. Who reads a part has not asked for them.
        if is_wanted(rows_path(name, owner) if name in ROW_FILES else name):
            rows = await fetch(
                connection,
                "select key, body from pegasus.row where collection = %s and owner = %s order by place",
                name,
                owner,
            )
            yield RowsContents(name, owner, dict(rows))


async def _each(connection: TrioConnection, statement: LiteralString) -> AsyncIterator[tuple[Any, ...]]:
    """Yield the rows of a statement, which need not fit into memory."""
    name = f"c{abs(hash(statement))}"
    async with connection.cursor(name=name) as cursor:
        cursor.itersize = _AT_ONCE
        await cursor.execute(statement)
        async for row in cursor:
            yield row


def _numbered(message: str, seq: int) -> str:
    """Return the JSON of a reply with its number, which it got after it was written down."""
    return message and encode_json(to_wire(attrs.evolve(from_wire(decode_object(message), OutboundMessage), seq=seq)))


# ------------------------------------------------------------------ filling


async def fill_from(connection: TrioConnection, mark: str, contents: Callable[[], AsyncIterable[Content]]) -> bool:
    """Do what `Database.fill` says. The connection is in a transaction."""
    await connection.execute(_NO_HURRY)
    [(known,)] = await fetch(connection, "select mark from pegasus.version for update")
    if known == mark:
        return True
    [(is_empty,)] = await fetch(
        connection,
        "select not exists (select from pegasus.file) and not exists (select from pegasus.collection) "
        "and not exists (select from pegasus.item) and not exists (select from pegasus.reply) "
        "and not exists (select from pegasus.node where until > clock_timestamp())",
    )
    if not is_empty:
        return False
    tables = _Tables(connection)
    async for content in contents():
        await tables.put(content)
    await tables.flush()
    await fetch(
        connection,
        "insert into pegasus.owned (key, due_at, last_n) select key, to_timestamp(min(at) filter (where done_at is null) / 1000.0), "
        "max(n) from pegasus.item where key <> '' group by key",
    )
    await fetch(connection, "update pegasus.version set mark = %s", mark)
    return True


_INSERTS: Final[dict[str, LiteralString]] = {
    "address": "insert into pegasus.address (type, channel_id, escaped, heard, seen) "
    "values (%s, %s, %s, %s, nextval('pegasus.seen_order'))",
    "item": "insert into pegasus.item (n, key, type, channel_id, dedupe, message, lane, priority, at, is_owners, sender, is_apart, "
    "is_internal, done_at) values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
    "numbering": "insert into pegasus.numbering (type, channel_id, last, acked) values (%s, %s, %s, %s)",
    "reply": "insert into pegasus.reply (key, type, channel_id, seq, channel, message, at, request) "
    "values (%s, %s, %s, %s, %s, %s, %s, '')",
    "file": "insert into pegasus.file (id, path, lines, size, content, at) values (%s, %s, %s, %s, %s, %s)",
    "line": "insert into pegasus.line (file, no, body) values (%s, %s, %s)",
    "collection": "insert into pegasus.collection (name, owner, version) values (%s, %s, 1)",
    "row": "insert into pegasus.row (collection, owner, key, body) values (%s, %s, %s, %s)",
}


class _Tables:
    """Rows on their way into the tables, sent many at a time."""

    def __init__(self, connection: TrioConnection) -> None:
        self._connection = connection
        self._rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in _INSERTS}
        self._last_n = 0

    async def put(self, content: Content) -> None:
        """Put one part of the contents."""
        match content:
            case Numbers(last_n):
                self._last_n = last_n
            case KnownAddress(address, heard):
                await self._add("address", address.type, address.channel_id, escape_field(address.channel_id), heard)
            case InboxItem(n, item, done_at):
                place = (
                    item.address.type,
                    item.address.channel_id,
                    item.dedupe,
                    item.message,
                    item.lane,
                    item.priority,
                )
                kind = (item.at, item.is_owners, item.sender, item.is_apart, item.is_internal)
                await self._add("item", n, item.key, *place, *kind, done_at)
            case ReplyNumbers(address, last, acked):
                await self._add("numbering", address.type, address.channel_id, last, acked)
            case PostedReply(key, channel, seq, message, at):
                words = encode_json(to_wire(channel))
                await self._add("reply", key, channel.type, channel.channel_id, seq, words, message, at)
            case FileContents(path, data, at):
                await self._put_file(path, data, at)
            case RowsContents(name, owner, rows):
                await self._add("collection", name, owner)
                for key, body in rows.items():
                    await self._add("row", name, owner, key, body)

    async def _put_file(self, path: str, data: bytes, at: int) -> None:
        [(number,)] = await fetch(self._connection, "select nextval('pegasus.file_ids')")
        lines = data.decode().removesuffix("\n").split("\n") if data and path.endswith(".jsonl") else []
        await self._add("file", number, path, len(lines), len(data), None if path.endswith(".jsonl") else data, at)
        for no, line in enumerate(lines, 1):
            await self._add("line", number, no, line)

    async def _add(self, table: str, *values: Any) -> None:
        self._rows[table].append(values)
        if len(self._rows[table]) >= _AT_ONCE:
            await self._send(table)

    async def _send(self, table: str) -> None:
        rows, self._rows[table] = self._rows[table], []
        if rows:
            async with self._connection.cursor() as cursor:
                await cursor.executemany(_INSERTS[table], rows)

    async def flush(self) -> None:
        """Send what is left, and number further items above these."""
        for table in _INSERTS:
            await self._send(table)
        await fetch(
            self._connection,
            "select setval('pegasus.item_numbers', last) from (select greatest(%s, max(n)) as last from pegasus.item) as numbers "
            "where last > 0",
            self._last_n,
        )
