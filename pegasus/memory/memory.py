"""The agent's long-term memory: facts and episodes in Markdown files, and the ways to read and change them.

The folder is the index; nothing depends on a database. Every change is a line in the log and then one replaced file,
both made durable by the journal before the change is reported (`logged_files`). One change is made at a time, so that
two tasks that add to the same file both find their words in it. Changes that people make by hand are noticed at the
next look. All changes go through `_put`, so that limits and marks of origin apply to each of them.

Reading does not wait for a change that is under way: it looks at the folder instead, in which every file is whole.

Why files and not a database: people are meant to read, correct and version what the agent remembers, with any
editor. That decides the rest. The agent must expect changes at any time, must not lose them, and must be able
to say who wrote what. The log gives the last answer, `provenance` marks words that come from outside.

The bounds keep memory useful to a model: a file fits into one tool result, the index into every task, and the
facts of a reflection into its prompt. A writer that hits a bound gets an error that says what to do; nothing is
cut silently.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs
import trio

from actors import ActorError, Ref, Signal
from pegasus.formatting import file_key
from pegasus.memory.changes import Author, CannotUndo, Change, decode_text, encode_text, undo_change
from pegasus.memory.folder import LARGEST, FileState, FolderReader, MemoryFolder
from pegasus.memory.logged_files import LineCount, LoggedFiles
from pegasus.memory.notes import NOTES, NotesFile
from pegasus.memory.pages import (
    EPISODE_INDEX,
    FOLDER,
    Found,
    Meaning,
    MemoryFile,
    MemoryRefused,
    TextEmbedder,
    appended,
    check_new,
    describe_file,
    find,
    fit_lines,
    format_file,
    index_limit,
    index_message,
    marked_page,
    not_found,
    title_for,
)
from pegasus.memory.provenance import disarmed, keeps_marks, labels_in, mark_for, marked_entry, marked_piece, rewritten
from pegasus.observe import get_logger
from pegasus.storage import FileDisk, FolderFiles, GuardedFiles, JournalMessage, StorageError, StoredFiles

if TYPE_CHECKING:
    from pegasus.memory.search import Searcher
    from pegasus.memory.working_copy import WorkingCopy

FULL: Final = 24_000
"""Bytes that a file may get by a change. It is read whole, and must fit into one tool result of a usual model."""
MOST_GUESTS: Final = 1000
"""Guests whose notes are open at the same time."""
GUESTS: Final = "guests"
"""Folder of what is kept for guests, below data/."""
FACTS_SHOWN: Final = 60_000
"""Characters of facts that a reflection gets in full; of further ones it gets the summaries."""
QUERY_TIME: Final = 1.5
"""Seconds that a search waits for the vector of its query; then it is made by words."""
EMBED_TIME: Final = 60.0
"""Seconds for the vectors of some passages. A model on one's own machine may have to be loaded first."""
_UNKNOWN: Final = Author()
"""Author of changes whose caller names none: the Main Agent itself."""

_log = get_logger("memory")

Edit: TypeAlias = Callable[[tuple[FileState, ...]], Awaitable[tuple[str, str]]]
"""A function that returns the new text of a file, and its mark. It gets the files that there are."""


@attrs.frozen(eq=False, repr=False)
class Written:
    """Result of a change.

    Example: `(await memory.append("facts/user.md", "- Likes: tea", by=Author(source="user"))).size` is 61.
    """

    size: int
    """Bytes of the file now."""
    mark: str = ""
    """The mark of origin that was added to the words, "" for none."""


