"""A year in an office with a conversation for each chat, which keeps every promise. docs/simulation.md describes it."""

from __future__ import annotations

import itertools
import os
from random import Random

import pytest
import trio
from trio.testing import MockClock

from pegasus.main_agent import think_loop
from pegasus.main_agent.session import files as session_files
from pegasus.schedule.scheduler import _JobScheduler
from tests.simulation.office.life import OfficeLife
from tests.simulation.office.verdict import OfficeVerdict

SEEDS = int(os.environ.get("PEGASUS_OFFICES", "1"))
FIRST = int(os.environ.get("PEGASUS_FIRST_OFFICE", "0"))
DAYS = int(os.environ.get("PEGASUS_OFFICE_DAYS", "0"))
"""365 for a whole year; without it the suite lives through some weeks."""
WEEKS = {"days": 21, "talks": 6.0, "facts": 1}
SHORT = {"days": 8, "talks": 3.0, "facts": 1}
"""Enough for a fault that strikes often."""


def lived(seed, **options):
    """A life that has ended, and the verdict."""
    life = OfficeLife(Random(seed), **options)
    trio.run(life.run, clock=MockClock(autojump_threshold=0))
    return life, OfficeVerdict(life)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_an_office_keeps_every_promise(seed):
    life, verdict = lived(seed, **({"days": DAYS} if DAYS else WEEKS))
    shares = " ".join(f"{form} {cache.share:.2%}" for form, cache in life.wires.caches.items())
    print(
        f"office {seed} ({life.story.recovery}): {life.story.days} days, {len(life.accepted)} messages,"
        f" {len(verdict.replies)} replies, {verdict.fired} runs of jobs, {life.agent.calls} thoughts, {life.worker.calls} in tasks,"
        f" {sum(life.agent.hit.values())} calls met an outage, {life.worlds} worlds, {dict(life.struck)},"
        f" {verdict.sessions} sessions, {verdict.compactions} compactions, {verdict.consolidations} consolidations,"
        f" at most {max(n for n, _ in life.counts)} Trio tasks,"
        f" cached: {shares}"
    )
    assert not verdict.wrong, "\n".join(verdict.wrong)


# ------------------------------------------------------------------ an agent that is not as it should be is found out


def test_chats_that_share_a_session_are_found_out(monkeypatch):
    monkeypatch.setattr(session_files, "chat_key", lambda chat: f"{chat.type}%3Aall")
    _, verdict = lived(5, **SHORT)
    assert any("has words of" in wrong for wrong in verdict.wrong)


@pytest.mark.parametrize("times", [0, 2])
def test_a_job_that_now_and_then_runs_not_at_all_or_twice_is_found_out(monkeypatch, times):
    calls = itertools.count()
    accept = _JobScheduler._accept

    async def sometimes_wrong(self, job, due):
        is_wrong = next(calls) % 5 == 4
        for number in range(times if is_wrong else 1):
            await trio.sleep(60 * number)  # the one before is not waiting any more
            await accept(self, job, due + number)
        return ""

    monkeypatch.setattr(_JobScheduler, "_accept", sometimes_wrong)
    _, verdict = lived(5, **SHORT)
    assert any("ran so often when it was due" in wrong for wrong in verdict.wrong)


def test_an_apology_that_is_never_made_is_found_out(monkeypatch):
    async def silence(*args):
        return None

    monkeypatch.setattr(think_loop, "apologise", silence)
    _, verdict = lived(5, **SHORT)
    assert any("no apology" in wrong for wrong in verdict.wrong)


def test_a_short_time_in_the_office_is_as_it_should_be():
    """The one that the tests above spoil."""
    life, verdict = lived(5, **SHORT)
    assert verdict.wrong == []
    assert life.agent.hit
