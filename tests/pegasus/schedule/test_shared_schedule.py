"""The schedule of two nodes over one database: changed at any, run by the one that owns it, and each run once."""

from contextlib import asynccontextmanager
from functools import partial
from random import Random

import trio

from actors import Child, Mailbox, Restart, open_supervisor
from pegasus.access import Principal, Role
from pegasus.events import event_bus
from pegasus.messages import ChannelInfo
from pegasus.schedule import (
    AddJob,
    EnableJob,
    ListJobs,
    RemoveJob,
    ScheduleServices,
    draft_job,
    serve_schedule,
)
from pegasus.storage import Waiting
from pegasus.storage.database import NodeFacts, run_database_journal
from pegasus.testing.memory_database import MemoryDatabase

CLI = ChannelInfo("cli", "main")
START = 1_772_029_800_000


def clock():
    return START + int(trio.current_time() * 1000)


@asynccontextmanager
async def two_nodes():
    database = MemoryDatabase(latency=lambda: 0.001)
    async with open_supervisor() as root:
        bus = await root.start_child(Child("bus", event_bus, mailbox=Mailbox(64)))
        keepers, journals = [], []
        for name in "ab":
            run = partial(run_database_journal, database=database.link(name), facts=NodeFacts(name), clock=clock)
            child = Child(f"journal-{name}", run, restart=Restart.TEMPORARY, mailbox=Mailbox(64))
            journals.append(await root.start_child(child))
            services = ScheduleServices(journals[-1], root.ref("tasks"), bus, clock, Random(name), is_shared=True)
            keepers.append(await root.start_child(Child(f"keeper-{name}", serve_schedule, services)))
        yield database, keepers, journals


async def add(keeper, every=60):
    draft = draft_job({"schedule": {"every": every}, "prompt": "stretch"}, clock(), Principal(Role.OWNER, CLI), CLI)
    return await keeper.ask(AddJob, draft)


async def runs(keeper):
    return [(job.runs, job.enabled) for job in await keeper.ask(ListJobs)]


async def test_a_job_is_changed_at_any_node_and_each_run_is_made_once(autojump_clock):
    async with two_nodes() as (_, (a, b), (journal, _journal)):
        job = await add(b)
        await trio.sleep(61)
        assert await journal.ask(Waiting) == 1  # the one before still waits, so that no other is made
        assert await runs(a) == await runs(b) == [(1, True)]
        await b.ask(EnableJob, job.id, False)
        await trio.sleep(130)
        assert await runs(a) == await runs(b) == [(1, False)]
        await b.ask(RemoveJob, job.id)
        await trio.sleep(1)
        assert await a.ask(ListJobs) == ()


async def test_the_schedule_goes_on_when_its_node_is_cut_off(autojump_clock):
    async with two_nodes() as (database, (a, b), (_, journal)):
        await add(b, 60)
        await trio.sleep(1)
        database.cut("a")
        await trio.sleep(60 + 10)
        assert await runs(b) == [(1, True)]
        database.mend("a")
        await trio.sleep(10)
        assert await runs(a) == [(1, True)]
        assert await journal.ask(Waiting) == 1
