"""A change of the bot: its messages are numbered from 1 again, and none of them is one that came before."""

import pytest
import trio

from pegasus.channels.telegram.updates import TYPE
from pegasus.messages import ChannelInfo, InboundMessage
from pegasus.storage import Accept, Waiting
from pegasus.testing.scripted import Hang, ScriptedModel
from pegasus.testing.services.telegram import TelegramServer
from pegasus.testing.world import kill
from tests.pegasus.channels.telegram.conftest import GROUP, OWNER

OTHER_BOT, OTHER_TOKEN = 654321, "654321:AAE-fake-token-of-a-bot_0123456789abcd"


def other_bot():
    """A Telegram with another bot, which numbers its messages like the first."""
    telegram = TelegramServer(OTHER_TOKEN, "other_bot")
    telegram.me["id"] = OTHER_BOT
    return telegram


@pytest.mark.tried("services", "Telegram: another bot that numbers its messages from 1", "heard")
async def test_a_message_to_another_bot_is_heard_though_its_number_is_known(play, autojump_clock):
    async with play() as stage:
        first = stage.telegram.say(OWNER, "to the first")
        await stage.telegram.next_message()
        await trio.sleep(5)
        await kill(stage.world)
    async with play(telegram=other_bot(), disk=stage.world.disk, bot_token=OTHER_TOKEN) as again:
        second = again.telegram.say(OWNER, "to the second")
        assert second["message_id"] == first["message_id"]
        assert (await again.telegram.next_message()).text == "re: to the second"
        again.telegram.update(message=second)
        again.telegram.update(edited_message={**second, "text": "and edited", "edit_date": 1_772_020_801})
        assert (await again.telegram.next_message()).text == "re: and edited"
        await again.world.idle()
        await trio.sleep(5)
        await kill(again.world)
    # Back to the first bot: what it has answered stays answered.
    async with play(telegram=stage.telegram, disk=again.world.disk) as back:
        back.telegram.update(message=first)
        back.telegram.say(OWNER, "again to the first")
        await back.telegram.next_message()
        await back.world.idle()
        assert [text for _, text in back.telegram.shown] == ["re: to the first", "re: again to the first"]


async def test_the_bots_of_one_group_are_told_apart(play, autojump_clock):
    async with play(groups="all") as stage:
        stage.telegram.mention(GROUP, "one", user=OWNER)
        await stage.telegram.next_message()
        await trio.sleep(5)
        await kill(stage.world)
    async with play(telegram=other_bot(), disk=stage.world.disk, bot_token=OTHER_TOKEN) as again:
        again.telegram.mention(GROUP, "two", user=OWNER)
        assert (await again.telegram.next_message()).text.endswith("two")


async def test_a_home_of_a_version_without_accounts_answers_nothing_twice(play, autojump_clock):
    telegram = TelegramServer()
    async with play(ScriptedModel(lambda request: Hang()), telegram=TelegramServer()) as stage:
        # As such a version has accepted it; its delivery log knows no account.
        channel = ChannelInfo(TYPE, str(OWNER), str(OWNER))
        old = telegram.say(OWNER, "hello")
        await stage.world.journal.ask(Accept, InboundMessage("hello", channel, str(old["message_id"])), "main", 0)
        await kill(stage.world)
    async with play(ScriptedModel(lambda request: Hang()), telegram=telegram, disk=stage.world.disk) as again:
        await trio.sleep(10)
        assert telegram.waiting == 0
        assert await again.world.journal.ask(Waiting) == 1
