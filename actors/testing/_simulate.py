"""Many runs of one program, each under another schedule."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import attrs

from actors.testing._errors import InjectedCrash, Nondeterminism, SimulationFailed, leaves
from actors.testing._faults import Choices, Faults, Listed, Seeded
from actors.testing._plan import Perturbation, from_token, to_token
from actors.testing._run import Check, Main, Program, Simulation
from actors.testing._shrink import Shrinker
from actors.testing._trace import first_difference
from actors.testing._trio import canary

TWICE_AT_FIRST = 100
"""So many of the first seeds are run twice, whatever `twice` says."""
THOROUGH_AT_FIRST = 10
THOROUGH_EVERY = 200
"""The second runs of these are watched more closely, which takes several times as long."""
LAST_LINES = 40
"""Of a trace, in the text of an error."""


@attrs.frozen
class Report:
    """What was done.

    schedules: runs of different seeds. runs: all runs. steps: of tasks, in all runs together. places: checkpoints that
    were crashed or cancelled one by one.
    """

    schedules: int
    runs: int
    steps: int
    places: int = 0


def simulate(
    main: Main,
    *,
    seeds: Iterable[int] = range(100),
    faults: Faults = Faults(),
    check: Check | None = None,
    allowed: Collection[type[BaseException]] = (),
    replay: str | None = None,
    twice: int = 10,
    max_steps: int = 100_000,
    shrink: int = 1000,
    allow: Collection[str] = (),
) -> Report:
    """Run `main` once for each seed, in virtual time, each time with another order of its tasks, lags and faults.

    main: any async function; if it has a parameter, it is given the Simulation. A run fails if main raises (other than
    `allowed` and injected crashes), if `check(simulation)` raises afterwards, if a supervision tree was not sound at its
    end, if all tasks wait for ever (Deadlock), if it takes more than `max_steps` steps of tasks, and if it uses the
    global random source, the wall clock, threads or sockets (but for modules that are named in `allow`).

    Raises SimulationFailed for the first seed that fails, after at most `shrink` more runs to find the fewest
    perturbations that it takes; its text has the line for `replay`, which runs that schedule alone. The first 100 seeds
    and then every `twice`-th are run twice, and must do the same in both runs (1: each, 0: none).

    Not async: it calls trio.run. Seeded, so it always does the same.
    """
    canary()
    allowed = (*allowed, InjectedCrash)
    program = Program(main, check, allowed, faults.hits, max_steps, allow=tuple(allow))
    with program.watched():
        if replay is not None:
            return _replay(program, replay)
        return _explore(program, seeds, faults, twice, shrink)


def _explore(program: Program, seeds: Iterable[int], faults: Faults, twice: int, shrink: int) -> Report:
    schedules = runs = steps = 0
    tried = []
    for index, seed in enumerate(seeds):
        again = bool(twice) and (index < TWICE_AT_FIRST or index % twice == 0)
        simulation = program.run(seed, Seeded(seed, faults))
        tried.append(seed)
        schedules, runs, steps = schedules + 1, runs + 1, steps + simulation._scheduler.taken
        if simulation.failure is not None:
            raise found(program, simulation, shrink, f"seed {seed}, the {ordinal(index + 1)} that was tried,")
        if again:
            thoroughly = index < THOROUGH_AT_FIRST or index % THOROUGH_EVERY == 0
            repeat(program, simulation, Seeded(seed, faults), thoroughly=thoroughly)
            runs, steps = runs + 1, steps + simulation._scheduler.taken
    if not schedules:
        raise ValueError("there are no seeds, so nothing was simulated")
    if program.check is None and program.guards.random_moved:
        _find_use(program, tried, faults)
    return Report(schedules, runs, steps)


def _find_use(program: Program, seeds: list[int], faults: Faults) -> None:
    """Somebody has used the global random source by a name of his own: look who, unless it was another thread."""
    for seed in seeds:
        simulation = program.run(seed, Seeded(seed, faults), thoroughly=True)
        if simulation.failure is not None:
            raise failed(simulation, f"seed {seed}", simulation.perturbations)


def _replay(program: Program, token: str) -> Report:
    seed, perturbations = from_token(token)
    simulation = program.run(seed, Listed(perturbations), detailed=True)
    if simulation.failure is not None:
        raise failed(simulation, "the replayed schedule", simulation.perturbations)
    return Report(1, 1, simulation._scheduler.taken)


# ------------------------------------------------------------ the same twice


def repeat(program: Program, first: Simulation, choices: Choices, *, thoroughly: bool) -> None:
    """Run it once more. SimulationFailed if it does anything else, or uses what it must not."""
    second = program.run(first.seed, choices, thoroughly=thoroughly)
    if second.failure is not None and isinstance(second.failure, Nondeterminism):
        raise failed(second, f"seed {first.seed}", ())
    if second._scheduler.steps == first._scheduler.steps and type(second.failure) is type(first.failure):
        return
    perturbations = first.perturbations
    one = program.run(first.seed, Listed(perturbations), detailed=True)
    other = program.run(first.seed, Listed(perturbations), detailed=True)
    difference = first_difference(one.lines, other.lines) or first_difference(first.lines, second.lines)
    second.failure = Nondeterminism(
        f"two runs of the same schedule differ; something does not depend on the seed alone:\n{difference}"
    )
    raise failed(second, f"seed {first.seed}", perturbations)


# ------------------------------------------------------------ failures


def found(program: Program, simulation: Simulation, shrink: int, which: str) -> SimulationFailed:
    """Shrink a run that has failed, and say all about it."""
    seed, kind = simulation.seed, _kind(simulation.failure)

    def fails(schedule: tuple[Perturbation, ...]) -> tuple[Perturbation, ...] | None:
        run = program.run(seed, Listed(schedule))
        return run.perturbations if run.failure is not None and _kind(run.failure) == kind else None

    schedule = simulation.perturbations
    again = fails(schedule)
    if again is None:
        repeated = program.run(seed, Listed(schedule))
        difference = first_difference(simulation.lines, repeated.lines)
        simulation.failure = Nondeterminism(
            f"it failed once ({_summary(simulation.failure)}) and not again under the same schedule:\n{difference}"
        )
        return failed(simulation, which, schedule)
    schedule = Shrinker(fails, shrink).shrink(again)
    last = program.run(seed, Listed(schedule), detailed=True)
    return failed(last if last.failure is not None else simulation, which, schedule)


def failed(simulation: Simulation, which: str, schedule: tuple[Perturbation, ...]) -> SimulationFailed:
    """The error that tells of a run."""
    token = to_token(simulation.seed, schedule)
    done = simulation._scheduler.done
    reasons = "".join(f"\n  - {one.describe()}{_where(done.get(one))}" for one in schedule)
    lines = simulation.lines
    left_out = f"\n  ({len(lines) - LAST_LINES} lines before)" if len(lines) > LAST_LINES else ""
    text = (
        f"{which} fails: {_summary(simulation.failure)}\n"
        f"{_how_many(len(schedule))}{reasons}\nRun it again: simulate(main, replay={token!r})\n"
        f"Trace:{left_out}" + "".join(f"\n  {line}" for line in lines[-LAST_LINES:])
    )
    error = SimulationFailed(text, seed=simulation.seed, replay=token, lines=lines)
    error.__cause__ = simulation.failure
    return error


def _kind(error: BaseException | None) -> tuple[type, ...]:
    return () if error is None else tuple(type(leaf) for leaf in leaves(error))


def _summary(error: BaseException | None) -> str:
    if error is None:
        return "nothing"
    return "; ".join(f"{type(leaf).__name__}: {leaf}" for leaf in leaves(error))


def _how_many(perturbations: int) -> str:
    if not perturbations:
        return "It takes no perturbation: with this seed it fails in the plain order of tasks."
    return f"It takes {perturbations} perturbation{'s' * (perturbations > 1)}:"


def _where(place: str | None) -> str:
    return f" ({place})" if place else ""


def ordinal(number: int) -> str:
    """Give "1st", "2nd", "3rd", "4th" and so on."""
    tens = 10 < number % 100 < 14
    return f"{number}{'th' if tens else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"
