"""The place of each log, and its repair before this run appends to it.

The index says in which day's folder the log of a task is. Without an index line (the index was lost or damaged) the day on which
the task became pending is the best guess. A log that this run did not begin is read once before it is appended to:

* A torn end is moved to `<log>.torn-<ms>`: the next line would be glued to it and be lost with it.
* If the persister was restarted, lines that the log has already are left out: the run before may have written them without
  being able to answer, and the sender has repeated its request.

A log that this run has begun, or has appended to, needs neither: its last Commit was either written whole or not at all. Its path is
remembered, which makes the usual write one Commit without any read.

A torn end is kept in a file and not deleted. It is evidence of a crash or of a failing disk, and may hold text that somebody
misses. The rest of the log is intact up to its last newline, since lines are only ever appended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import attrs

from actors import Ref
from pegasus.events import Event, EventType
from pegasus.observe import get_logger
from pegasus.storage import JournalMessage, ReadFile, ReadFiles, ReplaceFile, StorageError
from pegasus.tasks.log.format import (
    INDEX,
    PENDING,
    IndexEntry,
    PendingList,
    PendingTask,
    date_of,
    find_date,
    is_task_id,
    read_index,
    read_pending,
    task_path,
)

READ_TOGETHER: Final = 64
"""Logs that are read at a time: other requests to the journal wait no longer than that."""
KNOWN_LOGS: Final = 1000
"""Logs whose path is remembered; others are looked up in the index."""

_log = get_logger("persister")


@attrs.frozen
class OpenedLog:
    """A log that lines may be appended to."""

    path: str
    """Path below data/."""
    new_date: str = ""
    """Date for the index, "" if the index has the task already."""
    written: frozenset[bytes] = frozenset()
    """Lines that must not be written again."""


class LogFiles:
    """Reads the files of the task system through the journal. Each method raises StorageError as the journal does.

    Only the persister uses it, and handles one request at a time; so no two calls run at once. Cancelled: a repair may
    have been done in part, and the next opening of the log completes it.

    Example: `opened = await files.open(event, pending)`, then a Commit, then `files.remember(task_id, opened.path)`.
    """

    def __init__(self, journal: Ref[JournalMessage], clock: Callable[[], int], *, is_restart: bool) -> None:
        """Prepare. clock: wall clock, ms. is_restart: a persister of this process has written before."""
        self._journal = journal
        self._clock = clock
        self._is_restart = is_restart
        self._paths: dict[str, str] = {}
        """Paths of logs that this run writes to, by task id, the oldest first; at most KNOWN_LOGS."""

    # ------------------------------------------------------------------ the two lists

    async def load_pending(self) -> tuple[PendingList, bool]:
        """Return the pending list, and whether there may be tasks at all (the index is not empty).

        A list or an index that cannot be read (a folder is in its place, say) counts as missing: the daemon starts, and what
        the logs tell can still be read. New tasks are refused by the disk until somebody moves the folder away.
        """
        index = await self._read_or_report(INDEX)
        if index:
            index = await self._repair(INDEX, index)
        found = read_pending(await self._read_or_report(PENDING))
        return found, bool(index or found.entries)

    async def _read_or_report(self, path: str) -> bytes:
        """Return the content of a list, b"" if it cannot be read, which is logged with what to do about it."""
        try:
            return await self._read(path)
        except StorageError as error:
            _log.error("a list of tasks cannot be read, move it away", path=path, error=str(error))
            return b""

    async def index(self) -> list[IndexEntry]:
        """Return all tasks, oldest first."""
        entries, problems = read_index(await self._read(INDEX))
        if problems:
            _log.warning("the index of tasks has bad lines", lines=len(problems), first=problems[0])
        return entries

    # ------------------------------------------------------------------ reading logs

    async def read_logs(self, tasks: Mapping[str, PendingTask | None]) -> tuple[bytes | StorageError, ...]:
        """Return the log of each task, b"" if there is none, or the reason why it cannot be read.

        tasks: ids, with the pending entry of those that have one.
        """
        index = b"" if all(task_id in self._paths for task_id in tasks) else await self._read(INDEX)
        dates = {entry.task_id: entry.date for entry in read_index(index)[0]} if len(tasks) > 1 else {}
        paths: dict[str, str] = {}
        for task_id, pending in tasks.items():
            path = self._paths.get(task_id) or self._find(task_id, dates.get(task_id), index, pending)
            if path is not None:
                paths[task_id] = path
        contents = await self._read_files(tuple(paths.values()))
        return tuple(contents[paths[task_id]] if task_id in paths else b"" for task_id in tasks)

    def _find(self, task_id: str, date: str | None, index: bytes, pending: PendingTask | None) -> str | None:
        """Return the path of a log that this run does not write to, None for an id without a log."""
        if not is_task_id(task_id):
            return None
        date = date or find_date(index, task_id)
        if date is None and pending is not None:
            date = date_of(int(pending.ts))
        return task_path(task_id, date) if date is not None else None

    async def _read_files(self, paths: tuple[str, ...]) -> dict[str, bytes | StorageError]:
        """Return the contents of these files, or the errors of those that cannot be read. Read in parts of READ_TOGETHER."""
        contents: dict[str, bytes | StorageError] = {}
        for begin in range(0, len(paths), READ_TOGETHER):
            some = paths[begin : begin + READ_TOGETHER]
            contents.update(zip(some, await self._journal.ask(ReadFiles, some), strict=True))
        return contents

    # ------------------------------------------------------------------ opening a log to append to it

    async def open(self, event: Event, pending: PendingTask | None) -> OpenedLog:
        """Return the log for this event's line. Nothing is remembered until `remember`, so a refused write may be repeated."""
        task_id = event.task_id or ""
        if task_id in self._paths:
            return OpenedLog(self._paths[task_id])
        if event.type is EventType.TASK_CREATED and not self._is_restart:
            date = date_of(event.timestamp)
            return OpenedLog(task_path(task_id, date), date)
        known = find_date(await self._read(INDEX), task_id)
        is_old = pending is not None and event.type is not EventType.TASK_CREATED
        date = known or date_of(int(pending.ts) if is_old and pending is not None else event.timestamp)
        path = task_path(task_id, date)
        content = await self._repair(path, await self._read(path))
        written = frozenset(content.splitlines(keepends=True)) if self._is_restart else frozenset[bytes]()
        return OpenedLog(path, "" if known else date, written)

    def remember(self, task_id: str, path: str) -> None:
        """Remember the path of a log that this run writes to; it needs no repair and no index line any more."""
        self._paths[task_id] = path
        while len(self._paths) > KNOWN_LOGS:
            del self._paths[next(iter(self._paths))]

    def forget(self, task_id: str) -> None:
        """Forget the path of a log: nothing more is expected to be written there."""
        self._paths.pop(task_id, None)

    async def _read(self, path: str) -> bytes:
        """Return the content of a file, b"" if there is none."""
        return await self._journal.ask(ReadFile, path)

    async def _repair(self, path: str, content: bytes) -> bytes:
        """Move a torn end out of the file, and return what is left of the content.

        The end is copied before the file is cut: a crash in between leaves it in both places, never in none.
        """
        end = content.rfind(b"\n") + 1
        if end == len(content):
            return content
        aside = f"{path}.torn-{self._clock()}"
        await self._journal.ask(ReplaceFile, aside, content[end:])
        await self._journal.ask(ReplaceFile, path, content[:end])
        _log.warning("set a torn last line aside", path=path, aside=aside)
        return content[:end]
