"""Looking through folders: what is there, and where a pattern matches. Links are named, never followed."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from pegasus.messages import Json
from pegasus.tools.base import ToolContext, ToolError
from pegasus.tools.files.patterns import Expression, expression, glob
from pegasus.tools.files.text import PROBE
from pegasus.tools.paths import Place, folder_of, locate, open_file, open_folder, refusing
from pegasus.tools.pieces import Work

DEEPEST: Final = 64
"""Levels of folders that are looked into; each holds a descriptor open."""
CHUNK: Final = 1 << 20
ENVELOPE: Final = 400
"""Characters of a result beside its entries."""
LONGEST_LINE: Final = 400
"""Characters of a line that are shown around a match."""
UNSEARCHED: Final = frozenset({".git", ".hg", ".svn", "__pycache__", "node_modules", ".venv"})
"""Folders that grep_files goes into only if its path leads there: what people do not write and do not look for."""


class _Entry(NamedTuple):
    path: str
    folder: int
    name: str
    status: os.stat_result


class _Walk:
    """What was met on the way through a tree."""

    def __init__(self, visit: Callable[[_Entry], Work[bool]], enter: Callable[[str], bool]) -> None:
        self._visit = visit
        self._enter = enter
        self.unreadable = 0
        self.is_cut_short = False

    def through(self, folder: int, path: str, levels: int) -> Work[bool]:
        """Visit everything in the folder, by name; False when there is no more time or somebody has had enough."""
        try:
            with os.scandir(folder) as entries:
                names = sorted(entry.name for entry in entries)
        except OSError:
            self.unreadable += 1
            return True
        for name in names:
            hurry = yield
            if hurry:
                self.is_cut_short = True
                return False
            with suppress(FileNotFoundError):  # gone meanwhile
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                entry = _Entry(f"{path}{name}", folder, name, status)
                if not (yield from self._visit(entry)):
                    return False
                inside = stat.S_ISDIR(status.st_mode) and levels and self._enter(name)
                if inside and not (yield from self._below(entry, levels - 1)):
                    return False
        return True

    def _below(self, entry: _Entry, levels: int) -> Work[bool]:
        try:
            inner = os.open(
                entry.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=entry.folder
            )
        except OSError as error:
            if error.errno == errno.EMFILE:
                raise
            self.unreadable += 1
            return True
        try:
            return (yield from self.through(inner, f"{entry.path}/", levels))
        finally:
            os.close(inner)


def _notes(walk: _Walk, more: str = "") -> dict[str, Json]:
    notes = [more] if more else []
    if walk.is_cut_short:
        notes.append("the time was up before everything was looked at: look into a smaller folder")
    if walk.unreadable:
        notes.append(f"{walk.unreadable} could not be read")
    return {"note": "; ".join(notes)} if notes else {}


# ------------------------------------------------------------------ list_files


def list_folder(context: ToolContext, path: str, recursive: bool, pattern: str | None) -> Work[Json]:
    """The result of list_files."""
    yield
    wanted = expression(pattern) if pattern else None
    place = locate(context, path)
    found: list[Json] = []
    count = 0
    room = context.max_result - ENVELOPE - len(json.dumps(path))

    def visit(entry: _Entry) -> Work[bool]:
        nonlocal count, room
        yield
        if wanted is None or wanted.search(os.fsencode(entry.name)):
            count += 1
            shown = _shown(entry)
            room -= len(json.dumps(shown)) + 1
            if room >= 0:
                found.append(shown)
        return True

    walk = _Walk(visit, lambda _: recursive)
    result: dict[str, Json] = {"path": path, "recursive": recursive, "files": found, "count": 0}
    with refusing(path):
        try:
            folder = open_folder(place)
        except FileNotFoundError:
            return {**result, "note": "there is no such folder"}
        except NotADirectoryError:
            raise ToolError(f"{path} is no folder; get_file_info tells what it is") from None
        try:
            yield from walk.through(folder, _prefix(path), DEEPEST)
        finally:
            os.close(folder)
    result["count"] = count
    more = f"the first {len(found)} are shown: list a folder below, or give a pattern" if len(found) < count else ""
    truncated: dict[str, Json] = {"truncated": True} if more or walk.is_cut_short else {}
    return {**result, **truncated, **_notes(walk, more)}


def _shown(entry: _Entry) -> dict[str, Json]:
    mode = entry.status.st_mode
    shown: dict[str, Json] = {
        "name": entry.name,
        "path": entry.path,
        "isDir": stat.S_ISDIR(mode),
        "size": entry.status.st_size,
    }
    return {**shown, "isLink": True} if stat.S_ISLNK(mode) else shown


def _prefix(path: str) -> str:
    """What stands before the names, so that each path can be given back to any tool."""
    return "" if path in (".", "./") else path.rstrip("/") + "/"


# ------------------------------------------------------------------ grep_files


def grep(context: ToolContext, pattern: str, path: str, include: str | None, most: int) -> Work[Json]:
    """The result of grep_files: the first match of each line that has one."""
    yield
    search = _Search(expression(pattern), most, context.max_result - ENVELOPE)
    fits = glob(include) if include else None
    place = locate(context, path)
    prefix = _prefix(path)

    def visit(entry: _Entry) -> Work[bool]:
        if stat.S_ISREG(entry.status.st_mode) and (fits is None or fits(entry.path.removeprefix(prefix))):
            try:
                yield from search.file(entry.folder, entry.name, entry.path)
            except (OSError, ToolError):
                walk.unreadable += 1
        return not search.is_hurried

    walk = _Walk(visit, lambda name: name not in UNSEARCHED)
    with refusing(path):
        yield from _look(place, path, walk, search)
    walk.is_cut_short |= search.is_hurried
    return search.result(_notes(walk))


def _look(place: Place, path: str, walk: _Walk, search: _Search) -> Work[None]:
    try:
        folder = open_folder(place)
    except NotADirectoryError:
        with folder_of(place) as above:
            yield from search.file(above, place.name, path)
        return
    try:
        yield from walk.through(folder, _prefix(path), DEEPEST)
    finally:
        os.close(folder)


class _Search:
    """Gathers the lines that match, as many as are wanted and there is room for, and counts them all."""

    def __init__(self, wanted: Expression, most: int, room: int) -> None:
        self._wanted = wanted
        self._most = most
        self._room = room
        self._matches: list[Json] = []
        self._total = 0
        self.is_hurried = False

    def file(self, folder: int, name: str, path: str) -> Work[None]:
        """Look through one file; binary ones are passed over."""
        fd, _ = open_file(folder, name, path)
        try:
            number, rest = 1, b""
            while chunk := os.read(fd, CHUNK):
                if number == 1 and not rest and b"\0" in chunk[:PROBE]:
                    return
                end = chunk.rfind(b"\n") + 1
                if not end and len(rest) < CHUNK:  # a long line; one that has no end is looked at in parts
                    rest += chunk
                    continue
                block, rest = (rest + chunk[:end], chunk[end:]) if end else (rest + chunk, b"")
                self.is_hurried |= yield from self._block(block, number, path)
                number += block.count(b"\n")
                if self.is_hurried:
                    return
            yield from self._block(rest, number, path)
        finally:
            os.close(fd)

    def _block(self, block: bytes, number: int, path: str) -> Work[bool]:
        position = counted = 0
        hurry = False
        while position < len(block) and (match := self._wanted.search(block, position)) is not None:
            start, end = match.start(), match.end()
            begin = block.rfind(b"\n", 0, start) + 1
            finish = block.find(b"\n", end)
            finish = len(block) if finish < 0 else finish
            if begin == len(block):
                break  # behind the last line
            number += block.count(b"\n", counted, begin)
            counted, position = begin, finish + 1
            self._total += 1
            if len(self._matches) < self._most and self._room > 0:
                self._keep(path, number, block[begin:finish], start - begin, end - begin)
            hurry = yield
            if hurry:
                return True
        hurry |= yield
        return hurry

    def _keep(self, path: str, number: int, line: bytes, start: int, end: int) -> None:
        shown, matched = _around(line, start, end), _text(line[start:end])[:LONGEST_LINE]
        found: Json = {"file": path, "line": shown, "lineNumber": number, "match": matched}
        self._room -= len(json.dumps(found)) + 1
        if self._room > 0:
            self._matches.append(found)

    def result(self, notes: dict[str, Json]) -> Json:
        truncated = len(self._matches) < self._total or self.is_hurried
        return {"matches": self._matches, "totalMatches": self._total, "truncated": truncated, **notes}


def _around(line: bytes, start: int, end: int) -> str:
    """The line, or of a long one the part around the match."""
    line = line.rstrip(b"\r")
    if len(line) <= LONGEST_LINE:
        return _text(line)
    begin = max(0, min(start - LONGEST_LINE // 4, len(line) - LONGEST_LINE))
    part = _text(line[begin : begin + LONGEST_LINE])
    return f"{'…' if begin else ''}{part}{'…' if begin + LONGEST_LINE < len(line) else ''}"


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace")
