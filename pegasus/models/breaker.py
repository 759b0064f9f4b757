"""A circuit breaker: a model that has failed several times in a row is left alone for a while (closed, open, half-open).

closed: calls pass. open: none does until the pause is over. half-open: one call is let through to find out, the others are
not; if it succeeds the breaker closes, if it fails it opens for twice as long, up to LONGEST.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import trio

AFTER: Final = 3
"""Failures in a row that open it. Each is a whole call, with its own retries."""
PAUSE: Final = 30.0
LONGEST: Final = 600.0
"""Seconds."""


class BreakerStatus(NamedTuple):
    """state: "closed", "open" or "half-open". failures: in a row. seconds: until it is tried again. why: the last failure."""

    state: str
    failures: int
    seconds: float
    why: str


class Breaker:
    """Of one model, for all who call it. Nothing in it waits; time is Trio's."""

    def __init__(self, after: int = AFTER, pause: float = PAUSE) -> None:
        self._after = after
        self._first_pause = self._pause = pause
        self._failures = 0
        self._why = ""
        self._open_until: float | None = None
        self._probing = False

    @property
    def state(self) -> str:
        """As in BreakerStatus."""
        if self._open_until is None:
            return "closed"
        return "half-open" if self._probing or trio.current_time() >= self._open_until else "open"

    @property
    def status(self) -> BreakerStatus:
        """For reports."""
        seconds = 0.0 if self._open_until is None else max(0.0, self._open_until - trio.current_time())
        return BreakerStatus(self.state, self._failures, seconds, self._why)

    @property
    def lets_through(self) -> bool:
        """Whether a call would be let through now."""
        return self._open_until is None or (not self._probing and trio.current_time() >= self._open_until)

    def begin_probe(self) -> bool:
        """Say that a call begins; True if it is the one that finds out. Who got True says how it ended, or `give_up_probe`."""
        if self._open_until is None or not self.lets_through:
            return False
        self._probing = True
        return True

    def give_up_probe(self) -> None:
        """The probe ended without telling anything (it was cancelled): the next call is one."""
        self._probing = False

    def succeeded(self) -> None:
        """The model has answered, also to a call that was begun before it opened."""
        self._failures, self._why, self._pause = 0, "", self._first_pause
        self._open_until, self._probing = None, False

    def failed(self, why: str, *, probe: bool = False) -> None:
        """A call has failed by the model's fault. probe: it was the one that was to find out."""
        self._failures += 1
        self._why = why
        if probe:
            self._probing = False
            self._pause = min(2 * self._pause, max(LONGEST, self._first_pause))
            self._open_until = trio.current_time() + self._pause
        elif self._open_until is None and self._failures >= self._after:
            self._open_until = trio.current_time() + self._pause
