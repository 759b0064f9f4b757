"""Several nodes share a database: nothing is lost or done twice, whatever fails when. docs/testing.md says how to run more."""

from __future__ import annotations

import os

import pytest

from actors.testing import Faults, SimulationFailed, simulate
from tests.simulation.nodes.cluster import Cluster
from tests.simulation.nodes.planted import PLANTED

SEEDS = int(os.environ.get("PEGASUS_SEEDS", "30"))
FIRST = int(os.environ.get("PEGASUS_FIRST_SEED", "0"))
REPLAY = os.environ.get("PEGASUS_REPLAY")
FEWER_STEPS = 20_000
"""Steps after which a life with a planted fault will come to no end; one without takes some thousand."""

ALLOWED = ("pegasus.observe", "pegasus.storage.database.node")
"""Time stamps in the log decide nothing, and names of processes only have to differ."""


def run(seeds=range(1), replay=None, **options):
    """Simulate the lives of these seeds, or repeat one schedule."""
    cluster = None

    async def main(simulation):
        nonlocal cluster
        cluster = Cluster(simulation)
        await cluster.run()

    def check(simulation):
        assert not (wrong := cluster.anomalies()), "\n".join(wrong)

    options = {"twice": 0, "faults": Faults(lag=6), "max_steps": 400_000} | options
    return simulate(main, seeds=seeds, replay=replay, check=check, allow=ALLOWED, **options)


def test_nothing_is_lost_or_done_twice():
    print(run(range(FIRST, FIRST + SEEDS), REPLAY, keep_going=True))


def test_a_life_is_the_same_again():
    run(range(2), twice=1)


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_an_engine_that_is_not_as_it_should_be_is_found_out(monkeypatch, plant):
    plant(monkeypatch)
    with pytest.raises(SimulationFailed):
        run(range(PLANTED[plant], PLANTED[plant] + 100), shrink=0, max_steps=FEWER_STEPS)
