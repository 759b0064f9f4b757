"""Faults of servers, and the limits that keep one of them from harming the others.

A server shares the process's event loop with everybody's conversations. What it sends unasked (notifications, requests of its own,
answers to nothing) is therefore counted: who sends more than people's servers ever do is disconnected, and connected again later,
with growing pauses. What it was asked for is bounded in size only.
"""

from __future__ import annotations

from typing import Final

import attrs
import trio

from pegasus.formatting import first_cause

LARGEST_MESSAGE: Final = 8 << 20
"""Bytes of one message. A picture of a page has about one million."""
MOST_UNASKED: Final = 1_000
"""Messages that a server may send unasked at once."""
UNASKED_RATE: Final = 50.0
"""Messages a second that it may send unasked for ever."""
MOST_BYTES_UNASKED: Final = LARGEST_MESSAGE
"""Bytes that a server may send unasked at once."""
BYTES_RATE: Final = 256 << 10
"""Bytes a second that it may send unasked for ever."""
MOST_GARBAGE: Final = 50
"""Lines that are no messages, after which a server is disconnected. Some print a greeting."""


class ServerDown(Exception):
    """A server that cannot be used, for an expected reason. The text is a sentence for people without secrets.

    Example::

        raise ServerDown("nothing answers at its address")
        raise ServerDown("it refused: no such version", is_refusal=True)   # the older transport is tried then
    """

    def __init__(self, reason: str, *, is_refusal: bool = False) -> None:
        super().__init__(reason)
        self.is_refusal = is_refusal
        """True if it was reached and has answered that it does not speak so."""


def first_fault(error: Exception) -> BaseException:
    """Return what has ended a connection, out of the groups of nurseries: a ServerDown says more than what follows from it."""
    downs = error.split(ServerDown)[0] if isinstance(error, ExceptionGroup) else None
    return first_cause(downs or error)


@attrs.define(eq=False, repr=False)
class FloodGuard:
    """Counts what one connection sends unasked.

    Example: `guard.expect(request.id)` for each request, and `guard.count(len(line), answer.id)` for each message.
    """

    _messages: float = MOST_UNASKED
    """Messages that it may send now."""
    _bytes: float = MOST_BYTES_UNASKED
    """Bytes that it may send now."""
    _at: float = attrs.field(factory=trio.current_time)
    """Time of the last message."""
    _asked: set[str | int] = attrs.field(factory=set)
    """Ids of requests without an answer yet."""

    def expect(self, id: str | int) -> None:
        """Note a request, whose first answer is not counted."""
        self._asked.add(id)

    def count(self, size: int, answers: str | int | None = None) -> None:
        """Count a message of so many bytes. Raises ServerDown if there are too many. answers: id of the request that it answers."""
        if answers in self._asked:
            self._asked.remove(answers)
            return
        now = trio.current_time()
        passed, self._at = now - self._at, now
        self._messages = min(MOST_UNASKED, self._messages + passed * UNASKED_RATE) - 1
        self._bytes = min(MOST_BYTES_UNASKED, self._bytes + passed * BYTES_RATE) - size
        if self._messages < 0 or self._bytes < 0:
            raise ServerDown("it sent too many messages that nobody had asked for")
