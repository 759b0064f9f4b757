"""Errors of a simulation: what it can find, and what it raises to tell about it."""

from __future__ import annotations


class InjectedCrash(Exception):
    """Raised in a task at a checkpoint, by a simulation that was asked for crashes."""


class SimulationError(Exception):
    """Base class of the problems that the simulation itself finds in a run."""


class Deadlock(SimulationError):
    """No task can run any more, and no deadline is due: the program waits for ever."""

    stacks: dict[str, tuple[str, ...]]
    """By task: the awaits of the program's own code that it stands in, outermost first, as "file:line in function".

    The last line says what it waits for, and which task holds that: "waits in Lock.acquire for 'left', held by ann".
    """

    def __init__(self, time: float, stacks: dict[str, tuple[str, ...]]) -> None:
        waits = "\n".join(f"  {name}\n" + "\n".join(f"    {line}" for line in lines) for name, lines in stacks.items())
        super().__init__(f"at t={time:.3f} every task waits, and nothing will ever wake one of them:\n{waits}")
        self.stacks = stacks


class Endless(SimulationError):
    """The program took more steps than it may: it spins, or it needs a larger `max_steps`."""


class Nondeterminism(SimulationError):
    """Something in the program does not depend on the seed alone, so a run cannot be repeated."""


class StaleReplay(SimulationError):
    """The line to replay does not fit the program any more: some of its perturbations did not take place.

    Passing would say that a fault is mended, while it was not even tried.
    """


class BrokenTree(SimulationError):
    """A supervision tree contradicts itself, or has lost a message."""


class SimulationFailed(AssertionError):
    """A run failed. The cause is the error that it failed with, after shrinking."""

    seed: int
    replay: str
    """The line that `simulate(main, replay=…)` needs to run it again."""
    lines: tuple[str, ...]
    """The trace of that run."""

    def __init__(self, text: str, *, seed: int, replay: str, lines: tuple[str, ...]) -> None:
        super().__init__(text)
        self.seed = seed
        self.replay = replay
        self.lines = lines
