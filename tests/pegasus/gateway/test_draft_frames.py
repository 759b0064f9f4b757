"""Drafts over real sockets: to every client of the conversation, the newest only, and withdrawn."""

import trio

from pegasus.gateway.delivery import Hub
from pegasus.gateway.send_queue import SendQueue
from pegasus.messages import ChannelInfo, ReplyDraft
from pegasus.protocol import ClientChannel, HelloFrame, encode_frame
from tests.pegasus.gateway.world import WEB, take, world

DRAFT = {"type": "progress", "channel": {"type": "web", "channelId": "c1"}, "text": "Once"}


async def settled(gate, *clients, channel=WEB):
    """Return when the clients of a channel have been given what waited for them: until then they get no drafts."""
    await gate.typing(channel, True)
    for client in clients:
        assert (await client.get())["type"] == "typing"


async def test_every_client_of_the_conversation_gets_a_draft_and_nobody_else():
    async with world() as gate, gate.client() as one, gate.client() as two, gate.client("c2") as other:
        await settled(gate, one, two)
        await gate.ref.tell(ReplyDraft(WEB, "Once"))
        assert await one.get() == await two.get() == DRAFT
        await other.quiet()


async def test_a_draft_may_carry_reasoning_and_a_withdrawal_has_no_text():
    async with world() as gate, gate.client() as client:
        await settled(gate, client)
        await gate.ref.tell(ReplyDraft(WEB, "", "Hm"))
        assert await client.get() == DRAFT | {"text": "", "reasoning": "Hm"}
        await gate.ref.tell(ReplyDraft(WEB, ""))
        assert await client.get() == DRAFT | {"text": ""}


async def test_a_bridge_gets_the_channel_of_a_draft():
    channel = ChannelInfo("irc", "#a", "U1", "t1")
    async with world() as gate, gate.client(None, "irc") as bridge:
        await settled(gate, bridge, channel=channel)
        await gate.ref.tell(ReplyDraft(channel, "Once"))
        assert (await bridge.get())["channel"] == {"type": "irc", "channelId": "#a", "userId": "U1", "replyTo": "t1"}


async def test_a_client_that_connects_meanwhile_gets_the_next_draft():
    async with world() as gate, gate.client() as one:
        await settled(gate, one)
        await gate.ref.tell(ReplyDraft(WEB, "Once"))
        await one.get()
        async with gate.client() as two:
            await settled(gate, one, two)
            await gate.ref.tell(ReplyDraft(WEB, "Once upon"))
            assert await two.get() == await one.get() == DRAFT | {"text": "Once upon"}


async def test_while_replies_are_missing_only_a_withdrawal_is_sent(autojump_clock):
    """The journal never answers, so that the reading after the welcome does not end."""
    queue = SendQueue()

    class Silent:
        async def tell(self, message):
            await trio.lowlevel.checkpoint()

        async def ask(self, *message, timeout=None):
            await trio.sleep_forever()

    hub = Hub(Silent())
    feed = await hub.join(HelloFrame(ClientChannel("web", "c1")), queue)
    hub.progress(ReplyDraft(WEB, ""))
    assert len(queue) == 0, "nothing comes before the welcome"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(feed.run)
        await trio.sleep(1)
        hub.progress(ReplyDraft(WEB, "Once"))
        assert len(queue) == 0
        hub.progress(ReplyDraft(WEB, ""))
        assert await take(queue) == [encode_frame(ReplyDraft(WEB, ""))]
        nursery.cancel_scope.cancel()
