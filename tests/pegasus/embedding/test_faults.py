"""Crashes within the agent, many chats at once, long backlogs, and questions to an owner, as a program around the agent sees them."""

from __future__ import annotations

from contextlib import suppress

import pytest
import trio

from actors import ActorError
from pegasus.embedding import AgentFailed
from pegasus.messages import OutboundMessage
from pegasus.settings import AgentSettings, PolicySettings, Settings
from pegasus.storage import Waiting
from pegasus.storage.journal import _Journal
from pegasus.testing.memory_disk import MemoryDisk
from pegasus.testing.scripted import After, ScriptedModel, call, say

from .world import converse, final, inbound, next_message, open_agent, reply


@pytest.fixture
def journal_crashes(monkeypatch):
    """Crash the journal at its next queries: as many as the list says, for ever if it holds None."""
    planned, answer = [], _Journal._answer

    async def crash(self, query):
        if planned and isinstance(query, Waiting):
            if planned[0] is not None:
                planned.pop()
            raise RuntimeError("a planned failure of the journal")
        await answer(self, query)

    monkeypatch.setattr(_Journal, "_answer", crash)
    return planned


async def ask_journal(agent):
    """Ask the journal something, whatever becomes of it."""
    while True:
        with trio.move_on_after(1):
            with suppress(ActorError):
                await agent._tree.journal.ask(Waiting)
        await trio.sleep(0.5)


async def test_a_crash_of_the_journal_costs_a_turn_nothing(autojump_clock, nursery, journal_crashes):
    async with open_agent(ScriptedModel(lambda request: After(20, say("", reply("Still here"))))) as agent:
        nursery.start_soon(ask_journal, agent)

        async def crash():
            await trio.sleep(5)
            journal_crashes.append(1)

        nursery.start_soon(crash)
        assert (await final(agent, "Hello")).content == "Still here"
        assert journal_crashes == []
        assert (await final(agent, "And now?")).content == "Still here"
        nursery.cancel_scope.cancel()


async def test_a_message_is_taken_also_while_the_journal_is_being_restarted(autojump_clock, journal_crashes):
    async with open_agent(ScriptedModel(lambda request: say("", reply("Here")))) as agent:
        journal_crashes.append(1)
        with trio.move_on_after(1), suppress(ActorError):
            await agent._tree.journal.ask(Waiting)
        assert (await final(agent, "Hello")).content == "Here"
        assert journal_crashes == []


async def test_nothing_is_remembered_of_chats_that_are_quiet(autojump_clock):
    def voice(request):
        chat = request.turns[-1].text.partition("id: ")[2].partition("]")[0]
        return say("", reply("Hi", chat))

    async with open_agent(ScriptedModel(voice)) as agent:
        for n in range(20):
            await final(agent, "Hello", f"chat-{n}")
        desk = agent._turns.desk
        assert not any((desk._turns, desk._given, desk._taken._numbers))


async def test_a_part_that_crashes_for_ever_ends_the_agent_with_an_error(autojump_clock, journal_crashes):
    async def live():
        async with open_agent(ScriptedModel([])) as agent:
            journal_crashes.append(None)
            await ask_journal(agent)

    with pytest.raises(AgentFailed):
        await live()


async def test_a_crash_of_the_desk_loses_no_reply(autojump_clock, monkeypatch):
    async with open_agent(ScriptedModel([say("", reply("One")), say("", reply("Two", call_id="r2"))])) as agent:
        desk, give, crashes = agent._turns.desk, agent._turns.desk._give, [1]

        def crash_once(said):
            if crashes and isinstance(said, OutboundMessage):
                crashes.pop()
                raise RuntimeError("a planned failure of the desk")
            return give(said)

        monkeypatch.setattr(desk, "_give", crash_once)
        assert (await final(agent, "a")).content == "One"
        assert (await final(agent, "b")).content == "Two"
        assert not crashes


