"""`Agent.process_message`, read as its specification: what comes when, what leaving means, and what nothing can lose."""

from __future__ import annotations

import json
from contextlib import suppress

import attrs
import pytest
import trio
import trio.lowlevel

from pegasus.embedding import AgentClosed, MessageKind, MessageRefused, TurnUsage
from pegasus.main_agent.session import chat_files
from pegasus.messages import Address, Media
from pegasus.models import ReasoningPiece
from pegasus.settings import AgentSettings, ChannelSettings, Settings
from pegasus.testing.memory_disk import MemoryDisk
from pegasus.testing.scripted import After, Hang, ScriptedModel, Streamed, call, down, say

from .world import DIRECT, converse, final, inbound, next_message, open_agent, reply


def session_of(disk, chat="main"):
    return [json.loads(line) for line in disk.content(chat_files(Address("cli", chat)).path).splitlines()]


def echo(request):
    """Say the last message again, after its first word in seconds."""
    text = request.turns[-1].text
    if "[channel: " not in text:
        return say()
    head, _, words = text.rpartition("\n")
    chat = head.rpartition("id: ")[2].rstrip("]")
    seconds, _, rest = words.partition(" ")
    return After(float(seconds), say("", reply(rest, chat)))


# ------------------------------------------------------------------ the messages of a turn


async def test_a_turn_ends_with_one_final_message_that_has_the_reply(autojump_clock):
    async with open_agent(ScriptedModel([say("", reply("Hello!"))])) as agent:
        last = await final(agent, "Hi")
    assert (last.content, last.channel, last.chat_id, last.sender_id, last.seq) == ("Hello!", "cli", "main", "me", 1)


async def test_the_text_is_shown_as_it_grows(autojump_clock):
    step = Streamed(("Once", " upon", " a time"), say("Once upon a time"), pause=1.0)
    async with open_agent(ScriptedModel([step]), settings=DIRECT) as agent:
        messages = await converse(agent, "Tell me")
    assert [(message.kind, message.content) for message in messages] == [
        ("progress", "Once"),
        ("progress", "Once upon"),
        ("progress", "Once upon a time"),
        ("final", "Once upon a time"),
    ]


async def test_a_reader_who_appends_shows_each_word_once(autojump_clock):
    step = Streamed(("Once", " upon", " a time"), say("Once upon a time, long ago"), pause=1.0)
    async with open_agent(ScriptedModel([step]), settings=DIRECT) as agent:
        messages = await converse(agent, "Tell me")
    assert len({message.delta for message in messages}) > 2
    assert "".join(message.delta for message in messages) == "Once upon a time, long ago"


async def test_a_final_message_that_was_shown_already_adds_nothing(autojump_clock):
    async with open_agent(ScriptedModel(["Done."]), settings=DIRECT) as agent:
        messages = await converse(agent, "Go")
    assert "".join(message.delta for message in messages) == "Done."
    assert messages[-1].delta == "" or len(messages) == 1


async def test_a_draft_that_was_taken_back_is_followed_by_the_whole_text(autojump_clock):
    step = Streamed(("Wrong", None, "Right"), say("Right."), pause=1.0)
    async with open_agent(ScriptedModel([step]), settings=DIRECT) as agent:
        messages = await converse(agent, "Go")
    assert messages[-1].content == "Right."
    assert "".join(message.delta for message in messages) == "Wrong\n\nRight."


async def test_several_replies_are_one_final_message_and_can_be_told_apart(autojump_clock):
    model = ScriptedModel([say("", reply("One"), call("current_time", "t")), say("", reply("Two", call_id="r2"))])
    async with open_agent(model) as agent:
        messages = await converse(agent, "Go")
    assert messages[-1].content == "One\n\nTwo"
    assert [each.text for each in messages[-1].replies] == ["One", "Two"]
    assert "".join(message.delta for message in messages) == "One\n\nTwo"


async def test_silence_is_a_final_message_without_content(autojump_clock):
    async with open_agent(ScriptedModel([say("nothing to say to that")])) as agent:
        messages = await converse(agent, "ok")
    assert [(message.kind, message.content) for message in messages] == [("final", "")]


@pytest.mark.parametrize("is_wanted", [True, False])
async def test_reasoning_is_given_only_if_the_owner_wants_it_and_in_no_text(is_wanted, autojump_clock):
    step = Streamed((ReasoningPiece("Hmm."), "Yes"), say("Yes"), pause=1.0)
    settings = Settings(agent=AgentSettings(speech="direct", show_reasoning=is_wanted))
    async with open_agent(ScriptedModel([step]), settings=settings) as agent:
        messages = await converse(agent, "Really?")
    reasoning = [message.content for message in messages if message.kind is MessageKind.REASONING]
    assert reasoning == (["Hmm."] if is_wanted else [])
    assert "Hmm" not in "".join(message.content for message in messages if message.kind is not MessageKind.REASONING)
    assert all(message.delta == "" for message in messages if message.kind is MessageKind.REASONING)


