"""A gateway client that knows nothing but the wire protocol: it sends what it is told to and keeps every frame that comes."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import trio
from trio_websocket import ConnectionClosed, WebSocketConnection, wrap_client_stream

Frame = dict[str, Any]

TIMEOUT = 15.0
"""Seconds to wait for a frame that must come."""

_NUMBERS = itertools.count(1)
_CHANNEL_FIELDS = ("userId", "replyTo")


class Closed(AssertionError):
    """The connection ended where a frame was expected."""

    def __init__(self, code: int | None, reason: str | None, waiting_for: str) -> None:
        super().__init__(f"closed with {code} {reason!r} while waiting for {waiting_for}")
        self.code = code
        self.reason = reason


class Peer:
    """One connection. `seen`: all frames so far, in order of arrival."""

    def __init__(self, socket: WebSocketConnection) -> None:
        self.socket = socket
        self.seen: list[Frame] = []
        self.welcome: Frame = {}
        self.channel: Frame = {}
        self._kept: list[Frame] = []

    # ------------------------------------------------------------ out

    async def send(self, frame: Any) -> None:
        await self.send_raw(json.dumps(frame, ensure_ascii=False))

    async def send_raw(self, message: str | bytes) -> None:
        with trio.fail_after(TIMEOUT):
            await self.socket.send_message(message)

    async def hello(self, token: str | None, type: str, channel_id: str | None, **more: Any) -> Frame:
        """Say hello and give the welcome frame. more: userId and replyTo of the channel; other fields of the frame."""
        self.channel = {"type": type}
        if channel_id is not None:
            self.channel["channelId"] = channel_id
        self.channel |= {field: more.pop(field) for field in _CHANNEL_FIELDS if field in more}
        frame = {"type": "hello", "channel": self.channel, **more}
        await self.send(frame if token is None else {**frame, "token": token})
        self.welcome = await self.get("welcome")
        return self.welcome

    async def post(self, text: str, id: str | None = None, **more: Any) -> str:
        """Send a message without waiting; its id."""
        id = id or f"auto-{next(_NUMBERS)}"
        await self.send({"type": "message", "id": id, "text": text, **more})
        return id

    async def say(self, text: str, id: str | None = None, **more: Any) -> str:
        """Send a message and wait until it is accepted; its id."""
        id = await self.post(text, id, **more)
        await self.accepted(id)
        return id

    async def ask(self, text: str, id: str | None = None, **more: Any) -> str:
        """Send a message, wait for the next reply, acknowledge it; the reply's text."""
        await self.say(text, id, **more)
        reply = await self.reply()
        await self.ack(reply)
        return reply["text"]

    async def ack(self, reply: Frame | int) -> None:
        """Acknowledge a reply; a bridge names its channel."""
        if isinstance(reply, int):
            await self.send({"type": "ack", "seq": reply})
            return
        channel = {} if "channelId" in self.channel else {"channel": _address(reply["channel"])}
        await self.send({"type": "ack", "seq": reply["seq"], **channel})

    async def call(self, method: str, timeout: float = TIMEOUT, **params: Any) -> Any:
        """Call the control plane; its result."""
        id = f"call-{next(_NUMBERS)}"
        await self.send({"type": "call", "id": id, "method": method, "params": params})
        frame = await self.get("result", "error", id=id, timeout=timeout)
        assert frame["type"] == "result", frame
        return frame["result"]

    # ------------------------------------------------------------ in

    async def get(self, *types: str, timeout: float = TIMEOUT, **fields: Any) -> Frame:
        """The oldest frame, not taken yet, of one of these types and with these fields; others are kept for later."""
        waiting_for = f"a frame {' or '.join(types) or 'of any type'} {fields or ''}"

        def fits(frame: Frame) -> bool:
            return (not types or frame["type"] in types) and fields.items() <= frame.items()

        for n, frame in enumerate(self._kept):
            if fits(frame):
                return self._kept.pop(n)
        with trio.move_on_after(timeout):
            while not fits(frame := await self._read(waiting_for)):
                self._kept.append(frame)
            return frame
        raise AssertionError(f"not within {timeout:g} s: {waiting_for}; the last frames: {self.seen[-5:]}")

    async def _read(self, waiting_for: str) -> Frame:
        try:
            frame: Frame = json.loads(await self.socket.get_message())
        except ConnectionClosed as error:
            reason = error.reason
            raise Closed(reason and reason.code, reason and reason.reason, waiting_for) from None
        self.seen.append(frame)
        return frame

    async def reply(self, timeout: float = TIMEOUT) -> Frame:
        """The next reply frame."""
        return await self.get("reply", timeout=timeout)

    async def replies(self, count: int, timeout: float = TIMEOUT) -> list[Frame]:
        """The next `count` replies."""
        return [await self.reply(timeout) for _ in range(count)]

    async def accepted(self, id: str) -> None:
        """Wait until this message is accepted."""
        frame = await self.get("accepted", "error", id=id)
        assert frame["type"] == "accepted", frame

    async def error(self, code: str, **fields: Any) -> Frame:
        """The next error frame, which must have this code."""
        frame = await self.get("error")
        assert frame["code"] == code, frame
        assert fields.items() <= frame.items(), frame
        return frame

    async def closed(self, timeout: float = TIMEOUT) -> int | None:
        """Read to the end of the connection; the close code."""
        with trio.move_on_after(timeout):
            try:
                while True:
                    await self._read("the end of the connection")
            except Closed as error:
                return error.code
        raise AssertionError(f"not closed within {timeout:g} s; the last frames: {self.seen[-5:]}")

    def texts(self) -> list[str]:
        """The texts of all replies so far."""
        return [frame["text"] for frame in self.seen if frame["type"] == "reply"]

    async def fence(self) -> None:
        """Return when the gateway has answered something sent now: what it wrote before is in `seen`."""
        await self.call("status")


