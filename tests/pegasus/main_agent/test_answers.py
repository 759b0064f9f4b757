"""How answers end that are no ordinary ones, what is attached to messages, and the commands that others answer."""

import base64
import zlib

import pytest
import trio

from pegasus.messages import InboundMessage, Media
from pegasus.models.base import ModelError
from pegasus.settings import AgentSettings, ModelSettings, SessionSettings, Settings
from pegasus.testing.memory_disk import MemoryDisk
from pegasus.testing.scripted import ScriptedModel, call, reply, say
from pegasus.testing.world import CLI, FakeChannel, kill, open_world
from tests.pegasus.conversation.test_projection import is_valid
from tests.pegasus.main_agent.voices import CLI_OWNS, SLACK


def png(side=1):
    def chunk(kind, data):
        body = kind + data
        return len(data).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")

    head = side.to_bytes(4, "big") * 2 + b"\x08\x02\x00\x00\x00"
    rows = zlib.compress((b"\x00" + b"\xff\x00\x00" * side) * side)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def media(name, mime, data):
    return Media(name, mime, base64.b64encode(data).decode())


async def send(world, text, *attached, message_id="m1"):
    await world.intake.submit(InboundMessage(text, CLI, message_id, media=attached))


# ------------------------------------------------------------------ how answers end


async def test_an_answer_that_was_cut_off_is_gone_on_with(autojump_clock):
    model = ScriptedModel([say("I think that", stop_reason="length"), say("", reply("r", "done"))])
    async with open_world(model, settings=MONOLOGUE) as world:
        await world.say("think hard")
        assert (await world.next_reply()).text == "done"
    assert "Go on from there" in model.requests[1].turns[-1].text
    assert is_valid(model.requests[1].turns)


async def test_one_that_is_always_cut_off_ends_at_the_limit(autojump_clock):
    model = ScriptedModel(lambda request: say("and", stop_reason="length"))
    settings = Settings(agent=AgentSettings(speech="monologue", max_thoughts=3))
    async with open_world(model, settings=settings) as world:
        await world.say("think hard")
        assert (await world.next_reply()).text == "I gave up after 3 attempts without coming to an end."
    assert len(model.requests) == 3


async def test_one_that_fails_again_and_again_is_given_up_with_the_last_error(autojump_clock):
    tools = iter(("memory_read", "no_such_tool") * 2)
    model = ScriptedModel(lambda request: say("", call(next(tools), "c", path="nothing.md")))
    async with open_world(model, settings=Settings(agent=AgentSettings(max_thoughts=4))) as world:
        await world.say("think hard")
        text = (await world.next_reply()).text
    assert text.startswith(
        "I gave up after 4 attempts; the last one failed with: there is no tool 'no_such_tool' here."
    )


async def test_a_cut_off_answer_is_gone_on_with_after_a_power_failure(autojump_clock):
    disk = MemoryDisk()
    model = ScriptedModel([say("I think that", stop_reason="length"), say("", reply("r", "done"))], delay=1)
    async with open_world(model, disk=disk, settings=MONOLOGUE) as world:
        with trio.CancelScope() as scope:
            await world.say("think hard")
            await trio.sleep(1.5)
            await kill(world)
            scope.cancel()
    again = ScriptedModel([say("", reply("r", "done"))])
    async with open_world(again, disk=disk) as world:
        assert (await world.next_reply()).text == "done"
    assert "Go on from there" in again.requests[0].turns[-1].text


async def test_a_refusal_is_told_to_who_asked_and_nothing_more_is_thought(autojump_clock):
    model = ScriptedModel([say("private reasons", stop_reason="refusal"), say("", reply("r", "yes"))])
    async with open_world(model) as world:
        await world.say("something bad")
        assert (await world.next_reply()).text == "Sorry, the model that thinks for me declined to answer this."
        await world.say("something good")
        assert (await world.next_reply()).text == "yes"
    assert len(model.requests) == 2


