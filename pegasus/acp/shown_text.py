"""`ShownText`: replies that appear while they are written, for a client that can only append.

A draft is the whole text so far, and may change; a chunk cannot be taken back. So of a draft that continues what is shown, the rest
is shown; of one that does not, nothing is, and the reply comes whole, as a message of its own.
"""

from __future__ import annotations

from typing import TypeAlias

Chunk: TypeAlias = tuple[str, str]
"""Id of the message that a text belongs to, and the text."""


class ShownText:
    """The part of the reply being written that the editor has been shown."""

    def __init__(self, prefix: str) -> None:
        """prefix: of the ids of messages."""
        self._prefix = prefix
        self._count = 0
        self._shown = ""
        """Text of the present message that was shown."""

    def draft(self, text: str) -> Chunk | None:
        """Return what is new in a draft, None for nothing that could be appended."""
        if not text.startswith(self._shown) or text == self._shown:
            return None
        return self._append(text)

    def reply(self, text: str) -> Chunk | None:
        """Return what is new in a reply, None if all of it is shown. The next text belongs to another message."""
        if text.startswith(self._shown):
            chunk = self._append(text) if text != self._shown else None
            self.end()
            return chunk
        if self._shown.startswith(text):  # one of several replies that were drafted as paragraphs of one text
            self._shown = self._shown[len(text) :].lstrip("\n")
            return None
        self.end()
        chunk = self._append(text)
        self.end()
        return chunk

    def end(self) -> None:
        """Note that the present message gets no more text."""
        if self._shown:
            self._count += 1
            self._shown = ""

    def _append(self, text: str) -> Chunk:
        new, self._shown = text[len(self._shown) :], text
        return f"{self._prefix}-{self._count}", new
