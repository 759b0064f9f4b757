"""Kinds of files, told by their content.

A name and a claimed MIME type are only what somebody says. The first bytes of a file say what programs will take it for. A name
counts only where the content cannot tell: among kinds of text, and among kinds that share a container.

    detect_type(b"%PDF-1.7 …", "holiday.png")  # "application/pdf"
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Final

UNKNOWN: Final = "application/octet-stream"
"""The MIME type of what is not recognised."""

_MAGIC: Final = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (8, b"WEBP", "image/webp"),
    (8, b"WAVE", "audio/wav"),
    (8, b"AVI ", "video/x-msvideo"),
    (0, b"BM", "image/bmp"),
    (0, b"II*\0", "image/tiff"),
    (0, b"MM\0*", "image/tiff"),
    (0, b"%PDF-", "application/pdf"),
    (0, b"OggS", "audio/ogg"),
    (0, b"fLaC", "audio/flac"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"#!AMR", "audio/amr"),
    (4, b"ftypM4A", "audio/mp4"),
    (4, b"ftypheic", "image/heic"),
    (4, b"ftypavif", "image/avif"),
    (4, b"ftypqt", "video/quicktime"),
    (4, b"ftyp", "video/mp4"),
    (0, b"\x1a\x45\xdf\xa3", "video/webm"),
    (0, b"PK\x03\x04", "application/zip"),
    (0, b"\x1f\x8b", "application/gzip"),
    (0, b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (0, b"\x7fELF", "application/x-executable"),
    (0, b"MZ", "application/x-msdownload"),
)
"""Place, bytes there, and MIME type. The first that fits counts. RIFF files (WEBP, WAVE, AVI) must also begin with RIFF."""
_RIFF: Final = frozenset({"image/webp", "audio/wav", "video/x-msvideo"})
_MP3_FRAMES: Final = (b"\xff\xfb", b"\xff\xf3", b"\xff\xf2")
_LEAST_BITMAP: Final = 26
"""Bytes of the smallest bitmap. "BM" alone may begin a text."""
_PARTS: Final = (
    (b"word/", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
    (b"xl/", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    (b"ppt/", "application/vnd.openxmlformats-officedocument.presentationml.presentation"),
    (b"application/epub+zip", "application/epub+zip"),
    (b"application/vnd.oasis.opendocument.text", "application/vnd.oasis.opendocument.text"),
    (b"application/vnd.oasis.opendocument.spreadsheet", "application/vnd.oasis.opendocument.spreadsheet"),
)
"""Text near the beginning of an archive that is a document, and the MIME type of that."""
_AUDIO_NAMES: Final = {".m4a": "audio/mp4", ".weba": "audio/webm"}
"""Endings of names that tell audio from video in the same container."""
_TEXT_NAMES: Final = {
    ".md": "text/markdown",
    ".csv": "text/csv",
    ".html": "text/html",
    ".htm": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".json": "application/json",
    ".xml": "application/xml",
    ".svg": "image/svg+xml",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
    ".toml": "application/toml",
    ".ics": "text/calendar",
    ".vcf": "text/vcard",
    ".py": "text/x-python",
    ".sh": "application/x-sh",
}
"""By ending of the name, the MIME type of a text. Any other text is plain."""
_PROBE: Final = 8192
"""Bytes that are looked at."""


def detect_type(content: bytes, name: str = "") -> str:
    """Return the MIME type of a file. name: chooses among kinds of text, and between audio and video."""
    known = recognise(content, name)
    if known is not None:
        return known
    return _TEXT_NAMES.get(_suffix(name), "text/plain") if is_text(content[:_PROBE]) else UNKNOWN


def recognise(content: bytes, name: str = "") -> str | None:
    """Return the MIME type that the first bytes of a file tell; None for text, and for what is not known."""
    head = content[:_PROBE]
    mime = _by_magic(head)
    if mime in ("video/mp4", "video/webm"):
        return _AUDIO_NAMES.get(_suffix(name), mime)
    if mime == "application/zip":
        return next((kind for part, kind in _PARTS if part in head), mime)
    return mime


def _suffix(name: str) -> str:
    return PurePosixPath(name.lower()).suffix


def _by_magic(head: bytes) -> str | None:
    if head.startswith(_MP3_FRAMES):
        return "audio/mpeg"
    for place, magic, mime in _MAGIC:
        if head.startswith(magic, place) and (mime not in _RIFF or head.startswith(b"RIFF")):
            return None if mime == "image/bmp" and (len(head) < _LEAST_BITMAP or head[6:10] != bytes(4)) else mime
    return None


def is_text(head: bytes) -> bool:
    """Return whether the beginning of a file is text: UTF-8 without null characters, or UTF-16 with its byte order mark."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return True
    if b"\0" in head:
        return False
    try:
        head.decode()
    except UnicodeDecodeError as error:
        return error.start >= len(head) - 3 and len(head) == _PROBE  # a character that the probe has cut
    return True


def extension_of(mime: str) -> str:
    """Return an ending for the file of this kind: lower-case letters and digits; "bin" where none is known."""
    return _EXTENSIONS.get(mime, "bin")


_EXTENSIONS: Final = {
    "image/png": "png",
    "image/jpeg": "jpg",
    "image/gif": "gif",
    "image/webp": "webp",
    "application/pdf": "pdf",
    "audio/mpeg": "mp3",
    "audio/ogg": "ogg",
    "audio/wav": "wav",
    "audio/mp4": "m4a",
    "audio/flac": "flac",
    "audio/webm": "weba",
    "video/mp4": "mp4",
    "video/webm": "webm",
    "text/plain": "txt",
    "application/zip": "zip",
    "application/gzip": "gz",
    "application/x-7z-compressed": "7z",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": "pptx",
    "application/epub+zip": "epub",
    "application/vnd.oasis.opendocument.text": "odt",
    "application/vnd.oasis.opendocument.spreadsheet": "ods",
    **{mime: name[1:] for name, mime in reversed(_TEXT_NAMES.items())},
}
