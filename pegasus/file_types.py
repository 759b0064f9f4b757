"""Kinds of files, told by their content.

A name and a claimed MIME type are only what somebody says. The first bytes of a file say what programs will take it for. A name
counts only where the content cannot tell: among kinds of text, and among kinds that share a container.

    detect_type(b"%PDF-1.7 …", "holiday.png")  # "application/pdf"

This matters because files come from strangers. A page that calls itself a picture would run as a page in a browser, and a provider
refuses a whole request for one picture that is none. So the type is found here once, and claims are used only to choose among types
that the bytes allow.

The tables know what people send each other and what models take. Anything else is UNKNOWN, which no caller shows or passes on as
something better; it is still a file that can be kept.

Only the first `_PROBE` bytes are looked at, and nothing is parsed or unpacked. So the answer costs microseconds whatever the file is,
and a damaged file is told by its beginning like a whole one. The price is that an office document is taken for a plain archive
if its first entries do not say which program made it.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Final

UNKNOWN: Final = "application/octet-stream"
"""The MIME type of what is not recognised."""

_MAGIC: Final = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    # RIFF: the kind stands behind the mark of the container and its length.
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
    # ISO media: a length, "ftyp", and the brand. A brand that is not listed is taken for a film, so the bare mark comes
    # last.
    (4, b"ftypM4A", "audio/mp4"),
    (4, b"ftypheic", "image/heic"),
    (4, b"ftypavif", "image/avif"),
    (4, b"ftypqt", "video/quicktime"),
    (4, b"ftyp", "video/mp4"),
    # EBML: Matroska has the same mark as WebM, which differs in the codecs that it allows.
    (0, b"\x1a\x45\xdf\xa3", "video/webm"),
    # Plain archives, and documents that are archives (`_PARTS`).
    (0, b"PK\x03\x04", "application/zip"),
    (0, b"\x1f\x8b", "application/gzip"),
    (0, b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    # Office before 2007, and mails of Outlook: one container of Microsoft's for all of them.
    (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "application/x-ole-storage"),
    (0, b"{\\rtf", "application/rtf"),
    (0, b"\x7fELF", "application/x-executable"),
    (0, b"MZ", "application/x-msdownload"),
)
"""Place, bytes there, and MIME type. The first that fits counts. RIFF files (WEBP, WAVE, AVI) must also begin with RIFF."""
_RIFF: Final = frozenset({"image/webp", "audio/wav", "video/x-msvideo"})
"""Types whose mark stands behind the one of the container, RIFF and its length."""
_MP3_FRAMES: Final = (b"\xff\xfb", b"\xff\xf3", b"\xff\xf2")
"""Beginnings of MP3 files without a tag: the sync word of a frame, for the versions and protections that occur."""
_LEAST_BITMAP: Final = 26
"""Bytes of the smallest bitmap. "BM" alone may begin a text."""
_PARTS: Final = (
    # Office Open XML: the folder of the program that has made it.
    (b"word/", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
    (b"xl/", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    (b"ppt/", "application/vnd.openxmlformats-officedocument.presentationml.presentation"),
    # EPUB and OpenDocument: the content of the first entry, `mimetype`, which must not be compressed.
    (b"application/epub+zip", "application/epub+zip"),
    (b"application/vnd.oasis.opendocument.text", "application/vnd.oasis.opendocument.text"),
    (b"application/vnd.oasis.opendocument.spreadsheet", "application/vnd.oasis.opendocument.spreadsheet"),
    (b"application/vnd.oasis.opendocument.presentation", "application/vnd.oasis.opendocument.presentation"),
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
    """Return the MIME type of a file. name: chooses among kinds of text, and between audio and video.

    content: the whole file, or at least its first 8 KiB. Raises nothing, whatever the bytes are.
    """
    known = recognise(content, name)
    if known is not None:
        return known
    # The name may choose among texts only: all of them are shown and read in the same way.
    return _TEXT_NAMES.get(_suffix(name), "text/plain") if is_text(content[:_PROBE]) else UNKNOWN


def recognise(content: bytes, name: str = "") -> str | None:
    """Return the MIME type that the first bytes of a file tell; None for text, and for what is not known.

    A text has no mark, so it is left to the caller to tell it from what is not known (`is_text`).
    """
    head = content[:_PROBE]
    mime = _by_magic(head)
    # A recording and a film begin alike. Telling them apart would mean reading the tracks.
    if mime in ("video/mp4", "video/webm"):
        return _AUDIO_NAMES.get(_suffix(name), mime)
    if mime == "application/zip":
        # The names of the entries stand uncompressed in an archive.
        return next((kind for part, kind in _PARTS if part in head), mime)
    return mime


def _suffix(name: str) -> str:
    """Return the ending of a name in lower case, with its dot; "" if it has none."""
    return PurePosixPath(name.lower()).suffix


def _by_magic(head: bytes) -> str | None:
    """Return the MIME type whose mark the bytes have, None if they have none."""
    # Before the table, because they are three spellings of one mark.
    if head.startswith(_MP3_FRAMES):
        return "audio/mpeg"
    for place, magic, mime in _MAGIC:
        if head.startswith(magic, place) and (mime not in _RIFF or head.startswith(b"RIFF")):
            # Two letters are a weak mark. A bitmap has four zero bytes behind its length, which no text has.
            return None if mime == "image/bmp" and (len(head) < _LEAST_BITMAP or head[6:10] != bytes(4)) else mime
    return None


def is_text(head: bytes) -> bool:
    """Return whether the beginning of a file is text: UTF-8 without null characters, or UTF-16 with its byte order mark."""
    # UTF-16 is full of null characters, so its mark is looked for before them.
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return True
    if b"\0" in head:
        return False
    try:
        head.decode()
    # A character has up to four bytes, so a cut one begins within the last three.
    except UnicodeDecodeError as error:
        return error.start >= len(head) - 3 and len(head) == _PROBE  # a character that the probe has cut
    return True


_MAIL: Final = re.compile(rb"(?:[!-9;-~]+:[^\n]*\n(?:[ \t][^\n]*\n)*){3}")
_MAIL_NAMES: Final = re.compile(
    rb"(?im)^(from|to|subject|date|received|message-id|mime-version|return-path|delivered-to):"
)
"""Three lines of a head, of which any may go on; and names that stand in a mail's."""


def is_mail(head: bytes) -> bool:
    """Return whether a text begins as a mail: three lines of a head, of which two have names that every mail has."""
    head = head[:_PROBE].lstrip(b"\xef\xbb\xbf").replace(b"\r\n", b"\n")
    if head.startswith(b"From "):  # as in a mailbox
        head = head.partition(b"\n")[2]
    if _MAIL.match(head) is None:
        return False
    return len(set(_MAIL_NAMES.findall(head.partition(b"\n\n")[0].lower()))) >= 2


def extension_of(mime: str) -> str:
    """Return an ending for the file of this kind: lower-case letters and digits; "bin" where none is known.

    Used for the names under which files are kept, so it never contains anything that came from outside. Example:
    `extension_of("image/jpeg")` is "jpg".
    """
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
    "application/vnd.oasis.opendocument.presentation": "odp",
    "application/rtf": "rtf",
    "message/rfc822": "eml",
    **{mime: name[1:] for name, mime in reversed(_TEXT_NAMES.items())},
}
"""Ending by MIME type. Of several endings of a text the first in `_TEXT_NAMES` wins, since the table is read backwards."""
