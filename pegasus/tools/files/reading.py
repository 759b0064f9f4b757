"""Reading text files, whole or by lines, and describing a path.

A result never holds more of a file than the conversation can bear. A file that fits is returned
whole. Of a longer one the lines are returned that fit, together with the number of the next line,
so that the model can continue. The file is read in pieces and only the wanted lines are kept, so
memory does not depend on its size.

After the result is full, the rest of the file is still read to count its lines: a model that knows
the total asks for the right part next. That ends early when the time is nearly up or the file is
very large; then the total is left out.

Lines are counted by newlines alone, as `grep_files` counts them, so line numbers agree. Decoding is
incremental and replaces invalid bytes, since a result has to be JSON. A note tells the model that
something was replaced, so that it does not write the damaged text back.
"""

from __future__ import annotations

import base64
import codecs
import os
import stat
from datetime import UTC, datetime
from typing import Final

from pegasus.messages import Json
from pegasus.tools.base import ToolContext, ToolError
from pegasus.tools.files.blocking import Steps
from pegasus.tools.files.paths import LocatedPath, folder_of, kind_of, locate, open_file, refusing
from pegasus.tools.text import BASE64, PROBE, detect_encoding, require_encoding
from pegasus.wire import encode_json

CHUNK: Final = 256 << 10
"""Bytes that are read and decoded in one step."""
MAX_COUNTED: Final = 512 << 20
"""Bytes of a file that are read to count its lines once the result is full. Beyond that, totalLines
is left out."""
ENVELOPE: Final = 400
"""Characters of a result beside the content."""


def read(
    context: ToolContext, path: str, encoding: str | None = None, offset: int | None = None, limit: int | None = None
) -> Steps[Json]:
    """Return the result of read_file.

    encoding: None detects it. offset: the first line, from 0. limit: lines at most. Raises
    ToolError.

    The result has content, size and encoding, and for a part of a file also offset, limit, totalLines and
    truncated.

        steps = read(context, "notes.txt", offset=100, limit=20)   # lines 101 to 120
    """
    wanted = require_encoding(encoding) if encoding else None
    located = locate(context, path)
    if not located.steps:
        raise ToolError(f"{path} is a folder, not a regular file; list_files shows what is in it")
    with refusing(path), folder_of(located) as folder:
        fd, status = open_file(folder, located.name, path)
        with open(fd, "rb", buffering=0) as file:
            room = context.max_result - ENVELOPE - len(encode_json(path))
            if wanted == BASE64:
                return _read_base64(path, file.read(min(status.st_size, room)), status.st_size, room)
            wanted = wanted or detect_encoding(os.pread(fd, PROBE, 0))
            if wanted is None:
                size = f"{status.st_size:,} bytes"
                raise ToolError(
                    f"{path} is binary ({size}), not text. encoding base64 gives its bytes, if they are few"
                )
            # The decoder keeps the bytes of a character that is cut by the end of a chunk.
            window = _LineWindow(offset or 0, limit, room)
            decoder = codecs.getincrementaldecoder(wanted)(errors="replace")
            # Each chunk is a step, after which the call may be cancelled or told that its time is nearly up.
            while chunk := file.read(CHUNK):
                window.feed(decoder.decode(chunk))
                hurry = yield
                if window.is_full and (hurry or file.tell() >= MAX_COUNTED):
                    window.total = None
                    break
            else:
                window.feed(decoder.decode(b"", True))
                window.end()
            return _format_text(path, window, status.st_size, wanted)


def _read_base64(path: str, data: bytes, size: int, room: int) -> Json:
    """Return a whole small file as base64. A part of one would be of no use, so there are no slices."""
    if size * 4 // 3 > room - 4:
        raise ToolError(f"{path} has {size:,} bytes, as base64 more than a result may hold ({room:,} characters)")
    return {"path": path, "content": base64.b64encode(data).decode(), "size": size, "encoding": BASE64}


