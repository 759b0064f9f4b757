"""`open_client` connects to a gateway; `Client` is one open connection, with calls that wait for their result. On Trio and asyncio.

Connecting has four steps: TCP (or TLS for wss), the WebSocket handshake, our hello, the gateway's welcome. Each has the same
deadline, and each fails with one line that a person understands: no program listens there, one listens that is no gateway, the
gateway refuses (wrong token), or it does not answer.

One task reads frames. The result of a call is given to the call, found by its id; everything else becomes an event, which
iteration over the client yields. If nobody iterates, EVENT_BUFFER events are kept, and then the connection is no longer read:
neither are results. So a program that only calls may leave events alone, as long as few replies come for its address; one
that gets many must iterate.

When the connection ends, everything that waits raises NotConnected, iteration stops, and `closed` says why. What was sent may
or may not have arrived. A message is therefore sent again with the same id over the next connection; a call is not repeated
here, for only its caller knows whether that is harmless.

Leaving the block of `open_client` sends a close frame and waits CLOSE_TIME for the other side's; then the stream is closed
without waiting. So a gateway that hangs delays a command by two seconds.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias
from urllib.parse import SplitResult, urlsplit

import anyio
import attrs
from anyio.abc import ByteStream
from outcome import Error, Outcome, Value

from pegasus.loopback import is_loopback
from pegasus.messages import ChannelInfo, Json, Media, Metadata
from pegasus.protocol import (
    SUBPROTOCOL,
    AcceptedFrame,
    AckFrame,
    AgentEvent,
    BadFrame,
    CallFrame,
    ClientChannel,
    ErrorFrame,
    EventFrame,
    HelloFrame,
    MessageFrame,
    ResultFrame,
    ServerFrame,
    WebSocketClosed,
    WelcomeFrame,
    decode_server_frame,
    encode_frame,
)
from pegasus.websocket import BadMessage, WebSocket

MAX_FRAME_BYTES = 64 * 1024 * 1024
"""Bytes of a frame that the client takes. A reply with attachments may be larger than what a client may send. The bound keeps a
server that is not ours from filling the memory."""
PING_AFTER = 30.0
"""Seconds of silence after which the gateway is asked whether it is there. After as many again the connection counts as lost."""
CLOSE_TIME = 2.0
"""Seconds that the gateway has to answer our close frame."""

EVENT_BUFFER = 1000
"""Events that are kept until iteration yields them.

