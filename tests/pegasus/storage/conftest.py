"""A running journal, on a disk in memory unless said otherwise.

A test that takes `journal` alone speaks of a promise, and runs over both engines. One that takes `disk` or `start` speaks of files.
With PEGASUS_TEST_STORAGE=database those of promises run over a PostgreSQL, too, which takes a second for each.
"""

from __future__ import annotations

import inspect
import os
from contextlib import aclosing, asynccontextmanager
from functools import partial

import pytest

from actors import Child, Mailbox, Restart, open_supervisor
from pegasus.json_lines import Line, scan_lines
from pegasus.messages import ChannelInfo, InboundMessage
from pegasus.storage.database import NodeFacts, run_database_journal
from pegasus.storage.database.postgres import Postgres
from pegasus.storage.inbox_messages import Accept
from pegasus.storage.journal import run_journal as journal_actor
from pegasus.storage.leases import TakeLease, chat_owner
from pegasus.storage.messages import Commit, Post
from pegasus.testing.memory_database import MemoryDatabase
from pegasus.testing.memory_disk import MemoryDisk
from tests.postgres_server import postgres_server, postgres_url

__all__ = ["postgres_server", "postgres_url"]

AT = 1_700_000_000_000
NOW = 1_772_029_800_000  # 2026-02-25 14:30:00 UTC
CLI = ChannelInfo("cli", "main", "me")
WEB = ChannelInfo("web", "c1")


class Running:
    """What a test sees of the journal: its ref, what it reported, and short ways to talk to it."""

    def __init__(self, ref, reports):
        self.ref = ref
        self.reports = reports
        self.ask = ref.ask
        self.tell = ref.tell

    async def accept(self, id, text="hi", channel=CLI, lane="main", priority=0):
        return await self.ask(Accept, InboundMessage(text, channel, id), lane, priority)

    async def append(self, path, data):
        return await self.ask(Commit, ((path, data),))

    async def post(self, key, channel=CLI, text="hi", appends=(), **more):
        [result] = await self.ask(Commit, appends, (Post(key, text, channel.channel_id, channel, **more),))
        return result


class LogFile:
    """An inbox or outbox without a disk: its file is in a bytearray. problems: of its records."""

    def __init__(self, log, data):
        self.log = log
        self.data = bytearray(data)
        self.problems = []
        for line in scan_lines(bytes(data)):
            assert isinstance(line, Line)
            if problem := log.replay(line):
                self.problems.append(problem)
        log.loaded(len(data))

    def write(self):
        offset = len(self.data)
        self.data += self.log.unwritten()
        return self.log.written(offset)

    def compact(self):
        plan = self.log.plan_rewrite()
        self.data = bytearray(b"".join(p if isinstance(p, bytes) else self.part(p) for p in plan.parts))
        self.log.rewritten(plan, len(self.data))

    def reload(self, **options):
        return type(self)(bytes(self.data), **options)

    def part(self, span):
        return bytes(self.data[span.offset : span.offset + span.length])


@asynccontextmanager
async def run_journal(disk, *, now=lambda: NOW, actor=journal_actor, **options):
    reports = []
    run = partial(actor, clock=now, report=reports.append, **options)
    child = Child("journal", run, disk, restart=Restart.TEMPORARY, mailbox=Mailbox(capacity=1024))
    async with open_supervisor([child]) as supervisor:
        yield Running(supervisor.ref("journal"), reports)


@asynccontextmanager
async def run_node(database, name="a", *, now=lambda: NOW, scope="chat", **options):
    """The journal of a node. Chats have sessions of their own, and so owner keys."""
    reports = []
    facts = NodeFacts(name)
    run = partial(run_database_journal, facts=facts, clock=now, scope=scope, report=reports.append, **options)
    child = Child(
        "journal", run, database.link(name), restart=Restart.TEMPORARY, mailbox=Mailbox(capacity=1024), shutdown=60
    )
    async with open_supervisor([child]) as supervisor:
        yield Running(supervisor.ref("journal"), reports)


STORAGE = os.environ.get("PEGASUS_TEST_STORAGE", "files")


class PostgresLink:
    """A PostgreSQL as one node needs it."""

    def __init__(self, database):
        self._database = database

    def link(self, name):
        return self._database


@asynccontextmanager
async def run_node_over_postgres(url):
    async with aclosing(Postgres(url)) as database, run_node(PostgresLink(database)) as running:
        yield running


def pytest_generate_tests(metafunc):
    taken = inspect.signature(metafunc.function).parameters
    if "journal" in taken and not {"disk", "start"} & taken.keys():
        is_real = STORAGE == "database" and not {"autojump_clock", "mock_clock"} & taken.keys()
        real = [pytest.param("postgres", marks=pytest.mark.real_time)] if is_real else []
        metafunc.parametrize("engine", ["files", "database", *real])


@pytest.fixture
def start():
    return run_journal


@pytest.fixture
def disk():
    return MemoryDisk()


@pytest.fixture
def engine():
    return "files"


@pytest.fixture
def opened(request, engine, disk):
    if engine == "postgres":
        return run_node_over_postgres(request.getfixturevalue("postgres_url"))
    return run_journal(disk) if engine == "files" else run_node(MemoryDatabase())


@pytest.fixture
async def journal(opened):
    async with opened as running:
        # As the agents of these chats do before they ask for items. With files it changes nothing.
        for channel in (CLI, WEB):
            await running.ask(TakeLease, chat_owner(channel.address))
        yield running
