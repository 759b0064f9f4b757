"""Lists of sessions, for people: the files of all conversations and their archives, a page at a time.

With `agent.scope = "chat"` there may be ten thousand of them. So a list costs one look at the two folders, and only the files of the
page that is shown are opened: of each the first line and the last ones are read, whatever its size. Nothing is asked of a daemon.

A session is named by its file: `current.jsonl` and `2026-02-25-143000.jsonl` are those of all channels, `web%3Ac1.jsonl` and
`web%3Ac1.2026-02-25-143000.jsonl` those of a chat. `find_session` also takes the chat itself, `web:c1`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Final
from urllib.parse import unquote

import attrs

from pegasus.formatting import CUT, LONGEST_KEY
from pegasus.main_agent.session.archives import is_archive, open_archive, read_line
from pegasus.main_agent.session.files import CURRENT, GLOBAL, SESSIONS, SessionFiles, chat_files
from pegasus.messages import Address, Json
from pegasus.storage import StoredFiles, size_of

PAGE_ROWS: Final = 50
"""Sessions of a page if the caller names no number."""
MOST_ROWS: Final = 500
"""Sessions of a page at most."""
COUNTED: Final = 1 << 20
"""Bytes of a file whose lines are counted. Counting those of longer ones would mean to read them."""
_ENDS: Final = 1 << 16
"""Bytes that are read at the beginning and at the end of a file."""
_KEY: Final = re.compile(rf"[A-Za-z0-9_%-]+%3A[A-Za-z0-9_%{CUT}-]+")
"""Key of a chat in a file name. Each has the colon behind the channel type."""


@attrs.frozen(eq=False, repr=False)
class SessionPlace:
    """A session or an archive: `SessionPlace(chat_files(Address("web", "c1")), CURRENT)`.

    Example: `find_session("web:c1").file` is "web%3Ac1.jsonl".
    """

    files: SessionFiles
    """Names of the files of the session that it belongs to."""
    name: str
    """CURRENT, or the name of an archive."""

    @property
    def file(self) -> str:
        """Name of the file of this session or archive."""
        return self.files.file(self.name)


@attrs.frozen(eq=False, repr=False)
class ListedSession:
    """A session in a list.

    Example::

        for session in list_sessions(data, find="telegram").rows:
            print(session.file, session.lines)
    """

    file: str
    """File name, by which `find_session` finds it."""
    chat: str
    """The chat that it belongs to, `<type>:<channelId>`; "" for the conversation of all channels."""
    is_archive: bool
    """False for a session that goes on."""
    bytes: int
    """Size of the file."""
    changed: int
    """Wall clock of the last change, ms."""
    lines: int | None
    """Lines, those that cannot be read included; None if the file is longer than COUNTED."""
    began: int | None
    """Time of the first line in ms, None if it has none; `ended` likewise of the last one."""
    ended: int | None
    """Time of the last line in ms; None if it has none, or is longer than what is read of the end."""
    previous: str | None
    """File name of the archive that it continues."""
    is_summary: bool
    """True if it begins with a summary of what came before."""


@attrs.frozen(eq=False, repr=False)
class SessionPage:
    """A part of the list, newest first.

    Example: `list_sessions(data, offset=page.next or 0)` is the page behind this one.
    """

    rows: tuple[ListedSession, ...]
    """The sessions of this page."""
    total: int
    """Sessions of the whole list."""
    next: int | None
    """Offset of the next page, None at the end."""


def find_session(text: str) -> SessionPlace | None:
    """Return the session of a file name, or of a chat as `<type>:<channelId>`; None if the text is neither. Opens nothing."""
    if text == CURRENT or is_archive(text):
        return SessionPlace(GLOBAL, text)
    key, _, rest = text.partition(".")
    if _is_key(key) and (rest == "jsonl" or is_archive(rest)):
        return SessionPlace(SessionFiles(SESSIONS, f"{key}.jsonl", f"{key}."), CURRENT if rest == "jsonl" else rest)
    chat = Address.parse(text)
    return None if chat is None else SessionPlace(chat_files(chat), CURRENT)


def list_sessions(data: StoredFiles, find: str = "", offset: int = 0, limit: int = PAGE_ROWS) -> SessionPage:
    """Return a page of all sessions and archives, those that changed last first.

    find: only those of chats whose name contains this, in any case; "" for all. Blocks. Raises OSError if a
    folder cannot be read; a file that is gone meanwhile is left out.
    """
    found = session_places(data, find)
    offset, limit = max(0, offset), max(1, min(limit, MOST_ROWS))
    rows: list[ListedSession] = []
    for changed, place in found[offset : offset + limit]:
        # A file may have been archived or deleted since the folder was looked at.
        with suppress(OSError):
            rows.append(_summarise(data, place, changed))
    end = offset + limit
    return SessionPage(tuple(rows), len(found), end if end < len(found) else None)


def has_session(data: StoredFiles, place: SessionPlace) -> bool:
    """Return whether there is a session or an archive. Blocks. Raises OSError."""
    try:
        data.open(f"{place.files.folder}/{place.file}").close()
    except FileNotFoundError:
        return False
    return True


def session_places(data: StoredFiles, find: str = "") -> list[tuple[int, SessionPlace]]:
    """Return all sessions and archives with the time of their last change in ns, those that changed last first.

    find: as in `list_sessions`. Blocks. Raises OSError if a folder cannot be read.
    """
    found = list(_files_in(data, find.casefold()))
    # By time; of one time the running session stands before its archives, and names decide the rest, so that pages do not
    # overlap.
    found.sort(key=lambda each: (-each[0], each[1].name != CURRENT, each[1].file))
    return found


def _files_in(data: StoredFiles, wanted: str) -> Iterator[tuple[int, SessionPlace]]:
    """Yield each session with the time of its last change in ns."""
    for folder in (GLOBAL.folder, SESSIONS):

        def is_wanted(name: str, folder: str = folder) -> bool:
            """Leave out other files: damaged lines that were set aside, files that are being written."""
            place = find_session(name)
            if place is None or place.files.folder != folder or place.file != name:
                return False
            return not wanted or wanted in chat_of(data, place).casefold()

        for file in data.scan(folder, is_wanted):
            if (place := find_session(file.name)) is not None:
                yield file.changed, place


def _is_key(text: str) -> bool:
    """Return whether a part of a file name is the key of a chat."""
    return len(text) <= LONGEST_KEY and _KEY.fullmatch(text) is not None


def chat_of(data: StoredFiles, place: SessionPlace) -> str:
    """Return the chat that a session belongs to, "" for that of all channels. Blocks: a key that was cut is read in the file."""
    key = place.files.prefix.removesuffix(".")
    if CUT in key:
        with suppress(OSError):
            with open_archive(data, place.name, place.files) as file:
                first = read_line(file.readline(_ENDS))
            chat = Address.parse(str(first.metadata.get("chat"))) if first is not None else None
            if chat is not None and chat_files(chat).current == place.files.current:
                return str(chat)
    return unquote(key, errors="replace")


def _summarise(data: StoredFiles, place: SessionPlace, changed: int) -> ListedSession:
    """Return the summary of a session. Raises OSError."""
    with open_archive(data, place.name, place.files) as file:
        size = size_of(file)
        first = read_line(file.readline(_ENDS))
        file.seek(max(0, size - _ENDS))
        last = read_line(file.read(_ENDS).rstrip(b"\n").rpartition(b"\n")[2])
        lines = None
        if size <= COUNTED:
            file.seek(0)
            content = file.read(COUNTED)
            lines = content.count(b"\n") + (not content.endswith(b"\n") and bool(content))
    metadata = first.metadata if first is not None else {}
    previous = metadata.get("previousSession")
    return ListedSession(
        place.file,
        chat_of(data, place),
        place.name != CURRENT,
        size,
        changed // 1_000_000,
        lines,
        first.ts if first is not None else None,
        last.ts if last is not None else None,
        place.files.file(previous) if isinstance(previous, str) and previous else None,
        metadata.get("type") == "compact",
    )


def session_json(session: ListedSession) -> dict[str, Json]:
    """Return a session as the command line and the control plane show it."""
    return {
        "file": session.file,
        "chat": session.chat or None,
        "archive": session.is_archive,
        "bytes": session.bytes,
        "changed": session.changed,
        "lines": session.lines,
        "began": session.began,
        "ended": session.ended,
        "previousSession": session.previous,
        "summary": session.is_summary,
    }
