"""Replies over real sockets: pushed, sent again, acknowledged; typing in its place among them."""

import pytest
import trio

from pegasus.channels import DeliverReply
from pegasus.gateway import reply_feed
from pegasus.messages import Address, ChannelInfo, Media, ReplyDraft
from pegasus.storage import StorageError
from tests.pegasus.gateway.world import WEB, world

C2 = ChannelInfo("web", "c2")
ENDED = {"type": "typing", "channel": {"type": "web", "channelId": "c1"}, "active": False}
BEGAN = ENDED | {"active": True}


async def seqs(client, count):
    return [(await client.get())["seq"] for _ in range(count)]


async def test_a_reply_reaches_the_client_of_its_address():
    channel = ChannelInfo("web", "c1", user_id="u1", reply_to="t1")
    async with world() as gate, gate.client() as client:
        await gate.say(channel, "hello", metadata={"a": 1}, media=(Media("n", "m/x", "aGk="),))
        assert await client.get() == {
            "type": "reply",
            "seq": 1,
            "text": "hello",
            "channel": {"type": "web", "channelId": "c1", "userId": "u1", "replyTo": "t1"},
            "metadata": {"a": 1},
            "media": [{"name": "n", "mime": "m/x", "data": "aGk="}],
        }


async def test_a_reply_to_somebody_else_does_not():
    async with world() as gate, gate.client() as client, gate.client("c2") as other:
        await gate.say(C2, "hello")
        assert (await other.get())["text"] == "hello"
        await client.quiet()


async def test_all_clients_of_an_address_get_a_reply():
    async with world() as gate, gate.client() as one, gate.client() as two:
        await gate.say(WEB, "hello")
        assert (await one.get())["text"] == (await two.get())["text"] == "hello"


async def test_half_a_surrogate_pair_in_a_reply_is_replaced_and_costs_nothing_else():
    async with world() as gate, gate.client() as client:
        await gate.say(WEB, "a\ud800b")
        assert (await client.get())["text"] == "a?b"
        await client.quiet()


async def test_unacknowledged_replies_come_again():
    async with world() as gate:
        for n in range(3):
            await gate.say(WEB, f"r{n}")
        async with gate.client() as client:
            assert await seqs(client, 3) == [1, 2, 3]
        async with gate.client() as client:
            assert await seqs(client, 3) == [1, 2, 3]
            await client.send(type="ack", seq=2)
            await gate.journal.until(lambda: gate.journal.acks)
        async with gate.client() as client:
            assert await seqs(client, 1) == [3]
            await client.quiet()


async def test_only_greater_ones_than_last_seq_come_again():
    async with world() as gate:
        for n in range(3):
            await gate.say(WEB, f"r{n}")
        async with gate.client(lastSeq=2) as client:
            assert await seqs(client, 1) == [3]
            await client.quiet()


async def test_a_last_seq_that_was_never_assigned_does_not_hide_what_comes():
    """A client that talked to a home which is gone."""
    async with world() as gate, gate.client(lastSeq=1000) as client:
        assert client.welcome["seq"] == 0
        await gate.say(WEB, "new")
        assert await seqs(client, 1) == [1]


async def test_a_reply_that_is_pushed_twice_comes_once():
    async with world() as gate, gate.client() as client:
        message = await gate.say(WEB, "r1")
        await gate.push(message)
        await gate.say(WEB, "r2")
        assert await seqs(client, 2) == [1, 2]
        await client.quiet()


async def test_a_gap_is_filled_from_the_journal():
    async with world() as gate, gate.client() as client:
        gate.journal.post(WEB, "r1")
        gate.journal.post(WEB, "r2")
        await gate.say(WEB, "r3")
        assert await seqs(client, 3) == [1, 2, 3]


async def test_catch_up_reads_what_was_not_handed_over():
    async with world() as gate, gate.client() as client, gate.client(None) as bridge:
        gate.journal.post(WEB, "r1")
        gate.journal.post(C2, "r1")
        await gate.say(C2, "r2")
        assert await seqs(bridge, 2) == [1, 2]
        await gate.catch_up()
        assert await seqs(client, 1) == [1]


