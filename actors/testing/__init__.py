"""Test kit for programs on Trio, with or without actors: simulate them under many schedules, with faults.

A test gives the program's async function to `simulate`, which runs it once for each of many seeds, in virtual time::

    def test_the_stock() -> None:
        simulate(main, seeds=range(200), faults=Faults(crash=50), check=stock_is_not_negative)

`crash_at_every_checkpoint` and `cancel_at_every_checkpoint` try one fault at each await instead. `Probe`, `Trace` and
`check_tree` also work in ordinary tests, without a simulation. docs/simulation.md has a tour with examples that run.

The layers, from the bottom: the private parts of Trio (_trio.py), the perturbations and their sources (_faults.py), the
order of one run (_scheduler.py), guards against what differs between runs (_guards.py), one run with its verdict (_run.py),
shrinking (_shrink.py), and many runs
(_simulate.py). Beside them stand the scripted actor (_probe.py) and the checks of trees (_trees.py).

Nothing of `actors` itself imports this package, so a program in production never loads it.
"""

from actors.testing._faults import (
    BrokenTree,
    Deadlock,
    Endless,
    Faults,
    InjectedCrash,
    Kind,
    Nondeterminism,
    Perturbation,
    SimulationError,
    SimulationFailed,
    StaleReplay,
    actor_tasks,
    all_tasks,
)
from actors.testing._probe import Answers, Crashes, Fails, Hangs, Ignores, Keeps, Probe, ProbeCrash
from actors.testing._run import Simulation
from actors.testing._simulate import Report, cancel_at_every_checkpoint, crash_at_every_checkpoint, simulate
from actors.testing._trees import Trace, check_tree

__all__ = [
    "Answers",
    "BrokenTree",
    "Crashes",
    "Deadlock",
    "Endless",
    "Fails",
    "Faults",
    "Hangs",
    "Ignores",
    "InjectedCrash",
    "Keeps",
    "Kind",
    "Nondeterminism",
    "Perturbation",
    "Probe",
    "ProbeCrash",
    "Report",
    "Simulation",
    "SimulationError",
    "SimulationFailed",
    "StaleReplay",
    "Trace",
    "actor_tasks",
    "all_tasks",
    "cancel_at_every_checkpoint",
    "check_tree",
    "crash_at_every_checkpoint",
    "simulate",
]
