"""Messages of Slack that belong together: files one after the other, texts that an app has split, shared messages."""

import pytest
import trio

from pegasus.storage import Waiting
from pegasus.testing.scripted import Hang, ScriptedModel
from pegasus.testing.services.slack_workspace import BOT_USER, SlackWorkspace
from pegasus.testing.world import kill
from tests.pegasus.channels.slack.conftest import FRIEND, START
from tests.pegasus.channels.slack.test_quotes import PNG, shared

WHOLE = "".join(f"{n:05} " for n in range(1500))
PARTS = [WHOLE[at : at + 4000] for at in range(0, len(WHOLE), 4000)]


def reads(stage):
    """What the model has read of people, a text for each of its requests."""
    return [request.turns[-1].text.rpartition("[channel: ")[2] for request in stage.model.requests]


def picture(stage, n):
    return stage.slack.add_file(f"p{n}.png", "image/png", PNG + bytes([n]))


@pytest.mark.tried("services", "Slack: a text that an app has split", "one message")
async def test_a_text_that_an_app_has_split_is_one_text(play, autojump_clock):
    async with play() as stage:
        for part in PARTS:
            await stage.say(part)
            await trio.sleep(0.5)
        assert len(await stage.settle()) == 1
        [read] = reads(stage)
        assert WHOLE.strip() in read


@pytest.mark.tried("services", "Slack: files one after the other", "one message")
async def test_files_one_after_the_other_and_their_comment_are_one_message(play, autojump_clock):
    async with play() as stage:
        for n in range(3):
            await stage.say("", files=[picture(stage, n)])
            await trio.sleep(0.5)
        await stage.say("which is the best?")
        await stage.settle()
        [read] = reads(stage)
        assert read.count("[Image: media/") == 3
        assert "which is the best?" in read


async def test_words_with_the_first_of_several_files_are_one_message_with_them(play, autojump_clock):
    async with play() as stage:
        for n in range(3):
            await stage.say("" if n else "which of these?", files=[picture(stage, n)])
        await stage.say("a new subject")
        await stage.settle()
        whole, other = reads(stage)
        assert whole.count("[Image: media/") == 3
        assert "which of these?" in whole
        assert "a new subject" in other


async def test_several_files_of_one_message_with_words_wait_for_nothing(play, autojump_clock):
    async with play() as stage:
        await stage.world.idle()
        begun = trio.current_time()
        await stage.say("these two", files=[picture(stage, 0), picture(stage, 1)])
        # Acknowledged when the message is on disk.
        assert trio.current_time() - begun < 1
        assert not stage.adapter.log.fact_keys("series/")
        await stage.settle()
        assert reads(stage)[0].count("[Image: media/") == 2


async def test_shared_messages_one_after_the_other_are_one_message(play, autojump_clock):
    async with play() as stage:
        for n in range(3):
            await stage.say("", attachments=[shared(text=f"words {n}")])
        await stage.settle()
        [read] = reads(stage)
        assert read.index("words 0") < read.index("words 1") < read.index("words 2")


async def test_in_a_channel_the_rest_of_a_text_is_heard_though_it_names_nobody(play, autojump_clock):
    async with play() as stage:
        channel = stage.slack.add_channel("general")
        await stage.say(f"<@{BOT_USER}> {'a' * 3980}", channel=channel)
        await stage.say("said by somebody else", FRIEND, channel)
        await stage.say("and the rest", channel=channel)
        await stage.say("for others", channel=channel)
        await stage.settle()
        [read] = reads(stage)
        assert "and the rest" in read
        assert "somebody else" not in read
        assert "for others" not in read


async def test_a_part_that_never_comes_holds_nothing_up_and_what_follows_keeps_its_place(play, autojump_clock):
    async with play(ScriptedModel(lambda request: Hang())) as stage:
        await stage.world.idle()
        await stage.say(PARTS[0])
        await trio.sleep(3)
        assert await stage.world.journal.ask(Waiting) == 1
        await stage.say("", files=[picture(stage, 0)])
        await stage.say("/status")
        assert await stage.world.journal.ask(Waiting) >= 2, "the file is on disk before the command is taken"


async def test_kill_9_in_the_middle_loses_no_part_and_answers_once(play, autojump_clock):
    workspace = SlackWorkspace(start=START // 1000)
    async with play(workspace=workspace) as stage:
        await stage.world.idle()
        envelopes = [stage.message(part) for part in PARTS]
        for envelope in envelopes[:2]:
            await stage.emit(envelope)  # acknowledged, and not handed in yet
        await kill(stage.world)
    async with play(workspace=workspace, disk=stage.world.disk) as again:
        await again.emit(envelopes[2])
        assert len(await again.settle()) == 1
        [read] = reads(again)
        assert WHOLE.strip() in read
        for envelope in envelopes:
            await again.emit(envelope)  # as Slack does where an acknowledgement was lost
        assert len(await again.settle()) == 1
