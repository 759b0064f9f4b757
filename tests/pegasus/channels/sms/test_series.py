"""Messages by SMS that belong together: a text that was split, several pictures."""

import pytest
import trio

from pegasus.storage import Waiting
from pegasus.testing.scripted import Hang, ScriptedModel
from pegasus.testing.world import kill
from tests.pegasus.channels.sms.conftest import OWNER
from tests.pegasus.channels.sms.test_sms_in import PNG

WHOLE = "".join(f"{n:05} " for n in range(700))


def reads(stage):
    return [request.turns[-1].text.rpartition("[channel: ")[2] for request in stage.model.requests]


@pytest.mark.tried("services", "SMS: a text split at 1,600 characters, and into single messages", "one message")
@pytest.mark.parametrize("size", [1600, 153])
async def test_a_text_that_was_split_is_one_text(play, autojump_clock, size):
    async with play() as stage:
        for at in range(0, len(WHOLE), size):
            assert await stage.text(OWNER, WHOLE[at : at + size]) == 200
            await trio.sleep(0.3)
        await stage.idle()
        [read] = reads(stage)
        assert WHOLE.strip() in read


@pytest.mark.tried("services", "MMS: several pictures in several messages", "one message")
async def test_pictures_in_several_messages_and_their_comment_are_one_message(play, autojump_clock):
    async with play() as stage:
        for _ in range(3):
            assert await stage.text(OWNER, "", [("image/png", PNG)]) == 200
            await trio.sleep(2)
        assert await stage.text(OWNER, "from the beach") == 200
        await stage.idle()
        [read] = reads(stage)
        assert read.count("[Image: media/") == 3
        assert "from the beach" in read


async def test_a_text_of_usual_length_waits_for_nothing(play, autojump_clock):
    async with play(ScriptedModel(lambda request: Hang())) as stage:
        await stage.world.idle()
        await stage.text(OWNER, "hello")
        assert await stage.world.journal.ask(Waiting) == 1
        await stage.text(OWNER, WHOLE[:1600])
        assert await stage.world.journal.ask(Waiting) == 1
        await trio.sleep(4)
        assert await stage.world.journal.ask(Waiting) == 2


async def test_kill_9_in_the_middle_loses_no_part_and_answers_once(play, autojump_clock):
    async with play() as stage:
        await stage.world.idle()
        assert await stage.text(OWNER, WHOLE[:1600], sid="SM1") == 200
        await kill(stage.world)
    async with play(twilio=stage.twilio, disk=stage.world.disk) as again:
        await trio.sleep(0.5)
        assert await again.text(OWNER, WHOLE[1600:3200], sid="SM2") == 200
        assert await again.text(OWNER, WHOLE[3200:], sid="SM3") == 200
        await again.idle()
        [read] = reads(again)
        assert WHOLE.strip() in read
        for n, at in enumerate(range(0, len(WHOLE), 1600), 1):
            await again.text(OWNER, WHOLE[at : at + 1600], sid=f"SM{n}")
        await again.idle()
        assert len(reads(again)) == 1
