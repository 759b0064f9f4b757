"""What the simulation of the whole tree has found: each crash at its place, and what must come of it."""

from contextlib import suppress
from itertools import count

import pytest
import trio

from actors import ActorError, GaveUp
from pegasus.main_agent import actor, conversation_changes
from pegasus.main_agent.think_loop import ThinkLoop
from pegasus.messages import ChannelInfo
from pegasus.settings import AgentSettings, Settings
from pegasus.testing.memory_disk import MemoryDisk
from pegasus.testing.scripted import After, Hang, ScriptedModel, down, reply, say
from pegasus.testing.world import FakeChannel, kill, open_world


async def lose_power_at(world, operation):
    """Or as soon as nothing is to be done any more."""
    world.disk.lose_power(operation)
    with suppress(ActorError):
        await world.idle()
    await kill(world)


@pytest.mark.parametrize("operation", range(1, 9))
async def test_an_apology_that_a_power_failure_cuts_off_from_its_note_is_given_all_the_same(autojump_clock, operation):
    """The session says that the item has ended, and nobody was told."""
    cli = FakeChannel("cli")
    with suppress(GaveUp):
        async with open_world(ScriptedModel(lambda _: down()), channels=(cli,)) as world:
            await world.say("x")
            await lose_power_at(world, operation)
    world.disk.crash()
    for _ in range(2):
        async with open_world(ScriptedModel(lambda _: down()), disk=world.disk, channels=(cli,)) as again:
            await again.idle()
            await kill(again)
    assert len(cli.texts) == 1
    assert cli.texts[0].startswith("The model did not answer: ")


@pytest.mark.parametrize("torn_bytes", [0, 5_000])
@pytest.mark.parametrize("operation", range(1, 12))
async def test_a_text_in_direct_speech_that_a_power_failure_cuts_off_from_its_thought_is_said_once(
    autojump_clock, operation, torn_bytes
):
    cli, model = FakeChannel("cli"), ScriptedModel(lambda _: say("hello"))
    settings = Settings(agent=AgentSettings(speech="direct"))
    with suppress(GaveUp):
        async with open_world(model, channels=(cli,), settings=settings) as world:
            await world.say("x")
            await lose_power_at(world, operation)
    world.disk.crash(torn_bytes)
    for _ in range(2):
        async with open_world(model, disk=world.disk, channels=(cli,), settings=settings) as again:
            await again.idle()
            await kill(again)
    assert cli.texts == ["hello"]


@pytest.mark.parametrize("operation", range(1, 12))
async def test_whoever_was_stopped_from_another_chat_hears_of_it_once_whenever_the_power_fails(
    autojump_clock, operation
):
    cli, slack, model = FakeChannel("cli"), FakeChannel("slack"), ScriptedModel(lambda _: Hang())
    both = Settings(agent=AgentSettings(owners=("cli:*", "slack:*")))
    with suppress(GaveUp):
        async with open_world(model, settings=both, channels=(cli, slack)) as world:
            await world.say("x")
            await world.say("/stop", ChannelInfo("slack", "#general"))
            await lose_power_at(world, operation)
    world.disk.crash()
    model = ScriptedModel(lambda _: say("", reply("r", "answer")))
    for _ in range(2):
        async with open_world(model, settings=both, disk=world.disk, channels=(cli, slack)) as again:
            await again.idle()
            await kill(again)
    assert len(cli.texts) == 1  # the answer, if the power failed before the stop
    assert len(slack.texts) == 1


@pytest.mark.parametrize("operation", range(4, 24))
async def test_whoever_calls_a_skill_that_becomes_a_task_hears_of_it_once_whenever_the_power_fails(
    autojump_clock, operation, tmp_path
):
    (tmp_path / "fix").mkdir()
    (tmp_path / "fix" / "SKILL.md").write_text("---\ndescription: fixes\ncontext: fork\n---\nFix it.", "utf-8")
    cli, model = FakeChannel("cli"), ScriptedModel(lambda _: say(""))
    settings = Settings(agent=AgentSettings(speech="monologue"))  # its silence about the task that failed is meant
    with suppress(GaveUp):
        async with open_world(
            model, channels=(cli,), skills=(tmp_path,), task_model=ScriptedModel(lambda _: Hang())
        ) as world:
            await world.say("/fix")
            await lose_power_at(world, operation)
    world.disk.crash()
    for _ in range(2):
        async with open_world(model, disk=world.disk, channels=(cli,), skills=(tmp_path,), settings=settings) as again:
            await again.idle()
            await kill(again)
    [text] = cli.texts
    assert text.startswith("/fix runs as task ")


