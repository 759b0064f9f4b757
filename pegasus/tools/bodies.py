"""What a body is, in a form that a model can read: text in whatever character set, small binaries as base64."""

from __future__ import annotations

import base64
import codecs
import re
from collections.abc import Mapping
from typing import Final

from pegasus.tools.fetch import Fetched

BINARY_LIMIT: Final = 16 * 1024
"""Bytes of a binary that are still given, as base64; a model can do little with it."""

_TEXTUAL: Final = re.compile(
    r"text/.*|.*\+(json|xml|yaml)|application/(json|xml|javascript|ecmascript|x-javascript|yaml|x-yaml|toml|graphql|sql"
    r"|x-ndjson|ndjson|x-www-form-urlencoded|x-sh|rtf)|image/svg\+xml|message/.*|multipart/.*"
)
_UNKNOWN: Final = ("", "application/octet-stream", "binary/octet-stream", "application/unknown")
_MARKS: Final = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_IN_HTML: Final = re.compile(rb"""<meta[^>]{0,200}charset\s*=\s*["']?([\w.:-]{1,40})""", re.IGNORECASE)
_IN_XML: Final = re.compile(rb"""^\s{0,20}<\?xml[^>]{0,200}encoding\s*=\s*["']([\w.:-]{1,40})""")
_NO_CHARSETS: Final = frozenset(
    {"idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined", "mbcs", "oem", "utf_7"}
)
"""Codecs of Python that are no character sets of the web; decoding with some takes very long."""


def body_fields(answer: Fetched, room: int) -> dict[str, object]:
    """`body` with what is to be said of it: `encoding` ("base64"), `truncated`, `notice`. room: characters it may have."""
    kind, charset = content_type(answer.headers)
    if answer.note and not answer.body:
        return {"body": "", "notice": answer.note}
    if not is_text(kind, answer.body):
        return _binary(kind, answer)
    text = decode(answer.body, kind, charset)
    notices = [answer.note] if answer.note else []
    truncated = not answer.complete or len(text) > room
    if truncated:
        text = text[:room]
        notices.append(f"only the first {len(text):,} characters of the body are here")
    return {
        "body": text,
        **({"truncated": True} if truncated else {}),
        **({"notice": "; ".join(notices)} if notices else {}),
    }


def content_type(headers: Mapping[str, str]) -> tuple[str, str]:
    """Media type and charset of Content-Type, in lower case, "" where it does not say."""
    kind, *rest = headers.get("content-type", "").split(";")
    for part in rest:
        name, _, value = part.partition("=")
        if name.strip().lower() == "charset":
            return kind.strip().lower(), value.strip().strip("\"'").lower()
    return kind.strip().lower(), ""


def is_text(kind: str, data: bytes) -> bool:
    """Whether a body is text, by what it is said to be, or, where that says nothing, by what it looks like."""
    if kind not in _UNKNOWN:
        return _TEXTUAL.fullmatch(kind) is not None
    if any(data.startswith(mark) for mark, _ in _MARKS):
        return True
    if b"\0" in data[:4096]:
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data[:4096])
    except UnicodeDecodeError:
        return False
    return True


def decode(data: bytes, kind: str, charset: str) -> str:
    """The text: by byte order mark, by the charset it was said to have, by what HTML and XML say of themselves, else UTF-8."""
    for mark, name in _MARKS:
        if data.startswith(mark):
            return data[len(mark) :].decode(name, "replace")
    inside = _IN_XML.search(data[:1024]) if "xml" in kind else None
    inside = inside or (_IN_HTML.search(data[:4096]) if "html" in kind else None)
    for name in (charset, inside.group(1).decode("ascii", "replace") if inside else ""):
        if codec := _charset(name):
            return data.decode(codec, "replace")
    return data.decode("utf-8", "replace")


def _charset(name: str) -> str | None:
    """Python's name for it; None if it is none. On the web, Latin 1 means Windows 1252 (WHATWG Encoding)."""
    try:
        found = codecs.lookup(name).name.replace("-", "_") if name else ""
        bytes(4).decode(found or "no charset")  # LookupError for codecs that are no character sets
    except (LookupError, ValueError):
        return None
    if found in _NO_CHARSETS:
        return None
    return "cp1252" if found in ("iso8859_1", "ascii") else found


def _binary(kind: str, answer: Fetched) -> dict[str, object]:
    size = len(answer.body)
    if answer.complete and size <= BINARY_LIMIT:
        return {"body": base64.b64encode(answer.body).decode(), "encoding": "base64"}
    told = answer.headers.get("content-length", "")
    amount = f"{int(told):,}" if told.isascii() and told.isdigit() and len(told) < 20 else f"more than {size:,}"
    notice = f"binary data ({kind or 'of unknown type'}, {amount} bytes) is not shown"
    return {"body": "", "notice": f"{answer.note}; {notice}" if answer.note else notice}
