"""Connecting to a gateway: TCP or TLS, WebSocket handshake, hello and welcome, each with its deadline and its plain error."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import SplitResult, urlsplit

import trio
from trio_websocket import ConnectionClosed, WebSocketConnection

from pegasus.client.client import Client, NotConnected, Refused, Welcome, why_closed, wire_text
from pegasus.client.websocket import ClientSocket
from pegasus.messages import ChannelInfo, Json
from pegasus.protocol import SUBPROTOCOL
from pegasus.wire import to_wire

LARGEST_FRAME = 64 * 1024 * 1024
"""Bytes; a reply with media may be larger than what a client may send."""


@asynccontextmanager
async def open_client(
    url: str,
    token: str,
    channel: ChannelInfo | str,
    last_seq: int | None = None,
    *,
    last_seqs: Mapping[str, int] | None = None,
    timeout: float = 10.0,
) -> AsyncIterator[Client]:
    """Connect, say hello and give the Client once the gateway said welcome; leaving the block closes the connection.

    channel: the address to talk as, or the name of a channel type to serve whole, as a bridge does. last_seq (a bridge:
    last_seqs, by channelId): what was received already; None: everything not acknowledged comes again.
    timeout: seconds for the whole greeting. Raises NotConnected, Refused.
    """
    async with _connected(url, timeout) as socket:
        client = Client(socket, await _greet(socket, _hello(token, channel, last_seq, last_seqs), timeout))
        async with background(client.pump):
            yield client


@asynccontextmanager
async def _connected(url: str, timeout: float) -> AsyncIterator[WebSocketConnection]:
    parts = urlsplit(url)
    try:
        with trio.fail_after(timeout):
            stream = await _open_stream(parts)
    except (OSError, ValueError, trio.TooSlowError) as error:
        raise NotConnected(f"no gateway answers at {url} ({error or 'too slow'})") from None
    try:
        path = parts.path or "/"
        socket = ClientSocket(stream, host=parts.netloc, path=path, subprotocol=SUBPROTOCOL, max_bytes=LARGEST_FRAME)
        async with background(socket.run):
            with trio.move_on_after(timeout):
                await socket.wait_open()
            if not socket.is_open:
                raise NotConnected(f"no gateway answers at {url} (no WebSocket there)")
            try:
                yield socket
            finally:
                with trio.move_on_after(2.0):
                    await socket.aclose()
    finally:
        await trio.aclose_forcefully(stream)


async def _open_stream(parts: SplitResult) -> trio.abc.Stream:
    if parts.hostname is None or parts.scheme not in ("ws", "wss"):
        raise ValueError("found no address of the form ws://host:port")
    if parts.scheme == "ws":
        return await trio.open_tcp_stream(parts.hostname, parts.port or 80)
    return await trio.open_ssl_over_tcp_stream(parts.hostname, parts.port or 443, https_compatible=True)


async def _greet(socket: WebSocketConnection, hello: Mapping[str, Json], timeout: float) -> Welcome:
    try:
        with trio.move_on_after(timeout):
            await socket.send_message(wire_text(hello))
            frame = json.loads(await socket.get_message())
            if frame["type"] == "error":
                raise Refused(frame["code"], frame["message"], frame.get("id"))
            return Welcome(agent=frame["agent"], seq=frame["seq"], protocol=frame["protocol"])
    except ConnectionClosed as error:
        raise NotConnected(why_closed(error)) from None
    except (ValueError, KeyError, TypeError) as error:
        raise NotConnected(f"whoever answers there does not speak {SUBPROTOCOL}: {error!r}") from None
    raise NotConnected(f"no welcome within {timeout:g} s")


@asynccontextmanager
async def background(run: Callable[[], Any]) -> AsyncIterator[None]:
    """Run something that never raises beside the block, and let the block's own error out without an exception group."""
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        try:
            yield
        except trio.Cancelled:
            raise
        except BaseException as error:
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


def _hello(
    token: str, channel: ChannelInfo | str, last_seq: int | None, last_seqs: Mapping[str, int] | None
) -> dict[str, Json]:
    frame: dict[str, Json] = {"type": "hello", "token": token}
    frame["channel"] = {"type": channel} if isinstance(channel, str) else to_wire(channel)
    if last_seq is not None:
        frame["lastSeq"] = last_seq
    if last_seqs is not None:
        frame["lastSeqs"] = dict(last_seqs)
    return frame
