"""The replies one connection is owed: pushed as they come, read from the journal where it was not there to be pushed to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from actors import ActorError
from pegasus.gateway import render
from pegasus.gateway.delivery import Cursor, Verdict
from pegasus.gateway.frames import Hello
from pegasus.intake import JOURNAL_TIMEOUT
from pegasus.messages import Address, OutboundMessage
from pegasus.observe import get_logger
from pegasus.protocol import SERVER_ERROR
from pegasus.storage import LastSeq, StorageError, Unacknowledged

if TYPE_CHECKING:
    from pegasus.gateway.connection import Connection
    from pegasus.gateway.hub import Hub

After: TypeAlias = tuple[tuple[str, int], ...]

PAGE = 200
"""Replies asked for at first; each further time twice as many, because asking for those after a seq would acknowledge it."""

ROUNDS = 20
"""Times an address is read again because pushes came meanwhile that could not be kept."""

_log = get_logger("gateway")


class Replies:
    """Cursors by channelId: one for a client of an address, one for each address a bridge has to do with."""

    def __init__(self, connection: Connection, hub: Hub, hello: Hello) -> None:
        self._connection = connection
        self._hub = hub
        self._hello = hello
        self._cursors: dict[str, Cursor] = {}
        self._being_read: set[str] = set()
        self._has: dict[str, int] = {}
        self._welcome_seq = 0
        self._complete = False
        """Whether nothing that was waiting at hello is left to be read; until then all pushes are kept aside."""
        if hello.channel is not None:
            self._cursor(hello.channel.channel_id)

    def deliver(self, message: OutboundMessage) -> None:
        """A reply was pushed."""
        channel_id = message.channel.channel_id
        verdict = self._cursor(channel_id).offer(message)
        if verdict is Verdict.SEND:
            self._connection.push(render.reply(message))
        elif verdict is Verdict.FETCH:
            self._start_reading(channel_id)

    def after(self, channel_id: str, frame: str, last: int) -> None:
        """Send a frame that must not overtake the replies up to seq `last` (0: none)."""
        cursor = self._cursors.get(channel_id)
        if cursor is None:
            if last == 0:
                self._connection.push(frame)
                return
            cursor = self._cursor(channel_id)
        now, read = cursor.after(frame, last)
        if now is not None:
            self._connection.push(now)
        if read:
            self._start_reading(channel_id)

    def draft(self, channel_id: str, frame: str) -> None:
        """Send a frame that a client which is behind can do without."""
        cursor = self._cursors.get(channel_id)
        if not self._connection.outgoing.is_behind and (cursor is None or not cursor.holds()):
            self._connection.push(frame)

    def catch_up(self, channel_id: str) -> None:
        """Read from the journal what may have been missed at this address."""
        cursor = self._cursor(channel_id)
        if cursor.missed():
            self._start_reading(channel_id)

    def catch_up_all(self) -> None:
        """The same for all addresses known here."""
        for channel_id in list(self._cursors):
            self.catch_up(channel_id)

    async def greet(self) -> int:
        """Look up what `welcome` tells: the seq assigned last to the address, 0 for a bridge.

        A client cannot have what was never said, but may believe so, if it has talked to a home that is gone: what it
        claims is cut down to what there is at this moment.
        """
        for channel_id, seq in self._hello.last.items():
            self._has[channel_id] = min(seq, await self._last_seq(channel_id))
        if self._hello.channel is not None:
            self._welcome_seq = await self._last_seq(self._hello.channel.channel_id)
        return self._welcome_seq

    async def first(self) -> None:
        """Send what was waiting at hello."""
        for channel_id, seq in self._has.items():
            self._cursor(channel_id).skip_to(seq)
        after = tuple(self._has.items())
        with self._or_disconnect():
            if self._hello.channel is None:
                await self._read_type(after)
            else:
                await self._read_address(self._hello.channel.channel_id, after, self._welcome_seq)

    # ---------------------------------------------------------------- from the journal

    def _start_reading(self, channel_id: str) -> None:
        self._being_read.add(channel_id)
        self._connection.start(partial(self._read_again, channel_id))

    async def _read_again(self, channel_id: str) -> None:
        with self._or_disconnect():
            await self._read_address(channel_id, (), 0)

    async def _read_address(self, channel_id: str, after: After, not_owed: int) -> None:
        """Read one address until nothing of it is missing, then let its pushes through again.

        not_owed: what is not found up to this seq is acknowledged, and not owed even if it is pushed once more.
        """
        cursor = self._cursor(channel_id)
        for _ in range(ROUNDS):
            last = await self._last_seq(channel_id)
            if await self._read(channel_id, after):
                self._end_reading(channel_id, cursor.leave_to_others())
                return
            cursor.skip_to(not_owed)
            await self._send_aside(cursor, last)
            if not cursor.must_read_again():
                self._end_reading(channel_id, cursor.settle(last))
                return
        self._disconnect(f"replies to {channel_id} come faster than they can be read")

    async def _read_type(self, after: After) -> None:
        """Read what is waiting for a whole channel type, then let the pushes of its addresses through."""
        others = await self._read(None, after)
        self._complete = True
        for channel_id, cursor in list(self._cursors.items()):
            if not cursor.fetching or channel_id in self._being_read:
                continue
            if channel_id in others:
                self._end_reading(channel_id, cursor.leave_to_others())
                continue
            await self._send_aside(cursor, cursor.sent)
            if cursor.must_read_again() or cursor.holds():
                self._start_reading(channel_id)
            else:
                cursor.settle(cursor.sent)

    def _end_reading(self, channel_id: str, held: list[str]) -> None:
        self._being_read.discard(channel_id)
        for frame in held:
            self._connection.push(frame)

    async def _read(self, channel_id: str | None, after: After) -> set[str]:
        """Send what nobody acknowledged, as far as it was not sent here before.

        Gives the channelIds that a bridge leaves to clients of their own: of those, nothing more was sent, so that the gap
        shows when they fall to it.
        """
        others: set[str] = set()
        limit, found = PAGE, 0
        while True:
            replies = await self._hub.journal.ask(
                Unacknowledged, self._hello.type, channel_id, after, limit, timeout=JOURNAL_TIMEOUT
            )
            for message in replies:
                await self._send_read(message, others)
            if len(replies) <= found:  # not `< limit`: one that cannot be read back is missing from an answer
                return others
            limit, found = limit * 2, len(replies)

    async def _send_read(self, message: OutboundMessage, others: set[str]) -> None:
        address = message.channel.address
        cursor = self._cursor(address.channel_id)
        if self._hello.channel is None and self._hub.routes.has_own_client(address):
            others.add(address.channel_id)
        if address.channel_id not in others and cursor.take(message):
            await self._put(message)

    async def _last_seq(self, channel_id: str) -> int:
        address = Address(self._hello.type, channel_id)
        return await self._hub.journal.ask(LastSeq, address, timeout=JOURNAL_TIMEOUT)

    async def _send_aside(self, cursor: Cursor, last: int) -> None:
        while (message := cursor.aside(last)) is not None:
            await self._put(message)

    async def _put(self, message: OutboundMessage) -> None:
        await self._connection.outgoing.room()
        self._connection.push(render.reply(message))

    def _cursor(self, channel_id: str) -> Cursor:
        """The cursor of an address; a new one begins at 0, so that a gap shows what is owed."""
        cursor = self._cursors.get(channel_id)
        if cursor is None:
            cursor = self._cursors[channel_id] = Cursor(0, fetching=not self._complete)
        return cursor

    @contextmanager
    def _or_disconnect(self) -> Iterator[None]:
        """Without the journal nothing can be promised: the client is to come again."""
        try:
            yield
        except (ActorError, StorageError) as error:
            self._disconnect(str(error))

    def _disconnect(self, why: str) -> None:
        _log.error("replies could not be read; the client is to come again", client=str(self._connection), why=why)
        self._connection.close(SERVER_ERROR, "replies could not be read; come again")
