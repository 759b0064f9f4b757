"""What a provider could take from its cache of prompts: all that stands the same, from its first byte on, as in the call before."""

from __future__ import annotations

from typing import Final

_MARKER: Final = b',"cache_control":{"type":"ephemeral"}'
"""Of Anthropic's wire format: it moves from call to call, and is no part of the prompt."""


class PromptCache:
    """The calls of one conversation, in order.

    sent, cached: bytes of bodies, and those of them that were there before; as parts of a whole they stand for tokens. fresh: calls
    that begin a session (the first, after /new, after a compaction), of which nothing can be cached; they are not counted.
    """

    def __init__(self) -> None:
        self.sent = 0
        self.cached = 0
        self.fresh = 0
        self._before = b""
        self._opening: str | None = None

    def send(self, body: bytes, opening: str) -> None:
        """One call. opening: text of its first turn, which may grow at its end; with another one a session begins."""
        body = body.replace(_MARKER, b"")
        if self._opening is None or not opening.startswith(self._opening):
            self.fresh += 1
        else:
            self.sent += len(body)
            self.cached += common_prefix(self._before, body)
        self._before, self._opening = body, opening

    @property
    def share(self) -> float:
        """The part that comes from the cache, 0 to 1."""
        return self.cached / self.sent if self.sent else 0.0


def common_prefix(one: bytes, other: bytes) -> int:
    """How many bytes at their beginning are the same."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
