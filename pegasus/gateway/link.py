"""One connection to a gateway, seen from the client: typed frames out of the wire, calls and messages with an answer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias, cast

import attrs
import trio
from trio_websocket import ConnectionClosed, HandshakeError, WebSocketConnection, open_websocket_url

from pegasus.messages import ChannelInfo, Json, Media, Metadata, OutboundMessage, Typing

SUBPROTOCOL = "pegasus.v1"
EVENT_BUFFER = 1000
"""Frames one client may be behind with reading them; then its connection is no longer read."""
LARGEST_FRAME = 64 * 1024 * 1024
"""Bytes; a reply with media may be larger than what a client may send."""


class ClientError(Exception):
    """What a gateway client can fail with."""


class NotConnected(ClientError):
    """The daemon cannot be reached, or the connection ended before the answer."""


class Refused(ClientError):
    """The gateway answered with an error frame; `code` is one of interfaces section 3."""

    def __init__(self, code: str, message: str, id: str | None = None) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.id = id


@attrs.frozen
class Welcome:
    """The gateway's greeting. seq: the last one assigned to this address (0 for a bridge)."""

    agent: str
    seq: int
    protocol: int


@attrs.frozen
class Accepted:
    """The message with this id is on the daemon's disk."""

    id: str


@attrs.frozen
class Progress:
    """What the agent says while it works, in direct speech only."""

    channel: ChannelInfo
    text: str


ClientEvent: TypeAlias = OutboundMessage | Typing | Progress | Accepted | Refused
"""What iterating over a Client gives. Accepted and Refused only for ids nobody waits for (see `Client.post`)."""


class Client:
    """One open connection; made by `open_client`. Iterate over it for what the agent says; it ends with the connection."""

    def __init__(self, socket: WebSocketConnection, welcome: Welcome) -> None:
        self.welcome = welcome
        self.closed: str | None = None
        self._socket = socket
        self._calls = 0
        self._waiting: dict[tuple[str, str], _Waiter] = {}
        self._events_in, self._events = trio.open_memory_channel[ClientEvent](EVENT_BUFFER)

    async def send(
        self,
        text: str,
        *,
        id: str,
        channel: ChannelInfo | None = None,
        metadata: Metadata | None = None,
        media: Sequence[Media] = (),
        timeout: float = 30.0,
    ) -> None:
        """Send a message and wait until it is accepted, that is, on the daemon's disk.

        channel: only for a bridge, or to name a thread or user of this conversation. timeout: seconds.
        Raises Refused for an error frame, NotConnected when the connection ends or nothing comes in time: then
        send again with the same id. Cancelled while waiting, it may have been accepted.
        """
        await self._exchange(("message", id), _message(text, id, channel, metadata or {}, media), timeout)

    async def post(
        self,
        text: str,
        *,
        id: str,
        channel: ChannelInfo | None = None,
        metadata: Metadata | None = None,
        media: Sequence[Media] = (),
    ) -> None:
        """Send a message without waiting; Accepted or Refused with its id comes among the events."""
        await self._write(_message(text, id, channel, metadata or {}, media))

    async def ack(self, seq: int, channel: ChannelInfo | None = None) -> None:
        """Tell that everything up to `seq` arrived; a bridge names the channel. Raises NotConnected."""
        frame: dict[str, Json] = {"type": "ack", "seq": seq}
        if channel is not None:
            frame["channel"] = {"type": channel.type, "channelId": channel.channel_id}
        await self._write(frame)

    async def call(self, method: str, params: Mapping[str, Json] | None = None, *, timeout: float = 35.0) -> Json:
        """Call a method of the control plane and return its result. Raises Refused, NotConnected; timeout in seconds."""
        self._calls += 1
        id = f"c{self._calls}"
        return await self._exchange(
            ("call", id), {"type": "call", "id": id, "method": method, "params": params or {}}, timeout
        )

    def __aiter__(self) -> Client:
        return self

    async def __anext__(self) -> ClientEvent:
        try:
            return await self._events.receive()
        except trio.EndOfChannel:
            raise StopAsyncIteration from None

    async def _exchange(self, key: tuple[str, str], frame: Mapping[str, Json], timeout: float) -> Json:
        if key in self._waiting:
            raise ValueError(f"{key[0]} {key[1]!r} is under way already")
        waiter = self._waiting[key] = _Waiter()
        try:
            with trio.move_on_after(timeout):
                await self._write(frame)
                return await waiter.wait()
            raise NotConnected(f"no answer to {key[0]} {key[1]!r} within {timeout:g} s")
        finally:
            self._waiting.pop(key, None)

    async def _write(self, frame: Mapping[str, Json]) -> None:
        if self.closed is not None:
            raise NotConnected(self.closed)
        try:
            await self._socket.send_message(json.dumps(frame, ensure_ascii=False))
        except ConnectionClosed as error:
            raise NotConnected(_why(error)) from None

    async def _pump(self) -> None:
        """Read until the connection ends; never raises, so that the caller's own error is the one he sees."""
        reason = "the connection was closed"
        try:
            while True:
                await self._dispatch(json.loads(await self._socket.get_message()))
        except ConnectionClosed as error:
            reason = _why(error)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            reason = f"the gateway sent something that is not {SUBPROTOCOL}: {error!r}"
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            reason = "the connection was closed on this side"
        finally:
            self.closed = reason
            self._events_in.close()
            for waiter in self._waiting.values():
                waiter.fail(NotConnected(reason))

    async def _dispatch(self, frame: dict[str, Any]) -> None:
        match frame["type"]:
            case "accepted":
                await self._answer(("message", frame["id"]), None, Accepted(frame["id"]))
            case "result":
                await self._answer(("call", frame["id"]), frame["result"], None)
            case "error":
                await self._refuse(Refused(frame["code"], frame["message"], frame.get("id")))
            case "reply":
                await self._events_in.send(_reply(frame))
            case "typing":
                await self._events_in.send(Typing(_channel(frame["channel"]), bool(frame["active"])))
            case "progress":
                await self._events_in.send(Progress(_channel(frame["channel"]), frame["text"]))
            case _:  # a later version may say more
                pass

    async def _answer(self, key: tuple[str, str], value: Json, event: ClientEvent | None) -> None:
        waiter = self._waiting.get(key)
        if waiter is not None:
            waiter.succeed(value)
        elif event is not None:
            await self._events_in.send(event)

    async def _refuse(self, error: Refused) -> None:
        for kind in ("message", "call"):
            waiter = self._waiting.get((kind, error.id or ""))
            if waiter is not None:
                waiter.fail(error)
                return
        await self._events_in.send(error)