class Memory:
    """Facts and episodes. There is one for a whole process, since its lock keeps changes apart.

    Every method may raise MemoryRefused (the request cannot be done), OSError (the folder cannot be read), and what
    asking the journal raises (StorageError: nothing was changed). Cancelled during a change: it is made whole or not at
    all.

    >>> await memory.append("facts/user.md", "- Likes: tea", by=Author(source="user"))
    Written(size=61, mark='')
    """

    def __init__(
        self,
        journal: Ref[JournalMessage],
        folder: MemoryFolder,
        clock: Callable[[], int] = lambda: 0,
        open_searcher: Callable[[], Searcher] | None = None,
        notes: NotesFile | None = None,
        *,
        base: str = FOLDER,
        most_bytes: Callable[[], int] = lambda: 0,
        open_guest: Callable[[str], Memory] | None = None,
        embedder: TextEmbedder | None = None,
        copy: WorkingCopy | None = None,
        count_lines: LineCount | None = None,
    ) -> None:
        self._embedder = embedder
        """Makes vectors, so that the search finds by meaning, too; None: it finds words only."""
        self._searched = Signal()
        """Given after each search: what it has indexed may have no vectors yet."""
        self._open_guest = open_guest
        """Opens the notes of a guest, by their key; None: guests have none."""
        self._guests: dict[str, Memory] = {}
        """Notes of guests, by account."""
        self._most_bytes = most_bytes
        """Returns the bytes that all files may have together; 0 = any number."""
        self._folder = folder
        """Shows the files; it never writes."""
        self._open_searcher = open_searcher
        """Opens the full-text search; None where there is none (tests in virtual time)."""
        self._searcher: Searcher | None = None
        """The full-text search; None before the first."""
        self._notes = notes
        """MEMORY.md of the workspace, which has the same log; None: there is none. It is no file of memory: tools do not see it."""
        self._logged = LoggedFiles(journal, folder, clock, notes, base, copy, count_lines)
        """Files and log, used only under `_change_lock`, except for reading the log."""
        self._change_lock = trio.Lock()
        """Held during every change and every refresh."""

    def guest(self, account: str) -> Memory | None:
        """Return the notes of a guest; None for nobody, and where guests have none."""
        if not account or self._open_guest is None:
            return None
        if account not in self._guests:
            # Forgotten all at once: one that is in use goes on, and its files are what counts.
            if len(self._guests) >= MOST_GUESTS:
                self._guests.clear()
            self._guests[account] = self._open_guest(file_key(account))
        return self._guests[account]

    # ------------------------------------------------------------------ reading

    async def scan(self) -> tuple[FileState, ...]:
        """Return the files with their beginnings, as they are in the folder."""
        return await self._folder.scan()

    async def list(self) -> tuple[MemoryFile, ...]:
        """Return the index: every file, by path.

        The summary of each file comes from its first 4 kB, so the size of the files does not matter.
        """
        return tuple(map(describe_file, await self._files()))

    async def read(self, path: str) -> str:
        """Return a whole file. Bytes that are not UTF-8 are shown as �.

        Raises MemoryRefused for an unknown path; its text names similar ones.
        """
        return (await read_whole(path, self._folder, await self._files())).decode("utf-8-sig", "replace")

    async def search(self, query: str, limit: int = 8, where: str = "", prefix: str = "") -> Found:
        """Return passages with these words, best first. where: facts, episodes or sessions; "" for all.

        prefix: beginning of the names of the archives that are searched, those of one chat; "" for those of the conversation of all.
        """
        if self._open_searcher is None:
            raise MemoryRefused("there is no search here; memory_list shows what there is")
        if self._searcher is None:
            self._searcher = self._open_searcher()
        meaning = None
        if (embedder := self._embedder) is not None and embedder.name:
            made = await embedder.embed((query,), QUERY_TIME)
            meaning = Meaning(embedder.name, made[0]) if made and made[0] else None
        try:
            return await self._searcher.search(query, limit, where, prefix, meaning)
        except ValueError as error:
            raise MemoryRefused(str(error)) from None
        finally:
            self._searched.notify()

    async def keep_vectors(self) -> None:
        """Make vectors of what searches have indexed, until cancelled. If the embedder does not work, the next search tries again."""
        embedder = self._embedder
        while True:
            seen = self._searched.count
            while embedder and self._searcher and await self._searcher.embed_some(embedder, EMBED_TIME):
                pass
            await self._searched.wait(seen)

    async def _files(self) -> tuple[FileState, ...]:
        """Return the files, after logging edits by hand, unless a change is under way or the log cannot be written."""
        try:
            # Whoever only reads does not wait for a change. The folder then shows the state before or after it.
            self._change_lock.acquire_nowait()
        except trio.WouldBlock:
            return await self._folder.scan()
        try:
            return await self._refresh()
        except (StorageError, ActorError) as error:
            _log.warning("edits of memory cannot be logged", error=str(error))
            return await self._folder.scan()
        finally:
            self._change_lock.release()

    async def _refresh(self) -> tuple[FileState, ...]:
        """Return the files, after logging edits by hand, also that of the notes. The caller holds the lock."""
        return tuple(file for file in await self._logged.refresh() if file.path != NOTES)

    async def read_notes(self) -> str:
        """Return MEMORY.md of the workspace, "" if there is none."""
        return "" if self._notes is None else (await self._notes.read()).decode("utf-8-sig", "replace")

    # ------------------------------------------------------------------ changing

    async def write_as_it_is(self, path: str, content: bytes, by: Author, how: str = "write") -> None:
        """Make a file, or MEMORY.md of the workspace, hold exactly this, and log the change. Nothing is checked or marked."""
        async with self._change_lock:
            await self._refresh()
            await self._logged.change(path, content, how, by)

    async def write(self, path: str, content: str, by: Author = _UNKNOWN, seen: Iterable[str] = ()) -> Written:
        """Make the file hold exactly this, with a line end and a mark if it needs one. An empty content deletes it.

        seen: the sources outside of the agent that the writer has read on its way; see `provenance.mark_for`.
        """

        async def edit(files: tuple[FileState, ...]) -> tuple[str, str]:
            # A writer cannot make marks of its own: what looks like one is defused before the true one is added.
            text = rewritten(decode_text(await self._content(path, files)), content)
            mark = mark_for(text, by.source, seen)
            return marked_page(text, mark), mark

        return await self._edit(path, "write", by, edit)

    async def patch(self, path: str, old: str, new: str, by: Author = _UNKNOWN, seen: Iterable[str] = ()) -> Written:
        """Replace the one place where `old` is by `new`. Both are taken literally.

        Refused unless `old` occurs exactly once: a model that guesses at the text must not change another
        place.
        """
        if not old:
            raise MemoryRefused("old_str is empty; memory_append adds something")

        async def edit(files: tuple[FileState, ...]) -> tuple[str, str]:
            text = await self._editable_text(path, files)
            first = text.find(old)
            if first < 0:
                raise MemoryRefused(f"old_str is not in {path}; memory_read shows what is, to be given exactly")
            # Searched from the next character on, so that overlapping places count as two.
            if text.find(old, first + 1) >= 0:
                raise MemoryRefused(
                    f"old_str is more than once in {path}; give more of the text around the place you mean"
                )
            mark = mark_for(new, by.source, seen)
            piece = marked_piece(disarmed(new), mark)
            after = text[:first] + piece + text[first + len(old) :]
            try:
                return keeps_marks(text, after, first, len(old), len(piece)), mark
            except ValueError as error:
                raise MemoryRefused(f"{path}: {error}") from None

        return await self._edit(path, "patch", by, edit, makes=False)

    async def append(
        self, path: str, entry: str, summary: str | None = None, by: Author = _UNKNOWN, seen: Iterable[str] = ()
    ) -> Written:
        """Add an entry at the end of the file, which is created if there is none. summary: replaces that of the file."""
        if not entry.strip():
            raise MemoryRefused("entry is empty")

        async def edit(files: tuple[FileState, ...]) -> tuple[str, str]:
            text = await self._editable_text(path, files) if find(path, files) else ""
            mark = mark_for(f"{entry}\n{summary or ''}", by.source, seen)
            # The entry stands at the end of the file, and the summary at its beginning, which the index shows.
            head, head_mark = (None, "") if summary is None else (disarmed(summary), mark_for(summary, by.source, seen))
            return appended(text, marked_entry(disarmed(entry), mark), head, title_for(path), head_mark), mark

        return await self._edit(path, "append", by, edit)

    async def _editable_text(self, path: str, files: tuple[FileState, ...]) -> str:
        """Return the text of a file that may be changed and written back without losing anything.

        Raises MemoryRefused if it is not UTF-8, because replacement characters would be written back.
        """
        try:
            return (await read_whole(path, self._folder, files)).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise MemoryRefused(f"{path} is not UTF-8 (byte {error.start}); only memory_write can replace it") from None

    async def _edit(self, path: str, how: str, by: Author, edit: Edit, *, makes: bool = True) -> Written:
        """Change a file as `edit` says. how: the name of the change in the log. makes: the file may be a new one.

        A call that a crash has interrupted, and that is run again, finds its change in the log and makes no other.
        """
        async with self._change_lock:
            # Edits by hand are logged first, so that the change that follows begins from what the file holds now.
            files = await self._refresh()
            if makes:
                check_new(path, files)
            if by.key and by.key in self._logged.keys:
                file = find(path, files)
                return Written(file.size if file else 0)
            text, mark = await edit(files)
            content = await self._checked_content(path, text if text.endswith("\n") or not text else f"{text}\n")
            await self._change(path, content, how, by)
            return Written(len(content), mark)

    async def _checked_content(self, path: str, text: str) -> bytes:
        """Return the bytes of a file's new text. Raises MemoryRefused for what is no text, and for too much."""
        try:
            content = text.encode()
        except UnicodeEncodeError as error:
            raise MemoryRefused(f"character {error.start} is half of a pair, which is no text") from None
        if len(content) > FULL:
            found = f"{path} would have {len(content):,} bytes; a memory file may have {FULL:,}"
            raise MemoryRefused(f"{found}. Put it in another file, or shorten this one")
        if most := self._most_bytes():
            others = sum(file.size for file in await self._folder.scan() if file.path != path)
            if others + len(content) > most:
                raise MemoryRefused(
                    f"these notes would have {others + len(content):,} bytes; allowed: {most:,}. Shorten one"
                )
        return content

    async def _content(self, path: str, files: tuple[FileState, ...]) -> bytes:
        """Return the content of a file that may have changed, b"" if it is not there."""
        if path == NOTES and self._notes is not None:
            return await self._notes.read()
        return await read_whole(path, self._folder, files) if find(path, files) else b""

    async def _change(self, path: str, content: bytes, how: str, by: Author, undoes: int = 0) -> Change | None:
        """Replace the file and log it. Return None if it has this content already."""
        if path != NOTES:
            await self._folder.check(path)
        try:
            return await self._logged.change(path, content, how, by, undoes)
        finally:  # a change that was cancelled may have been made
            if self._searcher is not None:
                self._searcher.changed()

    # ------------------------------------------------------------------ the log

    async def log(self, path: str | None = None, limit: int = 50, before: int | None = None) -> tuple[Change, ...]:
        """Return the last changes, newest first, including those by hand.

        path: only changes of this file. before: only changes with smaller numbers. Raises MemoryRefused for a file that neither is
        there nor was ever changed.
        """
        files = await self._files()
        changes = reversed(await self._logged.changes())
        matching = (
            change for change in changes if path in (None, change.path) and (before is None or change.n < before)
        )
        found = tuple(islice(matching, limit))
        if path is not None and before is None and not found:
            check_logged(path, files)
        return found

    async def undo(self, n: int, by: Author = _UNKNOWN) -> Change:
        """Take back change `n`, whatever was changed elsewhere in the file since. The undo is a change itself.

        Raises MemoryRefused, with the reason, if later changes touch the same place.

        After a power failure in between, the undo is made or not, like every change. `n` may be an undo itself,
        which makes the original change again.
        """
        async with self._change_lock:
            files = await self._refresh()
            changes = await self._logged.changes()
            change = next((change for change in changes if change.n == n), None)
            if change is None:
                raise MemoryRefused(f"there is no change {n} in the log (any more)")
            text = decode_text(await self._content(change.path, files))
            # Only changes of the same file matter: they say where in the text the lines of this change are by now.
            later = [other for other in changes if other.path == change.path and other.n > n]
            try:
                content = encode_text(undo_change(change, later, text))
            except CannotUndo as error:
                reason = next((f"change {other.n} took it back" for other in later if other.undoes == n), str(error))
                raise MemoryRefused(f"change {n} of {change.path} cannot be taken back: {reason}") from None
            undone = await self._change(change.path, content, "undo", by, n)
            if undone is None:
                raise MemoryRefused(f"change {n} of {change.path} is taken back already")
            return undone

    # ------------------------------------------------------------------ for tasks

    async def index_message(self, context_window: int) -> str:
        """Return the message that a task gets before its first thought; "" if memory is empty.

        context_window: the model's, in tokens; in a small one the index names the most important files only. It comes from the
        folder alone, so that no task waits for the journal.
        """
        files = tuple(map(describe_file, await self._folder.scan()))
        return index_message(files, index_limit(context_window))

    async def for_reflection(self) -> str:
        """Return the facts in full and the summaries of episodes, newest first. Large facts are named only."""
        files = await self._files()
        facts = [file for file in files if not file.path.startswith("episodes/")]
        episodes = sorted((file for file in files if file.path.startswith("episodes/")), reverse=True)
        parts, room = ["# Facts"], FACTS_SHOWN
        for file in facts:
            room -= file.size
            if file.size > LARGEST or room < 0:
                parts.append(f"## {format_file(describe_file(file))}\n(not shown here; memory_read shows it)")
                continue
            text = (await read_whole(file.path, self._folder, files)).decode("utf-8-sig", "replace")
            if labels_in(text):
                parts.append(f"## {format_file(describe_file(file))}\n(has words from outside; memory_read shows them)")
                continue
            parts.append(f"## {file.path}\n{text.strip()}")
        lines = fit_lines([format_file(describe_file(file)) for file in episodes], EPISODE_INDEX)
        return "\n\n".join([*parts, "" if facts else "(none yet)", "# Episodes", "\n".join(lines) or "(none yet)"])


