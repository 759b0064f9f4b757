"""Long pasted texts on the prompt: each is one character of the line, shown as `[pasted 200 lines]`, and sent whole.

A character can be passed, deleted and cut like any other, so that no half of a mark is ever left. The characters are from a range
that no text uses (the end of Unicode's last private area).
"""

from __future__ import annotations

from typing import Final

import attrs

MOST_LINES: Final = 10
"""Lines of a pasted text that is shown as it is; a longer one would push the conversation out of sight."""
MOST_CHARACTERS: Final = 1_000
"""Characters of such a text."""
_KEPT: Final = 64
"""Pasted texts that are remembered: a line that was sent can be brought back by undo and yank."""
_FIRST: Final = 0x10FF00


@attrs.define
class PastedTexts:
    r"""The long texts that were pasted into a chat, each by the character that stands for it.

    Example::

        mark = pasted.fold("line\n" * 200)
        pasted.show(f"see {mark}")    # "see [pasted 200 lines]"
        pasted.unfold(f"see {mark}")  # the whole text
    """

    _texts: dict[int, str] = attrs.field(factory=dict)
    """By the code of the character, oldest first."""
    _count: int = 0
    """Texts that were folded so far."""

    def fold(self, text: str) -> str:
        """Return what is put on the line for a pasted text: the text itself if it is short."""
        if text.count("\n") < MOST_LINES and len(text) <= MOST_CHARACTERS:
            return text
        code = _FIRST + self._count % _KEPT
        self._count += 1
        self._texts[code] = text
        return chr(code)

    def unfold(self, line: str) -> str:
        """Return a line with the whole texts."""
        return line.translate(self._texts) if self._texts else line

    def show(self, line: str) -> str:
        """Return a line with a few words in place of each text."""
        return line.translate({code: _words(text) for code, text in self._texts.items()}) if self._texts else line


def _words(text: str) -> str:
    """Return the words that stand for a text."""
    lines = text.count("\n") + (not text.endswith("\n"))
    return f"[pasted {lines:,} lines]" if lines > MOST_LINES else f"[pasted {len(text):,} characters]"
