"""A chat that talks until its older messages are consolidated."""

import json
import re

import trio

from pegasus.main_agent.session import chat_files
from pegasus.messages import Address, ChannelInfo
from pegasus.models import UserTurn
from pegasus.settings import AgentSettings, SessionSettings, Settings
from pegasus.testing.scripted import ScriptedModel, say
from pegasus.testing.world import FakeChannel, files_on, open_world
from tests.pegasus.main_agent.voices import asked, reply

NOTES = "workspace/memory/MEMORY.md"
HISTORY = "workspace/memory/HISTORY.md"
MONTH = "workspace/memory/HISTORY-2026-02.md"


def settings(window=6, timeout=30.0, owners=("cli:*", "web:*"), threshold=0.8):
    return Settings(
        agent=AgentSettings(scope="chat", owners=owners),
        session=SessionSettings(memory_window=window, consolidation_timeout=timeout, compact_threshold=threshold),
    )


def notes(history, memory=None):
    return json.dumps({"historyEntry": history, **({} if memory is None else {"memoryUpdate": memory})})


def part_of(request):
    """Return the numbers of the messages that the model of consolidation is shown."""
    return re.findall(r"wrote: message (\d+)", request.turns[0].text)


def told(request):
    """Say which messages have left the window."""
    return notes("told of " + ",".join(part_of(request)))


def echo(request):
    found = asked(request)
    if found is None:
        return say()
    count = sum(turn.text.count("[channel: ") for turn in request.turns if isinstance(turn, UserTurn))
    return say("", reply(f"answer to {found[0]}", **found[1], call_id=f"r{count}-{found[0][:30]}"))


def open_chats(keeper, *, disk=None, config=None, files=None, web=None, model=None):
    """keeper: script of the model that consolidates."""
    compact = keeper if isinstance(keeper, ScriptedModel) else ScriptedModel(keeper)
    return open_world(
        model or ScriptedModel(echo),
        disk=disk,
        settings=config or settings(),
        channels=(FakeChannel("cli"), web or FakeChannel("web")),
        models={"compact": compact},
        files=None if disk is None and files is None else files or files_on(disk),
    )


def chat(name="a", user=None):
    return ChannelInfo("web", name, user)


async def talk(world, first, last, channel=None, web="web"):
    for number in range(first, last):
        await world.say(f"message {number}", channel or chat())
        await world.next_reply(web)


async def settle(world):
    """Wait until what runs in the background is over."""
    await world.idle()
    await trio.sleep(90)


def session_of(disk, name="a"):
    return [json.loads(line) for line in disk.content(chat_files(Address("web", name)).path).splitlines()]


def messages_in(text):
    return re.findall(r"message (\d+)", text if isinstance(text, str) else text.decode())


def all_texts(disk, name="a"):
    """Return the session and its archives, the oldest first."""
    files = chat_files(Address("web", name))
    archives = [path for path in disk.paths() if path.startswith(f"{files.folder}/{files.prefix}2")]
    return b"".join(disk.content(path) for path in [*sorted(archives), files.path])
