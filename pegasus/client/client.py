"""`Client`: one open connection to a gateway, with calls and messages that wait for their answer.

One task (`pump`, started by `open_client`) reads frames. An answer is given to the call that waits for it, found by its id;
everything else becomes an event, which iteration over the client yields. If nobody iterates, EVENT_BUFFER events are kept, and
then the connection is no longer read: neither are answers. So a program that only calls and sends may leave events alone, as
long as few replies come for its address; one that gets many must iterate.

When the connection ends, everything that waits raises NotConnected, iteration stops, and `closed` says why. What was sent may
or may not have arrived. A message is therefore sent again with the same id over the next connection; a call is not repeated
here, for only its caller knows whether that is harmless.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import attrs
import trio
from trio_websocket import ConnectionClosed, WebSocketConnection

from pegasus.messages import ChannelInfo, Json, Media, Metadata, OutboundMessage, Progress, Typing
from pegasus.protocol import (
    SUBPROTOCOL,
    AcceptedFrame,
    AckAddress,
    AckFrame,
    BadFrame,
    CallFrame,
    ErrorFrame,
    MessageFrame,
    ResultFrame,
    ServerFrame,
    TypingFrame,
    WelcomeFrame,
    decode_server_frame,
    encode_frame,
)

EVENT_BUFFER = 1000
"""Events that are kept until iteration yields them.

Bounded, because a program that only sends would otherwise collect replies without end. It is large enough for a command that
makes a few calls and never iterates.
"""


class ClientError(Exception):
    """The base class of this package's errors. str() is one line for a person, which a command may print as it is.

    What can go wrong with a connection is one of its two kinds: the daemon is not there, or it is and says no.
    """


class NotConnected(ClientError):
    """The daemon cannot be reached, or the connection ended before the answer."""


class Refused(ClientError):
    """The gateway answered with an error frame. str() is its message alone, without code.

    Decide by the code::

        except Refused as error:
            if error.code == "overloaded":
                ...  # send the same message again later
    """

    def __init__(self, code: str, message: str, id: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        """`bad_frame`, `unauthorized`, `unknown_type`, `unknown_method`, `too_large`, `overloaded` or `internal`."""
        self.message = message
        """What was found and what is allowed, for a person."""
        self.id = id
        """The id of the message or call that was refused, where the gateway could read it."""


@attrs.frozen
class MessageAccepted:
    """The message with this id is on the daemon's disk. It will be handled, whatever happens to the connection."""

    id: str
    """The id that the message was sent with."""


ClientEvent: TypeAlias = OutboundMessage | Typing | Progress | MessageAccepted | Refused
"""Iteration over a Client yields these; MessageAccepted and Refused only for ids that no call waits for (see `post`)."""


