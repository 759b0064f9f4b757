"""What commands are made of: one connection, and a conversation that outlives connections."""

from contextlib import asynccontextmanager
from functools import partial
from random import Random

import pytest
import trio

from pegasus.client import (
    Endpoint,
    MessageAccepted,
    MessageRejected,
    NotConnected,
    Offline,
    Online,
    Refused,
    open_client,
    open_conversation,
)
from pegasus.client import conversation as conversation_module
from pegasus.messages import ChannelInfo, Media, OutboundMessage, ReplyDraft, Typing
from pegasus.storage import Overloaded
from tests.pegasus.gateway.world import TOKEN, WEB, world


def client_of(gate, channel=WEB, *arguments, **options):
    return open_client(gate.url, TOKEN, channel, *arguments, **options)


@asynccontextmanager
async def talking(gate, **options):
    where = options.pop("where", None) or Endpoint(gate.url, TOKEN)
    async with open_conversation(where, WEB, random=Random(1), **options) as conversation:
        yield conversation


async def until(conversation, kind):
    """The events up to and with the first of this kind."""
    events = []
    with trio.fail_after(10):
        async for event in conversation:
            events.append(event)
            if isinstance(event, kind):
                return events
    raise AssertionError(events)


# ------------------------------------------------------------------ one connection


async def test_a_client_is_welcomed():
    async with world() as gate:
        gate.journal.last[WEB.address] = 4
        async with client_of(gate) as client:
            assert (client.welcome.agent, client.welcome.seq, client.welcome.protocol) == ("Peggy", 4, 1)


async def test_a_call_raises_when_the_connection_ends_before_the_result():
    called = trio.Event()

    async def hang(caller, params):
        called.set()
        await trio.sleep_forever()

    async with world(methods={"hang": hang}) as gate, client_of(gate) as client, trio.open_nursery() as nursery:

        @nursery.start_soon
        async def call():
            with pytest.raises(NotConnected):
                await client.call("hang")

        await called.wait()
        await gate.crash()


async def test_a_call_raises_when_no_result_comes_in_time():
    async def hang(caller, params):
        await trio.sleep_forever()

    async with world(methods={"hang": hang}) as gate, client_of(gate) as client:
        with pytest.raises(NotConnected, match=r"within 0\.05 s"):
            await client.call("hang", timeout=0.05)


async def test_a_posted_message_arrives_with_all_that_belongs_to_it():
    async with world() as gate, client_of(gate) as client:
        await client.post("hi", id="m-1", metadata={"a": 1}, media=[Media("n", "m/x", "aGk=")])
        assert await anext(client) == MessageAccepted("m-1")
        ((message, _),) = gate.journal.accepted
        assert (message.text, message.metadata, message.media) == (
            "hi",
            {"a": 1, "role": "owner"},
            (Media("n", "m/x", "aGk="),),
        )


async def test_a_posted_message_that_is_refused_is_an_event_with_its_id():
    async with world() as gate, client_of(gate) as client:
        gate.journal.verdict = Overloaded(9)
        await client.post("hi", id="m-1")
        refused = await anext(client)
        assert (refused.code, refused.id) == ("overloaded", "m-1")


async def test_replies_and_typing_are_events():
    channel = ChannelInfo("web", "c1", "u1", "t1")
    async with world() as gate, client_of(gate) as client:
        await gate.typing(channel, True)
        said = await gate.say(channel, "hello", metadata={"a": 1}, media=(Media("n", "m/x", "aGk="),))
        assert [await anext(client), await anext(client)] == [Typing(channel, True), said]


async def test_ack_acknowledges():
    async with world() as gate, client_of(gate) as client:
        await gate.say(WEB, "hello")
        await client.ack((await anext(client)).seq)
        await gate.journal.until(lambda: gate.journal.acks == [(WEB.address, 1)])


async def test_a_bridge_serves_a_type():
    async with world() as gate, client_of(gate, "web", last_seqs={"c1": 1}) as bridge:
        gate.journal.last[WEB.address] = 1
        await bridge.post("hi", id="m-1", channel=WEB)
        assert await anext(bridge) == MessageAccepted("m-1")
        said = await gate.say(WEB, "hello")
        assert await anext(bridge) == said
        await bridge.ack(2, WEB)
        await gate.journal.until(lambda: gate.journal.acks == [(WEB.address, 2)])


async def test_call_gives_the_result():
    async with world() as gate, client_of(gate) as client:
        assert await client.call("echo", {"a": 1}) == {"caller": "c1", "params": {"a": 1}}


async def test_call_raises_the_error_of_the_gateway():
    async with world() as gate, client_of(gate) as client:
        with pytest.raises(Refused) as caught:
            await client.call("nothing")
        assert (caught.value.code, str(caught.value)) == (
            "unknown_method",
            'method: found "nothing", allowed: clients, echo',
        )


async def test_iteration_ends_with_the_connection():
    async with world() as gate, client_of(gate) as client:
        await gate.crash()
        assert [event async for event in client] == []
        assert "1006" in client.closed
        with pytest.raises(NotConnected):
            await client.call("echo")


