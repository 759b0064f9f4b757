"""Specification of an actor (`Child`) and of a supervisor with its children (`Subtree`).

Both are checked when they are built, as the policies in _policies.py that they are made of. After that, the rest of the
package takes them as correct.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Generic, Never, TypeVar, TypeVarTuple

import attrs

from actors._policies import (
    AutoShutdown,
    Backoff,
    Intensity,
    Mailbox,
    Restart,
    Strategy,
    check_seconds,
    check_type,
    invalid,
)

if TYPE_CHECKING:
    from actors._incarnation import Inbox

M = TypeVar("M", contravariant=True)
Args = TypeVarTuple("Args")


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
    args: tuple[object, ...]
    restart: Restart
    shutdown: float
    """Seconds that the actor has to end when asked to; then it is cancelled. 0 cancels at once, math.inf waits.

    The default is 5, and math.inf for a nested supervisor, whose children have limits of their own.
    """
    backoff: Backoff | None
    """Delay before restarts; None for none, as in OTP."""
    mailbox: Mailbox
    significant: bool
    """Whether its end may end its supervisor, see AutoShutdown."""

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
    """

    children: tuple[Child[Never], ...]
    """In start order."""
    strategy: Strategy
    intensity: Intensity
    auto_shutdown: AutoShutdown

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
