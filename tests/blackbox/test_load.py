"""Too much of everything: messages, connections, replies nobody reads. Nothing accepted is lost and memory stays flat."""

from __future__ import annotations

import os
import random
import resource
import signal
from contextlib import AsyncExitStack, suppress

import pytest
import trio
from trio_websocket import ConnectionClosed

from tests.blackbox.support import HANG, Book, Closed, connect, say, serving, until
from tests.blackbox.support.shared_state import IS_SHARED, KEPT_SOCKETS

ROOMY = {"models.context_window": 100_000_000}
"""Where megabytes are said, and it is not about compaction."""
MB = 1_000_000
UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


@pytest.mark.deadline(60)
async def test_ten_thousand_messages_at_once(tmp_path):
    """While the model hangs: each one is accepted or refused as overloaded, memory is bounded, and none accepted is lost."""
    async with serving(tmp_path, book := Book({"m0": HANG})) as daemon:
        async with daemon.client() as client:
            await client.say("m0", id="m0")
            await book.reached(1)
            before = daemon.memory()
            accepted = await _flood(client, 10_000)
            assert len(accepted) >= 100
            assert daemon.memory() - before < 100 * MB
            await client.fence()
            assert (await client.call("status"))["waiting"] == len(accepted) + 1
        await daemon.restart()
        async with daemon.client("web", "other") as other:
            assert (await other.call("status"))["waiting"] == len(accepted) + 1
            assert "/stop" in await other.ask("/help")


async def _flood(client, count):
    """Send so many messages without waiting; the ids that were accepted. Each one must be answered."""
    accepted, refused = set(), set()

    async def hear():
        while len(accepted) + len(refused) < count:
            frame = await client.get("accepted", "error", timeout=30)
            if frame["type"] == "accepted":
                accepted.add(frame["id"])
            else:
                assert frame["code"] == "overloaded", frame
                refused.add(frame["id"])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(hear)
        for n in range(1, count + 1):
            await client.post(f"m{n}", id=f"m{n}")
    assert accepted | refused == {f"m{n}" for n in range(1, count + 1)}
    return accepted


async def test_a_stop_in_the_middle_of_a_flood(tmp_path):
    """Exit code 0, and exactly what was accepted is there after the restart."""
    async with serving(tmp_path, Book(otherwise=HANG)) as daemon:
        accepted = set()
        with suppress(Closed, ConnectionClosed):
            async with daemon.client() as client:
                try:
                    for n in range(2000):
                        await client.post(f"m{n}", id=f"m{n}")
                        if n == 600:
                            daemon.signal(signal.SIGTERM)
                    await client.closed()
                finally:
                    with suppress(Closed):
                        while True:
                            await client.get("nothing", timeout=5)
                    accepted = {frame["id"] for frame in client.seen if frame["type"] == "accepted"}
        assert await daemon.exit() == 0
        await daemon.start()
        async with daemon.client("web", "other") as other:
            assert (await other.call("status"))["waiting"] >= len(accepted) > 0


async def test_a_flood_on_one_channel_is_worked_off_in_order(tmp_path):
    async with serving(tmp_path, Book()) as daemon, daemon.client() as client:
        accepted = sorted(await _flood(client, 150), key=lambda id: int(id[1:]))
        replies = await client.replies(len(accepted), timeout=30)
        assert [frame["text"] for frame in replies] == [f"echo: {id}" for id in accepted]


async def test_a_client_that_never_reads_is_disconnected_and_loses_nothing(tmp_path):
    big = [f"{n:02} " + "x" * 100_000 for n in range(80)]  # the kernel may take four megabytes of it (tcp_wmem)
    book = Book({f"tell me {n}": say(text) for n, text in enumerate(big)})
    async with serving(tmp_path, book, ROOMY) as daemon, daemon.client("web", "reader") as reader:
        await reader.ask("hello")
        before = daemon.memory()
        async with connect(daemon.url, lazy=True) as lazy:
            await lazy.hello(daemon.token, "web", "lazy")
            for n in range(len(big)):
                with suppress(ConnectionClosed):
                    await lazy.post(f"tell me {n}", id=f"m{n}")
                await until(
                    lambda n=n: len(book.asked) >= n + 2 or _connections(daemon) == 1, "the next message, or the end"
                )
                if _connections(daemon) == 1:
                    break
            assert n < len(big) - 1, "the gateway has kept megabytes for a client that does not read"
            assert await reader.ask("are you there?") == "echo: are you there?"
            assert daemon.memory() - before < 60 * MB
        async with daemon.client("web", "lazy", lastSeq=0) as client:
            got = [(await client.reply())["text"] for _ in range(client.welcome["seq"])]
            assert got == big[: len(got)]
            assert len(got) >= 10


async def test_a_slow_reader_holds_up_nobody_and_gets_everything_in_the_end(tmp_path, own_programs):
    """Six megabytes of replies at once, the most calls that one answer may have. What does not fit waits in the outbox: for this
    connection, or, if so much is pushed before it reads that it is disconnected, for its next one."""
    big = [f"{n:03} " + "x" * 100_000 for n in range(64)]
    book = Book({"tell me": say(*big)})
    got = []
    async with serving(tmp_path, book, ROOMY) as daemon, daemon.client("web", "reader") as reader:
        async with connect(daemon.url, lazy=True) as lazy:
            await lazy.hello(daemon.token, "web", "lazy")
            await lazy.say("tell me")
            assert await reader.ask("are you there?") == "echo: are you there?"
            with suppress(Closed):
                while len(got) < len(big):
                    got.append((await lazy.reply())["text"])
        async with daemon.client("web", "lazy", lastSeq=len(got)) as again:
            got += [(await again.reply())["text"] for _ in range(len(big) - len(got))]
        assert got == big
        # To a database it all goes as one statement, which has the lines of the session and the replies once more, and is sent whole.
        assert daemon.peak_memory() < (220 if IS_SHARED else 160) * MB


