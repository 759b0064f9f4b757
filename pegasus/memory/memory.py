"""The room of memory: what is in it, the ways to change it, and the way back.

The directory is the index; there is no database that anything depends on. Every change is a line in the log and then one
replaced file, made durable by the journal before it is reported, and one change is made at a time, so that two tasks that add
to one file both find their words in it. What people change by hand is seen at the next look. All changes go through `_put`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs
import trio

from actors import ActorError, Ref
from pegasus.memory.changes import Author, Change, NotTakenBack, bytes_of, taken_back, text_of
from pegasus.memory.index import EPISODE_INDEX, MemoryFile, fitting, index_message, line_of, listed
from pegasus.memory.keeping import LARGEST, Keeper
from pegasus.memory.names import FOLDER, MemoryRefused, check_new, find, no_such
from pegasus.memory.page import appended, title_for
from pegasus.memory.provenance import mark_for, marked_entry, marked_page, marked_piece
from pegasus.memory.shelf import FolderShelf, Shelf, Standing
from pegasus.observe import get_logger
from pegasus.storage import JournalMessage, StorageError

if TYPE_CHECKING:
    from pegasus.memory.search import Found, Searcher

FULL: Final = 24_000
"""Bytes that a file may be made to have: it is read whole, and must fit into one tool result of a usual model."""
FACTS_SHOWN: Final = 60_000
"""Characters of facts that a reflection is shown in full; those beyond are shown by their summaries."""
INDEX_FRESH: Final = 1.0
"""Seconds for which the index is good that a look at the folder gave; what is changed here it knows at once."""
_UNKNOWN: Final = Author()

_log = get_logger("memory")


@attrs.frozen
class Written:
    """What a change has made of the file. size: bytes. mark: the mark that was put to the words, "" for none."""

    size: int
    mark: str = ""


class Memory:
    """Facts and episodes. journal: writes them, below `data/memory/`; shelf: reads them; clock: wall clock, ms, for the log.

    One for a whole process: its lock is what keeps changes apart. Everything here may raise MemoryRefused, OSError (a
    folder that cannot be read) and what asking the journal raises (StorageError: nothing was changed). Cancelled during a
    change: it is made whole or not at all.
    """

    def __init__(
        self,
        journal: Ref[JournalMessage],
        shelf: Shelf,
        clock: Callable[[], int] = lambda: 0,
        searcher: Searcher | None = None,
    ) -> None:
        self._shelf = shelf
        self._searcher = searcher
        self._keeper = Keeper(journal, shelf, clock)
        self._one_change = trio.Lock()
        self._one_look = trio.Lock()
        self._index, self._fresh_until, self._changes = "", -math.inf, 0

    # ------------------------------------------------------------------ looking

    async def list(self) -> tuple[MemoryFile, ...]:
        """The index: every file, by path."""
        return tuple(map(listed, await self._look()))

    async def read(self, path: str) -> str:
        """The whole file. Bytes that are no UTF-8 are shown as �."""
        return (await whole(path, self._shelf, await self._look())).decode("utf-8-sig", "replace")

    async def search(self, query: str, limit: int = 8, where: str = "") -> Found:
        """What was remembered or said that has these words, best first. where: facts, episodes, sessions, "" = all."""
        if self._searcher is None:
            raise MemoryRefused("there is no search here; memory_list shows what there is")
        try:
            return await self._searcher.search(query, limit, where)
        except ValueError as error:
            raise MemoryRefused(str(error)) from None

    async def _look(self) -> tuple[Standing, ...]:
        """What is there. While something is being changed, or cannot be, the look at the folder has to do."""
        try:
            self._one_change.acquire_nowait()
        except trio.WouldBlock:
            return await self._shelf.look()
        try:
            return await self._keeper.look()
        except (StorageError, ActorError) as error:
            _log.warning("edits of memory cannot be logged", error=str(error))
            return await self._shelf.look()
        finally:
            self._one_change.release()

    # ------------------------------------------------------------------ changing

    async def write(self, path: str, content: str, by: Author = _UNKNOWN, seen: Iterable[str] = ()) -> Written:
        """Make the file hold exactly this (and a line end, and a mark if it needs one); nothing at all forgets the file.

        seen: what the writer has read from outside on its way (see `provenance.mark_for`).
        """
        async with self._one_change:
            there = await self._keeper.look()
            check_new(path, there)
            mark = mark_for(content, by.source, seen)
            return await self._put(path, marked_page(content, mark), "write", by, mark)

    async def patch(self, path: str, old: str, new: str, by: Author = _UNKNOWN, seen: Iterable[str] = ()) -> Written:
        """Replace the one place where `old` is by `new`, taken literally (trap T13)."""
        if not old:
            raise MemoryRefused("old_str is empty; memory_append adds something")
        async with self._one_change:
            text = await self._text(path, await self._keeper.look())
            first = text.find(old)
            if first < 0:
                raise MemoryRefused(f"old_str is not in {path}; memory_read shows what is, to be given exactly")
            if text.find(old, first + 1) >= 0:
                raise MemoryRefused(
                    f"old_str is more than once in {path}; give more of the text around the place you mean"
                )
            mark = mark_for(new, by.source, seen)
            rest = text[first + len(old) :]
            return await self._put(path, text[:first] + marked_piece(new, mark) + rest, "patch", by, mark)

    async def append(
        self, path: str, entry: str, summary: str | None = None, by: Author = _UNKNOWN, seen: Iterable[str] = ()
    ) -> Written:
        """Add an entry at the end; the file is made if there is none. summary: takes the place of the one there is."""
        if not entry.strip():
            raise MemoryRefused("entry is empty")
        async with self._one_change:
            there = await self._keeper.look()
            check_new(path, there)
            text = await self._text(path, there) if find(path, there) else ""
            mark = mark_for(f"{entry}\n{summary or ''}", by.source, seen)
            now = appended(text, marked_entry(entry, mark), summary, title_for(path))
            return await self._put(path, now, "append", by, mark)

    # ------------------------------------------------------------------ the log

    async def log(self, path: str | None = None, limit: int = 50, before: int | None = None) -> tuple[Change, ...]:
        """The last changes, newest first, those by hand among them. path: of this file. before: with smaller numbers."""
        await self._look()
        made = reversed(await self._keeper.changes())
        fitting = (one for one in made if path in (None, one.path) and (before is None or one.n < before))
        return tuple(one for one, _ in zip(fitting, range(limit), strict=False))

    async def undo(self, n: int, by: Author = _UNKNOWN) -> Change:
        """Take change `n` back, whatever was changed elsewhere in the file since; itself a change, which can be taken back.

        Raises MemoryRefused, which says why, where later changes stand on it.
        """
        async with self._one_change:
            there = await self._keeper.look()
            changes = await self._keeper.changes()
            change = next((one for one in changes if one.n == n), None)
            if change is None:
                raise MemoryRefused(f"there is no change {n} in the log (any more)")
            text = text_of(await whole(change.path, self._shelf, there)) if find(change.path, there) else ""
            later = [one for one in changes if one.path == change.path and one.n > n]
            try:
                content = bytes_of(taken_back(change, later, text))
            except NotTakenBack as error:
                by_now = next((f"change {one.n} took it back" for one in later if one.undoes == n), str(error))
                raise MemoryRefused(f"change {n} of {change.path} cannot be taken back: {by_now}") from None
            await self._shelf.check(change.path)
            try:
                undone = await self._keeper.change(change.path, content, "undo", by, n)
            finally:
                self._changed()
            if undone is None:
                raise MemoryRefused(f"change {n} of {change.path} is taken back already")
            return undone

    def _changed(self) -> None:
        self._changes += 1
        self._fresh_until = -math.inf
        if self._searcher is not None:
            self._searcher.changed()

    # ------------------------------------------------------------------ what others are shown

    async def index_message(self) -> str:
        """What a task is told at its first thought (a user message, reference.md Thinker); "" where memory is empty.

        A look at the folder only: nobody's first thought waits for the journal. Whoever asks while another one looks, or
        within a second, gets the same.
        """
        async with self._one_look:
            if trio.current_time() >= self._fresh_until:
                changes = self._changes
                self._index = index_message(tuple(map(listed, await self._shelf.look())))
                if changes == self._changes:  # else it may have looked before that
                    self._fresh_until = trio.current_time() + INDEX_FRESH
            return self._index

    async def for_reflection(self) -> str:
        """The facts in full and the episodes by their summaries, newest first; of too much, the names at least."""
        there = await self._look()
        facts = [one for one in there if not one.path.startswith("episodes/")]
        episodes = sorted((one for one in there if one.path.startswith("episodes/")), reverse=True)
        parts, room = ["# Facts"], FACTS_SHOWN
        for one in facts:
            room -= one.size
            if one.size > LARGEST or room < 0:
                parts.append(f"## {line_of(listed(one))}\n(not shown here; memory_read shows it)")
                continue
            text = (await whole(one.path, self._shelf, there)).decode("utf-8-sig", "replace")
            parts.append(f"## {one.path}\n{text.strip()}")
        lines = fitting([line_of(listed(one)) for one in episodes], EPISODE_INDEX)
        return "\n\n".join([*parts, "" if facts else "(none yet)", "# Episodes", "\n".join(lines) or "(none yet)"])

    # ------------------------------------------------------------------ one file

    async def _text(self, path: str, there: tuple[Standing, ...]) -> str:
        """What may be changed and written back: nothing of it must be lost by that."""
        try:
            return (await whole(path, self._shelf, there)).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise MemoryRefused(f"{path} is not UTF-8 (byte {error.start}); only memory_write can replace it") from None

    async def _put(self, path: str, text: str, how: str, by: Author, mark: str) -> Written:
        text = text if text.endswith("\n") or not text else f"{text}\n"
        try:
            content = text.encode()
        except UnicodeEncodeError as error:
            raise MemoryRefused(f"character {error.start} is half of a pair, which is no text") from None
        if len(content) > FULL:
            found = f"{path} would have {len(content):,} bytes; a memory file may have {FULL:,}"
            raise MemoryRefused(f"{found}. Put it in another file, or shorten this one")
        await self._shelf.check(path)
        try:
            await self._keeper.change(path, content, how, by)
        finally:  # cancelled, it may have been made
            self._changed()
        return Written(len(content), mark)


async def whole(path: str, shelf: Shelf, there: tuple[Standing, ...]) -> bytes:
    """All of one of the files that are there. Raises MemoryRefused for another one and for one that is too large, and OSError."""
    one = find(path, there)
    if one is None:
        raise no_such(path, there)
    if one.size > LARGEST:
        raise MemoryRefused(
            f"{path} has {one.size:,} bytes, more than can be read ({LARGEST:,}): somebody should split it by hand"
        )
    return await shelf.read(path, LARGEST)


def memory_in(data: Path, journal: Ref[JournalMessage], clock: Callable[[], int]) -> Memory:
    """The memory of a home, whose data folder this is, with its search."""
    from pegasus.memory.search import Searcher

    return Memory(journal, FolderShelf(data / FOLDER), clock, Searcher.of(data))
