"""Keepers of approvals of two nodes over one database: asked at one, answered at any, carried out where the task is."""

from contextlib import asynccontextmanager
from functools import partial
from random import Random

import pytest
import trio

from actors import Child, Mailbox, Restart, open_supervisor
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
from pegasus.storage.database import NodeFacts, run_database_journal
from pegasus.testing.memory_database import MemoryDatabase


def clock():
    return 1_772_029_800_000 + int(trio.current_time() * 1000)


class Node:
    def __init__(self):
        self.keeper = None
        self.told = []
        self.has_task = False

    async def changed(self, approval):
        self.told.append(approval.state.value)
        return approval.is_open or self.has_task


@asynccontextmanager
async def two_nodes(timeout=1000.0, database=None):
    database = database or MemoryDatabase(latency=lambda: 0.001)
    nodes = Node(), Node()
    async with open_supervisor() as root:
        for n, node in enumerate(nodes):
            link, name = database.link(str(n)), f"journal-{n}"
            run = partial(run_database_journal, database=link, facts=NodeFacts(str(n)), clock=clock)
            await root.start_child(Child(name, run, restart=Restart.TEMPORARY, mailbox=Mailbox(64)))
            serve = partial(serve_approvals, on_change=node.changed, is_shared=True)
            child = Child(f"keeper-{n}", serve, root.ref(name), clock, Random(n), LiveValue(timeout))
            node.keeper = await root.start_child(child)
        yield nodes


def request(call="c1"):
    return ApprovalRequest((AskedCall(f"t1/{call}", "shell_exec", {}, "why"),), Role.OWNER, None, "t1")


async def test_it_is_asked_at_one_node_answered_at_another_and_carried_out_where_the_task_is(autojump_clock):
    async with two_nodes() as (a, b):
        a.has_task = True
        asked = await a.keeper.ask(SeekApproval, request())
        heard = []

        async def wait():
            heard.append(await a.keeper.ask(AwaitApproval, asked.id))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await b.keeper.ask(AnswerApproval, asked.id, True, "web:c1")
            await trio.sleep(1)
            nursery.cancel_scope.cancel()
        assert [(each.id, each.by) for each in heard] == [(asked.id, "web:c1")]
        assert (a.told, b.told[:2]) == (["open", "allowed"], ["open", "allowed"])
        told = len(b.told)
        await trio.sleep(60)
        assert len(b.told) == told  # it is carried out
        assert await b.keeper.ask(ListApprovals) == ()


async def test_of_two_answers_at_two_nodes_one_counts(autojump_clock):
    async with two_nodes() as (a, b):
        a.has_task = True
        asked = await a.keeper.ask(SeekApproval, request())
        await trio.sleep(1)
        outcomes = []

        async def answer(node, is_allowed):
            try:
                outcomes.append((await node.keeper.ask(AnswerApproval, asked.id, is_allowed, "x")).state.value)
            except ApprovalError:
                outcomes.append("refused")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer, a, True)
            nursery.start_soon(answer, b, False)
        assert outcomes.count("refused") == 1
        await trio.sleep(1)
        with pytest.raises(ApprovalError, match="already"):
            await b.keeper.ask(AnswerApproval, asked.id, True, "x")


async def test_the_node_that_takes_the_task_over_carries_out_what_was_answered(autojump_clock):
    async with two_nodes() as (a, b):
        asked = await a.keeper.ask(SeekApproval, request())
        await b.keeper.ask(AnswerApproval, asked.id, True, "x")
        await trio.sleep(10)
        assert b.told.count("allowed") > 1  # nobody has the task yet
        b.has_task = True
        await trio.sleep(20)
        told = len(b.told)
        await trio.sleep(100)
        assert len(b.told) == told


async def test_it_expires_once(autojump_clock):
    async with two_nodes(timeout=30.0) as (a, b):
        a.has_task = b.has_task = True
        await a.keeper.ask(SeekApproval, request())
        await trio.sleep(60)
        assert (a.told, b.told) == (["open", "expired"], ["open", "expired"])


async def test_what_the_database_has_lost_in_a_failover_is_asked_no_more(autojump_clock):
    """The replica that has taken over lags."""
    database = MemoryDatabase(latency=lambda: 0.001)
    async with two_nodes(database=database) as nodes:
        first = await nodes[0].keeper.ask(SeekApproval, request())
        replica = list(database.tables.lines["approvals.jsonl"])
        await nodes[0].keeper.ask(SeekApproval, request("c2"))
        await trio.sleep(1)
        database.tables.lines["approvals.jsonl"] = replica
        await trio.sleep(1)
        for node in nodes:
            assert [approval.id for approval in await node.keeper.ask(ListApprovals)] == [first.id]
