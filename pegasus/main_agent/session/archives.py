"""Archives: earlier sessions, which `session_archive_read` and `pegasus sessions` read.

/new and compaction turn the current session into an archive. It is never changed after that, except that it may be deleted, by a
person or when it is old (`remove_old_archives`).

Archives are read beside the journal (`StoredFiles`). An archive may be large, and the journal does one request after
the other, so reading through it would delay every message that is written meanwhile. Because archives do not change, reading them
without the journal cannot show half of a write.

Only regular files with an archive's name, in the session's own folder, are opened. The name comes from a model or from a command
line, and neither may reach another file. The name is matched as a whole (it has no `/`), and links are refused.

An archive is read in pages, since the result of a tool has a bounded size. A page ends after a number of lines or of characters,
whichever comes first. A line that is longer than a page is returned in parts. A page names the place where the next one begins, so
reading needs no state between two calls, and a restart in between does no harm. The file is read from its beginning for each page:
simple, and fast enough for the few pages that a model reads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, BinaryIO, Final, NamedTuple, Protocol

import attrs
import trio

from actors import Ref
from pegasus.conversation import BadEntry, Entry, decode, parse_metadata_line
from pegasus.formatting import format_time, truncate
from pegasus.json_lines import LONGEST_LINE
from pegasus.main_agent.session.files import CURRENT, GLOBAL, SESSIONS, SessionFiles
from pegasus.main_agent.session.names import name_key
from pegasus.messages import APART, Json, Metadata
from pegasus.models import ToolSpec
from pegasus.outside import Untrusted, join_outside
from pegasus.storage import JournalMessage, RemoveOldFiles, StoredFiles
from pegasus.tools import Effect, LabelledResult, Reach, Tool, ToolContext, ToolError, parameters
from pegasus.wire import decode_json, encode_json

PAGE_LINES: Final = 50
"""Lines of a page if the caller names no number. A page of usual lines is then well within a tool's result."""
MOST_LINES: Final = 500
"""Largest number of lines that the model may ask for. The bound on characters ends nearly every page before."""
PAGE_LENGTH: Final = 25_600
"""Characters of a tool's result with a page, even where the caller may have longer results: an archive is read in many pages."""
RESULT_OVERHEAD: Final = 300
"""Characters of a tool's result beside the text of the page: the keys, the file name and the place of the next page."""

TITLE_LENGTH: Final = 60
"""Characters of the message that tells a person which conversation an archive holds."""
_TITLE_LINES: Final = 200
"""Lines in which that message is looked for."""
_NAME: Final = re.compile(r"(\d{4}-\d{2}-\d{2}-\d{6})(?:-(\d{1,9}))?\.jsonl")
"""`2026-02-25-143000.jsonl`, with `-2` and so on if there are several of one second."""
_OLD: Final = {GLOBAL.folder: rf"(?P<of>){_NAME.pattern}", SESSIONS: rf"(?P<of>[^.]+\.){_NAME.pattern}"}
"""Folders of archives, and the names of those in it that may be removed. Each conversation keeps its last one, which goes on in the
session that there is now."""


async def remove_old_archives(journal: Ref[JournalMessage], since: int, before: int, limit: int) -> Sequence[str]:
    """Remove archives whose last line was written in this time (ms), at most so many; return their paths below data/.

    The running sessions stay, and the archive that each of them continues. Raises StorageError and ActorError.
    """
    removed: list[str] = []
    for folder, names in _OLD.items():
        removed += await journal.ask(RemoveOldFiles, (folder,), since, before, limit - len(removed), names)
    return removed


def is_archive(name: str) -> bool:
    """Return whether a file of this name is an archive."""
    return _NAME.fullmatch(name) is not None


class ArchivePage(NamedTuple):
    """Part of an archive.

    Example: `ArchivePage("7. [2026-02-25 14:30] user: hello", 7, (8, 0))` holds line 7, and line 8 begins the next page.
    """

    text: str
    """Lines as people and models read them, joined by newlines."""
    offset: int
    """Number of its first line, counted from 1."""
    next: tuple[int, int] | None
    """Line and number of characters to skip in it, where the next page begins; None at the end."""
    outside: tuple[Untrusted, ...] = ()
    """Labels of its lines."""


