"""A month in the life of the whole agent, which keeps every promise, whatever crashes. docs/testing.md says how to run more of it."""

from __future__ import annotations

import os
from random import Random

import pytest
import trio
from trio.testing import MockClock

from tests.simulation.thirty_days.life import Life
from tests.simulation.thirty_days.verdict import Verdict

SEEDS = int(os.environ.get("PEGASUS_LIVES", "1"))
FIRST = int(os.environ.get("PEGASUS_FIRST_LIFE", "0"))


def lived(seed, **options):
    """A life that has ended, and the verdict."""
    life = Life(Random(seed), **options)
    trio.run(life.run, clock=MockClock(autojump_threshold=0))
    return life, Verdict(life)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_thirty_days_keep_every_promise(seed):
    life, verdict = lived(seed)
    shares = " ".join(f"{form} {cache.share:.2%}" for form, cache in life.wires.caches.items())
    print(
        f"life {seed}: {len(life.accepted)} messages, {len(verdict.replies)} replies, {life.agent.calls} thoughts,"
        f" {life.worker.calls} in tasks, {life.worlds} worlds, {dict(life.struck)}, {verdict.sessions} sessions,"
        f" {verdict.compactions} compactions, cached: {shares}"
    )
    assert not verdict.wrong, "\n".join(verdict.wrong)
