"""Where a reply goes: by address, type and source."""

from __future__ import annotations

import json

from tests.blackbox.support import SILENCE, Book, Call, Thought, reply, serving

GENERAL = {"type": "slack", "channelId": "#general", "userId": "zhangsan", "replyTo": "thread:weather-discussion"}


def routing(frame):
    """A reply frame as (text, channelId, thread)."""
    channel = frame["channel"]
    assert channel["type"] == "slack"
    return frame["text"], channel["channelId"], channel.get("replyTo")


async def test_slack_thread_direct_message_and_channel(tmp_path):
    """Three targets from one question: same thread, the user in private, the channel without a thread."""
    answer = Thought(
        calls=(
            reply("25°C 晴天", "#general", "slack", "thread:weather-discussion"),
            reply("结果私聊给你了", "@zhangsan", "slack"),
            reply("大家注意今天有雨", "#general", "slack"),
        )
    )
    owner = {"agent.owners": ["slack:zhangsan"]}  # what a guest asks to be said elsewhere needs a yes
    async with serving(tmp_path, Book({"北京天气怎么样？": answer}), owner) as daemon, daemon.bridge("slack") as bridge:
        await bridge.say("北京天气怎么样？", channel=GENERAL)
        assert [routing(frame) for frame in await bridge.replies(3)] == [
            ("25°C 晴天", "#general", "thread:weather-discussion"),
            ("结果私聊给你了", "@zhangsan", None),
            ("大家注意今天有雨", "#general", None),
        ]


async def test_from_cli_to_slack_by_the_directory(tmp_path):
    """No channelType is given, the id is known from Slack, so the reply goes to Slack, not to the terminal."""
    answer = Thought(calls=(reply("好的，已发送到 Slack", "main"), reply("北京今天晴，25°C", "#weather-updates")))
    book = Book({"把结果发到 Slack 上": answer})
    async with serving(tmp_path, book) as daemon, daemon.bridge("slack") as bridge, daemon.client("cli", "main") as cli:
        await bridge.say("hello", channel={"type": "slack", "channelId": "#weather-updates"})
        await bridge.get("reply", text="echo: hello")
        await cli.say("把结果发到 Slack 上")
        assert (await cli.reply())["text"] == "好的，已发送到 Slack"
        frame = await bridge.reply()
        assert routing(frame) == ("北京今天晴，25°C", "#weather-updates", None)
        assert frame["seq"] == 2
        await cli.fence()
        assert cli.texts() == ["好的，已发送到 Slack"]


async def test_the_three_slack_routings_from_cli(tmp_path):
    """Asked in the terminal: into a thread, to a user, to a channel of Slack; ids known, and the type not given."""
    answer = Thought(
        calls=(
            reply("in the thread", "#general", None, "thread:1234567890"),
            reply("in private", "@zhangsan"),
            reply("to all", "#general"),
            reply("done", "main"),
        )
    )
    async with (
        serving(tmp_path, Book({"tell them": answer})) as daemon,
        daemon.bridge("slack") as bridge,
        daemon.client("cli", "main") as cli,
    ):
        for id in ("#general", "@zhangsan"):
            await bridge.say("hi", channel={"type": "slack", "channelId": id})
            await bridge.get("reply", text="echo: hi")
        await cli.say("tell them")
        assert [routing(frame) for frame in await bridge.replies(3)] == [
            ("in the thread", "#general", "thread:1234567890"),
            ("in private", "@zhangsan", None),
            ("to all", "#general", None),
        ]
        assert (await cli.reply())["text"] == "done"
        assert cli.texts() == ["done"]


async def test_the_directory_survives_a_restart(tmp_path):
    """An address seen before the restart takes a reply after it, kept until a bridge is there again."""
    book = Book({"tell them": Thought(calls=(reply("news", "#general"),))})
    async with serving(tmp_path, book) as daemon:
        async with daemon.bridge("slack") as bridge:
            await bridge.say("hi", channel={"type": "slack", "channelId": "#general"})
            await bridge.ack(await bridge.reply())
            await bridge.fence()
        await daemon.restart()
        async with daemon.client("cli", "main") as cli:
            await cli.say("tell them")
            assert await cli.ask("next") == "echo: next"
        async with daemon.bridge("slack", lastSeqs={"#general": 1}) as bridge:
            assert routing(await bridge.reply()) == ("news", "#general", None)


async def test_unknown_channel_is_an_error_the_model_sees_and_nobody_gets_a_frame(tmp_path):
    lost = Thought(calls=(reply("psst", "#nowhere"),))
    async with (
        serving(tmp_path, book := Book({"tell them": [lost, SILENCE]})) as daemon,
        daemon.bridge("slack") as bridge,
        daemon.client("cli", "main") as cli,
    ):
        await bridge.say("hi", channel={"type": "slack", "channelId": "#general"})
        await bridge.reply()
        await cli.say("tell them")
        assert await cli.ask("next") == "echo: next"
        [result] = book.about("tell them")[1].results
        assert "#nowhere" in result
        assert "#general" in result, "the known channels are named"
        assert "main" in result
        await bridge.fence()
        assert bridge.texts() == ["echo: hi"]
        assert cli.texts() == ["echo: next"]
        assert cli.seen[-1]["seq"] == 1, "the lost reply took a number"


async def test_an_unknown_id_of_a_type_nobody_serves_is_an_error(stage, name):
    lost = Thought(calls=(reply("psst", "+49123", "sms"),))
    async with stage.play(book := Book({"text her": [lost, SILENCE]}), name) as daemon, daemon.client() as client:
        await client.say("text her")
        await client.ask("next")
        assert "+49123" in book.about("text her")[1].results[0]
        assert client.texts() == ["echo: next"]


