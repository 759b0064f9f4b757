"""Head and body of a request leave together; nothing else changes."""

from __future__ import annotations

import httpx2
import pytest
import trio
from httpcore2 import ReadError, WriteError
from trio.testing import memory_stream_pair

from pegasus.models.network import WHOLE, OneSendStream, use_one_send

HEAD = b"POST / HTTP/1.1\r\nhost: x\r\n\r\n"


async def test_the_head_goes_out_with_the_body() -> None:
    sent = []

    class Recorder(trio.abc.Stream):
        async def send_all(self, data: bytes) -> None:
            sent.append(data)

        async def wait_send_all_might_not_block(self) -> None: ...

        async def receive_some(self, max_bytes: int | None = None) -> bytes:
            return b"answer"

        async def aclose(self) -> None: ...

    stream = OneSendStream(Recorder())
    await stream.write(HEAD)
    await stream.write(b"body")
    await stream.write(b"more")
    assert sent == [HEAD + b"body", b"more"]
    await stream.write(HEAD)
    assert await stream.read(100) == b"answer"
    assert sent[2:] == [HEAD]


@pytest.mark.parametrize("size", [WHOLE - 1, WHOLE, WHOLE + 1, 5 * WHOLE])
@pytest.mark.parametrize("timeout", [None, 5.0])
async def test_a_long_body_arrives_whole(size: int, timeout: float | None) -> None:
    ours, theirs = memory_stream_pair()
    stream, body = OneSendStream(ours), bytes(n % 251 for n in range(size))
    await stream.write(HEAD)
    await stream.write(body, timeout)
    await ours.send_eof()
    assert b"".join([part async for part in theirs]) == HEAD + body


@pytest.mark.parametrize("size", [0, 1, WHOLE + 1, 20 << 20])
async def test_over_a_socket_all_arrives_in_order_however_much_it_takes_at_a_time(size: int) -> None:
    """Also what the socket's buffer has no room for."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    ours = await trio.testing.open_stream_to_socket_listener(listeners[0])
    theirs = await listeners[0].accept()
    stream, body = OneSendStream(ours), bytes(n % 251 for n in range(997)) * (size // 997 + 1)
    body = body[:size]
    received = bytearray()

    async def receive() -> None:
        await trio.lowlevel.checkpoint()
        while len(received) < len(HEAD) + 2 * size + 3:
            received.extend(await theirs.receive_some(100_000))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        await stream.write(HEAD)
        await stream.write(body)
        await stream.write(b"...")
        await stream.write(body)
    assert received == HEAD + body + b"..." + body
    await stream.aclose()
    await theirs.aclose()
    await stream.write(HEAD)
    with pytest.raises(WriteError):
        await stream.write(b"body")
    await listeners[0].aclose()


@pytest.mark.parametrize("timeout", [None, 5.0])
async def test_a_broken_connection_is_httpcores_error(timeout: float | None) -> None:
    ours, theirs = memory_stream_pair()
    stream = OneSendStream(ours)
    await theirs.aclose()
    await stream.write(HEAD)
    with pytest.raises(WriteError):
        await stream.write(b"body", timeout)
    await stream.aclose()
    with pytest.raises(ReadError):
        await stream.read(100, timeout)


async def test_the_private_name_it_needs_is_still_there() -> None:
    """The canary: with another httpx2, requests still work, but this must be looked at."""
    async with httpx2.AsyncClient() as client:
        assert use_one_send(client)
    assert not use_one_send(object())
