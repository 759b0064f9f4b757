"""A month in the life of the whole agent, which keeps every promise, whatever crashes. docs/testing.md says how to run more of it."""

from __future__ import annotations

import os
from random import Random

import pytest
import trio
from trio.testing import MockClock

from pegasus.main_agent.compaction import open_items
from pegasus.memory import Memory, Written
from pegasus.settings import AgentSettings
from tests.simulation.thirty_days.life import Life
from tests.simulation.thirty_days.verdict import Verdict

SEEDS = int(os.environ.get("PEGASUS_LIVES", "1"))
FIRST = int(os.environ.get("PEGASUS_FIRST_LIFE", "0"))
TROUBLES = int(os.environ.get("PEGASUS_TROUBLES", "1"))


def lived(seed, **options):
    """A life that has ended, and the verdict."""
    life = Life(Random(seed), **options)
    trio.run(life.run, clock=MockClock(autojump_threshold=0))
    return life, Verdict(life)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_thirty_days_keep_every_promise(seed):
    life, verdict = lived(seed, troubles=TROUBLES)
    shares = " ".join(f"{form} {cache.share:.2%}" for form, cache in life.wires.caches.items())
    print(
        f"life {seed} ({life.story.when_busy}, {life.story.recovery}): {len(life.accepted)} messages, {len(verdict.replies)} replies,"
        f" {life.agent.calls} thoughts, {life.worker.calls} in tasks, {life.worlds} worlds, {dict(life.struck)},"
        f" {verdict.sessions} sessions, {verdict.compactions} compactions, {life.agent.summaries} summaries,"
        f" {life.agent.overflows} overflows, cached: {shares}"
    )
    assert not verdict.wrong, "\n".join(verdict.wrong)


SHORT = {"talks": 1, "facts": 1}
"""Enough for a fault that strikes often."""


# ------------------------------------------------------------------ an agent that is not as it should be is found out


def test_an_agent_whose_thoughts_are_heard_is_found_out():
    _, verdict = lived(1, **SHORT, agent=AgentSettings(speech="direct"))
    assert any("a private word" in wrong for wrong in verdict.wrong)


def test_an_agent_that_forgets_what_it_was_told_is_found_out(monkeypatch):
    async def append(*args):
        return Written(0)

    monkeypatch.setattr(Memory, "append", append)
    _, verdict = lived(1, **SHORT)
    assert any("memory of" in wrong for wrong in verdict.wrong)


def test_a_compaction_that_carries_nothing_over_is_found_out(monkeypatch):
    monkeypatch.setattr(open_items, "_item_sections", lambda items: [])
    _, verdict = lived(3, talks=5, facts=1)
    assert any("knows nothing of the tasks" in wrong for wrong in verdict.wrong)


def test_a_short_life_is_as_it_should_be():
    """The one that the tests above spoil."""
    assert lived(1, **SHORT)[1].wrong == []