class SessionArchives(Protocol):
    """The archives of one session. Tests replace it by one in memory.

    Example::

        archives: SessionArchives = StoredArchives(FolderFiles(home.data))
        page = await archives.read("2026-02-25-143000.jsonl", offset=1, skip=0, lines=50, limit=20_000)
        page.next  # (51, 0), where the next page begins
    """

    async def names(self) -> tuple[str, ...]:
        """Return their names, oldest first."""

    async def is_apart(self, name: str) -> bool:
        """Return whether guests were heard in the conversation that an archive holds. Raises OSError."""

    async def title(self, name: str) -> str:
        """Return the name of the conversation in an archive, else the beginning of its first message, else "". Raises OSError."""

    async def read(self, name: str, offset: int, skip: int, lines: int, limit: int) -> ArchivePage:
        """Return a page of an archive.

        name: file name, for which `is_archive` is true. offset: number of the first line, counted from 1. skip: characters of that
        line to leave out. lines: lines of the page at most. limit: characters of the page at most, as JSON.

        The text is empty if the archive ends before `offset`. Raises OSError; FileNotFoundError if there is no such archive.
        """


class StoredArchives:
    """The archives of a session as they are stored.

    Example:
        archives = StoredArchives(FolderFiles(home.data))
        page = await archives.read((await archives.names())[-1], 1, 0, 50, 20_000)
    """

    def __init__(
        self, data: StoredFiles, files: SessionFiles = GLOBAL, given: Callable[[], Mapping[str, str]] = dict
    ) -> None:
        """Name the session. given: returns the names of conversations (`ConversationNames.all`)."""
        self._data = data
        self._files = files
        """Names of the session's files, by which its archives are told from others."""
        self._given = given

    async def names(self) -> tuple[str, ...]:
        """Return their names, oldest first. Cancelled: the reading thread ends by itself."""
        return await trio.to_thread.run_sync(archive_names, self._data, self._files, abandon_on_cancel=True)

    async def is_apart(self, name: str) -> bool:
        """Return whether guests were heard, as the first line says. Cancelled: the reading thread ends by itself."""

        def read() -> bool:
            """Return it; block while the disk reads the line."""
            with open_archive(self._data, name, self._files) as file:
                return says_apart(file.readline(LONGEST_LINE))

        return await trio.to_thread.run_sync(read, abandon_on_cancel=True)

    async def title(self, name: str) -> str:
        """Return the name, or the beginning of the first message. Cancelled: the reading thread ends by itself."""
        given = self._given()

        def read() -> str:
            """Return it; block while the disk reads the first lines."""
            with open_archive(self._data, name, self._files) as file:
                return title_of(iter(partial(file.readline, LONGEST_LINE), b""), self._files, given)

        return await trio.to_thread.run_sync(read, abandon_on_cancel=True)

    async def read(self, name: str, offset: int, skip: int, lines: int, limit: int) -> ArchivePage:
        """Return a page, as `SessionArchives.read` does. Cancelled: the reading thread ends by itself."""

        def read() -> ArchivePage:  # in a thread, which closes the file itself even if nobody waits for it any more
            """Return the page; block while the disk reads it."""
            with open_archive(self._data, name, self._files) as file:
                return page_of(file, offset, skip, lines, limit)

        return await trio.to_thread.run_sync(read, abandon_on_cancel=True)


@attrs.frozen
class ApartArchives:
    """Archives of conversations in which guests were heard, without what an owner had said in private at the same address before."""

    _archives: SessionArchives
    """All archives of the chat."""

    async def names(self) -> tuple[str, ...]:
        """Return their names, oldest first."""
        return tuple([name for name in await self._archives.names() if await self._archives.is_apart(name)])

    async def read(self, name: str, offset: int, skip: int, lines: int, limit: int) -> ArchivePage:
        """Return a page, as `SessionArchives.read` does; another archive of the chat is not there."""
        if not await self._archives.is_apart(name):
            raise FileNotFoundError(name)
        return await self._archives.read(name, offset, skip, lines, limit)

    async def title(self, name: str) -> str:
        """Return what an archive is called, as `SessionArchives.title` does."""
        return await self._archives.title(name)

    async def is_apart(self, name: str) -> bool:
        """Return whether guests were heard, as `SessionArchives.is_apart` does."""
        return await self._archives.is_apart(name)


