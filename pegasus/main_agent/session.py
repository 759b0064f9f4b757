"""The session: an append-only log on disk and the same in memory, with its projection for the providers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import attrs
import trio

from actors import Answer, Ref
from pegasus.conversation import Entry, Pictures, Projection, encode, unique_ids
from pegasus.main_agent.progress import Next, Progress, is_closed_by, is_of, progress_from
from pegasus.messages import OutboundMessage
from pegasus.models import ToolCall
from pegasus.observe import get_logger
from pegasus.storage import (
    Archive,
    ArchiveName,
    Commit,
    JournalMessage,
    Post,
    PostResult,
    ReplaceFile,
    Revoked,
    StorageError,
)

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


async def _step_aside() -> None:
    """Let a reply that is on disk pass through switchboard and gateway before what nobody waits for is done."""
    for _ in range(3):
        await trio.lowlevel.checkpoint()


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
        """What was said since `begin`."""
        self._item: int | None = None
        self._mark = 0
        self._unconfirmed: list[Answer[tuple[PostResult, ...]]] = []
        self._damaged = False
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

    def begin(self, item: int) -> None:
        """What follows is about this item of the inbox: if that is taken back, `Revoked` is raised and nothing is kept."""
        self._item, self._mark = item, len(self.entries)
        self.replies = ()

    def take_back(self) -> None:
        """Forget what was said since `begin`: the item was taken back, and the journal has kept nothing of it either."""
        self._start(self.entries[: self._mark])

    def own_ids(self, calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
        """The calls with ids that are unique in this session."""
        ids = unique_ids([call.id for call in calls], self._used_ids)
        return tuple(call if call.id == i else attrs.evolve(call, id=i) for call, i in zip(calls, ids, strict=True))

    async def add(self, *entries: Entry) -> None:
        """Append without waiting for the disk: for what a restart can derive again (user lines, tool results)."""
        lines = b"".join(map(encode, entries))
        with trio.CancelScope(shield=True):
            self._unconfirmed.append(await self._journal.request(Commit, ((self.path, lines),), (), False, self._item))
        self._remember(entries)

    async def commit(self, entries: Sequence[Entry], posts: tuple[Post, ...] = ()) -> tuple[PostResult, ...]:
        """Append, then post, durably: on return all of it is on disk. While the disk refuses, tries again.

        Cancelled while it waits for the disk to recover: nothing of it has happened. Else it is not interrupted.
        """
        lines = b"".join(map(encode, entries))
        appends = ((self.path, lines),) if lines else ()

        async def write() -> tuple[PostResult, ...]:
            results = await self._journal.ask(Commit, appends, posts, True, self._item)
            self._remember(entries)
            if posts:
                self.replies += tuple(result for result in results if isinstance(result, OutboundMessage))
                await _step_aside()
            await self._confirm()
            return results

        return await until_written(write, self.path)

    async def restart(self, begin: Callable[[str], Sequence[Entry]], at: int) -> str:
        """Put the session aside and go on with `begin(archive's name)`, as one durable step; gives that name. at: wall clock, ms.

        While the disk refuses, tries again. Cancelled meanwhile: nothing of it has happened.
        """

        async def write() -> str:
            name = await self._journal.ask(ArchiveName, self.path, at)
            is_gone = not name and bool(self.entries)  # somebody has deleted the file
            self._damaged = self._damaged or is_gone
            await self._confirm()
            if self._damaged or is_gone:
                raise StorageError(f"{self.path} misses lines that could not be written")
            entries = tuple(begin(name))
            content = b"".join(map(encode, entries))
            await self._journal.ask(Archive, self.path, content, at, self._item, name)
            self._start(entries)
            self._mark = len(self.entries)
            return name

        return await until_written(write, self.path)

    def _remember(self, entries: Sequence[Entry]) -> None:
        for place, entry in enumerate(entries, len(self.entries)):
            self.projection.append(entry)
            if entry.item is not None:
                self._starts[entry.item] = place
        self.entries.extend(entries)

    async def _confirm(self) -> None:
        """Look at what became of earlier lines; the journal works in order, so all of them are answered by now, or at once."""
        answers, self._unconfirmed = self._unconfirmed, []
        for answer in answers:
            try:
                await answer.fetch()
            except StorageError:
                self._damaged = True
            except Revoked:
                continue  # it is not in memory either
        if self._damaged:
            content = b"".join(map(encode, self.entries))
            try:
                await self._journal.ask(ReplaceFile, self.path, content)
                self._damaged = False
            except StorageError as error:
                _log.error("a session file misses lines, will be rewritten", path=self.path, error=str(error))