Bounded, because a program that only sends would otherwise collect replies without end. It is large enough for a command that
makes a few calls and never iterates.
"""


class ClientError(Exception):
    """The base class of this package's errors. str() is one line for a person, which a command may print as it is.

    What can go wrong with a connection is one of its two kinds: the daemon is not there, or it is and says no.

    Example: `except ClientError as error: print_error(f"pegasus: {error}")` around all that a command does with the daemon.
    """


class NotConnected(ClientError):
    """The daemon cannot be reached, or the connection ended before the answer.

    Example::

        try:
            async with open_client(url, token, channel) as client:
                status = await client.call("status")
        except NotConnected as error:
            print(f"no agent: {error}")
    """


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
        """Sentence with what was found and what is allowed, for a person."""
        self.id = id
        """The id of the message or call that was refused, where the gateway could read it."""


@attrs.frozen
class MessageAccepted:
    """The message with this id is on the daemon's disk. It will be handled, whatever happens to the connection.

    Example::

        await client.post("hello", id="m-1")
        async for event in client:
            if event == MessageAccepted("m-1"):
                break  # safe to forget the text
    """

    id: str
    """The id that the message was sent with."""


ClientEvent: TypeAlias = AgentEvent | EventFrame | MessageAccepted | Refused
"""Iteration over a Client yields these; EventFrame after a call of `events.subscribe`, Refused only for what is not a call."""


@asynccontextmanager
async def open_client(
    url: str,
    token: str,
    channel: ChannelInfo | str,
    last_seq: int | None = None,
    *,
    last_seqs: Mapping[str, int] | None = None,
    calls_only: bool = False,
    every_reply: bool = False,
    delivery: str = "",
    timeout: float = 10.0,
) -> AsyncIterator[Client]:
    """Connect to the gateway at `url` and yield the Client once it was welcomed; leaving the block closes the connection.

    channel: the address to talk as, or the name of a channel type to serve as a bridge.
    last_seq: the last reply that was received earlier; None: everything that was not acknowledged comes again. For a bridge
    it is last_seqs, by channelId. calls_only: there is no conversation at this address, so that the agent does not learn of it.
    every_reply: replies above last_seq come also if another client of the address has acknowledged them.
    delivery: delivery class that a bridge declares. timeout: seconds for each step of the greeting.
    Raises NotConnected, and Refused (wrong token, for example). Errors of the block come out as they are.

    Example::

        async with open_client("ws://127.0.0.1:7717", token, ChannelInfo("cli", "status")) as client:
            print(await client.call("status"))
    """
    if isinstance(channel, str):
        who = ClientChannel(channel)
    else:
        who = ClientChannel(channel.type, channel.channel_id, channel.user_id, channel.reply_to)
    hello = HelloFrame(who, token, last_seq, dict(last_seqs or {}), calls_only, every_reply, delivery)
    async with open_websocket(url, timeout) as socket:
        client = Client(socket, await _greet(socket, hello, timeout))
        with client.events:
            async with background(client.pump):
                yield client


class Client:
    """One open connection, made by `open_client`. Iterating over it yields events and ends with the connection.

    Example::

        async with open_client(url, token, ChannelInfo("web", "me")) as client:
            await client.post("hello", id="m-1")
            async for event in client:
                print(event)
    """

    def __init__(self, socket: WebSocket, welcome: WelcomeFrame) -> None:
        self.welcome = welcome
        """The gateway's greeting: the agent's name, and the last reply made for this address."""
        self.closed: str | None = None
        """Reason why the connection has ended; None while it is open."""
        self._socket = socket
        """The open WebSocket; its end is `open_client`'s matter."""
        self._calls = 0
        """Calls so far; ids are made from it."""
        self._running: dict[str, _Call] = {}
        """The calls that wait for their result, by id."""
        self._events_in, self.events = anyio.create_memory_object_stream[ClientEvent](EVENT_BUFFER)
        """The events that iteration has not yielded yet. Closed by `open_client`."""

    async def post(
        self,
        text: str,
        *,
        id: str,
        channel: ChannelInfo | None = None,
        metadata: Metadata | None = None,
        media: Sequence[Media] = (),
    ) -> None:
        """Send a message; MessageAccepted or Refused with its id comes among the events. Raises NotConnected.

        channel: only for a bridge, or to name a thread or user of this conversation. Messages keep the order of the calls.
        When the connection ends before an answer has come, send it again with the same id over the next one.
        """
        await self._write(MessageFrame(id, text, channel, metadata or {}, tuple(media)))

    async def ack(self, seq: int, channel: ChannelInfo | None = None) -> None:
        """Acknowledge all replies up to `seq`; a bridge names the channel. Raises NotConnected.

        Acknowledged replies are not sent again to any client of the address. So acknowledge a reply when a person could have
        seen it or it is stored, not when it arrives.
        """
        await self._write(AckFrame(seq, channel.address if channel else None))

    async def call(self, method: str, params: Mapping[str, Json] | None = None, *, timeout: float = 35.0) -> Json:
        """Call a method of the control plane and return its result, a JSON object. timeout: seconds.

        Raises Refused, NotConnected. Cancelled, the method may have run; its result is dropped.
        """
        self._calls += 1
        id = f"c{self._calls}"
        # Before the frame is written: the result may arrive before the write returns.
        call = self._running[id] = _Call()
        try:
            with anyio.move_on_after(timeout):
                await self._write(CallFrame(id, method, params or {}))
                await call.done.wait()
                return call.outcome.unwrap()
            raise NotConnected(f"the agent did not answer within {timeout:g} s")
        finally:
            del self._running[id]

    def __aiter__(self) -> Client:
        return self

    async def __anext__(self) -> ClientEvent:
        try:
            return await self.events.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def pump(self) -> None:
        """Read until the connection ends. Raises nothing but cancellation, so that the error of the caller's own code is seen."""
        reason = "the connection was closed"
        try:
            while True:
                await self._dispatch(decode_server_frame(await self._next_text()))
        except WebSocketClosed as error:
            reason = str(error)
        except (BadFrame, BadMessage) as error:
            reason = (
                f"the agent sent something that this program does not understand; is it of another version? ({error})"
            )
        except anyio.BrokenResourceError:  # nobody iterates any more
            pass
        finally:
            self.closed = reason
            self._events_in.close()
            for call in self._running.values():
                call.end(Error(NotConnected(reason)))

    async def _next_text(self) -> str:
        """Return the next frame. Silence may be a gateway that is gone without a word, so it is pinged. Raises WebSocketClosed."""
        pinged_at = -math.inf
        while True:
            with anyio.move_on_after(PING_AFTER):
                return _text_of(await self._socket.receive())
            if self._socket.active_at < pinged_at:
                raise WebSocketClosed
            pinged_at = anyio.current_time()
            await self._socket.ping()

    async def _write(self, frame: MessageFrame | AckFrame | CallFrame) -> None:
        """Send a frame. Raises NotConnected. Several tasks may write at the same time."""
        if self.closed is not None:
            raise NotConnected(self.closed)
        try:
            await self._socket.write([encode_frame(frame)])
        except WebSocketClosed as error:
            raise NotConnected(str(error)) from None

    async def _dispatch(self, frame: ServerFrame | None) -> None:
        """Give a frame to the call that waits for it, or make it an event. Waits while EVENT_BUFFER events are kept.

        While it waits the socket is not read, so that TCP slows the gateway down, which in the end closes the connection.
        """
        match frame:
            case ResultFrame(id, result):
                if id in self._running:
                    self._running[id].end(Value(result))
            case ErrorFrame(code, message, id) if id in self._running:
                self._running[id].end(Error(Refused(code, message, id)))
            case ErrorFrame(code, message, id):
                await self._events_in.send(Refused(code, message, id))
            case AcceptedFrame(id):
                await self._events_in.send(MessageAccepted(id))
            case WelcomeFrame() | None:  # None: a type that only a later version of the protocol has
                pass
            case _:
                await self._events_in.send(frame)


