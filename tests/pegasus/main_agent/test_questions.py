"""The question in the metadata of a reply: the other clients of the conversation have not sent it."""

import pytest

from pegasus.main_agent.replies import QUESTION_LENGTH
from pegasus.settings import AgentSettings, Settings
from pegasus.testing.scripted import ScriptedModel, reply, say
from pegasus.testing.world import CLI, FakeChannel, open_world
from tests.pegasus.main_agent.voices import SLACK


async def answers(*script, text="What\n time?", source=CLI, config=None, count=1):
    channels = (FakeChannel("cli"), FakeChannel("slack"))
    async with open_world(ScriptedModel(script), channels=channels, settings=config) as world:
        await world.say("/status", CLI)  # the conversation is known
        await world.next_reply()
        await world.say(text, source)
        await world.idle()
    return [reply.metadata.get("question") for channel in channels for reply in channel.replies][-count:]


async def test_a_reply_to_the_conversation_that_asked_repeats_the_question(autojump_clock):
    assert await answers(say("", reply("r", "noon"))) == ["What time?"]
    assert await answers(say("", reply("r", "noon", channelType="cli"))) == ["What time?"]


async def test_direct_speech_repeats_it_too(autojump_clock):
    assert await answers(say("noon"), config=Settings(agent=AgentSettings(speech="direct"))) == ["What time?"]


async def test_the_answer_of_a_command_repeats_the_command(autojump_clock):
    assert await answers(text="/status") == ["/status"]


async def test_another_conversation_is_not_told_what_was_asked(autojump_clock):
    script = say("", reply("r", "noon", "main", channelType="cli"))
    assert await answers(script, source=SLACK) == [None]


@pytest.mark.parametrize("text", ["x" * 5000, "x " * 5000])
async def test_a_long_question_is_cut(autojump_clock, text):
    [question] = await answers(say("", reply("r", "noon")), text=text)
    assert len(question) == QUESTION_LENGTH
    assert question.endswith("…")


async def test_a_message_without_text_has_no_question(autojump_clock):
    assert await answers(say("", reply("r", "noon")), text=" ") == [None]
