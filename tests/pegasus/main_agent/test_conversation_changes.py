"""/compact, /resume, /retry and /context, and the second names of commands."""

from __future__ import annotations

import json

import pytest
import trio

from pegasus.access import sender_of
from pegasus.app import ChatCommands
from pegasus.main_agent.context_view import describe_context
from pegasus.memory import Author
from pegasus.messages import ChannelInfo, InboundMessage
from pegasus.settings import AgentSettings, Settings
from pegasus.testing.memory_disk import MemoryDisk
from pegasus.testing.scripted import Hang, ScriptedModel, call, down, reply, say
from pegasus.testing.world import CLI, FakeChannel, open_world

from .compaction.kit import GOOD

TELEGRAM = ChannelInfo("telegram", "7", "12345")
OWNERS = Settings(agent=AgentSettings(owners=("cli:*", "telegram:12345")))


def echo(request):
    text = request.turns[-1].text
    return say("", reply("r", f"echo {text.rpartition(chr(10))[2]}"))


def prompts_of(model):
    return [request.turns[-1].text for request in model.requests]


# ------------------------------------------------------------------ second names


@pytest.mark.parametrize(("typed", "says"), [("/clear", "(/clear is /new.)"), ("/cost", "(/cost is /usage.)")])
async def test_the_names_of_other_agents_work_and_say_what_they_are_called_here(autojump_clock, typed, says):
    async with open_world(model := ScriptedModel(echo)) as world:
        await world.say("hello")
        await world.next_reply()
        await world.say(typed)
        text = (await world.next_reply()).text
        assert says in text
        assert len(model.requests) == 1
        await world.say("again")
        await world.next_reply()
    assert ("hello" in str(model.requests[-1].turns)) is (typed == "/cost")


# ------------------------------------------------------------------ /compact


async def test_compact_puts_a_summary_in_the_place_of_the_conversation(autojump_clock):
    compact = ScriptedModel([say(GOOD)])
    async with open_world(model := ScriptedModel(echo), models={"compact": compact}) as world:
        for n in range(6):
            await world.say(f"message {n} " + "words " * 100)
            await world.next_reply()
        await world.say("/compact  the invoice\nof May")
        text = (await world.next_reply()).text
        assert text.startswith("Compacted: about ")
        assert "is kept in 20" in text
        assert (
            "What matters most, says who asked for the summary: the invoice of May" in compact.requests[0].turns[0].text
        )
        await world.say("and now")
        await world.next_reply()
        first = world.session()[0]
    assert first["metadata"]["type"] == "compact"
    seen = str(model.requests[-1].turns)
    assert "message 0" not in seen
    assert "Summary of our conversations" in seen


async def test_compact_without_a_summary_leaves_everything_as_it_was(autojump_clock):
    compact = ScriptedModel(lambda request: down("network"))
    async with open_world(ScriptedModel(echo), models={"compact": compact}) as world:
        await world.say("hello")
        await world.next_reply()
        await world.idle()
        before = world.session()
        await world.say("/compact")
        assert "the conversation is as it was" in (await world.next_reply()).text
        assert world.session() == before


async def test_an_empty_conversation_is_not_compacted(autojump_clock):
    async with open_world(ScriptedModel([])) as world:
        await world.say("/compact")
        assert (await world.next_reply()).text == "There is nothing to compact yet."


async def test_a_stop_ends_a_compaction_and_leaves_the_conversation(autojump_clock):
    compact = ScriptedModel([Hang()])
    async with open_world(ScriptedModel(echo), models={"compact": compact}) as world:
        await world.say("hello")
        await world.next_reply()
        await world.say("/compact")
        await trio.sleep(1)
        await world.say("/stop")
        assert "thought: /compact" in (await world.next_reply()).text
        await world.idle()
        assert "hello" in world.session()[0]["content"]


# ------------------------------------------------------------------ /resume


async def test_resume_lists_the_conversations_and_goes_on_with_one(autojump_clock):
    async with open_world(model := ScriptedModel(echo)) as world:
        for text in ("the word is xyzzy", "/new", "something else", "/new"):
            await world.say(text)
            await world.next_reply()
        await world.say("/resume")
        listed = (await world.next_reply()).text.splitlines()
        assert listed[0].startswith("1. ")
        assert listed[0].endswith(" something else")
        assert listed[1].endswith(" the word is xyzzy")
        await world.say("/resume 2")
        assert "begins with “the word is xyzzy”" in (await world.next_reply()).text
        await world.say("what was it?")
        await world.next_reply()
    assert "xyzzy" in str(model.requests[-1].turns)
    assert "something else" not in str(model.requests[-1].turns)


async def test_resume_takes_words_and_names_and_keeps_the_present_conversation(autojump_clock):
    async with open_world(ScriptedModel(echo)) as world:
        for text in ("the invoice of May", "/new", "present"):
            await world.say(text)
            await world.next_reply()
        await world.say("/resume invoice")
        assert "The one before is kept in " in (await world.next_reply()).text
        await world.say("/resume")
        assert " present" in (await world.next_reply()).text.splitlines()[0]


