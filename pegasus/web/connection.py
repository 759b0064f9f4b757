"""`HttpConnection`: one TCP connection that speaks HTTP/1.1, between its socket and the application. h11 parses the bytes.

* Every write has a deadline, after which the client is cut. A client that does not read keeps nobody from stopping.
* The head of a request has a deadline, which ends slow ones (the application does the same for bodies).
* At the end the connection says that nothing more comes, and reads what the client still sends for a moment (RFC 9112 section 9.6).
  So a client whose body is refused while it is still coming reads why.
* The work for a request whose client has gone is cancelled.
* Requests that a proxy in front could read otherwise are refused (`pegasus.http_framing`).
* An offer to switch to HTTP/2 is ignored, as RFC 9110 section 7.8 allows.
* A WebSocket handshake for `/ws` is handed to the gateway, bytes and all, since the gateway has its own bounds and deadlines for
  clients of its protocol. A handshake for another path is treated as a plain request.

While the application answers, the connection goes on reading: for the rest of the body, of which BODY_PIECES wait at most, and to
notice that the client has gone. A further request is looked at when the response is complete.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from email.utils import formatdate
from typing import Final
from urllib.parse import unquote

import attrs
import h11
import trio
from starlette.types import ASGIApp, Message, Scope

from pegasus.gateway import failures_logged
from pegasus.http_framing import has_body, refuse_ambiguous
from pegasus.observe import get_logger
from pegasus.settings import LiveValue
from pegasus.web.config import HttpConfig
from pegasus.web.visitors import ApiError
from pegasus.websocket import Handshake
from pegasus.wire import encode_json

RECEIVE_BYTES: Final = 64 * 1024
"""Bytes that are read from the network at a time."""
HEAD_BYTES: Final = 32 * 1024
"""Bytes of a request's head."""
BODY_PIECES: Final = 10
"""Pieces of a body that wait for the application. Beyond that the client is not read."""
LINGER: Final = 2.0
"""Seconds in which a client that is still sending may read why it is refused."""

CLIENT_GONE: Final = "client_gone"
"""Key in the `state` of a request's scope: an event that is set when the client has gone while its request was under way."""

_log = get_logger("web")


