"""Bytes and text: which encodings there are, and what is not text at all."""

from __future__ import annotations

import base64
import binascii
import codecs
from typing import Final

from pegasus.tools.base import ToolError

UTF8: Final = "utf-8"
BASE64: Final = "base64"
PROBE: Final = 8192
"""Bytes at the beginning that tell text from binary data, as grep and git do."""

_MARKS: Final = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


def known_encoding(name: str) -> str:
    """The encoding of this name. Raises ToolError; Python's codecs that are no text encodings are not among them."""
    wanted = name.strip().lower()
    if wanted == BASE64:
        return BASE64
    try:
        codecs.lookup(wanted)
        "".encode(wanted)  # refuses codecs between bytes and bytes
    except (LookupError, ValueError):
        raise ToolError(
            f"encoding {name!r} is not known; allowed: utf-8, utf-16, latin-1, cp1252, gb18030, shift_jis … or base64"
        ) from None
    return wanted


def encoding_of(beginning: bytes) -> str | None:
    """The encoding that the first bytes of a file tell of, utf-8 if nothing speaks against it; None for binary data."""
    for mark, encoding in _MARKS:
        if beginning.startswith(mark):
            return encoding
    return None if b"\0" in beginning[:PROBE] else UTF8


def encoded(content: str, encoding: str) -> bytes:
    """The bytes of the content. Raises ToolError that says which character cannot be written so."""
    try:
        if encoding == BASE64:
            return unbase64(content)
        return content.encode(encoding)
    except UnicodeEncodeError as error:
        found = content[error.start]
        raise ToolError(
            f"character {error.start} ({found!a}) cannot be written as {encoding}; utf-8 can hold all text"
        ) from None


def unbase64(text: str) -> bytes:
    """The bytes that base64 stands for: the usual or the URL alphabet, white space and missing padding allowed. Raises ToolError."""
    compact = "".join(text.split()).translate(_USUAL).rstrip("=")
    try:
        return base64.b64decode(compact + "=" * (-len(compact) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ToolError(f"that is not base64: {error}") from None


_USUAL: Final = str.maketrans("-_", "+/")
