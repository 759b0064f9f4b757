"""Server of a fake Slack workspace: HTTP and Socket Mode, over sockets or in memory.

    async with open_slack() as server:                 # a server on loopback
        settings = {"base_url": server.api_url, "bot_token": BOT_TOKEN, "app_token": APP_TOKEN}
        await server.emit(message_event(server.workspace, dm, anna, "hello"))

    async with open_slack(in_memory=True) as server:   # for virtual time: no sockets at all
        client = httpx2.AsyncClient(transport=server.transport())
        stream = await server.connect("wss://…")

Socket Mode is that of https://docs.slack.dev/apis/events-api/using-socket-mode: `hello`, envelopes that must be acknowledged within 3
seconds and are sent again otherwise, `disconnect` with its reasons, pings.

A delivery is attempted four times, in turn over the WebSockets that are open, with the pauses of `pace`. An attempt that finds none
counts, too: so an app that is away for longer than all pauses together never gets that envelope (`given_up`), as at Slack.

What it does not do by itself: WebSockets are not renewed after some hours, and no pings are sent. A test does that, by `disconnect`,
`ping`, `cut` and `is_silent` of a SlackSocket. The WebSocket's frames are those of wsproto, so the official client can connect, too.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import attrs
import h11
import trio
import trio.testing
from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import AcceptConnection, CloseConnection, Ping, Request, TextMessage
from wsproto.utilities import ProtocolError

from pegasus.testing.services.server import HANG_UP, FakeService, ServiceRequest, ServiceResponse
from pegasus.testing.services.slack_calls import SlackHttpRequest
from pegasus.testing.services.slack_events import ACKNOWLEDGE_TIME, RETRY_PAUSES, SlackEnvelope
from pegasus.testing.services.slack_workspace import APP, SlackWorkspace
from pegasus.wire import decode_object, encode_json

MOST_SOCKETS: Final = 10
"""WebSockets that an app may have open."""
_READ: Final = 1 << 16


@attrs.define(eq=False)
class SlackDelivery:
    """An envelope on its way to the app.

    Example::

        delivery = await server.emit(message_event(server.workspace, dm, anna, "hello"))
        await delivery.acknowledged.wait()
        assert delivery.attempts == 1
    """

    envelope: SlackEnvelope
    """The event, interaction or command."""
    id: str
    """Id of the envelope, by which the app acknowledges it; the same for all attempts."""
    attempts: int = 0
    """Number of times that it was sent."""
    answer: dict[str, Any] | None = None
    """Frame that has acknowledged it first."""
    acknowledged: trio.Event = attrs.field(factory=trio.Event)
    """Set at the first acknowledgement; no attempt follows."""
    acknowledgements: int = 0
    """Number of them. More than one means that the app has acknowledged a repetition, too."""
    given_up: bool = False
    """Every attempt has failed, as after an outage of the app."""


class SlackSocket:
    """A WebSocket of the app.

    Example::

        [socket] = server.sockets
        await socket.disconnect("refresh_requested")  # the app connects again
        socket.is_silent = True  # or: nothing comes any more, and the app has to notice by itself
    """

    def __init__(self, server: SlackServer, stream: trio.abc.Stream) -> None:
        self._server = server
        self._stream = stream
        self._protocol = WSConnection(ConnectionType.SERVER)
        self._lock = trio.Lock()
        self.is_open = False
        """The app was greeted, and envelopes may come here."""
        self.is_silent = False
        """Set by a test: nothing comes from here any more and nothing is read, as on a connection that a router has forgotten."""
        self.pings = 0
        """Pings of the app."""

    async def serve(self, request: h11.Request, rest: bytes) -> None:
        """Take over a connection whose request asks for a WebSocket, until it is closed. rest: bytes behind the request.

        Cancelled, or cut by the app: the socket is taken out of the server's list, and `until` checks its condition again.
        """
        headers = [(bytes(name), bytes(value)) for name, value in request.headers]
        self._protocol.initiate_upgrade_connection(headers, request.target)
        if rest:
            self._protocol.receive_data(rest)
        try:
            while self._protocol.state is not ConnectionState.CLOSED:
                for event in self._protocol.events():
                    await self._take(event)
                data = await self._stream.receive_some(_READ)
                if not data:
                    return
                if not self.is_silent:
                    self._protocol.receive_data(bytes(data))
        except (trio.BrokenResourceError, trio.ClosedResourceError, ProtocolError):
            return
        finally:
            self.is_open = False
            if self in self._server.sockets:
                self._server.sockets.remove(self)
            self._server.workspace.notify()

    async def _take(self, event: object) -> None:
        """Handle one event of the WebSocket protocol: greeting, acknowledgement, ping or end."""
        match event:
            case Request(target=target):
                await self._greet(target)
            case TextMessage(data=data):
                self._server.acknowledge(data)
            case Ping():
                self.pings += 1
                await self._send(event.response())
            case CloseConnection():
                if self._protocol.state is not ConnectionState.CLOSED:
                    await self._send(event.response())

    async def _greet(self, target: str) -> None:
        """Accept a WebSocket with a ticket of apps.connections.open, which serves once; close one without, or one too many."""
        server = self._server
        await self._send(AcceptConnection())
        ticket = target.partition("ticket=")[2].partition("&")[0]
        if ticket not in server.workspace.tickets:
            await self.close()
            return
        # A ticket serves once, so that a client which uses an old address is noticed.
        server.workspace.tickets.discard(ticket)
        if len(server.sockets) >= MOST_SOCKETS:
            await self.disconnect("too_many_websockets")
            return
        server.sockets.append(self)
        info = {"host": "fake", "build_number": 1, "approximate_connection_time": 18060}
        hello = {"type": "hello", "num_connections": len(server.sockets), "debug_info": info}
        self.is_open = True
        await self.send({**hello, "connection_info": {"app_id": APP}})
        server.workspace.notify()

    async def send(self, frame: dict[str, Any]) -> None:
        """Send a frame; nothing happens on a connection that is gone or silent."""
        await self._send(TextMessage(data=encode_json(frame)))

    async def send_text(self, text: str) -> None:
        """Send any text, such as one that is no JSON."""
        await self._send(TextMessage(data=text))

    async def ping(self) -> None:
        """Send a ping, as Slack does every few seconds."""
        await self._send(Ping(b"Ping from fake"))

    async def disconnect(self, reason: str, *, close: bool = True) -> None:
        """Announce the end: "warning", "refresh_requested", "link_disabled" or "too_many_websockets". close: at once."""
        self.is_open = not close
        await self.send({"type": "disconnect", "reason": reason, "debug_info": {"host": "fake"}})
        if close:
            await self.close()

    async def close(self) -> None:
        """Send the close frame and hang up.

        An app sees an end with a reason, and connects again at once; see `cut` for an end without one.
        """
        self.is_open = False
        if self._protocol.state is ConnectionState.OPEN:
            await self._send(CloseConnection(code=1000))
        await self._stream.aclose()

    async def cut(self) -> None:
        """Hang up without a word."""
        self.is_open = False
        await self._stream.aclose()

    async def _send(self, event: Any) -> None:
        """Send an event of the protocol. The lock keeps the frames of deliveries and answers whole."""
        if self.is_silent:
            return
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError, ProtocolError):
            async with self._lock:
                await self._stream.send_all(self._protocol.send(event))


class SlackServer(FakeService):
    """A workspace that can be reached.

    Example: see the top of this file.

    Everything that a test changes while it runs is an attribute: `is_down`, `fault`, `pace`, and those of the workspace.
    """

    def __init__(self, workspace: SlackWorkspace, nursery: trio.Nursery) -> None:
        super().__init__()
        self.workspace = workspace
        self.sockets: list[SlackSocket] = []
        """WebSockets that were greeted, oldest first."""
        self.deliveries: list[SlackDelivery] = []
        self.connections = 0
        """WebSockets that the app has asked for."""
        self.pace: tuple[float, ...] = (0.0, *RETRY_PAUSES)
        """Seconds before each attempt of an envelope."""
        self._nursery = nursery
        self._ids = itertools.count(1)

    @property
    def api_url(self) -> str:
        """Base address of the Web API, for `channels.slack.base_url`."""
        return f"{self.workspace.base or 'https://slack.com'}/api"

    # ---------------------------------------------------------------- Socket Mode

    async def emit(self, envelope: SlackEnvelope) -> SlackDelivery:
        """Begin to deliver something to the app; return at once. It waits for a WebSocket only for the time of its attempts.

        Returns before the first attempt. Await `acknowledged` of the result, or `workspace.until`, for what follows.
        """
        delivery = SlackDelivery(envelope, f"envelope-{next(self._ids)}")
        self.deliveries.append(delivery)
        self._nursery.start_soon(self._deliver, delivery)
        await trio.lowlevel.checkpoint()
        return delivery

    async def _deliver(self, delivery: SlackDelivery) -> None:
        """Send an envelope until it is acknowledged, or until all attempts are used up."""
        for attempt, pause in enumerate(self.pace):
            await trio.sleep(pause)
            # Looked at anew for each attempt: the app may have connected again meanwhile.
            sockets = [socket for socket in self.sockets if socket.is_open]
            if sockets:
                delivery.attempts += 1
                again = {"retry_attempt": attempt, "retry_reason": "timeout"} if attempt else {}
                more = {"accepts_response_payload": delivery.envelope.kind != "events_api", **again}
                frame = {"envelope_id": delivery.id, "payload": delivery.envelope.payload}
                await sockets[attempt % len(sockets)].send({**frame, "type": delivery.envelope.kind, **more})
            # Waited for also where nothing was sent: the time of an attempt passes for an app that is away, too.
            with trio.move_on_after(ACKNOWLEDGE_TIME):
                await delivery.acknowledged.wait()
                return
        delivery.given_up = True
        self.workspace.notify()

    def acknowledge(self, text: str) -> None:
        """Take a frame of the app, which acknowledges an envelope.

        An id that is not known is passed over, as by Slack.
        """
        frame = decode_object(text)
        for delivery in self.deliveries:
            if delivery.id == frame["envelope_id"]:
                delivery.answer = delivery.answer or frame
                delivery.acknowledgements += 1
                delivery.acknowledged.set()
        self.workspace.notify()

    # ---------------------------------------------------------------- connections

    async def connect(self, url: str) -> trio.abc.Stream:
        """Return a stream in memory to the WebSocket address. Raises OSError while the service is down."""
        await trio.lowlevel.checkpoint()
        if self.is_down:
            raise OSError("connection refused")
        ours, theirs = trio.testing.memory_stream_pair()
        self._nursery.start_soon(self.serve, theirs)
        return ours

    async def answer(self, request: ServiceRequest) -> ServiceResponse:
        """Answer a request after the time that it takes."""
        if "/files-pri/" in request.target:
            await trio.sleep(self.workspace.file_delay)
        # The workspace decides by the host whether a request was meant for Slack.
        url = f"https://{request.headers.get('host', '')}{request.target}"
        answer = self.workspace.handle(SlackHttpRequest(request.method, url, request.headers, request.body))
        return HANG_UP if answer.hang_up else ServiceResponse(answer.status, answer.body, answer.headers)

    async def fail(self) -> None:
        """Take the service down: connections end, and new ones are refused until `is_down` is False again."""
        self.is_down = True
        for socket in list(self.sockets):
            await socket.cut()

    async def upgrade(self, stream: trio.abc.Stream, request: h11.Request, rest: bytes) -> None:
        """Serve a WebSocket."""
        if not self.is_down:
            self.connections += 1
            await SlackSocket(self, stream).serve(request, rest)


@asynccontextmanager
async def open_slack(
    workspace: SlackWorkspace | None = None, *, in_memory: bool = False, port: int = 0
) -> AsyncIterator[SlackServer]:
    """Run a workspace for as long as the block lasts, on 127.0.0.1 unless `in_memory`. port 0: any free one.

    The same workspace may be given to several servers one after the other, as after an outage.
    """
    workspace = workspace or SlackWorkspace()
    async with trio.open_nursery() as nursery:
        server = SlackServer(workspace, nursery)
        if not in_memory:
            listeners = await trio.open_tcp_listeners(port, host="127.0.0.1")
            workspace.base = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
            nursery.start_soon(trio.serve_listeners, server.serve, listeners)
        try:
            yield server
        finally:
            nursery.cancel_scope.cancel()
