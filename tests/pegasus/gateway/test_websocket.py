"""What a client can do with bytes: too many, none, half of a frame, or something that is no frame at all."""

import gc
import json
import resource
import struct
from contextlib import asynccontextmanager

import pytest
import trio

from pegasus.websocket import WebSocket
from tests.pegasus.gateway.world import TOKEN, WEB, world

UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
HELLO = json.dumps({"type": "hello", "token": TOKEN, "channel": {"type": "web", "channelId": "raw"}}).encode()
TEXT, BINARY, CONTINUATION, CLOSE, PING, PONG = 1, 2, 0, 8, 9, 10


def frame(payload, opcode=TEXT, *, fin=True, length=None):
    """A masked frame (the mask is zero); length: what its header claims."""
    size = len(payload) if length is None else length
    head = bytes([(0x80 if fin else 0) | opcode])
    if size < 126:
        head += bytes([0x80 | size])
    elif size < 65536:
        head += bytes([0x80 | 126]) + struct.pack("!H", size)
    else:
        head += bytes([0x80 | 127]) + struct.pack("!Q", size)
    return head + b"\0\0\0\0" + payload


class RawSocket:
    def __init__(self, stream):
        self.stream = stream
        self.buffer = b""

    async def _read(self):
        data = await self.stream.receive_some()
        if not data:
            raise EOFError(self.buffer)
        self.buffer += data

    async def until(self, expected):
        """Read until these bytes have come; they stay in the buffer."""
        while expected not in self.buffer:
            await self._read()

    async def greet(self):
        """Upgrade the connection and say hello, until the welcome has come."""
        for data, expected in ((UPGRADE, b"\r\n\r\n"), (frame(HELLO), b"welcome")):
            await self.send(data)
            await self.until(expected)

    async def exactly(self, count):
        with trio.fail_after(10):
            while len(self.buffer) < count:
                await self._read()
        data, self.buffer = self.buffer[:count], self.buffer[count:]
        return data

    async def frame(self):
        """(opcode, payload) of the next frame of the server."""
        first, size = await self.exactly(2)
        if size == 126:
            (size,) = struct.unpack("!H", await self.exactly(2))
        elif size == 127:
            (size,) = struct.unpack("!Q", await self.exactly(8))
        return first & 0x0F, await self.exactly(size)

    async def json(self):
        opcode, payload = await self.frame()
        assert opcode == TEXT, (opcode, payload)
        return json.loads(payload)

    async def close_code(self):
        opcode, payload = await self.frame()
        assert opcode == CLOSE, (opcode, payload)
        return struct.unpack("!H", payload[:2])[0]

    async def send(self, data):
        await self.stream.send_all(data)


@asynccontextmanager
async def raw(gate, *, upgrade=True, hello=True):
    async with await trio.open_tcp_stream("127.0.0.1", gate.port) as stream:
        socket = RawSocket(stream)
        if upgrade:
            await socket.send(UPGRADE)
            await socket.until(b"\r\n\r\n")
            socket.buffer = b""
        if upgrade and hello:
            await socket.send(frame(HELLO))
            assert (await socket.json())["type"] == "welcome"
        yield socket


async def is_up(gate):
    async with gate.client() as client:
        await client.quiet()


def memory():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


# ------------------------------------------------------------------ too large


async def test_a_frame_beyond_the_limit_is_reported_and_the_connection_closed():
    async with world(max_frame_bytes=2048) as gate, gate.client() as client:
        await client.send(type="message", id="m-1", text="x" * 3000)
        frames, code = await client.closed()
        assert ([f["code"] for f in frames], code) == (["too_large"], 1009)
        assert "2048" in frames[0]["message"]


async def test_the_limit_counts_bytes_not_characters():
    async with world(max_frame_bytes=2048) as gate, gate.client() as client:
        await client.socket.send_message(
            json.dumps({"type": "message", "id": "m", "text": "ü" * 1500}, ensure_ascii=False)
        )
        frames, code = await client.closed()
        assert ([f["code"] for f in frames], code) == (["too_large"], 1009)


async def test_a_frame_of_just_the_limit_is_taken():
    text = json.dumps({"type": "message", "id": "m", "text": "x"})
    async with world(max_frame_bytes=2048) as gate, gate.client() as client:
        await client.send(text.replace('"x"', '"' + "x" * (2049 - len(text)) + '"'))
        assert (await client.get())["type"] == "accepted"


async def test_messages_before_the_one_that_is_too_large_are_answered_first():
    async with world(max_frame_bytes=2048) as gate, gate.client() as client:
        await client.send(type="message", id="m-1", text="fine")
        await client.send(type="message", id="m-2", text="x" * 3000)
        frames, code = await client.closed()
        assert ([f.get("code", f["type"]) for f in frames], code) == (["accepted", "too_large"], 1009)


async def test_a_message_in_many_small_pieces_is_counted_as_one():
    async with world(max_frame_bytes=2048) as gate, raw(gate) as socket:
        await socket.send(frame(b"x" * 500, fin=False))
        for _ in range(5):
            await socket.send(frame(b"x" * 500, CONTINUATION, fin=False))
        assert (await socket.json())["code"] == "too_large"
        assert await socket.close_code() == 1009


