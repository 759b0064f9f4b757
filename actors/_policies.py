"""Policies of actors and supervisors: frozen values that are checked when they are built.

A mistake in a specification (a negative time, a name twice, a backoff that makes the intensity pointless) raises
ValueError or TypeError where the value is built, and the message says what was found and what is allowed. After that,
the rest of the package takes the values as correct.

Words and defaults are those of Erlang/OTP's `supervisor`. Mailbox and Backoff have no counterpart there.
"""

from __future__ import annotations

import math
from enum import Enum
from random import Random
from types import UnionType

import attrs


class Restart(Enum):
    """When a child that ended by itself is started again. One that was stopped on request has not ended by itself.

    `Child("worker", work, restart=Restart.TRANSIENT)` is restarted after a crash, and may return when its work is done.
    """

    PERMANENT = "permanent"
    """Always."""
    TRANSIENT = "transient"
    """After an abnormal end: a crash, or a kill. A nested supervisor that gave up has ended normally in this sense."""
    TEMPORARY = "temporary"
    """Never. Its spec is forgotten as soon as it is down, also when it was stopped together with siblings."""


class Strategy(Enum):
    """Siblings that are restarted together with a child that ended.

    `open_supervisor([database, cache, server], strategy=Strategy.REST_FOR_ONE)` restarts the cache and the server when the
    database has crashed, and only the server when the server has.
    """

    ONE_FOR_ONE = "one_for_one"
    """None: the children do not depend on each other."""
    ONE_FOR_ALL = "one_for_all"
    """All: each depends on each."""
    REST_FOR_ONE = "rest_for_one"
    """Those that were started after it: later children depend on earlier ones."""


class AutoShutdown(Enum):
    """Condition under which a supervisor ends normally because significant children have ended by themselves."""

    NEVER = "never"
    ANY_SIGNIFICANT = "any_significant"
    """When the first of them has ended and is not restarted."""
    ALL_SIGNIFICANT = "all_significant"
    """When none of them runs or waits for a restart."""


class Overflow(Enum):
    """Behaviour of a full mailbox. There is no mailbox without a limit: a slow actor would fill the memory unnoticed."""

    BLOCK = "block"
    """The sender waits for room. Senders get room in the order in which they came."""
    REJECT = "reject"
    """The sender gets MailboxFull."""
    DROP_OLDEST = "drop_oldest"
    """The oldest message in the mailbox is dropped."""
    DROP_NEWEST = "drop_newest"
    """The message that was just sent is dropped."""


# Messages of these three read "Mailbox.capacity is 0; it must be 1 or more".


def invalid(what: str, found: object, allowed: str) -> ValueError:
    """Return the error for a value that is not allowed."""
    return ValueError(f"{what} is {found!r}; it must be {allowed}")


def check_type(what: str, found: object, expected: type | UnionType, allowed: str) -> None:
    """Raise TypeError unless the value is of this type. A bool is no number."""
    if not isinstance(found, expected) or isinstance(found, bool):
        raise TypeError(f"{what} is {found!r}; it must be {allowed}")


def check_seconds(what: str, found: object) -> None:
    """Raise TypeError unless the value is a number."""
    check_type(what, found, int | float, "a number of seconds")


@attrs.frozen
class Mailbox:
    """Size of an actor's mailbox, and its behaviour when it is full.

    `Mailbox(1, Overflow.DROP_OLDEST)` keeps the newest message only.
    """

    capacity: int = 64
    """Number of messages that may wait, 1 or more. The message being handled is not counted."""
    overflow: Overflow = Overflow.BLOCK

    def __attrs_post_init__(self) -> None:
        check_type("Mailbox.capacity", self.capacity, int, "a whole number, 1 or more")
        if self.capacity < 1:
            raise invalid("Mailbox.capacity", self.capacity, "1 or more")
        if not isinstance(self.overflow, Overflow):
            raise invalid("Mailbox.overflow", self.overflow, "an Overflow")


@attrs.frozen
class Intensity:
    """Restart intensity: more than `restarts` restarts in `period` seconds, and the supervisor gives up.

    The limit is one for all children of a supervisor. The defaults are OTP's.
    """

    restarts: int = 1
    """0 or more."""
    period: float = 5.0
    """Seconds. A restart that was exactly so long ago still counts."""

    def __attrs_post_init__(self) -> None:
        check_type("Intensity.restarts", self.restarts, int, "a whole number, 0 or more")
        check_seconds("Intensity.period", self.period)
        if self.restarts < 0:
            raise invalid("Intensity.restarts", self.restarts, "0 or more")
        if not 0 < self.period < math.inf:
            raise invalid("Intensity.period", self.period, "a positive number of seconds")


@attrs.frozen
class Backoff:
    """Delay before a restart, growing with each restart in a row. All times are in seconds.

    `Backoff(first=1, limit=30)` waits about 1, 2, 4, 8, 16, 30, 30 … seconds.
    """

    first: float
    """Delay before the first restart."""
    limit: float
    """Longest delay, before jitter."""
    factor: float = 2.0
    """Each delay is so many times the one before, 1 or more."""
    jitter: float = 0.2
    """Each delay is varied by up to ± this part of itself, so that many children do not return at the same moment."""
    reset_after: float = attrs.field()
    """A child that was up for so long begins again at `first`. Default: `limit`."""

    @reset_after.default
    def _limit(self) -> float:
        return self.limit

    def __attrs_post_init__(self) -> None:
        for what in ("first", "limit", "factor", "jitter", "reset_after"):
            check_type(f"Backoff.{what}", getattr(self, what), int | float, "a number")
        if not 0 < self.first < math.inf:
            raise invalid("Backoff.first", self.first, "a positive number of seconds")
        if not self.first <= self.limit < math.inf:
            raise invalid("Backoff.limit", self.limit, f"at least first ({self.first}) and finite")
        if not 1 <= self.factor < math.inf:
            raise invalid("Backoff.factor", self.factor, "1 or more")
        if not 0 <= self.jitter < 1:
            raise invalid("Backoff.jitter", self.jitter, "at least 0 and below 1")
        if not self.reset_after > 0:
            raise invalid("Backoff.reset_after", self.reset_after, "a positive number of seconds")

    def nominal(self, count: int) -> float:
        """Return the seconds before the `count`-th restart in a row (1 is the first), without jitter."""
        steps = count - 1
        # Compared as logarithms, because the power overflows for a large count.
        if steps * math.log(self.factor) >= math.log(self.limit / self.first):
            return self.limit
        return self.first * self.factor**steps

    def delay(self, count: int, random: Random) -> float:
        """Return the seconds before the `count`-th restart in a row, varied by one number drawn from `random`."""
        return self.nominal(count) * random.uniform(1 - self.jitter, 1 + self.jitter)
