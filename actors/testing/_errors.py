"""Errors of a simulation.

There are two kinds. A `SimulationError` is the *problem* of one run, beside the errors of the program itself. The test
sees it as the cause of a `SimulationFailed`, which is the *report*: seed, perturbations, trace and the call to repeat it.
An `InjectedCrash` is neither. It is raised inside the program, and a program that handles crashes is expected to cope
with it, so a run in which `main` ends with one does not fail.
"""

from __future__ import annotations


class InjectedCrash(Exception):
    """Raised in a task at a checkpoint, by a simulation that was asked for crashes.

    It is an ordinary Exception, so `except Exception` in the program catches it, like the crash that it stands for.
    """


class SimulationError(Exception):
    """Base class of the problems that the simulation itself finds in a run.

    Failures are compared by the types of their errors when a schedule is shrunk, so each problem has a class of its own.
    """


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
    """The program took more steps than it may: it loops for ever, or it needs a larger `max_steps`.

    Steps are counted rather than seconds, because a loop of checkpoints never lets the virtual clock move.
    """


class Nondeterminism(SimulationError):
    """Something in the program does not depend on the seed alone, so a run cannot be repeated.

    Found in two ways: a guard saw the use of a clock, thread, socket or random source (_guards.py), or two runs of the
    same schedule differed. Typical of the second are the order of a set of strings, and state that outlives a run.
    """


class StaleReplay(SimulationError):
    """The line to replay does not fit the program any more: some of its perturbations did not take place.

    Passing would say that a fault is mended, while it was not even tried.
    """


class BrokenTree(SimulationError):
    """A supervision tree contradicts itself, or has lost a message. A defect of `actors`, not of the program."""


class SimulationFailed(AssertionError):
    """A run failed. The cause (`__cause__`) is the error that it failed with, after shrinking.

    It is an AssertionError, so that test runners report a failed test and not a broken one.
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
