"""One connection to a gateway, seen from the client: typed frames out of the wire, calls and messages with an answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import attrs
import trio
from trio_websocket import ConnectionClosed, WebSocketConnection

from pegasus.messages import ChannelInfo, Json, Media, Metadata, OutboundMessage, Progress, Typing
from pegasus.protocol import SUBPROTOCOL
from pegasus.wire import from_wire, to_wire

EVENT_BUFFER = 1000
"""Frames one client may be behind with reading them; then its connection is no longer read."""


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
class MessageAccepted:
    """The message with this id is on the daemon's disk."""

    id: str


ClientEvent: TypeAlias = OutboundMessage | Typing | Progress | MessageAccepted | Refused
"""What iterating over a Client gives. MessageAccepted and Refused only for ids nobody waits for (see `Client.post`)."""


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
        """Send a message without waiting; MessageAccepted or Refused with its id comes among the events."""
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
            await self._socket.send_message(wire_text(frame))
        except ConnectionClosed as error:
            raise NotConnected(why_closed(error)) from None

    async def pump(self) -> None:
        """Read until the connection ends; never raises, so that the caller's own error is the one he sees."""
        reason = "the connection was closed"
        try:
            while True:
                await self._dispatch(json.loads(await self._socket.get_message()))
        except ConnectionClosed as error:
            reason = why_closed(error)
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
                await self._answer(("message", frame["id"]), None, MessageAccepted(frame["id"]))
            case "result":
                await self._answer(("call", frame["id"]), frame["result"], None)
            case "error":
                await self._refuse(Refused(frame["code"], frame["message"], frame.get("id")))
            case "reply":
                await self._events_in.send(from_wire(frame, OutboundMessage))
            case "typing":
                await self._events_in.send(from_wire(frame, Typing))
            case "progress":
                await self._events_in.send(from_wire(frame, Progress))
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


def wire_text(frame: Mapping[str, Json]) -> str:
    """The frame as it is sent."""
    text = json.dumps(frame, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair: let the gateway say so
        return json.dumps(frame)
    return text


def _message(
    text: str, id: str, channel: ChannelInfo | None, metadata: Metadata, media: Sequence[Media]
) -> dict[str, Json]:
    frame: dict[str, Json] = {"type": "message", "id": id, "text": text}
    if channel is not None:
        frame["channel"] = to_wire(channel)
    if metadata:
        frame["metadata"] = metadata
    if media:
        frame["media"] = [to_wire(file) for file in media]
    return frame


def why_closed(error: ConnectionClosed) -> str:
    """The end of a connection in words."""
    reason = error.reason
    if reason is None:
        return "the connection was closed"
    return f"the connection was closed ({reason.code}{': ' + reason.reason if reason.reason else ''})"
