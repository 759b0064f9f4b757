"""Nothing accepted is lost and nothing is answered twice, whatever crashes when. docs/testing.md says how to run more of it."""

from __future__ import annotations

import itertools
import os

import attrs
import pytest

from actors.testing import Faults, SimulationFailed, simulate
from actors.testing._faults import AFTER
from pegasus.access.approval_store import _ApprovalStore
from pegasus.main_agent.session import ItemProgress, NextStep, Session
from pegasus.schedule import scheduler
from pegasus.schedule.jobs import job_item
from pegasus.storage import inbox
from tests.simulation.verdict import verdict
from tests.simulation.whole_tree import Life

SEEDS = int(os.environ.get("PEGASUS_SEEDS", "30"))
FIRST = int(os.environ.get("PEGASUS_FIRST_SEED", "0"))
REPLAY = os.environ.get("PEGASUS_REPLAY")
WEATHER = {
    "fair": Faults(crash=400, cancel=1200, delay=600, max_strikes=6),
    "storm": Faults(crash=60, cancel=300, delay=600, max_strikes=40),
}
OBSERVING = ("pegasus.observe",)
"""Time stamps in the log decide nothing."""


def run(seeds=range(1), replay=None, weather="fair", **options):
    """Simulate the lives of these seeds, or repeat one schedule."""
    life = None

    async def main(simulation):
        nonlocal life
        life = Life(simulation)
        await life.run()

    def check(simulation):
        strikes = sum(one.kind in AFTER for one in simulation.perturbations)
        problems = verdict(life, strikes + life.worlds)
        assert not problems, "\n".join(problems)

    try:
        return simulate(
            main, seeds=seeds, replay=replay, faults=WEATHER[weather], check=check, allow=OBSERVING, **options
        )
    except SimulationFailed as error:
        error.add_note(f"PEGASUS_REPLAY={error.replay!r} ./scripts/test tests/simulation/test_whole_tree.py -k fair")
        raise


@pytest.mark.parametrize("weather", WEATHER)
def test_everything_accepted_is_answered_exactly_once(weather):
    print(weather, run(range(FIRST, FIRST + SEEDS), REPLAY, weather, twice=0, keep_going=True))


@pytest.mark.parametrize(("weather", "seed"), [("fair", 770026), ("storm", 4200168)])
def test_an_agent_that_gives_up_a_tool_that_goes_in_circles_says_what_is_true(weather, seed):
    run([seed], weather=weather, twice=0)


def test_the_result_of_a_reply_that_a_full_disk_has_refused_is_written_later():
    run([28000572], twice=0)


def test_a_journal_that_dies_while_a_group_fails_to_start_holds_up_nobody():
    run([27000652], weather="storm", twice=0)


def test_an_owner_whose_answer_a_full_disk_refuses_is_told_so():
    run([21157], twice=0)


def test_a_life_is_the_same_again():
    run(range(2), weather="storm", twice=1)


def forget_what_was_done(monkeypatch):
    monkeypatch.setattr(Session, "progress", lambda session, n, message_id=None: ItemProgress(NextStep.RECORD))


def forget_what_was_accepted(monkeypatch):
    monkeypatch.setattr(inbox.InboxLog, "_replay_message", lambda log, record, span: None)


def run_jobs_under_keys_that_change(monkeypatch):
    runs = itertools.count()

    def changing_item(job, due):
        return attrs.evolve(item := job_item(job, due), id=f"{item.id}/{next(runs)}")

    monkeypatch.setattr(scheduler, "job_item", changing_item)


def let_every_answer_count(monkeypatch):
    monkeypatch.setattr(_ApprovalStore, "_get", lambda store, id: store._approvals[id])


@pytest.mark.parametrize(
    ("sabotage", "weather", "first"),
    [
        (forget_what_was_done, "fair", 0),
        (forget_what_was_accepted, "fair", 0),
        (run_jobs_under_keys_that_change, "storm", 75),  # life 76 finds it, as do about four of a hundred
        (let_every_answer_count, "fair", 0),
    ],
)
def test_an_agent_that_forgets_or_repeats_is_found_out_and_its_failure_repeated(monkeypatch, sabotage, weather, first):
    sabotage(monkeypatch)
    with pytest.raises(SimulationFailed) as found:
        run(range(first, first + 100), weather=weather, twice=0, shrink=10)
    with pytest.raises(SimulationFailed) as again:
        run(replay=found.value.replay)
    assert str(again.value.__cause__) == str(found.value.__cause__)
