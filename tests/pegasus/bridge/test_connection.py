"""The library for bridges, on both event loops, against a gateway on a real socket."""

from __future__ import annotations

import anyio
import pytest
import trio

from pegasus.access import ChannelRules
from pegasus.bridge import Bridge, BridgeRefused, files_of, reply_id
from pegasus.messages import Address, ChannelInfo, Media, OutboundMessage, ReplyDraft, Typing
from pegasus.storage import Overloaded
from tests.pegasus.gateway.world import TOKEN, world

ROOM = ChannelInfo("matrix", "!room")


@pytest.fixture(params=["asyncio", "trio"])
def run(request, monkeypatch):
    """Run a program with its bridge on one of the event loops, in a thread of its own: `await run(gateway, program)`."""
    monkeypatch.setattr("pegasus.bridge.connection.FIRST_PAUSE", 0.01)

    async def run_program(gateway, program, token=TOKEN, url="", **options):
        async def main():
            with anyio.fail_after(30):
                async with Bridge(url or gateway.url, token, "matrix", **options) as bridge:
                    return await program(bridge)

        return await trio.to_thread.run_sync(lambda: anyio.run(main, backend=request.param))

    return run_program


def texts_of(gateway):
    return [message.text for message, _ in gateway.journal.accepted]


async def there(token, function, *arguments):
    """Call a function of the test, from the loop of the bridge."""
    await anyio.to_thread.run_sync(lambda: trio.from_thread.run(function, *arguments, trio_token=token))


async def take(bridge, count):
    """The next replies, all of them acknowledged."""
    found = []
    async for reply in bridge:
        found.append(reply)
        if len(found) == count:
            await bridge.acknowledge(reply)
            break
    return found


async def test_a_message_is_on_disk_when_send_returns(run):
    async with world() as gateway:

        async def program(bridge):
            await bridge.send(
                "hello", "!room", user_id="@anna", reply_to="$thread", id="$1", files=[("a.txt", "text/plain", b"hi")]
            )
            return texts_of(gateway)

        assert await run(gateway, program) == ["hello"]
        ((message, _),) = gateway.journal.accepted
        assert message.channel == ChannelInfo("matrix", "!room", "@anna", "$thread")
        assert message.media == (Media("a.txt", "text/plain", "aGk="),)


async def test_another_account_may_number_its_messages_alike(run):
    async with world() as gateway:

        async def program(bridge):
            await bridge.send(f"to {bridge.account}", "!room", id="1")
            await bridge.send(f"to {bridge.account}", "!room", id="1")

        for account in ("", "first", "second"):
            await run(gateway, program, account=account)
        assert {message.id for message, _ in gateway.journal.accepted} == {"1", "first/1", "second/1"}


async def test_the_same_id_is_one_message_in_each_conversation(run):
    async with world() as gateway:

        async def program(bridge):
            async with anyio.create_task_group() as tasks:
                for channel_id in ("!a", "!b", "!a", "!b"):
                    tasks.start_soon(lambda room=channel_id: bridge.send(f"to {room}", room, id="1"))

        await run(gateway, program)
        assert sorted(texts_of(gateway)) == ["to !a", "to !b"]


async def test_replies_come_in_order_and_are_acknowledged_one_by_one(run):
    async with world() as gateway:
        for number in range(3):
            gateway.journal.post(ROOM, f"r{number}")

        async def program(bridge):
            return [reply.text for reply in await take(bridge, 3)]

        assert await run(gateway, program) == ["r0", "r1", "r2"]
        await gateway.journal.until(lambda: not gateway.journal.outbox[ROOM.address])
        assert gateway.journal.acks[-1] == (Address("matrix", "!room"), 3)


async def test_a_reply_whose_handling_failed_comes_again(run):
    async with world() as gateway:
        gateway.journal.post(ROOM, "r0")
        gateway.journal.post(ROOM, "r1")

        async def fail(bridge):
            async for reply in bridge:
                if reply.text == "r1":
                    raise RuntimeError("the service is down")

        with pytest.raises(RuntimeError, match="the service is down"):
            await run(gateway, fail)
        await gateway.journal.until(lambda: len(gateway.journal.outbox[ROOM.address]) == 1)

        async def program(bridge):
            return [reply.text for reply in await take(bridge, 1)]

        assert await run(gateway, program) == ["r1"]


async def test_a_bridge_that_keeps_the_numbers_itself_gets_only_what_it_does_not_have(run):
    async with world() as gateway:
        for number in range(3):
            gateway.journal.post(ROOM, f"r{number}")

        async def program(bridge):
            return [reply.text for reply in await take(bridge, 1)], bridge.last_seqs

        assert await run(gateway, program, last_seqs={"!room": 2}) == (["r2"], {"!room": 3})


