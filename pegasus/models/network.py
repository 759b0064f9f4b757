"""The network under the SDKs' HTTP client: a request leaves with one system call, not with one for its head and one for its body.

Each send wakes the provider's side (or the network card); for a small request on a short way that is a good part of its
cost. Imported only together with an SDK.
"""

from __future__ import annotations

from typing import Any, Final

import trio
from httpcore2 import AsyncNetworkBackend, AsyncNetworkStream, ReadError, WriteError
from httpcore2._backends.trio import TrioBackend, TrioStream

WHOLE: Final = 1 << 16
"""Bytes of a body that go out with its head where they must be put together for that (TLS)."""
_END_OF_HEAD: Final = b"\r\n\r\n"


class OneSendStream(TrioStream):
    """Holds the head of a request until its body comes, or until the answer is read."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        super().__init__(stream)
        self._held = b""

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """The next bytes, b"" at the end. timeout: seconds."""
        if self._held:
            await self._flush(b"", timeout)
        if timeout is not None:
            return await super().read(max_bytes, timeout)
        try:
            data = bytes(await self._stream.receive_some(max_bytes))
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise ReadError(str(error)) from error
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send, unless this is a head: that goes with what follows. timeout: seconds."""
        if not self._held and buffer.endswith(_END_OF_HEAD):
            self._held = bytes(buffer)
        elif buffer:
            await self._flush(buffer, timeout)

    async def _flush(self, buffer: bytes, timeout: float | None) -> None:
        held, self._held = self._held, b""
        if timeout is not None:
            await super().write(held + buffer if held else buffer, timeout)
            return
        try:
            if not held:
                await self._stream.send_all(buffer)
            elif isinstance(self._stream, trio.SocketStream):
                await _send_both(self._stream, held, buffer)
            else:
                await self._stream.send_all(held + buffer[:WHOLE])
                if len(buffer) > WHOLE:
                    await self._stream.send_all(memoryview(buffer)[WHOLE:])
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as error:
            raise WriteError(str(error)) from error

    async def start_tls(self, *args: Any, **kwargs: Any) -> AsyncNetworkStream:
        """The same over TLS."""
        return _one_send(await super().start_tls(*args, **kwargs))


async def _send_both(stream: trio.SocketStream, head: bytes, body: bytes) -> None:
    """One after the other, with as few system calls as the socket's buffer allows, and without a copy. Raises OSError too."""
    sent = await stream.socket.sendmsg((head, body))
    for piece in (head, body):
        if sent < len(piece):
            await stream.send_all(memoryview(piece)[sent:])
        sent = max(0, sent - len(piece))


class OneSendBackend(TrioBackend):
    """Trio's network, with streams that hold heads back."""

    async def connect_tcp(self, *args: Any, **kwargs: Any) -> AsyncNetworkStream:
        """A connection; parameters and errors as in httpcore."""
        return _one_send(await super().connect_tcp(*args, **kwargs))

    async def connect_unix_socket(self, *args: Any, **kwargs: Any) -> AsyncNetworkStream:
        """A connection; parameters and errors as in httpcore."""
        return _one_send(await super().connect_unix_socket(*args, **kwargs))


def _one_send(stream: AsyncNetworkStream) -> AsyncNetworkStream:
    return OneSendStream(stream._stream) if isinstance(stream, TrioStream) else stream


def use_one_send(http_client: Any) -> bool:
    """Let an httpx2 client's direct connections (not those to a proxy) go out like that; False if it is built otherwise.

    The pool takes a backend officially, but httpx2 has no way to hand it one: the one private name this needs.
    """
    pool: Any = getattr(getattr(http_client, "_transport", None), "_pool", None)
    if not isinstance(getattr(pool, "_network_backend", None), AsyncNetworkBackend):
        return False
    pool._network_backend = OneSendBackend()
    return True
