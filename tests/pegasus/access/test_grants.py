"""Grants: what a yes allows beyond its calls, for how long, for whom, and what is left of it after restarts."""

from contextlib import asynccontextmanager
from random import Random

import attrs
import pytest
import trio

from actors import Child, Inbox, open_supervisor
from pegasus.access import (
    AnswerApproval,
    AnswerScope,
    ApprovalError,
    ApprovalRequest,
    ApprovalState,
    AskedCall,
    ListApprovals,
    ListGrants,
    RevokeGrant,
    Role,
    SeekApproval,
    WithdrawApprovals,
    allowed_scopes,
)
from pegasus.access.approval_store import MOST_BYTES, MOST_CALLS, MOST_KEPT, serve_approvals
from pegasus.messages import OwnerQuestion
from pegasus.settings import LiveValue
from pegasus.storage import Commit, ReadFile, ReplaceFile, SetAside

HOUR = 3600.0
MAIL = AskedCall("t1/c1", "mail__list", {"n": 1}, "why", "mail", "print-1")
COMMAND = AskedCall("t1/c1", "shell_exec", {"command": "ls"}, "why", fingerprint="print-s")
DELETE = attrs.evolve(MAIL, tool="mail__delete", is_destructive=True)


class Disk:
    """The file of the approvals."""

    def __init__(self):
        self.content = b""

    async def journal(self, inbox: Inbox):
        inbox.started()
        async for message in inbox:
            match message:
                case ReadFile():
                    message.reply.send(self.content)
                case SetAside():
                    message.reply.send("approvals.jsonl.bad-1")
                case ReplaceFile():
                    self.content = message.content
                    message.reply.send(None)
                case Commit():
                    self.content += b"".join(line for _, line in message.appends)
                    message.reply.send(())


@asynccontextmanager
async def kept(disk, clock=lambda: 0, tools=lambda server: {}):
    """A keeper on this disk."""

    async def on_change(approval):
        pass

    async with open_supervisor([Child("journal", disk.journal)]) as root:
        parts = (root.ref("journal"), clock, Random(disk.content), LiveValue(10 * HOUR), on_change, tools)
        yield await root.start_child(Child("keeper", serve_approvals, *parts))


def request(*calls, task="t1", who=Role.OWNER, **more):
    return ApprovalRequest(calls, who, None, task, **more)


async def allow(keeper, asked, scope, calls=None, is_own_door=True):
    approval = await keeper.ask(SeekApproval, asked)
    answer = (True, "cli:main", scope, "", {}, calls, is_own_door)
    return await keeper.ask(AnswerApproval, approval.id, *answer)


async def is_covered(keeper, call, **more):
    """Whether a call with a key of its own needs no question; nothing is asked."""
    call = attrs.evolve(call, key="another/call")
    approval = await keeper.ask(SeekApproval, request(call, **more), call.key, False)
    return approval.allows(call.key)


SCOPES = (
    # scope, covered: other arguments, another task, another tool of the server, a changed tool
    (AnswerScope.ONCE, False, False, False, False),
    (AnswerScope.ARGUMENTS, False, False, False, False),
    (AnswerScope.TOOL, True, False, False, False),
    (AnswerScope.SERVER, True, False, True, False),
    (AnswerScope.HOUR, True, True, False, False),
    (AnswerScope.FOREVER, True, True, False, False),
)


@pytest.mark.parametrize(("scope", "arguments", "task", "tool", "changed"), SCOPES)
async def test_a_scope_covers_what_it_says(autojump_clock, scope, arguments, task, tool, changed):
    disk, other = Disk(), attrs.evolve(MAIL, tool="mail__read", fingerprint="print-2")
    tools = {"mail__read": "print-2", "mail__list": "print-1"}
    async with kept(disk, tools=lambda server: tools) as keeper:
        await allow(keeper, request(MAIL), scope)
    async with kept(disk, tools=lambda server: tools) as keeper:  # after a restart
        assert await is_covered(keeper, MAIL) is (scope is not AnswerScope.ONCE)
        different = attrs.evolve(MAIL, arguments={"n": 2})
        assert await is_covered(keeper, different) is arguments
        assert await is_covered(keeper, different, task="t2") is task
        assert await is_covered(keeper, other) is tool
        assert await is_covered(keeper, attrs.evolve(MAIL, fingerprint="print-9")) is changed
        assert await is_covered(keeper, attrs.evolve(other, fingerprint="print-9")) is False
        assert await is_covered(keeper, attrs.evolve(MAIL, tool="mail__new", fingerprint="print-3")) is False
        assert await is_covered(keeper, attrs.evolve(MAIL, server="other")) is False
        assert await is_covered(keeper, DELETE) is False
        assert await is_covered(keeper, MAIL, who=Role.GUEST) is False
        assert await keeper.ask(ListApprovals) == ()


