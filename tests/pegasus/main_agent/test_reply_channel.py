"""The channel that a reply goes to when the model names none, through the whole tree in virtual time."""

import pytest

from pegasus.main_agent.replies import parse_replies
from pegasus.messages import ChannelInfo, InboundMessage
from pegasus.models import ToolCall
from pegasus.storage import Item
from pegasus.testing.memory_disk import MemoryDisk
from pegasus.testing.scripted import ScriptedModel, call, say
from pegasus.testing.world import CLI, FakeChannel, kill, open_world

SLACK = ChannelInfo("slack", "#general", "zhangsan", "thread:1")
PHONE = ChannelInfo("cli", "phone")


def echo(request):
    """Reply with the words of the last message, and name no channel."""
    *_, words = request.turns[-1].text.split("\n")
    return say("", call("reply", "r", text=words))


def heard(channel):
    return [(reply.channel.channel_id, reply.text) for reply in channel.replies]


@pytest.mark.parametrize("killed", [False, True])
async def test_replies_follow_the_channel_of_each_message(autojump_clock, killed):
    """The channel of the message before is not remembered, neither in memory nor on disk."""
    cli, slack, disk = FakeChannel("cli"), FakeChannel("slack"), MemoryDisk()
    async with open_world(ScriptedModel(echo), disk=disk, channels=(cli, slack)) as world:
        for text, channel in (("1", CLI), ("2", SLACK), ("3", PHONE), ("4", SLACK)):
            await world.say(text, channel)
            await world.idle()
        if killed:
            await kill(world)
    async with open_world(ScriptedModel(echo), disk=disk, channels=(cli, slack)) as world:
        for text, channel in (("5", CLI), ("6", SLACK)):
            await world.say(text, channel)
            await world.idle()
    assert heard(cli) == [("main", "1"), ("phone", "3"), ("main", "5")]
    assert heard(slack) == [("#general", "2"), ("#general", "4"), ("#general", "6")]
    assert {reply.channel.reply_to for reply in slack.replies} == {"thread:1"}


@pytest.mark.parametrize(
    ("metadata", "channel_id", "is_marked"),
    [
        ({"role": "guest", "apart": True}, "c1", False),  # the guest's own conversation
        ({"role": "guest", "apart": True}, "main", True),
        ({"role": "guest"}, "c1", True),  # nobody knows who has asked, so it goes to the owner
        ({"role": "owner"}, "main", False),
    ],
)
def test_what_comes_of_a_guests_work_and_goes_elsewhere_is_marked(metadata, channel_id, is_marked):
    item = Item(1, InboundMessage("done", ChannelInfo("cli", "c1"), "internal/task/t1/1", metadata=metadata))
    call = ToolCall("c1", "reply", {"text": "The report.", "channelId": channel_id})
    [wanted] = parse_replies(item, (call,), room=1).values()
    assert (wanted.post.metadata.get("who") == "guest") == is_marked
