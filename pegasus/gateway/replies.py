"""The replies one connection is owed: pushed as they come, read from the journal where it was not there to be pushed to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from actors import ActorError
from pegasus.channels.intake import JOURNAL_TIMEOUT
from pegasus.gateway import render
from pegasus.gateway.codes import SERVER_ERROR
from pegasus.gateway.delivery import Cursor, Verdict
from pegasus.gateway.frames import Hello
from pegasus.messages import Address, OutboundMessage
from pegasus.observe import get_logger
from pegasus.storage.messages import LastSeq, StorageError, Unacknowledged

if TYPE_CHECKING:
    from pegasus.gateway.connection import Connection
    from pegasus.gateway.hub import Hub

After: TypeAlias = tuple[tuple[str, int], ...]

PAGE = 200
"""Replies asked for at first; each further time twice as many, because asking for those after a seq would acknowledge it."""

_log = get_logger("gateway")


class Replies:
    """Cursors by channelId: one for a client of an address, one for each address a bridge has to do with."""

    def __init__(self, connection: Connection, hub: Hub, hello: Hello) -> None:
        self._connection = connection
        self._hub = hub
        self._hello = hello
        self._cursors: dict[str, Cursor] = {}
        self._being_read: set[str] = set()
        if hello.channel is not None:
            self._cursors[hello.channel.channel_id] = Cursor(0, fetching=True)
        self._complete = hello.channel is not None
        """Whether nothing that was waiting at hello is left to be read, so that an unknown address begins with a push."""

    def deliver(self, message: OutboundMessage) -> None:
        """A reply was pushed."""
        channel_id = message.channel.channel_id
        verdict = self._cursor(channel_id, message.seq - 1).offer(message)
        if verdict is Verdict.SEND:
            self._connection.push(render.reply(message))
        elif verdict is Verdict.FETCH:
            self._start_reading(channel_id)

    def after(self, channel_id: str, frame: str, last: int) -> None:
        """Send a frame that must not overtake the replies up to seq `last` (0: none)."""
        cursor = self._cursors.get(channel_id)
        if cursor is None:
            if last == 0 or not self._complete:
                self._connection.push(frame)
                return
            cursor = self._cursors[channel_id] = Cursor(self._hello.last.get(channel_id, 0))
        now, read = cursor.after(frame, last)
        if now is not None:
            self._connection.push(now)
        if read:
            self._start_reading(channel_id)

    def catch_up(self, channel_id: str) -> None:
        """Read from the journal what may have been missed at this address."""
        cursor = self._cursor(channel_id, self._hello.last.get(channel_id, 0))
        if cursor.read():
            self._start_reading(channel_id)

    def catch_up_all(self) -> None:
        """The same for all addresses known here."""
        for channel_id in list(self._cursors):
            self.catch_up(channel_id)

    async def first(self, last: int) -> None:
        """Send what was waiting at hello. last: the seq assigned last to the address, as told in `welcome`."""
        said = self._hello.last
        with self._or_disconnect():
            if self._hello.channel is None:
                await self._read_type(tuple(said.items()))
                return
            channel_id = self._hello.channel.channel_id
            has = min(said.get(channel_id, 0), last)
            self._cursors[channel_id].sent = has
            await self._read_address(channel_id, ((channel_id, has),) if channel_id in said else ())

    # ---------------------------------------------------------------- from the journal

    def _start_reading(self, channel_id: str) -> None:
        self._being_read.add(channel_id)
        self._connection.start(partial(self._read_again, channel_id))

    async def _read_again(self, channel_id: str) -> None:
        with self._or_disconnect():
            await self._read_address(channel_id, ())

    async def _read_address(self, channel_id: str, after: After) -> None:
        """Read one address until nothing of it is missing, then let its pushes through again."""
        cursor = self._cursors[channel_id]
        address = Address(self._hello.type, channel_id)
        while True:
            last = await self._hub.journal.ask(LastSeq, address, timeout=JOURNAL_TIMEOUT)
            await self._read(channel_id, after)
            await self._send_aside(cursor)
            if not cursor.must_fetch_again():
                break
        self._being_read.discard(channel_id)
        for frame in cursor.settle(last):
            self._connection.push(frame)

    async def _read_type(self, after: After) -> None:
        """Read what is waiting for a whole channel type, then let the pushes of its addresses through."""
        await self._read(None, after)
        self._complete = True
        for channel_id, cursor in list(self._cursors.items()):
            if not cursor.fetching or channel_id in self._being_read:
                continue
            await self._send_aside(cursor)
            if cursor.must_fetch_again() or cursor.holds():
                self._start_reading(channel_id)
            else:
                cursor.settle(cursor.sent)

    async def _read(self, channel_id: str | None, after: After) -> None:
        """Send what nobody acknowledged, as far as it was not sent here before."""
        limit = PAGE
        while True:
            replies = await self._hub.journal.ask(
                Unacknowledged, self._hello.type, channel_id, after, limit, timeout=JOURNAL_TIMEOUT
            )
            for message in replies:
                await self._send_read(message)
            if len(replies) < limit:
                return
            limit *= 2

    async def _send_read(self, message: OutboundMessage) -> None:
        address = message.channel.address
        if self._hello.channel is None and self._hub.routes.has_own_client(address):
            # Its own client is given it. The cursor stays where it is, so that the gap shows when it falls to us.
            if address.channel_id not in self._cursors:
                self._cursors[address.channel_id] = Cursor(self._hello.last.get(address.channel_id, 0))
            return
        if self._cursor(address.channel_id, 0).take(message):
            await self._put(message)

    async def _send_aside(self, cursor: Cursor) -> None:
        while (message := cursor.aside()) is not None:
            await self._put(message)

    async def _put(self, message: OutboundMessage) -> None:
        await self._connection.outgoing.room()
        self._connection.push(render.reply(message))

    def _cursor(self, channel_id: str, sent: int) -> Cursor:
        """The cursor of an address; a new one begins at `sent`, or where the client says it is, if that is still read."""
        cursor = self._cursors.get(channel_id)
        if cursor is None:
            cursor = Cursor(sent) if self._complete else Cursor(self._hello.last.get(channel_id, 0), fetching=True)
            self._cursors[channel_id] = cursor
        return cursor

    @contextmanager
    def _or_disconnect(self) -> Iterator[None]:
        """Without the journal nothing can be promised: the client is to come again."""
        try:
            yield
        except (ActorError, StorageError) as error:
            _log.error("replies could not be read", client=str(self._connection), error=str(error))
            self._connection.close(SERVER_ERROR, "the journal does not answer; come again")