class Client:
    """One open connection, made by `open_client`. Iterating over it yields events and ends with the connection.

    Example::

        async with open_client(url, token, ChannelInfo("web", "me")) as client:
            await client.send("hello", id="m-1")
            async for event in client:
                print(event)
    """

    def __init__(self, socket: WebSocketConnection, welcome: WelcomeFrame) -> None:
        self.welcome = welcome
        """The gateway's greeting: the agent's name, and the last reply made for this address."""
        self.closed: str | None = None
        """Why the connection has ended; None while it is open."""
        self._socket = socket
        """The open WebSocket; its end is `open_client`'s matter."""
        self._calls = 0
        """Calls so far; ids are made from it."""
        self._waiting: dict[tuple[str, str], _Waiter] = {}
        """The answers that are waited for, by kind ("message", "call") and id."""
        self._events_in, self._events = trio.open_memory_channel[ClientEvent](EVENT_BUFFER)
        """The events that iteration has not yielded yet."""

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
        Raises Refused for an error frame. Raises NotConnected if the connection ends or nothing comes in time; then send
        again with the same id. Cancelled, the message may have been accepted.
        """
        frame = MessageFrame(id, text, channel, metadata or {}, tuple(media))
        await self._exchange(("message", id), frame, timeout)

    async def post(
        self,
        text: str,
        *,
        id: str,
        channel: ChannelInfo | None = None,
        metadata: Metadata | None = None,
        media: Sequence[Media] = (),
    ) -> None:
        """Send a message without waiting; MessageAccepted or Refused with its id comes among the events. Raises NotConnected.

        For programs that have many messages under way, such as bridges and `Conversation`: their order is that of the calls.
        """
        await self._write(MessageFrame(id, text, channel, metadata or {}, tuple(media)))

    async def ack(self, seq: int, channel: ChannelInfo | None = None) -> None:
        """Acknowledge all replies up to `seq`; a bridge names the channel. Raises NotConnected.

        Acknowledged replies are not sent again to any client of the address. So acknowledge a reply when a person could have
        seen it or it is stored, not when it arrives.
        """
        await self._write(AckFrame(seq, AckAddress(channel.type, channel.channel_id) if channel else None))

    async def call(self, method: str, params: Mapping[str, Json] | None = None, *, timeout: float = 35.0) -> Json:
        """Call a method of the control plane and return its result, a JSON object. timeout: seconds.

        Raises Refused, NotConnected. Cancelled, the method may have run.
        """
        self._calls += 1
        id = f"c{self._calls}"
        return await self._exchange(("call", id), CallFrame(id, method, params or {}), timeout)

    def __aiter__(self) -> Client:
        return self

    async def __anext__(self) -> ClientEvent:
        try:
            return await self._events.receive()
        except trio.EndOfChannel:
            raise StopAsyncIteration from None

    async def pump(self) -> None:
        """Read until the connection ends. Raises nothing but cancellation, so that the error of the caller's own code is seen."""
        reason = "the connection was closed"
        try:
            while True:
                await self._dispatch(decode_server_frame(await self._socket.get_message()))
        except ConnectionClosed as error:
            reason = describe_close(error)
        except BadFrame as error:
            reason = f"the gateway sent something that is not {SUBPROTOCOL}: {error}"
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            reason = "the connection was closed on this side"
        finally:
            self.closed = reason
            self._events_in.close()
            for waiter in self._waiting.values():
                waiter.fail(NotConnected(reason))

    async def _exchange(self, key: tuple[str, str], frame: MessageFrame | CallFrame, timeout: float) -> Json:
        """Send a frame and return its answer. key: what the answer is found by. Raises Refused, NotConnected.

        The waiter is registered before the frame is written, because the answer may arrive before the write returns. However
        the wait ends, the waiter is removed: an answer that comes later finds no waiter and is an event or dropped.
        """
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

    async def _write(self, frame: MessageFrame | AckFrame | CallFrame) -> None:
        """Send a frame. Raises NotConnected. Several tasks may write at the same time; trio-websocket has a lock."""
        if self.closed is not None:
            raise NotConnected(self.closed)
        try:
            await self._socket.send_message(encode_frame(frame))
        except ConnectionClosed as error:
            raise NotConnected(describe_close(error)) from None

    async def _dispatch(self, frame: ServerFrame | None) -> None:
        """Give a frame to the call that waits for it, or make it an event. Waits while EVENT_BUFFER events are kept.

        While it waits the socket is not read, so that TCP slows the gateway down, which in the end closes the connection.
        """
        match frame:
            case AcceptedFrame(id):
                await self._answer(("message", id), None, MessageAccepted(id))
            case ResultFrame(id, result):
                await self._answer(("call", id), result, None)
            case ErrorFrame(code, message, id):
                await self._refuse(Refused(code, message, id))
            case TypingFrame(channel, active):
                await self._events_in.send(Typing(channel, active))
            case OutboundMessage() | Progress():
                await self._events_in.send(frame)
            case WelcomeFrame() | None:  # None: a type that only a later version of the protocol has
                pass

    async def _answer(self, key: tuple[str, str], value: Json, event: ClientEvent | None) -> None:
        """Give a value to the call that waits for it; where none waits, make it an event, unless it is None."""
        waiter = self._waiting.get(key)
        if waiter is not None:
            waiter.succeed(value)
        elif event is not None:
            await self._events_in.send(event)

    async def _refuse(self, error: Refused) -> None:
        """Raise the error where its message or call is waited for, or else make it an event."""
        for kind in ("message", "call"):
            waiter = self._waiting.get((kind, error.id or ""))
            if waiter is not None:
                waiter.fail(error)
                return
        await self._events_in.send(error)


class _Waiter:
    """One answer that a call waits for: a value or an error, given once.

    A memory channel would do the same, with two objects and two close operations for each call.
    """

    def __init__(self) -> None:
        self._done = trio.Event()
        self._value: Json = None
        """What `wait` returns, unless there is an error."""
        self._error: Exception | None = None
        """What `wait` raises."""

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


def describe_close(error: ConnectionClosed) -> str:
    """Return the end of a connection in words: with code and reason where the other side gave one."""
    reason = error.reason
    if reason is None:
        return "the connection was closed"
    return f"the connection was closed ({reason.code}{': ' + reason.reason if reason.reason else ''})"