async def read_whole(path: str, folder: MemoryFolder, files: tuple[FileState, ...]) -> bytes:
    """Return all of one of these files.

    Raises MemoryRefused for a file that is not among them and for one that is too large, and OSError.

    The file may have grown since it was listed; then its first `LARGEST` bytes are returned.
    """
    file = find(path, files)
    if file is None:
        raise not_found(path, files)
    if file.size > LARGEST:
        raise MemoryRefused(
            f"{path} has {file.size:,} bytes, more than can be read ({LARGEST:,}): somebody should split it by hand"
        )
    return await folder.read(path, LARGEST)


def check_logged(path: str, files: tuple[FileState, ...]) -> None:
    """Raise MemoryRefused if there is no file of this name, so that an empty log of it would mislead. MEMORY.md may be missing."""
    if path != NOTES and find(path, files) is None:
        raise not_found(path, files)


async def read_or_nothing(read: Callable[[], Awaitable[str]]) -> str:
    """Return the text that `read`, a method of `Memory`, gives; "" if memory cannot be read.

    The failure is logged: no turn and no task fails because of it. StorageError and ActorError are the journal's, OSError the
    folder's, MemoryRefused the memory's own.
    """
    try:
        return await read()
    except (MemoryRefused, OSError, StorageError, ActorError) as error:
        _log.warning("memory cannot be read", error=str(error))
        return ""


