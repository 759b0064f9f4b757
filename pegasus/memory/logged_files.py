"""Memory files together with their log, kept in step through the journal.

The line of a change is on disk before its file is changed. So after a crash between the two the log knows more than the
file, never less. The next refresh finds out: if the file still has the content from before the last change, a "void"
line says that the change was not made. Every other difference between a file and the log was made by hand, by somebody
with an editor, and gets a line of its own ("edit").

One change is made at a time (`Memory` holds a lock), so only the last one can be in doubt.

The alternative would be one atomic write of log and file. The journal could do that, but then a file that a
person has changed at the same moment would be overwritten without a trace. With the log in front, each
difference has an explanation, and each explanation a line.

Where nodes share a database, the files there are not those that people see: each node has a `WorkingCopy`. The log alone decides then,
so a change whose line is there was made, and the file in the database follows. Before each look the log is read again if another node
has appended to it.

`refresh` is cheap when nothing has changed: it compares the stamps of the folder with the remembered ones and
reads only files with another stamp. The log itself is read when the process starts and after an error.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Final, TypeAlias

import trio

from actors import Ref
from pegasus.memory.changes import (
    ABSENT,
    GROWTH,
    LOG,
    Author,
    Change,
    History,
    KnownContent,
    change_line,
    content_hash,
    encode_text,
    known_content,
    read_log,
    shortened,
    unread_content,
    void_line,
)
from pegasus.memory.folder import LARGEST, FileState, MemoryFolder, Stamp
from pegasus.memory.notes import NOTES, NotesFile
from pegasus.memory.pages import FOLDER
from pegasus.observe import get_logger
from pegasus.storage import Changed, Commit, JournalMessage, ReadFile, ReplaceFile, SetAside, StorageError

if TYPE_CHECKING:
    from pegasus.memory.working_copy import WorkingCopy

BY_HAND: Final = Author("hand", why="edited outside of Pegasus")
"""Author of an edit that was noticed; the person is unknown."""

LineCount: TypeAlias = Callable[[Collection[str]], Awaitable[Mapping[str, int]]]
"""Returns the numbers of lines of files."""

_PARSED_IN_PLACE: Final = 1 << 18
"""Bytes of a log that are parsed on the event loop; a larger one goes to a thread."""

_log = get_logger("memory")


class LoggedFiles:
    r"""The files and their log. The caller holds the memory's lock during every call.

    Every method may raise StorageError, OSError and ActorError. After an error, and after a cancellation, nothing that
    is remembered is trusted, and the next `refresh` begins with the log on disk.

    Example::

        async with lock:
            files = await logged.refresh()
            change = await logged.change("facts/user.md", b"- Likes: tea\n", "write", author)
    """

    def __init__(
        self,
        journal: Ref[JournalMessage],
        folder: MemoryFolder,
        clock: Callable[[], int],
        notes: NotesFile | None = None,
        base: str = FOLDER,
        copy: WorkingCopy | None = None,
        count_lines: LineCount | None = None,
    ) -> None:
        self._copy = copy
        """The files as people of this node see them; None: they are those that the journal writes."""
        self._count_lines = count_lines
        """Returns the lines of files of a database that others write as well."""
        self._base = base
        """Folder of the files below data/, as the journal names files."""
        self._log_path = f"{base}/{LOG}"
        """Path of the log, likewise."""
        self._journal = journal
        """Writes the log and the files, and reads them back."""
        self._folder = folder
        """Shows the files as they are on disk now."""
        self._clock = clock
        """Wall clock, ms."""
        self._notes = notes
        """MEMORY.md of the workspace, under the path NOTES; None: it is not looked at."""
        self._history: History | None = None
        """State that follows from the log; None before the first refresh."""
        self._stamps: dict[str, Stamp] = {}
        """Stamps of files whose content the log knows."""

    # ------------------------------------------------------------------ reading

    async def refresh(self) -> tuple[FileState, ...]:
        """Return the files as they are now, after logging what was changed by hand since the last time."""
        try:
            history = self._history if await self._is_current() else None
            history = history or await self._load()
            await self._bring(history)
            files = await self._folder.scan(self._stamps, LARGEST)
            if self._notes is not None:
                files = (*files, *await self._notes.state(self._stamps, LARGEST))
            await self._log_edits(history, files)
        except BaseException:
            self.forget()
            raise
        self._history = history
        return files

    async def _is_current(self) -> bool:
        """Return whether nobody else has appended to the log since it was read."""
        if self._count_lines is None or self._history is None:
            return True
        return (await self._count_lines((self._log_path,))).get(self._log_path, 0) == self._history.lines

    async def _bring(self, history: History) -> None:
        """Let the working copy follow the log."""
        if self._copy is None:
            return
        behind = [
            path
            for path in await self._copy.behind(history.files)
            if path != NOTES and not history.of(path).is_unread  # such a file is only where a person has put it
        ]
        for path in behind:
            known = history.of(path)
            if known.text is not None:
                content = encode_text(known.text)
            else:
                content = await self._journal.ask(ReadFile, f"{self._base}/{path}") if known.hash else b""
            await self._copy.bring(path, known, content)
        if behind:
            await self._copy.finish()

    def forget(self) -> None:
        """Trust nothing that is remembered; begin with the log on disk the next time."""
        self._history = None
        self._stamps = {}

    @property
    def keys(self) -> Set[str]:
        """Keys of the calls whose changes the log has. Only after a `refresh`."""
        return self._history.keys if self._history is not None else set()

    async def changes(self) -> list[Change]:
        """Return every change that is still in the log, in order.

        The whole log is read from disk, at most some megabytes. It is used only by people and undo.
        """
        return read_log(await self._journal.ask(ReadFile, self._log_path))[1]

    async def _load(self) -> History:
        """Read the log, repair it if it is damaged, and find out whether its last change was made."""
        data = await self._journal.ask(ReadFile, self._log_path)
        if len(data) > _PARSED_IN_PLACE:
            history, _ = await trio.to_thread.run_sync(read_log, data, abandon_on_cancel=True)
        else:
            history, _ = read_log(data)
        if history.damaged:
            await self._repair(history, data)
        # An edit was noticed in the file itself, so it was certainly made.
        if history.last is not None and self._copy is not None:
            await self._store(history, history.last.path, encode_text(history.last.after.text or ""))
        elif history.last is not None and history.last.how != "edit":
            await self._void_if_not_made(history, history.last)
        return history

    async def _repair(self, history: History, data: bytes) -> None:
        """Move damaged lines aside and rewrite the file, because an append after a torn line would join it."""
        damaged = b"".join(line.rstrip(b"\n") + b"\n" for line in history.damaged)
        aside = await self._journal.ask(SetAside, self._log_path, damaged)
        good = shortened(data)
        await self._journal.ask(ReplaceFile, self._log_path, good)
        history.size = history.shortened_size = len(good)
        history.lines = good.count(b"\n")
        _log.warning("the log of memory was damaged", lines=len(history.damaged), aside=aside)

    async def _void_if_not_made(self, history: History, last: Change) -> None:
        """Write a void line if the file still has the content from before the last change.

        The content is compared by its hash. A file that has neither the old nor the new content was edited by hand since;
        then the change counts as made, and the edit gets a line of its own.
        """
        if last.path != NOTES:
            content = await self._journal.ask(ReadFile, f"{self._base}/{last.path}")
        elif self._notes is not None:
            content = await self._notes.read()
        else:
            return
        if content_hash(content) == last.before.hash != last.after.hash:
            await self._append(history, void_line(last.n, self._clock()))
            history.retract_last()

    async def _store(self, history: History, path: str, content: bytes) -> None:
        """Let the file in the database hold a content, if it is what the log says."""
        if path != NOTES and content_hash(content) == history.of(path).hash:
            await self._journal.ask(ReplaceFile, f"{self._base}/{path}", content)

    async def _log_edits(self, history: History, files: Sequence[FileState]) -> None:
        """Append a line for each file that was changed, created or deleted by hand. All of them are one durable step."""
        edits = [edit for file in files if (edit := self._edit_of(history, file)) is not None]
        gone = history.files.keys() - {file.path for file in files} - (set() if self._notes is not None else {NOTES})
        edits += [(path, ABSENT) for path in sorted(gone) if self._copy is None or not history.of(path).is_unread]
        changes = [
            Change(n, self._clock(), path, "edit", BY_HAND, history.of(path), now)
            for n, (path, now) in enumerate(edits, history.count + 1)
        ]
        if changes:
            await self._record(history, *changes)
            contents = {file.path: file.content or b"" for file in files}
            for path, _ in edits if self._copy is not None else ():
                await self._store(history, path, contents.get(path, b""))
            await self._bring(history)  # so that the copy knows of the edits as what was written
        self._stamps = {file.path: file.stamp for file in files}
        if changes:
            await self._shorten(history)

    def _edit_of(self, history: History, file: FileState) -> tuple[str, KnownContent] | None:
        """Return path and content of a file that was changed by hand, None for one that the log knows."""
        if self._stamps.get(file.path) == file.stamp:
            return None
        content = file.content
        now = unread_content(file.size) if content is None else known_content(content)
        return (file.path, now) if now.hash != history.of(file.path).hash else None

    # ------------------------------------------------------------------ changing

    async def change(self, path: str, content: bytes, how: str, by: Author, undoes: int = 0) -> Change | None:
        """Make the file hold this content, and log the change first. Return None if it holds it already.

        Only after a `refresh`. Cancelled: the change is made whole or not at all, and the next refresh finds out.
        """
        history = self._history
        if history is None:
            raise RuntimeError("change() is called without refresh() before it")
        now = known_content(content)
        if now.hash == history.of(path).hash:
            return None
        change = Change(history.count + 1, self._clock(), path, how, by, history.of(path), now, undoes)
        try:
            await self._record(history, change)
            if path == NOTES and self._notes is not None:
                await self._notes.replace(content)
            else:
                await self._journal.ask(ReplaceFile, f"{self._base}/{path}", content)
            await self._bring(history)
            self._stamps.pop(path, None)
            await self._shorten(history)
        except BaseException:
            self.forget()
            raise
        return change

    async def _record(self, history: History, *changes: Change) -> None:
        """Append changes to the log in one durable step, and follow them."""
        await self._append(history, b"".join(map(change_line, changes)))
        for change in changes:
            history.add(change)

    async def _append(self, history: History, lines: bytes) -> None:
        """Append lines to the log, durably. StorageError if it has lines by now that the history does not have.

        The size is counted here, since the log is shortened by growth.
        """
        try:
            await self._journal.ask(Commit, ((self._log_path, lines),), (), None, (), history.lines)
        except Changed:
            raise StorageError(f"{self._log_path}: somebody else has changed the memory; try again") from None
        history.size += len(lines)
        history.lines += lines.count(b"\n")

    async def _shorten(self, history: History) -> None:
        """Rewrite a log that has grown by `GROWTH` since it was shortened.

        A log of megabytes takes tens of milliseconds to parse, hence the thread. The lock is held meanwhile, so
        no line can be appended to the old log.
        """
        if history.size < history.shortened_size + GROWTH:
            return
        data = await self._journal.ask(ReadFile, self._log_path)
        shorter = await trio.to_thread.run_sync(shortened, data, abandon_on_cancel=True)
        await self._journal.ask(ReplaceFile, self._log_path, shorter)
        history.size = history.shortened_size = len(shorter)
        history.lines = shorter.count(b"\n")
