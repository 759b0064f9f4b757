"""Sessions that were put aside, to be read again: `session_archive_read`, and what `pegasus sessions` shows.

They are read directly, not through the journal: nobody writes to an archive any more, and one may be large. Only what has an
archive's name is found, in the session's own folder, and only regular files.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, Protocol

import attrs
import trio

from pegasus.conversation import BadEntry, Entry, decode
from pegasus.formatting import format_time
from pegasus.messages import Json, Metadata
from pegasus.models import ToolSpec
from pegasus.tools import Effect, Tool, ToolContext, ToolError, parameters

CURRENT: Final = "current.jsonl"
LINES: Final = 50
"""Lines of a page, if nobody wants another number."""
MOST_LINES: Final = 500
LONGEST: Final = 16 << 20
"""Bytes of a line that is looked at; what is longer is no session line of ours."""
_NAME: Final = re.compile(
    r"\d{4}-\d{2}-\d{2}-\d{6}(?:-\d{1,9})?\.jsonl|\d{8}T\d{6}\.jsonl|\d{4}-\d{2}-\d{2}T\d{4}(?:\d{2})?\.jsonl"
)
"""`2026-02-25-143000.jsonl`, `-2` and so on if several are of one second; and the forms that other programs have written."""


def is_archive(name: str) -> bool:
    """Whether a file of this name is an archive (decision X19: all forms are read)."""
    return _NAME.fullmatch(name) is not None


class ArchivePage(NamedTuple):
    """A part of an archive. offset: number of its first line, from 1. next: (offset, skip) of what follows, None at the end."""

    text: str
    offset: int
    next: tuple[int, int] | None


class SessionArchives(Protocol):
    """The archives of one session."""

    async def names(self) -> tuple[str, ...]:
        """Their names, oldest first."""

    async def read(self, name: str, offset: int, skip: int, lines: int, most: int) -> ArchivePage:
        """At most `lines` lines from the `offset`-th on, without the first `skip` characters; at most `most` characters.

        Raises OSError; FileNotFoundError if there is no such archive.
        """


class FolderArchives:
    """The archives in a folder (`<home>/data/main`)."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = os.fspath(folder)

    async def names(self) -> tuple[str, ...]:
        """See `SessionArchives`. Cancelled: the thread ends by itself."""
        return await trio.to_thread.run_sync(archive_names, self._folder, abandon_on_cancel=True)

    async def read(self, name: str, offset: int, skip: int, lines: int, most: int) -> ArchivePage:
        """See `SessionArchives`. Cancelled: the thread ends by itself."""

        def work() -> ArchivePage:
            with open_archive(self._folder, name) as file:
                return page_of(file, offset, skip, lines, most)

        return await trio.to_thread.run_sync(work, abandon_on_cancel=True)


def archive_names(folder: str) -> tuple[str, ...]:
    """The archives in a folder, oldest first; none if there is no such folder. Blocks. Raises OSError."""
    try:
        with os.scandir(folder) as found:
            names = [one.name for one in found if is_archive(one.name) and one.is_file(follow_symlinks=False)]
    except FileNotFoundError:
        return ()
    return tuple(sorted(names, key=_in_time))


def _in_time(name: str) -> tuple[str, int]:
    """The digits of the time, then the number of the second ones."""
    digits = re.sub(r"\D", "", name[:17])[:14].ljust(14, "0")
    last = re.fullmatch(r".{17}-(\d+)\.jsonl", name)
    return digits, int(last[1]) if last else 1


