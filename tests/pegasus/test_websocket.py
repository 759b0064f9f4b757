"""Our end of a WebSocket, against trio-websocket's: what a server may do to a client. Compression is against our own."""

import tracemalloc
import zlib
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
from trio_websocket import ConnectionClosed, wrap_server_stream

from pegasus.client.client import Client
from pegasus.protocol import ClientChannel, WebSocketClosed, WelcomeFrame
from pegasus.websocket import BadMessage, WebSocket


@asynccontextmanager
async def pair(max_bytes=1000, **settings):
    ours, theirs = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        accepted = []

        async def accept():
            request = await wrap_server_stream(nursery, theirs)
            assert (request.path, request.proposed_subprotocols) == ("/path?a=1", ("p.v1",))
            accepted.append(await request.accept(subprotocol="p.v1"))

        nursery.start_soon(accept)
        socket = WebSocket(ours, max_bytes, **settings)
        await socket.connect("x", "/path?a=1", "p.v1")
        await trio.testing.wait_all_tasks_blocked()
        yield socket, accepted[0]
        nursery.cancel_scope.cancel()


async def test_messages_go_both_ways_text_and_binary_ones(autojump_clock):
    async with pair() as (socket, server):
        await server.send_message("one")
        await server.send_message(b"\0" * 900)
        await server.send_message("two")
        assert [await socket.receive() for _ in range(3)] == ["one", bytes(900), "two"]
        await socket.write(["a", "b"])
        assert [await server.get_message() for _ in range(2)] == ["a", "b"]


async def test_pings_are_answered_while_a_message_is_waited_for(autojump_clock):
    async with pair() as (socket, server), trio.open_nursery() as nursery:
        nursery.start_soon(socket.receive)
        await trio.sleep(5)
        await server.ping()
        assert socket.active_at == 5
        await socket.ping()
        await trio.sleep(1)
        nursery.cancel_scope.cancel()


async def test_a_close_frame_is_answered_and_told(autojump_clock):
    async with pair() as (socket, server), trio.open_nursery() as nursery:
        nursery.start_soon(server.aclose, 1001, "tea time")
        with pytest.raises(WebSocketClosed, match=r"closed \(1001: tea time\)"):
            await socket.receive()
        with pytest.raises(WebSocketClosed):
            await socket.write(["too late"])
        assert socket.ended.is_set()


async def test_a_message_beyond_the_limit_is_refused_and_what_follows_is_dropped(autojump_clock):
    async with pair() as (socket, server), trio.open_nursery() as nursery:
        await server.send_message("x" * 1001)
        with pytest.raises(BadMessage) as caught:
            await socket.receive()
        nursery.start_soon(socket.drop)
        await server.send_message("y" * 10_000)
        await socket.close(caught.value.code)
        with pytest.raises(ConnectionClosed, match="TOO_BIG"):
            await server.get_message()


async def test_a_server_that_is_gone_is_told_as_such(autojump_clock):
    ours, theirs = trio.testing.memory_stream_pair()
    socket = WebSocket(ours, 1000)
    await theirs.aclose()
    with pytest.raises(WebSocketClosed):
        await socket.connect("x", "/")


async def test_a_server_that_refuses_the_handshake_is_told_with_its_status(autojump_clock):
    ours, theirs = trio.testing.memory_stream_pair()
    socket = WebSocket(ours, 1000)
    await theirs.send_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
    with pytest.raises(WebSocketClosed) as caught:
        await socket.connect("x", "/")
    assert caught.value.code == 403


async def test_a_client_notices_a_gateway_that_is_gone_without_a_word(autojump_clock):
    """It pings after 30 s of silence, and gives the connection up after 30 more; answers keep it open for ever."""
    ours, theirs = trio.testing.memory_stream_pair()
    socket, server = WebSocket(ours, 1000), trio.CancelScope()

    async def serve():
        with server:
            async with trio.open_nursery() as nursery:
                request = await wrap_server_stream(nursery, theirs)
                await request.accept(subprotocol="p.v1")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        await socket.connect("x", "/", "p.v1")
        client = Client(socket, WelcomeFrame(1, "Pegasus", ClientChannel("web"), 0))
        with client.events:
            nursery.start_soon(client.pump)
            await trio.sleep(1000)
            assert client.closed is None
            server.cancel()  # the stream stays open, and nobody reads it
            await trio.sleep(100)
            assert client.closed == "the connection was closed"


@asynccontextmanager
async def compressed_pair(max_bytes=10_000):
    ours, theirs = trio.testing.memory_stream_pair()
    client, server = (WebSocket(stream, max_bytes, compresses=True) for stream in (ours, theirs))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.accept, "p.v1")
        await client.connect("x", "/")
    yield client, server, ours


async def test_compressed_messages_go_both_ways(autojump_clock):
    text = "the whole draft so far " * 400
    async with compressed_pair() as (client, server, _):
        for sender, receiver in [(client, server), (server, client)] * 2:
            await sender.write([text, b"\0" * 9000, ""])
            assert [await receiver.receive() for _ in range(3)] == [text, bytes(9000), ""]


async def test_nothing_is_inflated_beyond_the_limit(autojump_clock):
    async with compressed_pair() as (_, server, stream):
        bomb = zlib.compressobj(9, zlib.DEFLATED, -15)
        data = bomb.compress(bytes(16 << 20)) + bomb.flush(zlib.Z_SYNC_FLUSH)[:-4]
        tracemalloc.start()
        try:
            await stream.send_all(b"\xc2\xfe" + len(data).to_bytes(2, "big") + bytes(4) + data)
            with pytest.raises(BadMessage) as error:
                await server.receive()
            assert error.value.code == 1009
            assert tracemalloc.get_traced_memory()[1] < 1 << 20
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize(
    "offer",
    [
        "permessage-deflate; client_max_window_bits=x",
        "permessage-deflate; server_max_window_bits=8",
        "x-webkit-deflate-frame",
    ],
)
async def test_an_offer_that_cannot_be_understood_is_not_accepted(offer, autojump_clock):
    ours, theirs = trio.testing.memory_stream_pair()
    fields = {
        "Host": "x",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
        "Sec-WebSocket-Extensions": offer,
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    await ours.send_all(f"GET / HTTP/1.1\r\n{head}\r\n".encode())
    await WebSocket(theirs, 1000, compresses=True).accept("p.v1")
    answer = bytes(await ours.receive_some())
    assert answer.startswith(b"HTTP/1.1 101")
    assert b"extensions" not in answer.lower()