async def test_a_long_backlog_is_read_in_pages_and_none_is_acknowledged_by_reading(monkeypatch):
    monkeypatch.setattr(reply_feed, "PAGE", 10)
    async with world() as gate:
        for n in range(95):
            gate.journal.post(WEB, f"r{n}")
        async with gate.client(lastSeq=0) as client:
            assert await seqs(client, 95) == list(range(1, 96))
        assert gate.journal.pages == [10, 20, 40, 80, 160, 320]
        assert len(gate.journal.outbox[WEB.address]) == 95


async def test_a_reply_that_cannot_be_read_back_does_not_hide_those_behind_it(monkeypatch):
    monkeypatch.setattr(reply_feed, "PAGE", 10)
    async with world() as gate:
        for n in range(30):
            gate.journal.post(WEB, f"r{n}")
        gate.journal.unreadable.add(3)
        async with gate.client() as client:
            assert await seqs(client, 29) == [1, 2, *range(4, 31)]


async def test_a_backlog_larger_than_the_queue_waits_for_the_client(monkeypatch):
    async with world(queue_frames=8) as gate:
        for n in range(500):
            gate.journal.post(WEB, f"r{n}")
        async with gate.client() as client:
            assert await seqs(client, 500) == list(range(1, 501))


async def test_pushes_during_the_backlog_come_after_it(monkeypatch):
    monkeypatch.setattr(reply_feed, "PAGE", 1)
    async with world() as gate:
        for n in range(30):
            gate.journal.post(WEB, f"r{n}")
        async with gate.client() as client:
            for n in range(30):
                await gate.say(WEB, f"p{n}")
            assert await seqs(client, 60) == list(range(1, 61))
            await client.quiet()


async def test_when_replies_cannot_be_read_the_client_is_to_come_again():
    async with world() as gate, gate.client() as client:
        gate.journal.post(WEB, "r1")
        gate.journal.failure = StorageError("no disk")
        await gate.say(WEB, "r2")
        assert await client.closed() == ([], 1011)


# ------------------------------------------------------------------ bridges


async def test_a_bridge_gets_the_replies_of_its_type():
    async with world() as gate, gate.client(None) as bridge:
        await gate.say(WEB, "one")
        await gate.say(C2, "two")
        await gate.say(ChannelInfo("irc", "#a"), "three")
        assert [(await bridge.get())["text"] for _ in range(2)] == ["one", "two"]
        await bridge.quiet()


async def test_a_bridge_leaves_alone_what_has_a_client_of_its_own():
    async with world() as gate, gate.client(None) as bridge, gate.client() as client:
        await gate.say(WEB, "one")
        assert (await client.get())["text"] == "one"
        await bridge.quiet()


async def test_a_bridge_takes_over_what_a_client_that_left_did_not_acknowledge():
    async with world() as gate, gate.client(None) as bridge:
        async with gate.client() as client:
            await gate.say(WEB, "one")
            await gate.say(WEB, "two")
            await seqs(client, 2)
            await client.send(type="ack", seq=1)
            await gate.journal.until(lambda: gate.journal.acks)
        assert (await bridge.get())["seq"] == 2
        await gate.say(WEB, "three")
        assert (await bridge.get())["seq"] == 3


async def test_a_bridge_acknowledges_by_channel():
    async with world() as gate, gate.client(None) as bridge:
        await gate.say(WEB, "one")
        await bridge.get()
        await bridge.send(type="ack", seq=1, channel={"type": "web", "channelId": "c1"})
        await gate.journal.until(lambda: gate.journal.acks == [(Address("web", "c1"), 1)])


async def test_a_bridge_that_comes_back_gets_what_it_did_not_acknowledge_or_claim():
    async with world() as gate:
        for channel in (WEB, C2):
            for n in range(3):
                gate.journal.post(channel, f"{n}")
        async with gate.client(None) as bridge:
            assert await seqs(bridge, 6) == [1, 2, 3, 1, 2, 3]
        async with gate.client(None, lastSeqs={"c1": 2}) as bridge:
            assert await seqs(bridge, 4) == [3, 1, 2, 3]


