"""The turns of a conversation as bytes, joined: what was sent the time before is not put together again."""

from __future__ import annotations

from collections.abc import Callable

from pegasus.models.base import Turn


class Joined:
    """Of the conversation that was asked about last."""

    def __init__(self) -> None:
        self._turns: tuple[Turn, ...] = ()
        self._bytes = bytearray()

    def before_last(self, turns: tuple[Turn, ...], written: Callable[[Turn], bytes]) -> bytearray:
        """All turns but the last, each followed by a comma; the last one is another the next time, often.

        The same Turn objects are the same bytes; whoever writes a turn otherwise than before must `forget`. What is given is
        good until the next question.
        """
        known = len(self._turns)
        if known >= len(turns) or turns[:known] != self._turns:
            known, self._bytes = 0, bytearray()
        if fresh := turns[known:-1]:
            self._bytes += b",".join(map(written, fresh)) + b","
        self._turns = turns[:-1]
        return self._bytes

    def forget(self) -> None:
        """Turns are written otherwise from now on."""
        self._turns, self._bytes = (), bytearray()
