"""What happened, as lines that can be compared."""

from __future__ import annotations

import pytest
import trio

from actors import Backoff, Child, GaveUp, Intensity, Mailbox, Overflow, open_supervisor
from actors.testing import Crashes, Hangs, Probe, SimulationFailed, Trace, simulate
from tests.actors.kit import Add, Boom, counter, idle, settle


async def test_the_events_of_a_tree_become_lines() -> None:
    trace = Trace()
    probe = Probe([Crashes(Boom("as it was told")), Hangs(5)])
    mailbox = Mailbox(1, Overflow.DROP_NEWEST)
    async with open_supervisor(intensity=Intensity(1, 60)) as supervisor:
        trace.watch(supervisor)
        await supervisor.start_child(
            Child("probe", probe.run, mailbox=mailbox, backoff=Backoff(1, 1, jitter=0), shutdown=1)
        )
        ref = supervisor.ref("probe")
        for message in (Add(1), Add(2), Add(3), Add(4)):
            await ref.tell(message)
            await settle()
        await trio.sleep(2)
        trace.note("it is stopped")
    assert trace == [
        "t=0.000 probe (run 1) is up",
        "t=0.000 probe (run 1): Add is a dead letter: the actor ended while it handled this: "
        "crashed with Boom: as it was told",
        "t=0.000 probe (run 1) ended: crashed with Boom: as it was told",
        "t=0.000 probe (run 1) will be started again in 1.000 s",
        "t=0.000 probe (run 1): no room for Add",
        "t=0.000 probe (run 1): no room for Add",
        "t=1.000 probe (run 2) is up",
        "t=2.000 it is stopped",
        "t=3.000 probe (run 2): Add is a dead letter: the actor ended while it handled this: "
        "killed, did not stop within 1 s",
        "t=3.000 probe (run 2) ended: killed, did not stop within 1 s",
    ]


async def test_a_supervisor_that_gives_up_is_told_of() -> None:
    trace = Trace()

    async def crash_twice() -> None:
        async with open_supervisor(name="tree") as supervisor:
            trace.watch(supervisor)
            await supervisor.start_child(Child("probe", Probe(then=Crashes()).run))
            for _ in range(2):
                await supervisor.ref("probe").tell(Add(1))
                await settle()
            await trio.sleep_forever()

    with pytest.raises(GaveUp):
        await crash_twice()
    assert "root (run 1) gave up: 'tree': more than 1 restarts in 5 s" in str(trace)


async def test_a_tree_that_nobody_watches_any_more_writes_nothing() -> None:
    trace = Trace()
    async with open_supervisor() as supervisor:
        trace.watch(supervisor)
        await supervisor.start_child(Child("idle", idle))
        lines = list(trace)
        del trace
        await supervisor.stop_child("idle")
    assert lines == ["t=0.000 idle (run 1) is up"]


def test_addresses_are_left_out() -> None:
    class Thing:
        pass

    trace = Trace()
    trace.note(f"{Thing()!r} and {id(trace):#x}")
    assert trace == ["<tests.actors.testing.test_trace.test_addresses_are_left_out.<locals>.Thing> and "]


def test_traces_are_compared_line_by_line() -> None:
    one, other = Trace(["a", "b", "c"]), Trace(["a", "x"])
    assert one != other
    assert one == Trace(["a", "b", "c"]) == ["a", "b", "c"]
    assert one != "abc"
    assert one.difference(other) == "  line 1, both:  a\n  line 2, once:  b\n  line 2, again: x"
    assert one.difference(["a", "b"]) == "  line 2, both:  b\n  line 3, once:  c\n  line 3, again: (the end)"
    assert one.difference(one) == ""
    assert len(one) == 3
    assert str(other) == "a\nx"


def test_a_failing_simulation_shows_the_events_of_its_trees() -> None:
    async def main() -> None:
        async with open_supervisor([Child("counter", counter)]) as supervisor:
            await supervisor.ref("counter").tell(Add(1))
            await trio.sleep(1)
            raise Boom("shows it")

    with pytest.raises(SimulationFailed) as failed:
        simulate(main)
    assert "t=0.000 counter (run 1) is up" in failed.value.lines
    assert "t=1.000 counter (run 1) ended: stopped" in failed.value.lines
