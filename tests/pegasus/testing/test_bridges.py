"""The conformance suite: bridges that keep less than they declare are found out."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

from pegasus.testing.bridges.plain import PlainService
from pegasus.testing.bridges.steps import Step
from pegasus.testing.bridges.suite import examine_bridge
from pegasus.testing.bridges.verdict import DeliveryClass

EXAMPLES = Path(__file__).parents[3] / "examples"
FAST = "import pegasus.bridge.messenger as m, pegasus.bridge.connection as c\nm.FIRST_PAUSE = c.FIRST_PAUSE = 0.01\n"
PLAIN = f"""
import os, sys
sys.path.insert(0, {str(EXAMPLES)!r})
import attrs
from plain_bridge import PlainMessenger
class Changed(PlainMessenger):
    CHANGE
Changed(os.environ["SERVICE_URL"], os.environ["SERVICE_TOKEN"]).run()
"""


def bridge(change: str) -> list[str]:
    """Return the command of the plain bridge with another class body."""
    return [sys.executable, "-c", FAST + PLAIN.replace("    CHANGE", textwrap.indent(textwrap.dedent(change), "    "))]


WITHOUT_KEYS = """
delivery = "exactly-once"
async def send(self, reply):
    await super().send(attrs.evolve(reply, key=None))
"""
RATHER_LOST = """
delivery = "at-most-once"
async def send(self, reply):
    await super().send(attrs.evolve(reply, key=None))
"""
WITHOUT_IDS = """
async def listen(self, cursor):
    async for message in super().listen(cursor):
        yield attrs.evolve(message, id=None)
"""


async def test_the_example_is_proved_exactly_once_at_every_step():
    lines = []
    found = await examine_bridge(bridge("pass"), PlainService(), lines.append)
    assert (found.delivery, found.declared, found.complaints) == (
        DeliveryClass.EXACTLY_ONCE,
        DeliveryClass.EXACTLY_ONCE,
        (),
    )
    assert {trial.step for trial in (*found.inward, *found.outward)} == set(Step)
    assert all(trial.arrivals == 1 for trial in (*found.inward, *found.outward))
    assert "killed after sending to the service: once" in lines


@pytest.mark.parametrize(
    ("change", "step", "proved", "is_passed"),
    [
        (WITHOUT_KEYS, Step.SENT, DeliveryClass.AT_LEAST_ONCE, False),
        (RATHER_LOST, Step.SENDING, DeliveryClass.AT_MOST_ONCE, True),
        (WITHOUT_IDS, Step.ACCEPTED, DeliveryClass.AT_LEAST_ONCE, False),
    ],
)
async def test_a_bridge_that_loses_or_repeats_is_found_out(change, step, proved, is_passed):
    found = await examine_bridge(bridge(change), PlainService(), steps={step})
    assert (found.delivery, found.is_passed) == (proved, is_passed)
