"""The file of a backup: a manifest and the files, as a tar that is compressed by zstd, and perhaps sealed.

The first member is MANIFEST.json: the versions of program and data, and path, size and SHA-256 of every file in the order in
which they follow. A reader writes nothing that the manifest does not announce, so it knows before the first byte whether there is
room, and whether it can use the backup at all. Members are regular files and nothing else. Symbolic links are in the manifest
alone, and are checked there. `zstd -dc FILE | tar -x` unpacks a file that is not sealed, too.

A file that was cut off lacks the end of a compressed frame, or members; one that was changed has another checksum. Both are a
BackupError, however it is that the bytes mislead the libraries that read them.
"""

from __future__ import annotations

import hashlib
import sys
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Any, BinaryIO, Final, Protocol

import attrs

from pegasus.backup.snapshot import BackupError, SnapshotChanged, link_stays_inside
from pegasus.host import FORMAT
from pegasus.wire import decode_json, encode_json, from_wire, to_wire

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

LAYOUT: Final = 1
"""Number of the layout of such files."""
MANIFEST: Final = "MANIFEST.json"
"""Name of the first member."""
LARGEST_MANIFEST: Final = 1 << 28
"""Bytes of a manifest at most: more than a million files."""
ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
"""First bytes of a backup that is not sealed."""
CHUNK: Final = 1 << 17
"""Bytes that are copied at once. More do not stay in the processor's caches between reading, compression and writing."""
_LEVEL: Final = 3
"""Level of compression: above it time grows faster than files shrink. Media do not shrink at any."""


@attrs.frozen
class BackupFile:
    """A file, as the manifest has it."""

    path: str
    size: int
    sha256: str
    mtime: int = 0
    """Seconds since the epoch: media are removed by their age."""
    executable: bool = False
    by_name: bool = False
    """True for a medium: its hash is its name, and nobody has compared its content. zstd's checksum tells damage of the backup, so
    another hash means that the file was damaged in the home. It is restored as it was; whoever reads it recognises that."""


@attrs.frozen
class BackupLink:
    """A symbolic link, as the manifest has it."""

    path: str
    target: str


@attrs.frozen
class Manifest:
    """Contents of a backup, as its first member tells them."""

    backup: int
    """LAYOUT of the writer."""
    version: str
    """Version of the program."""
    format: int
    """Number of the form of data."""
    created_at: int
    """Ms since the epoch."""
    secrets: bool
    """True if the token and keys are in it."""
    files: tuple[BackupFile, ...] = ()
    links: tuple[BackupLink, ...] = ()
    folders: tuple[str, ...] = ()
    """Folders that are empty."""
    emptied: tuple[str, ...] = ()
    """Keys of the settings whose secrets were left out."""

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def check(self) -> None:
        """Raise BackupError for a backup that this program cannot use, and for paths that no backup has."""
        if self.backup != LAYOUT:
            raise BackupError(
                f"found layout {self.backup} of a backup, allowed: {LAYOUT}; use a newer version of Pegasus"
            )
        if not 0 <= self.format <= FORMAT:
            text = f"found data of format {self.format} (from Pegasus {self.version[:40]}), allowed: up to {FORMAT}"
            raise BackupError(f"{text}; use a newer version of Pegasus")
        leaves = [file.path for file in self.files] + [link.path for link in self.links]
        names = set(leaves)
        if len(names) != len(leaves):
            raise BackupError("a file stands in it twice")
        for path in (*leaves, *self.folders):
            parts = path.split("/")
            if (
                not all(parts)
                or {".", ".."} & set(parts)
                or "\0" in path
                or parts[0] in ("lock", "run", "logs", "backups")
            ):
                raise BackupError(f"found the path {path!a}; allowed: paths below the home")
            if any("/".join(parts[:n]) in names for n in range(1, len(parts))):
                raise BackupError(f"found the path {path!a} below a file or a link")
        for link in self.links:
            if not link_stays_inside(link.path, link.target):
                raise BackupError(
                    f"found the link {link.path!a} to {link.target!a}; allowed: links within their folder"
                )
        for file in self.files:
            if file.size < 0 or not 0 <= file.mtime < 1 << 33:
                raise BackupError(f"found a size or time of {file.path!a} that no file has")


class ByteSink(Protocol):
    """Writer of the finished bytes."""

    def write(self, data: bytes, /) -> int: ...


# ------------------------------------------------------------------ writing


class _Hashed:
    """Reader of a file's first bytes that checks at the end that they are what the manifest says. Raises SnapshotChanged.

    The hash of a medium is not computed: a gigabyte of them would take half as long again.
    """

    def __init__(self, stream: BinaryIO, file: BackupFile) -> None:
        self._stream, self._file = stream, file
        self._left, self._hash = file.size, None if file.by_name else hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(min(size, self._left))
        self._left -= len(data)
        if self._hash is not None:
            self._hash.update(data)
        is_other = not self._left and self._hash is not None and self._hash.hexdigest() != self._file.sha256
        if is_other or (self._left and len(data) < size):
            raise SnapshotChanged(self._file.path)
        return data


