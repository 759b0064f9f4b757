"""Perturbations of a simulated run (their values, how a seed chooses them, how a list is replayed), and its errors.

A **place** is a task and the number of times that it has waited so far: its n-th checkpoint. A perturbation is something
done to a task at a place. A place stays the same when perturbations elsewhere are left out. Therefore a list of
perturbations can be shrunk, and be written down as one line (`to_token`) that repeats the run.

There are two sources of perturbations, with the same interface (`Choices`): `Seeded` draws them from the random source
of a seed, `Listed` takes them from a list and adds nothing.

**Why not a random order of all tasks in each round?** Most programs fail when one task is late by a few steps while all
others go on as usual. A uniform shuffle makes everybody a little late and nobody very, so such a failure is rare under
it. Here each seed first draws how often tasks are late at all, and each task how often it lags. Some seeds are almost
calm, with one slow task; others disturb everything.

**A draw is made only where a decision is needed**, so the same seed with other `Faults` is another schedule. What repeats
a run is the list of perturbations that took effect, and not the seed.

**Errors.** A `SimulationError` is the *problem* of one run, beside the errors of the program itself. The test sees it as
the cause of a `SimulationFailed`, which is the *report*: seed, perturbations, trace and the call to repeat it. An
`InjectedCrash` is neither. It is raised inside the program, and a program that handles crashes is expected to cope with it,
so a run in which `main` ends with one does not fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from random import Random
from typing import Final, Protocol
from urllib.parse import quote, unquote

import attrs
from trio.lowlevel import Task

from actors._cell import CURRENT
from actors._supervisor import supervisor_task


class Kind(Enum):
    """Kind of a perturbation. Its value is the word in the line to replay, so it is part of a format that is kept.

    Example: "crash:counter@3*0" in a line to replay is `Perturbation(Kind.CRASH, "counter", 3, 0)`.
    """

    LATE = "late"
    """The task runs after the others of its round."""
    LAG = "lag"
    """The task is held back for some rounds."""
    DELAY = "delay"
    """The task is held back for some virtual time."""
    CRASH = "crash"
    """InjectedCrash is raised where the task waits, in the place of Cancelled."""
    CANCEL = "cancel"
    """The actor is killed, or the nursery in which the task lives is cancelled; for `main`, the whole program."""


WORDS: Final = {
    Kind.LATE: "goes after the others of its round",
    Kind.LAG: "is held back for {0:g} rounds",
    Kind.DELAY: "is held back for {0:g} s",
    Kind.CRASH: "crashes",
    Kind.CANCEL: "is cancelled",
}
"""By kind: the rest of a sentence that begins with the task; {0} is the amount."""
AFTER: Final = frozenset({Kind.CRASH, Kind.CANCEL})
"""Kinds whose amount is the number of rounds between the begin of the wait and the fault."""
SIMPLER: Final = {
    Kind.LATE: (),
    Kind.LAG: ((Kind.LATE, 1),),
    Kind.DELAY: ((Kind.LATE, 1), (Kind.LAG, 1), (Kind.LAG, 12)),
    Kind.CRASH: ((Kind.LATE, 1), (Kind.LAG, 1), (Kind.LAG, 12)),
    Kind.CANCEL: ((Kind.LATE, 1), (Kind.LAG, 1), (Kind.LAG, 12)),
}
"""By kind: perturbations, as kind and amount, that a person understands more easily, the simplest first.

If one of them at the same place is enough for a failure, the failure has nothing to do with crashes or time.
"""


@attrs.frozen
class Perturbation:
    """One thing that is done to one task at its n-th checkpoint.

    Example: `Perturbation(Kind.DELAY, "save", 2, 0.5)` holds the task "save" back for half a second when it would go on
    from its second wait.
    """

    kind: Kind
    """Effect on the task; it also decides the unit of `amount`."""
    task: str
    """Last part of the task's name in Trio, with "#2" for the second task of that name, and so on."""
    step: int
    """Number of the checkpoint: 0 is the start of the task, 1 its first wait."""
    amount: float
    """Rounds (LAG; CRASH and CANCEL: so many rounds after it began to wait), seconds (DELAY), or rank (LATE)."""

    def __str__(self) -> str:
        return f"{self.kind.value}:{quote(self.task, safe='/.,<>()#-_:')}@{self.step}*{_number(self.amount)}"

    def describe(self) -> str:
        """Return the perturbation in words: "save at its checkpoint 1 is held back for 2 rounds"."""
        words = WORDS[self.kind].format(self.amount)
        if self.kind in AFTER and self.amount:
            words += f" {self.amount:g} rounds later"
        return f"{self.task} at its checkpoint {self.step} {words}"


