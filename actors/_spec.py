"""Specification of an actor (`Child`), of a supervisor with its children (`Subtree`), and their policies.

All are checked when they are built. A mistake (a negative time, a name twice, a backoff that makes the intensity
pointless) raises ValueError or TypeError there, and the message says what was found and what is allowed. After that, the
rest of the package takes the values as correct.

Words and defaults are those of Erlang/OTP's `supervisor`. Mailbox and Backoff have no counterpart there.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable
from enum import Enum
from random import Random
from types import UnionType
from typing import TYPE_CHECKING, Generic, Never, TypeVar, TypeVarTuple

import attrs

if TYPE_CHECKING:
    from actors._incarnation import Inbox

M = TypeVar("M", contravariant=True)
Args = TypeVarTuple("Args")

# ------------------------------------------------------------ policies


class Restart(Enum):
    """When a child that ended by itself is started again. One that was stopped on request has not ended by itself.

    Example: `Child("worker", work, restart=Restart.TRANSIENT)` is restarted after a crash, and may return when its work is done.
    """

    PERMANENT = "permanent"
    """Always."""
    TRANSIENT = "transient"
    """After an abnormal end: a crash, or a kill. A nested supervisor that gave up has ended normally in this sense."""
    TEMPORARY = "temporary"
    """Never. Its spec is forgotten as soon as it is down, also when it was stopped together with siblings."""


class Strategy(Enum):
    """Siblings that are restarted together with a child that ended.

    Example: `open_supervisor([database, cache, server], strategy=Strategy.REST_FOR_ONE)` restarts the cache and the server when the
    database has crashed, and only the server when the server has.
    """

    ONE_FOR_ONE = "one_for_one"
    """None: the children do not depend on each other."""
    ONE_FOR_ALL = "one_for_all"
    """All: each depends on each."""
    REST_FOR_ONE = "rest_for_one"
    """Those that were started after it: later children depend on earlier ones."""


class AutoShutdown(Enum):
    """Condition under which a supervisor ends normally because significant children have ended by themselves.

    Example::

        open_supervisor(
            [Child("job", job, restart=Restart.TRANSIENT, significant=True), Child("log", log)],
            auto_shutdown=AutoShutdown.ANY_SIGNIFICANT,
        )

    ends by itself, the log included, when the job has returned.
    """

    NEVER = "never"
    """Only `stop`, `kill`, the end of the block, or too many crashes end the supervisor."""
    ANY_SIGNIFICANT = "any_significant"
    """The supervisor ends when the first of them has ended and is not restarted."""
    ALL_SIGNIFICANT = "all_significant"
    """The supervisor ends when none of them runs or waits for a restart."""


class Overflow(Enum):
    """Behaviour of a full mailbox. There is no mailbox without a limit: a slow actor would fill the memory unnoticed.

    Example: `Mailbox(8, Overflow.DROP_OLDEST)` suits measured values, of which only the newest count.
    """

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

    Example: `Mailbox(1, Overflow.DROP_OLDEST)` keeps the newest message only.
    """

    capacity: int = 64
    """Number of messages that may wait, 1 or more. The message being handled is not counted."""
    overflow: Overflow = Overflow.BLOCK
    """Behaviour when that many wait. By default senders wait, which slows them down to the actor's pace."""

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

    Example: `Intensity(restarts=8, period=60)` allows eight restarts in a minute; the ninth ends the supervisor with GaveUp.
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

    Example: `Backoff(first=1, limit=30)` waits about 1, 2, 4, 8, 16, 30, 30 … seconds.
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


# ------------------------------------------------------------ specifications


