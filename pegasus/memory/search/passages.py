"""What is searched: memory files by entry, archived sessions by line, as readable text with where to read on."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

ARCHIVE: Final = re.compile(r"\d{4}-\d\d-\d\d-\d{6}(?:-\d+)?\.jsonl")
"""How archived sessions are named (interfaces.md, section 5); the current one is in the agent's mind anyway."""
LONGEST: Final = 4_000
"""Characters of one passage of a memory file; a longer entry is several."""
LONGEST_SAID: Final = 8_000
"""Characters of one message that are found by their words."""
LONGEST_RESULT: Final = 2_000
"""Characters of one tool result, most of which is a file or page that can be read again."""
LONGEST_LINE: Final = 16 << 20
"""Bytes of a line in an archive; a longer one is passed over."""

_ENTRY: Final = re.compile(r"^##[ \t]+(.*)$", re.MULTILINE)


class Passage(NamedTuple):
    """line: where it begins in its file, from 1. title: of its entry; of a session who said it."""

    line: int
    title: str
    text: str


def passages_of_page(text: str) -> Iterator[Passage]:
    """A memory file: what stands before the first `##` entry, then each entry."""
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
    """In pieces that are not too long, between lines where possible."""
    while len(text) > LONGEST:
        cut = text.rfind("\n", LONGEST // 2, LONGEST) + 1 or LONGEST
        yield text[:cut]
        text = text[cut:]
    yield text


# ------------------------------------------------------------------ sessions


class Line(NamedTuple):
    """A line of an archive. end: the offset behind it. passage: None if nothing was said in it."""

    number: int
    end: int
    passage: Passage | None


def lines_of_session(file: BinaryIO, offset: int = 0, number: int = 0) -> Iterator[Line]:
    """The lines from there on; what is no JSON or too long has nothing to say."""
    file.seek(offset)
    while raw := file.readline(LONGEST_LINE):
        offset += len(raw)
        number += 1
        whole = raw.endswith(b"\n")
        while not whole and (rest := file.readline(LONGEST_LINE)):
            offset += len(rest)
            whole = rest.endswith(b"\n")
            raw = b""
        yield Line(number, offset, _passage(raw, number))


def _passage(raw: bytes, number: int) -> Passage | None:
    try:
        entry = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict) or entry.get("role") not in ("user", "assistant", "tool", "system"):
        return None
    text = said_in(entry).strip()
    return Passage(number, str(entry["role"]), text) if text else None


def said_in(entry: Mapping[str, Any]) -> str:
    """What a line of a session says in words: no JSON, no ids."""
    content = entry.get("content")
    content = content if isinstance(content, str) else ""
    if entry.get("role") == "tool":
        return _result(content)
    parts = [content[:LONGEST_SAID]]
    calls = entry.get("toolCalls")
    made = [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    parts += ["\n".join(_texts(call.get("arguments")))[:LONGEST_SAID] for call in made]
    return "\n".join(filter(None, parts))


def _result(content: str) -> str:
    """The texts in a result, which is JSON as a rule."""
    try:
        value = json.loads(content) if content[:1] in '{["' else content
    except (ValueError, RecursionError):
        value = content
    return "\n".join(_texts(value))[:LONGEST_RESULT]


def _texts(value: object, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        if value.strip():
            yield value
    elif depth < 8:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        for one in inner:
            yield from _texts(one, depth + 1)


def archives_in(folder: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name and stamp of every archived session there, newest first."""
    try:
        with os.scandir(folder) as entries:
            found = [entry for entry in entries if ARCHIVE.fullmatch(entry.name)]
    except FileNotFoundError:
        return
    for entry in sorted(found, key=lambda one: one.name, reverse=True):
        try:
            if entry.is_file(follow_symlinks=False):
                status = entry.stat(follow_symlinks=False)
                yield entry.name, (status.st_mtime_ns, status.st_size, status.st_ino)
        except OSError:  # gone
            continue
