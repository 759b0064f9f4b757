"""Changing files: writing, editing, deleting, moving.

Promise: after any call, whether it succeeded, failed, was cancelled, met a full disk or was cut
short by a crash, a file holds either its old content or the wanted new content. New content goes
into a temporary file in the same folder, is synced, and then replaces the old file by a rename,
which is atomic.

The check whether somebody else has changed the file comes immediately before the rename, and
compares what a change cannot leave the same: device, inode, size and time of change. Between that
check and the rename there is still a moment, a few microseconds long, in which a change is lost.
Closing it would need a lock that other programs do not know.

Limits come before work. The size of a result is computed before the result is made, because
replacing a short text by a long one in a file of a few megabytes can stand for gigabytes.

Every operation ends at a folder descriptor and a name in it (`paths.folder_of`), never at a path. A
folder that is exchanged for a link during the operation therefore changes nothing.
"""

from __future__ import annotations

import codecs
import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from secrets import token_hex
from typing import BinaryIO, Final

from trio.from_thread import check_cancelled

from pegasus.guarded_open import open_folder
from pegasus.messages import Json
from pegasus.sandbox import is_within
from pegasus.tools.base import ToolContext, ToolError
from pegasus.tools.files.keeping import kept, missing_above
from pegasus.tools.files.paths import (
    LocatedPath,
    folder_of,
    kind_of,
    locate,
    open_file,
    refusing,
    require_file,
)
from pegasus.tools.in_client import text_in_client, write_in_client
from pegasus.tools.text import BASE64, decode_base64, require_encoding

CHUNK: Final = 1 << 20
"""Bytes that are read, encoded or written in one step."""
MAX_EDIT: Final = 16 << 20
"""Bytes that a file may have before and after edit_file. It is held in memory as a whole, several times over, in a
process that should stay below some hundred megabytes."""
MAX_DEPTH: Final = 200
"""Levels of folders that delete_file descends. Each level holds a descriptor open."""


# ------------------------------------------------------------------ writing


def write(context: ToolContext, path: str, content: str, encoding: str = "utf-8") -> Json:
    """Return the result of write_file. Raises ToolError if the content cannot be encoded; the old file is then untouched.

    path: as the model gave it; errors repeat it in that form. The result says how many bytes were written.
    Missing folders are created and stay, even if the write fails afterwards.
    """
    wanted = require_encoding(encoding)
    data = decode_base64(content) if wanted == BASE64 else _encode(content, wanted)
    located = _require_replaceable(locate(context, path), context)
    # From here on the folder is a descriptor; the path is not looked at again.
    made = missing_above(located)
    with refusing(path), folder_of(located, make=True) as folder:
        context.will_hold(located.real, data, None)
        before = _status_or_none(folder, located.name)
        with kept(context, "write", located, folder, made=made, content=data):
            if not write_in_client(context, located.real, data):
                replace_file(folder, located.name, data, path, before)
    return {"path": path, "bytesWritten": len(data), "encoding": wanted}


def _encode(content: str, encoding: str) -> bytes:
    """Return the encoded content. It is made in pieces, because some encodings are a hundred times slower than UTF-8."""
    encoder = codecs.getincrementalencoder(encoding)()
    parts: list[bytes] = []
    for start in range(0, len(content) or 1, CHUNK):
        part = content[start : start + CHUNK]
        try:
            parts.append(encoder.encode(part, start + CHUNK >= len(content)))
        except UnicodeEncodeError as error:
            position = start + error.start
            raise ToolError(
                f"character {position} ({content[position]!a}) cannot be written as {encoding}; utf-8 can hold all text"
            ) from None
        check_cancelled()
    return b"".join(parts)


def replace_file(folder: int, name: str, data: bytes, shown: str, before: os.stat_result | None) -> None:
    """Replace the file `name` by one with this content.

    before: status of the file when it was read, or None if there was none. A file that somebody has
    changed since then is not overwritten. On cancel before the rename, the old file stays and the
    temporary file is removed.

    A cancel takes effect after the chunk that is being written, within milliseconds.
    """
    if before is not None:
        require_file(before, shown)
        if not before.st_mode & 0o222:
            raise ToolError(f"{shown} is read-only (mode {stat.S_IMODE(before.st_mode):o})")
    with _temporary_file(folder, name, before) as (fd, temporary):
        for start in range(0, len(data), CHUNK):
            _write_all(fd, memoryview(data)[start : start + CHUNK])
            check_cancelled()
        # Without this, a crash after the rename could leave a file with the new name and no content.
        os.fsync(fd)
        check_cancelled()
        if _identity(_status_or_none(folder, name)) != _identity(before):
            raise ToolError(
                f"{shown} was changed by another program during the call; nothing was written. Read it again"
            )
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)