@attrs.frozen(eq=False, init=False)
class Child(Generic[M]):
    """Specification of one actor: how to start, restart and stop it.

    ::

        Child("counter", counter, 40, restart=Restart.TRANSIENT, shutdown=10)

    `run(inbox, *args)` is called anew for every start. Type checkers compare `args` with the parameters of `run`.
    Raises ValueError or TypeError, with the reason, for a specification that makes no sense.
    """

    name: str
    """Unique among the siblings; not empty, without "/"."""
    run: Callable[..., Awaitable[object]]
    """Async function of the actor. It is called as `run(inbox, *args)` at each start."""
    args: tuple[object, ...]
    """Further arguments. The same objects are passed at each start, so what they hold survives a restart."""
    restart: Restart
    """Condition under which it is started again when it has ended by itself."""
    shutdown: float
    """Seconds that the actor has to end when asked to; then it is cancelled. 0 cancels at once, math.inf waits.

    The default is 5, and math.inf for a nested supervisor, whose children have limits of their own.
    """
    backoff: Backoff | None
    """Delay before restarts; None for none, as in OTP."""
    mailbox: Mailbox
    """Size of the queue of messages, and its behaviour when it is full."""
    significant: bool
    """True if its end may end its supervisor, see AutoShutdown."""

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
        """The specification of the nested supervisor that this child is; None for any other child."""
        run: object = self.run
        return run if isinstance(run, Subtree) else None

    def _check(self) -> None:
        if not isinstance(self.name, str) or not self.name or "/" in self.name:
            raise invalid("Child.name", self.name, 'a non-empty string without "/"')
        if not callable(self.run):
            raise TypeError(f"Child {self.name!r}: run is {self.run!r}; it must be an async function of an inbox")
        if not isinstance(self.restart, Restart):
            raise invalid(f"Child {self.name!r}: restart", self.restart, "a Restart")
        check_seconds(f"Child {self.name!r}: shutdown", self.shutdown)
        if not self.shutdown >= 0:
            raise invalid(f"Child {self.name!r}: shutdown", self.shutdown, "0 or more seconds, or math.inf")
        check_type(f"Child {self.name!r}: backoff", self.backoff, Backoff | None, "a Backoff or None")
        check_type(f"Child {self.name!r}: mailbox", self.mailbox, Mailbox, "a Mailbox")
        if self.significant and self.restart is Restart.PERMANENT:
            raise ValueError(f"Child {self.name!r}: significant needs restart=TRANSIENT or TEMPORARY, not PERMANENT")
        if self.backoff is not None and self.restart is Restart.TEMPORARY:
            raise ValueError(f"Child {self.name!r}: a backoff makes no sense for TEMPORARY, which is never restarted")


class Subtree:
    """Specification of a supervisor and its children. Base class of the public `supervisor`.

    It is in this file, below the supervisors themselves, so that a Child can tell whether its `run` is a nested supervisor.

    Raises ValueError or TypeError, with the reason, if the parts do not go together.

    Example: `Subtree([Child("counter", counter)], Strategy.ONE_FOR_ONE, Intensity(), AutoShutdown.NEVER)`. Programs use
    `open_supervisor` or `supervisor`, which have defaults.
    """

    children: tuple[Child[Never], ...]
    """In start order."""
    strategy: Strategy
    """Siblings that are restarted with a child."""
    intensity: Intensity
    """Number of restarts after which the supervisor gives up."""
    auto_shutdown: AutoShutdown
    """Condition under which it ends because significant children have ended."""

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
        check_type("strategy", strategy, Strategy, "a Strategy")
        check_type("intensity", intensity, Intensity, "an Intensity")
        check_type("auto_shutdown", auto_shutdown, AutoShutdown, "an AutoShutdown")
        seen: set[str] = set()
        for child in self.children:
            self.check_also(child)
            if child.name in seen:
                raise ValueError(f"Child {child.name!r} is there twice; names are unique among siblings")
            seen.add(child.name)

    def check_also(self, child: Child[Never]) -> None:
        """Raise ValueError or TypeError if the child cannot live under such a supervisor."""
        check_type("a child", child, Child, "a Child")
        if child.significant and self.auto_shutdown is AutoShutdown.NEVER:
            raise ValueError(f"Child {child.name!r}: significant means nothing under auto_shutdown=NEVER")
        if child.backoff is not None:
            _check_reachable(child.name, child.backoff, self.intensity)


def _check_reachable(name: str, backoff: Backoff, intensity: Intensity) -> None:
    """Refuse a backoff under which the intensity can never be exceeded.

    A child that crashes at once each time would then be restarted for ever, and its supervisor never gives up. The
    test takes the shortest possible delays, those with the most favourable jitter.
    """
    fastest = sum(backoff.nominal(n) for n in range(1, intensity.restarts + 1)) * (1 - backoff.jitter)
    if fastest > intensity.period:
        raise ValueError(
            f"Child {name!r}: with this backoff {intensity.restarts} restarts take {fastest:.3g} s or more, so the "
            f"intensity of {intensity.restarts} in {intensity.period:g} s can never be exceeded; "
            "lengthen the period or shorten the backoff"
        )
