"""Messages of Telegram that belong together: albums, files, forwarded series, texts that an app has split."""

import pytest
import trio

from pegasus.channels.series import LONGEST
from pegasus.storage import Waiting
from pegasus.testing.scripted import Hang, ScriptedModel
from pegasus.testing.services.telegram import TelegramServer
from pegasus.testing.world import kill
from tests.pegasus.channels.telegram.conftest import FRIEND, GROUP, OWNER
from tests.pegasus.channels.telegram.test_webhook import ready, request_of, webhook_settings

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 40
NAMED = {"caption_entities": [{"type": "mention", "offset": 0, "length": 12}]}


def photo(telegram, n, chat=OWNER, album="a1", **fields):
    """A picture of an album."""
    size = telegram.add_file(PNG + bytes([n]), width=1, height=1)
    return telegram.say(chat, None, user=OWNER, photo=[size], media_group_id=album, **fields)


def read_by(model):
    """What the model has read of people, a text for each of its requests."""
    return [request.turns[-1].text.rpartition("[channel: ")[2] for request in model.requests]


@pytest.mark.tried("services", "Telegram: an album", "one message")
async def test_an_album_is_one_message_with_its_pictures_in_order(play, autojump_clock):
    async with play() as stage:
        for n in range(3):
            photo(stage.telegram, n, caption="the holidays" if n == 1 else None)
            await trio.sleep(0.5)
        await stage.telegram.next_message()
        await stage.world.idle()
        await trio.sleep(5)
        [read] = read_by(stage.model)
        assert read.count("[Image: media/") == 3
        assert "the holidays" in read
        assert len(stage.telegram.messages) == 1


async def test_an_album_whose_last_part_never_comes_is_heard_soon(play, autojump_clock):
    async with play(ScriptedModel(lambda request: Hang())) as stage:
        await stage.world.idle()
        photo(stage.telegram, 0, caption="only this")
        await trio.sleep(3)
        assert await stage.world.journal.ask(Waiting) == 1


async def test_parts_without_end_are_heard_all_the_same(play, autojump_clock):
    async with play(ScriptedModel(lambda request: Hang())) as stage:
        await stage.world.idle()
        begun = trio.current_time()
        for n in range(30):
            photo(stage.telegram, n)
            await trio.sleep(1)
            if await stage.world.journal.ask(Waiting):
                break
        assert trio.current_time() - begun < LONGEST + 5


@pytest.mark.parametrize("mentions", [0, 2])
async def test_in_a_group_the_whole_album_is_heard_if_one_caption_mentions(play, autojump_clock, mentions):
    async with play() as stage:
        for n in range(3):
            named = {"caption": "@pegasus_bot look", **NAMED} if n == mentions else {}
            photo(stage.telegram, n, GROUP, **named)
        photo(stage.telegram, 9, GROUP, album="nobody is meant", caption="for others")
        await stage.telegram.next_message()
        await trio.sleep(20)
        [read] = read_by(stage.model)
        assert read.count("[Image: media/") in (3, 4)
        assert "look" in read


async def test_in_a_group_an_album_for_others_is_not_heard(play, autojump_clock):
    async with play() as stage:
        for n in range(3):
            photo(stage.telegram, n, GROUP, caption="for others")
        await trio.sleep(20)
        assert not stage.model.requests
        assert stage.telegram.waiting == 0


@pytest.mark.tried("services", "Telegram: a text split at 4,096 characters", "one message")
async def test_a_text_that_an_app_has_split_is_one_text(play, autojump_clock):
    whole = "".join(f"{n:05} " for n in range(1500))
    async with play() as stage:
        for at in range(0, len(whole), 4096):
            stage.telegram.say(OWNER, whole[at : at + 4096])
            await trio.sleep(0.3)
        await stage.telegram.next_message()
        await trio.sleep(10)
        [read] = read_by(stage.model)
        assert whole.strip() in read


@pytest.mark.tried("services", "Telegram: a forwarded series with a comment", "one message")
async def test_forwarded_messages_and_the_comment_on_them_are_one_message(play, autojump_clock):
    origin = {"type": "hidden_user", "sender_user_name": "Anna", "date": 1}
    async with play() as stage:
        stage.telegram.say(OWNER, "what do they want?")
        for n in range(5):
            stage.telegram.say(OWNER, f"words {n}", forward_origin=origin)
        await stage.telegram.next_message()
        await trio.sleep(10)
        [read] = read_by(stage.model)
        assert (
            read.index("what do they want?") < read.index("<untrusted") < read.index("words 0") < read.index("words 4")
        )


async def test_what_belongs_to_nothing_does_not_wait_and_keeps_its_place(play, autojump_clock):
    async with play() as stage:
        await stage.world.idle()
        begun = trio.current_time()
        stage.telegram.say(OWNER, "hello")
        await stage.telegram.next_message()
        assert trio.current_time() - begun < 1
        photo(stage.telegram, 1, caption="first")
        stage.telegram.say(OWNER, "/status")
        stage.telegram.say(FRIEND, "me too")
        await trio.sleep(20)
        await stage.world.idle()  # pictures are read in real time
        reads = [read for read in read_by(stage.model) if "first" in read]
        assert len(reads) == 1


async def test_kill_9_in_the_middle_of_an_album_loses_no_part_and_answers_once(play, autojump_clock):
    telegram = TelegramServer()
    async with play(telegram=telegram) as stage:
        await stage.world.idle()
        photo(telegram, 0, caption="all of it")
        photo(telegram, 1)
        await trio.sleep(0.5)
        assert telegram.waiting == 0  # confirmed, and not handed in yet
        await kill(stage.world)
    async with play(telegram=telegram, disk=stage.world.disk) as again:
        parts = [photo(telegram, 2)]
        await telegram.next_message()
        await trio.sleep(10)
        [read] = read_by(again.model)
        assert read.count("[Image: media/") == 3
        # Its updates come again behind it.
        for part in parts:
            telegram.update(message=part)
        await trio.sleep(10)
        assert len(telegram.messages) == 1


async def test_albums_come_by_webhook_too_where_each_part_waits_for_the_answer_to_the_last(play, autojump_clock):
    async with play(settings=webhook_settings()) as stage:
        await ready(stage)
        other = TelegramServer()
        for n in range(3):
            photo(other, n, caption="by webhook" if not n else None)
        stage.telegram.files = other.files
        for update in other.updates:
            assert (await stage.adapter.receive(request_of(stage, update))).status == 200
        await stage.telegram.next_message()
        [read] = read_by(stage.model)
        assert read.count("[Image: media/") == 3
