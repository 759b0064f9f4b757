"""Archives of skills, .zip (also called .skill) and .tar with or without gzip: read whole and within bounds.

The content of the file decides its kind, not its name. Nothing is written: members become bytes in memory, so a path can lead nowhere,
and a link to nothing. Yet a path that tries to is refused with the whole archive, since nobody makes one by accident. What a member
says of its size counts for nothing; bytes are counted as they come out of the decompression.
"""

from __future__ import annotations

import gzip
import stat
import tarfile
import zipfile
import zlib
from pathlib import Path
from typing import IO, Final

from pegasus.guarded_open import open_regular
from pegasus.installing.source_tree import (
    MOST_BYTES,
    SourceEntry,
    SourceError,
    SourceTree,
    check_count,
    check_path,
    choose_entries,
    is_junk,
    too_large,
)

LARGEST: Final = 64 << 20
"""Bytes of an archive."""
_UNPACKED: Final = 2 * MOST_BYTES
"""Bytes that come out of a compressed tar, its heads included."""
_PIECE: Final = 1 << 16
_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Compressions of a .zip. By others, `zipfile` unpacks all that a piece of the archive holds at once: gigabytes out of some bytes."""


def read_archive(path: Path, subdirectory: str = "") -> SourceTree:
    """Return the content of an archive. Blocks. Raises SourceError, OSError."""
    with open_regular(path, follows=True) as file:
        magic = file.read(4)
        file.seek(0, 2)
        if file.tell() > LARGEST:
            raise SourceError(f"found an archive of more than {LARGEST >> 20} MiB, allowed: that much")
        file.seek(0)
        try:
            if magic.startswith(b"PK"):
                entries, contents = _read_zip(file)
            elif magic.startswith(b"\x1f\x8b"):
                with gzip.GzipFile(fileobj=file) as unpacked:
                    entries, contents = _read_tar(_Bounded(unpacked))
            else:
                entries, contents = _read_tar(_Bounded(file))
        except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, gzip.BadGzipFile) as error:
            raise SourceError(f"is no archive that can be read: .zip, .skill, .tar.gz or .tar ({error})") from None
        except (ValueError, NotImplementedError, RuntimeError, OverflowError, MemoryError, RecursionError) as error:
            if isinstance(error, SourceError):
                raise
            raise SourceError(f"is damaged: {error or type(error).__name__}") from None
    chosen = choose_entries(entries, subdirectory)
    base = f"{subdirectory}/" if subdirectory else ""
    name = subdirectory.rpartition("/")[2] or path.name.partition(".")[0]
    return SourceTree(chosen, {each: contents[base + each] for each in chosen if base + each in contents}, name)


def _add(entries: dict[str, SourceEntry], name: str, entry: SourceEntry) -> str:
    """Enter a member; return its path."""
    path = check_path(name)
    if not path or path in entries:
        raise SourceError(f"found {name!a} twice or without a name, allowed: each name once")
    entries[path] = entry
    check_count(len(entries))
    return path


def _read_zip(file: IO[bytes]) -> tuple[dict[str, SourceEntry], dict[str, bytes]]:
    entries: dict[str, SourceEntry] = {}
    contents: dict[str, bytes] = {}
    room = MOST_BYTES
    with zipfile.ZipFile(file) as archive:
        check_count(len(archive.infolist()))
        for member in archive.infolist():
            name, mode = _zip_name(member), member.external_attr >> 16
            if member.is_dir():
                check_path(name)
                continue
            if is_junk(name):
                continue
            if member.flag_bits & 1:
                raise SourceError(f"{name!a} is encrypted, allowed: archives without a password")
            if member.compress_type not in _METHODS:
                raise SourceError(
                    f"{name!a} is compressed by method {member.compress_type}, allowed: 8 (deflate), or none"
                )
            kind = stat.S_IFMT(mode)
            if kind not in (0, stat.S_IFREG):
                _add(entries, name, SourceEntry("link" if kind == stat.S_IFLNK else "special file"))
                continue
            with archive.open(member) as stream:
                data = bytearray()
                while piece := stream.read(_PIECE):
                    data += piece
                    if len(data) > room:
                        raise too_large()
            room -= len(data)
            path = _add(entries, name, SourceEntry("", len(data), bool(mode & 0o100)))
            contents[path] = bytes(data)
    return entries, contents


def _zip_name(member: zipfile.ZipInfo) -> str:
    """Return the name of a member. Many programs write UTF-8 without saying so; anything else that is not ASCII is refused."""
    name = member.orig_filename
    if member.flag_bits & 0x800 or name.isascii():
        return name
    try:
        return name.encode("cp437").decode()
    except UnicodeError:
        raise SourceError(f"found the name {name!a}, allowed: names in UTF-8") from None


def _read_tar(stream: _Bounded) -> tuple[dict[str, SourceEntry], dict[str, bytes]]:
    entries: dict[str, SourceEntry] = {}
    contents: dict[str, bytes] = {}
    count = 0
    with tarfile.open(fileobj=stream, mode="r|") as archive:  # type: ignore[call-overload]
        while (member := archive.next()) is not None:
            archive.members.clear()  # tarfile keeps them all, which is of no use here
            count += 1
            check_count(count)
            if member.isdir():
                check_path(member.name)
                continue
            if is_junk(member.name):
                continue
            if not member.isreg() or member.issparse():
                _add(entries, member.name, SourceEntry("link" if member.issym() or member.islnk() else "special file"))
                continue
            content = archive.extractfile(member)
            data = b"" if content is None else content.read()
            path = _add(entries, member.name, SourceEntry("", len(data), bool(member.mode & 0o100)))
            contents[path] = data
    return entries, contents


class _Bounded:
    """Reader of unpacked bytes up to a bound. Raises SourceError behind it."""

    def __init__(self, stream: IO[bytes] | gzip.GzipFile) -> None:
        self._stream, self._room = stream, _UNPACKED

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self._room -= len(data)
        if self._room < 0:
            raise too_large()
        return data
