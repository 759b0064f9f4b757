"""A foreign home: reading files of a folder that nobody vouches for, and what was found in it.

Only regular files are opened, and no link is followed below the folder: the kernel refuses them (`O_NOFOLLOW`), for the file and for
each folder on the way to it. A FIFO does not block the reader (`O_NONBLOCK`), and a file that is too large is not read at all.

What was found are values: notes, sessions, jobs, and what is left out (`Findings`). They stand between reading a home and bringing
it in.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Literal, TypeAlias

import attrs

from pegasus.conversation import Entry
from pegasus.messages import Metadata

LARGEST_TEXT: Final = 4 << 20
"""Bytes of a file of notes or jobs."""
LARGEST_SESSION: Final = 64 << 20
"""Bytes of a session."""
MOST_FILES: Final = 20_000
"""Files of a folder that are looked at."""
DEEPEST: Final = 40
"""Levels of folders below which files are not counted."""

FileKind: TypeAlias = Literal["file", "folder", "link"]
"""Kinds of entries of a folder. Pipes and devices are files here, which are not opened."""


class CannotRead(Exception):
    """A file that is not read. str() is the reason, in a few words.

    Example: `raise CannotRead("it is a link")`. The import goes on without the file, and the report has the
    reason.
    """


class UnknownLayout(ValueError):
    """A folder that is no home of this kind. str() says what was found, and what one has.

    Example: `raise UnknownLayout("/home/ann/x: found none of config.json, workspace, which a home of nanobot has")`.
    The command shows it and ends.
    """


class ForeignFolder:
    """A folder with files of others: `ForeignFolder(Path("~/.openclaw").expanduser()).text("workspace/MEMORY.md")`.

    Example::

        folder = ForeignFolder(Path("~/.openclaw").expanduser())
        folder.names("workspace/memory", ".md")      # ["workspace/memory/2026-07-21.md", …]
        folder.text("workspace/MEMORY.md")           # None if there is none
    """

    def __init__(self, path: Path) -> None:
        """Raises OSError if it is no folder that can be read."""
        self.path = path.resolve(strict=True)
        os.scandir(self.path).close()
        self.known: set[str] = set()
        """Paths that somebody has asked for. Whoever asks says in the report what became of it."""

    def text(self, name: str, limit: int = LARGEST_TEXT) -> str | None:
        """Return the text of a file, None if there is none. Bytes that are no UTF-8 are replaced. Raises CannotRead."""
        content = self.content(name, limit)
        return None if content is None else content.decode("utf-8-sig", "replace")

    def content(self, name: str, limit: int = LARGEST_TEXT) -> bytes | None:
        """Return the bytes of a file, None if there is none. name: its path, with "/". Raises CannotRead."""
        self.known.add(name)
        try:
            with self._opened(name) as descriptor:
                # Asked of the open file and not of its name, which could mean another file by now.
                found = os.fstat(descriptor)
                if not stat.S_ISREG(found.st_mode):
                    raise CannotRead("it is no regular file")
                if found.st_size > limit:
                    raise CannotRead(f"it has {found.st_size:,} bytes; at most {limit:,} are read")
                with os.fdopen(os.dup(descriptor), "rb") as file:
                    # One byte more than is allowed tells whether the file has grown since.
                    content = file.read(limit + 1)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise CannotRead(
                "it is a link" if self._is_link(name) else f"it cannot be read ({error.strerror})"
            ) from None
        if len(content) > limit:
            raise CannotRead(f"it grows while it is read; at most {limit:,} bytes are read")
        return content

    def names(self, folder: str, suffix: str) -> list[str]:
        """Return the paths of the entries of a folder whose names end so, sorted; [] if there is no such folder. Raises CannotRead."""
        return [path for path, _ in self.entries(folder) if path.endswith(suffix) and _is_plain(path)]

    def entries(self, folder: str) -> list[tuple[str, FileKind]]:
        """Return path and kind of at most MOST_FILES entries of a folder, sorted; [] if there is no such folder. Raises CannotRead."""
        try:
            with self._opened(folder) as descriptor, os.scandir(descriptor) as entries:
                # A folder with millions of entries must not fill the memory.
                found = [(entry.name, _kind(entry)) for _, entry in zip(range(MOST_FILES), entries, strict=False)]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise CannotRead(f"it is a link, or cannot be read ({error.strerror})") from None
        return sorted((f"{folder}/{name}" if folder else name, kind) for name, kind in found)

    def folders(self, folder: str) -> list[str]:
        """Return the paths of the folders in a folder; [] if it cannot be listed, which the report says with the rest of a home."""
        with suppress(CannotRead):
            return [path for path, kind in self.entries(folder) if kind == "folder"]
        return []

    def files(self, folder: str, suffix: str) -> Iterator[str]:
        """Yield the files in a folder and below whose names end so, about MOST_FILES at most; none of a folder that cannot be read."""
        waiting, seen = [folder], 0
        while waiting:
            with suppress(CannotRead):
                entries = self.entries(waiting.pop())
                seen += len(entries)
                yield from (path for path, kind in entries if kind != "folder" and path.endswith(suffix))
                waiting += [path for path, kind in reversed(entries) if kind == "folder" and path.count("/") < DEEPEST]
            if seen > MOST_FILES:
                return

    @contextmanager
    def _opened(self, name: str) -> Iterator[int]:
        """Open a file or folder below, step by step, so that no link is followed on the way."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        descriptor = os.open(self.path, flags | os.O_DIRECTORY)
        try:
            for part in [part for part in name.split("/") if part]:
                # Relative to the folder that is open, so that a folder which is replaced by a link meanwhile is
                # not followed.
                inner = os.open(part, flags, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = inner
            yield descriptor
        finally:
            os.close(descriptor)

    def _is_link(self, name: str) -> bool:
        """Return whether the name or a folder on its way is a link.

        It is asked for the words of an error only, when the file was refused already.
        """
        with suppress(OSError, ValueError):
            parts = name.split("/")
            return any(self.path.joinpath(*parts[: n + 1]).is_symlink() for n in range(len(parts)))
        return False


def _kind(entry: os.DirEntry[str]) -> FileKind:
    if entry.is_symlink():
        return "link"
    return "folder" if entry.is_dir(follow_symlinks=False) else "file"


def _is_plain(name: str) -> bool:
    """Return whether a name can be shown and written: valid Unicode without control characters."""
    return name.isprintable() and not any(0xD800 <= ord(character) <= 0xDFFF for character in name)


# ------------------------------------------------------------------ what was found


@attrs.frozen
class ImportedNote:
    """A text that the other agent remembers: `ImportedNote("workspace/MEMORY.md", "facts/openclaw-memory.md", "- Likes tea")`.

    Example: `found.notes.append(ImportedNote("USER.md", "facts/hermes-user.md", "- Likes tea"))`.
    """

    origin: str
    """Place where it was found, for people, and its name in the record of imports."""
    path: str
    """File of memory that it becomes."""
    text: str


@attrs.frozen
class FoundSession:
    """A conversation: `FoundSession("sessions/telegram_42.jsonl", "telegram", "42", entries)`.

    Example: `found.sessions.append(FoundSession(name, "telegram", "42", tuple(entries), left_out=2))`.
    """

    origin: str
    """File, or row of a database, that it was found in."""
    type: str
    """Channel type; "" if it is not known."""
    channel_id: str
    """Chat within the channel; "" if it is not known."""
    entries: tuple[Entry, ...]
    """Messages in the order in which they were said."""
    left_out: int = 0
    """Messages or parts that an archive cannot hold, such as pictures, or lines that cannot be read."""


@attrs.frozen
class FoundJob:
    """A scheduled job, with the values that `draft_job` takes."""

    origin: str
    """File and id of the job, for people and for the record of imports."""
    values: Metadata
    """Values by their names: "schedule", "prompt", "channel", "name", "kind"."""
    paused: tuple[str, ...] = ()
    """Reasons why it is made paused: what of its meaning cannot be kept, or that it was paused before."""


@attrs.frozen
class ImportLine:
    """A line of the report: `ImportLine("imported", "memory", "workspace/MEMORY.md", "facts/openclaw-memory.md")`."""

    outcome: Literal["imported", "paused", "there", "left out"]
    """"there": it was imported before."""
    kind: str
    """"memory", "session", "job", "persona", "setting" or "file"."""
    origin: str
    """Name of the thing in the foreign home."""
    target: str = ""
    """Name of what it has become; "" if nothing."""
    reason: str = ""
    """Reason why it is left out or paused, or parts that are missing; "" if all is well."""


def left_out(kind: str, origin: str, reason: str) -> ImportLine:
    """Return the line of something that is not imported. reason: for people, a part of a sentence."""
    return ImportLine("left out", kind, origin, reason=reason)


@attrs.define
class Findings:
    """Everything that a foreign home has: `Findings("openclaw")`.

    Example::

        found = read_foreign_home(Path.home() / ".nanobot", "nanobot")
        len(found.notes), len(found.sessions), len(found.jobs), found.left_out
    """

    source: str
    """Name of its kind."""
    notes: list[ImportedNote] = attrs.field(factory=list)
    """Notes, each of them one file of memory."""
    sessions: list[FoundSession] = attrs.field(factory=list)
    """Conversations, each of them one archive."""
    jobs: list[FoundJob] = attrs.field(factory=list)
    """Scheduled jobs."""
    left_out: list[ImportLine] = attrs.field(factory=list)
    """Everything that is not imported, with the reasons."""

    def skip(self, kind: str, origin: str, reason: str) -> None:
        """Note something that is not imported."""
        self.left_out.append(left_out(kind, origin, reason))
