"""One run of a program under a schedule."""

from __future__ import annotations

import gc
import inspect
import itertools
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from typing import TypeAlias, cast

import attrs
import outcome
from trio.lowlevel import Task

from actors._events import leaf_errors
from actors.testing import _trio
from actors.testing._faults import Choices, Kind, Perturbation, Seeded, to_token
from actors.testing._guards import Guards
from actors.testing._invariants import Trees
from actors.testing._scheduler import Scheduler

OLD_GARBAGE = 50
"""Every so many runs, what has outlived a run is looked through for garbage."""


class Simulation:
    """One run: for the program that runs in it, and for whoever checks it afterwards.

    seed: of the run. random: for the program's own choices, from the seed. result: what `main` returned. error: what it
    raised. failure: why the run counts as failed, None if it does not.
    """

    def __init__(self, seed: int, scheduler: Scheduler) -> None:
        self.seed = seed
        self.result: object = None
        self.error: BaseException | None = None
        self.failure: BaseException | None = None
        self._scheduler = scheduler
        self._random: Random | None = None

    @property
    def random(self) -> Random:
        """A source that depends on the seed only."""
        if self._random is None:
            self._random = Random(self.seed)  # noqa: S311
        return self._random

    def note(self, text: str) -> None:
        """Write a line into the trace of the run. It must be the same whenever the run is repeated."""
        self._scheduler.note(text)

    @property
    def perturbations(self) -> tuple[Perturbation, ...]:
        """What was done to the program and took effect, so far."""
        return tuple(self._scheduler.done)

    @property
    def replay(self) -> str:
        """The line that runs this schedule again."""
        return to_token(self.seed, self.perturbations)

    @property
    def lines(self) -> tuple[str, ...]:
        """The trace so far: who ran, when the clock jumped, what was noted."""
        return self._scheduler.lines()


Main: TypeAlias = Callable[[], Awaitable[object]] | Callable[[Simulation], Awaitable[object]]
Check: TypeAlias = Callable[[Simulation], object]


@attrs.frozen
class Program:
    """What is run, and what is right.

    check: called after each run, raises if it was not right. allowed: errors that main may end with. hits: which tasks
    may be hit by faults; those of a list always hit. allow: modules that the guards let do anything.
    """

    main: Main
    check: Check | None
    allowed: tuple[type[BaseException], ...]
    hits: Callable[[Task], bool]
    max_steps: int
    allow: tuple[str, ...] = ()
    guards: Guards = attrs.field(init=False, default=attrs.Factory(lambda self: Guards(self.allow), takes_self=True))
    trees: Trees = attrs.field(init=False, factory=Trees)
    takes_simulation: bool = attrs.field(
        init=False, default=attrs.Factory(lambda self: _takes_simulation(self.main), takes_self=True)
    )

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Around all runs."""
        with ExitStack() as stack:
            stack.enter_context(_trio.ONE_AT_A_TIME)
            stack.enter_context(self.guards.installed())
            stack.enter_context(self.trees.watched())
            yield

    def run(
        self,
        seed: int,
        choices: Choices,
        *,
        detailed: bool = False,
        thoroughly: bool = False,
        find_places: Kind | None = None,
    ) -> Simulation:
        """Run it once. detailed: with a trace for people. thoroughly: watch out for what cannot be replaced."""
        hits = self.hits if find_places is not None or isinstance(choices, Seeded) else None
        scheduler = Scheduler(
            choices,
            hits,
            max_steps=self.max_steps,
            look=self.trees.look,
            detailed=detailed,
            find_places=find_places,
        )
        simulation = Simulation(seed, scheduler)
        self.trees.start(scheduler.note if detailed else None)
        with _no_garbage_collection():
            main = self._wrapped(simulation, scheduler, thoroughly)
            result = _trio.run(main, scheduler, scheduler.after_step)
        simulation.error = result.error if isinstance(result, outcome.Error) else None
        simulation.failure = self._judge(simulation)
        return simulation

    def _wrapped(
        self, simulation: Simulation, scheduler: Scheduler, thoroughly: bool
    ) -> Callable[[], Awaitable[object]]:
        call = cast("Callable[..., Awaitable[object]]", self.main)
        args = (simulation,) if self.takes_simulation else ()

        async def main() -> None:
            with self.guards.watching(thoroughly=thoroughly), scheduler.scope:
                simulation.result = await call(*args)

        return main

    def _judge(self, simulation: Simulation) -> BaseException | None:
        error = simulation.error
        if error is not None and any(isinstance(leaf, KeyboardInterrupt) for leaf in leaf_errors(error)):
            raise error
        found = self.guards.caught or simulation._scheduler.problem
        if found is not None:
            return found
        if error is not None and not all(isinstance(leaf, self.allowed) for leaf in leaf_errors(error)):
            return error
        try:
            self.trees.check()
            if self.check is not None:
                self.check(simulation)
        except KeyboardInterrupt:
            raise
        except BaseException as wrong:
            return wrong
        return None


def _takes_simulation(main: Main) -> bool:
    """Whether main has a parameter that must be given."""
    parameters = inspect.signature(main).parameters.values()
    return any(
        one.default is one.empty and one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD) for one in parameters
    )


_run_count = itertools.count(1)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Collect garbage between runs, so that no finalizer runs now in one place and now in another."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.collect(0 if next(_run_count) % OLD_GARBAGE else 1)
        if was_enabled:
            gc.enable()