@attrs.define(eq=False, repr=False, slots=False)
class HttpConnection:
    """One client. Make it with an accepted stream and `run` it; it closes the stream."""

    _application: ASGIApp
    _config: LiveValue[HttpConfig]
    _stopping: trio.Event
    """Set when the server stops; the connection then ends behind the response that is under way."""
    _stream: trio.SocketStream
    _admits: Callable[[h11.Request], bool]
    """Returns whether a WebSocket handshake is accepted."""
    _upgrade: Callable[[trio.abc.Stream, Handshake], Awaitable[None]]
    """Serves a WebSocket, behind the handshake."""
    _on_idle: Callable[[HttpConnection, bool], None]
    """Called when the connection begins to wait for a request (True) and when one has come (False)."""
    # Made before `run`, so that `cut` works at any time, also before the task of the connection has begun.
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    """Around everything that this connection does; cancelled by `cut`."""
    _gone: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Set when the client has gone, before the work for its request is cancelled. A stop of the server does not set it."""
    _writing: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    """Held during a write: the tasks of an application may write at the same time."""

    def __attrs_post_init__(self) -> None:
        self._parser = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)
        refuse_ambiguous(self._parser)

    async def run(self) -> None:
        """Serve the client until it has gone. Cancelled, the connection is cut.

        A failure is logged and ends this connection only.
        """
        try:
            with failures_logged(_log), self._scope:
                handshake = await self._serve_requests()
                if handshake is not None:
                    await self._upgrade(self._stream, Handshake(handshake, self._parser.trailing_data[0]))
        finally:
            await trio.aclose_forcefully(self._stream)

    def cut(self) -> None:
        """End the connection at once."""
        self._scope.cancel()

    # ---------------------------------------------------------------- requests

    async def _serve_requests(self) -> h11.Request | None:
        """Serve requests until the client has gone. Return the handshake if the connection is to become a WebSocket."""
        try:
            self._client = self._stream.socket.getpeername()[:2]
        except OSError:  # it has gone already
            return None
        idle_time = self._config.now.head_time
        while True:
            self._on_idle(self, True)
            try:
                request = await self._read_head(trio.current_time() + idle_time)
            except h11.RemoteProtocolError as error:
                await self._refuse(error.error_status_hint)
                break
            if request is None:
                return None
            self._on_idle(self, False)
            if _is_for_gateway(request) and self._admits(request):
                return request
            await self._answer(request)
            try:
                await self._drop_body()
                self._parser.start_next_cycle()
            except h11.ProtocolError:  # one of the two wants the end, or a body or a response is not complete
                break
            if self._stopping.is_set():
                break
            idle_time = self._config.now.idle_time
        await self._end()
        return None

    async def _drop_body(self) -> None:
        """Drop a short body that the application has not read, as that of a request which is refused. It may be still on its way."""
        with trio.move_on_after(LINGER):
            for _ in range(BODY_PIECES):
                if self._parser.their_state is not h11.SEND_BODY or self._parser.they_are_waiting_for_100_continue:
                    return
                if self._parser.next_event() is h11.NEED_DATA and not await self._receive():
                    return

    async def _read_head(self, deadline: float) -> h11.Request | None:
        """Return the next request, None if the client has gone or is too slow. Raises RemoteProtocolError."""
        with trio.CancelScope(deadline=deadline):
            while (event := self._parser.next_event()) is h11.NEED_DATA:
                if not await self._receive():
                    return None
            return event if isinstance(event, h11.Request) else None
        return None

    async def _receive(self) -> bool:
        """Read what the client sends next; the end of the stream is something, too. Return False if the connection is broken."""
        try:
            self._parser.receive_data(bytes(await self._stream.receive_some(RECEIVE_BYTES)))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return False
        return True

    async def _answer(self, request: h11.Request) -> None:
        """Have the application answer a request, unless its body turns out to be no HTTP or the client goes."""
        status = None
        sender, receiver = trio.open_memory_channel[bytes](BODY_PIECES)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._run_application, request, receiver, nursery.cancel_scope)
            try:
                await self._read_body(sender)
                self._gone.set()
            except h11.RemoteProtocolError as error:
                status = error.error_status_hint
            nursery.cancel_scope.cancel()
        if status is not None:
            await self._refuse(status)

    async def _read_body(self, body: trio.MemorySendChannel[bytes]) -> None:
        """Pass the body on; return when the client has gone, which may be long after its end. Raises RemoteProtocolError."""
        while True:
            event = self._parser.next_event()
            if isinstance(event, h11.Data):
                await body.send(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                body.close()
            elif event is h11.PAUSED:  # bytes of the next request
                await trio.sleep_forever()
            elif event is not h11.NEED_DATA or not await self._receive():
                return

    async def _run_application(
        self, request: h11.Request, body: trio.MemoryReceiveChannel[bytes], work: trio.CancelScope
    ) -> None:
        """Let the application answer; then end the reading. A failure is logged, and answered as long as nothing was sent."""
        exchange = _HttpExchange(self._parser, request.method == b"HEAD", body, self._write, self._stopping)
        with failures_logged(_log):
            await self._application(self._scope_of(request), exchange.receive, exchange.send)
        if self._parser.our_state is h11.SEND_RESPONSE:
            await self._refuse(500, "internal", "this failed unexpectedly; the log has the details")
        work.cancel()

    def _scope_of(self, request: h11.Request) -> Scope:
        path, _, query = request.target.partition(b"?")
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.1"},
            "http_version": request.http_version.decode(),
            "method": request.method.decode(),
            "scheme": "http",
            "path": unquote(path.decode()),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": list(request.headers),
            "client": self._client,
            "server": self._stream.socket.getsockname()[:2],
            "state": {CLIENT_GONE: self._gone},
        }

    # ---------------------------------------------------------------- writing

    async def _refuse(
        self,
        status: int,
        code: str = "bad_request",
        message: str = "found what is no HTTP/1.1 request, or a head that is too large",
    ) -> None:
        """Answer with an error object, the last answer of the connection; nothing if a response has begun."""
        if self._parser.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        body = encode_json(ApiError(status, code, message).body).encode()
        size = str(len(body)).encode()
        fields = [(b"content-type", b"application/json"), (b"content-length", size), (b"connection", b"close")]
        events = (_response(status, fields), h11.Data(data=body), h11.EndOfMessage())
        await self._write(b"".join([self._parser.send(event) or b"" for event in events]))

    async def _write(self, data: bytes) -> None:
        """Write, or cut the connection. Cancelled in the middle of a write, it is of no more use and is cut, too."""
        async with self._writing:
            is_written = False
            try:
                with trio.move_on_after(self._config.now.write_time):
                    await self._stream.send_all(data)
                    is_written = True
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass
            finally:
                if not is_written:
                    self.cut()
            if not is_written:
                self._gone.set()

    async def _end(self) -> None:
        """End the connection from our side, and give the client a moment to read what was sent.

        The half-close comes before the lingering: a client that reads until the end of the stream has its
        answer at once. Closing the socket with unread bytes would make the kernel send a reset, which may
        overtake the answer.
        """
        try:
            async with self._writing:  # MCP's tasks outlive their request, and one may be in the middle of a write
                await self._stream.send_eof()
            with trio.move_on_after(LINGER):
                while await self._stream.receive_some(RECEIVE_BYTES):
                    pass
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass


def _is_for_gateway(request: h11.Request) -> bool:
    """Return whether a client wants to speak the gateway's protocol."""
    return (
        request.method == b"GET"
        and dict(request.headers).get(b"upgrade", b"").strip().lower() == b"websocket"
        and request.target.partition(b"?")[0] == b"/ws"
        and not has_body(request.headers)
    )