def to_token(seed: int, perturbations: tuple[Perturbation, ...]) -> str:
    """Return the line that runs a schedule again, such as "3 lag:save@1*2".

    That is the seed, and for each perturbation its kind, task, checkpoint and amount. The seed is a part of it because
    `Simulation.random` depends on it. Characters of a task's name that would end a word are quoted as in a URL.
    """
    return " ".join((str(seed), *(str(perturbation) for perturbation in perturbations)))


def from_token(token: str) -> tuple[int, tuple[Perturbation, ...]]:
    """Return the seed and the perturbations of such a line.

    Raises ValueError, with the line in its text, if it is none.
    """
    try:
        seed, *words = token.split()
        return int(seed), tuple(_parse(word) for word in words)
    except ValueError as error:
        raise ValueError(f"{token!r} is no schedule to replay: {error}") from None


def _number(amount: float) -> str:
    """Return an amount as text from which the very same number is read back."""
    return str(int(amount)) if amount == int(amount) else repr(amount)


def _parse(word: str) -> Perturbation:
    """Return the perturbation of one word. The last "@" separates the task, whose quoted name may hold others."""
    kind, _, rest = word.partition(":")
    task, _, numbers = rest.rpartition("@")
    step, _, amount = numbers.partition("*")
    return Perturbation(Kind(kind), unquote(task), int(step), float(amount))


# ------------------------------------------------------------ choices

MOODS: Final = ((0.6, 0.0), (0.5, 0.1), (0.3, 0.3), (0.1, 0.5))
"""Probabilities that a task of a round goes later, and that it is held back. Each seed has one of these pairs, since some
failures need one lag in a program that is calm otherwise, and some need chaos."""
PACES: Final = (0.0, 0.3, 1.0, 2.0)
"""Factors for the probability that a task is held back. Each task of a run has one of them."""
RANKS: Final = 3
"""Number of places behind the others of its round that a late task can take."""


def actor_tasks(task: Task) -> bool:
    """Return whether this is a task of an actor, or one that an actor has started; but not a supervisor's."""
    incarnation = task.context.get(CURRENT)
    return incarnation is not None and all_tasks(task)


def all_tasks(task: Task) -> bool:
    """Return whether this is a task of the program, `main` included; but not a supervisor's."""
    incarnation = task.context.get(CURRENT)
    is_nested_supervisor = incarnation is not None and incarnation.is_supervisor
    return not is_nested_supervisor and task.coro.cr_code is not supervisor_task.__code__


@attrs.frozen
class Faults:
    """Perturbations that a seed may choose, beside the order of tasks within a round.

    ::

        simulate(main, faults=Faults(crash=50, delay=20))

    crashes an actor at one in fifty checkpoints, and delays one at one in twenty, on average. The defaults crash, cancel
    and delay nobody; they only vary the order of tasks and let tasks lag. Raises ValueError for a negative number.
    """

    lag: int = 12
    """Most rounds for which a task is held back; 0 for no lags. Lags hit every task."""
    crash: int = 0
    """Crash a task at one in so many checkpoints, on average; 0 for never."""
    cancel: int = 0
    """Cancel a task at one in so many checkpoints: kill an actor, cancel the nursery of another task, or all of `main`."""
    delay: int = 0
    """Delay a task at one in so many checkpoints."""
    longest: float = 10.0
    """Longest delay, in seconds of virtual time."""
    max_strikes: int = 5
    """Most crashes and cancels in one run. A supervisor under an endless series of crashes would only ever give up."""
    hits: Callable[[Task], bool] = actor_tasks
    """Tasks that may be crashed, cancelled or delayed. A program without actors needs `all_tasks`."""

    def __attrs_post_init__(self) -> None:
        for name in ("lag", "crash", "cancel", "delay", "max_strikes"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)}: it is a number of rounds or checkpoints, 0 for never")

    @property
    def strikes(self) -> bool:
        """True if it may crash or cancel a task."""
        return bool(self.crash or self.cancel) and self.max_strikes > 0