def archive_names(data: StoredFiles, files: SessionFiles = GLOBAL) -> tuple[str, ...]:
    """Return the names of a session's archives, oldest first. Blocks. Raises OSError."""
    start = files.prefix

    def is_wanted(name: str) -> bool:
        return name.startswith(start) and is_archive(name.removeprefix(start))

    names = [file.name.removeprefix(start) for file in data.scan(files.folder, is_wanted)]
    return tuple(sorted(names, key=archive_age))


def archive_age(name: str) -> tuple[str, int]:
    """Return what orders names by age: the time, and the number among the archives of one second."""
    found = _NAME.fullmatch(name)
    return (found[1], int(found[2] or 1)) if found else ("", 0)


def open_archive(data: StoredFiles, name: str, files: SessionFiles = GLOBAL) -> BinaryIO:
    """Open an archive of a session, or (CURRENT) the session, for reading.

    name: must have passed `is_archive`, since a name with `/` would leave the folder. Blocks. Raises OSError.
    """
    return data.open(f"{files.folder}/{files.file(name)}")


# ------------------------------------------------------------------ pages, pure over a file


def page_of(file: Iterable[bytes], offset: int, skip: int, lines: int, limit: int) -> ArchivePage:
    """Return a page of a file that is read line by line, as `SessionArchives.read` does.

    Characters are counted as they stand in JSON, since that is what the result of a tool is.
    """
    parts: list[str] = []
    labels: tuple[Untrusted, ...] = ()
    room = limit
    for number, raw in enumerate(file, 1):
        if number < offset:
            continue
        if number - offset >= lines:
            return ArchivePage("\n".join(parts), offset, (number, 0), labels)
        text = line_text(number, raw)[skip if number == offset else 0 :]
        size = len(encode_json(text))
        if size > room:
            if parts:
                return ArchivePage("\n".join(parts), offset, (number, 0), labels)
            text = _fit(text, room)
            return ArchivePage(text, offset, (number, skip + len(text)), _labels_of_line(raw))
        labels = join_outside(labels, _labels_of_line(raw))
        parts.append(text)
        room -= size + 2
    return ArchivePage("\n".join(parts), offset, None, labels)


def read_line(raw: bytes) -> Entry | None:
    """Return the entry in a line of a session file, None if the line is damaged."""
    try:
        return decode(decode_json(raw))
    except ValueError:
        return None


def says_apart(first_line: bytes) -> bool:
    """Return whether the first line of a session says that guests are heard in it."""
    entry = read_line(first_line)
    return entry is not None and entry.metadata.get(APART) is True


def title_of(lines: Iterable[bytes], files: SessionFiles, given: Mapping[str, str]) -> str:
    """Return the name of a conversation, else the beginning of the first message that somebody wrote, on one line.

    "" if the first lines hold none. lines: of its file. given: the names of conversations.
    """
    for number, raw in enumerate(islice(lines, _TITLE_LINES)):
        entry = read_line(raw)
        if not number and entry is not None and (name := given.get(name_key(files, entry))):
            return name
        if entry is None or entry.role != "user" or entry.metadata.get("type") is not None:
            continue
        text = entry.content.partition("\n")[2] if parse_metadata_line(entry.content) else entry.content
        if words := " ".join(text.split()):
            return truncate(words, TITLE_LENGTH)
    return ""


def _labels_of_line(raw: bytes) -> tuple[Untrusted, ...]:
    """Return the labels of a line. Nobody knows whose words a damaged one holds."""
    if len(raw) > LONGEST_LINE:
        return ()
    entry = read_line(raw)
    return (Untrusted.OTHER,) if entry is None else entry.outside


