"""Many runs of one program: each under another schedule (`simulate`), or each with a fault at another checkpoint.

A run that fails is shrunk to one that fails in the same way with as few and as simple perturbations as possible, and
reported with the call that repeats it. "In the same way" means: with errors of the same types.

Runs are compared, too: the first seeds, and after them every tenth, are run twice and must do the same. Otherwise
something in the program does not depend on the seed, and no line could repeat a failure.

**Exploring and replaying use different sources of perturbations.** A seed is run with `Seeded`, which draws them; the ones
that took effect are recorded. Everything after that (the comparison, shrinking, the replay of a line) uses `Listed` with
that record. So a failure can only be reported if it also happens under the recorded list; if not, the run depends on
something else, and that is reported instead.

**A simulation that tests nothing fails**: no seeds, faults that no task can be hit by, a replayed line that no longer fits
the program. Otherwise a test could stay green after a rename while it has stopped testing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Final

import attrs
from trio.lowlevel import Task

from actors._events import leaf_errors
from actors.testing._faults import (
    AFTER,
    Choices,
    Faults,
    InjectedCrash,
    Kind,
    Listed,
    Nondeterminism,
    Perturbation,
    Seeded,
    SimulationFailed,
    StaleReplay,
    actor_tasks,
    from_token,
    to_token,
)
from actors.testing._run import Check, Main, Program, Simulation
from actors.testing._shrink import Shrinker
from actors.testing._trees import first_difference
from actors.testing._trio import canary

TWICE_AT_FIRST: Final = 100
"""Number of the first seeds that are run twice, unless `twice` is 0."""
THOROUGH_AT_FIRST: Final = 10
THOROUGH_EVERY: Final = 200
"""Number of the first seeds, and distance of the later ones, whose second run is watched more closely (see _guards.py).

