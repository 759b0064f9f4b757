"""One run of a program under a schedule, and the judgement about it.

A run counts as failed, in this order of importance, if the guards or the scheduler have found a problem, if `main` raised
an error that is not allowed, if a supervision tree was not sound, or if the caller's `check` raises.

The first two are about the simulation itself: after a deadlock, for instance, whatever `main` raised is only how it was
cancelled, and the program's own checks would judge an unfinished run. The caller's `check` is not called then.

Garbage is collected between runs and not within them. Otherwise a finaliser, such as that of a dropped Reply, would run
at one place in one run and at another in the next. The scheduler collects once itself, at a point that is the same in each
run: before it calls a program deadlocked.
"""

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
from actors.testing._scheduler import Scheduler
from actors.testing._trees import Trees

OLD_GARBAGE = 50
"""Number of runs after which objects that have outlived a run are searched for garbage, too.

Every run leaves its tasks and messages in the youngest generations, where a collection is quick. Searching all objects
of the process after each run would take longer than most runs.
"""


class Simulation:
    """One run, for the program that runs in it and for the check afterwards.

    ::

        async def main(simulation: Simulation) -> int:
            orders = simulation.random.sample(range(100), 5)
            ...
            return sold

        def check(simulation: Simulation) -> None:
            assert simulation.result == 5

    Python's own `random` is not allowed in the program, because its state is not part of the seed.
    """

    def __init__(self, seed: int, scheduler: Scheduler) -> None:
        self.seed = seed
        self.result: object = None
        """Value that `main` returned."""
        self.error: BaseException | None = None
        """Error that `main` raised."""
        self.failure: BaseException | None = None
        """Reason why the run counts as failed; None if it does not."""
        self.random = Random(seed)  # noqa: S311
        """Random source for the choices of the program. It depends on the seed only."""
        self._scheduler = scheduler

    def note(self, text: str) -> None:
        """Write a line into the trace of the run. It must be the same whenever the run is repeated."""
        self._scheduler.note(text)

    def pause(self, tasks: Callable[[Task], bool], seconds: float) -> None:
        """Stop tasks for a while, as SIGSTOP stops a process: time passes and their deadlines with it, but none of them runs.

        tasks: asked about each task that could run. Tasks of one process of several are told by a context variable, say.
        """
        self._scheduler.pause(tasks, seconds)

    @property
    def perturbations(self) -> tuple[Perturbation, ...]:
        """Perturbations that have taken effect so far, in that order."""
        return tuple(self._scheduler.done)

    @property
    def replay(self) -> str:
        """Line that runs this schedule again, for `simulate(main, replay=…)`."""
        return to_token(self.seed, self.perturbations)

    @property
    def lines(self) -> tuple[str, ...]:
        """Trace so far: the tasks that ran, the jumps of the clock, and notes."""
        return self._scheduler.lines()


class NoProgram(TypeError):
    """Wrong kind of program or check. It is raised as it is: there is no run to repeat.

    Example: `simulate(main())` raises it, since only `main` itself can be called once for each seed.
    """


Main: TypeAlias = Callable[[], Awaitable[object]] | Callable[[Simulation], Awaitable[object]]
Check: TypeAlias = Callable[[Simulation], object]


@attrs.frozen
class Program:
    """The program, and what counts as right. One instance serves all runs of a simulation.

    Example::

        program = Program(main, check, allowed=(), hits=actor_tasks, max_steps=100_000)
        with program.watched():
            simulation = program.run(3, Seeded(3, Faults()))
        if simulation.failure is not None:
            print(simulation.replay)
    """

    main: Main
    """Called anew for each run. State that it keeps outside, such as a global, makes runs differ."""
    check: Check | None
    """Called after each run. Raises if something is wrong."""
    allowed: tuple[type[BaseException], ...]
    """Errors that main may end with."""
    hits: Callable[[Task], bool]
    """Tasks that may be hit by faults of a seed. Faults of a list always hit."""
    max_steps: int
    """Steps of tasks in one run, after which it is Endless."""
    allow: tuple[str, ...] = ()
    """Modules that the guards let use everything."""
    guards: Guards = attrs.field(init=False, default=attrs.Factory(lambda self: Guards(self.allow), takes_self=True))
    """Guards against clocks, threads and random sources. They belong to all runs, since installing them takes long."""
    trees: Trees = attrs.field(init=False, factory=Trees)
    """Watcher of the supervision trees, for the same reason shared by all runs."""
    takes_simulation: bool = attrs.field(
        init=False, default=attrs.Factory(lambda self: _takes_simulation(self.main), takes_self=True)
    )
    """True if main is called with the Simulation."""

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Prepare for runs: install the guards and the watcher of trees. Other threads wait meanwhile."""
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
        """Run the program once, and judge it. Never raises for what the program does, except KeyboardInterrupt.

        seed: of `Simulation.random`. choices: where perturbations come from; those of a list hit any task that they name,
        since `hits` has been applied when the list was made.

        detailed: write a trace for people. thoroughly: guard with the profile function, too. find_places: strike
        nowhere, and only find the checkpoints at which such a fault could.
        """
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
        """Return the program with the guards around it, inside the scope by which the scheduler can end it."""
        call = cast("Callable[..., Awaitable[object]]", self.main)
        args = (simulation,) if self.takes_simulation else ()

        async def main() -> None:
            """Run the program and keep its result. A cancel of the scope is the scheduler's, and ends it without an error.

            Run the program, and keep its result. Its errors leave through the scope of the scheduler.
            """
            with self.guards.watching(thoroughly=thoroughly), scheduler.scope:
                running = call(*args)
                if not inspect.isawaitable(running):
                    raise NoProgram(f"main has returned {running!r:.100} and is no async function; write `async def`")
                simulation.result = await running

        return main

    def _judge(self, simulation: Simulation) -> BaseException | None:
        """Return the reason why the run counts as failed, in the order of the module's docstring; None if it does not.

        An error group counts as allowed if all errors in it are. A Ctrl-C of the person at the keyboard is raised, and NoProgram.
        """
        error = simulation.error
        if error is not None and any(isinstance(leaf, KeyboardInterrupt | NoProgram) for leaf in leaf_errors(error)):
            raise error
        found = self.guards.caught or simulation._scheduler.problem
        if found is not None:
            return found
        if error is not None and not all(isinstance(leaf, self.allowed) for leaf in leaf_errors(error)):
            return error
        try:
            self.trees.check()
            if self.check is not None and inspect.isawaitable(self.check(simulation)):
                raise NoProgram("check is an async function, so it has checked nothing; write `def`")
        except (KeyboardInterrupt, NoProgram):
            raise
        except BaseException as wrong:
            return wrong
        return None


def _takes_simulation(main: Main) -> bool:
    """Return whether main has a parameter that must be given. Raises NoProgram if it cannot be called with one."""
    if not callable(main):
        raise NoProgram(f"main is {main!r:.100}; give an async function itself, which is called anew for each run")
    required = [
        item.name
        for item in inspect.signature(main).parameters.values()
        if item.default is item.empty and item.kind not in (item.VAR_POSITIONAL, item.VAR_KEYWORD)
    ]
    if len(required) > 1:
        raise NoProgram(f"main wants {', '.join(required)}; it may want one argument, which is the Simulation")
    return bool(required)


_run_count = itertools.count(1)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Collect garbage after a run and not within it."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.collect(0 if next(_run_count) % OLD_GARBAGE else 1)
        if was_enabled:
            gc.enable()
