"""Text told as it comes, while the whole of the answer is not there yet."""

from __future__ import annotations

from collections.abc import Callable

from pegasus.models.encoding import mend
from pegasus.observe import get_logger

_log = get_logger("models")

Tell = Callable[[str], None]


def nobody(piece: str) -> None:
    """Who is told where nobody wants to know."""


class Teller:
    """Tells one listener the pieces of one call, whatever number of attempts that takes.

    listener: as `ModelRequest.on_text`. What it raises is logged, and it is told nothing more; the call goes on.
    """

    def __init__(self, listener: Callable[[str | None], None]) -> None:
        self._listener = listener
        self._half = ""  # the first half of a character whose second half comes with the next piece
        self._told = False
        self._deaf = False

    def piece(self, text: str) -> None:
        """Some more of the answer's text."""
        text = self._half + text
        self._half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        text = text[: len(text) - len(self._half)]
        if text:
            self._told = True
            self._say(mend(text))

    def end(self) -> None:
        """The answer is whole."""
        if self._half:
            self._half = ""
            self._say("\N{REPLACEMENT CHARACTER}")

    def void(self) -> None:
        """What was told so far will not be part of the answer."""
        self._half = ""
        if self._told:
            self._told = False
            self._say(None)

    def _say(self, piece: str | None) -> None:
        if self._deaf:
            return
        try:
            self._listener(piece)
        except Exception as error:
            self._deaf = True
            _log.exception("who listens to the model's words failed; it is told no more", error=error)
