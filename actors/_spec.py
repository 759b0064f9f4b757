"""What a supervision tree is made of: frozen values that are checked when they are built."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable
from enum import Enum
from random import Random
from types import UnionType
from typing import TYPE_CHECKING, Generic, Never, TypeVar, TypeVarTuple

import attrs

if TYPE_CHECKING:
    from actors._inbox import Inbox

M = TypeVar("M", contravariant=True)
Args = TypeVarTuple("Args")


class Restart(Enum):
    """When a child that ended by itself is started again: always, only after an abnormal end, or never."""

    PERMANENT = "permanent"
    TRANSIENT = "transient"
    TEMPORARY = "temporary"


class Strategy(Enum):
    """Who is restarted together with a child that ended: nobody, all siblings, or those started after it."""

    ONE_FOR_ONE = "one_for_one"
    ONE_FOR_ALL = "one_for_all"
    REST_FOR_ONE = "rest_for_one"


class AutoShutdown(Enum):
    """Whether a supervisor ends by itself when significant children have ended by themselves."""

    NEVER = "never"
    ANY_SIGNIFICANT = "any_significant"
    ALL_SIGNIFICANT = "all_significant"


class Overflow(Enum):
    """What a full mailbox does: let the sender wait, refuse it, or drop the oldest or the newest message."""

    BLOCK = "block"
    REJECT = "reject"
    DROP_OLDEST = "drop_oldest"
    DROP_NEWEST = "drop_newest"


def _refuse(what: str, found: object, allowed: str) -> ValueError:
    return ValueError(f"{what} is {found!r}; it must be {allowed}")


def _check_kind(what: str, found: object, kind: type | UnionType, allowed: str) -> None:
    if not isinstance(found, kind) or isinstance(found, bool):
        raise TypeError(f"{what} is {found!r}; it must be {allowed}")


def _check_seconds(what: str, found: object) -> None:
    _check_kind(what, found, int | float, "a number of seconds")


@attrs.frozen
class Mailbox:
    """How many messages may wait (at least 1), and what happens to one more. ValueError if that makes no sense."""

    capacity: int = 64
    overflow: Overflow = Overflow.BLOCK

    def __attrs_post_init__(self) -> None:
        _check_kind("Mailbox.capacity", self.capacity, int, "a whole number, 1 or more")
        if self.capacity < 1:
            raise _refuse("Mailbox.capacity", self.capacity, "1 or more")
        if not isinstance(self.overflow, Overflow):
            raise _refuse("Mailbox.overflow", self.overflow, "an Overflow")


@attrs.frozen
class Intensity:
    """How many restarts within how many seconds are too many: more than `restarts` in `period` (OTP's defaults)."""

    restarts: int = 1
    period: float = 5.0

    def __attrs_post_init__(self) -> None:
        _check_kind("Intensity.restarts", self.restarts, int, "a whole number, 0 or more")
        _check_seconds("Intensity.period", self.period)
        if self.restarts < 0:
            raise _refuse("Intensity.restarts", self.restarts, "0 or more")
        if not 0 < self.period < math.inf:
            raise _refuse("Intensity.period", self.period, "a positive number of seconds")


@attrs.frozen
class Backoff:
    """How long to wait before the n-th restart in a row, in seconds.

    first: before the first; each further one is `factor` times the one before, at most `limit`; each is then varied by
    up to ± `jitter` of itself. reset_after: a child that was up so long starts again at `first` (default: `limit`).
    """

    first: float
    limit: float
    factor: float = 2.0
    jitter: float = 0.2
    reset_after: float = attrs.field()

    @reset_after.default
    def _limit(self) -> float:
        return self.limit

    def __attrs_post_init__(self) -> None:
        for what in ("first", "limit", "factor", "jitter", "reset_after"):
            _check_kind(f"Backoff.{what}", getattr(self, what), int | float, "a number")
        if not 0 < self.first < math.inf:
            raise _refuse("Backoff.first", self.first, "a positive number of seconds")
        if not self.first <= self.limit < math.inf:
            raise _refuse("Backoff.limit", self.limit, f"at least first ({self.first}) and finite")
        if not 1 <= self.factor < math.inf:
            raise _refuse("Backoff.factor", self.factor, "1 or more")
        if not 0 <= self.jitter < 1:
            raise _refuse("Backoff.jitter", self.jitter, "at least 0 and below 1")
        if not self.reset_after > 0:
            raise _refuse("Backoff.reset_after", self.reset_after, "a positive number of seconds")

    def nominal(self, count: int) -> float:
        """Seconds before the `count`-th restart in a row (1 is the first), without jitter."""
        steps = count - 1
        if steps * math.log(self.factor) >= math.log(self.limit / self.first):  # so that the power cannot overflow
            return self.limit
        return self.first * self.factor**steps

    def delay(self, count: int, random: Random) -> float:
        """Seconds before the `count`-th restart in a row, a pure function of it and of what `random` gives."""
        return self.nominal(count) * random.uniform(1 - self.jitter, 1 + self.jitter)


@attrs.frozen(eq=False, init=False)
class Child(Generic[M]):
    """How to start, restart and stop one actor; `run(inbox, *args)` is called anew for every start.

    name: unique among its siblings, without "/". shutdown: seconds it has to end when told to, then it is cancelled; 0
    cancels at once, math.inf waits; the default is 5, for a nested supervisor math.inf. significant: its end may end
    its supervisor (AutoShutdown). ValueError or TypeError, with the reason, when that makes no sense.
    """

    name: str
    run: Callable[..., Awaitable[object]]
    args: tuple[object, ...]
    restart: Restart
    shutdown: float
    backoff: Backoff | None
    mailbox: Mailbox
    significant: bool

    def __init__(
        self,
        name: str,
        run: Callable[[Inbox[M], *Args], Awaitable[object]],
        *args: *Args,
        restart: Restart = Restart.PERMANENT,
        shutdown: float | None = None,
        backoff: Backoff | None = None,
        mailbox: Mailbox = Mailbox(),
        significant: bool = False,
    ) -> None:
        if shutdown is None:
            shutdown = math.inf if isinstance(run, Subtree) else 5.0
        self.__attrs_init__(name, run, args, restart, shutdown, backoff, mailbox, significant)
        self._check()

    @property
    def subtree(self) -> Subtree | None:
        """What it is made of, if it is a nested supervisor and nothing else."""
        run: object = self.run
        return run if isinstance(run, Subtree) else None

    def _check(self) -> None:
        if not isinstance(self.name, str) or not self.name or "/" in self.name:
            raise _refuse("Child.name", self.name, 'a non-empty string without "/"')
        if not callable(self.run):
            raise TypeError(f"Child {self.name!r}: run is {self.run!r}; it must be an async function of an inbox")
        if not isinstance(self.restart, Restart):
            raise _refuse(f"Child {self.name!r}: restart", self.restart, "a Restart")
        _check_seconds(f"Child {self.name!r}: shutdown", self.shutdown)
        if not self.shutdown >= 0:
            raise _refuse(f"Child {self.name!r}: shutdown", self.shutdown, "0 or more seconds, or math.inf")
        _check_kind(f"Child {self.name!r}: backoff", self.backoff, Backoff | None, "a Backoff or None")
        _check_kind(f"Child {self.name!r}: mailbox", self.mailbox, Mailbox, "a Mailbox")
        if self.significant and self.restart is Restart.PERMANENT:
            raise ValueError(f"Child {self.name!r}: significant needs restart=TRANSIENT or TEMPORARY, not PERMANENT")
        if self.backoff is not None and self.restart is Restart.TEMPORARY:
            raise ValueError(f"Child {self.name!r}: a backoff makes no sense for TEMPORARY, which is never restarted")


class Subtree:
    """What a supervisor is made of. ValueError, with the reason, when that makes no sense."""

    def __init__(
        self,
        children: Iterable[Child[Never]],
        strategy: Strategy,
        intensity: Intensity,
        auto_shutdown: AutoShutdown,
    ) -> None:
        self.children = tuple(children)
        self.strategy = strategy
        self.intensity = intensity
        self.auto_shutdown = auto_shutdown
        _check_kind("strategy", strategy, Strategy, "a Strategy")
        _check_kind("intensity", intensity, Intensity, "an Intensity")
        _check_kind("auto_shutdown", auto_shutdown, AutoShutdown, "an AutoShutdown")
        seen: set[str] = set()
        for child in self.children:
            self.check_also(child)
            if child.name in seen:
                raise ValueError(f"Child {child.name!r} is there twice; names are unique among siblings")
            seen.add(child.name)

    def check_also(self, child: Child[Never]) -> None:
        """Refuse, with ValueError or TypeError, a child that cannot live under such a supervisor."""
        _check_kind("a child", child, Child, "a Child")
        if child.significant and self.auto_shutdown is AutoShutdown.NEVER:
            raise ValueError(f"Child {child.name!r}: significant means nothing under auto_shutdown=NEVER")
        if child.backoff is not None:
            _check_reachable(child.name, child.backoff, self.intensity)


def _check_reachable(name: str, backoff: Backoff, intensity: Intensity) -> None:
    """A child that crashes at once each time must be able to use up the intensity, or its supervisor never gives up."""
    fastest = sum(backoff.nominal(n) for n in range(1, intensity.restarts + 1)) * (1 - backoff.jitter)
    if fastest > intensity.period:
        raise ValueError(
            f"Child {name!r}: with this backoff {intensity.restarts} restarts take {fastest:.3g} s or more, so the "
            f"intensity of {intensity.restarts} in {intensity.period:g} s can never be exceeded; "
            "lengthen the period or shorten the backoff"
        )