@pytest.mark.parametrize("operation", range(1, 12))
async def test_two_apologies_do_not_get_into_each_others_place(autojump_clock, operation):
    cli = FakeChannel("cli")
    with suppress(GaveUp):
        async with open_world(ScriptedModel(lambda _: down()), channels=(cli,)) as world:
            await world.say("x", message_id="x")
            await world.say("y", message_id="y")
            await lose_power_at(world, operation)
    world.disk.crash()
    async with open_world(ScriptedModel(lambda _: down()), disk=world.disk, channels=(cli,)) as again:
        await again.idle()
    assert [reply.metadata["inReplyTo"] for reply in cli.replies] == ["x", "y"]


@pytest.mark.parametrize("operation", range(1, 12))
async def test_new_taken_up_once_more_does_not_put_aside_what_came_after_it(autojump_clock, operation):
    """Two power failures: one between the archive and the first line, the other before the inbox knows that /new is done."""
    ids = count()

    def answer(request):
        text = request.turns[-1].text.rpartition("\n")[2]
        return say("", reply(f"c{next(ids)}", f"answer to {text}"))

    cli, model = FakeChannel("cli"), ScriptedModel(answer)
    with suppress(GaveUp):
        async with open_world(model, channels=(cli,)) as world:
            await world.say("one")
            await world.next_reply()
            await world.say("/new", message_id="new")
            await world.say("two", message_id="two")
            await lose_power_at(world, operation)
    world.disk.crash()
    async with open_world(model, disk=world.disk, channels=(cli,)) as again:
        while cli.texts[-1] != "answer to two":
            await again.next_reply()
        await kill(again)
    async with open_world(model, disk=world.disk, channels=(cli,)) as at_last:
        await at_last.idle()
    assert [text.partition(".")[0] for text in cli.texts] == [
        "answer to one",
        "This is a fresh conversation",
        "answer to two",
    ]


@pytest.mark.parametrize("new", [(), ("/new",)])
@pytest.mark.parametrize("operation", range(1, 9))
async def test_stop_taken_up_once_more_ends_nothing_else_and_says_what_it_had_ended(autojump_clock, operation, new):
    def answer(request):
        if request.turns[-1].text.endswith("next"):
            return After(5, say("", reply("c1", "answer to next")))
        return After(30, say(""))

    cli, model = FakeChannel("cli"), ScriptedModel(answer)
    with suppress(GaveUp):
        async with open_world(model, channels=(cli,)) as world:
            await world.say("long", message_id="long")
            for text in (*new, "next"):
                await world.say(text, message_id=text)
            await world.say("/stop", message_id="stop")
            await lose_power_at(world, operation)
    world.disk.crash()
    async with open_world(model, disk=world.disk, channels=(cli,)) as again:
        await again.idle()
    sessions = b"".join(world.disk.content(path) for path in world.disk.paths() if path.startswith("main/"))
    assert sum("thought: long" in text for text in cli.texts) == sessions.count(b'"type":"stopped"')
    assert cli.texts[-1] == "answer to next"
    assert len(cli.texts) == 2 + len(new)


@pytest.mark.parametrize("operation", range(1, 9))
async def test_a_new_that_was_stopped_stays_so_and_its_stop_ends_nothing_that_came_after_it(
    autojump_clock, monkeypatch, operation
):
    begin, seconds = conversation_changes.begin_session, 1

    async def slowly(*args):
        await trio.sleep(seconds)
        await begin(*args)

    monkeypatch.setattr(conversation_changes, "begin_session", slowly)
    cli = FakeChannel("cli")
    model = ScriptedModel(lambda _: After(5, say("", reply("r", "answer to after"))))
    with suppress(GaveUp):
        async with open_world(model, channels=(cli,)) as world:
            await world.say("/new", message_id="new")
            await trio.sleep(0.5)
            await world.say("/stop", message_id="stop")
            await world.say("after", message_id="after")
            await lose_power_at(world, operation)
    world.disk.crash()
    seconds = 0
    async with open_world(model, disk=world.disk, channels=(cli,)) as again:
        await again.idle()
    was_stopped = any("thought: /new" in text for text in cli.texts)
    assert any("fresh conversation" in text for text in cli.texts) is not was_stopped
    assert not any("thought: after" in text for text in cli.texts)
    assert cli.texts[-1] == "answer to after"
    assert len(cli.texts) == 3 - was_stopped