async def test_a_wrong_token_is_refused():
    async with world() as gate:
        with pytest.raises(Refused) as caught:
            async with open_client(gate.url, "wrong", WEB):
                pass
        assert caught.value.code == "unauthorized"


async def test_nobody_listening_is_not_connected():
    async with world() as gate:
        pass
    with pytest.raises(NotConnected, match="no agent answers at"):
        async with open_client(gate.url, TOKEN, WEB):
            pass


async def test_somebody_else_listening_is_not_connected():
    async def hang_up(stream):
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, hang_up, 0, host="127.0.0.1"))
        port = listener.socket.getsockname()[1]
        with pytest.raises(NotConnected):
            async with open_client(f"ws://127.0.0.1:{port}", TOKEN, WEB, timeout=0.3):
                pass
        nursery.cancel_scope.cancel()


async def test_an_error_raised_in_the_block_comes_out_as_it_is():
    async with world() as gate:
        with pytest.raises(KeyError):
            async with client_of(gate):
                raise KeyError("mine")


# ------------------------------------------------------------------ a conversation


async def test_a_conversation_comes_online_and_hands_out_replies():
    async with world() as gate, talking(gate) as conversation:
        assert await anext(conversation) == Online("Peggy", 0, 0)
        id = await conversation.send("hi")
        assert await anext(conversation) == MessageAccepted(id)
        said = await gate.say(WEB, "hello")
        assert await anext(conversation) == said


async def test_a_conversation_makes_calls_and_knows_its_own_messages():
    async with world() as gate, talking(gate) as conversation:
        with pytest.raises(NotConnected, match="no connection to the agent"):
            await conversation.call("echo")
        await until(conversation, Online)
        assert await conversation.call("echo", {"a": 1}) == {"caller": "c1", "params": {"a": 1}}
        assert conversation.is_own(await conversation.send("hi"))
        assert not conversation.is_own("m-1")


async def test_a_reply_is_acknowledged_when_the_next_event_is_asked_for():
    async with world() as gate, talking(gate) as conversation:
        await gate.say(WEB, "one")
        await until(conversation, OutboundMessage)
        assert gate.journal.acks == []
        await gate.say(WEB, "two")
        await anext(conversation)
        await gate.journal.until(lambda: gate.journal.acks == [(WEB.address, 1)])
        assert conversation.last_seq == 2


async def test_the_last_reply_is_acknowledged_when_the_conversation_is_closed():
    async with world() as gate:
        async with talking(gate) as conversation:
            await gate.say(WEB, "one")
            await until(conversation, OutboundMessage)
        await gate.journal.until(lambda: gate.journal.acks == [(WEB.address, 1)])


async def test_a_message_handed_over_offline_is_sent_when_the_daemon_is_there():
    async with world() as gate:
        ready = trio.Event()

        def locate():
            if not ready.is_set():
                raise NotConnected("no agent is running")
            return Endpoint(gate.url, TOKEN)

        async with talking(gate, where=locate) as conversation:
            assert isinstance(await anext(conversation), Offline)
            id = await conversation.send("hi", media=[Media("n.txt", "text/plain", "aGk=")])
            assert conversation.unaccepted == 1
            assert conversation.unaccepted_texts == ("hi",)
            ready.set()
            assert (await until(conversation, MessageAccepted))[-2:] == [Online("Peggy", 1, 0), MessageAccepted(id)]
            assert conversation.unaccepted == 0
            assert gate.journal.accepted[0][0].media == (Media("n.txt", "text/plain", "aGk="),)


async def test_after_a_lost_connection_everything_goes_on_and_nothing_comes_twice():
    async with world() as gate, talking(gate) as conversation:
        await until(conversation, Online)
        await gate.say(WEB, "one")
        assert (await until(conversation, OutboundMessage))[-1].seq == 1
        gate.journal.hold = True
        id = await conversation.send("hi")
        await gate.journal.until(lambda: gate.journal.held)
        await gate.crash()
        assert [type(event) for event in await until(conversation, Online)] == [Offline, Online]
        gate.journal.release()
        assert (await until(conversation, MessageAccepted))[-1] == MessageAccepted(id)
        assert [message.id for message, _ in gate.journal.accepted] == [id]
        await gate.say(WEB, "two")
        assert (await until(conversation, OutboundMessage))[-1].seq == 2


async def test_a_draft_is_withdrawn_when_the_connection_is_lost():
    async with world() as gate, talking(gate) as conversation:
        await until(conversation, Online)
        await gate.typing(WEB, True)
        await until(conversation, Typing)
        await gate.ref.tell(ReplyDraft(WEB, "Once"))
        assert (await until(conversation, ReplyDraft))[-1].text == "Once"
        await gate.crash()
        events = await until(conversation, Offline)
        assert ReplyDraft(WEB, "") in events