@pytest.mark.parametrize("scope", list(AnswerScope))
async def test_a_grant_does_not_cover_what_the_owner_calls_destructive_later(autojump_clock, scope):
    """Only a yes to exactly these arguments goes on."""
    async with kept(Disk(), tools=lambda server: {"mail__list": "print-1"}) as keeper:
        await allow(keeper, request(MAIL), scope)
        destroys = attrs.evolve(MAIL, is_destructive=True)
        assert await is_covered(keeper, destroys) is (scope is AnswerScope.ARGUMENTS)


@pytest.mark.parametrize(
    ("asked", "allowed"),
    [
        (request(MAIL), "once arguments tool server hour forever"),
        (request(COMMAND), "once arguments tool hour forever"),
        (request(DELETE), "once arguments"),
        (request(MAIL, COMMAND), "once arguments tool"),
        (request(MAIL, attrs.evolve(MAIL, key="k", arguments={})), "once arguments tool server hour forever"),
        (request(MAIL, DELETE), "once arguments"),
        (request(MAIL, who=Role.GUEST), "once"),
        (request(MAIL, is_plan=True), "once"),
        (request(MAIL, question=OwnerQuestion("hotel", "Which?")), "once"),
        (request(attrs.evolve(MAIL, tool="prompt_file", server=""), task=""), "once arguments"),
    ],
)
async def test_a_scope_that_does_not_fit_is_refused_and_the_question_stays_open(autojump_clock, asked, allowed):
    assert " ".join(allowed_scopes(asked)) == allowed
    async with kept(Disk()) as keeper:
        await keeper.ask(SeekApproval, asked)
        for scope in AnswerScope:
            if scope not in allowed.split():
                with pytest.raises(ApprovalError, match=f'Found the scope "{scope}", allowed here: once.* Reason: '):
                    await allow(keeper, asked, scope)
        [approval] = await keeper.ask(ListApprovals)
        with pytest.raises(ApprovalError, match="through a bridge counts once"):
            await allow(keeper, asked, AnswerScope.ARGUMENTS, is_own_door=False)
        assert await keeper.ask(ListApprovals) == (approval,)
        assert await keeper.ask(ListGrants) == ()
        assert (await allow(keeper, asked, AnswerScope.ONCE, is_own_door=False)).id == approval.id


async def test_a_part_without_what_destroys_may_have_a_wider_scope(autojump_clock):
    async with kept(Disk()) as keeper:
        asked = request(MAIL, attrs.evolve(DELETE, key="t1/c2"))
        await allow(keeper, asked, AnswerScope.FOREVER, calls=(0,))
        assert [grant.tool for grant in await keeper.ask(ListGrants)] == ["mail__list"]
        answered = await keeper.ask(SeekApproval, asked, "t1/c2")
        assert (answered.allows("t1/c1"), answered.allows("t1/c2")) == (True, False)


async def test_a_grant_of_a_task_ends_with_it_and_is_not_inherited(autojump_clock):
    disk = Disk()
    async with kept(disk) as keeper:
        await allow(keeper, request(MAIL), AnswerScope.TOOL)
        await allow(keeper, request(attrs.evolve(COMMAND, key="c")), AnswerScope.FOREVER)
        keeper.tell_nowait(WithdrawApprovals(("t1",), "a-none"))  # one question of the task, not its end
        assert await is_covered(keeper, MAIL)
        keeper.tell_nowait(WithdrawApprovals(("t1",)))
        assert not await is_covered(keeper, MAIL)
    async with kept(disk) as keeper:
        assert not await is_covered(keeper, MAIL)
        assert [grant.tool for grant in await keeper.ask(ListGrants)] == ["shell_exec"]