async def test_the_final_message_says_what_the_turn_has_used(autojump_clock, counted):
    async with open_agent(counted.model([say("", reply("Hi"))]), usage=counted.tracker) as agent:
        last = await final(agent, "Hi")
    assert last.usage == TurnUsage(100, 20, 0, None)


async def test_commands_are_answered_without_a_model_and_end_there(autojump_clock):
    async with open_agent(ScriptedModel([])) as agent:
        assert "/stop" in (await final(agent, "/help")).content
        assert "fresh conversation" in (await final(agent, "/new")).content
        assert "Nothing" in (await final(agent, "/stop")).content


async def test_a_skill_is_called_by_its_name_with_arguments(autojump_clock, tmp_path):
    folder = tmp_path / "greet"
    folder.mkdir()
    (folder / "SKILL.md").write_text("---\nname: greet\ndescription: greets\n---\nGreet $1, then say: $ARGUMENTS\n")
    model = ScriptedModel([say("", reply("Good day, Anna"))])
    async with open_agent(model, skills=(tmp_path,)) as agent:
        assert (await final(agent, "/greet Anna Bob")).content == "Good day, Anna"
    assert "Greet Anna, then say: Anna Bob" in model.requests[0].turns[-1].text


async def test_a_failing_model_is_a_message_and_no_exception(autojump_clock):
    async with open_agent(ScriptedModel([down()])) as agent:
        assert "The model did not answer" in (await final(agent, "Hi")).content


async def test_a_crash_within_the_agent_is_a_message_and_no_hang(autojump_clock):
    model = ScriptedModel(lambda request: ValueError("a defect"))
    async with open_agent(model) as agent:
        assert "an internal error occurred" in (await final(agent, "Hi")).content
        model = ScriptedModel([])


# ------------------------------------------------------------------ chats


async def test_chats_are_worked_on_side_by_side(autojump_clock):
    async with open_agent(ScriptedModel(echo)) as agent:
        answers = {}

        async def ask(chat):
            answers[chat] = (await final(agent, f"10 {chat}", chat)).content

        async with trio.open_nursery() as nursery:
            for chat in "abcde":
                nursery.start_soon(ask, chat)
        assert answers == {chat: chat for chat in "abcde"}
        assert trio.current_time() < 12


async def test_messages_of_one_chat_are_answered_in_order_and_each_gets_its_own_answer(autojump_clock):
    async with open_agent(ScriptedModel(echo)) as agent:
        answers = []

        async def ask(text):
            answers.append((await final(agent, text)).content)

        async with trio.open_nursery() as nursery:
            for text in ("5 one", "1 two", "1 three"):
                nursery.start_soon(ask, text)
                await trio.sleep(0.1)
        assert answers == ["one", "two", "three"]


async def test_progress_is_that_of_the_own_turn_only(autojump_clock):
    script = iter([Streamed(("first",), say("first"), pause=5.0), Streamed(("second",), say("second"), pause=5.0)])
    async with open_agent(ScriptedModel(lambda request: next(script)), settings=DIRECT) as agent:
        seen = {}

        async def ask(name):
            seen[name] = [message.content for message in await converse(agent, name)]

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, "a")
            await trio.sleep(0.1)
            nursery.start_soon(ask, "b")
    assert set(seen["a"]) == {"first"}
    assert set(seen["b"]) == {"second"}


async def test_each_chat_has_a_session_of_its_own_on_disk(autojump_clock):
    disk = MemoryDisk()
    async with open_agent(ScriptedModel(echo), disk=disk) as agent:
        await final(agent, "0 one", "a")
        await final(agent, "0 two", "b")
    assert [line["role"] for line in session_of(disk, "a")] == ["user", "assistant", "tool"]
    assert "two" not in json.dumps(session_of(disk, "a"))


# ------------------------------------------------------------------ leaving


async def leave_by_break(agent):
    async for message in agent.process_message(inbound("Go")):
        assert message.content == "I th"
        break


async def leave_by_closing(agent):
    messages = agent.process_message(inbound("Go"))
    await anext(messages)
    await messages.aclose()
    with pytest.raises(StopAsyncIteration):
        await anext(messages)


async def leave_by_cancelling(agent):
    with trio.move_on_after(30):
        async for _ in agent.process_message(inbound("Go")):
            pass


async def leave_by_raising(agent):
    with suppress(ZeroDivisionError):
        async with agent.process_message(inbound("Go")) as messages:
            async for _ in messages:
                raise ZeroDivisionError


