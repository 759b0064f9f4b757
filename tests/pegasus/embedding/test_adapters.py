"""One mind over several channels: messages are handed over, and replies come to the adapter of their channel."""

from __future__ import annotations

import pytest
import trio

from actors import Signal
from pegasus.embedding import Agent, InboundMessage, MessageRefused, ReplyRefused
from pegasus.settings import AgentSettings, Settings
from pegasus.testing.memory_disk import MemoryDisk
from pegasus.testing.scripted import After, ScriptedModel, call, say

from .world import PATIENCE, converse, open_agent, reply

OWNED = Settings(agent=AgentSettings(speech="monologue", owners=("cli:me", "telegram:anna")))


class Channel:
    """An adapter of the host's own, with what it was given."""

    def __init__(self, type, *failures):
        self.type = type
        self.failures = list(failures)
        self.tried: list[str] = []
        self.delivered: list[str] = []
        self.changed = Signal()

    async def deliver(self, message):
        self.tried.append(message.content)
        self.changed.notify()
        if self.failures:
            raise self.failures.pop(0)
        self.delivered.append(f"{message.session_key} {message.content}")

    async def until(self, count=0, *, tried=0):
        with trio.fail_after(PATIENCE):
            while len(self.delivered) < count or len(self.tried) < tried:
                await self.changed.wait()


def echo(request):
    """Answer in the channel and chat of the last message."""
    head, _, text = request.turns[-1].text.partition("]")
    place = head.partition("[channel: ")[2]
    type, _, chat = place.partition(" | id: ")
    return say("", reply(f"You said {text.strip()}", chat.split(" ")[0], channelType=type))


def message(channel, sender, text, **fields):
    return InboundMessage(channel, sender, "main", text, **fields)


async def test_replies_come_to_the_adapter_of_their_channel_and_the_rest_to_the_function(autojump_clock):
    terminal, telegram, rest = Channel("cli"), Channel("telegram"), Channel("")
    async with open_agent(ScriptedModel(echo), settings=OWNED, scope="global") as agent:
        agent.register_adapter(terminal)
        agent.register_adapter(telegram)
        agent.on_reply(rest.deliver)
        for channel, sender in (("cli", "me"), ("telegram", "anna"), ("irc", "zoe")):
            await agent.send(message(channel, sender, f"hello from {channel}"))
        for each in (terminal, telegram, rest):
            await each.until(1)
    assert terminal.delivered == ["cli:main You said hello from cli"]
    assert telegram.delivered == ["telegram:main You said hello from telegram"]
    assert rest.delivered == ["irc:main You said hello from irc"]


async def test_one_mind_hears_all_channels_of_the_owner_and_may_answer_on_another(autojump_clock):
    model = ScriptedModel(
        [
            say("", reply("Noted", "main")),
            say("", reply("See your terminal", "main"), reply("It is 42", "main", "t", channelType="cli")),
        ]
    )
    terminal, telegram = Channel("cli"), Channel("telegram")
    async with open_agent(model, settings=OWNED, scope="global") as agent:
        agent.register_adapter(terminal)
        agent.register_adapter(telegram)
        await agent.send(message("cli", "me", "the number is 42"))
        await terminal.until(1)
        await agent.send(message("telegram", "anna", "tell my terminal the number"))
        await telegram.until(1)
        await terminal.until(2)
    assert "the number is 42" in "".join(turn.text for turn in model.requests[-1].turns)
    assert terminal.delivered == ["cli:main Noted", "cli:main It is 42"]


async def test_sending_returns_before_a_model_has_answered(autojump_clock):
    heard = Channel("")
    async with open_agent(ScriptedModel([After(60, say("", reply("Late")))])) as agent:
        agent.on_reply(heard.deliver)
        start = trio.current_time()
        await agent.send(message("cli", "me", "hello"))
        assert trio.current_time() - start < 1
        await heard.until(1)


