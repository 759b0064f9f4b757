"""Where the logs of tasks lie, and that they may be appended to: a log is looked at before this run first writes to it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

from actors import Ref
from pegasus.events import Event, EventType
from pegasus.observe import get_logger
from pegasus.storage import JournalMessage, ReadFile, ReadFiles, ReplaceFile, StorageError
from pegasus.tasks.index import INDEX, Indexed, date_in, read_index
from pegasus.tasks.log import date_of, is_task_id, task_path

READ_TOGETHER: Final = 64
"""Logs that are read at a time: whoever else wants something of the disk waits no longer than that."""
KNOWN_LOGS: Final = 1000
"""Logs whose place is remembered; others are looked up in the index."""

_log = get_logger("persister")


class Opened(NamedTuple):
    """A log that lines may be appended to. dated: the date to put into the index, "" if it stands there.

    there: lines at its end that the run before may have written without being able to say so.
    """

    path: str
    dated: str = ""
    there: frozenset[bytes] = frozenset()


class Places:
    """clock: wall clock, ms. again: another run of this process has written before. Raises StorageError as the journal does."""

    def __init__(self, journal: Ref[JournalMessage], clock: Callable[[], int], *, again: bool) -> None:
        self._journal = journal
        self._clock = clock
        self._again = again
        self._known: dict[str, str] = {}
        self._dates: dict[str, str] = {}

    def expect(self, task_ids: Collection[str], index: bytes) -> None:
        """Tasks that will be asked for, so that the index need not be searched for each of them."""
        entries = read_index(index)[0] if task_ids else ()
        self._dates = {task_id: date for task_id, date in entries if task_id in task_ids}

    async def _date(self, task_id: str) -> str | None:
        date = self._dates.get(task_id)
        return date if date is not None else date_in(await self.read(INDEX), task_id)

    async def read(self, path: str) -> bytes:
        """A file below data/, b"" if there is none."""
        return await self._journal.ask(ReadFile, path)

    async def index(self) -> list[Indexed]:
        """Every task there is, oldest first."""
        entries, problems = read_index(await self.read(INDEX))
        if problems:
            _log.warning("the index of tasks has bad lines", lines=len(problems), first=problems[0])
        return entries

    async def read_logs(self, tasks: Mapping[str, int | None]) -> tuple[bytes | StorageError, ...]:
        """The log of each task, b"" if there is none, or why it cannot be read; with when it became pending, if it is, ms."""
        paths = {task_id: await self._place(task_id, since) for task_id, since in tasks.items()}
        contents = await self._contents([path for path in paths.values() if path])
        found: list[bytes | StorageError] = []
        for task_id, path in paths.items():
            content = contents[path] if path else b""
            if path and isinstance(content, bytes) and tasks[task_id] is not None:
                try:
                    content = await self._opened(task_id, path, content)
                except StorageError as error:
                    content = error
            found.append(content)
        return tuple(found)

    async def _contents(self, paths: Sequence[str]) -> dict[str, bytes | StorageError]:
        contents: dict[str, bytes | StorageError] = {}
        for begin in range(0, len(paths), READ_TOGETHER):
            some = tuple(paths[begin : begin + READ_TOGETHER])
            contents.update(zip(some, await self._journal.ask(ReadFiles, some), strict=True))
        return contents

    async def _place(self, task_id: str, since: int | None) -> str | None:
        if not is_task_id(task_id):
            return None
        if task_id in self._known:
            return self._known[task_id]
        date = await self._date(task_id)
        if date is None and since is not None:  # the index was lost or damaged
            date = date_of(since)
        return task_path(task_id, date) if date is not None else None

    async def _opened(self, task_id: str, path: str, content: bytes) -> bytes:
        """A pending log will be appended to, so the look at it is also the one before this run first writes to it."""
        if self._again or task_id not in self._dates or task_id in self._known:
            return content
        if content and not content.endswith(b"\n"):
            content = await self.mended(path)
        self._remember(task_id, path)
        return content

    def known(self, task_id: str) -> str | None:
        """The log of a task that lines may be appended to; None if it must be opened first."""
        return self._known.get(task_id)

    async def open(self, event: Event, since: int | None) -> Opened:
        """The log that this event's line goes to. The same again for an event of the same task."""
        task_id = event.task_id or ""
        known = self._known.get(task_id)
        if known is not None:
            return Opened(known)
        opened = await self._look_up(event, task_id, since)
        self._remember(task_id, opened.path)
        return opened

    def _remember(self, task_id: str, path: str) -> None:
        self._known[task_id] = path
        while len(self._known) > KNOWN_LOGS:
            del self._known[next(iter(self._known))]

    def forget(self, task_id: str) -> None:
        """Nothing more is expected to be written there."""
        self._known.pop(task_id, None)
        self._dates.pop(task_id, None)

    async def _look_up(self, event: Event, task_id: str, since: int | None) -> Opened:
        if event.type is EventType.TASK_CREATED and not self._again:
            date = date_of(event.timestamp)
            return Opened(task_path(task_id, date), dated=date)
        known = await self._date(task_id)
        created = event.timestamp if since is None or event.type is EventType.TASK_CREATED else since
        date = date_of(created) if known is None else known
        path = task_path(task_id, date)
        content = await self.mended(path)
        there = frozenset(content.splitlines(keepends=True)) if self._again else frozenset[bytes]()
        return Opened(path, date if known is None else "", there)

    async def mended(self, path: str) -> bytes:
        """The file without an end that a crash has torn, which is set aside; else the next line would be glued to it."""
        content = await self.read(path)
        end = content.rfind(b"\n") + 1
        if end < len(content):
            aside = f"{path}.torn-{self._clock()}"
            await self._journal.ask(ReplaceFile, aside, content[end:])
            content = content[:end]
            await self._journal.ask(ReplaceFile, path, content)
            _log.warning("set a torn last line aside", path=path, aside=aside)
        return content