class Choices(Protocol):
    """Source of perturbations.

    Example::

        chosen = choices.hold("save", 2, alone=False, hit=True)
        if chosen is not None:
            ...  # the scheduler keeps the task out of this round
    """

    strikes: bool
    """True if `strike` ever returns anything. If not, the scheduler need not look at each step of a task."""
    delays: bool
    """True if `hold` needs to know whether a task may be hit by faults."""
    holds_one_alone: bool
    """True if `hold` ever returns anything for a task that is alone."""

    def hold(self, task: str, step: int, alone: bool, hit: bool) -> Perturbation | None:
        """Return a LATE, LAG or DELAY for a task that is about to go on.

        alone: no other task can run. hit: it may be hit by faults.
        """

    def strike(self, task: str, step: int) -> Perturbation | None:
        """Return a CRASH or CANCEL for a task that begins to wait."""


class Seeded:
    """Perturbations drawn from the random source of a seed.

    The source is not that of `Simulation.random`, so a program that draws more numbers still meets the same schedule.

    Example: `program.run(3, Seeded(3, Faults(crash=50)))` makes the run of seed 3, the same each time.
    """

    def __init__(self, seed: int, faults: Faults) -> None:
        random = Random(f"{seed}/schedule")  # noqa: S311
        self.strikes = faults.strikes
        self.delays = self.holds_one_alone = faults.delay > 0
        self._faults = faults
        self._next = random.random
        # Methods are bound once: `hold` is called for every task of every round, the busiest place of a simulation.
        self._late, lag = MOODS[int(random.random() * len(MOODS))]
        self._lags = [lag * pace if faults.lag else 0.0 for pace in PACES]
        self._lag_of: dict[str, float] = {}
        """By name of the task: the probability that it is held back, drawn when it first has to share a round."""
        self._delay = 1 / faults.delay if faults.delay else 0.0
        self._crash = 1 / faults.crash if faults.crash else 0.0
        self._cancel = 1 / faults.cancel if faults.cancel else 0.0
        self._left = faults.max_strikes
        """Crashes and cancels that may still be drawn. One that then cannot be carried out counts as well."""

    def hold(self, task: str, step: int, alone: bool, hit: bool) -> Perturbation | None:
        """Draw for this checkpoint. A delay is drawn first; a task that is alone in its round is only ever delayed."""
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
        """Draw for this wait, as long as strikes are left."""
        if not self._left:
            return None
        drawn = self._next()
        if drawn >= self._crash + self._cancel:
            return None
        self._left -= 1
        kind = Kind.CRASH if drawn < self._crash else Kind.CANCEL
        # Half of the faults come as the task begins to wait, and half while it already has for some rounds: an answer may
        # be on its way by then. Six rounds are enough for an ask and its reply to cross.
        rounds = 0 if self._next() < 0.5 else self._up_to(6)
        return Perturbation(kind, task, step, rounds)

    def _up_to(self, largest: int) -> int:
        """Return a whole number from 1 to the largest."""
        return 1 + int(self._next() * largest)

    def _pick_delay(self) -> float:
        """Return a delay: mostly a short one, in whole milliseconds, so that it can be written down exactly."""
        return max(0.001, round(self._faults.longest * self._next() ** 3, 3))


class Listed:
    """The perturbations of a list, and nothing else. For replays, for shrinking, and for one fault at each checkpoint.

    Of several perturbations of one kind at one place the last counts; a schedule that a run has recorded has no such.

    Example::

        seed, perturbations = from_token("3 lag:save@1*2")
        run = program.run(seed, Listed(perturbations))
    """

    def __init__(self, perturbations: Iterable[Perturbation]) -> None:
        self._holds = {(item.task, item.step): item for item in perturbations if item.kind not in AFTER}
        self._strikes = {(item.task, item.step): item for item in perturbations if item.kind in AFTER}
        self.strikes = bool(self._strikes)
        self.holds_one_alone = bool(self._holds)
        self.delays = False

    def hold(self, task: str, step: int, alone: bool, hit: bool) -> Perturbation | None:
        """Return the listed one of this checkpoint, whether or not the task is alone or may be hit."""
        return self._holds.get((task, step))

    def strike(self, task: str, step: int) -> Perturbation | None:
        """Return the listed crash or cancel of this wait."""
        return self._strikes.get((task, step))


