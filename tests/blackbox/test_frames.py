"""Frames no client should send: each gets a clear error, the connection stays open where docs/gateway.md says so, the daemon lives."""

from __future__ import annotations

import base64
import json
import string

import pytest
import trio

DEEP = 100_000

NO_FRAMES = {
    "no JSON": "hello",
    "empty": "",
    "half": '{"type":"message","id":"x","text":',
    "two objects": "{}{}",
    "a list": "[]",
    "a string": '"message"',
    "a number": "1",
    "null": "null",
    "NaN": '{"type":"message","id":"x","text":"a","metadata":{"n":NaN}}',
    "infinity": '{"type":"message","id":"x","text":"a","metadata":{"n":1e999}}',
    "a huge number": '{"type":"message","id":"x","text":"a","metadata":{"n":' + "9" * 5000 + "}}",
    "deep lists": '{"type":"message","id":"x","text":"a","metadata":{"n":' + "[" * DEEP + "]" * DEEP + "}}",
    "deep objects": '{"a":' * DEEP + "1" + "}" * DEEP,
    "deep and unclosed": "[" * DEEP,
    "no type": '{"id":"x","text":"a"}',
    "type null": '{"type":null}',
    "type a list": '{"type":["message"]}',
    "half a surrogate pair": '{"type":"message","id":"x","text":"\\ud83d"}',
    "half a pair in metadata": '{"type":"message","id":"x","text":"a","metadata":{"\\udc00":1}}',
    "half a pair in the id": '{"type":"message","id":"\\ud83d","text":"a"}',
}

WRONG_FIELDS = {
    "message without id": {"type": "message", "text": "a"},
    "message without text": {"type": "message", "id": "x"},
    "text a number": {"type": "message", "id": "x", "text": 1},
    "text null": {"type": "message", "id": "x", "text": None},
    "text a list": {"type": "message", "id": "x", "text": ["a"]},
    "id a number": {"type": "message", "id": 7, "text": "a"},
    "id empty": {"type": "message", "id": "", "text": "a"},
    "id true": {"type": "message", "id": True, "text": "a"},
    "id too long": {"type": "message", "id": "x" * 100_000, "text": "a"},
    "id with a newline": {"type": "message", "id": "a\nb", "text": "a"},
    "metadata a list": {"type": "message", "id": "x", "text": "a", "metadata": []},
    "metadata a string": {"type": "message", "id": "x", "text": "a", "metadata": "m"},
    "media an object": {"type": "message", "id": "x", "text": "a", "media": {}},
    "media of strings": {"type": "message", "id": "x", "text": "a", "media": ["a"]},
    "media without data": {"type": "message", "id": "x", "text": "a", "media": [{"name": "a", "mime": "b"}]},
    "media not base64": {"type": "message", "id": "x", "text": "a", "media": [{"name": "a", "mime": "b", "data": "?"}]},
    "media null": {"type": "message", "id": "x", "text": "a", "media": [None]},
    "channel a string": {"type": "message", "id": "x", "text": "a", "channel": "web"},
    "channel without type": {"type": "message", "id": "x", "text": "a", "channel": {"channelId": "c1"}},
    "channel of somebody else": {
        "type": "message",
        "id": "x",
        "text": "a",
        "channel": {"type": "web", "channelId": "other"},
    },
    "channel of another type": {
        "type": "message",
        "id": "x",
        "text": "a",
        "channel": {"type": "slack", "channelId": "#a"},
    },
    "ack without seq": {"type": "ack"},
    "ack a string": {"type": "ack", "seq": "1"},
    "ack negative": {"type": "ack", "seq": -1},
    "ack a fraction": {"type": "ack", "seq": 1.5},
    "ack true": {"type": "ack", "seq": True},
    "ack huge": {"type": "ack", "seq": 2**70},
    "ack of somebody else": {"type": "ack", "seq": 1, "channel": {"type": "web", "channelId": "other"}},
    "call without id": {"type": "call", "method": "status"},
    "call without method": {"type": "call", "id": "7"},
    "call params a list": {"type": "call", "id": "7", "method": "status", "params": []},
    "a second hello": {"type": "hello", "token": "x", "channel": {"type": "web", "channelId": "c1"}},
}


@pytest.mark.parametrize("frame", NO_FRAMES.values(), ids=NO_FRAMES)
async def test_what_is_no_frame_is_a_bad_frame_and_the_connection_stays_open(shared, name, frame):
    async with shared.client("web", name) as client:
        await client.send_raw(frame)
        error = await client.error("bad_frame")
        assert error["message"]
        assert len(json.dumps(error)) < 2000, "the error repeats what was sent"
        await client.fence()


@pytest.mark.parametrize("frame", WRONG_FIELDS.values(), ids=WRONG_FIELDS)
async def test_a_wrong_field_is_named_and_the_connection_stays_open(shared, name, frame):
    async with shared.client("web", name) as client:
        await client.send(frame)
        error = await client.error("bad_frame")
        assert len(json.dumps(error)) < 2000
        await client.say("/help")
        assert (await client.reply())["seq"] == 1, "something else was taken for a message"


