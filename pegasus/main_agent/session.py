"""The session: the Main Agent's one conversation, an append-only log on disk and the same in memory.

What is in memory is what the file will hold. Every write returns only when its lines are on disk, so the model never builds on
something that a power failure takes away, and no reply is sent whose thought is lost. While the disk refuses (full, read-only),
writing waits and tries again: nothing is dropped, and the agent continues at the same place when there is room.

Two kinds of writes differ in what a cancel leaves behind, which matters because /stop may come while the disk refuses:

* `commit` writes a decision (a thought, posts). Cancelled, it has not happened.
* `add` writes a fact (a message that came in, the result of a tool call). Cancelled, the fact stays in memory, and the next
  write puts it on disk before anything else.

See `session_loading` for how a session is read and repaired at start.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

import attrs
import trio

from actors import Ref
from pegasus.conversation import Entry, Pictures, Projection, encode, parse_metadata_line, unique_ids
from pegasus.main_agent.progress import ItemProgress, NextStep, belongs_to, is_begun_by, progress_from
from pegasus.messages import Address, ChannelInfo, OutboundMessage
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
    StorageError,
    escape_field,
)

_log = get_logger("session")
_T = TypeVar("_T")

RETRY_FIRST: Final = 0.5
"""Seconds until a write that the disk refused is tried again; doubled at each further refusal."""
RETRY_LIMIT: Final = 15.0
"""Seconds that the pause grows to."""
LOOKED_AT: Final = 8
"""Entries at the beginning of a session in which the first message must be, if there is one: before it are at most the opening
line and the memory index."""


async def until_written(write: Callable[[], Awaitable[_T]], what: str) -> _T:
    """Call `write` until it raises no StorageError, with growing pauses, and return its result.

    what: words for the log. A call of `write` is never interrupted, since nobody could say then whether it has happened; a pause is.
    """
    pause = RETRY_FIRST
    while True:
        try:
            with trio.CancelScope(shield=True):
                return await write()
        except StorageError as error:
            _log.error("the disk refuses to write, trying again", what=what, error=str(error), seconds=pause)
        await trio.sleep(pause)
        pause = min(pause * 2, RETRY_LIMIT)


class Session:
    """A conversation in the file `path` below data/.

    Example:
        session = await load_session("main/current.jsonl", journal, clock)
        await session.add(user_entry(item, clock()))
        [reply] = await session.commit((thought,), (post,))
    """

    def __init__(
        self,
        path: str,
        entries: Sequence[Entry],
        journal: Ref[JournalMessage],
        pictures: Pictures | None = None,
    ) -> None:
        self.path = path
        """Path below data/."""
        self.pictures = Pictures() if pictures is None else pictures
        """Pictures of its entries that the model can see."""
        self.replies: tuple[OutboundMessage, ...] = ()
        """Replies posted for the item being worked on. The actor empties it when the next item begins."""
        self._journal = journal
        self._unwritten = b""
        """Lines of facts that are in memory and not on disk, because a write was cancelled while the disk refused."""
        self._writers: dict[Address, set[str]] = {}
        """Ids of the people who were seen in each conversation."""
        self._begin(entries)

    def _begin(self, entries: Sequence[Entry]) -> None:
        """Make the state in memory from these entries, which are on disk: at load, and after the session was archived."""
        self.entries: list[Entry] = []
        """All entries, oldest first."""
        self.projection = Projection((), self.pictures)
        """The entries as turns for a provider."""
        # All call ids of the session. `with_unique_ids` adds those of each new answer.
        self._used_ids = {call.id for entry in entries for call in entry.calls}
        self._starts: dict[int, int] = {}
        """Index of the user entry of each item."""
        self._remember(entries)

    # ------------------------------------------------------------------ reading

    def progress(self, item: int, message_id: str | None = None) -> ItemProgress:
        """Return how far the work on this item of the inbox has come.

        message_id: of its message. If another message is recorded under the number, the inbox was lost and counts from 1 again.
        """
        start = self._starts.get(item)
        if start is not None and belongs_to(self.entries[start].metadata, message_id):
            return progress_from(self.entries, start)
        return ItemProgress(NextStep.NOTHING if is_begun_by(self.entries, item, message_id) else NextStep.RECORD)

    @property
    def is_fresh(self) -> bool:
        """True if nobody has written anything in it."""
        return not any(entry.role == "user" for entry in self.entries[:LOOKED_AT])

    def of_item(self, item: int) -> Sequence[Entry]:
        """Return the item's user entry and everything behind it; () if the item is not recorded."""
        start = self._starts.get(item)
        return () if start is None else self.entries[start:]

    def unfinished(self) -> int | None:
        """Return the item that was being worked on when the file ended, if it needs another thought."""
        last = next(reversed(self._starts), None)
        return last if last is not None and self.progress(last).next is NextStep.THINK else None

    def is_shared(self, channel: ChannelInfo) -> bool:
        """Return whether somebody else than the writer on this channel was seen in the same conversation."""
        if channel.user_id is None:
            return False
        address = Address(escape_field(channel.type), escape_field(channel.channel_id))
        return not self._writers.get(address, set()) <= {channel.user_id}

    # ------------------------------------------------------------------ writing

    def with_unique_ids(self, calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
        """Return the calls with ids that no other call of this session has."""
        ids = unique_ids([call.id for call in calls], self._used_ids)
        return tuple(call if call.id == i else attrs.evolve(call, id=i) for call, i in zip(calls, ids, strict=True))

    async def add(self, *entries: Entry) -> None:
        """Append what has happened already: a message, the result of a tool call. On return it is on disk.

        While the disk refuses, tries again. Cancelled meanwhile: the entries stay in memory, and the next write puts them on disk.
        """
        self._unwritten += b"".join(map(encode, entries))
        self._remember(entries)
        await self.commit(())

    async def commit(self, entries: Sequence[Entry], posts: tuple[Post, ...] = ()) -> tuple[PostResult, ...]:
        """Append entries and post replies as one durable step; return what became of each post.

        While the disk refuses, tries again. Cancelled meanwhile: nothing of it has happened. Otherwise it is not interrupted.
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
        """Archive the session and go on with `begin(archive's name)`, as one durable step. Return that name.

        at: wall clock, ms. If somebody has deleted the file, it is written again first, since memory still has all of it and the new
        session will say where to read it. While the disk refuses, tries again. Cancelled meanwhile: nothing of it has happened.
        """

        async def write() -> str:
            name = await self._journal.ask(ArchiveName, self.path, at)
            if self._unwritten or (self.entries and not name):
                await self._journal.ask(ReplaceFile, self.path, b"".join(map(encode, self.entries)))
                self._unwritten = b""
                name = await self._journal.ask(ArchiveName, self.path, at)
            entries = tuple(begin(name))
            content = b"".join(map(encode, entries))
            # If another archive has taken the name meanwhile, this fails and is tried again with the next name.
            await self._journal.ask(lambda reply: Archive(reply, self.path, content, at, name=name))
            self._begin(entries)
            return name

        return await until_written(write, self.path)

    def _remember(self, entries: Sequence[Entry]) -> None:
        """Add entries to the state in memory. It never fails and never waits, so memory and file cannot differ after a write."""
        for entry in entries:
            self.projection.append(entry)
            if entry.item is not None:
                self._starts.pop(entry.item, None)  # the item that was begun last is the last one here
                self._starts[entry.item] = len(self.entries)
            user, address = entry.metadata.get("userId"), None
            if entry.role == "user" and isinstance(user, str):
                address = parse_metadata_line(entry.content)
            if address is not None and isinstance(user, str):
                self._writers.setdefault(address, set()).add(user)
            self.entries.append(entry)
