"""Keeping the log of memory and its files in step, through the journal.

The line of a change is on disk before the file is changed. What can stand between the two is seen at the next look: if the last
change of the log was not made, a void line says so. Whatever else differs from what the log says was done by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import trio

from actors import Ref
from pegasus.memory.changes import Author, Change, difference, hash_of, text_of
from pegasus.memory.history import (
    ABSENT,
    GROWTH,
    LOG,
    History,
    Known,
    change_line,
    changes_in,
    known_as,
    read_history,
    shortened,
    void_line,
)
from pegasus.memory.names import FOLDER
from pegasus.memory.shelf import Shelf, Stamp, Standing
from pegasus.observe import get_logger
from pegasus.storage import Commit, JournalMessage, ReadFile, ReplaceFile

LARGEST: Final = 256 << 10
"""Bytes of a file, written by hand, that are still read."""
HAND: Final = Author("hand", why="edited outside of Pegasus")
_LOG_PATH: Final = f"{FOLDER}/{LOG}"
_PARSE_HERE: Final = 1 << 18

_log = get_logger("memory")


class Keeper:
    """One for a memory; whoever calls it holds its lock. clock: wall clock, ms. Raises StorageError, OSError, ActorError.

    After any error and after a cancellation it trusts nothing it has in mind, and begins anew from the log.
    """

    def __init__(self, journal: Ref[JournalMessage], shelf: Shelf, clock: Callable[[], int]) -> None:
        self._journal = journal
        self._shelf = shelf
        self._clock = clock
        self._history: History | None = None
        self._stamps: dict[str, Stamp] = {}

    # ------------------------------------------------------------------ looking

    async def look(self) -> tuple[Standing, ...]:
        """What is there now. What was changed by hand since the last look is in the log then."""
        try:
            history = self._history or await self._load()
            there = await self._shelf.look(self._stamps, LARGEST)
            await self._log_edits(history, there)
        except BaseException:
            self.forget()
            raise
        self._history = history
        return there

    def forget(self) -> None:
        """Begin anew at the next look."""
        self._history = None
        self._stamps = {}

    async def changes(self) -> list[Change]:
        """Every change that is still in the log, in order."""
        return changes_in(await self._journal.ask(ReadFile, _LOG_PATH))

    async def _load(self) -> History:
        data = await self._journal.ask(ReadFile, _LOG_PATH)
        if len(data) > _PARSE_HERE:
            history = await trio.to_thread.run_sync(read_history, data, abandon_on_cancel=True)
        else:
            history = read_history(data)
        if history.damaged:
            await self._mend(history, data)
        if history.last is not None and history.last.how != "edit":
            await self._settle(history, history.last)
        return history

    async def _mend(self, history: History, data: bytes) -> None:
        """Put aside what is no record, and write the rest anew: nothing may be appended behind a torn line."""
        aside = f"{_LOG_PATH}.bad-{self._clock()}"
        await self._journal.ask(ReplaceFile, aside, b"".join(line.rstrip(b"\n") + b"\n" for line in history.damaged))
        good = shortened(data)
        await self._journal.ask(ReplaceFile, _LOG_PATH, good)
        history.size = history.short = len(good)
        _log.warning("the log of memory was damaged", lines=len(history.damaged), aside=aside)

    async def _settle(self, history: History, last: Change) -> None:
        """Whether the last change was made. One is made at a time, so it is the only one that may not have been."""
        content = await self._journal.ask(ReadFile, f"{FOLDER}/{last.path}")
        if hash_of(content) == last.before != last.after:
            await self._append(history, void_line(last.n, self._clock()))
            history.void()

    async def _log_edits(self, history: History, there: Sequence[Standing]) -> None:
        edits = [edit for one in there if (edit := self._edit(history, one)) is not None]
        gone = history.files.keys() - {one.path for one in there}
        edits += [(path, ABSENT) for path in sorted(gone)]
        changes = [
            self._change(history, path, "edit", HAND, now, n) for n, (path, now) in enumerate(edits, history.count + 1)
        ]
        if changes:
            await self._append(history, b"".join(map(change_line, changes)))
            for change in changes:
                history.add(change)
        self._stamps = {one.path: one.stamp for one in there}
        if changes:
            await self._shorten(history)

    def _edit(self, history: History, one: Standing) -> tuple[str, Known] | None:
        """What a file holds that the log does not know."""
        if self._stamps.get(one.path) == one.stamp:
            return None
        content = one.content
        now = Known(f"{one.size} bytes", None) if content is None else known_as(content, text_of(content))
        return (one.path, now) if now.hash != history.of(one.path).hash else None

    # ------------------------------------------------------------------ changing

    async def change(self, path: str, content: bytes, how: str, by: Author, undoes: int = 0) -> Change | None:
        """Make the file hold this, and log it first; None if it holds this already."""
        history = self._history
        if history is None:
            raise RuntimeError("a change wants a look before it")
        now = known_as(content, text_of(content))
        if now.hash == history.of(path).hash:
            return None
        change = self._change(history, path, how, by, now, history.count + 1, undoes)
        try:
            await self._append(history, change_line(change))
            history.add(change)
            await self._journal.ask(ReplaceFile, f"{FOLDER}/{path}", content)
            self._stamps.pop(path, None)
            await self._shorten(history)
        except BaseException:
            self.forget()
            raise
        return change

    def _change(self, history: History, path: str, how: str, by: Author, now: Known, n: int, undoes: int = 0) -> Change:
        before = history.of(path)
        splices = None if before.text is None or now.text is None else difference(before.text, now.text)
        return Change(n, self._clock(), path, how, by, before.hash, now.hash, splices, undoes)

    async def _append(self, history: History, lines: bytes) -> None:
        await self._journal.ask(Commit, ((_LOG_PATH, lines),))
        history.size += len(lines)

    async def _shorten(self, history: History) -> None:
        if history.size < history.short + GROWTH:
            return
        data = await self._journal.ask(ReadFile, _LOG_PATH)
        less = await trio.to_thread.run_sync(shortened, data, abandon_on_cancel=True)
        await self._journal.ask(ReplaceFile, _LOG_PATH, less)
        history.size = history.short = len(less)
