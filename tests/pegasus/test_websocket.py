"""Our end of a WebSocket, against trio-websocket's: what a server may do to a client."""

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


async def test_messages_go_both_ways_and_a_binary_one_is_not_kept(autojump_clock):
    async with pair() as (socket, server):
        await server.send_message("one")
        await server.send_message(b"\0" * 900)
        await server.send_message("two")
        assert [await socket.receive() for _ in range(3)] == ["one", None, "two"]
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
