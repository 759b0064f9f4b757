"""The text of a memory file: `# Title`, a line `> Summary: …`, then what is remembered. Pure functions over text.

Files are written by hand too, so nothing is taken for granted: a file without a heading or a summary gets one when
something is added to it, and everything else stays as it was.
"""

from __future__ import annotations

import re
from typing import Final

from pegasus.formatting import truncate

LONGEST_SUMMARY: Final = 160
"""Characters; the index of memory shows every summary to every task."""

_MARK: Final = "> Summary:"
_SUMMARY: Final = re.compile(r"^>\s*summary:[ \t]*(.*)$", re.IGNORECASE | re.MULTILINE)
_HEADING: Final = re.compile(r"^[ \t]*#[ \t]+(.*)$", re.MULTILINE)
_HEAD: Final = 4_000
"""Characters within which the summary of a file stands; a quotation further down is none."""


def summary_of(text: str) -> str:
    """What the file says about itself: its summary, else its heading, else its first words."""
    for found in (_SUMMARY.search(text[:_HEAD]), _HEADING.search(text[:_HEAD])):
        if found and (words := one_line(found[1])):
            return words
    return one_line(text[:_HEAD]) or "(empty)"


def is_summary(lines: str) -> bool:
    """Whether this is one line, and a summary."""
    return lines.count("\n") <= 1 and _SUMMARY.match(lines) is not None


def below_summary(text: str, line: str) -> str:
    """The text with one more quoted line below its summary or, where there is none, at the top."""
    found = _SUMMARY.search(text[:_HEAD])
    if found is None:
        return f"> {line}\n\n{text.lstrip()}"
    end = found.end(1)
    return f"{text[:end].rstrip()}\n> {line}{text[end:]}"


def title_for(name: str) -> str:
    """A heading for the file of this name: `user` → User, `2026-02` stays."""
    stem = name.rpartition("/")[2].removesuffix(".md").replace("_", " ").replace("-", " ").strip()
    plain = name.rpartition("/")[2].removesuffix(".md")
    return plain if plain[:1].isdigit() else stem[:1].upper() + stem[1:]


def appended(text: str, entry: str, summary: str | None, title: str) -> str:
    """The text with the entry as its last block, under a heading and with its summary (trap T14).

    A list goes on without an empty line; everything else stands apart by one. summary: None leaves the one there is.
    """
    text, entry = _with_head(text, summary, title).rstrip(), entry.strip("\n").rstrip()
    between = "\n" if _is_item(text.rpartition("\n")[2]) and _is_item(entry.partition("\n")[0]) else "\n\n"
    return f"{text}{between}{entry}\n"


def _with_head(text: str, summary: str | None, title: str) -> str:
    text = text.replace("\r\n", "\n")
    if not _HEADING.match(text.lstrip()):
        text = f"# {title}\n\n{text.lstrip()}" if text.strip() else f"# {title}\n"
    found = _SUMMARY.search(text[:_HEAD])
    words = one_line(summary) if summary else ""
    if found is not None:
        return f"{text[: found.start()]}{_MARK} {words}{text[found.end() :]}" if words else text
    first, _, rest = text.lstrip().partition("\n")
    head = f"{first}\n\n{_MARK} {words or title}\n"
    return f"{head}\n{rest.lstrip()}" if rest.strip() else head


def _is_item(line: str) -> bool:
    return line.lstrip().startswith(("- ", "* "))


def one_line(text: str) -> str:
    """In one line, and not longer than a summary may be."""
    return truncate(text, LONGEST_SUMMARY)
