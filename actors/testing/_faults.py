"""Which perturbations a seed chooses, and the ones that a replay is given."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Protocol

import attrs
from trio.lowlevel import Task

from actors._cell import CURRENT
from actors._supervisor import supervisor_task
from actors.testing._plan import AFTER, Kind, Perturbation

MOODS = ((0.6, 0.0), (0.5, 0.1), (0.3, 0.3), (0.1, 0.5))
"""How often a task of a round goes later, and how often it is held back. Each seed has one of these moods: some faults
need one lag in a program that is calm otherwise, some need chaos."""
PACES = (0.0, 0.3, 1.0, 2.0)
"""Each task has one of these in each run: how many times as often as others it is held back."""
RANKS = 3


def actor_tasks(task: Task) -> bool:
    """Tasks of actors, those that an actor started itself included; no supervisor's, and none beside the tree."""
    life = task.context.get(CURRENT)
    return life is not None and not life.is_supervisor and task.coro.cr_code is not supervisor_task.__code__


def all_tasks(task: Task) -> bool:
    """Each task of the program but for supervisors; `main` itself is one of them."""
    life = task.context.get(CURRENT)
    return (life is None or not life.is_supervisor) and task.coro.cr_code is not supervisor_task.__code__


@attrs.frozen
class Faults:
    """What a seed may do to the tasks beside ordering them.

    lag: hold a task back for up to so many rounds (0: never). crash, cancel, delay: at one in so many checkpoints, on
    average (0: never); at most `most` crashes and cancels in a run. longest: of a delay, in seconds. hits: which tasks
    may be crashed, cancelled or delayed; lags may hit every task.

    A crash is an InjectedCrash raised where the task waits. A cancel kills an actor as its supervisor would, and
    cancels the nursery that any other task lives in, or all of `main`.
    """

    lag: int = 12
    crash: int = 0
    cancel: int = 0
    delay: int = 0
    longest: float = 10.0
    most: int = 5
    hits: Callable[[Task], bool] = actor_tasks

    def __attrs_post_init__(self) -> None:
        for name in ("lag", "crash", "cancel", "delay", "most"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)}: it is a number of rounds or checkpoints, 0 for never")

    @property
    def strikes(self) -> bool:
        """Whether it may crash or cancel anything."""
        return bool(self.crash or self.cancel) and self.most > 0


class Choices(Protocol):
    """Says what happens to a task at a checkpoint.

    hold: as the task is about to go on, whether it goes late, lags or is delayed; `alone` if no other task could run.
    strike: as it begins to wait, whether it crashes or is cancelled. strikes, delays: whether that ever happens.
    holds_one_alone: whether `hold` ever answers anything if alone.
    """

    holds_one_alone: bool
    strikes: bool
    delays: bool

    def hold(self, task: str, step: int, alone: bool, hit: bool) -> Perturbation | None: ...
    def strike(self, task: str, step: int) -> Perturbation | None: ...


class Seeded:
    """The choices of a seed."""

    def __init__(self, seed: int, faults: Faults) -> None:
        random = Random(f"{seed}/schedule")  # noqa: S311
        self.strikes = faults.strikes
        self.delays = self.holds_one_alone = faults.delay > 0
        self._faults = faults
        self._next = random.random
        self._late, lag = MOODS[int(random.random() * len(MOODS))]
        self._lags = [lag * pace if faults.lag else 0.0 for pace in PACES]
        self._lag_of: dict[str, float] = {}
        self._delay = 1 / faults.delay if faults.delay else 0.0
        self._crash = 1 / faults.crash if faults.crash else 0.0
        self._cancel = 1 / faults.cancel if faults.cancel else 0.0
        self._left = faults.most

    def hold(self, task: str, step: int, alone: bool, hit: bool) -> Perturbation | None:
        if self._delay and hit and self._next() < self._delay:
            return Perturbation(Kind.DELAY, task, step, self._pick_delay())
        if alone:
            return None
        lag = self._lag_of.get(task)
        if lag is None:
            lag = self._lag_of[task] = self._lags[int(self._next() * len(PACES))]
        drawn = self._next()
        if drawn < lag:
            return Perturbation(Kind.LAG, task, step, self._up_to(self._faults.lag))
        if drawn < lag + self._late:
            return Perturbation(Kind.LATE, task, step, self._up_to(RANKS))
        return None

    def strike(self, task: str, step: int) -> Perturbation | None:
        if not self._left:
            return None
        drawn = self._next()
        if drawn >= self._crash + self._cancel:
            return None
        self._left -= 1
        kind = Kind.CRASH if drawn < self._crash else Kind.CANCEL
        rounds = 0 if self._next() < 0.5 else self._up_to(6)
        return Perturbation(kind, task, step, rounds)

    def _up_to(self, most: int) -> int:
        return 1 + int(self._next() * most)

    def _pick_delay(self) -> float:
        """Mostly short ones; in milliseconds, so that they can be written down."""
        return max(0.001, round(self._faults.longest * self._next() ** 3, 3))


class Listed:
    """The choices of a list, and nothing else."""

    def __init__(self, perturbations: Iterable[Perturbation]) -> None:
        self._holds = {(one.task, one.step): one for one in perturbations if one.kind not in AFTER}
        self._strikes = {(one.task, one.step): one for one in perturbations if one.kind in AFTER}
        self.strikes = bool(self._strikes)
        self.holds_one_alone = bool(self._holds)
        self.delays = False

    def hold(self, task: str, step: int, alone: bool, hit: bool) -> Perturbation | None:
        return self._holds.get((task, step))

    def strike(self, task: str, step: int) -> Perturbation | None:
        return self._strikes.get((task, step))
