"""Pictures of every kind that models take, as small as they can be."""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode

from pegasus.models import Image


def png(width: int = 2, height: int = 3) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"\0" * 9)) + chunk(b"IEND", b"")


def jpeg(width: int = 2, height: int = 3) -> bytes:
    segment = b"\xff\xe0\x00\x10JFIF\0" + b"\0" * 9
    return (
        b"\xff\xd8" + segment + b"\xff\xff\xc2\x00\x0b\x08" + struct.pack(">HH", height, width) + b"\1\1\x11\0\xff\xd9"
    )


def gif(width: int = 2, height: int = 3) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\0\0\0;"


def webp(form: bytes = b"VP8X", width: int = 2, height: int = 3) -> bytes:
    body = {
        b"VP8X": b"\0" * 4 + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little"),
        b"VP8L": b"\x2f" + ((width - 1) | (height - 1) << 14).to_bytes(4, "little"),
        b"VP8 ": b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", width, height),
    }[form]
    return b"RIFF" + struct.pack("<I", 12 + len(body)) + b"WEBP" + form + struct.pack("<I", len(body)) + body


KINDS = {"image/png": png(), "image/jpeg": jpeg(), "image/gif": gif(), "image/webp": webp()}


def image(mime: str = "image/png", name: str = "a.png") -> Image:
    return Image(mime, b64encode(KINDS[mime]).decode(), name)