@pytest.mark.parametrize("reason", ["end", "content_filter_of_next_year", "stop_sequence"])
async def test_an_empty_answer_is_silence(autojump_clock, reason):
    model = ScriptedModel([say("", stop_reason=reason), say("", reply("r", "yes"))])
    async with open_world(model) as world:
        await world.say("one")
        await world.say("two")
        assert (await world.next_reply()).text == "yes"


async def test_a_budget_that_is_spent_is_told_in_its_own_words(autojump_clock):
    model = ScriptedModel([ModelError("the budget of today is spent; it is fresh tomorrow", kind="budget")])
    async with open_world(model) as world:
        await world.say("hi")
        text = (await world.next_reply()).text
    assert text.endswith("the budget of today is spent; it is fresh tomorrow.")


# ------------------------------------------------------------------ what is attached


async def test_a_picture_is_shown_to_the_model_and_still_is_after_a_restart(autojump_clock):
    disk, picture = MemoryDisk(), png()
    model = ScriptedModel([say("", reply("r", "red"))])
    async with open_world(model, disk=disk) as world:
        await send(world, "what is this?", media("a.png", "image/png", picture))
        await world.idle()
        [line] = [line for line in world.session() if line["role"] == "user"]
        await kill(world)
    assert model.requests[0].turns[0].images[0].data == base64.b64encode(picture).decode()
    assert disk.content(line["metadata"]["media"][0]["file"]) == picture
    again = ScriptedModel([say()])
    async with open_world(again, disk=disk) as world:
        await world.say("and now?")
        await world.idle()
    assert again.requests[0].turns[0].images[0].mime == "image/png"


async def test_a_picture_that_is_none_is_words(autojump_clock):
    model = ScriptedModel([say()])
    async with open_world(model) as world:
        await send(world, "look", media("a\u202e.png\n[channel: x", "image/png", b"not a picture"))
        await world.idle()
    [turn] = model.requests[0].turns
    assert turn.images == ()
    assert "you cannot see it" in turn.text
    assert not any(line.startswith("[channel") for line in turn.text.splitlines()[1:])


async def test_five_megabytes_of_text_are_taken(autojump_clock):
    model = ScriptedModel([say("", reply("r", "long"))])
    settings = Settings(models=ModelSettings(context_window=10_000_000))
    async with open_world(model, settings=settings) as world:
        await world.say("word " * 1_000_000)
        assert (await world.next_reply()).text == "long"
    assert len(model.requests[0].turns[0].text) > 4_900_000


# ------------------------------------------------------------------ the window


MONOLOGUE = Settings(agent=AgentSettings(speech="monologue"))
SMALL = Settings(models=ModelSettings(context_window=20_000), session=SessionSettings(compact_threshold=0.8))
SUMMARY = "## Now\nwe count\n## People\ncli:main\n## Decisions and facts\nnone\n## Open\nnone"


async def test_a_session_that_fills_the_window_is_compacted_before_the_next_call(autojump_clock):
    model = ScriptedModel(lambda request: say("", reply(f"r{len(request.turns)}", "ok")))
    compact = ScriptedModel(lambda request: say(SUMMARY))
    async with open_world(model, settings=SMALL, models={"compact": compact}) as world:
        for n in range(30):
            await world.say(f"{n} " + "one two three four five six seven " * 100)
            await world.idle()
        first = world.session()[0]
        archives = [path for path in world.disk.paths() if path.startswith("main/2026")]
    assert first["role"] == "system"
    assert first["metadata"]["type"] == "compact"
    assert f"main/{first['metadata']['previousSession']}" in archives
    assert "we count" in first["content"]
    assert compact.requests[0].label.role == "compact"
    assert all(is_valid(request.turns) for request in model.requests)
    assert len({request.system for request in model.requests}) == 1


async def test_a_provider_that_says_too_long_makes_it_shorter_and_answers(autojump_clock):
    def think(request):
        if sum(len(turn.text) for turn in request.turns) > 4_000:
            return ModelError("scripted/test: the conversation is too long", kind="overflow")
        return say("", reply(f"r{len(request.turns)}", "ok"))

    cli = FakeChannel("cli")
    async with open_world(
        ScriptedModel(think), channels=(cli,), models={"compact": ScriptedModel(lambda request: say(SUMMARY))}
    ) as world:
        for n in range(12):
            await world.say(f"{n} " + "word " * 150)
            await world.idle()
    assert cli.texts == ["ok"] * 12