async def test_hundreds_of_chats_at_once_each_get_their_own_answer(autojump_clock):
    def voice(request):
        text = request.turns[-1].text
        chat = text.partition("id: ")[2].partition("]")[0]
        return After(1, say("", reply(f"for {chat}", chat))) if chat else say()

    answers = {}
    async with open_agent(ScriptedModel(voice), settings=Settings(agent=AgentSettings(max_active_chats=20))) as agent:

        async def ask(chat):
            answers[chat] = (await final(agent, "Hello", chat)).content

        async with trio.open_nursery() as nursery:
            for n in range(300):
                nursery.start_soon(ask, f"chat-{n}")
    assert answers == {f"chat-{n}": f"for chat-{n}" for n in range(300)}
    assert trio.current_time() < 60


async def test_a_long_backlog_comes_in_order_and_is_gone_afterwards(autojump_clock):
    disk = MemoryDisk()
    words = [f"word {n}" for n in range(120)]
    tell = say("", *(reply(word, "b", call_id=f"c{n}") for n, word in enumerate(words[:60])))
    more = say("", *(reply(word, "b", call_id=f"d{n}") for n, word in enumerate(words[60:])))
    async with open_agent(ScriptedModel([say("", reply("Hi", "b")), tell, more]), disk=disk) as agent:
        await final(agent, "Hi", "b")
        await final(agent, "Tell b", "a")
        await final(agent, "Tell b more", "a")
    async with open_agent(ScriptedModel([]), disk=disk) as agent:
        messages = agent.messages()
        with trio.fail_after(1000):
            assert [(await anext(messages)).content for _ in range(120)] == words
        with trio.move_on_after(10):
            await anext(messages)
    async with open_agent(ScriptedModel([]), disk=disk) as agent:
        with trio.move_on_after(100) as waited:
            await next_message(agent)
    assert waited.cancelled_caught


async def test_two_readers_share_the_messages_and_none_gets_one_twice(autojump_clock):
    tell = say("", *(reply(f"word {n}", "b", call_id=f"c{n}") for n in range(20)))
    got = []
    async with open_agent(ScriptedModel([say("", reply("Hi", "b")), tell, say()])) as agent:
        await final(agent, "Hi", "b")
        await final(agent, "Tell b", "a")

        async def read():
            async for message in agent.messages():
                got.append(message.content)
                await trio.sleep(1)

        with trio.move_on_after(100):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(read)
                nursery.start_soon(read)
    assert sorted(got) == sorted(f"word {n}" for n in range(20))


async def test_a_guest_is_a_guest_and_an_owner_an_owner(autojump_clock):
    settings = Settings(agent=AgentSettings(owners=("telegram:anna",)))
    async with open_agent(ScriptedModel([]), settings=settings) as agent:
        anna = await final(agent, "/model", channel="telegram", sender="anna")
        ben = await final(agent, "/approve a-1", channel="telegram", sender="ben")
    assert "scripted/test" in anna.content
    assert ben.content == "Only my owner may decide about that."


async def test_a_question_to_an_owner_is_a_message_and_so_is_the_answer(autojump_clock):
    spawn = call("spawn_subagent", "s", description="look", input="look")

    def voice(request):
        text = request.turns[-1].text
        if "completed]" in text:
            return say("", reply("It is noon"))
        return say("", reply("I will look"), spawn) if "[channel: " in text else say()

    tasks = ScriptedModel([say("", call("current_time", "t")), say("noon"), *["ok"] * 9])
    settings = Settings(
        agent=AgentSettings(speech="monologue"),
        policy=PolicySettings(rules=({"tool": "current_time", "decision": "ask"},)),
    )
    async with open_agent(ScriptedModel(voice), task_model=tasks, settings=settings) as agent:
        assert (await final(agent, "What time is it?")).content == "I will look"
        messages = agent.messages()
        with trio.fail_after(1000):
            question = await anext(messages)
            id = question.metadata["approval"]
            assert id in question.content
            await final(agent, f"/approve {id}")
            assert (await anext(messages)).content == "It is noon"


async def test_stopping_from_the_chat_ends_the_turn_of_the_program_too(autojump_clock):
    model = ScriptedModel(lambda request: After(1000, say("", reply("late"))))
    async with open_agent(model) as agent, trio.open_nursery() as nursery:
        said = []

        async def ask():
            said.append([message.content async for message in agent.process_message(inbound("Go"))])

        nursery.start_soon(ask)
        await trio.sleep(5)
        [*_, stopped] = await converse(agent, "/stop")
        assert "Go" in stopped.content
    assert said == [[""]]
