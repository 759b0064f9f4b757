"""Text and bytes: the allowed encodings, recognition of text, and base64.

Python knows codecs that are not character sets of files or web pages, and some of them are
dangerous for a daemon. `punycode` takes quadratic time: one call with a megabyte of it would hold a
thread, and with it the deadline and the shutdown, for hours. `unicode_escape` and `utf_7` give
characters that the bytes do not show. So there is a list of what is allowed, not of what is
forbidden. Every codec in the list takes linear time and can work in pieces.
"""

from __future__ import annotations

import base64
import binascii
import codecs
from typing import Final

from pegasus.tools.base import ToolError

BASE64: Final = "base64"
"""Name of the pretended encoding by which file tools read and write bytes."""
PROBE: Final = 8192
"""Bytes at the beginning of a file that tell text from binary data; the size that grep and git
use."""

_ENCODING_NAMES: Final = (
    *("ascii", "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"),
    *(f"iso8859-{part}" for part in range(1, 17) if part != 12),
    *(f"cp{page}" for page in range(1250, 1259)),
    *("cp437", "cp850", "cp852", "cp855", "cp857", "cp858", "cp862", "cp864", "cp866", "cp869", "cp874", "cp1125"),
    *("koi8-r", "koi8-u", "mac-roman", "mac-cyrillic", "tis-620"),
    *("gb2312", "gbk", "gb18030", "hz", "big5", "big5hkscs", "cp950"),
    *(
        "shift_jis",
        "shift_jis_2004",
        "cp932",
        "euc_jp",
        "euc_jis_2004",
        "iso2022_jp",
        "iso2022_jp_2",
        "iso2022_jp_2004",
    ),
    *("euc_kr", "cp949", "johab", "iso2022_kr"),
)
"""Python's names, by family: Unicode, ISO 8859, Windows, DOS, others of one byte, Chinese, Japanese, Korean."""
ALLOWED_ENCODINGS: Final = frozenset(name.replace("_", "-") for name in _ENCODING_NAMES)
"""Python's names of the allowed encodings, with `-` for `_`."""

_BYTE_ORDER_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""Marks at the beginning of a file, each with the encoding that reads and removes it."""


def find_codec(name: str) -> str | None:
    """Return Python's name of an encoding, or None if it is unknown or not allowed. Aliases such as `latin1` are resolved.

    find_codec("latin1") == "iso8859-1"
    find_codec("punycode") is None
    """
    try:
        found = codecs.lookup(name.strip()).name
    except (LookupError, ValueError):
        return None
    return found if found.replace("_", "-") in ALLOWED_ENCODINGS else None


def require_encoding(name: str) -> str:
    """Return the encoding as the caller wrote it, in lower case, or `base64`. Raises ToolError for anything else."""
    wanted = name.strip().lower()
    if wanted == BASE64 or find_codec(wanted) is not None:
        return wanted
    raise ToolError(
        f"encoding {name!r} is not known; allowed: utf-8, utf-16, latin-1, cp1252, gb18030, shift_jis … or base64"
    )


def detect_encoding(beginning: bytes) -> str | None:
    """Return the encoding that the first bytes of a file suggest, or None for binary data.

    A byte order mark decides. Without one, a file that has no NUL in its first bytes is taken for
    UTF-8.
    """
    for mark, encoding in _BYTE_ORDER_MARKS:
        if beginning.startswith(mark):
            return encoding
    return None if b"\0" in beginning[:PROBE] else "utf-8"


def decode_base64(text: str) -> bytes:
    """Return the bytes of a base64 text. Both alphabets, white space and missing padding are accepted. Raises ToolError."""
    compact = "".join(text.split()).translate(_URL_ALPHABET).rstrip("=")
    try:
        return base64.b64decode(compact + "=" * (-len(compact) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ToolError(f"that is not base64: {error}") from None


_URL_ALPHABET: Final = str.maketrans("-_", "+/")
"""Characters of the URL alphabet, for those of the usual one."""