class _Waiter:
    """One answer somebody waits for."""

    def __init__(self) -> None:
        self._done = trio.Event()
        self._value: Json = None
        self._error: Exception | None = None

    def succeed(self, value: Json) -> None:
        self._value = value
        self._done.set()

    def fail(self, error: Exception) -> None:
        self._error = error
        self._done.set()

    async def wait(self) -> Json:
        await self._done.wait()
        if self._error is not None:
            raise self._error
        return self._value


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
        async with _background(client._pump):
            yield client


@asynccontextmanager
async def _connected(url: str, timeout: float) -> AsyncIterator[WebSocketConnection]:
    connecting = open_websocket_url(
        url,
        subprotocols=[SUBPROTOCOL],
        connect_timeout=timeout,
        disconnect_timeout=2.0,
        max_message_size=LARGEST_FRAME,
        message_queue_size=16,
    )
    try:
        socket = await connecting.__aenter__()
    except (HandshakeError, OSError, ValueError) as error:
        raise NotConnected(f"no gateway answers at {url} ({error.__cause__ or error!r})") from None
    failure: BaseException | None = None
    try:
        yield socket
    except BaseException as error:
        failure = error
        raise
    finally:
        with suppress(HandshakeError):  # the gateway did not answer our goodbye in time
            await connecting.__aexit__(type(failure) if failure else None, failure, None)


async def _greet(socket: WebSocketConnection, hello: Mapping[str, Json], timeout: float) -> Welcome:
    try:
        with trio.move_on_after(timeout):
            await socket.send_message(json.dumps(hello, ensure_ascii=False))
            frame = json.loads(await socket.get_message())
            if frame["type"] == "error":
                raise Refused(frame["code"], frame["message"], frame.get("id"))
            return Welcome(agent=frame["agent"], seq=frame["seq"], protocol=frame["protocol"])
    except ConnectionClosed as error:
        raise NotConnected(_why(error)) from None
    except (ValueError, KeyError, TypeError) as error:
        raise NotConnected(f"whoever answers there does not speak {SUBPROTOCOL}: {error!r}") from None
    raise NotConnected(f"no welcome within {timeout:g} s")


@asynccontextmanager
async def _background(run: Callable[[], Any]) -> AsyncIterator[None]:
    """Run a task that never raises beside the block, and let the block's own error out without an exception group."""
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
    frame["channel"] = {"type": channel} if isinstance(channel, str) else _channel_json(channel)
    if last_seq is not None:
        frame["lastSeq"] = last_seq
    if last_seqs is not None:
        frame["lastSeqs"] = dict(last_seqs)
    return frame


def _message(
    text: str, id: str, channel: ChannelInfo | None, metadata: Metadata, media: Sequence[Media]
) -> dict[str, Json]:
    frame: dict[str, Json] = {"type": "message", "id": id, "text": text}
    if channel is not None:
        frame["channel"] = _channel_json(channel)
    if metadata:
        frame["metadata"] = metadata
    if media:
        frame["media"] = [{"name": file.name, "mime": file.mime, "data": file.data} for file in media]
    return frame


def _channel_json(channel: ChannelInfo) -> dict[str, Json]:
    frame: dict[str, Json] = {"type": channel.type, "channelId": channel.channel_id}
    if channel.user_id is not None:
        frame["userId"] = channel.user_id
    if channel.reply_to is not None:
        frame["replyTo"] = channel.reply_to
    return frame


def _channel(frame: Mapping[str, Any]) -> ChannelInfo:
    return ChannelInfo(frame["type"], frame["channelId"], frame.get("userId"), frame.get("replyTo"))


def _reply(frame: Mapping[str, Any]) -> OutboundMessage:
    return OutboundMessage(
        text=frame["text"],
        channel=_channel(frame["channel"]),
        seq=frame["seq"],
        metadata=cast(Metadata, frame.get("metadata") or {}),
        media=tuple(Media(file["name"], file["mime"], file["data"]) for file in frame.get("media") or ()),
    )


def _why(error: ConnectionClosed) -> str:
    reason = error.reason
    if reason is None:
        return "the connection was closed"
    return f"the connection was closed ({reason.code}{': ' + reason.reason if reason.reason else ''})"
