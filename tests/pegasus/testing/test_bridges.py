"""The conformance suite: bridges that keep less than they declare are found out."""

from __future__ import annotations

import sys
import textwrap
from functools import partial
from pathlib import Path

import pytest

from pegasus.testing.bridges import command
from pegasus.testing.bridges.plain import PlainService
from pegasus.testing.bridges.steps import Step
from pegasus.testing.bridges.suite import BridgeStuck, examine_bridge
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
CUTS_SHORT = """
def parts_of(self, reply):
    return super().parts_of(reply)[:2]
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
FORGETS = """
async def serve(self, url, token, state):
    state.seqs.clear()
    await super().serve(url, token, state)
async def send(self, reply):
    await super().send(attrs.evolve(reply, key=None))
"""
ACKNOWLEDGES_FIRST = """
async def _deliver(self, bridge, reply, state):
    await bridge.acknowledge(reply)
    await super()._deliver(bridge, reply, state)
"""
LOSES_ITS_PLACE = """
async def listen(self, cursor):
    async for message in super().listen(cursor):
        yield message.cursor
        yield message
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
        (RATHER_LOST, Step.SENDING, DeliveryClass.AT_MOST_ONCE, True),
        (WITHOUT_IDS, Step.ACCEPTED, DeliveryClass.AT_LEAST_ONCE, False),
        (FORGETS, Step.ACKNOWLEDGING, DeliveryClass.AT_LEAST_ONCE, False),
        (ACKNOWLEDGES_FIRST, Step.SENDING, DeliveryClass.AT_MOST_ONCE, False),
        (LOSES_ITS_PLACE, Step.RECEIVED, DeliveryClass.AT_MOST_ONCE, False),
    ],
)
async def test_a_bridge_that_loses_or_repeats_is_found_out(change, step, proved, is_passed):
    found = await examine_bridge(bridge(change), PlainService(), steps={step})
    assert (found.delivery, found.is_passed) == (proved, is_passed)


async def test_a_bridge_that_does_not_work_is_shown_with_its_output():
    with pytest.raises(BridgeStuck, match="cannot be started"):
        await examine_bridge(["no-such-program"], PlainService())
    with pytest.raises(BridgeStuck, match=r"it ended 9 times, last with exit code 3\n +because"):
        await examine_bridge(["sh", "-c", "echo because; exit 3"], PlainService())


def test_the_command_prints_the_class_alone_and_fails_where_more_is_declared(monkeypatch, capsys):
    monkeypatch.setattr(command, "examine_bridge", partial(examine_bridge, steps={Step.SENT}))
    assert command.main(["--", *bridge(WITHOUT_KEYS + CUTS_SHORT)]) == 1
    out, err = capsys.readouterr()
    assert out == "at-least-once\n"
    assert "declared exactly-once, proved at-least-once" in err
    assert "wrong: a long reply did not arrive whole and in order; it is to be cut between words" in err
    assert command.main(["--service", "plain", "false"]) == 2
    with pytest.raises(SystemExit, match="2"):
        command.main(["--service", "no-such", "true"])
    assert "found the service no-such, allowed: plain" in capsys.readouterr().err