def _address(channel: Frame) -> Frame:
    return {"type": channel["type"], "channelId": channel["channelId"]}


@asynccontextmanager
async def connect(url: str, *, headers: Sequence[tuple[bytes, bytes]] = (), lazy: bool = False) -> AsyncIterator[Peer]:
    """A WebSocket connection on which nothing has been said. Leaving the block closes it, politely but not for long.

    lazy: with small buffers on our side, so that the gateway notices early when nothing is read here.
    """
    failure: BaseException | None = None
    line = _Line(await _dial(url, 4096 if lazy else None))
    async with trio.open_nursery() as nursery:
        try:
            socket = await _shake_hands(nursery, line, url, headers, 1 if lazy else 64)
            try:
                yield Peer(socket)
            finally:
                with trio.move_on_after(2, shield=True):
                    await socket.aclose()
        except trio.Cancelled:
            raise
        except BaseException as error:  # out of the nursery, so that it is not wrapped in a group
            failure = error
        finally:
            await trio.aclose_forcefully(line)
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _shake_hands(
    nursery: trio.Nursery, line: _Line, url: str, headers: Sequence[tuple[bytes, bytes]], queue: int
) -> WebSocketConnection:
    """The handshake. Raises BrokenResourceError where the other side goes away (trio-websocket would wait for ever)."""
    parts = urlsplit(url)
    with trio.fail_after(TIMEOUT), trio.CancelScope() as scope:
        nursery.start_soon(line.watch, scope)
        socket = await wrap_client_stream(
            nursery,
            line,
            parts.netloc,
            parts.path or "/",
            subprotocols=["pegasus.v1"],
            extra_headers=list(headers),
            max_message_size=64 * 1024 * 1024,
            message_queue_size=queue,
        )
    if scope.cancelled_caught:
        raise trio.BrokenResourceError("the gateway went away during the handshake")
    return socket


class _Line(trio.abc.Stream):
    """A stream that tells when its other side has gone."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._gone = trio.Event()

    async def watch(self, scope: trio.CancelScope) -> None:
        """Cancel the scope when the other side has gone."""
        await self._gone.wait()
        scope.cancel()

    async def send_all(self, data: bytes) -> None:
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        data = b""
        try:
            data = bytes(await self._stream.receive_some(max_bytes))
        finally:
            if not data:
                self._gone.set()
        return data

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _dial(url: str, buffer: int | None) -> trio.SocketStream:
    parts = urlsplit(url)
    socket = trio.socket.socket()
    try:
        if buffer is not None:
            socket.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_RCVBUF, buffer)
        with trio.fail_after(TIMEOUT):
            await socket.connect((parts.hostname, parts.port))
    except BaseException:
        socket.close()
        raise
    return trio.SocketStream(socket)
