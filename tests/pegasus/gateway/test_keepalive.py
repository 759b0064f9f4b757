"""Who is still there, in virtual time: a connection over a stream in memory."""

from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
from trio_websocket import wrap_client_stream

from actors import Child, open_supervisor
from tests.pegasus.gateway.test_websocket import PING, RawSocket, frame
from tests.pegasus.gateway.world import FakeJournal, RawClient, make_server


@pytest.fixture
async def server():
    async with open_supervisor([Child("journal", FakeJournal().run)]) as supervisor:
        server, _ = make_server(supervisor.ref("journal"), keepalive=60.0)
        yield server


async def connect(server, nursery):
    ours, theirs = trio.testing.memory_stream_pair()
    nursery.start_soon(server.serve, theirs, await server.take_place())
    return ours


@asynccontextmanager
async def living(server, nursery):
    stream = await connect(server, nursery)
    async with trio.open_nursery() as sockets:
        socket = await wrap_client_stream(sockets, stream, "x", "/", subprotocols=["pegasus.v1"])
        client = RawClient(socket)
        await client.hello(channel={"type": "web", "channelId": "c"})
        yield client
        await socket.aclose()


async def test_a_client_that_answers_pings_may_be_silent_for_ever(server, nursery, autojump_clock):
    async with living(server, nursery) as client:
        await trio.sleep(80_000)
        await client.quiet()


async def welcomed(server, nursery):
    """A raw client that has been welcomed, and answers nothing by itself."""
    socket = RawSocket(await connect(server, nursery))
    await socket.greet()
    return socket


async def test_a_client_that_does_not_answer_a_ping_is_cut_off(server, nursery, autojump_clock):
    socket = await welcomed(server, nursery)
    with trio.fail_after(1000):
        assert await socket.stream.receive_some() == bytes([0x80 | PING, 0])
        pinged = trio.current_time()
        assert await socket.stream.receive_some() == b""
    assert trio.current_time() - pinged == 60


async def test_a_client_that_sends_something_is_not_pinged(server, nursery, autojump_clock):
    socket = await welcomed(server, nursery)
    with trio.move_on_after(500):
        async with trio.open_nursery() as talking:

            @talking.start_soon
            async def talk():
                while True:
                    await trio.sleep(20)
                    await socket.send(frame(b'{"type":"ack","seq":0}'))

            raise AssertionError(await socket.stream.receive_some())
