"""Differences between two contents of a file, for people: removed and added lines with some around them, bounded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pegasus.formatting import code_fence, cut_text, plural
from pegasus.memory import difference, split_lines

MOST_SHOWN: Final = 60
"""Lines of a difference that are shown."""
MOST_COMPARED: Final = 1 << 20
"""Bytes of a file that is compared with another one."""
_AROUND: Final = 2
"""Lines before and behind a change that are shown."""
_WIDTH: Final = 200
"""Characters that are shown of a line."""


def diff_block(before: bytes | None, after: bytes | None) -> str:
    """Return the difference between two contents of a file as a block of Markdown; None: there is no file.

    The block's fence is longer than any in the file, so that nothing in it ends the block.
    """
    old, new = _text_of(before), _text_of(after)
    if old is None or new is None:
        return f"(no text to compare: {_size(before)} before, {_size(after)} now)"
    lines = _lines(split_lines(old), split_lines(new))
    left = len(lines) - MOST_SHOWN
    if left > 0:
        lines = [*lines[:MOST_SHOWN], f"… {plural(left, 'more line')}"]
    text = "\n".join(lines)
    fence = code_fence(text)
    return f"{fence}diff\n{text}\n{fence}"


def _text_of(data: bytes | None) -> str | None:
    """Return the content as text, None if it is none or too much."""
    if data is None:
        return ""
    try:
        return data.decode() if len(data) <= MOST_COMPARED and b"\0" not in data else None
    except UnicodeDecodeError:
        return None


def _size(data: bytes | None) -> str:
    return "nothing" if data is None else plural(len(data), "byte")


def _lines(old: Sequence[str], new: Sequence[str]) -> list[str]:
    """Return the lines of a difference, with a heading before each part."""
    lines: list[str] = []
    shown, growth = 0, 0
    for block in difference(old, new):
        first = max(shown, block.start - _AROUND)
        if first > shown or not lines:
            _add(lines, " ", old[shown : min(shown + _AROUND, first)] if lines else [])
            lines.append(f"@@ -{first + 1} +{first + 1 + growth} @@")
        _add(lines, " ", old[first : block.start])
        _add(lines, "-", old[block.start : block.end])
        _add(lines, "+", block.lines)
        shown, growth = block.end, growth + block.growth
    _add(lines, " ", old[shown : shown + _AROUND] if lines else [])
    return lines


def _add(lines: list[str], mark: str, texts: Sequence[str]) -> None:
    """Add lines with a mark in front, cut, and without what a terminal would obey."""
    for text in texts:
        plain = "".join(
            each if each.isprintable() or each == "\t" else f"\\x{ord(each):02x}" for each in text.rstrip("\r\n")
        )
        lines.append(mark + cut_text(plain, _WIDTH))