def hash_of(stream: BinaryIO, size: int) -> str | None:
    """Return the SHA-256 of the first bytes, None if there are fewer."""
    found = hashlib.sha256()
    while size and (data := stream.read(min(CHUNK, size))):
        found.update(data)
        size -= len(data)
    return None if size else found.hexdigest()


@contextmanager
def archive_writer(sink: ByteSink, manifest: Manifest) -> Iterator[tarfile.TarFile]:
    """Write the manifest, and yield what `add_file` needs; the file is whole when the block has ended."""
    target: Any = sink
    # Without threads of its own: they copy everything once more, which for media takes twice as long as not compressing them.
    parameter = zstd.CompressionParameter
    options: dict[int, int] = {parameter.compression_level: _LEVEL, parameter.checksum_flag: 1}
    compressed: Any = zstd.ZstdFile(target, "wb", options=options)
    with compressed, tarfile.TarFile(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT, copybufsize=CHUNK) as tar:
        text = encode_json(to_wire(manifest)).encode()
        head = BackupFile(MANIFEST, len(text), "", manifest.created_at // 1000)
        tar.addfile(_member(head), BytesIO(text))
        yield tar


def add_file(tar: tarfile.TarFile, file: BackupFile, stream: BinaryIO) -> None:
    """Add a file. Raises SnapshotChanged if the stream does not begin with what the manifest says."""
    if file.size:
        tar.addfile(_member(file), _Hashed(stream, file))
    else:
        tar.addfile(_member(file))


def _member(file: BackupFile) -> tarfile.TarInfo:
    info = tarfile.TarInfo(file.path)
    info.size, info.mtime, info.mode = file.size, file.mtime, 0o700 if file.executable else 0o600
    return info


# ------------------------------------------------------------------ reading


@contextmanager
def archive_reader(source: Any) -> Iterator[tuple[Manifest, Iterable[tuple[BackupFile, CheckedContent]]]]:
    """Yield the manifest, which was checked, and an iterator of all files with their content.

    Each content is checked when it has been read to its end, and the whole when the iterator ends. Raises BackupError.
    """
    with (
        _damage_reported(),
        zstd.ZstdFile(source, "rb") as stream,
        tarfile.open(fileobj=stream, mode="r|", errorlevel=2) as tar,
    ):
        manifest = _read_manifest(tar)
        manifest.check()
        yield manifest, _read_files(tar, manifest, stream)


def _read_manifest(tar: tarfile.TarFile) -> Manifest:
    member = tar.next()
    if member is None or member.name != MANIFEST or not member.isreg() or member.size > LARGEST_MANIFEST:
        raise BackupError("this is no backup of Pegasus: its first part is no manifest")
    content = tar.extractfile(member)
    text = b"" if content is None else content.read()
    try:
        found = decode_json(text)
        if isinstance(found, dict) and found.get("backup", LAYOUT) != LAYOUT:
            raise BackupError(
                f"found layout {found['backup']!a} of a backup, allowed: {LAYOUT}; use a newer version of Pegasus"
            )
        return from_wire(found, Manifest)
    except ValueError as error:
        raise BackupError(f"its manifest cannot be read: {error}") from None


def _read_files(tar: tarfile.TarFile, manifest: Manifest, stream: Any) -> Iterator[tuple[BackupFile, CheckedContent]]:
    for file in manifest.files:
        member = tar.next()
        if member is None:
            raise BackupError("it is cut off")
        if member.name != file.path or not member.isreg() or member.issparse() or member.size != file.size:
            raise BackupError(f"found {member.name!a}, announced: {file.path!a} as a file of {file.size} bytes")
        content: Any = tar.extractfile(member)
        checked = CheckedContent(content, file)
        yield file, checked
        checked.finish()
        tar.members.clear()  # type: ignore[attr-defined]  # tarfile keeps them all, which is of no use here
    if (member := tar.next()) is not None:
        raise BackupError(f"found {member.name!a}, which its manifest does not announce")
    while stream.read(CHUNK):  # to the end of the compressed frame, which has a checksum
        pass


class CheckedContent:
    """Reader of a member whose `finish` compares what was read with the manifest."""

    def __init__(self, content: Any, file: BackupFile) -> None:
        self._content, self._file = content, file
        self._hash, self._size = hashlib.sha256(), 0
        self.is_damaged = False
        """True when `finish` has found another hash than the manifest's."""

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._content.read(size)
        self._hash.update(data)
        self._size += len(data)
        return data

    def finish(self) -> None:
        """Read the rest, and raise BackupError if the content is not what was announced."""
        while self.read(CHUNK):
            pass
        self.is_damaged = self._hash.hexdigest() != self._file.sha256
        if self._size != self._file.size or (self.is_damaged and not self._file.by_name):
            raise BackupError(f"{self._file.path!a} is damaged")


@contextmanager
def _damage_reported() -> Iterator[None]:
    """Raise what the libraries raise for bytes that mean nothing as BackupError."""
    try:
        yield
    except EOFError:
        raise BackupError("it is cut off") from None
    except (tarfile.TarError, zstd.ZstdError, ValueError, OverflowError, MemoryError, RecursionError) as error:
        raise BackupError(f"it is damaged, or no backup of Pegasus ({str(error) or type(error).__name__})") from None