That takes several times as long. A use of the wall clock is mostly in every run, so a few runs find it.
"""
LAST_LINES: Final = 40
"""Number of lines of the trace in the text of an error."""
MAX_STEPS: Final = 100_000
"""Default for the steps that a run may take."""
SHRINK_STEPS: Final = 5_000_000
"""Steps that the runs of a shrinking may take together, about. A run that does not end is as long as a hundred others."""
TOO_RARE: Final = 10
"""Runs with so many times the checkpoints would have to be made before a fault is to be expected: then it was not meant to come."""
HITS_ADVICE: Final = "the default is the tasks of actors: pass hits=all_tasks for a program without actors"


@attrs.frozen
class Report:
    """Result of a simulation that has found nothing, for a test to see that enough was tried.

    ::

        assert crash_at_every_checkpoint(main).places >= 20
    """

    schedules: int
    """Number of different seeds."""
    runs: int
    """Number of runs, with those that were repeated."""
    steps: int
    """Number of steps of tasks, in all runs together."""
    places: int = 0
    """Number of checkpoints that were crashed or cancelled one by one."""
    crashes: int = 0
    """Number of crashes that took effect, in all runs together that were not repetitions."""
    cancels: int = 0
    """Number of cancels, likewise."""
    delays: int = 0
    """Number of delays, likewise."""


def simulate(
    main: Main,
    *,
    seeds: Iterable[int] = range(100),
    faults: Faults = Faults(),
    check: Check | None = None,
    allowed: Collection[type[BaseException]] = (),
    replay: str | None = None,
    twice: int = 10,
    keep_going: bool = False,
    max_steps: int = MAX_STEPS,
    shrink: int = 1000,
    allow: Collection[str] = (),
) -> Report:
    """Run `main` once for each seed, in virtual time, each time with another order of its tasks, lags and faults.

    main: any async function; if it has a parameter, it is given the Simulation. A run fails if main raises (other than
    `allowed` and injected crashes), if `check(simulation)` raises afterwards, if a supervision tree was not sound at its
    end, if all tasks wait for ever (Deadlock), if it takes more than `max_steps` steps of tasks, and if it uses the
    global random source, the wall clock, threads or sockets (but for modules that are named in `allow`).

    Raises SimulationFailed for the first seed that fails, after at most `shrink` more runs, and fewer long ones, to find the fewest
    perturbations that it takes; its text has the call with `replay`, which runs that schedule alone. A replay of which
    some perturbation does not take place any more fails with StaleReplay. The first 100 seeds and then every `twice`-th
    are run twice, and must do the same in both runs (1: each, 0: none). keep_going: run all seeds, and report each that fails.

    Raises ValueError if there are no seeds, if faults are wanted but no run has a task that they may hit, and if a wanted kind of
    fault never took effect and is far rarer than there were checkpoints for it. Raises TypeError if main is no async function.

    Not async: it calls trio.run. It always does the same for the same arguments.
    """
    canary()
    allowed = (*allowed, InjectedCrash)
    program = Program(main, check, allowed, faults.hits, max_steps, allow=tuple(allow))
    if not isinstance(seeds, Iterable):
        raise TypeError(f"seeds={seeds!r:.100}: give the seeds themselves, such as range(5)")
    with program.watched():
        if replay is not None:
            return _replay(program, replay)
        return _explore(program, seeds, faults, twice, shrink, keep_going=keep_going)


def _explore(
    program: Program, seeds: Iterable[int], faults: Faults, twice: int, shrink: int, *, keep_going: bool
) -> Report:
    """Run each seed, and some of them twice. Raises SimulationFailed for the first that fails, or for all in the end.

    The global random source is compared at the end only if there is no `check`: a check runs outside the guards, and may
    use that source as it likes.
    """
    schedules = runs = steps = 0
    failures: list[SimulationFailed] = []
    took, drawn = Counter[Kind](), Counter[Kind]()
    hit_nobody = faults.strikes or faults.delay > 0
    tried = []
    for index, seed in enumerate(seeds):
        again = bool(twice) and (index < TWICE_AT_FIRST or index % twice == 0)
        simulation = program.run(seed, Seeded(seed, faults))
        tried.append(seed)
        hit_nobody = hit_nobody and not simulation._scheduler.found_target
        schedules, runs, steps = schedules + 1, runs + 1, steps + simulation._scheduler.taken
        took.update(item.kind for item in simulation.perturbations)
        for kind in AFTER:
            drawn[kind] += simulation._scheduler.strikes_drawn
        drawn[Kind.DELAY] += simulation._scheduler.delays_drawn
        try:
            if simulation.failure is not None:
                raise found(program, simulation, shrink, f"seed {seed}, the {ordinal(index + 1)} that was tried,")
            if again:
                thoroughly = index < THOROUGH_AT_FIRST or index % THOROUGH_EVERY == 0
                repeat(program, simulation, Seeded(seed, faults), thoroughly=thoroughly)
                runs, steps = runs + 1, steps + simulation._scheduler.taken
        except SimulationFailed as failure:
            if not keep_going:
                raise
            failures.append(failure)
    if failures:
        raise _all_of(failures, schedules)
    if not schedules:
        raise ValueError("there are no seeds, so nothing was simulated")
    if hit_nobody:
        raise ValueError(f"faults were wanted, but no task of the program may be hit by them; {HITS_ADVICE}")
    for kind, rarity in ((Kind.CRASH, faults.crash), (Kind.CANCEL, faults.cancel), (Kind.DELAY, faults.delay)):
        if not took[kind] and TOO_RARE * drawn[kind] < rarity and (kind is Kind.DELAY or faults.strikes):
            raise ValueError(
                f"{kind.value}={rarity}: one in so many checkpoints; all runs together had {drawn[kind]}, and none took effect"
            )
    if program.check is None and program.guards.random_moved:
        _find_use(program, tried, faults)
    return Report(schedules, runs, steps, crashes=took[Kind.CRASH], cancels=took[Kind.CANCEL], delays=took[Kind.DELAY])


def _all_of(failures: list[SimulationFailed], schedules: int) -> SimulationFailed:
    """Return the error for these failures: the only one as it is, else one with the texts of all, and otherwise like the first."""
    first = failures[0]
    if len(failures) == 1:
        return first
    text = f"{len(failures)} of {schedules} seeds fail.\n\n" + "\n\n".join(map(str, failures))
    error = SimulationFailed(text, seed=first.seed, replay=first.replay, lines=first.lines)
    error.__cause__ = first.__cause__
    return error


def _find_use(program: Program, seeds: list[int], faults: Faults) -> None:
    """Run the seeds again with the profile function, and fail at the first use of the global random source.

    If none is found, the source was used outside the runs or by another thread, which is no fault of the program.
    """
    for seed in seeds:
        simulation = program.run(seed, Seeded(seed, faults), thoroughly=True)
        if simulation.failure is not None:
            raise failed(program, simulation, f"seed {seed}", simulation.perturbations)


def _replay(program: Program, token: str) -> Report:
    """Run the schedule of a line once. It fails as the program does, or with StaleReplay if the line does not fit."""
    seed, perturbations = from_token(token)
    simulation = program.run(seed, Listed(perturbations), detailed=True)
    missing = [wanted for wanted in perturbations if wanted not in simulation.perturbations]
    if simulation.failure is None and missing:
        texts = "; ".join(wanted.describe() for wanted in missing)
        simulation.failure = StaleReplay(
            f"the line does not fit the program any more; nowhere in the run was it possible that {texts}"
        )
        text = f"{simulation.failure}. Without that the run passes, which says nothing; search again with seeds, or remove the line."
        error = SimulationFailed(text, seed=seed, replay=token, lines=simulation.lines)
        raise error from simulation.failure
    if simulation.failure is not None:
        raise failed(program, simulation, "the replayed schedule", simulation.perturbations)
    return Report(1, 1, simulation._scheduler.taken)


# ------------------------------------------------------------ the same twice


def repeat(program: Program, first: Simulation, choices: Choices, *, thoroughly: bool) -> None:
    """Run a schedule once more. Raise SimulationFailed if it does anything else, or uses what it must not.

    The two runs were not detailed. To show the first difference in words, the recorded schedule is run twice more with a
    trace. If those two happen to be equal, the difference of the first two is shown, without places.
    """
    second = program.run(first.seed, choices, thoroughly=thoroughly)
    if second.failure is not None and isinstance(second.failure, Nondeterminism):
        raise failed(program, second, f"seed {first.seed}", ())
    if second._scheduler.steps == first._scheduler.steps and type(second.failure) is type(first.failure):
        return
    perturbations = first.perturbations
    once = program.run(first.seed, Listed(perturbations), detailed=True)
    again = program.run(first.seed, Listed(perturbations), detailed=True)
    difference = first_difference(once.lines, again.lines) or first_difference(first.lines, second.lines)
    second.failure = Nondeterminism(
        f"two runs of the same schedule differ; something does not depend on the seed alone:\n{difference}"
    )
    raise failed(program, second, f"seed {first.seed}", perturbations)


# ------------------------------------------------------------ failures


def found(program: Program, simulation: Simulation, shrink: int, which: str) -> SimulationFailed:
    """Shrink a run that has failed, and return the error that reports it.

    First the recorded schedule is run again. If that does not fail in the same way, nothing can be shrunk, and the report
    is about the difference. The last run is detailed, for the trace in the report.

    shrink: most runs for that. which: begin of the report's first sentence, such as "seed 3".
    """
    seed, kind = simulation.seed, _kind(simulation.failure)

    def fails(schedule: tuple[Perturbation, ...]) -> tuple[Perturbation, ...] | None:
        """Run a schedule again. Return what took effect if it failed with errors of the same types, else None.

        Return the perturbations that took effect if the schedule fails in the same way; None if it does not.
        """
        run = program.run(seed, Listed(schedule))
        return run.perturbations if run.failure is not None and _kind(run.failure) == kind else None

    schedule = simulation.perturbations
    again = fails(schedule)
    # Not the seed but something else decides, so leaving out perturbations would compare runs that have nothing to do
    # with each other.
    if again is None:
        repeated = program.run(seed, Listed(schedule))
        difference = first_difference(simulation.lines, repeated.lines)
        simulation.failure = Nondeterminism(
            f"it failed once ({_summary(simulation.failure)}) and not again under the same schedule:\n{difference}"
        )
        return failed(program, simulation, which, schedule)
    # From what took effect, not from what was listed: a perturbation without effect is left out at once.
    schedule = Shrinker(fails, min(shrink, SHRINK_STEPS // (simulation._scheduler.taken + 1))).shrink(again)
    last = program.run(seed, Listed(schedule), detailed=True)
    return failed(program, last if last.failure is not None else simulation, which, schedule)


def failed(
    program: Program, simulation: Simulation, which: str, schedule: tuple[Perturbation, ...]
) -> SimulationFailed:
    """Return the error that reports a run.

    Its text has the reason, the perturbations in words, the call that repeats the run, and the last lines of the trace.
    """
    token = to_token(simulation.seed, schedule)
    done = simulation._scheduler.done
    reasons = "".join(f"\n  - {item.describe()}{_where(done.get(item))}" for item in schedule)
    lines = simulation.lines
    left_out = f"\n  ({len(lines) - LAST_LINES} lines before)" if len(lines) > LAST_LINES else ""
    text = (
        f"{which} fails: {_summary(simulation.failure)}\n"
        f"{_how_many(len(schedule))}{reasons}\nRun it again: {_replay_call(program, token)}\n"
        f"Trace:{left_out}" + "".join(f"\n  {line}" for line in lines[-LAST_LINES:])
    )
    error = SimulationFailed(text, seed=simulation.seed, replay=token, lines=lines)
    error.__cause__ = simulation.failure
    return error


def _replay_call(program: Program, token: str) -> str:
    """Return the call that repeats a run, with all arguments that decide whether it fails."""
    arguments = ["main"]
    if program.check is not None:
        name = getattr(program.check, "__name__", "")
        arguments.append(f"check={name if name.isidentifier() else '…'}")
    allowed = ", ".join(kind.__name__ for kind in program.allowed if kind is not InjectedCrash)
    if allowed:
        arguments.append(f"allowed=[{allowed}]")
    arguments.append(f"replay={token!r}")
    if program.max_steps != MAX_STEPS:
        arguments.append(f"max_steps={program.max_steps}")
    if program.allow:
        arguments.append(f"allow={list(program.allow)!r}")
    return f"simulate({', '.join(arguments)})"


def _kind(error: BaseException | None) -> tuple[type, ...]:
    """Return the types of the errors in a failure. Two failures are the same for the search if these are equal.

    Texts are not compared: they often hold a time or a number that depends on the perturbations that are left out.
    """
    return () if error is None else tuple(type(leaf) for leaf in leaf_errors(error))


def _summary(error: BaseException | None) -> str:
    if error is None:
        return "nothing"
    return "; ".join(f"{type(leaf).__name__}: {leaf}" for leaf in leaf_errors(error))


def _how_many(perturbations: int) -> str:
    if not perturbations:
        return "It takes no perturbation: with this seed it fails in the plain order of tasks."
    return f"It takes {perturbations} perturbation{'s' * (perturbations > 1)}:"


def _where(place: str | None) -> str:
    return f" ({place})" if place else ""


def ordinal(number: int) -> str:
    """Return "1st", "2nd", "3rd", "4th" and so on."""
    tens = 10 < number % 100 < 14
    return f"{number}{'th' if tens else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


# ------------------------------------------------------------ a fault at each checkpoint


def _at_every(
    kind: Kind,
    main: Main,
    *,
    check: Check | None = None,
    hits: Callable[[Task], bool] = actor_tasks,
    allowed: Collection[type[BaseException]] = (),
    max_places: int = 1000,
    seed: int | None = None,
    max_steps: int = MAX_STEPS,
    allow: Collection[str] = (),
) -> Report:
    """Run `main` once to find the checkpoints of its tasks, then once for each of them, with a fault there.

    hits: which tasks; the default is the tasks of actors, so a program without actors needs `hits=all_tasks`. allowed:
    errors that main may end with in those runs, beside an InjectedCrash. check: called after each run. max_places: if
    there are more checkpoints, every second, third… is taken. seed: the order of tasks and their lags; None: tasks run in the
    order in which they were spawned.

    Raises ValueError if there is no checkpoint to strike at. What counts as failed, SimulationFailed, and the line to
    replay it are those of `simulate`, which also replays it.

    The places are those of one schedule, the first run's. The later runs repeat its perturbations and add one fault, so
    up to the fault each is the same run, and the place must be met again. If it is not, that is reported.
    """
    canary()
    program = Program(main, check, (*allowed, InjectedCrash), hits, max_steps, tuple(allow))
    with program.watched():
        first = program.run(seed or 0, Listed(()) if seed is None else Seeded(seed, Faults()), find_places=kind)
        if first.failure is not None:
            raise failed(program, first, "the program without any fault", first.perturbations)
        places = first._scheduler.places
        if not places:
            raise ValueError(f"the program has no checkpoint at which a task may be hit; {HITS_ADVICE}")
        chosen = places[:: -(-len(places) // max_places)] if places else []
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
    struck = {Kind.CRASH: "crashes", Kind.CANCEL: "cancels"}[kind]
    return attrs.evolve(Report(1, 1 + len(chosen), steps, len(chosen)), **{struck: len(chosen)})


crash_at_every_checkpoint = partial(_at_every, Kind.CRASH)
"""Run `main` once for each checkpoint of its tasks, with an InjectedCrash there; see `_at_every` for the arguments.

::

    report = crash_at_every_checkpoint(main, check=every_order_is_answered)
    assert report.places >= 20
"""
cancel_at_every_checkpoint = partial(_at_every, Kind.CANCEL)
"""The same with a cancel at each of them.

An actor is killed as its supervisor would; for any other task the nursery is cancelled that it lives in, and for the task
of `main` all of it.
"""
