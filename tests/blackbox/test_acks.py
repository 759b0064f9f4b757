"""Who has had which reply: acknowledgements, lastSeq, the same id twice."""

from __future__ import annotations

import trio

from tests.blackbox.support import Book


async def test_an_acknowledged_reply_is_not_sent_again(stage, name):
    async with stage.play(Book(), name) as daemon:
        async with daemon.client() as client:
            await client.ask("one")
            await client.fence()
        async with daemon.client() as client:
            assert await client.ask("two") == "echo: two"
            assert client.texts() == ["echo: two"]


async def test_an_unacknowledged_reply_is_sent_again(stage, name):
    async with stage.play(Book(), name) as daemon:
        async with daemon.client() as client:
            await client.say("one")
            first = await client.reply()
        async with daemon.client() as client:
            assert await client.reply() == first


async def test_acknowledgement_survives_a_restart(stage, name):
    """After a clean stop; a kill -9 may forget the last ones, never a reply."""
    async with stage.play(Book(), name) as daemon:
        async with daemon.client() as client:
            await client.ask("one")
            await client.fence()
        assert await daemon.stop() == 0
        await daemon.start()
        async with daemon.client() as client:
            assert await client.ask("two") == "echo: two"
            assert client.texts() == ["echo: two"]


async def test_last_seq_is_authoritative(stage, name):
    """Only greater ones come again, whatever was acknowledged before."""
    async with stage.play(Book(), name) as daemon:
        async with daemon.client() as client:
            for n in range(1, 6):
                await client.say(f"m{n}")
                await client.reply()
        async with daemon.client(lastSeq=3) as client:
            assert [(frame["seq"], frame["text"]) for frame in await client.replies(2)] == [
                (4, "echo: m4"),
                (5, "echo: m5"),
            ]
            await client.ask("fence")
            assert len(client.texts()) == 3


async def test_last_seq_after_a_kill(stage, name):
    async with stage.play(Book(), name) as daemon:
        async with daemon.client() as client:
            for n in range(1, 4):
                await client.say(f"m{n}")
                await client.reply()
        await daemon.restart()
        async with daemon.client(lastSeq=1) as client:
            assert client.welcome["seq"] == 3
            assert [frame["text"] for frame in await client.replies(2)] == ["echo: m2", "echo: m3"]


async def test_replies_wait_for_a_client_that_is_away(stage, name):
    async with stage.play(book := Book(), name) as daemon:
        async with daemon.client("web", f"{name}-away") as away:
            book.hold()
            await away.say("one")
            await away.say("two")
        book.release()
        async with daemon.client("web", f"{name}-other") as other:
            await other.ask("fence")
        await daemon.restart()
        async with daemon.client("web", f"{name}-away", lastSeq=0) as away:
            assert [frame["text"] for frame in await away.replies(2)] == ["echo: one", "echo: two"]


async def test_a_bridge_acknowledges_per_channel(stage, name):
    async with stage.play(Book(), name) as daemon:
        async with daemon.bridge(name) as bridge:
            for id in ("#a", "#b"):
                await bridge.say(f"to {id}", channel={"type": name, "channelId": id})
                await bridge.reply()
            await bridge.send({"type": "ack", "seq": 1, "channel": {"type": name, "channelId": "#a"}})
            await bridge.fence()
        async with daemon.bridge(name) as bridge:
            assert (await bridge.reply())["text"] == "echo: to #b"
            await bridge.say("fence", channel={"type": name, "channelId": "#a"})
            await bridge.get("reply", text="echo: fence")
            assert bridge.texts() == ["echo: to #b", "echo: fence"]


async def test_a_bridge_comes_back_with_last_seqs(stage, name):
    async with stage.play(Book(), name) as daemon:
        async with daemon.bridge(name) as bridge:
            for text in ("one", "two"):
                for id in ("#a", "#b"):
                    await bridge.say(f"{text} {id}", channel={"type": name, "channelId": id})
                    await bridge.reply()
        async with daemon.bridge(name, lastSeqs={"#a": 1, "#b": 2}) as bridge:
            assert bridge.welcome["seq"] == 0
            assert (await bridge.reply())["text"] == "echo: two #a"
            await bridge.say("fence", channel={"type": name, "channelId": "#b"})
            await bridge.get("reply", text="echo: fence")
            assert bridge.texts() == ["echo: two #a", "echo: fence"]


