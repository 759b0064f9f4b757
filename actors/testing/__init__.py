"""Test kit for programs on Trio, with or without actors: simulate them under many schedules, with faults.

docs/simulation.md shows how. Nothing of `actors` itself imports this.
"""

from actors.testing._errors import (
    BrokenTree,
    Deadlock,
    Endless,
    InjectedCrash,
    Nondeterminism,
    SimulationError,
    SimulationFailed,
    StaleReplay,
)
from actors.testing._faults import Faults, Kind, Perturbation, actor_tasks, all_tasks
from actors.testing._invariants import check_tree
from actors.testing._probe import Answers, Crashes, Fails, Hangs, Ignores, Keeps, Probe, ProbeCrash
from actors.testing._run import Simulation
from actors.testing._simulate import Report, cancel_at_every_checkpoint, crash_at_every_checkpoint, simulate
from actors.testing._trace import Trace

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
