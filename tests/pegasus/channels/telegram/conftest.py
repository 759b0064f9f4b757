"""The whole agent in virtual time with the Telegram adapter, and a fake Telegram in memory."""

from __future__ import annotations

from contextlib import asynccontextmanager

import attrs
import pytest

from pegasus.channels.telegram import TelegramAdapter
from pegasus.settings import AgentSettings, Settings, TelegramSettings
from pegasus.testing.scripted import ScriptedModel, call, say
from pegasus.testing.services.telegram import TOKEN, TelegramServer
from pegasus.testing.world import open_world

OWNER, FRIEND, STRANGER, GROUP = 42, 43, 66, -1001


def answering(texts=None):
    """A model that answers each message with "re: " and its text, or by these texts, in the chat that it came from."""

    def answer(request):
        line = request.turns[-1].text.split("[channel: ")[-1]
        head, _, text = line.partition("]\n")
        chat = head.split("id: ")[1].split(" |")[0].strip()
        text = text.split("\n")[-1] if texts is None else text
        answer.count += 1
        words = f"re: {text}" if texts is None else texts[(answer.count - 1) % len(texts)]
        thread = {"replyTo": head.split("thread: ")[1].split(" |")[0].strip()} if "thread: " in head else {}
        return say("", call("reply", f"c{answer.count}", channelType="telegram", channelId=chat, text=words, **thread))

    answer.count = 0
    return ScriptedModel(answer)


def telegram_settings(**keys):
    keys = {"enabled": True, "bot_token": TOKEN, "access": "pairing", "allow_from": (str(FRIEND),), **keys}
    channels = {**Settings().channels, "telegram": TelegramSettings(**keys)}
    return Settings(agent=AgentSettings(owners=("cli:*", f"telegram:{OWNER}")), channels=channels)


class Stage:
    """A world and its Telegram."""

    def __init__(self, world, telegram, adapter, model):
        self.world, self.telegram, self.adapter, self.model = world, telegram, adapter, model


@pytest.fixture
def play():
    """`async with play() as stage`: the agent with Telegram. The same server may be given to the next one."""

    @asynccontextmanager
    async def open_stage(model=None, telegram=None, *, disk=None, settings=None, world=None, **keys):
        telegram, model = telegram or TelegramServer(), model or answering()
        settings = settings or telegram_settings(**keys)
        made = []

        def services(context):
            context = attrs.evolve(context, transport=telegram.transport())
            made.append(TelegramAdapter(settings.channels["telegram"], context))
            return made

        async with open_world(model, settings=settings, disk=disk, services=services, **world or {}) as world:
            yield Stage(world, telegram, made[0], model)

    return open_stage
