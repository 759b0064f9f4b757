"""A crash, or a cancel, at each checkpoint that a program has, one run for each."""

from __future__ import annotations

from collections.abc import Callable, Collection

from trio.lowlevel import Task

from actors.testing._errors import InjectedCrash, Nondeterminism
from actors.testing._faults import Faults, Listed, Seeded, actor_tasks
from actors.testing._plan import Kind, Perturbation
from actors.testing._run import Check, Main, Program
from actors.testing._simulate import Report, failed, found, ordinal
from actors.testing._trio import canary


def crash_at_every_checkpoint(
    main: Main,
    *,
    check: Check | None = None,
    hits: Callable[[Task], bool] = actor_tasks,
    allowed: Collection[type[BaseException]] = (),
    most: int = 1000,
    seed: int | None = None,
    max_steps: int = 100_000,
    allow: Collection[str] = (),
) -> Report:
    """Run `main` once to find the checkpoints of its tasks, then once for each of them, with an InjectedCrash there.

    hits: which tasks, actors unless it says otherwise. allowed: errors that main may end with in those runs, beside an
    InjectedCrash. check: called after each run. most: if there are more checkpoints, every second, third… is taken.
    seed: the order of tasks and their lags; None: tasks run in the order in which they were spawned.

    What counts as failed, SimulationFailed, and the line to replay it are those of `simulate`, which also replays it.
    """
    return _at_every(Kind.CRASH, main, check, hits, allowed, most, seed, max_steps, allow)


def cancel_at_every_checkpoint(
    main: Main,
    *,
    check: Check | None = None,
    hits: Callable[[Task], bool] = actor_tasks,
    allowed: Collection[type[BaseException]] = (),
    most: int = 1000,
    seed: int | None = None,
    max_steps: int = 100_000,
    allow: Collection[str] = (),
) -> Report:
    """As `crash_at_every_checkpoint`, with a cancel at each of them.

    An actor is killed as its supervisor would; for any other task the nursery is cancelled that it lives in, and for
    the task of `main` all of it.
    """
    return _at_every(Kind.CANCEL, main, check, hits, allowed, most, seed, max_steps, allow)


def _at_every(
    kind: Kind,
    main: Main,
    check: Check | None,
    hits: Callable[[Task], bool],
    allowed: Collection[type[BaseException]],
    most: int,
    seed: int | None,
    max_steps: int,
    allow: Collection[str],
) -> Report:
    canary()
    program = Program(main, check, (*allowed, InjectedCrash), hits, max_steps, tuple(allow))
    with program.watched():
        first = program.run(seed or 0, Listed(()) if seed is None else Seeded(seed, Faults()), find_places=kind)
        if first.failure is not None:
            raise failed(first, "the program without any fault", first.perturbations)
        places = first._scheduler.places
        chosen = places[:: -(-len(places) // most)] if places else []
        steps = first._scheduler.taken
        for number, (task, step) in enumerate(chosen, 1):
            strike = Perturbation(kind, task, step, 0)
            run = program.run(first.seed, Listed((*first.perturbations, strike)))
            steps += run._scheduler.taken
            if run.failure is None and strike not in run.perturbations:
                run.failure = Nondeterminism(
                    f"{task} is not at its checkpoint {step} in every run of the same schedule"
                )
            if run.failure is not None:
                raise found(program, run, 200, f"the {ordinal(number)} of {len(chosen)} places")
    return Report(1, 1 + len(chosen), steps, len(chosen))