def memory_in(
    data: Path,
    journal: Ref[JournalMessage],
    clock: Callable[[], int],
    workspace: Path | None = None,
    guest_bytes: Callable[[], int] = lambda: 0,
    embedder: TextEmbedder | None = None,
    stored: StoredFiles | None = None,
    count_lines: LineCount | None = None,
) -> Memory:
    """Return the memory of a home, with search. data: the home's data folder. workspace: has MEMORY.md; None: it is left out.

    stored: has the archives of conversations; None: the data folder.
    guest_bytes: returns the bytes that the notes of one guest may have. embedder: makes vectors of what the search finds; notes of
    guests are not searched. count_lines: where nodes share a database, returns the lines of files there; data has a copy then.
    """
    notes = None if workspace is None else NotesFile(FileDisk(workspace, GuardedFiles(workspace)))

    def copy_in(base: str) -> WorkingCopy | None:
        """Return the copy of a memory whose files are in a database; None without one, where it is not imported either."""
        if count_lines is None:
            return None
        from pegasus.memory.working_copy import WorkingCopy

        return WorkingCopy(FileDisk(data), base)

    def open_guest(key: str) -> Memory:
        """Return the notes of the guest of this key."""
        base = f"{GUESTS}/{key}/{FOLDER}"
        return Memory(
            journal,
            FolderReader(data / base),
            clock,
            base=base,
            most_bytes=guest_bytes,
            copy=copy_in(base),
            count_lines=count_lines,
        )

    return Memory(
        journal,
        FolderReader(data / FOLDER),
        clock,
        partial(open_searcher, data, stored or FolderFiles(data)),
        notes,
        open_guest=open_guest,
        embedder=embedder,
        copy=copy_in(FOLDER),
        count_lines=count_lines,
    )


def open_searcher(data: Path, stored: StoredFiles) -> Searcher:
    """Return the full-text search over a home. SQLite is imported here, at the first search.

    data: its data folder. stored: has the archives of conversations.
    """
    from pegasus.memory.search import Searcher

    folder = data / FOLDER
    return Searcher(folder, stored, folder / ".index.sqlite")