def _format_text(path: str, window: _LineWindow, size: int, encoding: str) -> dict[str, Json]:
    """Return the result: the content alone if it is the whole file, otherwise with the position of the slice."""
    content = "".join(window.kept)
    result: dict[str, Json] = {"path": path, "content": content, "size": size, "encoding": encoding}
    if "\ufffd" in content:
        result["note"] = f"� stands for bytes that are not valid {encoding}, if it is not in the file itself"
    if not window.is_slice:
        return result
    if window.total is not None:
        result["totalLines"] = window.total
    result |= {"offset": window.offset, "limit": len(window.kept), "truncated": window.is_truncated}
    if window.is_truncated and window.kept:
        result["more"] = f"the next lines: offset {window.offset + len(window.kept)}"
    if window.is_line_cut:
        result["note"] = "the line is longer than a result may be, and cut; grep_files finds places in it"
    return result


class _LineWindow:
    r"""The wanted lines of a text that arrives in pieces: from `offset` on, as many as there is room for.

    Text is fed piece by piece, then `end` is called. Until a line is complete, its beginning is
    held back; a beginning that already exceeds the room is kept at once, since waiting for its end
    could take all memory.

        window = _LineWindow(offset=1, limit=2, room=1000)
        window.feed("a\nb\nc\nd\n")
        window.end()
        window.kept   # ["b\n", "c\n"]
    """

    def __init__(self, offset: int, limit: int | None, room: int) -> None:
        self.offset = offset
        """The first wanted line, counted from 0."""
        self.kept: list[str] = []
        """The wanted lines so far, with their line ends."""
        self.total: int | None = 0
        """Lines of the whole text; None if it was not read to its end."""
        self.is_full = False
        """True when no more lines are kept, because there is no room or `limit` is reached."""
        self.is_line_cut = False
        """True if the only kept line is cut, because it alone exceeds the room."""
        self._limit = limit
        """Lines to keep; None for as many as there is room for."""
        self._is_requested = bool(offset) or limit is not None
        """True if the caller asked for a part."""
        self._room = room  # characters that the kept lines may still take in the JSON of the result
        self._partial = ""  # the beginning of a line whose end was not fed yet
        self._has_partial = False
        self._seen = 0  # complete lines so far

    @property
    def is_truncated(self) -> bool:
        """True if something after the kept lines is missing."""
        return self.total is None or self.offset + len(self.kept) < self.total or self.is_line_cut

    @property
    def is_slice(self) -> bool:
        """True if this is a part of the file, or was requested as one."""
        return self._is_requested or self.is_truncated

    def feed(self, text: str) -> None:
        """Take the next piece of the text."""
        if not text:
            return
        self._has_partial = not text.endswith("\n")
        if self.is_full:
            self._seen += text.count("\n")
            return
        *lines, partial = (self._partial + text).split("\n")
        for line in lines:
            self._keep(f"{line}\n")
            self._seen += 1
        # A line that does not end within the room is cut here, so that it is not collected in memory.
        if len(partial) > self._room:
            self._keep(partial)
            partial = ""
        self._partial = partial

    def end(self) -> None:
        """Take the end of the text."""
        if self._has_partial:
            self._keep(self._partial)
            self._seen += 1
        self.total = self._seen

    def _keep(self, line: str) -> None:
        """Keep a line if it is wanted and fits. The cost of a line is its length in JSON, where some characters are escaped."""
        if self.is_full or self._seen < self.offset:
            return
        cost = len(encode_json(line)) - 2
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


def info(context: ToolContext, path: str) -> Steps[Json]:
    """Return the result of get_file_info. A path that does not exist is an answer, not an error.

    A link that leads to an allowed folder is described by its target.
    """
    yield
    located = locate(context, path)
    with refusing(path):
        try:
            status = _status_of(located)
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


def _status_of(located: LocatedPath) -> os.stat_result:
    """Return the status of the path. A link cannot occur, since the path was resolved."""
    if not located.steps:
        return os.stat(located.root, follow_symlinks=False)
    with folder_of(located) as folder:
        return os.stat(located.name, dir_fd=folder, follow_symlinks=False)
