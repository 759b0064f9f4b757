"""What a simulation can find."""

from __future__ import annotations


class InjectedCrash(Exception):
    """Raised in a task at a checkpoint, by a simulation that was asked for crashes."""


class SimulationError(Exception):
    """The simulation itself has found something wrong with a run."""


class Deadlock(SimulationError):
    """No task can run any more, and no deadline is due: the program waits for ever.

    stacks: by task, where it waits, outermost first, "file:line in function".
    """

    def __init__(self, time: float, stacks: dict[str, tuple[str, ...]]) -> None:
        waits = "\n".join(f"  {name}\n" + "\n".join(f"    {line}" for line in lines) for name, lines in stacks.items())
        super().__init__(f"at t={time:.3f} every task waits, and nothing will ever wake one of them:\n{waits}")
        self.stacks = stacks


class Endless(SimulationError):
    """The program took more steps than it may: it spins, or it needs a larger `max_steps`."""


class Nondeterminism(SimulationError):
    """Something in the program does not depend on the seed alone, so a run cannot be repeated."""


class BrokenTree(SimulationError):
    """A supervision tree contradicts itself, or has lost a message."""


class SimulationFailed(AssertionError):
    """A run failed; the cause is what it failed with, after shrinking.

    seed: which one. replay: what `simulate(main, replay=…)` needs to run it again. lines: the trace of that run.
    """

    def __init__(self, text: str, *, seed: int, replay: str, lines: tuple[str, ...]) -> None:
        super().__init__(text)
        self.seed = seed
        self.replay = replay
        self.lines = lines


def leaves(error: BaseException) -> tuple[BaseException, ...]:
    """The errors of a group, however nested, in order; of any other error, itself."""
    if isinstance(error, BaseExceptionGroup):
        return tuple(leaf for part in error.exceptions for leaf in leaves(part))
    return (error,)
