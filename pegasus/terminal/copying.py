"""The command /copy: an answer goes into the clipboard as it was written, without the layout of the screen.

The terminal itself is asked to do it (OSC 52), so it works over SSH, too. A terminal that does not know the sequence ignores it, and
nothing tells the chat so; the notice says what to set.
"""

from __future__ import annotations

from base64 import b64encode
from collections import deque
from typing import Final

import attrs

from pegasus.formatting import quote
from pegasus.intake import COPY

KEPT: Final = 20
"""CopyableAnswers that can be copied, the newest ones."""
LONGEST: Final = 74_000
"""Bytes that are copied: terminals take about 100,000 in base64."""


@attrs.frozen
class Copied:
    """Result of a /copy: what the person is told, and what the terminal is sent."""

    notice: str
    """Text for the person."""
    sequence: str = ""
    """Text that asks the terminal to copy; "" if there is nothing to copy."""


@attrs.define
class CopyableAnswers:
    """The last answers of a chat."""

    _texts: deque[str] = attrs.field(factory=lambda: deque(maxlen=KEPT))
    """Their texts as they were written, oldest first."""

    def add(self, text: str) -> None:
        """Keep an answer."""
        if text.strip():
            self._texts.append(text)

    def read(self, typed: str) -> Copied | None:
        """Return the result if the typed line is a /copy, else None. /copy 1 is the newest answer, /copy 2 the one before it."""
        command, *words = typed.split() or [""]
        if command.lower() != COPY:
            return None
        if not self._texts:
            return Copied("There is no answer to copy yet.")
        wanted = " ".join(words) or "1"
        if wanted not in map(str, range(1, len(self._texts) + 1)):
            return Copied(f"{COPY}: found {quote(wanted, 40)}; allowed: a number from 1 to {len(self._texts)}.")
        text = self._texts[-int(wanted)]
        content = text.encode("utf-8", "replace")
        if len(content) > LONGEST:
            return Copied(f"Not copied: {len(content):,} bytes; terminals take {LONGEST:,} at most.")
        notice = f"Copied: {len(text):,} characters. (In tmux this needs set-clipboard on.)"
        return Copied(notice, f"\x1b]52;c;{b64encode(content).decode('ascii')}\x07")