async def test_after_a_lost_connection_nothing_is_missing_and_nothing_comes_twice(run):
    async with world() as gateway:
        for number in range(3):
            gateway.journal.post(ROOM, f"r{number}")

        async def program(bridge):
            found = []
            async for reply in bridge:
                found.append(reply.text)
                if len(found) == 1:
                    await there(token, gateway.crash)
                    await there(token, gateway.say, ROOM, "r3")
                if len(found) == 4:
                    break
            return found

        token = trio.lowlevel.current_trio_token()
        assert await run(gateway, program) == ["r0", "r1", "r2", "r3"]


async def test_a_message_that_was_on_its_way_when_the_connection_was_lost_is_sent_again(run):
    async with world() as gateway:
        gateway.journal.hold = True

        async def program(bridge):
            await bridge.send("hello", "!room", id="1")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, gateway, program)
            await gateway.journal.until(lambda: gateway.journal.held)
            await gateway.crash()
            await gateway.journal.until(lambda: len(gateway.journal.held) > 1)
            gateway.journal.release()
        assert texts_of(gateway) == ["hello"]


async def test_an_agent_that_is_overloaded_gets_the_message_later(run):
    async with world() as gateway:
        gateway.journal.verdict = Overloaded(7)

        async def relax():
            await gateway.journal.on_accept.wait()
            gateway.journal.verdict = None

        async def program(bridge):
            await bridge.send("hello", "!room")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(relax)
            await run(gateway, program)
        assert texts_of(gateway) == ["hello"]


async def test_what_the_agent_refuses_is_an_error_and_the_bridge_goes_on(run):
    async with world(access={"matrix": ChannelRules("allow_list", frozenset({"@anna"}))}) as gateway:

        async def program(bridge):
            with pytest.raises(BridgeRefused) as caught:
                await bridge.send("let me in", "!dm", user_id="@eve")
            await bridge.send("hello", "!dm", user_id="@anna")
            return caught.value.code

        assert await run(gateway, program) == "bad_frame"
        assert texts_of(gateway) == ["hello"]


@pytest.mark.parametrize("changes", [{"token": "wrong"}, {"url": "http://127.0.0.1:1"}])
async def test_a_refused_bridge_ends_with_the_reason(run, changes):
    async with world() as gateway:

        async def program(bridge):
            with pytest.raises(BridgeRefused):
                await bridge.send("hello", "!room")
            async for _ in bridge:
                pass

        with pytest.raises(BridgeRefused):
            await run(gateway, program, **changes)


async def test_signs_and_drafts_come_between_replies(run):
    async with world() as gateway:

        async def program(bridge):
            await bridge.send("hello", "!room")
            await there(token, gateway.typing, ROOM, True)
            await there(token, gateway.ref.tell, ReplyDraft(ROOM, "It is"))
            await there(token, gateway.say, ROOM, "It is late.")
            found = [await bridge.next_event()]
            while not isinstance(found[-1], OutboundMessage):
                found.append(await bridge.next_event())
            return found

        token = trio.lowlevel.current_trio_token()
        typing, *drafts, reply = await run(gateway, program)
        assert isinstance(typing, Typing)
        assert all(isinstance(draft, ReplyDraft) for draft in drafts)
        assert reply.text == "It is late."


@pytest.mark.parametrize("bound", ["MOST_WAITING", "MOST_OF_CONVERSATION"])
async def test_more_replies_than_fit_into_memory_come_in_order(run, monkeypatch, bound):
    monkeypatch.setattr(f"pegasus.bridge.connection.{bound}", 4)
    async with world() as gateway:
        for number in range(30):
            gateway.journal.post(ROOM, f"r{number}")

        async def program(bridge):
            await bridge.send("hello", "!room")
            return [reply.text for reply in await take(bridge, 30)]

        assert await run(gateway, program) == [f"r{number}" for number in range(30)]


async def test_the_id_of_a_reply_is_the_same_whenever_it_comes():
    first, *others = (
        reply_id(OutboundMessage("a", ChannelInfo("matrix", room), seq))
        for room, seq in (("!a", 1), ("!a", 2), ("!b", 1))
    )
    assert first == reply_id(OutboundMessage("a", ChannelInfo("matrix", "!a", "@anna"), 1))
    assert first not in others
    assert others[0] != others[1]


def test_files_of_a_reply_are_bytes():
    reply = OutboundMessage("", ROOM, 1, media=(Media("a", "text/plain", "aGk="),))
    assert files_of(reply) == [("a", "text/plain", b"hi")]


@pytest.mark.parametrize("id", ["a" * 257, "half \udce9", "\u2460", "a\0"])
async def test_an_id_that_cannot_be_one_is_refused_at_once_and_holds_up_nobody(run, id):
    async with world() as gateway:

        async def program(bridge):
            with pytest.raises(BridgeRefused, match=r"message\.id"):
                await bridge.send("lost", "!room", id=id)
            await bridge.send("heard", "!room")

        await run(gateway, program)
        assert texts_of(gateway) == ["heard"]
