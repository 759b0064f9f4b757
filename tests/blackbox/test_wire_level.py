"""Below the frames: what is no WebSocket, broken WebSocket frames, fragments, a client that dies in the middle."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
import trio

from tests.blackbox.support import connect


async def _raw(daemon, data, *, expect_end=True):
    """Send bytes on a bare TCP connection and read to its end."""
    stream = await trio.open_tcp_stream("127.0.0.1", daemon.port)
    async with stream:
        await stream.send_all(data)
        received = b""
        with trio.fail_after(20):
            async for chunk in stream:
                received += chunk
                if not expect_end:
                    break
        return received


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /chat HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
        b"\x00" * 1000,
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"y" * 200_000,
    ],
    ids=["plain GET", "POST", "TLS", "zeros", "nonsense", "endless header"],
)
async def test_what_is_no_websocket_is_turned_away(shared, name, data):
    with suppress(trio.BrokenResourceError):  # a reset is an answer too
        await _raw(shared, data)
    async with shared.client("web", name) as client:
        await client.fence()


async def _handshake(stream):
    await stream.send_all(
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Protocol: pegasus.v1\r\n\r\n"
    )
    with trio.fail_after(10):
        answer = await stream.receive_some(65536)
    assert answer.startswith(b"HTTP/1.1 101"), answer


BROKEN_FRAMES = {
    "not masked": b"\x81\x05hello",
    "reserved bits": b"\xf1\x85\x00\x00\x00\x00hello",
    "unknown opcode": b"\x83\x85\x00\x00\x00\x00hello",
    "a length of 2**63": b"\x81\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00",
    "continuation of nothing": b"\x80\x85\x00\x00\x00\x00hello",
    "not UTF-8": b"\x81\x82\x00\x00\x00\x00\xc3\x28",
    "a long ping": b"\x89\xfe\x00\x7e\x00\x00\x00\x00" + bytes(126),
}


@pytest.mark.parametrize("data", BROKEN_FRAMES.values(), ids=BROKEN_FRAMES)
async def test_broken_websocket_frames_end_the_connection_and_nothing_else(shared, name, data):
    stream = await trio.open_tcp_stream("127.0.0.1", shared.port)
    async with stream:
        await _handshake(stream)
        await stream.send_all(data)
        with trio.fail_after(20):
            try:
                async for _ in stream:
                    pass
            except trio.BrokenResourceError:
                pass
    async with shared.client("web", name) as client:
        await client.fence()


async def test_a_client_that_dies_in_the_middle_of_a_frame(shared, name):
    """Its connection goes away; what it had sent whole before is processed."""
    async with connect(shared.url) as peer:
        await peer.hello(shared.token, "web", name)
        await peer.say("/help", id="whole")
        await peer.socket._stream.send_all(b"\x81\xfe\x10\x00\x00\x00\x00\x00" + b'{"type":"message","id":"torn"')
        await peer.socket._stream.aclose()
    async with shared.client("web", name) as again:
        await again.say("/status")
        assert [frame["seq"] for frame in await again.replies(2)] == [1, 2]


async def test_a_message_in_fragments_is_one_message(shared, name):
    text = json.dumps({"type": "message", "id": "f1", "text": "/help 🐈"}, ensure_ascii=False)
    async with shared.client("web", name) as client:
        from wsproto.events import Message

        for n, part in enumerate(text):
            await client.socket._stream.send_all(
                client.socket._wsproto.send(Message(data=part, message_finished=n == len(text) - 1))
            )
        await client.accepted("f1")