async def test_a_revoked_grant_covers_nothing_and_stays_revoked(autojump_clock):
    disk = Disk()
    async with kept(disk) as keeper:
        await allow(keeper, request(MAIL), AnswerScope.FOREVER)
        [grant] = await keeper.ask(ListGrants)
        assert (grant.hash, grant.by, grant.scope, grant.server) == ("print-1", "cli:main", "forever", "mail")
        await keeper.ask(RevokeGrant, grant.id, "cli:main")
        assert not await is_covered(keeper, MAIL)
        with pytest.raises(ApprovalError, match=r"There is no grant"):
            await keeper.ask(RevokeGrant, grant.id, "cli:main")
    async with kept(disk) as keeper:
        assert await keeper.ask(ListGrants) == ()


async def test_an_hour_ends_whatever_becomes_of_the_clock(autojump_clock):
    """The wall clock is set back again and again, within a run and between runs; and it may run too fast."""
    now, disk = 1_000_000_000, Disk()

    def clock():
        return now

    async with kept(disk, clock) as keeper:
        await allow(keeper, request(MAIL), AnswerScope.HOUR)
        now += 3_599_000
        assert await is_covered(keeper, MAIL)
        now -= 3_599_000
        await trio.sleep(0.5)
        assert await is_covered(keeper, MAIL)
        await trio.sleep(1)
        assert not await is_covered(keeper, MAIL), "what the clock has shown once counts"
        assert await keeper.ask(ListGrants) == ()
    async with kept(disk, clock) as keeper:
        await allow(keeper, request(attrs.evolve(MAIL, key="t1/c2")), AnswerScope.HOUR)
        await trio.sleep(3601)
        assert not await is_covered(keeper, MAIL), "a clock that stands still"
        await allow(keeper, request(attrs.evolve(MAIL, key="t1/c3")), AnswerScope.HOUR)
    now -= 10**9
    async with kept(disk, clock) as keeper:
        assert not await is_covered(keeper, MAIL), "a clock that was set back before the start"


async def test_grants_survive_the_rewriting_of_the_file(autojump_clock):
    disk = Disk()
    async with kept(disk) as keeper:
        await allow(keeper, request(MAIL), AnswerScope.FOREVER)
        await allow(keeper, request(attrs.evolve(COMMAND, key="x")), AnswerScope.ARGUMENTS)
        revoked = (await keeper.ask(ListGrants))[1]
        await keeper.ask(RevokeGrant, revoked.id, "cli:main")
        for number in range(MOST_KEPT):
            call = attrs.evolve(COMMAND, key=f"t9/{number}", arguments={"command": str(number)})
            await allow(keeper, request(call), AnswerScope.ONCE)
        await trio.sleep(1)
    for _ in range(2):
        before = len(disk.content)
        async with kept(disk) as keeper:
            assert [grant.tool for grant in await keeper.ask(ListGrants)] == ["mail__list"]
            assert await is_covered(keeper, MAIL)
        assert len(disk.content) <= before


async def test_an_always_of_an_earlier_version_still_counts_and_can_be_revoked(autojump_clock):
    opening = b'{"id":"a-1111","key":"t0/c1","tool":"shell_exec","arguments":{"command":"ls"},"why":"w","who":"%s"'
    more = b',"taskId":"t0","channel":null,"created":1,"expires":2}\n'
    end = b'{"id":"a-1111","state":"allowed","scope":"always","by":"cli:main","at":1}\n{"id":"a-1111","carriedOut":true}\n'
    disk = Disk()
    for who in (b"guest", b"owner"):
        disk.content = (opening % who) + more + end
        async with kept(disk) as keeper:
            assert await is_covered(keeper, COMMAND) is (who == b"owner")
    async with kept(disk) as keeper:
        [grant] = await keeper.ask(ListGrants)
        assert not await is_covered(keeper, attrs.evolve(COMMAND, files={"ls": "1"}))
        assert not await is_covered(keeper, attrs.evolve(COMMAND, arguments={"command": "rm"}))
        await keeper.ask(RevokeGrant, grant.id, "cli:main")
    async with kept(disk) as keeper:
        assert not await is_covered(keeper, COMMAND)