@pytest.mark.parametrize("wanted", ["7", "0", "nonsense", "../../etc/passwd", "²", "9" * 50])
async def test_a_conversation_that_is_not_there_is_told_and_changes_nothing(autojump_clock, wanted):
    async with open_world(ScriptedModel(echo)) as world:
        for text in ("one", "/new", "two"):
            await world.say(text)
            await world.next_reply()
        await world.idle()
        before = world.session()
        await world.say(f"/resume {wanted}")
        assert "/resume lists those that there are" in (await world.next_reply()).text
        assert world.session() == before


# ------------------------------------------------------------------ /rename


async def test_a_name_stays_with_its_conversation_and_resume_finds_it(autojump_clock):
    compact = ScriptedModel(lambda request: say(GOOD))
    async with open_world(ScriptedModel(echo), models={"compact": compact}) as world:

        async def told(text):
            await world.say(text)
            return (await world.next_reply()).text

        assert "nothing to name yet" in await told("/rename Too early")
        await told("the word is xyzzy")
        assert "“Invoices of May” now" in await told("/rename  Invoices\u202e  of May ")
        assert await told("/rename") == "This conversation is called “Invoices of May”."
        for n in range(4):
            await told(f"message {n} " + "words " * 100)
        await told("/compact")
        assert await told("/rename") == "This conversation is called “Invoices of May”."
        await told("/new")
        await told("Invoices of May, again")  # contains the name, and is newer
        assert "/rename NAME gives" in await told("/rename")
        await told("/new")
        await told("something else")
        listed = await told("/resume")
        assert "2. " in listed
        assert listed.count(" Invoices of May\n") == 2  # before the compaction, and since
        assert "in the conversation “Invoices of May” of 20" in await told("/resume invoices  OF may")
        assert await told("/rename") == "This conversation is called “Invoices of May”."
        assert "A name has at most 80 characters; this one has 81." in await told(f"/rename {'x' * 81}")
    names = json.loads(world.disk.content("main/names.json"))
    assert list(names.values()) == ["Invoices of May"]


async def test_names_are_known_after_a_restart(autojump_clock):
    disk = MemoryDisk()
    async with open_world(ScriptedModel(echo), disk=disk) as world:
        for text in ("hello", "/rename First"):
            await world.say(text)
            await world.next_reply()
    async with open_world(ScriptedModel(echo), disk=disk) as world:
        await world.say("/rename", message_id="after the restart")
        assert "“First”" in (await world.next_reply()).text


async def test_a_guest_names_nothing(autojump_clock):
    async with open_world(ScriptedModel(echo), settings=OWNERS, channels=[FakeChannel("telegram")]) as world:
        await world.say("/rename Mine", channel=ChannelInfo("telegram", "99", "99"))
        assert (await world.next_reply("telegram")).text.startswith("Only my owner ")
    assert "main/names.json" not in world.disk.paths()


# ------------------------------------------------------------------ /retry


async def test_retry_answers_the_last_message_once_more_without_the_first_answer(autojump_clock):
    answers = iter(["first", "second"])
    async with open_world(model := ScriptedModel(lambda request: say("", reply("r", next(answers))))) as world:
        await world.say("tell me")
        assert (await world.next_reply()).text == "first"
        await world.say("/retry")
        assert (await world.next_reply()).text == "second"
        await world.idle()
        lines = [line["content"] for line in world.session() if line["role"] == "user"]
    assert len([line for line in lines if "tell me" in line]) == 1
    assert "first" not in str(model.requests[-1].turns)
    assert "/retry" not in str(model.requests[-1].turns)


async def test_retry_tells_the_model_what_the_calls_of_the_first_answer_did(autojump_clock):
    def think(request):
        if request.turns[-1].results or len(model.requests) > 2:
            return say("", reply("r", "done"))
        return say("", call("current_time", "t"))

    async with open_world(model := ScriptedModel(think)) as world:
        await world.say("what time is it?")
        await world.next_reply()
        await world.say("/retry")
        await world.next_reply()
    assert "Its 1 call had their effect: current_time" in str(model.requests[-1].turns)


async def test_retry_after_a_model_that_was_down(autojump_clock):
    script = [down("network"), say("", reply("r", "here I am"))]
    async with open_world(ScriptedModel(script)) as world:
        await world.say("hello")
        assert "did not answer" in (await world.next_reply()).text
        await world.say("/retry")
        assert (await world.next_reply()).text == "here I am"


async def test_retry_is_refused_when_something_else_came_since(autojump_clock):
    channels = (FakeChannel("cli"), FakeChannel("telegram"))
    async with open_world(model := ScriptedModel(echo), settings=OWNERS, channels=channels) as world:
        await world.say("on the terminal")
        await world.next_reply()
        await world.say("on the phone", TELEGRAM)
        await world.idle()
        await world.say("/retry")
        await world.idle()
        assert "something else has come" in world.channels["cli"].texts[-1]
        assert len(model.requests) == 2


async def test_retry_without_a_message_says_so(autojump_clock):
    async with open_world(ScriptedModel([])) as world:
        await world.say("/retry")
        assert (await world.next_reply()).text == "There is no message that I could answer once more."


