"""Encryption of a stream of bytes with a passphrase.

The key is made from the passphrase by scrypt with a random salt, so that each guess costs 128 MiB and about half a second. The
stream is cut into pieces of 64 KiB, and each is encrypted with AES-256-GCM. The nonce of a piece is its number and whether it is
the last one (the STREAM construction of Hoang, Reyhanitabar, Rogaway and Vizár). So pieces cannot be exchanged, repeated or left
out, and a file that was cut off between two pieces lacks its last one. A key is used for one file only, so no nonce is used
twice.

The file begins with MAGIC and the salt, which every piece authenticates. The parameters of scrypt are part of what MAGIC means: a
file cannot ask for a terabyte of memory.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import BinaryIO, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from pegasus.backup.snapshot import BackupError

MAGIC: Final = b"pegasus sealed 1\n"
"""First bytes of a sealed file."""
PIECE: Final = 1 << 16
"""Bytes of a piece before encryption."""
_SALT: Final = 16
_TAG: Final = 16
_LONGEST: Final = 1 << 12
"""Bytes of a passphrase file at most."""


def read_passphrase(path: Path) -> str:
    """Return the first line of a file. Raises BackupError for one that cannot be read, or is empty."""
    try:
        with path.open("rb") as stream:
            line = stream.read(_LONGEST + 1).partition(b"\n")[0].removesuffix(b"\r")
        passphrase = line.decode()
    except OSError as error:
        raise BackupError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise BackupError(f"{path}: found bytes that are no UTF-8; allowed: a passphrase on the first line") from None
    if not passphrase.strip() or len(line) > _LONGEST:
        raise BackupError(f"{path}: holds no passphrase; allowed: 1 to {_LONGEST} bytes on the first line")
    return passphrase


def is_sealed(path: Path) -> bool:
    """Return whether the file begins like a sealed one. Raises BackupError where it cannot be read."""
    try:
        with path.open("rb") as stream:
            return stream.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise BackupError(f"{path}: cannot be read ({error.strerror})") from None


def _cipher(passphrase: str, salt: bytes) -> AESGCM:
    return AESGCM(hashlib.scrypt(passphrase.encode(), salt=salt, n=1 << 17, r=8, p=1, maxmem=1 << 28, dklen=32))


def _nonce(number: int, *, is_last: bool) -> bytes:
    return number.to_bytes(11, "big") + bytes([is_last])


class Sealer:
    """Writer that encrypts what it is given. `finish` writes the last piece; without it the file cannot be opened."""

    def __init__(self, stream: BinaryIO, passphrase: str) -> None:
        salt = os.urandom(_SALT)
        self._cipher = _cipher(passphrase, salt)
        self._head = MAGIC + salt
        self._stream = stream
        self._waiting = bytearray()
        self._number = 0
        stream.write(self._head)

    def write(self, data: bytes) -> int:
        """Encrypt bytes. At least one byte waits for `finish`, which has to know the last piece."""
        self._waiting += data
        while len(self._waiting) > PIECE:
            self._put(bytes(self._waiting[:PIECE]), is_last=False)
            del self._waiting[:PIECE]
        return len(data)

    def finish(self) -> None:
        """Write the last piece."""
        self._put(bytes(self._waiting), is_last=True)

    def _put(self, piece: bytes, *, is_last: bool) -> None:
        self._stream.write(self._cipher.encrypt(_nonce(self._number, is_last=is_last), piece, self._head))
        self._number += 1


class Opener:
    """Reader of a sealed file. Nothing is returned that was not authenticated.

    `read` raises BackupError for a wrong passphrase, and for a file that was changed or cut off.
    """

    def __init__(self, stream: BinaryIO, passphrase: str) -> None:
        self._stream = stream
        self._head = stream.read(len(MAGIC) + _SALT)
        self._cipher = _cipher(passphrase, self._head[len(MAGIC) :])
        self._number = 0
        self._ready = b""
        self._next: bytes | None = stream.read(PIECE + _TAG)

    def read(self, size: int = -1) -> bytes:
        """Return at most `size` bytes, b"" at the end."""
        parts = [self._ready]
        found = len(self._ready)
        while (size < 0 or found < size) and (piece := self._open_next()):
            parts.append(piece)
            found += len(piece)
        whole = b"".join(parts)
        cut = len(whole) if size < 0 else size
        self._ready = whole[cut:]
        return whole[:cut]

    def _open_next(self) -> bytes:
        if self._next is None:
            return b""
        piece, following = self._next, self._stream.read(PIECE + _TAG)
        self._next = following or None
        try:
            opened = self._cipher.decrypt(_nonce(self._number, is_last=not following), piece, self._head)
        except (InvalidTag, ValueError):
            first = "the passphrase is wrong, or the backup is damaged"
            raise BackupError("the backup is damaged or cut off" if self._number else first) from None
        self._number += 1
        return opened