async def test_a_last_seq_and_an_ack_from_another_world_lose_nothing(stage, name):
    """Numbers beyond the last one assigned count as that last one."""
    async with stage.play(Book(), name) as daemon:
        async with daemon.client(lastSeq=1_000_000) as client:
            await client.ack(999_999)
            await client.fence()
        async with daemon.client() as client:
            await client.say("hello")
        async with daemon.client() as client:
            assert (await client.reply())["seq"] == 1


async def test_two_bridges_of_one_type_both_hear_and_one_may_acknowledge(stage, name):
    async with stage.play(Book(), name) as daemon:
        async with daemon.bridge(name) as one, daemon.bridge(name) as two:
            await one.say("hi", channel={"type": name, "channelId": "#x"})
            reply = await one.reply()
            assert await two.reply() == reply
            await two.ack(reply)
            await two.fence()
        async with daemon.bridge(name) as again:
            await again.say("next", channel={"type": name, "channelId": "#x"})
            assert (await again.reply())["text"] == "echo: next"


# ------------------------------------------------------------------ the same id twice


async def test_same_id_is_accepted_again_and_processed_once(stage, name):
    async with stage.play(book := Book(), name) as daemon, daemon.client() as client:
        for _ in range(5):
            await client.say("once", id="m-1")
        await client.reply()
        await client.say("once", id="m-1")
        assert await client.ask("next") == "echo: next"
        assert client.texts() == ["echo: once", "echo: next"]
        assert len(book.about("once")) == 1


async def test_same_id_after_restarts_is_processed_once(stage, name):
    async with stage.play(book := Book(), name) as daemon:
        for stop in (daemon.kill, daemon.kill, None):
            async with daemon.client() as client:
                await client.say("once", id="m-1")
                if stop is None:
                    await client.say("next")
            if stop is not None:
                stop()
                await daemon.start()
        assert len(book.about("once")) <= 3, "each kill may cost one repeated call to the model"
        async with daemon.client(lastSeq=0) as client:
            assert [frame["text"] for frame in await client.replies(2)] == ["echo: once", "echo: next"]


async def test_same_id_after_a_clean_restart(stage, name):
    async with stage.play(book := Book(), name) as daemon:
        async with daemon.client() as client:
            await client.ask("once", id="m-1")
        await daemon.stop()
        await daemon.start()
        async with daemon.client() as client:
            await client.say("once", id="m-1")
            assert await client.ask("next") == "echo: next"
        assert len(book.about("once")) == 1


async def test_same_id_by_two_clients_of_one_address_is_processed_once(stage, name):
    async with stage.play(book := Book(), name) as daemon:
        async with (
            daemon.client("web", f"{name}-x") as one,
            daemon.client("web", f"{name}-x") as two,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(one.say, "once", "m-1")
            nursery.start_soon(two.say, "once", "m-1")
        async with daemon.client("web", f"{name}-x", lastSeq=0) as client:
            assert (await client.reply())["text"] == "echo: once"
            assert await client.ask("next") == "echo: next"
        assert len(book.about("once")) == 1


async def test_same_id_on_two_addresses_is_two_messages(stage, name):
    async with (
        stage.play(Book(), name) as daemon,
        daemon.client("web", f"{name}-a") as a,
        daemon.client("web", f"{name}-b") as b,
    ):
        assert await a.ask("for a", id="m-1") == "echo: for a"
        assert await b.ask("for b", id="m-1") == "echo: for b"


async def test_same_id_on_two_channels_of_a_bridge_is_two_messages(stage, name):
    async with stage.play(Book(), name) as daemon, daemon.bridge(name) as bridge:
        for id in ("#a", "#b"):
            await bridge.say(f"for {id}", id="m-1", channel={"type": name, "channelId": id})
            assert (await bridge.reply())["text"] == f"echo: for {id}"


async def test_same_id_with_another_text_is_the_first_message(stage, name):
    async with stage.play(book := Book(), name) as daemon, daemon.client() as client:
        await client.ask("first", id="m-1")
        await client.say("second", id="m-1")
        await client.ask("next")
        assert [view.question.text for view in book.asked] == ["first", "next"]