async def test_an_adapter_that_fails_gets_its_reply_again_and_holds_up_nobody(autojump_clock):
    broken, sound = Channel("telegram", *[OSError("the service is down")] * 5), Channel("cli")
    async with open_agent(ScriptedModel(echo), settings=OWNED) as agent:
        agent.register_adapter(broken)
        agent.register_adapter(sound)
        await agent.send(message("telegram", "anna", "a"))
        await agent.send(message("cli", "me", "b"))
        await sound.until(1)
        assert not broken.delivered
        await broken.until(1)
    assert broken.tried == ["You said a"] * 6


async def test_a_reply_that_a_service_never_takes_is_left_behind(autojump_clock):
    telegram = Channel("telegram", ReplyRefused("the bot was blocked"))
    async with open_agent(ScriptedModel(echo)) as agent:
        agent.register_adapter(telegram)
        await agent.send(message("telegram", "anna", "a"))
        await agent.send(message("telegram", "anna", "b"))
        await telegram.until(1)
    assert telegram.tried == ["You said a", "You said b"]


async def test_a_reply_that_was_not_delivered_comes_after_a_restart(autojump_clock):
    disk, first = MemoryDisk(), Channel("cli", *[OSError("down")] * 1000)
    async with open_agent(ScriptedModel(echo), disk=disk) as agent:
        agent.register_adapter(first)
        await agent.send(message("cli", "me", "a"))
        await first.until(tried=1)
    second = Channel("cli")
    async with open_agent(ScriptedModel(echo), disk=disk) as agent:
        agent.register_adapter(second)
        await second.until(1)
    assert second.delivered == ["cli:main You said a"]


async def test_a_turn_that_is_iterated_over_gets_its_own_replies(autojump_clock):
    terminal = Channel("cli")
    async with open_agent(ScriptedModel(echo)) as agent:
        agent.register_adapter(terminal)
        assert (await converse(agent, "a"))[-1].content == "You said a"
        await agent.send(message("cli", "me", "b"))
        await terminal.until(1)
    assert terminal.delivered == ["cli:main You said b"]


async def test_results_of_tasks_come_to_the_adapter_too(autojump_clock):
    def voice(request):
        text = request.turns[-1].text
        if "completed]" in text:
            return say("", reply("It is ready"))
        return say("", call("spawn_subagent", "s", description="look", input="look")) if "[channel: " in text else say()

    terminal = Channel("cli")
    async with open_agent(ScriptedModel(voice), task_model=ScriptedModel([After(60, say("found"))] * 9)) as agent:
        agent.register_adapter(terminal)
        await agent.send(message("cli", "me", "look it up"))
        await terminal.until(1)
    assert terminal.delivered == ["cli:main It is ready"]


async def test_a_channel_has_one_adapter(autojump_clock):
    async with open_agent(ScriptedModel([])) as agent:
        agent.register_adapter(Channel("cli"))
        with pytest.raises(ValueError, match="allowed: one"):
            agent.register_adapter(Channel("cli"))


async def test_a_message_that_is_refused_raises(autojump_clock):
    async with open_agent(ScriptedModel([])) as agent:
        with pytest.raises(MessageRefused) as refused:
            await agent.send(message("", "me", "a"))
    assert refused.value.code == "invalid"


async def test_a_reply_to_a_channel_without_an_adapter_is_noted_and_kept(tmp_path, caplog):
    telegram = Channel("telegram")
    config = {"models": {"default": "offline/stand-in"}, "agent": {"owners": ["cli:me", "telegram:anna"]}}
    async with Agent.create(config, home=tmp_path, scope="global") as agent:
        agent.register_adapter(telegram)
        await agent.send(message("cli", "me", "hello"))
        await agent.send(message("telegram", "anna", "hello"))
        await telegram.until(1)
        assert "its channel has no adapter" in caplog.text
        assert (await anext(agent.messages())).session_key == "cli:main"
