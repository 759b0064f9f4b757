"""`HttpConnection`: one TCP connection, between its socket and Hypercorn's HTTP/1.1 protocol.

Hypercorn parses requests (with h11) and runs the application; this file owns the socket and the time. Hypercorn's own shell for that
(`hypercorn.trio.TCPServer`) was written for servers behind a proxy. It writes under a shield, so a client that does not read keeps
the server from stopping; it closes while a refused body is still coming, so the client never reads why; and it has no bound on the
memory of a WebSocket's message. So this shell

* gives every write a deadline, after which the client is cut;
* gives the head of a request a deadline, and so ends slow ones (the application does the same for bodies);
* lingers at the end: it says that nothing more comes, and reads what the client still sends for a moment (RFC 9112 section 9.6);
* cancels the work for a request whose client has gone;
* refuses requests that a proxy in front of it could read otherwise (`pegasus.http_framing`);
* speaks HTTP/1.1 alone. An offer to switch to HTTP/2 is ignored, as RFC 9110 section 7.8 allows;
* hands a WebSocket handshake for `/ws` to the gateway, bytes and all, since the gateway has its own bounds and deadlines for
  clients of its protocol. A handshake for another path is treated as a plain request.

Hypercorn's protocol classes are not documented for this use. They are touched in this file only, and
tests/pegasus/web/test_server.py fails if a new version changes them.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final

import h11
import trio
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.logging import Logger
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, ConnectionState, Scope
from hypercorn.utils import parse_socket_addr

from pegasus.gateway import failures_logged
from pegasus.http_framing import has_body, refuse_ambiguous
from pegasus.observe import get_logger
from pegasus.settings import InForce
from pegasus.web.access import ApiError
from pegasus.web.config import HttpConfig
from pegasus.wire import encode_json

RECEIVE_BYTES: Final = 64 * 1024
"""Bytes that are read from the network at a time."""
HEAD_BYTES: Final = 32 * 1024
"""Bytes of a request's head."""
LINGER: Final = 2.0
"""Seconds in which a client that is still sending may read why it is refused."""

CLIENT_GONE: Final = "client_gone"
"""Key in the `state` of a request's scope: an event that is set when the client has gone while its request was under way."""

_log = get_logger("web")

Application = Callable[[Scope, ASGIReceiveCallable, ASGISendCallable], Awaitable[None]]
"""An ASGI application."""


class WebSocketRequest(Exception):
    """Raised out of Hypercorn's protocol when a client wants to speak the gateway's protocol on `/ws`.

    Example: `raise WebSocketRequest(request)` in `HttpOneProtocol`; `HttpConnection` catches it, and hands the
    socket and the handshake to the gateway. An exception leaves Hypercorn's protocol at once, before it answers and before it looks
    at the bytes behind the handshake.
    """

    def __init__(self, request: h11.Request) -> None:
        super().__init__("a WebSocket handshake")
        self.request = request


class HttpOneProtocol(H11Protocol):
    """Hypercorn's HTTP/1.1 without its ways to HTTP/2 and to its own WebSockets.

    Example: `await protocol.handle(RawData(data))` feeds it with bytes from the network. It runs the
    application for each request, and gives bytes to be sent to the function that it was made with.

    Three methods of Hypercorn's class are overridden. They have underscores, so a new version may rename them;
    the tests of the server would then fail.
    """

    admits: Callable[[h11.Request], bool]
    """Returns whether a WebSocket is opened; if not, the application answers the handshake as a plain request, with the reason."""

    async def _check_protocol(self, event: h11.Request) -> None:
        """Ignore an offer to switch to HTTP/2."""

    async def _send_error_response(self, status_code: int) -> None:
        """Answer a request that is no HTTP with the error object that all errors have."""
        error = ApiError(status_code, "bad_request", "found what is no HTTP/1.1 request, or a head that is too large")
        body = encode_json(error.body).encode()
        size = str(len(body)).encode()
        fields = [(b"content-type", b"application/json"), (b"content-length", size), (b"connection", b"close")]
        headers = [*fields, *self.config.response_headers("h11")]
        await self._send_h11_event(h11.Response(status_code=status_code, headers=headers))
        await self._send_h11_event(h11.Data(data=body))
        await self._send_h11_event(h11.EndOfMessage())

    async def _create_stream(self, request: h11.Request) -> None:
        fields = dict(request.headers)
        if fields.get(b"upgrade", b"").strip().lower() == b"websocket" and request.method == b"GET":
            is_for_gateway = request.target.partition(b"?")[0] == b"/ws" and not has_body(request.headers)
            if is_for_gateway and self.admits(request):
                raise WebSocketRequest(request)
            # Without the two fields Hypercorn takes the handshake for a plain request, and the application
            # answers it with the reason.
            kept = [(name, value) for name, value in request.headers if name not in (b"upgrade", b"connection")]
            request = h11.Request(
                method=request.method, target=request.target, headers=kept, http_version=request.http_version
            )
        await super()._create_stream(request)