async def test_damaged_lines_allow_nothing(autojump_clock):
    disk = Disk()
    async with kept(disk) as keeper:
        await allow(keeper, request(MAIL, attrs.evolve(COMMAND, key="t1/c2")), AnswerScope.ONCE, calls=(0,))
    [opening, closing, *_] = disk.content.splitlines(keepends=True)
    for bad in (
        b'"allowed":"0"',
        b'"allowed":null',
        b'"allowed":[0.5]',
        b'"allowed":{}',
        b'"allowed":["0"]',
        b'"allowed":[2]',
    ):
        disk.content = opening + closing.replace(b'"allowed":[0]', bad)
        assert bad in disk.content
        async with kept(disk) as keeper:
            [approval] = await keeper.ask(ListApprovals)
            assert approval.is_open, bad
    row = b'{"id":"g-1","scope":"%s","tool":"mail__list","server":"mail","hash":"print-1","by":"x","at":1}\n'
    for bad in (b"week", b"once", b""):
        disk.content = row % bad
        async with kept(disk) as keeper:
            assert not await is_covered(keeper, MAIL), bad


async def test_a_line_about_a_call_that_no_plan_has_is_passed_over(autojump_clock):
    disk = Disk()
    async with kept(disk) as keeper:
        plan = request(attrs.evolve(COMMAND, key="t1/p/1"), is_plan=True)
        await allow(keeper, plan, AnswerScope.ONCE)
        id = (await keeper.ask(SeekApproval, plan)).id
    disk.content += b'{"id":"%s","used":{"t1/c1":7}}\n' % id.encode()
    async with kept(disk) as keeper:
        assert (await keeper.ask(SeekApproval, request(COMMAND))).allows(COMMAND.key)


# ------------------------------------------------------------------ several calls


async def test_calls_that_have_an_answer_are_not_asked_about_again(autojump_clock):
    calls = [attrs.evolve(COMMAND, key=f"t1/c{n}", arguments={"command": str(n)}) for n in range(4)]
    async with kept(Disk()) as keeper:
        await allow(keeper, request(calls[1]), AnswerScope.ONCE)
        await allow(keeper, request(calls[2], task="t0"), AnswerScope.ARGUMENTS)
        approval = await keeper.ask(SeekApproval, request(*calls), calls[0].key)
        assert [call.key for call in approval.request.calls] == [calls[0].key, calls[3].key]
        # Whichever of them comes first, it is one question.
        assert (await keeper.ask(SeekApproval, request(*calls), calls[3].key)).id == approval.id