async def test_the_error_carries_the_id_and_says_what_is_wrong(shared, name):
    async with shared.client("web", name) as client:
        await client.send({"type": "message", "id": "m-9", "text": 5})
        error = await client.error("bad_frame", id="m-9")
        assert "text" in error["message"]


@pytest.mark.parametrize("type", ["welcome", "nonsense", "reply", "MESSAGE", "", "x" * 10_000, "\u202e", "\ud83d"])
async def test_unknown_type(shared, name, type):
    async with shared.client("web", name) as client:
        await client.send_raw(json.dumps({"type": type, "id": "q"}))
        error = await client.error("unknown_type")
        assert len(json.dumps(error)) < 2000
        await client.fence()


async def test_unknown_method(shared, name):
    async with shared.client("web", name) as client:
        await client.send({"type": "call", "id": "7", "method": "self.destruct", "params": {}})
        await client.error("unknown_method", id="7")
        await client.fence()


async def test_binary_frame(shared, name):
    async with shared.client("web", name) as client:
        await client.send_raw(b'{"type":"call","id":"1","method":"status"}')
        await client.error("bad_frame")
        await client.send_raw(bytes(range(256)) * 100)
        await client.error("bad_frame")
        await client.fence()


async def test_unknown_fields_are_ignored(shared, name):
    async with shared.client("web", name) as client:
        await client.send({"type": "message", "id": "x", "text": "/help", "color": "red", "text2": None})
        await client.accepted("x")


async def test_null_stands_for_absent(shared, name):
    async with shared.client("web", name) as client:
        frame = {"type": "message", "id": "x", "text": "/help", "channel": None, "metadata": None, "media": None}
        await client.send(frame)
        await client.accepted("x")


async def test_a_frame_of_the_allowed_size_is_taken(shared, name):
    async with shared.client("web", name) as client:
        await client.say("/help " + "x" * (1048576 - 200))


@pytest.mark.parametrize("size", [1048576, 5_000_000, 40_000_000])
async def test_a_frame_that_is_too_large_is_refused_and_the_connection_closed(shared, name, size):
    before = shared.memory()
    async with shared.client("web", name) as client:
        with trio.move_on_after(10):
            await client.post("x" * size)
        await client.error("too_large")
        assert await client.closed() in (1009, 4413)
    assert shared.memory() - before < 30_000_000
    async with shared.client("web", name) as again:
        await again.fence()


async def test_size_is_counted_in_bytes(shared, name):
    """Half a million emoji are two megabytes."""
    async with shared.client("web", name) as client:
        await client.post("🐈" * 500_000)
        await client.error("too_large")


async def test_a_message_with_media_is_taken(shared, name):
    data = base64.b64encode(string.printable.encode()).decode()
    async with shared.client("web", name) as client:
        await client.say("look", media=[{"name": "a.txt", "mime": "text/plain", "data": data}])
        await client.reply()


@pytest.mark.parametrize("text", ["", " ", "\n\n", "\u200b\u0000"])
async def test_a_text_without_content_is_answered_somehow(shared, name, text):
    """Nothing in it to think about; what matters is that the queue goes on."""
    async with shared.client("web", name) as client:
        await client.post(text, id="e")
        await client.get("accepted", "error", id="e")
        await client.say("/help")
        await client.get("reply")


@pytest.mark.parametrize("type", ["web", "slack", "sms", "telegram", "api", "carrier-pigeon", "信鸽"])
async def test_every_channel_type_is_welcome(shared, name, type):
    async with shared.client(type, name) as client:
        assert client.welcome["protocol"] == 1
        assert client.welcome["agent"] == "Pegasus"
        assert client.welcome["channel"]["type"] == type
        assert client.welcome["channel"]["channelId"] == name
        assert client.welcome["seq"] == 0
        await client.say("hello")
        assert (await client.reply())["channel"]["type"] == type


# ------------------------------------------------------------------ bridges


async def test_a_bridge_must_name_the_channel_of_a_message(shared):
    async with shared.bridge("slack") as bridge:
        await bridge.send({"type": "message", "id": "x", "text": "a"})
        await bridge.error("bad_frame", id="x")
        await bridge.send({"type": "message", "id": "y", "text": "a", "channel": {"type": "slack"}})
        await bridge.error("bad_frame", id="y")
        await bridge.fence()


async def test_a_bridge_serves_its_own_type_only(shared):
    async with shared.bridge("slack") as bridge:
        await bridge.send({"type": "message", "id": "x", "text": "a", "channel": {"type": "web", "channelId": "c"}})
        await bridge.error("bad_frame", id="x")


async def test_a_bridge_must_name_the_channel_it_acknowledges(shared):
    async with shared.bridge("slack") as bridge:
        await bridge.send({"type": "ack", "seq": 1})
        await bridge.error("bad_frame")
        await bridge.send({"type": "ack", "seq": 1, "channel": {"type": "web", "channelId": "c"}})
        await bridge.error("bad_frame")
        await bridge.fence()


async def test_a_client_may_name_a_thread_and_user_of_its_own_channel(shared, name):
    async with shared.client("web", name) as client:
        channel = {"type": "web", "channelId": name, "replyTo": "t9", "userId": "u9"}
        await client.say("hello", channel=channel)
        assert (await client.reply())["channel"]["replyTo"] == "t9"