def _fit(text: str, room: int) -> str:  # JSON may need six characters for one, so the length is found by trying
    """Return as much of the beginning as fits; at least one character, so that reading comes to an end."""
    text = text[: max(1, room)]
    while len(text) > 1 and len(encode_json(text)) > room:
        text = text[: len(text) * 9 // 10]
    return text


def line_text(number: int, raw: bytes) -> str:
    """Return one line of a session file as people and models read it.

    number: of the line, counted from 1. raw: the line, with or without its newline. A damaged line is shown with the error and its
    beginning, since a person may still find in it what was looked for. Never raises.
    """
    if len(raw) > LONGEST_LINE:
        return f"{number}. (a line of {len(raw):,} bytes, which is no session line)"
    try:
        return _entry_text(number, decode(decode_json(raw)))
    except (ValueError, BadEntry) as error:
        return f"{number}. (a damaged line: {error}) {raw[:200].decode(errors='replace')!r}"


def _entry_text(number: int, entry: Entry) -> str:
    """Return number, time (UTC), author and text of an entry; each call on a line of its own."""
    kind = entry.metadata.get("type")
    remark = f", {kind}" if isinstance(kind, str) else ", failed" if entry.failed else ""
    heading = f"{number}. [{format_time(entry.ts)}] {entry.role}{remark}:"
    body = f" {entry.content}" if entry.content.strip() else ""
    return heading + body + "".join(f"\n  → {call.name} {encode_json(call.arguments)}" for call in entry.calls)


# ------------------------------------------------------------------ the tool

_SPEC: Final = ToolSpec(
    "session_archive_read",
    "Read an archived part of your conversations, such as the one that a summary names.",
    parameters(
        {
            "file": {"type": "string", "description": "its name, such as 2026-02-25-143000.jsonl"},
            "offset": {"type": "integer", "minimum": 1, "description": "line to begin with; 1 if left out"},
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": MOST_LINES,
                "description": f"lines at most; {PAGE_LINES} if left out",
            },
            "skip": {
                "type": "integer",
                "minimum": 0,
                "description": "characters of the first line to leave out, where a line is longer than one answer",
            },
        },
        "file",
    ),
)
"""The tool as the model is shown it. The bounds stand in the schema, so that arguments beyond them are refused before it runs."""


def archive_tool(archives_of: Callable[[ToolContext], SessionArchives]) -> Tool:
    """Return session_archive_read. Its result is `{file, offset, text, next?}`.

    archives_of: returns the archives of the conversation that a call comes from.
    """

    async def run(arguments: Metadata, context: ToolContext) -> LabelledResult:
        """Read a page, and return it with the labels of its lines. Raises ToolError, which names archives that there are.

        A page of lines from outside makes the caller a reader of them, so the result carries their labels.
        """
        # The arguments have been checked against the schema above, so their types are certain here.
        given: Any = arguments
        name, archives = str(given["file"]), archives_of(context)
        if name == CURRENT:
            raise ToolError(f"{CURRENT} is no archive: it is the conversation that you have before you")
        if not is_archive(name):
            raise ToolError(await _unknown_archive(archives, name))
        offset, skip, lines = given.get("offset", 1), given.get("skip", 0), given.get("limit", PAGE_LINES)
        try:
            limit = min(context.max_result, PAGE_LENGTH) - RESULT_OVERHEAD
            page = await archives.read(name, offset, skip, lines, limit)
        except FileNotFoundError:
            raise ToolError(await _unknown_archive(archives, name)) from None
        except OSError as error:
            raise ToolError(f"{name} cannot be read: {error.strerror or error}") from error
        if not page.text and page.next is None and offset > 1:
            raise ToolError(f"{name} ends before line {offset}")
        result: dict[str, Json] = {"file": name, "offset": offset, "text": page.text}
        if page.next is not None:
            result["next"] = {"offset": page.next[0], **({"skip": page.next[1]} if page.next[1] else {})}
        return LabelledResult(result, page.outside)

    more = "The result says at which offset it goes on."
    return Tool(_SPEC, run, "context", Effect.PURE, more, Reach.INSIDE)


async def _unknown_archive(archives: SessionArchives, name: str) -> str:
    """Return the error for a name that no archive has: it names the newest ones."""
    try:
        names = await archives.names()
    except OSError as error:
        return f"there is no archive {name[:80]!r}, and their folder cannot be read: {error.strerror or error}"
    if not names:
        return f"there is no archive {name[:80]!r}: nothing was archived so far"
    return f"there is no archive {name[:80]!r}; the newest are {', '.join(names[-10:])}"