def _response(status: int, fields: list[tuple[bytes, bytes]]) -> h11.Response:
    return h11.Response(status_code=status, headers=[*fields, (b"date", formatdate(usegmt=True).encode())])


@attrs.define(eq=False, repr=False)
class _HttpExchange:
    """One request and its response, in the words of ASGI."""

    _parser: h11.Connection
    _has_no_body: bool
    """The response has fields only, whatever the application sends."""
    _body: trio.MemoryReceiveChannel[bytes]
    _write: Callable[[bytes], Awaitable[None]]
    _stopping: trio.Event
    """Set when the connection is to take no further request, which its client is told."""
    _unsent: bytes = b""
    """Head of a response whose body comes at once, so that both are one write."""

    async def receive(self) -> Message:
        """Return the next piece of the body. The end of the client is not among the messages: it cancels the application."""
        if self._parser.they_are_waiting_for_100_continue:
            await self._write(self._parser.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
        try:
            return {"type": "http.request", "body": await self._body.receive(), "more_body": True}
        except trio.EndOfChannel:
            self._body.close()
            return {"type": "http.request", "body": b"", "more_body": False}
        except trio.ClosedResourceError:  # asked for more than the body
            await trio.sleep_forever()
            raise

    async def send(self, message: Message) -> None:
        """Send the head, or a part, of the response."""
        if message["type"] == "http.response.start":
            status, fields = message["status"], list(message["headers"])
            self._has_no_body |= status in (204, 304)
            if self._stopping.is_set():
                fields.append((b"connection", b"close"))
            self._unsent = self._parser.send(_response(status, fields)) or b""
            if any(name.lower() == b"content-length" for name, _ in fields):
                return
            data = b""
        else:
            body = message.get("body", b"")
            data = b"" if self._has_no_body or not body else self._parser.send(h11.Data(data=body)) or b""
            if not message.get("more_body", False):
                data += self._parser.send(h11.EndOfMessage()) or b""
        if data := self._take_unsent() + data:
            await self._write(data)

    def _take_unsent(self) -> bytes:
        data, self._unsent = self._unsent, b""
        return data