class ServerLog(Logger):
    """The lines that Hypercorn wants to log: failures only, for the application answers for the rest.

    Example: `config.logger_class = ServerLog`, of which Hypercorn makes one for each connection.

    There is no log of requests: paths and header fields may hold secrets, and each request would cost a write
    to disk.
    """

    def __init__(self, config: Config) -> None:
        """Open no log of its own."""

    async def access(self, request: Any, response: Any, request_time: float) -> None:
        """Log no request, as said above."""

    async def exception(self, message: str, *args: Any, **kwargs: Any) -> None:
        """Log a failure of the application that it has not handled itself."""
        _log.exception(message, error=sys.exc_info()[1] or RuntimeError("unknown"))


def protocol_config() -> Config:
    """Return the settings of Hypercorn's protocols: the size of a request's head, no server header, no log of its own."""
    config = Config()
    config.h11_max_incomplete_size = HEAD_BYTES
    config.include_server_header = False
    config.logger_class = ServerLog
    return config


class HttpConnection:
    """One client. Make it with an accepted stream and `run` it; it closes the stream.

    admits: returns whether a WebSocket handshake is accepted. upgrade: serves it; called with the stream, whose first bytes are the
    handshake's, and the handshake.
    on_idle: called when the connection begins to wait for a request (True) and when one has come (False).

    Example::

        connection = HttpConnection(application, config, protocol_config(), context, stream, admits, upgrade, on_idle)
        await connection.run()      # returns when the client has gone
        connection.cut()            # from another task: ends it at once

    Two tasks work on a connection: the reader, which is the one that has called `run`, and the application of
    the request under way. The reader goes on reading while the application works, since that is how it notices
    that the client has gone.
    """

    def __init__(
        self,
        application: Application,
        config: InForce[HttpConfig],
        protocol: Config,
        context: WorkerContext,
        stream: trio.SocketStream,
        admits: Callable[[h11.Request], bool],
        upgrade: Callable[[trio.abc.Stream, h11.Request], Awaitable[None]],
        on_idle: Callable[[HttpConnection, bool], None],
    ) -> None:
        self._application = application
        self._config = config
        self._protocol_config = protocol
        self._context = context
        self._stream = stream
        self._admits = admits
        self._upgrade = upgrade
        self._on_idle = on_idle
        # Made before `run`, so that `cut` works at any time, also before the task of the connection has begun.
        self._scope = trio.CancelScope()
        """Around everything that this connection does; cancelled by `cut`."""
        self._waiting = trio.CancelScope()
        """Around the wait for bytes. Its deadline is that of the head of a request, or of the end."""
        self._deadline = math.inf
        """Time at which the next wait for bytes ends."""
        self._is_ending = False
        """Nothing is answered any more; what still comes is dropped."""
        self._gone = trio.Event()
        """Set when the client has gone, before the work for its request is cancelled. A stop of the server does not set it."""
        self._writing = trio.Lock()
        """Held during a write: the reader (errors of the protocol) and the application write."""

    async def run(self) -> None:
        """Serve the client until it has gone. Cancelled, the connection is cut.

        A failure is logged and ends this connection only.
        """
        try:
            with failures_logged(_log), self._scope:
                handshake = await self._serve_requests()
                if handshake is not None:
                    self._on_idle(self, False)
                    await self._upgrade(*handshake)
        finally:
            await trio.aclose_forcefully(self._stream)

    def cut(self) -> None:
        """End the connection at once."""
        self._scope.cancel()

    # ---------------------------------------------------------------- reading

    async def _serve_requests(self) -> tuple[trio.abc.Stream, h11.Request] | None:
        """Serve requests until the client has gone. Return the stream and the handshake if it has become a WebSocket."""
        socket = self._stream.socket
        try:
            client = parse_socket_addr(socket.family, socket.getpeername())
        except OSError:  # it has gone already
            return None
        server = parse_socket_addr(socket.family, socket.getsockname())
        handshake: WebSocketRequest | None = None
        tasks = TaskGroup()
        with trio.CancelScope() as work:
            async with tasks:
                protocol = HttpOneProtocol(
                    self._run_application,
                    self._protocol_config,
                    self._context,
                    tasks,
                    ConnectionState({CLIENT_GONE: self._gone}),
                    False,
                    client,
                    server,
                    self._send,
                )
                protocol.admits = self._admits
                if isinstance(protocol.connection, h11.Connection):
                    refuse_ambiguous(protocol.connection)
                self._protocol = protocol
                self._wait_idle(self._config.now.head_time)
                try:
                    await self._read()
                except WebSocketRequest as found:
                    handshake = found
                self._gone.set()
                work.cancel()  # the client has gone: nobody waits for it any more
        if handshake is None:
            return None
        # The handshake was taken apart by h11, so it is written again as a client would write it, with what
        # came behind it in the same read.
        begun = h11.Connection(h11.CLIENT).send(handshake.request) or b""
        start = _ReplayedStart(self._stream, begun + protocol.connection.trailing_data[0])
        return trio.StapledStream(self._stream, start), handshake.request

    async def _read(self) -> None:
        while True:
            with trio.CancelScope(deadline=self._deadline) as self._waiting:
                try:
                    data = await self._stream.receive_some(RECEIVE_BYTES)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    return
            # The deadline has passed: the head of a request did not come in time, or the client has had its
            # moment to read the end.
            if self._waiting.cancelled_caught:
                return
            if not self._is_ending:
                await self._protocol.handle(RawData(bytes(data)))
            # End of the stream. The protocol was told above, so that a request whose body is not complete ends,
            # too.
            if not data:
                return

    async def _run_application(
        self,
        scope: Scope,
        receive: ASGIReceiveCallable,
        send: ASGISendCallable,
        sync_spawn: object,
        call_soon: object,
    ) -> None:
        """Let the application answer a request. Hypercorn's last two arguments are for applications that use threads."""
        await self._application(scope, receive, send)

    # ---------------------------------------------------------------- what Hypercorn wants done

    async def _send(self, event: Event) -> None:
        """Carry out what the protocol wants done.

        `Closed` means that no further response will be written, `Updated(idle=True)` that a response is complete and the next
        request may come. Any other update means that a request has begun: from then on the application sets the deadlines.
        """
        match event:
            case RawData(data=data):
                await self._write(data)
            case Closed():
                await self._end()
            case Updated(idle=True):
                self._wait_idle(self._config.now.idle_time)
            case Updated():
                self._set_deadline(math.inf)
                self._on_idle(self, False)

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
        if not self._is_ending:
            self._is_ending = True
            self._set_deadline(trio.current_time() + LINGER)
            try:
                async with self._writing:
                    await self._stream.send_eof()
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                self.cut()
            await self._protocol.handle(Closed())

    def _wait_idle(self, seconds: float) -> None:
        """Wait so long for the head of the next request."""
        self._set_deadline(trio.current_time() + seconds)
        self._on_idle(self, True)

    def _set_deadline(self, deadline: float) -> None:
        self._deadline = self._waiting.deadline = deadline


class _ReplayedStart(trio.abc.ReceiveStream):
    r"""The receiving half of a stream whose first bytes were read already and are read again.

    Example: `trio.StapledStream(stream, _ReplayedStart(stream, b"GET /ws HTTP/1.1\r\n…"))`. The gateway reads the handshake as if it
    had accepted the connection itself, so it needs no second way in.
    """

    def __init__(self, stream: trio.SocketStream, begun: bytes) -> None:
        self._stream = stream
        self._begun = begun

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Return the next bytes, those that were read already first."""
        if self._begun:
            await trio.lowlevel.checkpoint()
            size = len(self._begun) if max_bytes is None else max_bytes
            data, self._begun = self._begun[:size], self._begun[size:]
            return data
        return await self._stream.receive_some(max_bytes)

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()
