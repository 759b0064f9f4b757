"""Streamed answers: the relay between a provider and its listener, and the pieces of an answer that was not streamed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import attrs

from pegasus.models.base import CallBegun, CallPiece, ModelResponse, OnPiece, ReasoningPiece, StreamPiece, TextPiece
from pegasus.models.formats import encode_json
from pegasus.models.json_text import join_surrogates
from pegasus.observe import get_logger

_log = get_logger("models")

_WrittenPiece: TypeAlias = TextPiece | ReasoningPiece | CallPiece
"""Pieces that have characters."""


def pieces_of(response: ModelResponse) -> Iterator[StreamPiece]:
    """Yield an answer as whole pieces: the reasoning, the text, then each call. Empty ones are left out."""
    if response.reasoning:
        yield ReasoningPiece(response.reasoning)
    if response.text:
        yield TextPiece(response.text)
    for number, call in enumerate(response.calls):
        yield CallBegun(number, call.name)
        if call.arguments:
            yield CallPiece(number, encode_json(call.arguments).decode())


class PieceRelay:
    """Relay of a streamed answer from a provider to the listener of a request. There is one for each call, whatever it takes.

    Every attempt of a call, and every model of a fallback chain, sends its pieces here, or None to retract what this attempt has sent.
    The relay makes of that what `ModelRequest.on_piece` promises:

    * None is only forwarded if there is something to retract.
    * A character outside the basic plane that a provider cut into two surrogates is forwarded as one. Text, reasoning and each call
      are joined apart, since their pieces may alternate.
    * Empty pieces are not forwarded.
    * A listener that raises is logged and gets nothing more; the call goes on.

    It also counts characters, retracted ones too: an answer that broke off has to be paid all the same. And it keeps the longest text
    of an attempt that failed, for `ModelError.partial`.

        relay = PieceRelay(print)
        relay(TextPiece("Hel")); relay(None); relay(TextPiece("Hello")); relay.finish()
    """

    def __init__(self, listener: OnPiece | None = None) -> None:
        self._listener = listener
        self._halves: dict[type[_WrittenPiece] | int, _WrittenPiece] = {}
        """First surrogates of characters whose second one is still to come, by kind of piece or number of the call."""
        self._has_sent = False
        self._texts: list[str] = []
        """Text of this attempt."""
        self._longest_text = ""
        """The longest text of the attempts that failed."""
        self.characters = 0
        """Characters of text, reasoning and arguments received so far, over all attempts."""

    def __call__(self, piece: StreamPiece | None) -> None:
        """Take a piece, or None: what came so far will not be part of the answer."""
        if piece is None:
            self._retract()
        elif isinstance(piece, CallBegun):
            self._send(piece)
        else:
            content = _content(piece)
            self.characters += len(content)
            if isinstance(piece, TextPiece):
                self._texts.append(content)
            whole = piece if content.isascii() and not self._halves else self._join_halves(piece)
            if _content(whole):
                self._send(whole)

    @property
    def longest_text(self) -> str:
        """The longest text of all attempts, the present one included."""
        return max(self._longest_text, join_surrogates("".join(self._texts)), key=len)

    def finish(self) -> None:
        """Note that the answer is complete. Half a character that is left over is forwarded as U+FFFD."""
        halves, self._halves = self._halves, {}
        for piece in halves.values():
            self._send(_with_content(piece, "\N{REPLACEMENT CHARACTER}"))

    def _retract(self) -> None:
        """Forget the pieces of this attempt."""
        self._longest_text = self.longest_text
        self._texts.clear()
        self._halves.clear()
        if self._has_sent:
            self._has_sent = False
            self._send_on(None)

    def _join_halves(self, piece: _WrittenPiece) -> _WrittenPiece:
        """Return the piece with the half character before it, and without one at its end."""
        key = piece.number if isinstance(piece, CallPiece) else type(piece)
        half = self._halves.pop(key, None)
        content = (_content(half) if half else "") + _content(piece)
        if "\ud800" <= content[-1:] <= "\udbff":
            self._halves[key] = _with_content(piece, content[-1])
            content = content[:-1]
        return _with_content(piece, join_surrogates(content))

    def _send(self, piece: StreamPiece) -> None:
        self._has_sent = True
        self._send_on(piece)

    def _send_on(self, piece: StreamPiece | None) -> None:
        if self._listener is None:
            return
        try:
            self._listener(piece)
        except Exception as error:
            self._listener = None
            _log.exception("a listener of a streamed answer failed; streaming to it has ended", error=error)


def _content(piece: _WrittenPiece) -> str:
    return piece.json if isinstance(piece, CallPiece) else piece.text


def _with_content(piece: _WrittenPiece, content: str) -> _WrittenPiece:
    if isinstance(piece, CallPiece):
        return attrs.evolve(piece, json=content)
    return attrs.evolve(piece, text=content)