async def test_a_gigabyte_is_refused_while_it_comes_and_never_gathered():
    """The sender goes on for 100 MB after the limit; the error still reaches him, and memory stays where it was."""
    async with world() as gate, raw(gate) as socket:
        before = memory()
        await socket.send(frame(b"", length=1 << 30))
        for _ in range(100):
            await socket.send(b"x" * (1 << 20))
        assert (await socket.json())["code"] == "too_large"
        assert await socket.close_code() == 1009
        assert memory() - before < 20 << 20
        await is_up(gate)


async def test_too_large_binary_messages_are_refused_too():
    async with world(max_frame_bytes=2048) as gate, raw(gate) as socket:
        await socket.send(frame(b"\0" * 4096, BINARY))
        assert (await socket.json())["code"] == "too_large"
        assert await socket.close_code() == 1009


async def test_empty_pieces_are_not_gathered():
    async with world() as gate, raw(gate) as socket:
        await socket.send(frame(b"{", fin=False))
        await socket.send(frame(b"", CONTINUATION, fin=False) * 1000)
        await socket.send(frame(b"", PING))
        assert await socket.frame() == (PONG, b"")
        sockets = [thing for thing in gc.get_objects() if type(thing) is WebSocket]
        assert max((socket._parts for socket in sockets), key=len) == ["{"]


# ------------------------------------------------------------------ bytes that are no frames


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(b"\xff\xfe"), 1007),
        (frame(b"{}", 3), 1002),
        (b"\x81\x02{}", 1002),  # not masked
        (frame(b"x", CONTINUATION), 1002),
        (b"\xf1\x80\0\0\0\0", 1002),  # reserved bits
    ],
)
async def test_bytes_that_are_no_frames_are_reported_and_the_connection_closed(data, code):
    async with world() as gate, raw(gate) as socket:
        await socket.send(data)
        assert (await socket.json())["code"] == "bad_frame"
        assert await socket.close_code() == code
        await is_up(gate)


async def test_garbage_that_does_not_end_is_not_gathered():
    async with world() as gate, raw(gate) as socket:
        await socket.send(frame(b"\xff\xfe"))
        before = memory()
        with trio.move_on_after(10):
            try:
                for _ in range(64):
                    await socket.send(b"x" * (1 << 20))
            except trio.BrokenResourceError:
                pass
        assert memory() - before < 20 << 20
        await is_up(gate)


@pytest.mark.parametrize(
    "request_", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"\r\n" * 20_000]
)
async def test_a_connection_that_is_no_websocket_is_closed(request_):
    async with world(hello_timeout=0.5) as gate, raw(gate, upgrade=False) as socket:
        try:
            await socket.send(request_)
            with pytest.raises(EOFError):
                await socket.exactly(1 << 20)
        except trio.BrokenResourceError:
            pass
        await is_up(gate)


# ------------------------------------------------------------------ coming and going


async def test_a_connection_that_sends_nothing_is_cut_off():
    async with world(hello_timeout=0.2) as gate, raw(gate, upgrade=False) as socket:
        with pytest.raises(EOFError):
            await socket.exactly(1)


async def test_a_client_that_dies_in_the_middle_of_a_frame_affects_no_other():
    async with world() as gate, gate.client() as other:
        for cut in (1, 3, 8, 20):
            async with raw(gate) as socket:
                await socket.send(frame(b'{"type":"message","id":"m","text":"half"}')[:cut])
        await other.quiet()
        await gate.journal.until(lambda: repr(gate.journal.presence).count("Disconnected") == 4)
        assert gate.journal.accepted == []


async def test_a_ping_is_answered():
    async with world() as gate, raw(gate) as socket:
        await socket.send(frame(b"are you there", PING))
        assert await socket.frame() == (PONG, b"are you there")


async def test_a_goodbye_is_answered():
    async with world() as gate, raw(gate) as socket:
        await socket.send(frame(struct.pack("!H", 1000), CLOSE))
        assert await socket.close_code() == 1000
        with pytest.raises(EOFError):
            await socket.exactly(1)


async def test_a_client_that_never_reads_is_cut_off_even_if_its_queue_never_fills():
    async with world(send_timeout=0.3, queue_bytes=1 << 30, queue_frames=10_000) as gate, raw(gate):
        channel = type(WEB)("web", "raw")
        for _ in range(60):
            await gate.say(channel, "x" * 200_000)
        await gate.journal.until(lambda: "Disconnected" in repr(gate.journal.presence))


async def test_an_answer_that_comes_in_pieces_is_one_frame_for_the_client():
    async with world() as gate, raw(gate) as socket:
        await gate.say(type(WEB)("web", "raw"), "y" * 300_000)
        assert (await socket.json())["text"] == "y" * 300_000


@pytest.mark.parametrize(("is_on", "extension"), [(True, b"permessage-deflate"), (False, b"")])
async def test_frames_are_compressed_where_the_settings_and_the_client_want_it(is_on, extension):
    async with world(compression=is_on) as gateway:
        async with await trio.open_tcp_stream("127.0.0.1", gateway.port) as stream:
            await stream.send_all(UPGRADE[:-2] + b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n")
            head = bytes(await stream.receive_some()).lower()
        assert head.startswith(b"http/1.1 101")
        assert head.partition(b"sec-websocket-extensions: ")[2].partition(b"\r\n")[0].partition(b";")[0] == extension