async def test_a_stop_ends_no_message_that_was_accepted_after_it(autojump_clock, monkeypatch):
    """It waits behind another command, and by then such a message is being thought about."""
    status = actor.gather_status

    async def slowly(*args):
        await trio.sleep(2)
        return await status(*args)

    monkeypatch.setattr(actor, "gather_status", slowly)
    cli = FakeChannel("cli")
    model = ScriptedModel(lambda _: After(5, say("", reply("r", "answer"))))
    async with open_world(model, channels=(cli,)) as world:
        for text in ("/status", "/stop", "do this instead"):
            await world.say(text)
        await world.idle()
    assert "Nothing was running" in cli.texts[-2]
    assert cli.texts[-1] == "answer"


async def test_a_stop_before_the_message_is_recorded_is_recorded_with_it(autojump_clock, monkeypatch):
    """Else a crash before the answer to /stop would have the message thought about after all, and the stop forgotten."""
    run = ThinkLoop.run

    async def slowly(self, turn, progress):
        await trio.sleep(1)
        await run(self, turn, progress)

    monkeypatch.setattr(ThinkLoop, "run", slowly)
    cli = FakeChannel("cli")
    async with open_world(ScriptedModel(lambda _: say("", reply("c1", "answer"))), channels=(cli,)) as world:
        await world.say("long", message_id="long")
        await trio.sleep(0.5)
        await world.say("/stop", message_id="stop")
        await world.idle()
        assert ["thought: long" in text for text in cli.texts] == [True]
        user, note = [line for line in world.session() if line["metadata"].get("type") != "memory_index"]
        assert (user["role"], user["metadata"]["messageId"]) == ("user", "long")
        assert (note["metadata"]["type"], note["metadata"]["what"]) == ("stopped", "long")


@pytest.mark.parametrize("lost", [("inbox/",), ("inbox/", "outbox/")])
async def test_what_is_said_after_the_inbox_was_lost_is_answered(autojump_clock, lost):
    """Somebody has deleted it, or its disk is gone: its numbers must not be taken for those in session and outbox."""
    ids = count()
    cli, model = FakeChannel("cli"), ScriptedModel(lambda request: say("", reply(f"c{next(ids)}", "answer")))
    async with open_world(model, channels=(cli,)) as world:
        for n in range(3):
            await world.say(f"before {n}", message_id=f"b{n}")
        await world.say("/help", message_id="b-help")
        await world.idle()
        await kill(world)
    disk, cli = MemoryDisk(), FakeChannel("cli")
    for path in world.disk.paths():
        if not path.startswith(lost):
            disk.put(path, world.disk.content(path))
    async with open_world(model, disk=disk, channels=(cli,)) as again:
        for n in range(3):
            await again.say(f"after {n}", message_id=f"a{n}")
        await again.say("/help", message_id="a-help")
        await again.idle()
        await trio.sleep(1)
    answered = {reply.metadata["inReplyTo"] for reply in cli.replies}
    assert answered >= {"a0", "a1", "a2", "a-help"}


async def test_an_inbox_that_was_lost_after_new_has_no_number_that_is_done_already(autojump_clock):
    """The first line of the session names the item that began it."""
    ids = count()
    cli, model = FakeChannel("cli"), ScriptedModel(lambda request: say("", reply(f"c{next(ids)}", "answer")))
    async with open_world(model, channels=(cli,)) as world:
        await world.say("before", message_id="b")
        await world.say("/new", message_id="b-new")
        await world.idle()
        await kill(world)
    disk, cli = MemoryDisk(), FakeChannel("cli")
    disk.put("main/current.jsonl", world.disk.content("main/current.jsonl"))
    async with open_world(model, disk=disk, channels=(cli,)) as again:
        for n in range(2):
            await again.say(f"after {n}", message_id=f"a{n}")
        await again.idle()
        await again.say("/new", message_id="a-new")
        await again.idle()
    assert [reply.metadata["inReplyTo"] for reply in cli.replies] == ["a0", "a1", "a-new"]
