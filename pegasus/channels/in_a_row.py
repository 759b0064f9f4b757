"""`InARow`: counts what happens again and again in a conversation, to end what would go on for ever."""

from __future__ import annotations

from typing import Final

import trio

PAUSE: Final = 3600.0
"""Seconds after which a count begins anew."""
MOST_CHATS: Final = 1_000
"""Conversations that are counted. The one that was counted the longest time ago is forgotten first."""


class InARow:
    """Counts events of each conversation until something else happens there, or an hour is over.

    Example::

        bots = InARow(most=5)
        bots.count("-1001")     # True five times, then False
        bots.reset("-1001")     # a person has written
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._counts: dict[str, tuple[int, float]] = {}
        """By channelId: the count, and Trio's clock at the first event."""

    def count(self, channel_id: str) -> bool:
        """Count an event; return whether it is one of the first `most`."""
        now = trio.current_time()
        count, since = self._counts.pop(channel_id, (0, now))
        if now - since > PAUSE:
            count, since = 0, now
        self._counts[channel_id] = (count + 1, since)
        while len(self._counts) > MOST_CHATS:
            del self._counts[next(iter(self._counts))]
        return count < self._most

    def reset(self, channel_id: str) -> None:
        """Begin anew for this conversation."""
        self._counts.pop(channel_id, None)
