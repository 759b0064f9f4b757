"""Socket Mode: nothing is lost while WebSockets come and go, and nothing is acknowledged before it is on disk."""

import trio

from pegasus.testing.services.slack_calls import refused
from tests.pegasus.channels.slack.conftest import FRIEND


async def connected(stage):
    await stage.slack.until(lambda _: any(socket.is_open for socket in stage.server.sockets))
    return stage.server.sockets[-1]


async def test_an_envelope_is_acknowledged_only_when_its_message_is_on_disk(play, autojump_clock):
    async with play() as stage:
        await stage.say("before")
        await stage.settle()
        stage.world.disk.fail(times=1_000_000)
        delivery = await stage.server.emit(stage.message("hello"))
        await trio.sleep(30)
        assert delivery.attempts > 1
        assert not delivery.acknowledged.is_set()
        stage.world.disk.files.end_faults()
        with trio.fail_after(600):
            await delivery.acknowledged.wait()
        assert await stage.settle() == ["re: before", "re: hello"]


async def test_an_envelope_that_is_delivered_again_is_processed_once(play, autojump_clock):
    async with play() as stage:
        envelope = stage.message("hello")
        for _ in range(3):
            await stage.emit(envelope)
        assert await stage.settle() == ["re: hello"]


async def test_a_websocket_is_replaced_before_it_ends_and_nothing_is_lost(play, autojump_clock):
    async with play() as stage:
        first = await connected(stage)
        await first.disconnect("refresh_requested", close=False)
        await stage.slack.until(lambda _: len(stage.server.sockets) == 2)
        assert first.is_open  # both deliver
        for n in range(6):
            await stage.say(f"n{n}")
        await first.close()
        await stage.say("after")
        assert stage.server.connections == 2
        assert await stage.settle() == [f"re: n{n}" for n in range(6)] + ["re: after"]


async def test_the_old_websocket_serves_while_no_new_one_can_be_had(play, autojump_clock):
    async with play() as stage:
        first = await connected(stage)
        stage.slack.fault = lambda call: refused("internal_error") if call.method == "apps.connections.open" else None
        await first.disconnect("warning", close=False)
        await trio.sleep(20)
        await stage.say("still here?")
        stage.slack.fault = lambda call: None
        await stage.slack.until(lambda _: len(stage.server.sockets) == 2)
        assert await stage.settle() == ["re: still here?"]


async def test_a_lost_connection_is_opened_again_and_what_was_under_way_comes_again(play, autojump_clock):
    async with play() as stage:
        for n in range(5):
            socket = await connected(stage)
            delivery = await stage.server.emit(stage.message(f"n{n}"))
            await socket.cut()
            with trio.fail_after(600):
                await delivery.acknowledged.wait()
        assert await stage.settle() == [f"re: n{n}" for n in range(5)]


async def test_a_connection_that_has_gone_silent_is_noticed_by_its_pings(play, autojump_clock):
    async with play() as stage:
        socket = await connected(stage)
        await trio.sleep(90)
        assert socket.pings >= 3
        assert stage.server.connections == 1
        socket.is_silent = True
        with trio.fail_after(60):
            await stage.slack.until(lambda _: stage.server.sockets and socket not in stage.server.sockets)
        await stage.say("hello")
        assert await stage.settle() == ["re: hello"]


async def test_too_many_websockets_is_an_outage_with_its_reason(play, autojump_clock):
    async with play() as stage:
        await connected(stage)
        first = stage.server.sockets[0]
        others = [object()] * 10
        stage.server.sockets.extend(others)
        await first.cut()
        await trio.sleep(30)
        assert stage.adapter.state.state == "down"
        assert "too_many_websockets" in stage.adapter.state.reason
        stage.server.sockets.clear()
        await trio.sleep(60)
        assert stage.adapter.state.state == "up"


async def test_frames_that_make_no_sense_do_no_harm(play, autojump_clock):
    async with play() as stage:
        socket = await connected(stage)
        for text in ("", "no json", "[]", "{}", '{"type":"events_api"}', '{"type":7,"envelope_id":"x","payload":{}}'):
            await socket.send_text(text)
        await socket.send({"type": "brand_new", "envelope_id": "x", "payload": {"a": 1}})
        await stage.say("fine")
        assert await stage.settle() == ["re: fine"]
        assert stage.server.connections == 1


async def test_an_address_without_encryption_is_refused(play, autojump_clock):
    async with play() as stage:
        await connected(stage)
        apps_connections_open = stage.slack._apps_connections_open
        stage.slack._apps_connections_open = lambda params: {
            "url": apps_connections_open(params)["url"].replace("wss://", "ws://")
        }
        before = stage.server.connections
        await stage.server.sockets[0].cut()
        await trio.sleep(20)
        assert stage.server.connections == before
        assert "not encrypted" in stage.adapter.state.reason


async def test_a_slow_file_of_one_conversation_holds_up_no_other(play, autojump_clock):
    async with play() as stage:
        await connected(stage)
        stage.slack.file_delay = 20.0
        file = stage.slack.add_file("a.txt", "text/plain", b"the plan")
        # Two files, so that nothing further is waited for.
        other = stage.slack.add_file("b.txt", "text/plain", b"more")
        first = await stage.server.emit(stage.message("with a file", files=[file, other]))
        await stage.say("other", FRIEND, stage.slack.open_dm(FRIEND))
        assert await stage.until_posted(1) == ["re: other"]
        assert not first.acknowledged.is_set()
        with trio.fail_after(600):
            await first.acknowledged.wait()
        await stage.until_posted(2)
        assert "the plan" in stage.prompts()
