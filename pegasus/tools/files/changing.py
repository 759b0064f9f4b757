"""Changing files: writing, editing, deleting, moving. Whatever happens, a file holds what it held or what it should."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from secrets import token_hex
from typing import Final

from pegasus.messages import Json
from pegasus.tools.base import ToolContext, ToolError
from pegasus.tools.files.text import encoded, known_encoding
from pegasus.tools.paths import Place, folder_of, kind_of, locate, open_file, refusing, require_file
from pegasus.tools.pieces import Work

CHUNK: Final = 1 << 20
LARGEST_EDIT: Final = 16 << 20
"""Bytes of a file that edit_file still takes."""
DEEPEST: Final = 200
"""Levels of folders that delete_file goes down; each holds a descriptor open."""

_OPEN_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


# ------------------------------------------------------------------ writing


def write(context: ToolContext, path: str, content: str, encoding: str | None) -> Work[Json]:
    """The result of write_file."""
    yield
    wanted = known_encoding(encoding or "utf-8")
    data = encoded(content, wanted)
    place = _below(locate(context, path), context)
    with refusing(path), folder_of(place, make=True) as folder:
        yield from _put(folder, place.name, data, path, _status(folder, place.name))
    return {"path": path, "bytesWritten": len(data), "encoding": wanted}


def edit(context: ToolContext, path: str, old: str, new: str, everywhere: bool) -> Work[Json]:
    """The result of edit_file. Bytes that are no UTF-8 stay what they are, since only what matches is replaced."""
    yield
    place = _below(locate(context, path), context)
    with refusing(path), folder_of(place) as folder:
        fd, before = open_file(folder, place.name, path)
        with open(fd, "rb", buffering=0) as file:
            data = yield from _all_of(file.fileno(), before.st_size, path)
        text = data.decode("utf-8", "surrogateescape")
        changed, count = _replaced(text, old, new, everywhere, path)
        yield from _put(folder, place.name, changed.encode("utf-8", "surrogateescape"), path, before)
    return {"path": path, "replacements": count}


def _all_of(fd: int, size: int, path: str) -> Work[bytes]:
    if size > LARGEST_EDIT:
        raise ToolError(f"{path} has {size:,} bytes; edit_file takes up to {LARGEST_EDIT:,}")
    parts: list[bytes] = []
    while part := os.read(fd, CHUNK):
        parts.append(part)
        yield
    data = b"".join(parts)
    if b"\0" in data:
        raise ToolError(f"{path} is binary or UTF-16, which edit_file cannot change; write_file can write it anew")
    return data


def _replaced(text: str, old: str, new: str, everywhere: bool, path: str) -> tuple[str, int]:
    """The text with the one match replaced, or all; nothing in `new` has a meaning of its own (trap T13)."""
    if not old or old == new:
        raise ToolError(
            "old_string is empty: write_file makes new files" if not old else "old_string and new_string are the same"
        )
    if 0 < text.count("\n") == text.count("\r\n") and "\r" not in old:  # a model seldom writes the \r of a file
        old, new = old.replace("\n", "\r\n"), new.replace("\r\n", "\n").replace("\n", "\r\n")
    first = text.find(old)
    if first < 0:
        raise ToolError(f"old_string is not in {path}; read the file and give the text exactly, white space included")
    if everywhere:
        return text.replace(old, new), text.count(old)
    if text.find(old, first + 1) >= 0:
        count = max(2, text.count(old))
        raise ToolError(
            f"old_string is {count} times in {path}; give more of the text around the one you mean, or replace_all"
        )
    return text[:first] + new + text[first + len(old) :], 1


def _put(folder: int, name: str, data: bytes, path: str, before: os.stat_result | None) -> Work[None]:
    """Replace the file at once, by a rename; until then, and if anything goes wrong, it is what it was.

    before: the file as it was looked at. One that somebody else has changed since is not written over.
    """
    if before is not None:
        require_file(before, path)
        if not before.st_mode & 0o222:
            raise ToolError(f"{path} is read-only (mode {stat.S_IMODE(before.st_mode):o})")
    with _temporary(folder, name, before) as (fd, temporary):
        for start in range(0, len(data), CHUNK):
            _write_all(fd, memoryview(data)[start : start + CHUNK])
            yield
        os.fsync(fd)
        yield
        if _identity(_status(folder, name)) != _identity(before):
            raise ToolError(f"{path} was changed by somebody else meanwhile; nothing was written. Read it again")
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)


@contextmanager
def _temporary(folder: int, name: str, before: os.stat_result | None) -> Iterator[tuple[int, str]]:
    """A new file beside `name`, with the owner and mode of the one before; gone at the end unless it was renamed."""
    temporary = f".{name[:32]}.{token_hex(8)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(temporary, flags, 0o666 if before is None else 0o600, dir_fd=folder)
    try:
        if before is not None:
            with suppress(OSError):
                os.fchown(fd, before.st_uid, before.st_gid)
            os.fchmod(fd, before.st_mode & 0o777)
        yield fd, temporary
    finally:
        os.close(fd)
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)


def _write_all(fd: int, data: memoryview) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _identity(status: os.stat_result | None) -> tuple[int, ...] | None:
    return None if status is None else (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _status(folder: int, name: str) -> os.stat_result | None:
    with suppress(FileNotFoundError):
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    return None


def _below(place: Place, context: ToolContext) -> Place:
    """The place, unless an allowed folder or the workspace is it or lies in it: those are not for tools to replace or remove."""
    for kept in map(str, (context.workspace, *context.allowed_paths)):
        if kept == place.real or kept.startswith(os.path.join(place.real, "")):
            raise ToolError(
                f"{place.shown} holds the folder {kept}, which tools may work in but not replace, move or remove"
            )
    return place


# ------------------------------------------------------------------ deleting


def delete(context: ToolContext, path: str) -> Work[Json]:
    """The result of delete_file: files, links (never what they point to) and whole folders."""
    yield
    place = _below(locate(context, path, follow=False), context)
    with refusing(path):
        try:
            with folder_of(place) as folder:
                yield from _remove(folder, place.name, path, DEEPEST)
        except (FileNotFoundError, NotADirectoryError):
            return {"path": path, "deleted": False, "note": "there is no such file or folder"}
    return {"path": path, "deleted": True}


def _remove(folder: int, name: str, shown: str, levels: int) -> Work[None]:
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    yield
    if not stat.S_ISDIR(status.st_mode):
        os.unlink(name, dir_fd=folder)
        return
    if not levels:
        raise ToolError(f"{shown}: folders are nested deeper than {DEEPEST} levels; a part of it is deleted")
    inner = os.open(name, _OPEN_FOLDER, dir_fd=folder)
    try:
        with os.scandir(inner) as entries:
            names = [entry.name for entry in entries]
        for each in names:
            with suppress(FileNotFoundError):
                yield from _remove(inner, each, shown, levels - 1)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=folder)


# ------------------------------------------------------------------ moving


def move(context: ToolContext, source: str, target: str) -> Work[Json]:
    """The result of move_file: a file, folder or link gets another name; a file that has it is replaced, as `mv` does."""
    yield
    old = _below(locate(context, source, follow=False), context)
    new = _below(locate(context, target, follow=False), context)
    result: dict[str, Json] = {"from": source, "to": target, "moved": True}
    with refusing(source), folder_of(old) as from_folder:
        status = os.stat(old.name, dir_fd=from_folder, follow_symlinks=False)
        with refusing(target), folder_of(new, make=True) as to_folder:
            there = _status(to_folder, new.name)
            if there is not None and stat.S_ISDIR(there.st_mode):
                raise ToolError(
                    f"{target} is a folder that exists; give the whole new name, {target.rstrip('/')}/{old.name}"
                )
            if there is not None:
                require_file(there, target)
                result["replaced"] = True
            try:
                os.rename(old.name, new.name, src_dir_fd=from_folder, dst_dir_fd=to_folder)
            except OSError as error:
                if error.errno == errno.EINVAL:
                    raise ToolError(f"{source} cannot be moved into itself") from None
                if error.errno != errno.EXDEV:
                    raise
                if not stat.S_ISREG(status.st_mode):
                    raise ToolError(
                        f"{target} is on another disk, to where only files can be moved; {source} is {kind_of(status)}"
                    ) from None
                yield from _carry(from_folder, old.name, to_folder, new.name, source)
    return result


def _carry(from_folder: int, old: str, to_folder: int, new: str, shown: str) -> Work[None]:
    """To another disk: copied beside, renamed, and only then removed."""
    fd, status = open_file(from_folder, old, shown)
    try:
        with _temporary(to_folder, new, status) as (copy, temporary):
            while part := os.read(fd, CHUNK):
                _write_all(copy, memoryview(part))
                yield
            os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))
            os.fsync(copy)
            yield
            os.rename(temporary, new, src_dir_fd=to_folder, dst_dir_fd=to_folder)
    finally:
        os.close(fd)
    os.unlink(old, dir_fd=from_folder)
