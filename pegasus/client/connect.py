"""`open_client`: connects to a gateway.

Connecting has four steps: TCP (or TLS for wss), the WebSocket handshake, our hello, the gateway's welcome. Each has the same deadline,
and each fails with one line that a person understands: no program listens there, one listens that is no gateway, the gateway
refuses (wrong token), or it does not answer.

The order of closing matters, too. Leaving the block sends a close frame and waits CLOSE_TIME for the other side's; then the
stream is closed without waiting. So a gateway that hangs delays a command by two seconds.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from urllib.parse import SplitResult, urlsplit

import trio
from trio_websocket import ConnectionClosed, WebSocketConnection

from pegasus.client.client import Client, NotConnected, Refused, describe_close
from pegasus.client.websocket import ClientSocket
from pegasus.messages import ChannelInfo
from pegasus.protocol import (
    SUBPROTOCOL,
    BadFrame,
    ClientChannel,
    ErrorFrame,
    HelloFrame,
    WelcomeFrame,
    decode_server_frame,
    encode_frame,
)

MAX_FRAME_BYTES = 64 * 1024 * 1024
"""Bytes of a frame that the client takes. A reply with attachments may be larger than what a client may send. The bound keeps a
server that is not ours from filling the memory."""
CLOSE_TIME = 2.0
"""Seconds that the gateway has to answer our close frame."""


@asynccontextmanager
async def open_client(
    url: str,
    token: str,
    channel: ChannelInfo | str,
    last_seq: int | None = None,
    *,
    last_seqs: Mapping[str, int] | None = None,
    calls_only: bool = False,
    timeout: float = 10.0,
) -> AsyncIterator[Client]:
    """Connect to the gateway at `url` and yield the Client once it was welcomed; leaving the block closes the connection.

    channel: the address to talk as, or the name of a channel type to serve as a bridge.
    last_seq: the last reply that was received earlier; None: everything that was not acknowledged comes again. For a bridge
    it is last_seqs, by channelId. calls_only: there is no conversation at this address, so that the agent does not learn of it.
    timeout: seconds for each step of the greeting.
    Raises NotConnected, and Refused (wrong token, for example). Errors of the block come out as they are.

    Example::

        async with open_client("ws://127.0.0.1:7717", token, ChannelInfo("cli", "status")) as client:
            print(await client.call("status"))
    """
    if isinstance(channel, str):
        who = ClientChannel(channel)
    else:
        who = ClientChannel(channel.type, channel.channel_id, channel.user_id, channel.reply_to)
    hello = HelloFrame(who, token, last_seq, dict(last_seqs or {}), calls_only)
    async with _connected(url, timeout) as socket:
        client = Client(socket, await _greet(socket, hello, timeout))
        async with background(client.pump):
            yield client


@asynccontextmanager
async def _connected(url: str, timeout: float) -> AsyncIterator[WebSocketConnection]:
    """Yield an open WebSocket, and close it afterwards. Raises NotConnected."""
    parts = urlsplit(url)
    try:
        with trio.fail_after(timeout):
            stream = await _open_stream(parts)
    except (OSError, ValueError, trio.TooSlowError) as error:
        raise NotConnected(f"no gateway answers at {url} ({error or 'too slow'})") from None
    try:
        path = parts.path or "/"
        socket = ClientSocket(stream, host=parts.netloc, path=path, subprotocol=SUBPROTOCOL, max_bytes=MAX_FRAME_BYTES)
        async with background(socket.run):
            with trio.move_on_after(timeout):
                await socket.wait_open()
            if not socket.is_open:
                raise NotConnected(f"no gateway answers at {url} (no WebSocket there)")
            try:
                yield socket
            finally:
                with trio.move_on_after(CLOSE_TIME):
                    await socket.aclose()
    finally:
        await trio.aclose_forcefully(stream)


async def _open_stream(parts: SplitResult) -> trio.abc.Stream:
    """Connect with TCP, or TLS for wss. Raises OSError, and ValueError for an address that is none."""
    if parts.hostname is None or parts.scheme not in ("ws", "wss"):
        raise ValueError("found no address of the form ws://host:port")
    if parts.scheme == "ws":
        return await trio.open_tcp_stream(parts.hostname, parts.port or 80)
    return await trio.open_ssl_over_tcp_stream(parts.hostname, parts.port or 443, https_compatible=True)


async def _greet(socket: WebSocketConnection, hello: HelloFrame, timeout: float) -> WelcomeFrame:
    """Say hello and return the welcome. Raises Refused for an error frame, NotConnected for anything else."""
    try:
        with trio.move_on_after(timeout):
            await socket.send_message(encode_frame(hello))
            frame = decode_server_frame(await socket.get_message())
            if isinstance(frame, ErrorFrame):
                raise Refused(frame.code, frame.message, frame.id)
            if not isinstance(frame, WelcomeFrame):
                raise NotConnected(f"the server there does not speak {SUBPROTOCOL}: it sent no welcome")
            return frame
    except ConnectionClosed as error:
        raise NotConnected(describe_close(error)) from None
    except BadFrame as error:
        raise NotConnected(f"the server there does not speak {SUBPROTOCOL}: {error}") from None
    raise NotConnected(f"no welcome within {timeout:g} s")


@asynccontextmanager
async def background(run: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Run a task beside the block, and cancel it when the block ends.

    The task must not raise. An error of the block comes out as it is, not in the exception group of a nursery, so a caller can
    write `except NotConnected`. Cancellation from outside passes through, since only Trio may handle it.
    """
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