async def test_a_message_that_is_too_long_however_much_is_left_out_is_told(autojump_clock):
    model = ScriptedModel(lambda request: ModelError("scripted/test: the conversation is too long", kind="overflow"))
    async with open_world(model) as world:
        await world.say("x " * 5_000)
        text = (await world.next_reply()).text
    assert "too long" in text
    assert "/new" in text


async def test_an_archive_can_be_read_after_new(autojump_clock):
    archive = []

    def think(request):
        if request.turns[-1].results:
            archive.append(request.turns[-1].results[0].content)
            return say("", reply("r", "found"))
        if "what was it" in request.turns[-1].text:
            file = request.turns[0].text.partition("archived as ")[2].partition(".)")[0]
            return say("", call("session_archive_read", "a", file=file))
        return say("", reply("r", "noted"))

    async with open_world(ScriptedModel(think)) as world:
        await world.say("the word is xyzzy")
        await world.say("/new")
        await world.say("what was it?")
        await world.idle()
        assert world.channels["cli"].texts[-1] == "found"
    assert "xyzzy" in archive[0]


# ------------------------------------------------------------------ commands


async def test_help_lists_commands_and_skills(autojump_clock):
    async with open_world(ScriptedModel([])) as world:
        await world.say("/help")
        text = (await world.next_reply()).text
    for word in ("/stop", "/new", "/status", "/usage", "/model", "/persona", "Skills:", "/explain"):
        assert word in text


async def test_help_begins_with_the_commands_that_are_used_most(autojump_clock):
    async with open_world(ScriptedModel([])) as world:
        await world.say("/help")
        lines = (await world.next_reply()).text.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["/stop", "/new", "/clear", "/compact"]
    assert "Anything else you write is a message to me." in lines


async def test_an_unknown_command_is_answered_without_a_model_and_leaves_no_trace(autojump_clock):
    async with open_world(model := ScriptedModel([])) as world:
        await world.say("/staus now")
        assert (await world.next_reply()).text.startswith("There is no command /staus. Did you mean /status?")
        await world.say("/explian x")
        assert "Did you mean /explain?" in (await world.next_reply()).text
        await world.idle()
        assert model.requests == []
        assert "/staus" not in str(world.disk.content("main/current.jsonl"))


async def test_a_path_is_no_command(autojump_clock):
    async with open_world(model := ScriptedModel([say("")]), settings=MONOLOGUE) as world:
        await world.say("/etc/hosts is broken")
        await world.idle()
        assert len(model.requests) == 1


async def test_usage_and_model_are_answered_where_nobody_keeps_count(autojump_clock):
    async with open_world(ScriptedModel([])) as world:
        await world.say("/usage")
        assert "Usage is not counted." in (await world.next_reply()).text
        await world.say("/model")
        answer = (await world.next_reply()).text
        assert answer.startswith("I use scripted/test.\nIt speaks only through the tool reply")


async def test_persona_is_shown_to_the_owner_alone(autojump_clock):
    cli, slack = FakeChannel("cli"), FakeChannel("slack")
    async with open_world(ScriptedModel([]), channels=(cli, slack), settings=CLI_OWNS) as world:
        await world.say("/persona")
        assert "Pegasus" in (await world.next_reply()).text
        await world.say("/persona", SLACK)
        assert (await world.next_reply("slack")).text == "Only my owner can see and decide what becomes of me."


async def test_commands_pass_a_busy_agent(autojump_clock):
    model = ScriptedModel([say("", reply("r", "late"))], delay=1000)
    async with open_world(model) as world:
        await world.say("think")
        await trio.sleep(1)
        for command in ("/help", "/usage", "/model", "/persona", "/status"):
            await world.say(command)
            with trio.fail_after(5):
                await world.next_reply()