def _connections(daemon):
    """TCP connections to the gateway that are established, seen from the daemon's side."""
    count = 0
    with open(f"/proc/{daemon.pid}/net/tcp") as table:
        for line in table.readlines()[1:]:
            _, local, _, state, *_ = line.split()
            count += state == "01" and int(local.rpartition(":")[2], 16) == daemon.port
    return count


async def test_a_client_that_never_reads_its_errors_is_no_burden(tmp_path):
    """Frames that are answered are not read faster than the answers are taken."""
    async with serving(tmp_path, Book()) as daemon:
        before = daemon.memory()
        async with connect(daemon.url, lazy=True) as lazy:
            await lazy.hello(daemon.token, "web", "lazy")
            with trio.move_on_after(1.5):
                for _ in range(100_000):
                    await lazy.socket.send_message("nonsense")
            async with daemon.client("web", "reader") as reader:
                assert await reader.ask("hello") == "echo: hello"
            assert daemon.peak_memory() - before < 30 * MB
        async with daemon.client("web", "other") as other:
            await other.fence()


@pytest.mark.deadline(60)
async def test_three_hundred_connections(tmp_path):
    """All are welcomed, thirty talk, each gets its own replies; memory and descriptors come back."""
    async with serving(tmp_path, Book()) as daemon:
        async with daemon.client("web", "before") as client:
            await client.ask("hello")
        sockets, memory = daemon.sockets(), daemon.memory()
        done = trio.Event()
        peers = {}

        async def stay(name):
            async with daemon.client("web", name) as peer:
                peers[name] = peer
                await done.wait()

        async with trio.open_nursery() as nursery:
            for n in range(300):
                nursery.start_soon(stay, f"c{n}")
            await until(lambda: len(peers) == 300, "300 welcomes", 30)
            async with trio.open_nursery() as talking:
                for n in random.Random(7).sample(range(300), 30):
                    talking.start_soon(_talk, peers[f"c{n}"], f"c{n}")
            assert daemon.memory() - memory < 60 * MB
            done.set()
        await until(lambda: daemon.sockets() <= sockets + KEPT_SOCKETS, "the sockets to be given back")
        async with daemon.client("web", "after") as client:
            assert await client.ask("hello") == "echo: hello"


async def _talk(peer, name):
    for k in range(3):
        assert await peer.ask(f"{name} says {k}") == f"echo: {name} says {k}"


async def test_connections_that_come_and_go_leak_nothing(shared, name):
    async with shared.client("web", name) as client:
        await client.fence()
    sockets = shared.sockets()
    for n in range(60):
        async with connect(shared.url) as peer:
            if n % 3:
                await peer.hello(shared.token, "web", f"{name}{n}")
            if n % 3 == 2:
                await peer.socket._stream.aclose()
    await until(lambda: shared.sockets() <= sockets + KEPT_SOCKETS, f"{sockets} sockets again")


async def test_connections_that_say_nothing_do_not_keep_others_out(shared, name):
    streams = [await trio.open_tcp_stream("127.0.0.1", shared.port) for _ in range(100)]
    async with shared.client("web", name) as client:
        await client.fence()
    for stream in streams:
        await stream.aclose()


async def test_many_commands_leave_memory_flat(shared, name):
    async with shared.client("web", name) as client:
        for _ in range(200):
            await client.ask("/help")
        before = shared.memory()
        for _ in range(500):
            await client.ask("/help")
        assert shared.memory() - before < 10 * MB


async def test_a_thousand_silent_connections_take_nothing_from_the_others(tmp_path):
    """Nobody has shown a token on them: they may hold neither the daemon's descriptors nor the places of clients."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    try:
        async with serving(tmp_path, Book()) as daemon, daemon.client() as client, AsyncExitStack() as stack:
            for _ in range(1024):
                await stack.enter_async_context(await trio.open_tcp_stream("127.0.0.1", daemon.port))
            assert await client.ask("hello") == "echo: hello"
            assert len(os.listdir(f"/proc/{daemon.pid}/fd")) < 700
            async with daemon.client("web", "newcomer") as newcomer:
                assert await newcomer.ask("hello too") == "echo: hello too"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_twenty_clients_that_send_empty_fragments_hold_up_nobody(tmp_path):
    async with serving(tmp_path, Book()) as daemon, daemon.client() as client, trio.open_nursery() as nursery:

        async def send_fragments():
            with suppress(trio.BrokenResourceError):
                async with await trio.open_tcp_stream("127.0.0.1", daemon.port) as stream:
                    await stream.send_all(UPGRADE)
                    await stream.receive_some()
                    while True:
                        await stream.send_all(b"\x00\x80\x00\x00\x00\x00" * 2000)

        for _ in range(20):
            nursery.start_soon(send_fragments)
        for n in range(5):
            with trio.fail_after(10):
                assert await client.ask(f"m{n}") == f"echo: m{n}"
        nursery.cancel_scope.cancel()
