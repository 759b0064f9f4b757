"""Passages, the units of search: entries of memory files and messages of archived sessions.

A passage has the words that a person would recognise, without JSON and ids, and its place, so that the reader can read
on from there. Long texts are cut: a tool result is usually a file or a page that can be read again, and its beginning is
enough to find it. Archives may be damaged or very large, so a line that is no JSON, or longer than `LONGEST_LINE`, is
skipped without being read into memory as a whole.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from pegasus.messages import Json
from pegasus.wire import decode_json, decode_object

ARCHIVE: Final = re.compile(r"\d{4}-\d\d-\d\d-\d{6}(?:-\d+)?\.jsonl")
"""Names of archived sessions. The current session is not searched: the agent has it in its context."""
LONGEST: Final = 4_000
"""Characters of a passage of a memory file. A longer entry becomes several passages."""
LONGEST_MESSAGE: Final = 8_000
"""Characters of a message that are indexed."""
LONGEST_RESULT: Final = 2_000
"""Characters of a tool result that are indexed."""
LONGEST_LINE: Final = 16 << 20
"""Bytes of a line in an archive. A longer one is skipped."""

_ENTRY: Final = re.compile(r"^##[ \t]+(.*)$", re.MULTILINE)
"""Heading of an entry. Deeper headings belong to the entry that they stand in."""


class Passage(NamedTuple):
    """A text that can be found."""

    line: int
    """Line of the file at which it begins, from 1."""
    title: str
    """Heading of the entry; in a session the role of the speaker."""
    text: str
    """The words, at most `LONGEST` characters of a page."""


def passages_of_page(text: str) -> Iterator[Passage]:
    """Yield the passages of a memory file: the text before the first `##` entry, then each entry.

    For example, a page with a summary and the entries `## Tea` and `## Cats` has three passages, with the
    titles "", "Tea" and "Cats".
    """
    text = text.replace("\r\n", "\n")
    heads = list(_ENTRY.finditer(text))
    starts = [0, *(head.start() for head in heads), len(text)]
    titles = ["", *(head[1].strip() for head in heads)]
    line = 1
    for title, start, end in zip(titles, starts, starts[1:], strict=False):
        for piece in _pieces(text[start:end]):
            if piece.strip():
                yield Passage(line, title, piece.strip())
            line += piece.count("\n")


def _pieces(text: str) -> Iterator[str]:
    """Yield the text in pieces that are not too long, cut between lines where possible."""
    while len(text) > LONGEST:
        # Not before the middle, so that a text with few line ends does not become many small pieces.
        cut = text.rfind("\n", LONGEST // 2, LONGEST) + 1 or LONGEST
        yield text[:cut]
        text = text[cut:]
    yield text


# ------------------------------------------------------------------ sessions


class SessionLine(NamedTuple):
    """A line of an archived session."""

    number: int
    """Line of the archive, from 1."""
    end: int
    """Offset of the byte behind it."""
    passage: Passage | None
    """None if it holds no words."""


def lines_of_session(file: BinaryIO, offset: int = 0, number: int = 0) -> Iterator[SessionLine]:
    """Yield the lines from `offset` on. number: of the line before. Lines that are no JSON or too long have no passage."""
    file.seek(offset)
    while raw := file.readline(LONGEST_LINE):
        offset += len(raw)
        number += 1
        whole = raw.endswith(b"\n")
        # The rest of a line that is too long is read and dropped piece by piece; `raw` becomes empty, which is
        # no JSON.
        while not whole and (rest := file.readline(LONGEST_LINE)):
            offset += len(rest)
            whole = rest.endswith(b"\n")
            raw = b""
        yield SessionLine(number, offset, _passage(raw, number))


def _passage(raw: bytes, number: int) -> Passage | None:
    """Return the passage of a line, None for a line that is damaged or without words."""
    try:
        entry = decode_object(raw)
    except ValueError:
        return None
    if entry.get("role") not in ("user", "assistant", "tool", "system"):
        return None
    text = words_of(entry).strip()
    return Passage(number, str(entry["role"]), text) if text else None


def words_of(entry: Mapping[str, Json]) -> str:
    """Return the words of an entry of a session, without JSON and ids.

    Of a tool call only the texts among its arguments count, since keys and ids are no words that anybody would
    search for.
    """
    content = entry.get("content")
    content = content if isinstance(content, str) else ""
    if entry.get("role") == "tool":
        return _result_words(content)
    parts = [content[:LONGEST_MESSAGE]]
    calls = entry.get("toolCalls")
    made = [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    parts += ["\n".join(_texts(call.get("arguments")))[:LONGEST_MESSAGE] for call in made]
    return "\n".join(filter(None, parts))


def _result_words(content: str) -> str:
    """Return the texts in a tool result, which is usually JSON."""
    try:
        value = decode_json(content) if content[:1] in '{["' else content
    except ValueError:
        value = content
    return "\n".join(_texts(value))[:LONGEST_RESULT]


def _texts(value: object, depth: int = 0) -> Iterator[str]:
    """Yield the strings in a JSON value, down to eight levels."""
    if isinstance(value, str):
        if value.strip():
            yield value
    elif depth < 8:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        for item in inner:
            yield from _texts(item, depth + 1)


def archives_in(folder: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield name and stamp of every archived session in the folder, newest first."""
    try:
        with os.scandir(folder) as entries:
            found = [entry for entry in entries if ARCHIVE.fullmatch(entry.name)]
    except FileNotFoundError:
        return
    for entry in sorted(found, key=lambda entry: entry.name, reverse=True):
        try:
            if entry.is_file(follow_symlinks=False):
                status = entry.stat(follow_symlinks=False)
                yield entry.name, (status.st_mtime_ns, status.st_size, status.st_ino)
        except OSError:  # it is gone
            continue