async def test_a_retry_that_a_restart_interrupts_is_answered_once(autojump_clock):
    disk = MemoryDisk()
    async with open_world(ScriptedModel([say("", reply("r", "one")), Hang()]), disk=disk) as world:
        await world.say("tell me")
        await world.idle()
        await world.say("/retry")
        await trio.sleep(1)
    async with open_world(model := ScriptedModel([say("", reply("r", "two"))]), disk=disk) as world:
        await world.idle()
        assert world.channels["cli"].texts[-1] == "two"
        lines = [line["content"] for line in world.session() if line["role"] == "user"]
    assert len([line for line in lines if "tell me" in line]) == 1
    assert "tell me" in model.requests[0].turns[-1].text


# ------------------------------------------------------------------ /context


async def test_context_shows_what_fills_the_window(autojump_clock):
    async with open_world(ScriptedModel(echo)) as world:
        await world.say("words " * 200)
        await world.next_reply()
        await world.say("/context")
        text = (await world.next_reply()).text
    assert text.startswith("Context of scripted/test: about ")
    for part in ("I instructions: ", "T tools: ", "m messages: ", "a answers: ", "· free: ", "/compact does it now"):
        assert part in text


@pytest.mark.parametrize("window", [0, 100, 4_096, 200_000])
@pytest.mark.parametrize("parts", [{}, {"tools": 1}, {"tools": 10**7, "messages": 3}])
def test_the_bar_is_always_whole(window, parts):
    text = describe_context("a/b", parts, window, 0)
    bar = text.splitlines()[1]
    assert len(bar) == 32
    assert all(mark in bar for mark in ["T"] * ("tools" in parts))


# ------------------------------------------------------------------ who may


@pytest.mark.parametrize("command", ["/new", "/compact", "/resume", "/retry"])
async def test_a_guest_changes_only_their_own_conversation(autojump_clock, command):
    channels = (FakeChannel("cli"), telegram := FakeChannel("telegram"))
    both = Settings(agent=AgentSettings(owners=("cli:*",)))
    async with open_world(ScriptedModel(echo), settings=both, channels=channels) as world:
        await world.say("the owner's secret")
        await world.next_reply()
        await world.say("/new")
        await world.next_reply()
        await world.say("the owner's own")
        await world.next_reply()
        await world.idle()
        before = world.session()
        await world.say(command, ChannelInfo("telegram", "9", "eve"))
        answer = (await telegram.next_reply()).text
        assert "secret" not in answer
        assert world.session() == before


# ------------------------------------------------------------------ /undo


async def test_undo_takes_back_the_last_changes_of_memory(autojump_clock, monkeypatch):
    monkeypatch.setenv("PEGASUS_COMMAND", "./scripts/run")
    async with open_world(ScriptedModel([])) as world:
        memory = world.tree.services.memory
        for n in range(3):
            await memory.append("facts/user.md", f"- Likes: tea {n}", by=Author())
        await world.say("/undo")
        done = "Change 3 of facts/user.md is taken back (./scripts/run memory undo 4 makes it again)."
        assert (await world.next_reply()).text == done
        assert "tea 2" not in await memory.read("facts/user.md")
        await world.say("/undo 5")
        assert (await world.next_reply()).text.count("is taken back") == 2
        assert "facts/user.md" not in [file.path for file in await memory.list()]
        await world.say("/undo")
        answer = (await world.next_reply()).text
        assert "no change of my memory" in answer
        assert "./scripts/run memory log shows older ones" in answer


@pytest.mark.parametrize("words", ["0", "-1", "x", "²", "1 2", "99999"])
async def test_an_undo_of_something_else_says_what_can_be_said(autojump_clock, words):
    async with open_world(ScriptedModel([])) as world:
        await world.say(f"/undo {words}")
        assert "allowed: a number from 1 to 20" in (await world.next_reply()).text


async def test_an_undo_that_is_carried_out_again_takes_back_nothing_more(autojump_clock):
    async with open_world(ScriptedModel([])) as world:
        memory, answers = world.tree.services.memory, ChatCommands(world.tree.services).answers()
        for n in range(3):
            await memory.append("facts/user.md", f"- Likes: tea {n}", by=Author())
        message = InboundMessage("/undo", CLI, "u1")
        person = sender_of(message, ("cli",))
        first = await answers["/undo"](message, person)
        assert await answers["/undo"](message, person) == first
        assert "tea 1" in await memory.read("facts/user.md")


async def test_a_guest_takes_back_nothing_of_the_owners(autojump_clock):
    channels = (FakeChannel("cli"), telegram := FakeChannel("telegram"))
    async with open_world(ScriptedModel([]), settings=OWNERS, channels=channels) as world:
        await (memory := world.tree.services.memory).append("facts/user.md", "- Likes: tea", by=Author())
        await world.say("/undo", ChannelInfo("telegram", "9", "eve"))
        assert (await telegram.next_reply()).text == "There is no change of a file of yours to take back."
        assert "tea" in await memory.read("facts/user.md")
