"""The keeper of approvals on a slow disk: an answer and the time of expiry cannot both win."""

import math
from functools import partial
from random import Random

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from actors import Child, Inbox, open_supervisor
from pegasus.access import (
    AnswerApproval,
    ApprovalError,
    ApprovalRequest,
    AskedCall,
    AwaitApproval,
    ListApprovals,
    SeekApproval,
)
from pegasus.access.approval_store import serve_approvals
from pegasus.access.principal import Role
from pegasus.settings import LiveValue
from pegasus.storage import Commit, ReadFile, run_journal
from pegasus.testing.memory_disk import MemoryDisk

SLOW = 0.5
"""Seconds that the disk needs for a line."""
TIMEOUT = 10.0

FILE = "approvals.jsonl"


async def slow_journal(inbox: Inbox, lines: list[bytes]) -> None:
    """Read nothing, and write each line after a while."""
    async for message in inbox:
        if isinstance(message, ReadFile):
            assert message.path == FILE
            message.reply.send(b"")
        else:
            assert isinstance(message, Commit)
            await trio.sleep(SLOW)
            lines.extend(line for _, line in message.appends)
            message.reply.send(())


async def test_a_yes_in_the_instant_of_expiry_comes_too_late(autojump_clock):
    """The clock stands at the end of the time; the keeper itself has not looked at it yet."""
    told, lines, now = [], [], [1_000]

    async def on_change(approval):
        told.append(approval.state.value)

    async with open_supervisor([Child("journal", slow_journal, lines)]) as root:
        journal = root.ref("journal")
        child = Child("keeper", serve_approvals, journal, lambda: now[0], Random(1), LiveValue(TIMEOUT), on_change)
        keeper = await root.start_child(child)
        request = ApprovalRequest((AskedCall("t1/c1", "shell_exec", {}, "why"),), Role.OWNER, None, "t1")
        approval = await keeper.ask(SeekApproval, request)
        await trio.sleep(1)
        now[0] = approval.expires
        with pytest.raises(ApprovalError, match="is expired already"):
            await keeper.ask(AnswerApproval, approval.id, True, "cli:main")


@pytest.mark.parametrize("task_id", ["t1", ""])
async def test_an_approval_that_nobody_was_shown_before_a_crash_is_shown_after_it(autojump_clock, task_id):
    """Its opening line is on disk, and nothing else has happened."""
    lines = []

    def clock():
        return math.ceil(trio.current_time() * 1000)

    async def kept(inbox):
        async for message in inbox:
            if isinstance(message, ReadFile):
                message.reply.send(b"".join(lines))
            else:
                lines.extend(line for _, line in message.appends)
                message.reply.send(())

    async def hang(approval):
        await trio.sleep_forever()

    async def begin(root, on_change):
        child = Child("keeper", serve_approvals, root.ref("journal"), clock, Random(1), LiveValue(TIMEOUT), on_change)
        return await root.start_child(child)

    async with open_supervisor([Child("journal", kept)]) as root:
        keeper = await begin(root, hang)
        call = AskedCall("t1/c1", "shell_exec", {"command": "x"}, "why")
        request = ApprovalRequest((call,), Role.OWNER, None, task_id)
        approval = await keeper.ask(SeekApproval, request)
    assert len(lines) == 1
    told = []

    async def on_change(shown):
        told.append((shown.id, shown.state.value, dict(shown.request.first.arguments)))

    async with open_supervisor([Child("journal", kept)]) as root:
        await begin(root, on_change)
        await trio.sleep(1)
        assert told == [(approval.id, "open", {"command": "x"})]


@pytest.mark.parametrize(
    ("seconds_left", "end"),
    [(SLOW / 2, "allowed"), (-SLOW / 2, "expired")],
)
async def test_an_answer_at_the_time_of_expiry_counts_if_it_came_before(autojump_clock, seconds_left, end):
    told, lines = [], []

    async def on_change(approval):
        told.append(approval.state.value)

    def clock():
        return math.ceil(trio.current_time() * 1000)

    async with open_supervisor([Child("journal", slow_journal, lines)]) as root:
        journal = root.ref("journal")
        child = Child("keeper", serve_approvals, journal, clock, Random(1), LiveValue(TIMEOUT), on_change)
        keeper = await root.start_child(child)
        call = AskedCall("t1/c1", "shell_exec", {}, "why")
        request = ApprovalRequest((call,), Role.OWNER, None, "t1")
        approval = await keeper.ask(SeekApproval, request)
        await trio.sleep_until(approval.expires / 1000 - seconds_left)
        if end == "allowed":
            await keeper.ask(AnswerApproval, approval.id, True, "cli:main")
        else:
            with pytest.raises(ApprovalError, match="is expired already"):
                await keeper.ask(AnswerApproval, approval.id, True, "cli:main")
        await trio.sleep(10 * SLOW)
        assert await keeper.ask(ListApprovals) == ()
    assert told == ["open", end]
    assert len(lines) == 3  # opened, closed, carried out


async def test_of_two_keepers_of_the_same_lines_the_first_answer_counts(autojump_clock):
    """As on two machines. Whoever has waited at the other one hears of it with its next step."""
    told = []

    async def on_change(approval):
        told.append(approval.state.value)

    async with open_supervisor([]) as root, trio.open_nursery() as nursery:
        journal = await root.start_child(Child("journal", partial(run_journal, clock=lambda: 0), MemoryDisk()))
        parts = (journal, lambda: 0, Random(1), LiveValue(TIMEOUT), on_change)
        one = await root.start_child(Child("one", serve_approvals, *parts))
        request = ApprovalRequest((AskedCall("t1/c1", "shell_exec", {}, "why"),), Role.OWNER, None, "t1")
        approval = await one.ask(SeekApproval, request)
        other = await root.start_child(Child("other", serve_approvals, *parts))
        heard = []

        async def wait():
            heard.append(await one.ask(AwaitApproval, approval.id))

        nursery.start_soon(wait)
        await other.ask(AnswerApproval, approval.id, False, "cli:main")
        await wait_all_tasks_blocked()
        assert heard == []
        with pytest.raises(ApprovalError, match="is denied already by cli:main"):
            await one.ask(AnswerApproval, approval.id, True, "cli:main")
        await wait_all_tasks_blocked()
        assert [each.state.value for each in heard] == ["denied"]
        second = attrs.evolve(request, calls=(AskedCall("t1/c2", "shell_exec", {"command": "ls"}, "why"),))
        assert (await other.ask(SeekApproval, second)).is_open
