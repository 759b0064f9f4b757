"""`pegasus send --until-done`: it waits for the background tasks of the conversation, and says how they ended."""

from contextlib import asynccontextmanager

import attrs
import pytest
import trio

from pegasus.cli.send import run_send
from pegasus.messages import TaskProgress
from pegasus.terminal import turn_watch
from pegasus.wire import to_wire
from tests.pegasus.cli.test_send_and_status import SEND, home, run, status, turn, write_daemon  # noqa: F401
from tests.pegasus.gateway.world import world

TASK = TaskProgress(SEND, "t1", 3, "find papers", "ACTING", "web_search", 2, 8250)


class Work:
    """What the daemon says about the conversation."""

    def __init__(self):
        self.tasks = ()
        self.waiting = 0
        self.asked = 0
        self.gate = None
        self.was_asked = trio.Event()

    async def call(self, caller, params):
        assert params == {"type": "cli", "channelId": "send"}
        self.asked += 1
        self.was_asked.set()
        seq = self.gate.journal.last.get(SEND.address, 0)
        return {"tasks": [to_wire(task) for task in self.tasks], "waiting": self.waiting, "seq": seq}


@asynccontextmanager
async def daemon(home, work):  # noqa: F811
    async with world(methods={"status": status, "conversation": work.call}) as gate:
        work.gate = gate
        write_daemon(home, gate.url)
        yield gate


def until_done(home, wait=30.0):  # noqa: F811
    """wait: instead of an hour, in which a command that never ends would only seem to hang."""
    return run(run_send, home, text="hi", channel="send", until_done=True, wait=wait)


async def test_it_prints_the_report_of_a_task_that_the_turn_has_begun(home, nursery, capsys):  # noqa: F811
    work = Work()
    work.tasks = (TASK,)

    async def agent(gate):
        await turn(gate, "I look.")
        await gate.ref.tell(TASK)
        await work.was_asked.wait()
        work.tasks, work.waiting = (), 1
        await gate.ref.tell(attrs.evolve(TASK, state="COMPLETED", tool=""))
        await turn(gate, "Three papers.")
        work.waiting = 0

    async with daemon(home, work) as gate:
        nursery.start_soon(agent, gate)
        assert await until_done(home) == 0
    assert capsys.readouterr() == ("I look.\nThree papers.\n", "")


async def test_a_silent_turn_without_tasks_ends_at_once(home, nursery, capsys):  # noqa: F811
    async with daemon(home, Work()) as gate:
        gate.journal.last[SEND.address] = 7  # earlier replies, which were acknowledged
        nursery.start_soon(turn, gate)
        assert await until_done(home) == 1
    assert capsys.readouterr().err == "pegasus: the agent has finished with the message and said nothing\n"


async def test_a_task_that_fails_is_named_and_fails_the_command(home, nursery, capsys):  # noqa: F811
    async def agent(gate):
        await gate.journal.until(lambda: gate.journal.accepted)
        await trio.sleep(0.1)
        await gate.ref.tell(TASK)
        await gate.ref.tell(attrs.evolve(TASK, state="FAILED", tool=""))
        await turn(gate, "It did not work.")

    async with daemon(home, Work()) as gate:
        nursery.start_soon(agent, gate)
        assert await until_done(home) == 1
    out, err = capsys.readouterr()
    assert (out, err) == ("It did not work.\n", "pegasus: task 3 failed; pegasus tasks show 3\n")


async def test_a_task_that_asks_ends_the_waiting(home, nursery, capsys):  # noqa: F811
    work = Work()
    work.tasks = (attrs.evolve(TASK, state="SUSPENDED", tool=""),)
    async with daemon(home, work) as gate:
        nursery.start_soon(turn, gate, "Which one?")
        assert await until_done(home) == 1
    assert "waiting for an answer: task 3  waiting for an answer: find papers" in capsys.readouterr().err


async def test_the_time_may_be_over_before(home, nursery, capsys):  # noqa: F811
    work = Work()
    work.tasks = (TASK,)
    async with daemon(home, work) as gate:
        nursery.start_soon(turn, gate, "I look.")
        assert await until_done(home, wait=1.0) == 1
    assert capsys.readouterr().err == (
        "pegasus: not done within 1.0 s; the work goes on\n  task 3  web_search, step 2, 8.2 s: find papers\n"
    )


@pytest.mark.parametrize("wait", [30.0, 1.0])
async def test_a_daemon_that_dies_in_the_middle_is_told(home, nursery, capsys, monkeypatch, wait):  # noqa: F811
    """wait: the time may be over before the daemon is given up."""
    monkeypatch.setattr(turn_watch, "AWAY_SECONDS", 0.2 if wait == 30 else 60)
    monkeypatch.setattr(turn_watch, "CHECK_SECONDS", 0.1)
    work = Work()
    work.tasks = (TASK,)

    async def agent(gate):
        await turn(gate, "I look.")
        await work.was_asked.wait()
        await gate.supervisor.stop()

    async with daemon(home, work) as gate:
        nursery.start_soon(agent, gate)
        assert await until_done(home, wait=wait) == 1
    assert capsys.readouterr() == (
        "I look.\n",
        "pegasus: the agent went away and has not come back; unfinished work goes on at its next start: pegasus run\n",
    )


@pytest.mark.parametrize("waiting", [1, 0])
async def test_a_turn_whose_end_was_not_seen_is_over_when_nothing_is_under_way(
    home,  # noqa: F811
    nursery,
    capsys,
    monkeypatch,
    waiting,
):
    """Without --until-done, too: a lost sign does not cost the whole time."""
    monkeypatch.setattr(turn_watch, "CHECK_SECONDS", 0.2)
    work = Work()
    work.waiting = waiting

    async def agent(gate):
        await gate.journal.until(lambda: gate.journal.accepted)
        await work.was_asked.wait()
        work.waiting = 0

    async with daemon(home, work) as gate:
        nursery.start_soon(agent, gate)
        assert await run(run_send, home, text="hi", channel="send", wait=60) == 1
    assert capsys.readouterr().err == "pegasus: the agent has finished with the message and said nothing\n"
    assert work.asked == 1 + waiting
