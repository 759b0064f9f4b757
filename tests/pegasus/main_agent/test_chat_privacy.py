"""A conversation for each chat: what was said in one is not seen in another, whatever the model there is talked into."""

from __future__ import annotations

import json
from functools import partial

import pytest
import trio

from actors import Child, open_supervisor
from pegasus.main_agent import archive_prefix
from pegasus.memory import memory_in
from pegasus.messages import Address, ChannelInfo
from pegasus.settings import AgentSettings, Settings
from pegasus.storage import FileDisk, run_journal
from pegasus.testing.scripted import Hang, ScriptedModel, call, say
from pegasus.testing.world import FakeChannel, open_world
from pegasus.tools import ToolContext, memory_tools
from tests.pegasus.tools.calling import run_tool

from .voices import delegate, reply, tasks_of

ARCHIVE = "2026-02-25-143000.jsonl"
ANN, BOB = ChannelInfo("web", "ann", "ann"), ChannelInfo("web", "bob", "bob")


def line(text):
    return json.dumps({"ts": 1, "role": "user", "content": text}).encode() + b"\n"


@pytest.fixture
async def search(tmp_path):
    """memory_search on a real index, as work for a chat calls it."""
    sessions = tmp_path / "sessions"
    for folder in (sessions, tmp_path / "main"):
        folder.mkdir()
    (sessions / f"web%3Aann.{ARCHIVE}").write_bytes(line("the treasure of ann") * 3)
    (sessions / f"web%3Abob.{ARCHIVE}").write_bytes(line("the treasure of bob"))
    (tmp_path / "main" / ARCHIVE).write_bytes(line("the treasure of everybody"))
    journal = Child("journal", partial(run_journal, clock=lambda: 0), FileDisk(tmp_path))
    async with open_supervisor([journal]) as supervisor:
        memory = memory_in(tmp_path, supervisor.ref("journal"), lambda: 0)

        async def search(channel, scope="chat", **arguments):
            tools = {tool.name: tool for tool in memory_tools(memory, partial(archive_prefix, scope))}
            context = ToolContext(origin=channel)
            outcome = await run_tool(tools["memory_search"], {"query": "treasure", **arguments}, 10, context)
            return [(hit.get("file"), hit["snippet"]) for hit in json.loads(outcome.content)["results"]]

        yield search
        if memory._searcher is not None:
            memory._searcher.close()


async def test_a_search_finds_the_archives_of_its_own_chat_only(search):
    for _ in range(2):
        assert await search(ANN) == [(ARCHIVE, "the treasure of ann")] * 3
        assert await search(BOB) == [(ARCHIVE, "the treasure of bob")]
        assert await search(BOB, limit=1, query="treasure ann", **{"in": "sessions"}) == [
            (ARCHIVE, "the treasure of bob")
        ]
        assert await search(ChannelInfo("web", "carol")) == []
        assert await search(None) == [], "work of which nobody knows the chat"


async def test_the_conversation_of_all_channels_is_searched_where_there_is_one(search):
    assert await search(ANN) != []
    assert await search(ANN, scope="global") == [(ARCHIVE, "the treasure of everybody")]
    assert await search(None, scope="global") == [(ARCHIVE, "the treasure of everybody")]


@pytest.mark.parametrize("name", ["ann.2026-02-25-143000", "an", "*", "ann\n", "ann%2E", "", "~"])
async def test_no_name_of_a_chat_leads_to_the_archives_of_another(search, name):
    assert await search(ChannelInfo("web", name)) == []


async def test_a_guest_reaches_neither_tasks_nor_archives_nor_names_of_other_chats(autojump_clock):
    web = FakeChannel("web")
    calls = {}

    def model(request):
        text = request.turns[-1].text
        if request.turns[-1].results:
            return say("")
        if "attack" in text:
            return say("", *[call(name, f"c{n}", **arguments) for n, (name, arguments) in enumerate(calls.items())])
        return delegate(request)

    settings = Settings(agent=AgentSettings(scope="chat", owners=("cli:*", "web:ann")))
    scripted = ScriptedModel(model)
    async with open_world(
        scripted,
        task_model=ScriptedModel(lambda request: Hang()),
        settings=settings,
        channels=(FakeChannel("cli"), web),
    ) as world:
        await world.say("count my gold, I am Ann of Arnheim", ANN)
        await world.idle()
        [task] = await tasks_of(world)
        await world.say("/new", ANN)
        await world.idle()
        archive = web.replies[-1].text.split()[-1].rstrip(".")
        calls |= {
            "task_list": {},
            "task_status": {"taskId": task.task_id},
            "task_replay": {"taskId": task.task_id},
            "resume_task": {"taskId": task.task_id, "input": "tell me all"},
            "session_archive_read": {"file": archive},
            "cron": {"action": "list"},
            "reply": {"text": "psst", "channelId": "nowhere", "channelType": "web2"},
        }
        await world.say("attack", BOB)
        await trio.sleep(60)
        await world.say("/tasks", BOB)
        await world.say("/status", BOB)
        await world.idle()
        lines = [json.loads(raw) for raw in world.disk.content("sessions/web%3Abob.jsonl").splitlines()]
        results = [line["content"] for line in lines if line["role"] == "tool"]
        assert len(results) == len(calls)
        heard = [*results, *(message.text for message in web.replies if message.channel.channel_id == "bob")]
        for text in heard:
            assert "gold" not in text
            assert "Arnheim" not in text
            assert "web:ann" not in text
            assert "channelId ann" not in text
        request = next(request for request in scripted.requests if "attack" in request.turns[-1].text)
        assert "ann" not in request.system.split("channels", 1)[-1].lower().split(), "nobody is told who else writes"
        assert all("Arnheim" not in turn.text for turn in request.turns)
        own, others = (world.tree.services.main_agent.for_chat(chat.address).compactor() for chat in (ANN, BOB))
        assert [open.task_id for open in await own.open_tasks()] == [task.task_id]
        assert await others.open_tasks() == [], "a session that is compacted carries its own tasks only"
        [task] = await tasks_of(world)
        assert task.state.value in ("reasoning", "acting"), "it was not touched"


async def test_a_reply_into_another_chat_does_not_enter_that_conversation(autojump_clock):
    """It is delivered, as everywhere; what the other chat's model knows is what was said to it."""
    web = FakeChannel("web")

    def model(request):
        text = request.turns[-1].text
        if "tell bob" in text:
            return say("", reply("hello from ann", channel_id="bob", channel_type="web"))
        return say("", reply("noted", channel_id="bob", channel_type="web")) if "web | id: bob" in text else say("")

    settings = Settings(agent=AgentSettings(scope="chat", owners=("web:*",)))
    async with open_world(ScriptedModel(model), settings=settings, channels=(FakeChannel("cli"), web)) as world:
        await world.say("hi", BOB)
        await world.idle()
        await world.say("tell bob", ANN)
        await world.idle()
        assert [message.text for message in web.replies] == ["noted", "hello from ann"]
        assert b"hello from ann" not in world.disk.content("sessions/web%3Abob.jsonl")
        assert Address("web", "bob") in {message.channel.address for message in web.replies}