@attrs.define(eq=False, repr=False)
class _Call:
    """A call that waits for its result."""

    done: anyio.Event = attrs.field(factory=anyio.Event)
    """Set when there is an outcome."""
    outcome: Outcome[Json] = attrs.field(init=False)
    """The result, or the error that the call raises."""

    def end(self, outcome: Outcome[Json]) -> None:
        """Let the call return or raise. The connection ends once and a result comes once, so only one of them counts."""
        if not self.done.is_set():
            self.outcome = outcome
            self.done.set()


@asynccontextmanager
async def open_websocket(url: str, timeout: float, *, subprotocol: str = SUBPROTOCOL) -> AsyncIterator[WebSocket]:
    """Yield an open WebSocket, and close it afterwards. Raises NotConnected. timeout: seconds for each step."""
    parts = urlsplit(url)
    try:
        with anyio.fail_after(timeout):
            stream = await _open_stream(parts)
    except (OSError, ValueError) as error:  # TimeoutError is an OSError
        raise NotConnected(f"no agent answers at {url} ({error or 'too slow'})") from None
    try:
        # Within one machine compression costs more than it saves.
        socket = WebSocket(_Stream(stream), MAX_FRAME_BYTES, compresses=not is_loopback(parts.hostname or ""))
        path = parts.path or "/"
        try:
            with anyio.fail_after(timeout):
                await socket.connect(parts.netloc, f"{path}?{parts.query}" if parts.query else path, subprotocol)
        except (WebSocketClosed, TimeoutError):
            raise NotConnected(f"no agent answers at {url}, but another program") from None
        try:
            yield socket
        finally:
            with anyio.move_on_after(CLOSE_TIME):
                await socket.close()
                await socket.drop()
    finally:
        await anyio.aclose_forcefully(stream)


@attrs.frozen(eq=False)
class _Stream:
    """A stream of anyio as `WebSocket` wants it."""

    _stream: ByteStream

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Return what has come; b"" at the end, however it came."""
        try:
            return await self._stream.receive(max_bytes or 65_536)
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            return b""

    async def send_all(self, data: bytes) -> None:
        """Send all of it. Raises OSError. Cancelled, the connection is closed: what was sent in part cannot be completed."""
        try:
            await self._stream.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise BrokenPipeError(str(error)) from None
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await anyio.aclose_forcefully(self._stream)
            raise


async def _open_stream(parts: SplitResult) -> ByteStream:
    """Connect with TCP, or TLS for wss. Raises OSError, and ValueError for a malformed address."""
    if parts.hostname is None or parts.scheme not in ("ws", "wss"):
        raise ValueError("found no address of the form ws://host:port")
    if parts.scheme == "ws":
        return await anyio.connect_tcp(parts.hostname, parts.port or 80)
    return await anyio.connect_tcp(parts.hostname, parts.port or 443, tls=True, tls_standard_compatible=False)


def _text_of(message: str | bytes) -> str:
    """Return a frame; "", which no frame is, for a binary message."""
    return message if isinstance(message, str) else ""


async def _greet(socket: WebSocket, hello: HelloFrame, timeout: float) -> WelcomeFrame:
    """Say hello and return the welcome. Raises Refused for an error frame, NotConnected for anything else."""
    try:
        with anyio.move_on_after(timeout):
            await socket.write([encode_frame(hello)])
            frame = decode_server_frame(_text_of(await socket.receive()))
            if isinstance(frame, ErrorFrame):
                raise Refused(frame.code, frame.message, frame.id)
            if not isinstance(frame, WelcomeFrame):
                raise NotConnected(f"the server there does not speak {SUBPROTOCOL}: it sent no welcome")
            return frame
    except WebSocketClosed as error:
        raise NotConnected(str(error)) from None
    except (BadFrame, BadMessage) as error:
        raise NotConnected(f"the server there does not speak {SUBPROTOCOL}: {error}") from None
    raise NotConnected(f"no welcome within {timeout:g} s")


@asynccontextmanager
async def background(run: Callable[[], Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Run a task beside the block, and cancel it when the block ends.

    The task must not raise. An error of the block comes out as it is, not in the exception group of a nursery, so a caller can
    write `except NotConnected`. Cancellation from outside passes through, since only the event loop may handle it.
    """
    failure: BaseException | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        try:
            yield
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