# ------------------------------------------------------------ errors


class InjectedCrash(Exception):
    """Raised in a task at a checkpoint, by a simulation that was asked for crashes.

    It is an ordinary Exception, so `except Exception` in the program catches it, like the crash that it stands for.

    Example: `simulate(main, faults=Faults(crash=50), allowed=[InjectedCrash])` for a program that may end with such a crash.
    """


class SimulationError(Exception):
    """Base class of the problems that the simulation itself finds in a run.

    Failures are compared by the types of their errors when a schedule is shrunk, so each problem has a class of its own.

    Example::

        with pytest.raises(SimulationFailed) as caught:
            simulate(main)
        assert isinstance(caught.value.__cause__, SimulationError)
    """


class Deadlock(SimulationError):
    """No task can run any more, and no deadline is due: the program waits for ever.

    Example::

        for task, stack in deadlock.stacks.items():
            print(task, *stack, sep=", ")
    """

    stacks: dict[str, tuple[str, ...]]
    """By task: the awaits of the program's own code that it stands in, outermost first, as "file:line in function".

    The last line says what it waits for, and which task holds that: "waits in Lock.acquire for 'left', held by ann".
    """

    def __init__(self, time: float, stacks: dict[str, tuple[str, ...]]) -> None:
        waits = "\n".join(f"  {name}\n" + "\n".join(f"    {line}" for line in lines) for name, lines in stacks.items())
        super().__init__(f"at t={time:.3f} every task waits, and nothing will ever wake one of them:\n{waits}")
        self.stacks = stacks


class Endless(SimulationError):
    """The program took more steps than it may: it loops for ever, or it needs a larger `max_steps`.

    Steps are counted rather than seconds, because a loop of checkpoints never lets the virtual clock move.

    Example: `simulate(main, max_steps=1_000_000)` for a program that is long, but does end.
    """


class Nondeterminism(SimulationError):
    """Something in the program does not depend on the seed alone, so a run cannot be repeated.

    Found in two ways: a guard saw the use of a clock, thread, socket or random source (_guards.py), or two runs of the
    same schedule differed. Typical of the second are the order of a set of strings, and state that outlives a run.

    Example: `simulate(main, allow=["some_library"])` for a module that reads the clock, with no effect on what is tested.
    """


class StaleReplay(SimulationError):
    """The line to replay does not fit the program any more: some of its perturbations did not take place.

    Passing would say that a fault is mended, while it was not even tried.

    Example: `simulate(main, replay="3 crash:counter@9*0")` raises it when "counter" never comes to its ninth wait. Remove
    the line then, and search again with seeds.
    """


class BrokenTree(SimulationError):
    """A supervision tree contradicts itself, or has lost a message. A defect of `actors`, not of the program.

    Example: `check_tree(supervisor)` raises it, and every simulation checks all trees in this way whenever all tasks wait.
    """


class SimulationFailed(AssertionError):
    """A run failed. The cause (`__cause__`) is the error that it failed with, after shrinking.

    It is an AssertionError, so that test runners report a failed test and not a broken one.

    Example::

        try:
            simulate(main)
        except SimulationFailed as failure:
            simulate(main, replay=failure.replay)  # the same failure once more
    """

    seed: int
    """Seed of the run. With the perturbations of `replay` it determines everything that happened."""
    replay: str
    """The line that `simulate(main, replay=…)` needs to run it again."""
    lines: tuple[str, ...]
    """The trace of that run."""

    def __init__(self, text: str, *, seed: int, replay: str, lines: tuple[str, ...]) -> None:
        super().__init__(text)
        self.seed = seed
        self.replay = replay
        self.lines = lines
