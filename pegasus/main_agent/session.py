"""The session: an append-only log on disk and the same in memory, with its projection for the providers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import attrs
import trio

from actors import Ref
from pegasus.conversation import Entry, Pictures, Projection, encode, unique_ids
from pegasus.main_agent.progress import Next, Progress, is_closed_by, is_of, progress_from
from pegasus.messages import OutboundMessage
from pegasus.models import ToolCall
from pegasus.observe import get_logger
from pegasus.storage import Archive, ArchiveName, Commit, JournalMessage, Post, PostResult, ReplaceFile, StorageError

_log = get_logger("session")
_T = TypeVar("_T")

RETRY_FIRST = 0.5
RETRY_LIMIT = 15.0
"""Seconds between two tries to write while the disk refuses."""


async def until_written(write: Callable[[], Awaitable[_T]], what: str) -> _T:
    """Call `write` until the disk takes it, with growing pauses; a call itself is never interrupted, a pause may be."""
    pause = RETRY_FIRST
    while True:
        try:
            with trio.CancelScope(shield=True):
                return await write()
        except StorageError as error:
            _log.error("the disk refuses, will try again", what=what, error=str(error), seconds=pause)
        await trio.sleep(pause)
        pause = min(pause * 2, RETRY_LIMIT)


class Session:
    """One conversation, `path` below data/. What is in memory is what the file will hold; see `loading` for the start.

    pictures: those of its entries that the model can see.
    """

    def __init__(
        self,
        path: str,
        entries: Sequence[Entry],
        journal: Ref[JournalMessage],
        pictures: Pictures | None = None,
    ) -> None:
        self.path = path
        self.pictures = Pictures() if pictures is None else pictures
        self._journal = journal
        self.replies: tuple[OutboundMessage, ...] = ()
        """The replies that were posted for the queue item being worked on; the caller empties it when the next one begins."""
        self._unwritten = b""
        """Lines of entries that are in memory but not in the file yet, because the disk refused them. Always written first."""
        self._start(entries)

    def _start(self, entries: Sequence[Entry]) -> None:
        self.entries: list[Entry] = list(entries)
        self.projection = Projection(entries, self.pictures)
        self._used_ids = {call.id for entry in entries for call in entry.calls}
        users = (place for place, entry in enumerate(entries) if entry.role == "user")  # at a start there may be many
        self._starts = {n: place for place in users if (n := entries[place].item) is not None}

    # ------------------------------------------------------------------ how far items are

    def progress(self, item: int, message_id: str | None = None) -> Progress:
        """Where the work on this item of the inbox stands.

        message_id: of its message. If another one is recorded under the number, the inbox was lost and has begun to count anew.
        """
        start = self._starts.get(item)
        if start is not None and is_of(self.entries[start].metadata, message_id):
            return progress_from(self.entries, start)
        return Progress(Next.NOTHING if is_closed_by(self.entries, item, message_id) else Next.RECORD)

    @property
    def is_fresh(self) -> bool:
        """Whether nobody has said anything in it."""
        return not any(entry.role == "user" for entry in self.entries[:8])

    def of_item(self, item: int) -> Sequence[Entry]:
        """The item's user entry and all behind it; nothing if it is not recorded."""
        start = self._starts.get(item)
        return () if start is None else self.entries[start:]

    def unfinished(self) -> int | None:
        """The item that was being worked on when the file ended, if it needs more."""
        last = next(reversed(self._starts), None)
        return last if last is not None and self.progress(last).next is Next.THINK else None

    # ------------------------------------------------------------------ writing

    def own_ids(self, calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
        """The calls with ids that are unique in this session."""
        ids = unique_ids([call.id for call in calls], self._used_ids)
        return tuple(call if call.id == i else attrs.evolve(call, id=i) for call, i in zip(calls, ids, strict=True))

    async def add(self, *entries: Entry) -> None:
        """Append what has happened already and cannot be undone: a user's message, the result of a tool call.

        The entries are in memory at once and on disk on return. While the disk refuses, tries again. Cancelled while it
        waits for the disk to recover: the entries stay in memory, and the next write puts them on disk before its own.
        """
        self._unwritten += b"".join(map(encode, entries))
        self._remember(entries)
        await self.commit(())

    async def commit(self, entries: Sequence[Entry], posts: tuple[Post, ...] = ()) -> tuple[PostResult, ...]:
        """Append, then post, durably: on return all of it is on disk. While the disk refuses, tries again.

        Cancelled while it waits for the disk to recover: nothing of it has happened. Else it is not interrupted.
        """
        new_lines = b"".join(map(encode, entries))

        async def write() -> tuple[PostResult, ...]:
            lines = self._unwritten + new_lines
            results = await self._journal.ask(Commit, ((self.path, lines),) if lines else (), posts)
            self._unwritten = b""
            self._remember(entries)
            self.replies += tuple(result for result in results if isinstance(result, OutboundMessage))
            return results

        return await until_written(write, self.path)

    async def restart(self, begin: Callable[[str], Sequence[Entry]], at: int) -> str:
        """Put the session aside and go on with `begin(archive's name)`, as one durable step; gives that name. at: wall clock, ms.

        While the disk refuses, tries again. Cancelled meanwhile: nothing of it has happened.
        """

        async def write() -> str:
            name = await self._journal.ask(ArchiveName, self.path, at)
            if self._unwritten or (
                self.entries and not name
            ):  # the disk refused lines, or somebody has deleted the file
                await self._journal.ask(ReplaceFile, self.path, b"".join(map(encode, self.entries)))
                self._unwritten = b""
                name = await self._journal.ask(ArchiveName, self.path, at)
            entries = tuple(begin(name))
            content = b"".join(map(encode, entries))
            await self._journal.ask(lambda reply: Archive(reply, self.path, content, at, name=name))
            self._start(entries)
            return name

        return await until_written(write, self.path)

    def _remember(self, entries: Sequence[Entry]) -> None:
        for place, entry in enumerate(entries, len(self.entries)):
            self.projection.append(entry)
            if entry.item is not None:
                self._starts[entry.item] = place
        self.entries.extend(entries)
