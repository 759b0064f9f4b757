"""Transports to a server at an address: Streamable HTTP, and the older SSE.

Both are the SDK's, with a client of httpx2 whose answers are bounded, and with the same count of messages that nobody has asked for as
for programs (`faults`). Redirects are followed within the address's origin only, so that headers and tokens go nowhere else.

Imports the SDK, so it is imported late (see `server`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Final

import attrs
import httpx2
import trio
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from pegasus.mcp.faults import LARGEST_MESSAGE, ServerDown
from pegasus.mcp.stdio import Streams, counted_streams

CONNECT_WITHIN: Final = 30.0
"""Seconds for a connection to the address. Everything behind that has the deadline of the call."""
FOREVER: Final = 7 * 86_400.0
"""Seconds that an event stream may be silent."""
FREE_BYTES: Final = 4 * LARGEST_MESSAGE
"""Bytes of an event stream that are read as fast as they come."""
RATE: Final = 1 << 20
"""Bytes a second that are read of the rest."""


@attrs.define(eq=False, repr=False)
class RemoteServer:
    """The address of a server, and the way to it.

    Example::

        server = RemoteServer("https://example.org/mcp", {"Authorization": "Bearer …"})
        async with open_remote(server, sse=False) as streams: ...
        server.status   # 401 after a refusal
    """

    url: str
    """Address of its endpoint, as in the settings. It may hold a key, so no message names it."""
    headers: Mapping[str, str] = attrs.field(factory=dict)
    """Headers of each request."""
    auth: httpx2.Auth | None = None
    """Adds an access token to each request."""
    status: int = 0
    """HTTP status of the last refusal; 0 if there was none."""

    def open_client(
        self,
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        """Return an HTTP client with the headers of the settings. The parameters are those of the SDK's own factory."""
        return httpx2.AsyncClient(
            # Packed data may unpack to any size, so the server is asked to send none.
            headers={"accept-encoding": "identity", **self.headers, **(headers or {})},
            # Reading has no timeout: the caller of a call has a deadline, and a stream of events may be silent.
            timeout=timeout or httpx2.Timeout(CONNECT_WITHIN, read=None),
            auth=auth or self.auth,
            event_hooks={"response": [self._bound]},
        )

    async def _bound(self, response: httpx2.Response) -> None:
        """Note a refusal, and bound the body of a response. Raises ServerDown for one that is packed: it may unpack to anything."""
        # Kept here because the SDK replaces the status by words of its own, which do not say whether access was
        # refused.
        if response.status_code >= 400:
            self.status = response.status_code
        if response.headers.get("content-encoding", "identity") != "identity":
            raise ServerDown("it answers with packed data, which was not asked for")
        is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
        if isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = _BoundedBody(response.stream, is_stream=is_stream)


class _BoundedBody(httpx2.AsyncByteStream):
    """The body of a response: at most LARGEST_MESSAGE bytes, or an event stream, which is read slowly when it has sent very much."""

    def __init__(self, stream: httpx2.AsyncByteStream, *, is_stream: bool) -> None:
        self._stream = stream
        self._is_stream = is_stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        total = 0
        async for data in self._stream:
            total += len(data)
            if not self._is_stream and total > LARGEST_MESSAGE:
                raise ServerDown(f"it sent a message of more than {LARGEST_MESSAGE >> 20} MB")
            # An event stream may last for weeks, so its size is no fault. It is only slowed down, which the server
            # feels and nobody else.
            if total > FREE_BYTES:
                await trio.sleep(len(data) / RATE)
            yield data

    async def aclose(self) -> None:
        """Close the connection that the body comes from."""
        await self._stream.aclose()


@asynccontextmanager
async def open_remote(server: RemoteServer, *, sse: bool) -> AsyncIterator[Streams]:
    """Connect to an address; yield the streams that the SDK's client reads and writes.

    sse: by the older transport. Raises ServerDown, and errors of httpx2 (within a group) when the connection breaks; the block is
    cancelled then.
    """
    async with AsyncExitStack() as stack:
        if sse:
            transport: AbstractAsyncContextManager[Any] = sse_client(
                server.url, timeout=CONNECT_WITHIN, sse_read_timeout=FOREVER, httpx_client_factory=server.open_client
            )
        else:
            client = await stack.enter_async_context(server.open_client())
            transport = streamable_http_client(server.url, http_client=client, max_sse_event_size=LARGEST_MESSAGE)
        incoming, outgoing = await stack.enter_async_context(transport)
        yield await stack.enter_async_context(counted_streams(_without_sizes(incoming), outgoing.send))


async def _without_sizes(incoming: Any) -> AsyncIterator[tuple[SessionMessage | Exception, int]]:
    """Yield messages whose size does not count: `_BoundedBody` bounds the bytes already."""
    async for item in incoming:
        yield item, 0
