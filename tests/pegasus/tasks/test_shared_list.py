"""Persisters of several nodes on one journal: numbers, the list of pending tasks, and taking over.

The journal is that of files, which gives every lease that is asked for: who asks for that of another owner has the tasks of a node
that lives no more.
"""

import json
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio

from actors import Child, Mailbox, Restart, open_supervisor
from pegasus.storage import Changed, LeaseLost, TakeLease, run_journal
from pegasus.tasks.core.fsm import task_resumed
from pegasus.tasks.core.task_states import TaskState
from pegasus.tasks.log.format import index_line, task_path
from pegasus.tasks.log.persister import LOOK, lease_key, task_persister
from pegasus.tasks.log.task_logs import TaskLogs
from pegasus.testing.memory_disk import MemoryDisk
from tests.pegasus.tasks.lives import BEGAN, created, event, failed, said, task_lines

DATE = "2026-02-25"
INDEX, PENDING = "tasks/index.jsonl", "tasks/pending.json"


def of(task_id, made):
    return event(made.type, made.payload, task_id=task_id)


class Nodes:
    def __init__(self, root, disk):
        self.root, self.disk = root, disk
        self.journal = root.ref("journal")
        self.living = {}

    async def start(self, name):
        """The logs as a node of this name writes them. A node that lives has its lease."""
        run = partial(task_persister, new_owner=lambda: name)
        child = Child(name, run, Ref(self, name), lambda: BEGAN, restart=Restart.TEMPORARY, mailbox=Mailbox(64))
        return TaskLogs(await self.root.start_child(child), self.root.ref("bus"))

    def stored(self):
        return {row["taskId"]: row["owner"] for row in json.loads(self.disk.survivor().content(PENDING))}


class Ref:
    """The journal as a node sees it: the leases of nodes that live cannot be taken."""

    def __init__(self, nodes, name):
        self._nodes, self._name = nodes, name
        nodes.living[lease_key(name)] = name

    async def ask(self, make, *args, **more):
        if make is TakeLease and self._nodes.living.get(args[0], self._name) != self._name:
            raise LeaseLost("it lives")
        return await self._nodes.journal.ask(make, *args, **more)


class Deaf:
    """The bus."""

    async def run(self, inbox):
        async for _ in inbox:
            pass


@asynccontextmanager
async def nodes():
    disk = MemoryDisk()
    run = partial(run_journal, clock=lambda: BEGAN)
    journal = Child("journal", run, disk, restart=Restart.TEMPORARY, mailbox=Mailbox(1024))
    async with open_supervisor([journal, Child("bus", Deaf().run)]) as root:
        yield Nodes(root, disk)


async def test_no_number_is_given_twice_whoever_is_first(autojump_clock):
    async with nodes() as there:
        logs = [await there.start(name) for name in ("a", "b", "c")]
        numbers = []

        async def record(which, task_id):
            numbers.extend((await logs[which].record([of(task_id, created())])).items())

        async with trio.open_nursery() as nursery:
            for n in range(30):
                nursery.start_soon(record, n % 3, f"t{n}")
        assert sorted(number for _, number in numbers) == list(range(1, 31))
        lines = there.disk.survivor().content(INDEX).splitlines(keepends=True)
        assert [lines[number - 1] for _, number in numbers] == [index_line(id, DATE) for id, _ in numbers]
        assert there.stored() == {f"t{n}": "abc"[n % 3] for n in range(30)}


async def test_each_node_has_its_own_tasks_pending_and_knows_of_the_others(autojump_clock):
    async with nodes() as there:
        a, b = await there.start("a"), await there.start("b")
        await a.record([of("of-a", created())])
        await b.record([of("of-b", created())])
        await a.record([of("more", created())])
        assert [entry.task_id for entry in await a.pending()] == ["of-a", "more"]
        assert [entry.task_id for entry in await a.elsewhere()] == ["of-b"]
        assert [entry.task_id for entry in await b.pending()] == ["of-b"]
        await b.forget("of-a")  # not its own
        await b.forget("of-b")
        await trio.sleep(2)
        assert there.stored() == {"of-a": "a", "more": "a"}


async def test_the_tasks_of_a_dead_node_go_to_one_that_lives_and_only_that_writes_their_logs(autojump_clock):
    async with nodes() as there:
        a, b = await there.start("a"), await there.start("b")
        await a.record([of("t", created())])
        await b.record([of("own", created())])
        assert [entry.task_id for entry in await b.elsewhere()] == ["t"]
        await trio.sleep(10 * LOOK)
        assert there.stored()["t"] == "a"  # it lives
        del there.living[lease_key("a")]
        with trio.fail_after(2 * LOOK):
            assert [entry.task_id for entry in await b.next_taken()] == ["t"]
        assert there.stored() == {"t": "b", "own": "b"}
        assert {entry.task_id for entry in await b.pending()} == {"t", "own"}
        # It was paused, and goes on with its step.
        with pytest.raises(LeaseLost):
            await a.record([of("t", failed("late"))])
        await b.record([of("t", failed("resumed"))])
        assert there.disk.survivor().content(task_path("t", DATE)) == task_lines(
            of("t", created()), of("t", failed("resumed"))
        )


async def test_a_task_whose_node_is_gone_is_taken_by_one_of_those_that_see_it(autojump_clock):
    async with nodes() as there:
        a = await there.start("a")
        await a.record([of("t", created())])
        others = {name: await there.start(name) for name in ("b", "c", "d")}
        taken = []

        async def take(name):
            taken.extend([(entry.task_id, name) for entry in await others[name].next_taken()])

        del there.living[lease_key("a")]
        async with trio.open_nursery() as nursery:
            for name in others:
                nursery.start_soon(take, name)
            await trio.sleep(10 * LOOK)
            nursery.cancel_scope.cancel()
        assert taken == list(there.stored().items())
        assert [len(await logs.pending()) for logs in others.values()].count(1) == 1


async def test_a_start_finds_the_tasks_of_a_node_that_is_gone_and_not_those_of_one_that_lives(autojump_clock):
    async with nodes() as there:
        a, b = await there.start("a"), await there.start("b")
        await a.record([of("t", created())])
        await b.record([of("own", created())])
        del there.living[lease_key("a")]
        del there.living[lease_key("b")]
        there.living[lease_key("b")] = "b"
        c = await there.start("c")
        assert [entry.task_id for entry in await c.pending()] == ["t"]


async def test_of_two_nodes_that_resume_a_task_at_once_one_does(autojump_clock):
    async with nodes() as there:
        a, b = await there.start("a"), await there.start("b")
        await a.record([of("t", created())])
        await a.record([of("t", failed("x"))])
        await a.forget("t")
        await trio.sleep(2)
        outcomes = []

        async def resume(logs):
            try:
                await logs.record([said(task_resumed("again", TaskState.COMPLETED, BEGAN), BEGAN, "t")])
            except Changed:
                outcomes.append("refused")
            else:
                outcomes.append("resumed")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(resume, a)
            nursery.start_soon(resume, b)
        assert sorted(outcomes) == ["refused", "resumed"]


async def test_a_task_that_its_node_has_listed_and_not_begun_is_begun_by_another(autojump_clock):
    """Its chat has gone to another node, which makes the call again; it has the key of the call."""
    async with nodes() as there:
        listed = [{"taskId": "t", "ts": BEGAN, "owner": "a"}]
        there.disk.put(PENDING, json.dumps(listed).encode())
        there.living[lease_key("a")] = "a"
        b = await there.start("b")
        await b.record([of("t", created())])
        assert there.stored() == {"t": "b"}
        assert [entry.task_id for entry in await b.pending()] == ["t"]
