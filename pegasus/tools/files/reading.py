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
import io
import os
import stat
import time
from datetime import UTC, datetime
from typing import BinaryIO, Final, NamedTuple

from trio.from_thread import check_cancelled

from pegasus.messages import Json
from pegasus.tools.base import ToolContext, ToolError
from pegasus.tools.files.paths import LocatedPath, folder_of, kind_of, locate, open_file, refusing
from pegasus.tools.in_client import text_in_client
from pegasus.tools.text import BASE64, PROBE, detect_encoding, require_encoding
from pegasus.wire import encode_json

CHUNK: Final = 256 << 10
"""Characters that are read in one step when lines are only counted."""
MAX_COUNTED: Final = 512 << 20
"""Bytes of a file that are read to count its lines once the result is full. Beyond that, totalLines
is left out."""
ENVELOPE: Final = 400
"""Characters of a result beside the content, or the entries of a search."""


def read_content(context: ToolContext, path: str, max_bytes: int) -> bytes:
    """Return the content of a file that is to be sent. Raises ToolError, also for an empty one or one above `max_bytes` bytes. Blocks.

    Two looks at the size: the status saves reading a huge file, the content is what counts.
    """
    located = locate(context, path)
    if not located.steps:
        raise ToolError(f"{path} is a folder, not a regular file")
    with refusing(path), folder_of(located) as folder:
        file, status = open_file(folder, located.name, path)
        with file:
            # The file may grow between the look and the reading, so one byte more than allowed is asked for.
            content = file.read(max_bytes + 1) if status.st_size <= max_bytes else b""
    if status.st_size > max_bytes or len(content) > max_bytes:
        raise ToolError(f"{path} has {max(status.st_size, len(content)):,} bytes; at most {max_bytes:,} can be sent")
    if not content:
        raise ToolError(f"{path} is empty, so there is nothing to send")
    return content


class _Part(NamedTuple):
    """The wanted lines of a file."""

    lines: list[str]
    """The lines, with their line ends."""
    total: int | None
    """Lines of the whole file; None if it was not read to its end."""
    is_line_cut: bool
    """True if the only line is cut, because it alone exceeds the room."""


def read(
    context: ToolContext,
    path: str,
    encoding: str | None = None,
    offset: int = 0,
    limit: int | None = None,
    *,
    until: float,
) -> Json:
    """Return the result of read_file.

    encoding: None detects it. offset: the first line, from 0. limit: lines at most. until: the moment (of
    `time.monotonic`) when the lines are counted no further. Raises ToolError.

    The result has content, size and encoding, and for a part of a file also offset, limit, totalLines and
    truncated.
    """
    wanted = require_encoding(encoding) if encoding else None
    located = locate(context, path)
    if not located.steps:
        raise ToolError(f"{path} is a folder, not a regular file; list_files shows what is in it")
    room = context.max_result - ENVELOPE - len(encode_json(path))
    with refusing(path), folder_of(located) as folder:
        file, status = open_file(folder, located.name, path)
        with file:
            if wanted == BASE64:
                return _read_base64(path, file.read(min(status.st_size, room)), status.st_size, room)
            # With pread the position of the file stays at its beginning.
            wanted = wanted or detect_encoding(os.pread(file.fileno(), PROBE, 0))
            if wanted is None:
                size = f"{status.st_size:,} bytes"
                raise ToolError(
                    f"{path} is binary ({size}), not text. encoding base64 gives its bytes, if they are few"
                )
            length, source = status.st_size, file
            if (shown := text_in_client(context, located.real, length)) is not None:
                wanted, length, source = "utf-8", len(shown), io.BytesIO(shown)
            with io.TextIOWrapper(source, wanted, errors="replace", newline="\n") as text:
                part = _read_lines(text, source, offset, limit, room, until)
    return _format_part(path, part, length, wanted, offset, is_requested=bool(offset) or limit is not None)


def _read_base64(path: str, data: bytes, size: int, room: int) -> Json:
    """Return a whole small file as base64. A part of one would be of no use, so there are no slices."""
    if size * 4 // 3 > room - 4:
        raise ToolError(f"{path} has {size:,} bytes, as base64 more than a result may hold ({room:,} characters)")
    return {"path": path, "content": base64.b64encode(data).decode(), "size": size, "encoding": BASE64}


def _read_lines(
    text: io.TextIOWrapper, file: BinaryIO, offset: int, limit: int | None, room: int, until: float
) -> _Part:
    """Read the lines from `offset` on that fit into `room` characters, then count the others in larger pieces.

    file: the bytes that `text` is read from. The cost of a line is its length in JSON, where some characters
    are escaped. A piece of a line has at least one character more than the room, so a piece that fits is a
    whole line, and a line of any length takes no more memory than that.
    """
    lines: list[str] = []
    size = max(room, CHUNK) + 1
    number, last, is_full, is_line_cut = 0, "\n", False, False
    while piece := text.read(CHUNK) if is_full else text.readline(size):
        if not is_full and number >= offset:
            cost = len(encode_json(piece)) - 2
            is_full = len(lines) == limit or cost > room
            if not is_full:
                lines.append(piece)
                room -= cost
            elif not lines:
                # The first line alone is too long. A part in proportion fits, unless the escapes are all at its
                # beginning; the executor cuts what is still too long.
                lines, is_line_cut = [piece[: room * len(piece) // cost]], True
        number += piece.count("\n")
        last = piece
        # The lines are there already; only their number is missing, which is not worth the deadline.
        if is_full and (time.monotonic() >= until or file.tell() >= MAX_COUNTED):
            return _Part(lines, None, is_line_cut)
        if is_full or number % 1000 == 0:  # a check takes as long as reading a line
            check_cancelled()
    return _Part(lines, number + (not last.endswith("\n")), is_line_cut)


def _format_part(
    path: str, part: _Part, size: int, encoding: str, offset: int, *, is_requested: bool
) -> dict[str, Json]:
    """Return the result: the content alone if it is the whole file, otherwise with the position of the part.

    A part that was asked for always has its position, even if it is the whole file.
    """
    content, end = "".join(part.lines), offset + len(part.lines)
    is_truncated = part.total is None or end < part.total or part.is_line_cut
    result: dict[str, Json] = {"path": path, "content": content, "size": size, "encoding": encoding}
    # Without the note the model would take these characters for the content, and write them back.
    if "\ufffd" in content:
        result["note"] = f"� stands for bytes that are not valid {encoding}, if it is not in the file itself"
    if not (is_requested or is_truncated):
        return result
    if part.total is not None:
        result["totalLines"] = part.total
    result |= {"offset": offset, "limit": len(part.lines), "truncated": is_truncated}
    if is_truncated and part.lines:
        result["more"] = f"the next lines: offset {end}"
    if part.is_line_cut:
        result["note"] = "the line is longer than a result may be, and cut; grep_files finds places in it"
    return result


def info(context: ToolContext, path: str) -> Json:
    """Return the result of get_file_info. A path that does not exist is an answer, not an error.

    A link that leads to an allowed folder is described by its target.
    """
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