@contextmanager
def _temporary_file(folder: int, name: str, before: os.stat_result | None) -> Iterator[tuple[int, str]]:
    """Make a file beside `name`, with the owner and mode of the one it replaces, and yield its descriptor and name.

    It is removed at the end of the block unless it was renamed.
    """
    # Hidden, so that nobody takes it for a file of theirs; random, so that two calls do not meet.
    temporary = f".{name[:32]}.{token_hex(8)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(temporary, flags, 0o666 if before is None else 0o600, dir_fd=folder)
    try:
        if before is not None:
            # Only the superuser may give a file away; for all others the owner is the same anyway.
            with suppress(OSError):
                os.fchown(fd, before.st_uid, before.st_gid)
            os.fchmod(fd, before.st_mode & 0o777)
        yield fd, temporary
    finally:
        os.close(fd)
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)


def _write_all(fd: int, data: memoryview) -> None:
    """Write all of the data. A single write may take only a part of it, for instance at the end of a disk quota."""
    while data:
        data = data[os.write(fd, data) :]


def _identity(status: os.stat_result | None) -> tuple[int, ...] | None:
    """Return what changes when a file is replaced or written.

    A write by another program changes size or time, a replacement the inode. None stands for no file.
    """
    return None if status is None else (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _status_or_none(folder: int, name: str) -> os.stat_result | None:
    """Return the status of a file or link, or None if there is none.

    A link counts as itself, so that it is never followed.
    """
    with suppress(FileNotFoundError):
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    return None


def _require_replaceable(located: LocatedPath, context: ToolContext) -> LocatedPath:
    """Return the path, unless it is or contains the workspace, an allowed folder or a closed one: tools keep their own ground."""
    for ground in map(str, (context.workspace, *context.allowed_paths, *context.closed_paths)):
        if is_within(ground, located.real):
            raise ToolError(
                f"{located.shown} holds the folder {ground}, which tools may work in but not replace, move or remove"
            )
    return located


# ------------------------------------------------------------------ editing


def edit(context: ToolContext, path: str, old_string: str, new_string: str, replace_all: bool = False) -> Json:
    """Return the result of edit_file.

    Bytes that are not valid UTF-8 stay as they are, since only the matching text is replaced.

    old_string: must occur exactly once, unless replace_all. The result has the number of replacements. Raises
    ToolError, and the file is then unchanged.

        edit(context, "notes.txt", "tea", "coffee")   # {"path": "notes.txt", "replacements": 1}
    """
    located = _require_replaceable(locate(context, path), context)
    with refusing(path), folder_of(located) as folder:
        file, before = open_file(folder, located.name, path)
        data = _read_all(file, before.st_size, path)
        if (shown := text_in_client(context, located.real, len(data))) is not None:
            data = shown
        # Bytes that are not UTF-8 become lone surrogates, and the same bytes again when the text is encoded.
        text = data.decode("utf-8", "surrogateescape")
        old, new = _adapt_line_ends(text, old_string, new_string)
        count = _count_replacements(text, old, new, replace_all, path)
        size = len(data) + count * (len(_encode(new, "utf-8")) - len(_bytes_of(old)))
        if size > MAX_EDIT:  # it could not be edited again
            raise ToolError(f"{path} would grow to {size:,} bytes; edit_file makes files of up to {MAX_EDIT:,}")
        changed = _bytes_of(text.replace(old, new))
        context.will_hold(located.real, changed, data)
        with kept(context, "edit", located, folder, content=changed):
            if not write_in_client(context, located.real, changed):
                replace_file(folder, located.name, changed, path, before)
    return {"path": path, "replacements": count}


def _read_all(file: BinaryIO, size: int, shown: str) -> bytes:
    """Return the whole content of a file that can be edited, and close it.

    The size is checked first, so nothing is read of a file that is too large. A NUL byte means that
    the file is binary or UTF-16, in which the text of the model cannot be found.
    """
    with file:
        if size > MAX_EDIT:
            raise ToolError(f"{shown} has {size:,} bytes; edit_file takes up to {MAX_EDIT:,}")
        data = file.read(MAX_EDIT)
    if b"\0" in data:
        raise ToolError(f"{shown} is binary or UTF-16, which edit_file cannot change; write_file can replace it")
    return data


def _adapt_line_ends(text: str, old: str, new: str) -> tuple[str, str]:
    """Return both texts with CRLF if the file uses CRLF throughout. Models rarely write the CR of a file.

    A file with mixed line ends is left as it is, as nobody could say which one is meant.
    """
    if 0 < text.count("\n") == text.count("\r\n") and "\r" not in old:
        return old.replace("\n", "\r\n"), new.replace("\r\n", "\n").replace("\n", "\r\n")
    return old, new


def _count_replacements(text: str, old: str, new: str, everywhere: bool, shown: str) -> int:
    """Return how many places are to be replaced. Raises ToolError if that is not possible or ambiguous."""
    if not old:
        raise ToolError("old_string is empty: write_file makes new files")
    if old == new:
        raise ToolError("old_string and new_string are the same")
    first = text.find(old)
    if first < 0:
        raise ToolError(f"old_string is not in {shown}; read the file and give the text exactly, white space included")
    count = text.count(old)
    if everywhere:
        return count
    if text.find(old, first + 1) >= 0:  # also one that overlaps the first, which `count` does not see
        raise ToolError(
            f"old_string is {max(2, count)} times in {shown}; "
            "give more of the text around the one you mean, or replace_all"
        )
    return 1


def _bytes_of(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


# ------------------------------------------------------------------ deleting


def delete(context: ToolContext, path: str) -> Json:
    """Return the result of delete_file, for a file, a link (never its target) or a whole folder.

    On cancel in the middle of a folder, what is already deleted stays deleted.

    A path that does not exist is a success with a note: after a crash the call may be repeated, and the wish is
    fulfilled.
    """
    located = _require_replaceable(locate(context, path, follow=False), context)
    with refusing(path):
        try:
            with folder_of(located) as folder:
                os.stat(located.name, dir_fd=folder, follow_symlinks=False)
                context.will_hold(located.real, b"", None)
                with kept(context, "delete", located, folder):
                    remove(folder, located.name, path, MAX_DEPTH)
        except (FileNotFoundError, NotADirectoryError):
            return {"path": path, "deleted": False, "note": "there is no such file or folder"}
    return {"path": path, "deleted": True}


def remove(folder: int, name: str, shown: str, levels: int = MAX_DEPTH) -> None:
    """Delete a file, a link, or a folder with its content, depth first.

    The names of a folder are read before the first is deleted, because deleting while listing may
    skip some. What disappears meanwhile is not an error. A folder that gets new files meanwhile
    cannot be removed, which is.

    levels: how many folders may still be entered. Raises OSError for what cannot be deleted; what was deleted
    before stays deleted.
    """
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    check_cancelled()
    if not stat.S_ISDIR(status.st_mode):
        os.unlink(name, dir_fd=folder)
        return
    if not levels:
        raise ToolError(f"{shown}: folders are nested deeper than {MAX_DEPTH} levels; a part of it is deleted")
    with open_folder(name, folder) as inner:
        for entry_name in os.listdir(inner):
            with suppress(FileNotFoundError):
                remove(inner, entry_name, shown, levels - 1)
    os.rmdir(name, dir_fd=folder)


# ------------------------------------------------------------------ moving


def move(context: ToolContext, source: str, target: str) -> Json:
    """Return the result of move_file: a file, folder or link gets another name, and replaces a file that has it, as `mv` does.

    source, target: as the model gave them. Within a disk the move is atomic. A cancel before the rename changes
    nothing.
    """
    old = _require_replaceable(locate(context, source, follow=False), context)
    new = _require_replaceable(locate(context, target, follow=False), context)
    result: dict[str, Json] = {"from": source, "to": target, "moved": True}
    with refusing(source), folder_of(old) as from_folder:
        os.stat(old.name, dir_fd=from_folder, follow_symlinks=False)
        made = missing_above(new)
        with refusing(target), folder_of(new, make=True) as to_folder:
            replaced = _status_or_none(to_folder, new.name)
            if replaced is not None and stat.S_ISDIR(replaced.st_mode):
                whole_name = f"{target.rstrip('/')}/{old.name}"
                raise ToolError(f"{target} is a folder that exists; give the whole new name, {whole_name}")
            if replaced is not None:
                require_file(replaced, target)
                result["replaced"] = True
            # A rename is atomic: other programs see the file under one of its names, and a file that
            # it replaces exists until the moment of the replacement.
            context.will_hold(old.real, b"", None)
            with kept(context, "move", new, to_folder, made=made, source=old, source_folder=from_folder):
                rename(from_folder, old.name, to_folder, new.name, source, target)
    return result


def rename(from_folder: int, old: str, to_folder: int, new: str, source: str, target: str) -> None:
    """Give what is at a name of an open folder a name in another one, also on another disk. Raises ToolError, OSError.

    source, target: both, for messages.
    """
    try:
        os.rename(old, new, src_dir_fd=from_folder, dst_dir_fd=to_folder)
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise ToolError(f"{source} cannot be moved into itself") from None
        if error.errno != errno.EXDEV:
            raise
        status = os.stat(old, dir_fd=from_folder, follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode):
            kind = kind_of(status)
            raise ToolError(
                f"{target} is on another disk, to where only files can be moved; {source} is {kind}"
            ) from None
        _move_across_disks(from_folder, old, to_folder, new, source)


def _move_across_disks(from_folder: int, old: str, to_folder: int, new: str, shown: str) -> None:
    """Copy a file, sync the copy, rename it into place, and only then remove the original: a crash leaves at least one.

    Mode, owner and time of change are kept. The original is removed through its folder's descriptor.
    """
    file, status = open_file(from_folder, old, shown)
    with file, _temporary_file(to_folder, new, status) as (copy, temporary):
        while part := file.read(CHUNK):
            _write_all(copy, memoryview(part))
            check_cancelled()
        os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))
        os.fsync(copy)
        check_cancelled()
        os.rename(temporary, new, src_dir_fd=to_folder, dst_dir_fd=to_folder)
    os.unlink(old, dir_fd=from_folder)
