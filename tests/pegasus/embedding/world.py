"""An embedded agent in virtual time: a disk in memory and a scripted model, below the library's own code."""

from __future__ import annotations

from contextlib import asynccontextmanager

import trio

from pegasus.embedding import Agent, InboundMessage, MessageKind
from pegasus.embedding.agent import settings_of
from pegasus.settings import AgentSettings, Settings
from pegasus.testing.memory_disk import MemoryDisk
from pegasus.testing.scripted import call
from pegasus.testing.world import world_environment

PATIENCE = 3600.0
DIRECT = Settings(agent=AgentSettings(speech="direct"))


@asynccontextmanager
async def open_agent(model, *, disk=None, settings=None, cron=None, scope="chat", **environment):
    settings = settings_of(settings or Settings(agent=AgentSettings(speech="monologue")), None, scope)
    made = world_environment(model, disk or MemoryDisk(), settings, **environment)

    async with Agent.within(made, cron, load=lambda config: settings_of(config, None)) as agent:
        yield agent


def inbound(text, chat="main", **fields):
    return InboundMessage(fields.pop("channel", "cli"), fields.pop("sender", "me"), chat, text, **fields)


async def converse(agent, text, chat="main", **fields):
    """All messages of a turn."""
    with trio.fail_after(PATIENCE):
        return [message async for message in agent.process_message(inbound(text, chat, **fields))]


async def final(agent, text, chat="main", **fields):
    messages = await converse(agent, text, chat, **fields)
    assert [message.is_final for message in messages].count(True) == 1
    assert messages[-1].kind is MessageKind.FINAL
    return messages[-1]


async def next_message(agent):
    with trio.fail_after(PATIENCE):
        return await anext(agent.messages())


def reply(text, chat="main", call_id="r1", **more):
    return call("reply", call_id, text=text, channelId=chat, **more)