async def test_a_draft_that_a_reply_has_ended_is_not_withdrawn():
    async with world() as gate, talking(gate) as conversation:
        await until(conversation, Online)
        await gate.typing(WEB, True)
        await until(conversation, Typing)
        await gate.ref.tell(ReplyDraft(WEB, "Once"))
        await gate.say(WEB, "Once upon a time.")
        await until(conversation, OutboundMessage)
        await gate.crash()
        assert not [event for event in await until(conversation, Offline) if isinstance(event, ReplyDraft)]


async def test_a_message_that_the_gateway_will_never_take_is_rejected_with_an_event():
    async with world() as gate, talking(gate) as conversation:
        await until(conversation, Online)
        id = await conversation.send("\ud800")
        dropped = (await until(conversation, MessageRejected))[-1]
        assert (dropped.id, dropped.code) == (id, "bad_frame")
        assert conversation.unaccepted == 0


async def test_messages_are_sent_in_the_order_in_which_they_were_handed_over():
    async with world() as gate, talking(gate) as conversation:
        said = [await conversation.send(str(n)) for n in range(20)]
        await until(conversation, Online)
        said += [await conversation.send(str(n)) for n in range(20, 40)]
        for _ in said:
            await until(conversation, MessageAccepted)
        assert [message.id for message, _ in gate.journal.accepted] == said


async def test_a_message_that_was_overloaded_is_sent_again():
    async with world() as gate, talking(gate) as conversation:
        await until(conversation, Online)
        gate.journal.verdict = Overloaded(9)
        id = await conversation.send("hi")
        await gate.journal.until(lambda: gate.journal.on_accept.is_set())
        gate.journal.verdict = None
        assert (await until(conversation, MessageAccepted))[-1] == MessageAccepted(id)


async def test_an_urgent_message_goes_before_all_that_wait(monkeypatch):
    monkeypatch.setattr(conversation_module, "MAX_UNACCEPTED", 3)
    async with world() as gate, talking(gate) as conversation:
        said = [await conversation.send(str(n)) for n in range(3)]
        urgent = await conversation.send("/stop", is_urgent=True)
        await until(conversation, Online)
        for _ in range(4):
            await until(conversation, MessageAccepted)
        assert [message.id for message, _ in gate.journal.accepted] == [urgent, *said]


async def test_an_urgent_message_does_not_wait_for_a_pause():
    async with world() as gate, talking(gate) as conversation:
        await until(conversation, Online)
        gate.journal.verdict = Overloaded(9)
        await conversation.send("hi")
        await gate.journal.until(lambda: gate.journal.on_accept.is_set())
        await trio.testing.wait_all_tasks_blocked(0.05)
        gate.journal.verdict = None
        began = trio.current_time()
        urgent = await conversation.send("/stop", is_urgent=True)
        assert (await until(conversation, MessageAccepted))[-1] == MessageAccepted(urgent)
        assert trio.current_time() - began < 0.4  # the pause is 0.8 s or more


async def test_discarded_messages_are_not_sent():
    async with world() as gate, talking(gate) as conversation:
        for n in range(3):
            await conversation.send(str(n))
        assert await conversation.discard() == 3
        assert conversation.unaccepted == 0
        last = await conversation.send("after")
        await until(conversation, Online)
        assert (await until(conversation, MessageAccepted))[-1] == MessageAccepted(last)
        assert [message.text for message, _ in gate.journal.accepted] == ["after"]


async def test_a_wrong_token_ends_the_conversation():
    async with world() as gate, talking(gate, where=Endpoint(gate.url, "wrong")) as conversation:
        event = await anext(conversation)
        assert (event.retry_in, "wrong token" in event.reason) == (None, True)
        with pytest.raises(StopAsyncIteration):
            await anext(conversation)


async def test_a_conversation_goes_on_where_an_earlier_one_stopped():
    async with world() as gate:
        for n in range(3):
            gate.journal.post(WEB, f"{n}")
        async with talking(gate, last_seq=2) as conversation:
            assert (await until(conversation, OutboundMessage))[-1].seq == 3


async def test_a_conversation_gets_what_another_client_has_acknowledged_meanwhile():
    async with world() as gate:
        for text in ("one", "two", "three"):
            await gate.say(WEB, text)
        gate.journal.acknowledge(WEB.address, 2)
        async with client_of(gate, WEB, 1) as client:  # has not asked for them
            assert (await until(client, OutboundMessage))[-1].text == "three"
        async with talking(gate, last_seq=1) as conversation:
            texts = [(await until(conversation, OutboundMessage))[-1].text for _ in range(2)]
            assert texts == ["two", "three"]


async def test_a_message_that_is_too_large_is_rejected_with_an_event():
    async with world(max_frame_bytes=2048) as gate, talking(gate) as conversation:
        await until(conversation, Online)
        big = await conversation.send("x" * 5000)
        small = await conversation.send("hi")
        events = await until(conversation, MessageAccepted)
        assert [event.id for event in events if isinstance(event, MessageRejected)] == [big]
        assert events[-1] == MessageAccepted(small)
