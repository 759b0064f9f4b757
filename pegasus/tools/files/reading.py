"""Reading: a file as text, whole or by lines, never more of it than a result may hold; and what is known about a file."""

from __future__ import annotations

import codecs
import json
import os
import stat
from datetime import UTC, datetime
from typing import Final

from pegasus.messages import Json
from pegasus.tools.base import ToolContext, ToolError
from pegasus.tools.files.text import BASE64, PROBE, encoding_of, known_encoding
from pegasus.tools.paths import Place, folder_of, kind_of, locate, open_file, refusing
from pegasus.tools.pieces import Work

CHUNK: Final = 256 << 10
COUNTED: Final = 512 << 20
"""Bytes of a file that are looked through at most to count its lines; after that, totalLines is not told."""
ENVELOPE: Final = 400
"""Characters of a result beside the content."""


def read(context: ToolContext, path: str, encoding: str | None, offset: int | None, limit: int | None) -> Work[Json]:
    """The result of read_file."""
    wanted = known_encoding(encoding) if encoding else None
    place = locate(context, path)
    with refusing(path), folder_of(_file(place)) as folder:
        fd, status = open_file(folder, place.name, path)
        with open(fd, "rb", buffering=0) as file:
            beginning = os.pread(fd, PROBE, 0)
            room = context.max_result - ENVELOPE - len(json.dumps(path))
            if wanted == BASE64:
                return _as_base64(path, file.read(min(status.st_size, room)), status.st_size, room)
            wanted = wanted or encoding_of(beginning)
            if wanted is None:
                raise ToolError(
                    f"{path} is binary ({status.st_size:,} bytes), not text. encoding base64 gives its bytes, if they are few"
                )
            lines = _Lines(offset or 0, limit, room)
            decoder = codecs.getincrementaldecoder(wanted)(errors="replace")
            while chunk := file.read(CHUNK):
                lines.feed(decoder.decode(chunk))
                hurry = yield
                if lines.is_full and (hurry or file.tell() >= COUNTED):
                    lines.total = None
                    break
            else:
                lines.feed(decoder.decode(b"", True))
                lines.end()
            if not lines.is_sliced:
                return _whole(path, lines, status.st_size, wanted)
            return _slice(path, lines, status.st_size, wanted)


def _file(place: Place) -> Place:
    if not place.steps:
        raise ToolError(f"{place.shown} is a folder, not a regular file; list_files shows what is in it")
    return place


def _as_base64(path: str, data: bytes, size: int, room: int) -> Json:
    import base64

    if size * 4 // 3 > room - 4:
        raise ToolError(f"{path} has {size:,} bytes, as base64 more than a result may hold ({room:,} characters)")
    return {"path": path, "content": base64.b64encode(data).decode(), "size": size, "encoding": BASE64}


def _whole(path: str, lines: _Lines, size: int, encoding: str) -> dict[str, Json]:
    content = "".join(lines.kept)
    result: dict[str, Json] = {"path": path, "content": content, "size": size, "encoding": encoding}
    if "\ufffd" in content:
        result["note"] = f"� stands for bytes that are not valid {encoding}, if it is not in the file itself"
    return result


def _slice(path: str, lines: _Lines, size: int, encoding: str) -> Json:
    result = _whole(path, lines, size, encoding)
    if lines.total is not None:
        result["totalLines"] = lines.total
    result |= {"offset": lines.offset, "limit": len(lines.kept), "truncated": lines.is_truncated}
    if lines.is_truncated and lines.kept:
        result["more"] = f"the next lines: offset {lines.offset + len(lines.kept)}"
    if lines.is_line_cut:
        result["note"] = "the line is longer than a result may be, and cut; grep_files finds places in it"
    return result


class _Lines:
    """Takes text in pieces and keeps the lines that are wanted, as many as there is room for.

    offset: the first line that is wanted, from 0. total: lines seen in all; None = nobody looked to the end.
    """

    def __init__(self, offset: int, limit: int | None, room: int) -> None:
        self.offset = offset
        self.kept: list[str] = []
        self.total: int | None = 0
        self.is_full = False
        self.is_line_cut = False
        self._limit = limit
        self._is_asked = bool(offset) or limit is not None
        self._room = room
        self._rest = ""
        self._is_open = False
        self._seen = 0

    @property
    def is_truncated(self) -> bool:
        """Whether something after what was kept is missing."""
        return self.total is None or self.offset + len(self.kept) < self.total or self.is_line_cut

    @property
    def is_sliced(self) -> bool:
        """Whether this is not simply the whole file."""
        return self._is_asked or self.is_truncated

    def feed(self, text: str) -> None:
        """The next piece of the file."""
        if not text:
            return
        self._is_open = not text.endswith("\n")
        if self.is_full:
            self._seen += text.count("\n")
            return
        *lines, rest = (self._rest + text).split("\n")
        for line in lines:
            self._keep(f"{line}\n")
            self._seen += 1
        if len(rest) > self._room:  # it will not fit, so its end is not waited for
            self._keep(rest)
            rest = ""
        self._rest = rest

    def end(self) -> None:
        """The file ends here."""
        if self._is_open:
            self._keep(self._rest)
            self._seen += 1
        self.total = self._seen

    def _keep(self, line: str) -> None:
        if self.is_full or self._seen < self.offset:
            return
        cost = len(json.dumps(line, ensure_ascii=False)) - 2
        if len(self.kept) == self._limit:
            self.is_full = True
        elif cost <= self._room:
            self._room -= cost
            self.kept.append(line)
        else:
            self.is_full = True
            if not self.kept:
                self.kept.append(line[: self._room * len(line) // cost])
                self.is_line_cut = True


def info(context: ToolContext, path: str) -> Work[Json]:
    """The result of get_file_info."""
    yield
    place = locate(context, path)
    with refusing(path):
        try:
            status = _status(place)
        except (FileNotFoundError, NotADirectoryError):
            return {"path": path, "exists": False, "size": 0, "isDirectory": False, "isFile": False, "modified": None}
    is_folder, is_file = stat.S_ISDIR(status.st_mode), stat.S_ISREG(status.st_mode)
    result: dict[str, Json] = {
        "path": path,
        "exists": True,
        "size": status.st_size,
        "isDirectory": is_folder,
        "isFile": is_file,
        "modified": datetime.fromtimestamp(status.st_mtime, UTC).isoformat(timespec="milliseconds"),
    }
    return result if is_folder or is_file else {**result, "note": f"it is {kind_of(status)}"}


def _status(place: Place) -> os.stat_result:
    if not place.steps:
        return os.stat(place.root, follow_symlinks=False)
    with folder_of(place) as folder:
        return os.stat(place.name, dir_fd=folder, follow_symlinks=False)
