"""Direct speech: plain text is the reply."""

import pytest
import trio

from pegasus.models.base import ModelResponse, TextPiece, ToolCall, Usage
from pegasus.settings import AgentSettings, Settings
from pegasus.storage import FLUSH_AFTER
from pegasus.testing.scripted import ScriptedModel, call, reply, say
from pegasus.testing.world import FakeChannel, kill, open_world
from tests.pegasus.main_agent.voices import SLACK

DIRECT = Settings(agent=AgentSettings(speech="direct"))


async def said(world, text, replies=1):
    await world.say(text)
    await world.idle()
    return [(await world.next_reply()).text for _ in range(replies)]


async def test_text_without_tools_is_the_reply_to_where_the_message_came_from(autojump_clock):
    slack = FakeChannel("slack")
    async with open_world(ScriptedModel([say("Hello.")]), settings=DIRECT, channels=(slack,)) as world:
        await world.say("hi", SLACK, message_id="m1")
        heard = await world.next_reply("slack")
    assert (heard.text, heard.channel.channel_id, heard.channel.reply_to) == ("Hello.", "D-general", "thread:1")
    assert heard.metadata["inReplyTo"] == "m1"


async def test_text_beside_a_tool_call_is_not_said(autojump_clock):
    script = [say("Let me look.", call("current_time", "c1")), say("It is noon.")]
    async with open_world(ScriptedModel(script), settings=DIRECT) as world:
        assert await said(world, "time?") == ["It is noon."]
        await trio.sleep(1)
        assert world.channels["cli"].texts == ["It is noon."]


@pytest.mark.parametrize("text", ["", "  \n", "(silence)", " (silence)\n"])
async def test_silence_is_legal(autojump_clock, text):
    async with open_world(ScriptedModel([say(text), say("Yes?")]), settings=DIRECT) as world:
        await world.say("thanks")
        assert await said(world, "and?") == ["Yes?"]
        assert world.channels["cli"].texts == ["Yes?"]


async def test_reply_still_speaks_on_another_channel(autojump_clock):
    cli, slack = FakeChannel("cli"), FakeChannel("slack")
    script = [say("", reply("r1", "news", "#general", channelType="slack")), say("Sent.")]
    model = ScriptedModel([say("(silence)"), *script])
    owners = ("cli:*", f"slack:{SLACK.user_id}")
    settings = Settings(agent=AgentSettings(speech="direct", owners=owners))
    async with open_world(model, settings=settings, channels=(cli, slack)) as world:
        await world.say("hello", SLACK)
        await world.say("tell slack")
        assert (await world.next_reply("slack")).text == "news"
        await world.idle()


async def test_the_session_holds_what_was_said_and_asked_and_nothing_twice(autojump_clock):
    async with open_world(ScriptedModel([say("Hello.")]), settings=DIRECT) as world:
        await said(world, "hi")
        assert [(line["role"], line["content"]) for line in world.session()] == [
            ("user", "[channel: cli | id: main]\nhi"),
            ("assistant", "Hello."),
        ]


@pytest.mark.parametrize("operation", range(1, 8))
async def test_it_is_said_once_whenever_the_power_fails(autojump_clock, operation):
    cli = FakeChannel("cli")
    model = ScriptedModel(lambda request: say("Hello."))
    async with open_world(model, settings=DIRECT, channels=(cli,)) as world:
        await world.say("hi", message_id="m1")
        with trio.CancelScope() as scope:
            for _ in range(operation):
                await trio.sleep(FLUSH_AFTER / 4)
            await kill(world)
            scope.cancel()
    async with open_world(model, disk=world.disk, settings=DIRECT, channels=(cli,)) as again:
        await again.idle()
        await trio.sleep(1)
    assert cli.texts == ["Hello."]


async def test_the_alias_of_the_spawning_tool_delegates(autojump_clock):
    spawn = call("spawn_task", "s1", description="count", input="count to ten")
    script = iter([say("", spawn), say("It is done.")])
    model = ScriptedModel(lambda request: next(script))
    tasks = ScriptedModel(lambda request: say("ten"))
    async with open_world(model, settings=DIRECT, task_model=tasks) as world:
        await world.say("count")
        assert (await world.next_reply()).text == "It is done."


class Writing:
    """A model that writes piece by piece."""

    name = "scripted/writing"

    def __init__(self, *pieces, calls=()):
        self.pieces = pieces
        self.calls = calls

    async def generate(self, request):
        for piece in self.pieces:
            if request.on_pieces is not None:
                request.on_pieces([None if piece is None else TextPiece(piece)])
            await trio.sleep(0.2)
        text = "".join(piece for piece in self.pieces if piece is not None)
        return ModelResponse(text, self.calls, Usage(), "end")


async def test_a_reply_is_shown_while_it_is_written_but_not_too_often(autojump_clock):
    async with open_world(Writing("On", "ce ", "up", "on"), settings=DIRECT) as world:
        assert await said(world, "tell me") == ["Once upon"]
        drafts = [draft.text for draft in world.channels["cli"].drafts]
    assert drafts == ["On", "Once", "Once up", "Once upon"]


async def test_an_answer_that_begins_anew_is_shown_from_its_beginning(autojump_clock):
    async with open_world(Writing("Wrong", None, None, "Right", " now"), settings=DIRECT) as world:
        await world.say("tell me")
        await world.idle()
        drafts = [draft.text for draft in world.channels["cli"].drafts]
    assert drafts == ["Wrong", "", "Right", "Right now"]


async def test_monologue_is_never_shown(autojump_clock):
    async with open_world(
        Writing("a private ", "thought", calls=(ToolCall("r", "reply", {"text": "Hi", "channelId": "main"}),))
    ) as world:
        await world.say("hello")
        await world.idle()
        assert world.channels["cli"].drafts == []
        assert world.channels["cli"].texts == ["Hi"]


async def test_the_prompt_tells_how_to_speak(autojump_clock):
    model = ScriptedModel([say("Hello.")])
    async with open_world(model, settings=DIRECT) as world:
        await said(world, "hi")
    assert "## How You Speak" in model.requests[0].system
    assert "INNER MONOLOGUE" not in model.requests[0].system
