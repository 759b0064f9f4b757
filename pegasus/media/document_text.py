r"""The text of documents: of Office and OpenDocument, mails, books, and texts in other character sets than UTF-8 (`document_child`).

What a file is decides its content. Neither its name nor the type that its sender claims counts, since programs send everything as
"application/octet-stream".

    if is_document(head):
        found = await read_document(content, most_characters=20_000)
        found.text       # "[sheet Costs]\nRent | 900 …"
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from pegasus.file_types import is_mail, is_text, recognise
from pegasus.media.reader_process import BY_TASK, PATIENCE, Reading, run_reader
from pegasus.sandbox import ProcessError

_CHILD: Final = Path(__file__).with_name("document_child.py")
_PROBLEMS: Final = {
    "password": "it is protected by a password, so it cannot be read without it",
    "damaged": "it is damaged, or of a form that cannot be read",
    "memory": "it is damaged, or inflates to more than is read",
    "old": "it is of a version of Office before 2007, whose text cannot be read here; saved as .docx, .pptx or PDF it can",
    "unknown": "its kind is not known",
}
"""Problems that the program reports, in words for the model."""
_BINARY: Final = re.compile(rb"[\x00-\x08\x0b\x0e-\x19\x1c-\x1f\x7f]")
"""Control characters that stand in no text of one or two bytes a character."""
_ESCAPED: Final = re.compile(rb"\x1b\$[@B]")
"""Begin of Japanese in a set of seven bits, which would pass for UTF-8."""
_DOCUMENTS: Final = (
    "application/zip",
    "application/epub+zip",
    "application/rtf",
    "application/x-ole-storage",
    "application/vnd.oasis.",
    "application/vnd.openxmlformats-",
)
"""Beginnings of the types that are read."""


def is_document(head: bytes) -> bool:
    """Return whether a file may be read here. head: its first 8 KiB at least.

    A text in UTF-8, or with the byte order mark of UTF-16, is none: it needs no reader.
    """
    head = head[:8_192]
    known = recognise(head)
    if known is not None:
        return known.startswith(_DOCUMENTS)
    if is_text(head):
        return is_mail(head) or head.startswith((b"\xff\xfe\0\0", b"\0\0\xfe\xff")) or _ESCAPED.search(head) is not None
    return not _BINARY.search(head) or _is_wide(head)


def _is_wide(head: bytes) -> bool:
    """Return whether bytes with null characters may be a text of two or four bytes a character without a mark."""
    for codec in ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"):
        try:
            sample = head[:4_096].decode(codec, "strict" if len(head) <= 4_096 else "ignore")
        except ValueError:
            continue
        if sample and sum(c.isalnum() or c.isspace() for c in sample) > len(sample) * 0.6 and sample.count("\0") == 0:
            return True
    return False


async def read_document(
    content: bytes, most_characters: int, charset: str = "", *, patience: float = PATIENCE
) -> Reading:
    """Return the text of a document, at most `most_characters` of it. Raises nothing but Cancelled.

    charset: that the sender names, "" if none. Cancelled: the process is ended first, which takes a moment.
    """
    try:
        hint = "mail" if recognise(content) is None and is_mail(content) else charset
        lines, timed_out = await run_reader(_CHILD, hint, content, most_characters, patience)
    except ProcessError as error:
        return Reading(note=f"it could not be read: {error}")
    text = "".join(str(line.get("text", "")) for line in lines).strip()
    kind = next((str(line["kind"]) for line in lines if "kind" in line), "")
    problem = next((_PROBLEMS.get(str(line["problem"]), "") for line in lines if "problem" in line), "")
    if not problem and timed_out:
        problem = "reading it took too long"
    if not problem and not any("kind" in line for line in lines):
        problem = _PROBLEMS["memory"]
    if not text:
        return Reading(note=problem or "there is no text in it")
    if any(line.get("left_out") for line in lines):
        return Reading(text, kind, f"the first {len(text):,} characters are shown; the rest is left out")
    # Of an archive only the names of its files are known here.
    return Reading(text, kind, f"the rest is left out: {problem}" if problem else BY_TASK if kind == "archive" else "")