@contextmanager
def open_archive(folder: str, name: str) -> Iterator[BinaryIO]:
    """A regular file in this folder, nothing else. Blocks. Raises OSError."""
    fd = os.open(os.path.join(folder, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise FileNotFoundError(name)
        with os.fdopen(fd, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(fd)


# ------------------------------------------------------------------ reading, pure over a file


def page_of(file: Iterable[bytes], offset: int, skip: int, lines: int, most: int) -> ArchivePage:
    """See `SessionArchives.read`."""
    parts: list[str] = []
    room = most
    for number, raw in enumerate(file, 1):
        if number < offset:
            continue
        if number - offset >= lines:
            return ArchivePage("\n".join(parts), offset, (number, 0))
        text = line_text(number, raw)[skip if number == offset else 0 :]
        size = _escaped(text)
        if size > room:
            if parts:
                return ArchivePage("\n".join(parts), offset, (number, 0))
            text = _fitting(text, room)
            return ArchivePage(text, offset, (number, skip + len(text)))
        parts.append(text)
        room -= size + 2
    return ArchivePage("\n".join(parts), offset, None)


def _escaped(text: str) -> int:
    """How long it is in a tool's result, which is JSON."""
    return len(json.dumps(text, ensure_ascii=False))


def _fitting(text: str, room: int) -> str:
    """As much of the beginning as has room; a character at least, so that there is an end to it."""
    text = text[: max(1, room)]
    while len(text) > 1 and _escaped(text) > room:
        text = text[: len(text) * 9 // 10]
    return text


def line_text(number: int, raw: bytes) -> str:
    """One line of a session, for reading."""
    if len(raw) > LONGEST:
        return f"{number}. (a line of {len(raw):,} bytes, which is no session line)"
    try:
        return entry_text(number, decode(json.loads(raw)))
    except (ValueError, RecursionError, BadEntry) as error:
        return f"{number}. (a damaged line: {error}) {raw[:200].decode(errors='replace')!r}"


def entry_text(number: int, entry: Entry) -> str:
    """Number, time (UTC), who, what; each call on a line of its own."""
    heading = f"{number}. [{format_time(entry.ts)}] {_who(entry)}:"
    calls = [f"→ {call.name} {json.dumps(call.arguments, ensure_ascii=False)}" for call in entry.calls]
    body = [entry.content] if entry.content.strip() else []
    return " ".join((heading, *body)) + "".join(f"\n  {call}" for call in calls)


def _who(entry: Entry) -> str:
    kind = entry.metadata.get("type")
    what = f", {kind}" if isinstance(kind, str) else ", failed" if entry.failed else ""
    return f"{entry.role}{what}"


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
                "description": f"lines at most; {LINES} if left out",
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


def archive_tool(archives: SessionArchives) -> Tool:
    """session_archive_read over these archives."""

    async def run(arguments: Metadata, context: ToolContext) -> Json:
        given: Any = arguments
        name = str(given["file"])
        await _check(archives, name)
        offset, skip = given.get("offset", 1), given.get("skip", 0)
        try:
            page = await archives.read(name, offset, skip, given.get("limit", LINES), context.max_result - 300)
        except FileNotFoundError:
            raise ToolError(await _unknown(archives, name)) from None
        except OSError as error:
            raise ToolError(f"{name} cannot be read: {error.strerror or error}") from error
        if not page.text and page.next is None and offset > 1:
            raise ToolError(f"{name} ends before line {offset}")
        result: dict[str, Json] = {"file": name, "offset": offset, "text": page.text}
        if page.next is not None:
            result["next"] = {"offset": page.next[0], **({"skip": page.next[1]} if page.next[1] else {})}
        return result

    return attrs.evolve(Tool(_SPEC, run, "context", Effect.PURE), more="The result says at which offset it goes on.")


async def _check(archives: SessionArchives, name: str) -> None:
    if name == CURRENT:
        raise ToolError(f"{CURRENT} is no archive: it is the conversation that you have before you")
    if not is_archive(name):
        raise ToolError(await _unknown(archives, name))


async def _unknown(archives: SessionArchives, name: str) -> str:
    try:
        names = await archives.names()
    except OSError as error:
        return f"there is no archive {name[:80]!r}, and their folder cannot be read: {error.strerror or error}"
    if not names:
        return f"there is no archive {name[:80]!r}: nothing was archived so far"
    return f"there is no archive {name[:80]!r}; the newest are {', '.join(names[-10:])}"
