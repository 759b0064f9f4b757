"""`FakeService`: an HTTP server for fakes of chat services, on loopback for their official clients, in memory for virtual time.

A fake says what it answers (`answer`); this class brings the request there and can fail in the ways of a network:

    service.is_down = True                            # connections are refused and cut
    service.fault = lambda request: HANG_UP           # the request was heard, and its answer never comes
    service.fault = every_other(ServiceResponse(500)) # half of all calls fail

The same fake serves two kinds of tests. On loopback (`open_service`) the official client of a service talks to it, which
shows that the fake behaves like the service. In memory (`transport`) there are no sockets, so that virtual time can jump
and a test of minutes takes milliseconds. Both ways end in `handle`, so faults and counters are the same.

Faults are decided for each request by a function of the test. `fault` comes before the service has done anything, and
`late_fault` after: the message was sent, and the client does not know. Clients that retry must bear both.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final, TypeVar

import attrs
import h11
import httpx2
import trio

from pegasus.wire import encode_json

_READ: Final = 65536


@attrs.frozen(eq=False)
class ServiceRequest:
    """A request as a fake gets it.

    Example::

        [request] = service.requests
        request.method, request.path  # ("POST", "/2010-04-01/Accounts/AC0/Messages.json")
    """

    method: str
    """Method in capitals, such as "POST"."""
    target: str
    """Path and query."""
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    """Content as it arrived, b"" for none."""

    @property
    def path(self) -> str:
        """The path without the query."""
        return self.target.partition("?")[0]


@attrs.frozen(eq=False)
class ServiceResponse:
    """An answer of a fake.

    Example::

        ServiceResponse(503, b"try later", {"retry-after": "3"})
        json_response({"ok": True})  # the same with JSON and its content type
    """

    status: int
    """HTTP status."""
    body: bytes = b""
    """Content; its length is sent with it."""
    headers: Mapping[str, str] = attrs.field(factory=dict)
    """Further headers by name."""


HANG_UP: Final = ServiceResponse(0)
"""In place of an answer: the connection ends."""
Fault = Callable[[ServiceRequest], "ServiceResponse | None"]
"""Returns the answer that a request gets instead of being handled, None if it is handled."""


def json_response(value: Any, status: int = 200, **headers: str) -> ServiceResponse:
    """Return an answer in JSON.

    headers: further ones by keyword, with "_" for "-": `json_response({}, 429, retry_after="3")`.
    """
    fields = {"content-type": "application/json", **{name.replace("_", "-"): text for name, text in headers.items()}}
    return ServiceResponse(status, encode_json(value).encode(), fields)


def every_other(response: ServiceResponse) -> Fault:
    """Return a fault by which the first, third … call gets this answer."""
    count = 0

    def fault(request: ServiceRequest) -> ServiceResponse | None:
        """Count the call; return the answer for the first, third and so on."""
        nonlocal count
        count += 1
        return response if count % 2 else None

    return fault


Upgrade = Callable[[h11.Request, bytes], Awaitable[None]]
"""Serves a connection whose request asks for a WebSocket, until it is closed. The bytes are those behind the request."""


async def serve_http(
    stream: trio.abc.Stream,
    answer: Callable[[ServiceRequest], Awaitable[ServiceResponse]],
    upgrade: Upgrade | None = None,
) -> None:
    """Serve the requests of one connection until it ends. upgrade: takes over for a WebSocket; None: there are none.

    Ends without an error when the client hangs up or sends something that is no HTTP, as a server must.
    """
    http = h11.Connection(h11.SERVER)
    async with stream:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError, h11.RemoteProtocolError):
            while await _serve_request(http, stream, answer, upgrade):
                http.start_next_cycle()


async def _serve_request(
    http: h11.Connection,
    stream: trio.abc.Stream,
    answer: Callable[[ServiceRequest], Awaitable[ServiceResponse]],
    upgrade: Upgrade | None,
) -> bool:
    """Serve one request; return whether the connection can take another."""

    async def next_event() -> Any:
        """Return the next event of HTTP/1.1, after reading as much as it takes."""
        while (event := http.next_event()) is h11.NEED_DATA:
            http.receive_data(bytes(await stream.receive_some(_READ)))
        return event

    head = await next_event()
    if not isinstance(head, h11.Request):
        return False
    headers = {name.decode().lower(): value.decode("latin-1") for name, value in head.headers}
    # Bytes behind the request belong to the WebSocket: a client may send its first frame without waiting.
    if upgrade is not None and headers.get("upgrade", "").lower() == "websocket":
        await upgrade(head, http.trailing_data[0])
        return False
    body = bytearray()
    while isinstance(data := await next_event(), h11.Data):
        body += data.data
    response = await answer(ServiceRequest(head.method.decode(), head.target.decode(), headers, bytes(body)))
    if response is HANG_UP:
        return False
    fields = [*response.headers.items(), ("content-length", str(len(response.body)))]
    out = http.send(h11.Response(status_code=response.status, headers=fields)) or b""
    out += (http.send(h11.Data(response.body)) or b"") + (http.send(h11.EndOfMessage()) or b"")
    await stream.send_all(out)
    # A client that wanted the connection to end, or has not read everything, gets no second answer on it.
    return http.our_state is h11.DONE and http.their_state is h11.DONE


class FakeService:
    """An HTTP server in this process. A subclass implements `answer`.

    Example::

        class Weather(FakeService):
            async def answer(self, request: ServiceRequest) -> ServiceResponse:
                return json_response({"path": request.path})

        client = httpx2.AsyncClient(transport=Weather().transport())  # in memory
        async with open_service(Weather()) as weather:  # on loopback
            weather.base_url  # "http://127.0.0.1:40123"
    """

    def __init__(self) -> None:
        self.is_down = False
        """Connections are refused."""
        self.fault: Fault = lambda request: None
        """Decides about each request before it is handled."""
        self.late_fault: Fault = lambda request: None
        """The same after it was handled: the service has done it, and the answer is lost."""
        self.requests: list[ServiceRequest] = []
        """Every request that has arrived."""
        self.base_url = "http://fake.invalid"
        """Address of the server; in memory this one."""

    async def answer(self, request: ServiceRequest) -> ServiceResponse:
        """Return the answer to a request.

        Called once for each request that meets no fault. It may wait; the client's timeout goes on meanwhile.
        """
        raise NotImplementedError

    async def handle(self, request: ServiceRequest) -> ServiceResponse:
        """Return the answer to a request, or the fault that it meets.

        The request is recorded before its fault is decided, so `requests` has also those that were lost.
        """
        await trio.lowlevel.checkpoint()
        self.requests.append(request)
        if (response := self.fault(request)) is not None:
            return response
        response = await self.answer(request)
        return self.late_fault(request) or response

    def transport(self) -> httpx2.AsyncBaseTransport:
        """Return a transport that reaches this server, and nothing else, without sockets."""
        return ServiceMemoryTransport(self)

    async def serve(self, stream: trio.abc.Stream) -> None:
        """Serve the requests of one connection until it ends or becomes a WebSocket."""
        await serve_http(stream, self._answer_unless_down, partial(self.upgrade, stream))

    async def upgrade(self, stream: trio.abc.Stream, request: h11.Request, rest: bytes) -> None:
        """Take over a connection whose request asks for a WebSocket. rest: bytes behind the request. By default it ends."""

    async def _answer_unless_down(self, request: ServiceRequest) -> ServiceResponse:
        """Return the answer; while the service is down the connection ends instead."""
        return HANG_UP if self.is_down else await self.handle(request)


class ServiceMemoryTransport(httpx2.AsyncBaseTransport):
    """Transport of httpx2 to a fake in the same process. `FakeService.transport` makes one.

    Example::

        async with httpx2.AsyncClient(transport=ServiceMemoryTransport(service)) as client:
            response = await client.get("http://fake.invalid/status")
    """

    def __init__(self, service: FakeService) -> None:
        self._service = service

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer a request. Raises ConnectError while the service is down, ReadTimeout, and ReadError if it hangs up."""
        body = await request.aread()
        await trio.lowlevel.checkpoint()
        if self._service.is_down:
            raise httpx2.ConnectError("connection refused", request=request)
        headers = {name.lower(): value for name, value in request.headers.items()}
        target = request.url.raw_path.decode()
        # The client's own timeout, which a real transport would apply to its socket. None: it waits for ever.
        seconds = (request.extensions.get("timeout") or {}).get("read")
        response = HANG_UP
        with trio.move_on_after(seconds if seconds is not None else float("inf")) as scope:
            response = await self._service.handle(ServiceRequest(request.method, target, headers, body))
        if scope.cancelled_caught:
            raise httpx2.ReadTimeout("no answer in time", request=request)
        # A service that went down while it answered loses this answer, as well.
        if response is HANG_UP or self._service.is_down:
            raise httpx2.ReadError("the server hung up", request=request)
        return httpx2.Response(response.status, headers=dict(response.headers), content=response.body, request=request)


S = TypeVar("S", bound=FakeService)


@asynccontextmanager
async def open_service(service: S, *, port: int = 0) -> AsyncIterator[S]:
    """Run a fake on 127.0.0.1 for as long as the block lasts. port 0: any free one.

    Leaving the block cancels all connections, so that a client which still waits cannot keep the test from ending.
    """
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(port, host="127.0.0.1")
        service.base_url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        nursery.start_soon(trio.serve_listeners, service.serve, listeners)
        try:
            yield service
        finally:
            nursery.cancel_scope.cancel()
