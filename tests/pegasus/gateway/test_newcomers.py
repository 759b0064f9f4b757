"""Connections that have not greeted: few, briefly, with one small frame; and log lines about them within bounds."""

from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace

import pytest
import trio
import trio.testing

from actors import Child, open_supervisor
from pegasus.gateway import connections_within, services
from pegasus.gateway import server as server_module
from pegasus.gateway.config import HELLO_BYTES, MAX_NEWCOMERS
from tests.pegasus.gateway.test_websocket import CONTINUATION, HELLO, UPGRADE, RawSocket, frame, raw
from tests.pegasus.gateway.world import TOKEN, FakeJournal, make_server, world


@asynccontextmanager
async def serving(**config):
    async with open_supervisor([Child("journal", FakeJournal().run)]) as supervisor, trio.open_nursery() as nursery:
        server, _ = make_server(supervisor.ref("journal"), **config)

        async def connect():
            ours, theirs = trio.testing.memory_stream_pair()
            nursery.start_soon(server.serve, theirs, await server.take_place())
            return RawSocket(ours)

        yield server, connect
        nursery.cancel_scope.cancel()


# ------------------------------------------------------------------ how many, and how long


async def test_silent_connections_take_no_place_and_are_cut_when_others_wait(monkeypatch):
    monkeypatch.setattr(server_module, "MAX_PENDING", 20)
    monkeypatch.setattr(server_module, "SILENT_TIME", 0.05)
    async with world(hello_timeout=60.0) as gate, gate.client() as early, AsyncExitStack() as stack:
        silent = [
            await stack.enter_async_context(await trio.open_tcp_stream("127.0.0.1", gate.port))
            for _ in range(3 * MAX_NEWCOMERS)
        ]
        async with gate.client("c2") as late:
            await late.quiet()
        await early.quiet()
        assert await silent[0].receive_some() == b""


async def test_places_are_for_those_that_have_sent_something(autojump_clock):
    async with serving(hello_timeout=60.0) as (server, connect):
        sockets = [await connect() for _ in range(MAX_NEWCOMERS)]
        with trio.move_on_after(30) as scope:
            await server.take_place()
        assert scope.cancelled_caught
        await sockets[0].greet()
        await server.take_place()


async def test_a_client_that_has_greeted_needs_no_place(autojump_clock):
    async with serving() as (server, connect):
        for _ in range(3 * MAX_NEWCOMERS):
            await (await connect()).greet()
        assert len(server._connections) == 3 * MAX_NEWCOMERS
        assert trio.current_time() == 0


async def test_a_place_is_free_again_when_its_connection_has_ended(autojump_clock):
    async with serving() as (_, connect):
        for _ in range(3 * MAX_NEWCOMERS):
            await (await connect()).stream.aclose()
            await trio.testing.wait_all_tasks_blocked()
        assert trio.current_time() == 0


async def test_a_hello_must_come_within_two_seconds(autojump_clock):
    async with serving() as (_, connect):
        socket = await connect()
        await socket.send(UPGRADE)
        await socket.until(b"no hello within 2 s")
        assert trio.current_time() == 2


@pytest.mark.parametrize(("descriptors", "connections"), [(8192, 1000), (1024, 224), (256, 32), (20, 32)])
def test_descriptors_are_kept_back_for_the_rest_of_the_process(descriptors, connections):
    assert connections_within(descriptors) == connections


# ------------------------------------------------------------------ one small frame in one piece


async def test_a_hello_beyond_its_size_is_refused():
    async with world() as gate, gate.client(hello=False) as client:
        await client.send(type="hello", token=TOKEN, channel={"type": "web", "channelId": "c"}, more="x" * HELLO_BYTES)
        frames, code = await client.closed()
        assert (frames[0]["code"], code) == ("unauthorized", 4401)
        assert f"{HELLO_BYTES} bytes" in frames[0]["message"]


async def test_a_hello_of_nearly_that_size_is_taken():
    more = "x" * (HELLO_BYTES - 200)
    async with world() as gate, gate.client(more=more) as client:
        assert client.welcome["type"] == "welcome"


@pytest.mark.parametrize(
    "pieces", [frame(b"", fin=False), frame(b"", fin=False) + frame(b"", CONTINUATION, fin=False) * 2000]
)
async def test_fragments_before_the_hello_are_refused_at_once(pieces):
    async with world(hello_timeout=60.0) as gate, raw(gate, hello=False) as socket:
        await socket.send(pieces)
        assert (await socket.json())["code"] == "unauthorized"
        assert await socket.close_code() == 4401


async def test_fragments_after_the_hello_leave_the_others_their_turns(autojump_clock):
    async with serving() as (_, connect), trio.open_nursery() as nursery:
        socket = await connect()
        await socket.greet()
        turns = 0

        @nursery.start_soon
        async def other():
            nonlocal turns
            while True:
                await trio.lowlevel.checkpoint()
                turns += 1

        await socket.send(
            frame(b"{", fin=False) + frame(b"", CONTINUATION, fin=False) * 2000 + frame(b"}", CONTINUATION)
        )
        socket.buffer = b""
        await socket.until(b"bad_frame")
        assert turns >= 2000
        nursery.cancel_scope.cancel()


# ------------------------------------------------------------------ the log


async def test_refusals_are_logged_so_many_a_minute_and_the_rest_is_counted(autojump_clock, monkeypatch):
    lines = []
    monkeypatch.setattr(services, "_log", SimpleNamespace(info=lambda event, **fields: lines.append((event, fields))))
    refusals = services.RefusalLog()
    for _ in range(1000):
        refusals.log("somebody", "unauthorized", "no token")
    assert len(lines) == refusals.PER_MINUTE
    await trio.sleep(60)
    refusals.log("somebody", "unauthorized", "no token")
    assert lines[-2:] == [
        ("more clients were refused than were logged", {"unlogged": 1000 - refusals.PER_MINUTE}),
        ("refused a client", {"client": "somebody", "code": "unauthorized", "reason": "no token"}),
    ]


async def test_clients_that_are_refused_again_and_again_do_not_fill_the_log(autojump_clock, monkeypatch):
    lines = []
    monkeypatch.setattr(services, "_log", SimpleNamespace(info=lambda event, **_: lines.append(event)))
    async with serving() as (_, connect):
        for _ in range(2 * services.RefusalLog.PER_MINUTE):
            socket = await connect()
            await socket.send(UPGRADE)
            await socket.until(b"\r\n\r\n")
            await socket.send(frame(HELLO.replace(TOKEN.encode(), b"wrong")))
            await socket.until(b"unauthorized")
        assert lines == ["refused a client"] * services.RefusalLog.PER_MINUTE