@pytest.mark.parametrize("leave", [leave_by_break, leave_by_closing, leave_by_cancelling, leave_by_raising])
async def test_leaving_the_iteration_stops_the_turn(leave, autojump_clock):
    disk, model = MemoryDisk(), ScriptedModel([Streamed(("I th",), Hang(), pause=1.0), say("Here.")])
    async with open_agent(model, disk=disk, settings=DIRECT) as agent:
        await leave(agent)
        await trio.sleep(1)
        assert model.cancelled == 1
        assert (await final(agent, "Are you there?")).content == "Here."
    assert session_of(disk)[1]["metadata"]["type"] == "stopped"


async def test_a_message_that_is_left_before_its_turn_has_begun_is_not_worked_on(autojump_clock):
    model = ScriptedModel(echo)
    async with open_agent(model) as agent:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(final, agent, "20 one")
            await trio.sleep(1)
            with trio.move_on_after(1):
                await converse(agent, "0 two")
        assert (await final(agent, "0 three")).content == "three"
    assert len([request for request in model.requests if request.turns[-1].text.endswith("two")]) == 0


async def test_an_iterator_that_is_never_begun_sends_nothing(autojump_clock):
    model = ScriptedModel(["never"])
    async with open_agent(model) as agent:
        agent.process_message(inbound("Hi"))
        await trio.sleep(10)
    assert model.requests == []


async def test_leaving_at_the_final_message_is_the_end_of_a_turn_like_any_other(autojump_clock):
    async with open_agent(ScriptedModel(echo)) as agent:
        async for message in agent.process_message(inbound("0 Hello")):
            if message.is_final:
                break
        del message
        with trio.move_on_after(100) as waited:
            await next_message(agent)
        assert waited.cancelled_caught, "it was taken"


async def test_a_final_message_whose_handling_failed_comes_again(autojump_clock):
    async with open_agent(ScriptedModel(echo)) as agent:
        with suppress(ZeroDivisionError):
            async with agent.process_message(inbound("0 Hello")) as messages:
                async for message in messages:
                    if message.is_final:
                        raise ZeroDivisionError
        again = await next_message(agent)
    assert (again.kind, again.content) == ("message", "Hello")


# ------------------------------------------------------------------ nothing is lost


async def iterate(agent, outcome):
    try:
        await converse(agent, "Hi")
    except AgentClosed:
        outcome.append(AgentClosed)


async def test_a_message_is_on_disk_when_its_turn_has_begun(autojump_clock, nursery):
    disk, host = MemoryDisk(), nursery
    async with open_agent(ScriptedModel([Hang()]), disk=disk) as agent:
        outcome = []
        host.start_soon(iterate, agent, outcome)
        await trio.sleep(10)
    await trio.lowlevel.checkpoint()
    assert outcome == [AgentClosed]
    async with open_agent(ScriptedModel([say("", reply("I am back"))]), disk=disk) as agent:
        assert (await next_message(agent)).content == "I am back"


async def test_the_same_id_is_the_same_message(autojump_clock):
    model = ScriptedModel(echo)
    async with open_agent(model) as agent:
        assert (await final(agent, "0 Hello", id="m1")).content == "Hello"
        assert (await final(agent, "0 Hello", id="m1")).content == ""
    assert len(model.requests) == 1


async def test_what_was_not_taken_comes_after_a_restart(autojump_clock):
    disk = MemoryDisk()
    async with (
        open_agent(ScriptedModel(echo), disk=disk) as agent,
        agent.process_message(inbound("0 Hello")) as messages,
    ):
        while not (await anext(messages)).is_final:
            pass
        messages._final = None  # the process ends here
    async with open_agent(ScriptedModel([]), disk=disk) as agent:
        assert (await next_message(agent)).content == "Hello"


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("fields", "code", "reason"),
    [
        ({"chat": "a\nb"}, "invalid", "channel.channelId"),
        ({"id": ""}, "invalid", "id: found"),
        ({"media": (Media("big", "text/plain", "QUJD" * 100),)}, "too_large", "allowed: 100"),
        ({"channel": "sms"}, "denied", "sms"),
    ],
)
async def test_a_message_that_is_refused_raises_and_leaves_nothing(fields, code, reason, autojump_clock):
    settings = Settings(
        media=attrs.evolve(Settings().media, max_bytes=100),
        channels={**Settings().channels, "sms": ChannelSettings(access="allow_list", allow_from=("x",))},
    )
    async with open_agent(ScriptedModel([]), settings=settings) as agent:
        with pytest.raises(MessageRefused, match=reason) as refused:
            await converse(agent, "Hi", **fields)
        assert refused.value.code == code


async def test_an_error_of_the_program_around_it_is_raised_as_it_is(autojump_clock):
    with pytest.raises(ZeroDivisionError):
        async with open_agent(ScriptedModel([])):
            raise ZeroDivisionError