async def test_a_bridge_that_comes_while_a_client_is_there_gets_it_all_once_the_client_has_gone():
    async with world() as gate:
        gate.journal.post(WEB, "one")
        async with gate.client() as client:
            await seqs(client, 1)
            async with gate.client(None) as bridge:
                await gate.say(C2, "for the bridge")
                assert (await bridge.get())["channel"]["channelId"] == "c2"
                await client.socket.aclose()
                assert (await bridge.get())["text"] == "one"


async def test_a_bridge_that_claims_replies_which_were_never_made_gets_the_next():
    async with world() as gate, gate.client(None, lastSeqs={"c1": 1000}) as bridge:
        await gate.say(WEB, "one")
        assert (await bridge.get())["seq"] == 1


async def test_a_bridge_misses_nothing_of_an_address_whose_clients_come_and_go():
    async with world() as gate, gate.client(None) as bridge:
        for n in range(10):
            async with gate.client():
                await gate.say(WEB, f"{n}")
            assert (await bridge.get())["seq"] == n + 1
        await bridge.quiet()


# ------------------------------------------------------------------ typing


async def test_typing_reaches_the_clients_of_its_address_only():
    async with world() as gate, gate.client() as client, gate.client("c2") as other:
        await gate.typing(WEB, True)
        await gate.typing(WEB, False)
        assert [await client.get(), await client.get()] == [BEGAN, ENDED]
        await other.quiet()


@pytest.mark.parametrize("bridge", [False, True])
async def test_the_end_of_a_turn_follows_its_replies_even_if_it_comes_first(bridge):
    async with world() as gate, gate.client(None if bridge else "c1") as client:
        for n in range(3):
            message = gate.journal.post(WEB, f"r{n}")
            await gate.typing(WEB, False, after=message.seq)
            await gate.ref.tell(DeliverReply(message))
            assert [(await client.get())["type"], (await client.get())["type"]] == ["reply", "typing"]
        await client.quiet()


async def test_a_new_turn_does_not_overtake_the_end_of_the_one_before():
    async with world() as gate, gate.client() as client:
        for _ in range(20):
            message = gate.journal.post(WEB, "r")
            await gate.typing(WEB, False, after=message.seq)
            await gate.typing(WEB, True)
            assert [(await client.get())["type"] for _ in range(1)] == ["reply"]
            assert [await client.get(), await client.get()] == [ENDED, BEGAN]


async def test_the_end_of_a_silent_turn_is_announced():
    async with world() as gate, gate.client() as client:
        await gate.say(WEB, "before")
        await client.get()
        await gate.typing(WEB, False)
        assert await client.get() == ENDED


# ------------------------------------------------------------------ slow readers


async def test_a_client_that_does_not_read_is_disconnected_and_misses_nothing():
    text = "x" * 50_000
    async with world(queue_frames=16, queue_bytes=200_000, close_timeout=0.01) as gate:
        async with gate.client(), gate.client("c2") as other:
            sent = 0
            while not gate.journal.presence or "Disconnected" not in repr(gate.journal.presence):
                await gate.say(WEB, text)
                sent += 1
                await other.quiet()
                assert sent < 2000, "it was never disconnected"
        async with gate.client() as client:
            assert await seqs(client, sent) == list(range(1, sent + 1))


async def test_a_client_that_is_behind_goes_without_drafts_and_stays_connected():
    """Each draft is the whole text so far, so that the next one or the reply makes up for it."""
    text = "x" * 50_000
    small = world(queue_frames=16, queue_bytes=200_000, close_timeout=0.01)
    async with small as gate, gate.client() as client, gate.client("c2") as other:
        for _ in range(300):  # more than the buffers of both sockets take
            await gate.ref.tell(ReplyDraft(WEB, text))
            await other.quiet()
        await gate.say(WEB, "done")
        frame = await client.get()
        while frame["type"] == "progress":
            assert frame["text"] == text
            frame = await client.get()
        assert (frame["type"], frame["text"]) == ("reply", "done")


async def test_a_client_that_reads_is_not_disconnected_by_a_burst_of_large_replies():
    async with world() as gate, gate.client() as client, trio.open_nursery() as nursery:

        @nursery.start_soon
        async def burst():
            for _ in range(100):
                await gate.say(WEB, "x" * 100_000)

        assert await seqs(client, 100) == list(range(1, 101))
