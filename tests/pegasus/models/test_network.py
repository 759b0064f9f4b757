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
