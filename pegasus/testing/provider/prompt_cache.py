"""Model of a provider's prompt cache: how much of each call stands as it stood in the call before, from the first byte on.

Providers charge a tenth for input that their cache has. A conversation whose beginning changes from call to call (a clock in the
system prompt, another order of tools) loses that, and no other test would notice. So long simulations send every request through
this.
"""

from __future__ import annotations

from typing import Final

_MARKERS: Final = (b',"cache_control":{"type":"ephemeral"}', b',"cache_control":{"type":"ephemeral","ttl":"1h"}')
"""Markers of Anthropic's wire format. They move from call to call and are not part of the prompt."""


class PromptCache:
    """Cache for the calls of one conversation, in order.

    Providers count in blocks of tokens; here every byte counts, which is near enough for a share.

    Example::

        cache = PromptCache()
        for request in requests:
            cache.send(wire.body(request), request.turns[0].text)
        assert cache.share > 0.95
    """

    def __init__(self) -> None:
        self.sent = 0
        """Bytes of all bodies. As shares of a whole, bytes stand for tokens."""
        self.cached = 0
        """Bytes that the cache had."""
        self.fresh = 0
        """Calls that began a session: the first one, after /new, after a compaction. Nothing of them can be cached, so they do not
        count
        in `sent`."""
        self._before = b""
        """Body of the call before."""
        self._opening: str | None = None
        """Text of the session's first turn."""

    def send(self, body: bytes, opening: str) -> None:
        """Note a call. opening: text of its first turn, which may grow at its end; with another text a session begins."""
        for marker in _MARKERS:
            body = body.replace(marker, b"")
        if self._opening is None or not opening.startswith(self._opening):
            self.fresh += 1
        else:
            self.sent += len(body)
            self.cached += common_prefix(self._before, body)
        self._before, self._opening = body, opening

    @property
    def share(self) -> float:
        """Share of the input that comes from the cache, 0 to 1."""
        return self.cached / self.sent if self.sent else 0.0


def common_prefix(first: bytes, second: bytes) -> int:
    """Return how many bytes at the beginning are equal. Compares slices in a binary search: bodies have megabytes."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
