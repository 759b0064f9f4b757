"""The whole agent in virtual time: the real tree on a disk in memory, with a scripted model and fake channels.

Run it under `trio.testing.MockClock` (pytest-trio: the fixture `autojump_clock`). A world can be killed at any moment and
started again on what its disk had kept.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path
from random import Random
from types import MappingProxyType

import attrs
import trio

from actors import ActorError, Child, Ref, Strategy, Supervisor, open_supervisor
from pegasus.app.commons import RETRY
from pegasus.app.parts import Parts, Workshop
from pegasus.app.tree import ROOT, Grown, grow, open_channels
from pegasus.identity import BUILT_IN
from pegasus.intake import Intake
from pegasus.main_agent import AgentStatus, EndedWork, GetStatus, Stop
from pegasus.memory import Memory
from pegasus.messages import ChannelInfo, InboundMessage, OutboundMessage
from pegasus.models import LanguageModel, TokenCounter
from pegasus.settings import Settings
from pegasus.storage import FLUSH_AFTER, Accepted, Connected, JournalMessage, Overloaded, Waiting
from pegasus.testing.disk_archives import DiskArchives
from pegasus.testing.disk_shelf import DiskShelf
from pegasus.testing.fake_channel import FakeChannel
from pegasus.testing.memory_disk import MemoryDisk
from pegasus.tools import Tool, current_time, memory_tools

CLI = ChannelInfo("cli", "main")
WINDOW = 100_000
"""Tokens of the context window, where the settings name none."""
START = 1_772_020_800_000
"""The wall clock of a world at virtual time 0: 2026-02-25 12:00:00 UTC, ms since the epoch."""


def wall_clock() -> int:
    """A wall clock that follows Trio's, so that virtual time moves it too; ms since the epoch."""
    return START + int(trio.current_time() * 1000)


@attrs.define(eq=False)
class World:
    """A running agent. channels: the fake channels by type; everything else is reached through messages."""

    root: Supervisor
    grown: Grown
    disk: MemoryDisk
    channels: dict[str, FakeChannel]
    _ids: itertools.count[int] = attrs.field(factory=itertools.count)

    @property
    def journal(self) -> Ref[JournalMessage]:
        """The journal actor."""
        return self.grown.journal

    async def say(
        self, text: str, channel: ChannelInfo = CLI, *, message_id: str | None = None
    ) -> Accepted | Overloaded:
        """Hand in a message as an adapter does; returns when it is accepted."""
        if message_id is None:
            message_id = f"m-{next(self._ids)}-{trio.current_time():.6f}"
        return await Intake(self.journal).submit(InboundMessage(text, channel, message_id))

    async def next_reply(self, channel_type: str = "cli") -> OutboundMessage:
        """The next reply that the fake channel of this type is given."""
        return await self.channels[channel_type].next_reply()

    async def idle(self) -> None:
        """Wait until nothing is being thought about, nothing waits, and all of it is in the files."""
        while await self.journal.ask(Waiting) or (await self.status()).thinking_about is not None:  # noqa: ASYNC110
            await trio.sleep(0.1)  # virtual time: the journal tells nobody when its last item is done
        await trio.sleep(2 * FLUSH_AFTER)
        await self.journal.ask(Waiting)  # answered when the flush is over, however slow the disk is

    async def status(self) -> AgentStatus:
        """What the Main Agent is doing."""
        return await self.grown.main_agent.ask(GetStatus)

    async def stop_thinking(self, by: str = "a test") -> tuple[EndedWork, ...]:
        """What the control call `stop` does."""
        return await self.grown.main_agent.ask(Stop, by)

    def session(self) -> list[dict[str, object]]:
        """The lines of the session file, as they are on the disk (also what is not synced yet)."""
        return [json.loads(line) for line in self.disk.content("main/current.jsonl").splitlines()]


@asynccontextmanager
async def open_world(
    model: LanguageModel,
    *,
    disk: MemoryDisk | None = None,
    settings: Settings | None = None,
    channels: Sequence[FakeChannel] = (),
    task_model: LanguageModel | None = None,
    tools: Sequence[Tool] = (),
    subagents: Sequence[Path] = (),
    clock: Callable[[], int] = wall_clock,
    skills: Sequence[Path] = (),
    models: Mapping[str, LanguageModel] = MappingProxyType({}),
) -> AsyncIterator[World]:
    """Start an agent; leaving the block stops it in order. `kill` ends it like a power failure instead.

    task_model: thinks in tasks, if it is another one. tools: what tasks have beside memory and current_time. subagents: folders
    of SUBAGENT.md. skills: folders of skills, beside the built-in ones. clock: the wall clock, ms since the epoch. models: other
    ones, by role ("compact", say) or by name.

    channels: by default one of type "cli". The same ones may be given to the next world on the same disk.
    """
    disk = disk or MemoryDisk()
    settings = settings or Settings()
    window = settings.models.context_window or WINDOW

    def model_for(role: str) -> LanguageModel:
        return models.get(role) or task_model or model

    workshop = Workshop(
        workspace=Path(),
        subagents=tuple(subagents),
        memory=lambda journal: Memory(journal, DiskShelf(disk), clock),
        tools=lambda memory: (current_time(clock), *memory_tools(memory), *tools),
        model_for=model_for,
        talker_for=model_for,
        context_window=lambda role: window,
        random=Random(0),  # noqa: S311
        counter=cache(TokenCounter),
        skills=tuple(skills),
        archives=lambda: DiskArchives(disk),
    )
    workshop.wanted.set()
    parts = Parts(settings, disk, model, BUILT_IN, clock, workshop)
    channels = channels or (FakeChannel("cli"),)
    async with open_supervisor(strategy=Strategy.REST_FOR_ONE, intensity=ROOT, name="pegasus") as root:
        grown = await grow(root, parts)
        for channel in channels:
            await grown.journal.tell(Connected(channel.type, None))
        adapters = {channel.type: Child("fake", channel.run, grown.journal, backoff=RETRY) for channel in channels}
        nobody = Child("gateway", FakeChannel("").run, grown.journal)
        await open_channels(grown, nobody, adapters)
        yield World(root, grown, disk, {channel.type: channel for channel in channels})


async def kill(world: World, *, torn_bytes: int = 0) -> None:
    """Lose power: the disk keeps what was synced and up to `torn_bytes` more of each file. To be followed by a new world.

    Call it in the block of `open_world` and leave the block, best under a cancelled scope.
    """
    world.disk.lose_power()
    with trio.CancelScope(shield=True), suppress(ActorError):
        await world.root.stop()
    world.disk.crash(torn_bytes)


__all__ = ["CLI", "START", "FakeChannel", "World", "kill", "open_world", "wall_clock"]