async def test_a_question_has_no_more_than_a_person_reads(autojump_clock):
    many = [attrs.evolve(COMMAND, key=f"t1/c{n}", arguments={"command": str(n)}) for n in range(10_000)]
    large = [attrs.evolve(COMMAND, key=f"t2/c{n}", arguments={"command": str(n) * (MOST_BYTES // 2)}) for n in range(9)]
    async with kept(Disk()) as keeper:
        approval = await keeper.ask(SeekApproval, request(*many), many[500].key)
        assert len(approval.request.calls) == MOST_CALLS
        assert many[500] in approval.request.calls
        approval = await keeper.ask(SeekApproval, request(*large, task="t2"), large[4].key)
        assert [call.key for call in approval.request.calls] == ["t2/c0", "t2/c4"]


async def test_a_call_with_other_files_takes_the_place_of_the_question_before(autojump_clock):
    call, other = attrs.evolve(COMMAND, files={"a\u202e": "1"}), attrs.evolve(COMMAND, key="t1/c2")
    async with kept(Disk()) as keeper:
        before = await keeper.ask(SeekApproval, request(call, other))
        after = await keeper.ask(SeekApproval, request(attrs.evolve(call, files={"a\u202e": "2"}), other))
        assert after.id != before.id
        assert [each.key for each in after.request.calls] == ["t1/c1", "t1/c2"]
        assert after.request.first.why == 'why; changed since you were asked: "a\\u202e"'
        assert await keeper.ask(ListApprovals) == (after,)
        with pytest.raises(ApprovalError, match="withdrawn already"):
            await keeper.ask(AnswerApproval, before.id, True, "cli:main")


# ------------------------------------------------------------------ plans


async def test_each_call_of_a_plan_is_allowed_once(autojump_clock):
    plan = request(*(attrs.evolve(COMMAND, key=f"t1/p/{n}") for n in (1, 2)), is_plan=True)
    disk = Disk()
    async with kept(disk) as keeper:
        await allow(keeper, plan, AnswerScope.ONCE)
        assert not await is_covered(keeper, attrs.evolve(COMMAND, arguments={"command": "rm"}))
        assert not await is_covered(keeper, attrs.evolve(COMMAND, files={"a": "1"}))
        assert not await is_covered(keeper, COMMAND, task="t2")
        assert not await is_covered(keeper, COMMAND, who=Role.GUEST)
    for key in ("t1/c1", "t1/c1", "t1/c2", "t1/c1"):  # the same call again after a crash, and the second one
        async with kept(disk) as keeper:
            made = attrs.evolve(COMMAND, key=key)
            assert (await keeper.ask(SeekApproval, request(made))).allows(key)
    async with kept(disk) as keeper:
        third = await keeper.ask(SeekApproval, request(attrs.evolve(COMMAND, key="t1/c3")))
        assert third.is_open
        changed = attrs.evolve(COMMAND, key="t1/c1", arguments={"command": "rm"})
        assert (await keeper.ask(SeekApproval, request(changed))).is_open
        # The plan itself finds its answer, and its keys are no keys of calls.
        assert (await keeper.ask(SeekApproval, plan)).state is ApprovalState.ALLOWED
        assert (await keeper.ask(SeekApproval, request(attrs.evolve(COMMAND, key="t1/p/1")))).is_open


async def test_a_plan_is_allowed_in_part_and_expected_calls_are_not_asked_about(autojump_clock):
    calls = [attrs.evolve(COMMAND, key=f"t1/p/{n}", arguments={"command": str(n)}) for n in range(3)]
    async with kept(Disk()) as keeper:
        await allow(keeper, request(*calls, is_plan=True), AnswerScope.ONCE, calls=(2,))
        made = [attrs.evolve(call, key=f"t1/c{n}") for n, call in enumerate(calls)]
        asked = await keeper.ask(SeekApproval, request(*made), made[0].key)
        assert (asked.state, "the owner denied this" in asked.refusal) == (ApprovalState.DENIED, True)
        assert await keeper.ask(ListApprovals) == ()
        assert (await keeper.ask(SeekApproval, request(*made), made[2].key)).allows("t1/c2")


@pytest.mark.parametrize("is_plan", [True, False])
async def test_a_call_that_was_denied_is_not_asked_about_again_in_its_task(autojump_clock, is_plan):
    disk = Disk()
    other = attrs.evolve(COMMAND, key="t1/c3", arguments={"command": "pwd"})
    again = attrs.evolve(COMMAND, key="t1/c2")
    async with kept(disk) as keeper:
        first = await keeper.ask(SeekApproval, request(COMMAND, is_plan=is_plan))
        await keeper.ask(AnswerApproval, first.id, False, "cli:main", AnswerScope.ONCE, "not today")
        assert not await is_covered(keeper, COMMAND)
    async with kept(disk) as keeper:
        refused = await keeper.ask(SeekApproval, request(again))
        assert (refused.state, refused.by) == (ApprovalState.DENIED, "cli:main")
        assert "the owner denied this (not today)" in refused.refusal
        asked = await keeper.ask(SeekApproval, request(again, other), other.key)
        assert [call.key for call in asked.request.calls] == [other.key]
        # Another task, other arguments and other contents of its files make another call.
        assert (await keeper.ask(SeekApproval, request(attrs.evolve(COMMAND, key="t2/c1"), task="t2"))).is_open
        assert (await keeper.ask(SeekApproval, request(attrs.evolve(again, files={"a": "1"})))).is_open


async def test_a_denied_call_may_be_asked_for_with_a_plan_whose_yes_counts(autojump_clock):
    async with kept(Disk()) as keeper:
        first = await keeper.ask(SeekApproval, request(COMMAND))
        await keeper.ask(AnswerApproval, first.id, False, "cli:main")
        plan = await keeper.ask(SeekApproval, request(attrs.evolve(COMMAND, key="t1/p/1"), is_plan=True))
        assert plan.request.first.why == "why; you have denied it in this task before"
        await keeper.ask(AnswerApproval, plan.id, True, "cli:main")
        assert (await keeper.ask(SeekApproval, request(attrs.evolve(COMMAND, key="t1/c2")))).allows("t1/c2")
        # The newest answer counts: what needs a yes again is asked about.
        assert (await keeper.ask(SeekApproval, request(attrs.evolve(COMMAND, key="t1/c3")))).is_open


async def test_a_call_that_nobody_answered_is_asked_about_again(autojump_clock):
    async with kept(Disk(), clock=lambda: round(trio.current_time() * 1000)) as keeper:
        assert (await keeper.ask(SeekApproval, request(COMMAND))).is_open
        await trio.sleep(11 * HOUR)
        assert (await keeper.ask(SeekApproval, request(attrs.evolve(COMMAND, key="t1/c2")))).is_open