async def test_a_new_id_goes_to_the_bridge_of_the_given_type(stage, name):
    book = Book({"text her": Thought(calls=(reply("hi!", "+49123", name), reply("sent", name, "web")))})
    async with stage.play(book, name) as daemon, daemon.bridge(name) as bridge, daemon.client() as client:
        await client.say("text her")
        frame = await bridge.reply()
        assert (frame["text"], frame["channel"]["channelId"], frame["seq"]) == ("hi!", "+49123", 1)
        assert (await client.reply())["text"] == "sent"


async def test_a_type_that_is_given_is_never_left_for_another_one(tmp_path):
    """#general is Slack's. With the terminal's type it is an error that names it, and the model can correct itself."""
    wrong, right = (
        Thought(calls=(reply("news", "#general", "cli"),)),
        Thought(calls=(reply("news", "#general", "slack"),)),
    )
    async with (
        serving(tmp_path, book := Book({"tell them": [wrong, right]})) as daemon,
        daemon.bridge("slack") as bridge,
        daemon.client("cli", "main") as cli,
    ):
        await bridge.say("hi", channel={"type": "slack", "channelId": "#general"})
        await bridge.get("reply", text="echo: hi")
        await cli.say("tell them")
        assert routing(await bridge.reply()) == ("news", "#general", None)
        assert await cli.ask("next") == "echo: next"
        assert "channelType slack channelId #general" in book.about("tell them")[1].results[0]
        assert bridge.texts() == ["echo: hi", "news"]


async def test_an_id_of_several_types_needs_the_type(tmp_path):
    guess, sure = Thought(calls=(reply("x", "42"),)), Thought(calls=(reply("y", "42", "telegram"),))
    async with (
        serving(tmp_path, book := Book({"tell 42": [guess, sure]})) as daemon,
        daemon.client("web", "42") as web,
        daemon.client("telegram", "42") as telegram,
        daemon.client("cli", "main") as cli,
    ):
        await web.ask("hello")
        await telegram.ask("hello")
        await cli.say("tell 42")
        assert (await telegram.reply())["text"] == "y"
        assert await cli.ask("next") == "echo: next"
        for type in ("web", "telegram"):
            assert type in book.about("tell 42")[1].results[0]
        await web.fence()
        assert web.texts() == ["echo: hello"]


async def test_reply_without_channel_id_goes_to_where_the_message_came_from(stage, name):
    hasty = Thought(calls=(Call("reply", {"text": "psst"}),))
    async with (
        stage.play(book := Book({"hi": [hasty]}), name) as daemon,
        daemon.client() as client,
        daemon.client("web", f"{name}-other") as other,
    ):
        assert await client.ask("hi") == "psst"
        assert await other.ask("next") == "echo: next"
        assert other.texts() == ["echo: next"]
        assert len(book.about("hi")) == 1


async def test_reply_result_does_not_claim_delivery(stage, name):
    """What the model reads after reply() is no proof that the user heard it."""
    both = Thought(calls=(reply("hello"), Call("current_time")))
    async with stage.play(book := Book({"hi": [both, SILENCE]}), name) as daemon, daemon.client() as client:
        await client.ask("hi")
        await client.ask("next")
        result = json.loads(book.about("hi")[1].results[0])
        assert result.get("delivered") is not True
        assert result["seq"] == 1


async def test_a_client_gets_only_its_own_channel(stage, name):
    async with (
        stage.play(Book(), name) as daemon,
        daemon.client("web", f"{name}-a") as a,
        daemon.client("web", f"{name}-b") as b,
        daemon.bridge("slack") as slack,
    ):
        await a.ask("for a")
        for peer in (b, slack):
            await peer.fence()
            assert peer.texts() == []


async def test_a_bridge_gets_all_channels_of_its_type(stage, name):
    async with stage.play(Book(), name) as daemon, daemon.bridge(name) as bridge:
        for id in ("100", "200", "100"):
            await bridge.say(f"from {id}", channel={"type": name, "channelId": id, "userId": "u", "replyTo": "7"})
            frame = await bridge.reply()
            assert frame["text"] == f"echo: from {id}"
            assert (frame["channel"]["channelId"], frame["channel"]["replyTo"]) == (id, "7")
        assert [frame["seq"] for frame in bridge.seen if frame["type"] == "reply"] == [1, 1, 2]


async def test_two_clients_of_one_address_both_get_the_reply(stage, name):
    async with (
        stage.play(Book(), name) as daemon,
        daemon.client("web", f"{name}-same") as one,
        daemon.client("web", f"{name}-same") as two,
    ):
        await one.say("hello")
        assert (await one.reply())["seq"] == (await two.reply())["seq"] == 1
        assert two.texts() == ["echo: hello"]


async def test_types_and_threads_with_special_characters_come_back_as_they_are(stage, name):
    async with stage.play(Book(), name) as daemon, daemon.client("we|rd] type", name, replyTo="thread: [7]|") as client:
        await client.say("hello")
        channel = (await client.reply())["channel"]
        assert (channel["type"], channel["channelId"], channel["replyTo"]) == ("we|rd] type", name, "thread: [7]|")


async def test_ids_with_special_characters_come_back_as_they_are(stage, name):
    """`|`, `[`, `]`, spaces and emoji in ids: escaped in the metadata line, whole again on the way out."""
    strange = "room [1] | 100% café 🐈"
    async with stage.play(Book(), name) as daemon, daemon.client("web", strange) as client:
        assert await client.ask("hello") == "echo: hello"
        assert client.seen[-1]["channel"]["channelId"] == strange
