"""Names and texts of memory files. Pure functions.

A memory file is a page of Markdown:

    # User

    > Summary: who the user is, how they like answers

    - Likes: tea

Files are written by hand too, so nothing is taken for granted. A file without a heading or a summary gets one when
something is added to it, and everything else stays as it was.

Names are restricted (`facts/NAME.md`, `episodes/NAME.md`) so that they work on every file system, and two names that
differ only in case or in their Unicode composition are not allowed: on some systems they would be one file.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Final

from pegasus.formatting import truncate
from pegasus.memory.folder import FileState

FOLDER: Final = "memory"
"""The folder of the files and their log, below data/."""
FOLDERS: Final = ("facts", "episodes")
"""The folders inside it."""
MOST: Final = 500
"""Files that memory may hold."""
LONGEST_SUMMARY: Final = 160
"""Characters. The index of memory shows every summary to every task."""

_ALLOWED: Final = (
    f"allowed: {' or '.join(f'{folder}/NAME.md' for folder in FOLDERS)}, NAME of letters, digits, - _ and spaces"
)
"""Rule for paths, as refusals show it."""
_NAME: Final = re.compile(r"[\w][\w .-]{0,79}\.md")
"""Name of a file. Bounded, as file systems allow 255 bytes and letters may take four."""
_PREFIX: Final = "> Summary:"
"""Beginning of the summary line."""
_SUMMARY: Final = re.compile(r"^>\s*summary:[ \t]*(.*)$", re.IGNORECASE | re.MULTILINE)
"""The summary line, in any case."""
_HEADING: Final = re.compile(r"^[ \t]*#[ \t]+(.*)$", re.MULTILINE)
_HEAD: Final = 4_000
"""Characters within which the summary of a file stands; a quotation further down is not one."""


class MemoryRefused(Exception):
    """The request cannot be done. The text says why, and what would work."""


# ------------------------------------------------------------------ names


def find(path: str, files: Sequence[FileState]) -> FileState | None:
    """Return the file of exactly this name, if there is one."""
    return next((file for file in files if file.path == path), None)


def check_new(path: str, files: Sequence[FileState]) -> None:
    """Raise MemoryRefused for a name that is not allowed. The name of a file that exists always is."""
    if find(path, files) is not None:
        return
    folder, _, name = path.partition("/")
    if folder not in FOLDERS or not _NAME.fullmatch(name) or len(name.encode()) > 200:
        raise MemoryRefused(f"{path!r} is no name for a memory file; {_ALLOWED}")
    for file in files:
        if _folded(file.path) == _folded(path):
            raise MemoryRefused(f"there is {file.path} already; use that name")
    if len(files) >= MOST:
        raise MemoryRefused(f"memory holds {len(files)} files already, and may hold {MOST}; add to one of them")


def not_found(path: str, files: Sequence[FileState]) -> MemoryRefused:
    """Return the error for a file that does not exist. It names those that do."""
    names = [file.path for file in files]
    known = f"There are: {', '.join(names[:50])}{' …' if len(names) > 50 else ''}" if names else "It is empty."
    return MemoryRefused(f"there is no {path!r} in memory. {known}")


def _folded(path: str) -> str:
    return unicodedata.normalize("NFKC", path).casefold()


# ------------------------------------------------------------------ texts


def summary_of(text: str) -> str:
    """Return the summary of a file: its summary line, or its heading, or its first words."""
    for found in (_SUMMARY.search(text[:_HEAD]), _HEADING.search(text[:_HEAD])):
        if found and (words := one_line(found[1])):
            return words
    return one_line(text[:_HEAD]) or "(empty)"


def is_summary(lines: str) -> bool:
    """Return whether this is a single line, and a summary."""
    return lines.count("\n") <= 1 and _SUMMARY.match(lines) is not None


def below_summary(text: str, line: str) -> str:
    """Return the text with one more quoted line below its summary or, if it has none, at the top."""
    found = _SUMMARY.search(text[:_HEAD])
    if found is None:
        return f"> {line}\n\n{text.lstrip()}"
    end = found.end(1)
    return f"{text[:end].rstrip()}\n> {line}{text[end:]}"


def title_for(name: str) -> str:
    """Return a heading for the file of this name: `user` becomes User, `2026-02` stays."""
    plain = name.rpartition("/")[2].removesuffix(".md")
    words = plain.replace("_", " ").replace("-", " ").strip()
    return plain if plain[:1].isdigit() else words[:1].upper() + words[1:]


def appended(text: str, entry: str, summary: str | None, title: str) -> str:
    """Return the text with the entry as its last block, below a heading and a summary.

    An item continues a list without an empty line; everything else is set apart by one. summary: replaces the one that
    there is; None keeps that. The entry never ends up above the summary, where models tend to put it by hand.
    """
    text, entry = _with_head(text, summary, title).rstrip(), entry.strip("\n").rstrip()
    between = "\n" if _is_item(text.rpartition("\n")[2]) and _is_item(entry.partition("\n")[0]) else "\n\n"
    return f"{text}{between}{entry}\n"


def _with_head(text: str, summary: str | None, title: str) -> str:
    """Return the text with a heading and a summary."""
    text = text.replace("\r\n", "\n")
    if not _HEADING.match(text.lstrip()):
        text = f"# {title}\n\n{text.lstrip()}" if text.strip() else f"# {title}\n"
    found = _SUMMARY.search(text[:_HEAD])
    words = one_line(summary) if summary else ""
    if found is not None:
        return f"{text[: found.start()]}{_PREFIX} {words}{text[found.end() :]}" if words else text
    first, _, rest = text.lstrip().partition("\n")
    head = f"{first}\n\n{_PREFIX} {words or title}\n"
    return f"{head}\n{rest.lstrip()}" if rest.strip() else head


def _is_item(line: str) -> bool:
    return line.lstrip().startswith(("- ", "* "))


def one_line(text: str) -> str:
    """Return the text on one line, cut to the length of a summary."""
    return truncate(text, LONGEST_SUMMARY)
