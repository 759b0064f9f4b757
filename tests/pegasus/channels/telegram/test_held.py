"""Messages that Telegram keeps because it is not known who may write, or because the disk is full: what is held, and what is not."""

import errno

import pytest
import trio

from pegasus.testing.memory_disk import MemoryDisk
from pegasus.testing.services.telegram import TelegramServer
from pegasus.wire import encode_json
from tests.pegasus.channels.telegram.conftest import FRIEND, OWNER, STRANGER

BOT = 777


@pytest.fixture
def disk():
    """A disk that knows STRANGER as somebody who was let in, and cannot be read there."""
    disk = MemoryDisk()
    people = [{"type": "telegram", "userId": str(STRANGER)}]
    disk.put("access.json", encode_json({"people": people, "codes": []}).encode())
    disk.files.unreadable = {"access.json"}
    return disk


def say_as_bot(telegram, text):
    telegram.say(BOT, text, **{"from": {"id": BOT, "is_bot": True, "first_name": "Echo"}})


def shown_to(telegram, chat):
    return [text for each, text in telegram.shown if each == chat]


async def test_people_of_the_settings_are_heard_while_a_message_of_somebody_else_is_held(play, disk, autojump_clock):
    telegram = TelegramServer()
    async with play(telegram=telegram, disk=disk):
        telegram.say(STRANGER, "first")
        telegram.say(OWNER, "in the same batch")
        await trio.sleep(60)
        telegram.say(OWNER, "later")
        telegram.say(FRIEND, "me too")
        telegram.say(OWNER, "/status")
        await trio.sleep(60)
        shown = shown_to(telegram, OWNER)
        assert len(shown) == 3, "two answers and the status"
        assert [text for text in shown if text.startswith("re: ")] == ["re: in the same batch", "re: later"]
        assert shown_to(telegram, FRIEND) == ["re: me too"]
        assert shown_to(telegram, STRANGER) == []


async def test_held_messages_are_heard_in_order_when_the_file_can_be_read(play, disk, autojump_clock):
    telegram = TelegramServer()
    async with play(telegram=telegram, disk=disk):
        telegram.say(OWNER, "before")
        telegram.say(STRANGER, "one")
        telegram.say(OWNER, "between")
        telegram.say(STRANGER, "two")
        await trio.sleep(60)
        assert telegram.waiting == 3, "all from the first that is held"
        disk.files.unreadable = set()
        await trio.sleep(60)
        assert shown_to(telegram, STRANGER) == ["re: one", "re: two"]
        assert shown_to(telegram, OWNER) == ["re: before", "re: between"]
        assert telegram.waiting == 0


async def test_held_messages_are_given_again_after_a_restart(play, disk, autojump_clock):
    telegram = TelegramServer()
    async with play(telegram=telegram, disk=disk):
        telegram.say(STRANGER, "one")
        telegram.say(OWNER, "two")
        await trio.sleep(60)
    disk.files.unreadable = set()
    async with play(telegram=telegram, disk=disk):
        await trio.sleep(60)
        assert shown_to(telegram, STRANGER) == ["re: one"]
        assert shown_to(telegram, OWNER) == ["re: two"]


async def test_a_click_behind_a_held_message_is_carried_out_once(play, disk, autojump_clock):
    telegram = TelegramServer()
    async with play(telegram=telegram, disk=disk) as stage:
        clicks = []

        async def handle(click):
            clicks.append(click)

        await stage.world.idle()
        stage.adapter.buttons.handle = handle
        telegram.say(STRANGER, "one")
        telegram.update(
            callback_query={
                "id": "1",
                "from": {"id": OWNER},
                "data": "any",
                "message": {"message_id": 1, "date": 1, "chat": {"id": OWNER, "type": "private"}},
            }
        )
        await trio.sleep(60)
        assert len(clicks) == 1


async def test_a_message_of_a_bot_is_heard_after_another_one_was_held(play, disk, autojump_clock):
    telegram = TelegramServer()
    async with play(telegram=telegram, disk=disk, allow_from=(str(BOT),)):
        say_as_bot(telegram, "words of a bot")
        telegram.say(STRANGER, "hi")
        await trio.sleep(60)
        assert shown_to(telegram, BOT) == ["re: words of a bot"]


async def test_a_message_of_a_bot_is_heard_however_often_the_disk_refused_it(play, autojump_clock):
    telegram = TelegramServer()
    async with play(telegram=telegram, allow_from=(str(BOT),)) as stage:
        await stage.world.idle()
        stage.world.disk.fail(times=90)
        say_as_bot(telegram, "words of a bot")
        telegram.say(OWNER, "hello")
        await trio.sleep(600)
        assert shown_to(telegram, OWNER) == ["re: hello"]
        assert shown_to(telegram, BOT) == ["re: words of a bot"]


async def test_a_stranger_whose_code_cannot_be_written_holds_up_nobody(play, autojump_clock, monkeypatch):
    telegram, disk = TelegramServer(), MemoryDisk()
    rename = disk.files.rename

    def refuse(old, new):
        if new == "access.json":
            raise OSError(errno.ENOSPC, "No space left on device")
        rename(old, new)

    async with play(telegram=telegram, disk=disk) as stage:
        await stage.world.idle()
        monkeypatch.setattr(disk.files, "rename", refuse)
        telegram.say(STRANGER, "hello?")
        telegram.say(OWNER, "one")
        await trio.sleep(60)
        telegram.say(OWNER, "two")
        await trio.sleep(60)
        assert shown_to(telegram, OWNER) == ["re: one", "re: two"]
        assert shown_to(telegram, STRANGER) == []
        monkeypatch.undo()
        await trio.sleep(60)
        assert len(shown_to(telegram, STRANGER)) == 1
