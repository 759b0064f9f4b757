"""The delivery log of a service: what the service has taken, with its message ids. One file for each channel type.

    {"channelId":"42","seq":13,"part":0,"of":2,"id":"8121"}      the service has taken piece 0 of reply 13, as its message 8121
    {"channelId":"42","seq":13,"part":1,"attempts":1}            the service is asked for the first time to take piece 1
                          "mark":"7c1f…"                         … and can be asked for it by this mark
    {"channelId":"42","draft":"8120"}                            message 8120 shows a draft; "" for none, "?…" before it is known;
                                                                 behind a space, what the adapter must know about it
    {"key":"approval/a-7f3k","value":{…}}                        anything that an adapter wants to find again

The line of a piece is on disk before the next piece is sent. So a crash repeats at most the one piece whose acknowledgement was not
recorded yet: not a long reply from its beginning, and not a reply whose acknowledgement the journal had not written yet.

Each attempt is on disk before it is made, so that a process that finds one knows that the message may be there (`attempts`). A draft
that may be shown counts as an attempt.

**Shared writes.** Whoever must know that a line is on disk writes it, with all that were added meanwhile, while the next ones wait: so
conversations share their writes, and the file has the lines in the order in which they were added. Where a piece has its attempt on
disk nobody needs to wait for its line: that of the next attempt comes behind it, and is waited for. A task of the adapter writes the
others (`write_all`). A reply is acknowledged when the lines of its pieces are on disk, since the journal forgets it then.

The file is `channels/<type>.jsonl` below data/, written by the journal. What is over is dropped when the file is rewritten: at a
start, and when it has got long.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

import attrs
import trio

from actors import ActorError, Ref, Signal
from pegasus.messages import Address, Json, Metadata, OutboundMessage
from pegasus.observe import get_logger
from pegasus.retry import retry
from pegasus.storage import Acknowledge, JournalMessage, Lease, LineStore, StorageError

LONGEST: Final = 5_000
"""Lines after which the file is rewritten."""
KEPT_REPLIES: Final = 1_000
"""Conversations of which the last delivered reply is kept."""
KEPT_FACTS: Final = 1_000
"""Facts of the adapter that are kept, the newest."""
ACCOUNT: Final = "account"
"""Key of the fact that is never forgotten: the first account of the service (`account_ids`)."""
STOP_TIME: Final = 1.0
"""Seconds in which a writer that is stopped may write what was added."""
UNSURE: Final = "?"
"""Begins what stands in place of the message id of a draft that the service was asked to show, before it is known whether it does."""
UNCONFIRMED: Final = "unconfirmed"
"""In place of the message id of a piece that is not sent again, though the service never said that it has taken it."""

_log = get_logger("channels")


@attrs.frozen
class Attempts:
    """Attempts to send a piece of which the outcome is not known: `Attempts(seq=13, part=1, count=1)`."""

    seq: int
    part: int
    count: int = 0
    mark: str = ""
    """By which the service can be asked for the message, "" if it cannot. With a count of 0 it should be asked, too: it has said that
    it failed, which may not be true."""

    @property
    def is_open(self) -> bool:
        """True if the piece may be there already."""
        return bool(self.count or self.mark)


@attrs.define(eq=False, repr=False)
class _DeliveredChat:
    """The last reply of a conversation that the service has taken, in whole or in part, and what came behind it."""

    seq: int = 0
    """Number of the reply within its conversation."""
    of: int = 0
    """Number of its pieces."""
    ids: list[str] = attrs.field(factory=list)
    """Message ids of the pieces that the service has taken."""
    attempts: Attempts = Attempts(0, 0)
    """Attempts without an answer."""
    draft: str = ""
    """Message id of the draft that is shown."""

    def lines(self, channel_id: str) -> list[dict[str, Json]]:
        """Return the lines of the log that say all this."""
        place: dict[str, Json] = {"channelId": channel_id}
        lines: list[dict[str, Json]] = [
            {**place, "seq": self.seq, "part": part, "of": self.of, "id": id} for part, id in enumerate(self.ids)
        ]
        if self.attempts.is_open:
            lines.append({**place, **_attempts_fields(self.attempts)})
        if self.draft:
            lines.append({**place, "draft": self.draft})
        return lines


class DeliveryLog:
    """Record of what one service has taken."""

    def __init__(self, type: str) -> None:
        self._type = type
        self._store: LineStore | None = None
        """None until `load`; then nothing is written."""
        self._chats: dict[str, _DeliveredChat] = {}
        """By channelId, the one with the latest reply last."""
        self._facts: dict[str, Json] = {}
        self._unwritten: list[dict[str, Json]] = []
        """Lines that are not known to be on disk."""
        self._delivered: dict[Address, int] = {}
        """Replies that are acknowledged when these lines are on disk: by address, the seq of the last one."""
        self._added = self._written = 0
        """Lines that were added in this process, and how many of them are on disk."""
        self._wanted = Signal()
        """Given when there is something that nobody else writes."""
        self._is_writing = False
        """Somebody writes, and all others wait for that."""
        self._progress = Signal()
        """Given when a write has ended."""

    async def load(self, journal: Ref[JournalMessage], lease: Lease | None = None) -> None:
        """Read the file and write to this journal from now on. Raises StorageError, ActorError.

        A second call only changes the journal: what is in memory is newer than the file. lease: by which this node serves the channel,
        None where there is one node. If another node has served it since the last call, the file is read again.
        """
        if (store := self._store) is not None:
            # A token grows by one each time that a node takes the channel.
            if lease is None or (store.lease is not None and lease.token == store.lease.token + 1):
                store.journal, store.lease = journal, lease
                return
            self._store = None
            self._chats, self._facts, self._unwritten, self._delivered = {}, {}, [], {}
            self._added = self._written = 0
        store = LineStore("channel-deliveries", journal, self._type)
        store.lease = lease
        await store.read(self._replay)
        self._store = store
        if store.lines:
            await self._rewrite(store)

    def _replay(self, record: Metadata) -> None:
        match record:
            case {"channelId": str(channel_id), "seq": int(seq), "part": int(part), "of": int(of), "id": str(id)}:
                self._note_piece(channel_id, seq, part, of, id)
            case {"channelId": str(channel_id), "seq": int(seq), "part": int(part), "attempts": int(count)}:
                self._chat(channel_id).attempts = Attempts(seq, part, count, str(record.get("mark") or ""))
            case {"channelId": str(channel_id), "draft": str(id)}:
                self._chat(channel_id).draft = id
            case {"key": str(key), "value": value}:
                self._note_fact(key, value)
            case _:
                raise ValueError("not a line of a delivery log")

    def _chat(self, channel_id: str) -> _DeliveredChat:
        return self._chats.setdefault(channel_id, _DeliveredChat())

    # ------------------------------------------------------------------ replies

    def ids_of(self, reply: OutboundMessage) -> list[str]:
        """Return the message ids of the pieces of this reply that the service has taken, in order."""
        chat = self._chat(reply.channel.channel_id)
        return list(chat.ids) if chat.seq == reply.seq else []

    def is_delivered(self, reply: OutboundMessage) -> bool:
        """Return whether the service has taken all of this reply, or a later one of the conversation."""
        chat = self._chat(reply.channel.channel_id)
        return chat.seq > reply.seq or (chat.seq == reply.seq and len(chat.ids) >= chat.of)

    def last_id(self, channel_id: str) -> str:
        """Return the message id of the last piece that is known to be delivered in a conversation, "" if none is."""
        return next(reversed(self._chat(channel_id).ids), "")

    async def add_piece(self, reply: OutboundMessage, *, part: int, of: int, id: str) -> None:
        """Record that the service has taken a piece. Returns at once if the attempt is on disk, otherwise when the record is.

        That may take as long as a full disk is full. In this process it counts at once: a restart of the actor does not repeat it.
        """
        channel_id = reply.channel.channel_id
        has_attempt = self.attempts(reply, part).is_open
        self._note_piece(channel_id, reply.seq, part, of, id)
        self._add({"channelId": channel_id, "seq": reply.seq, "part": part, "of": of, "id": id})
        if has_attempt:
            self._wanted.notify()
        else:
            await self.written()

    def acknowledge(self, reply: OutboundMessage) -> None:
        """Acknowledge a reply, and those before it, when everything that was added is on disk."""
        self._delivered[reply.channel.address] = reply.seq
        self._wanted.notify()

    def _note_piece(self, channel_id: str, seq: int, part: int, of: int, id: str) -> None:
        chat = self._chats[channel_id] = self._chats.pop(channel_id, _DeliveredChat())
        chat.attempts = Attempts(0, 0)
        if chat.seq != seq:
            chat.seq, chat.of, chat.ids = seq, of, []
        # A piece that is recorded twice, by a write that was repeated, counts once.
        if part == len(chat.ids):
            chat.ids.append(id)
        if chat.draft.startswith(UNSURE) or chat.draft.partition(" ")[0] == id:  # that message holds the reply now
            chat.draft = ""

    # ------------------------------------------------------------------ attempts

    def attempts(self, reply: OutboundMessage, part: int) -> Attempts:
        """Return how often the service was asked to take a piece without an answer that is known, and the mark of the last time."""
        known = self._chat(reply.channel.channel_id).attempts
        return known if (known.seq, known.part) == (reply.seq, part) else Attempts(reply.seq, part)

    async def set_attempts(self, reply: OutboundMessage, part: int, count: int, mark: str = "") -> None:
        """Record how often the service was asked to take a piece. Returns when it is on disk, and all that was added before.

        mark: by which the service can be asked for the message. Raises LeaseLost, also when this node was paused meanwhile for longer
        than its lease: another one may send the piece by now.
        """
        attempts = Attempts(reply.seq, part, count, mark)
        if attempts != self.attempts(reply, part):
            channel_id = reply.channel.channel_id
            self._chat(channel_id).attempts = attempts
            await self._write({"channelId": channel_id, **_attempts_fields(attempts)})

    # ------------------------------------------------------------------ drafts

    def draft_of(self, channel_id: str) -> str:
        """Return the message id of the draft that is shown in a conversation, "" if there is none."""
        return self._chat(channel_id).draft

    async def set_draft(self, channel_id: str, id: str) -> None:
        """Record that this message shows a draft; "" for none."""
        if id != self.draft_of(channel_id):
            self._chat(channel_id).draft = id
            await self._write({"channelId": channel_id, "draft": id})

    # ------------------------------------------------------------------ facts of the adapter

    def fact(self, key: str) -> Json:
        """Return a fact, None if it is not known."""
        return self._facts.get(key)

    def fact_keys(self, prefix: str) -> list[str]:
        """Return the keys of facts that begin with `prefix`, the oldest first."""
        return [key for key in self._facts if key.startswith(prefix)]

    async def set_fact(self, key: str, value: Json) -> None:
        """Record a fact; None forgets it. Of more than KEPT_FACTS the oldest are forgotten at the next rewrite, ACCOUNT never."""
        if self._facts.get(key) != value:
            self._note_fact(key, value)
            await self._write({"key": key, "value": value})

    def _note_fact(self, key: str, value: Json) -> None:
        self._facts.pop(key, None)
        if value is not None:
            self._facts[key] = value

    # ------------------------------------------------------------------ the file

    async def write_all(self) -> None:
        """Write what is added until cancelled, and then what is left. Raises ActorError."""
        try:
            while True:
                seen = self._wanted.count
                await self._write_until(self._is_all_written)
                await self._wanted.wait(seen)
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + STOP_TIME), suppress(ActorError):
                await self._write_until(self._is_all_written)

    def _is_all_written(self) -> bool:
        return not (self._unwritten or self._delivered)

    async def written(self) -> None:
        """Wait until everything that was added is on disk. Raises ActorError."""
        goal = self._added
        try:
            await self._write_until(lambda: self._written >= goal)
        finally:
            if self._written < goal:  # cancelled: `write_all` goes on with it
                self._wanted.notify()

    async def _write_until(self, is_done: Callable[[], bool]) -> None:
        """Write, or wait for whoever does, until enough is on disk."""
        while self._store is not None and not is_done():
            if self._is_writing:
                await self._progress.wait()
                continue
            self._is_writing = True
            try:
                await trio.lowlevel.checkpoint()  # what other conversations add in this moment is written, too
                await self._write_lines(self._store)
            finally:
                self._is_writing = False
                self._progress.notify()

    def _add(self, record: dict[str, Json]) -> None:
        """Add a line to those that are written next."""
        self._unwritten.append(record)
        self._added += 1

    async def _write(self, record: dict[str, Json]) -> None:
        """Add a line, and wait until it is on disk."""
        self._add(record)
        await self.written()

    async def _write_lines(self, store: LineStore) -> None:
        """Write what was added, and acknowledge what is delivered by that.

        Cancelled, or with ActorError, it is left for the next time. It may be on disk then: lines that are there twice, in the same
        order, say the same.
        """
        lines, delivered = self._unwritten.copy(), list(self._delivered.items())
        if lines:
            await self._append(store, lines)
            del self._unwritten[: len(lines)]
            self._written += len(lines)
        for address, seq in delivered:
            await store.journal.tell(Acknowledge(address, seq))
            if self._delivered[address] == seq:
                del self._delivered[address]

    async def _append(self, store: LineStore, lines: list[dict[str, Json]]) -> None:
        """Append lines to the file, trying again while the disk refuses, and rewrite it if it has got long."""

        def log(error: Exception, seconds: float) -> None:
            _log.error("what a service has taken cannot be recorded", error=str(error), seconds=seconds)

        await retry(lambda: store.append(*lines), StorageError, log)
        # The lines are on disk already, so a failure here costs nothing but the length of the file. It is tried
        # again when the file has grown as much once more.
        if store.lines > LONGEST:
            try:
                await self._rewrite(store)
            except StorageError as error:
                _log.error("the delivery log cannot be rewritten", error=str(error))

    async def _rewrite(self, store: LineStore) -> None:
        """Write what still counts, lines that were added meanwhile included. Raises StorageError, ActorError."""
        # A reply of which pieces are missing is never dropped: it would be sent again from its beginning.
        over = [
            channel_id
            for channel_id, chat in self._chats.items()
            if len(chat.ids) >= chat.of and not chat.attempts.is_open and not chat.draft
        ]
        for channel_id in over[:-KEPT_REPLIES]:
            del self._chats[channel_id]
        for key in list(self._facts)[:-KEPT_FACTS]:
            if key != ACCOUNT:
                del self._facts[key]
        records = [line for channel_id, chat in self._chats.items() for line in chat.lines(channel_id)]
        records += [{"key": key, "value": value} for key, value in self._facts.items()]
        await store.rewrite(records)


def _attempts_fields(attempts: Attempts) -> dict[str, Json]:
    mark: dict[str, Json] = {"mark": attempts.mark} if attempts.mark else {}
    return {"seq": attempts.seq, "part": attempts.part, "attempts": attempts.count, **mark}
