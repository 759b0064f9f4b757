"""A running journal, on a disk in memory unless said otherwise."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial

import pytest

from actors import Child, Mailbox, Restart, open_supervisor
from pegasus.messages import ChannelInfo, InboundMessage
from pegasus.storage.journal import journal as journal_actor
from pegasus.storage.messages import Accept, Commit, Post
from pegasus.testing.memory_disk import MemoryDisk

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

    async def accept(self, id, text="hi", channel=CLI, lane="main", rank=0):
        return await self.ask(Accept, InboundMessage(text, channel, id), lane, rank)

    async def append(self, path, data, durable=True):
        return await self.ask(Commit, ((path, data),), (), durable)

    async def post(self, key, channel=CLI, text="hi", appends=(), **more):
        [result] = await self.ask(Commit, appends, (Post(key, text, channel.channel_id, channel, **more),))
        return result


@asynccontextmanager
async def run_journal(disk, *, now=lambda: NOW, **options):
    reports = []
    run = partial(journal_actor, clock=now, report=reports.append, **options)
    child = Child("journal", run, disk, restart=Restart.TEMPORARY, mailbox=Mailbox(capacity=1024))
    async with open_supervisor([child]) as supervisor:
        yield Running(supervisor.ref("journal"), reports)


@pytest.fixture
def start():
    return run_journal


@pytest.fixture
def disk():
    return MemoryDisk()


@pytest.fixture
async def journal(start, disk):
    async with start(disk) as running:
        yield running
