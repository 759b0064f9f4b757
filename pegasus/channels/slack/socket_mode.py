"""Socket Mode: a WebSocket over which Slack delivers events, clicks and commands, each to be acknowledged.

    socket = SocketMode(api, take, is_up)
    await socket.run()      # until cancelled

Slack closes each WebSocket after some hours, and says so before: `refresh_requested` and `warning`. Then a second one is opened while
the first still delivers, so nothing is lost in between. What comes twice is told apart by whoever takes it.

A connection that a router has forgotten looks open for ever. So it is pinged, and counts as lost if no pong comes.

Envelopes are handled beside one another, and acknowledged when `take` has returned: what was said is on disk then. If it raises
`NotKept`, the envelope is left alone, and Slack sends it again. While MOST_OPEN of them are under way, nothing more is read.

Source: https://docs.slack.dev/apis/events-api/using-socket-mode
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final, NoReturn
from urllib.parse import SplitResult, urlsplit

import attrs
import trio

from pegasus.channels.service_contract import CredentialsRefused, NotKept, RateLimited, ServiceDown
from pegasus.channels.slack.api import SlackApi
from pegasus.channels.slack.reading import conversation_of
from pegasus.observe import get_logger
from pegasus.protocol import WebSocketClosed
from pegasus.websocket import BadMessage, WebSocket
from pegasus.wire import decode_object, encode_json

CONNECT_TIME: Final = 15.0
"""Seconds for each step until Slack has greeted."""
PING_PAUSE: Final = 20.0
"""Seconds between two pings."""
PONG_TIME: Final = 20.0
"""Seconds within which a pong must come."""
DRAIN_TIME: Final = 60.0
"""Seconds for which a WebSocket that was replaced is still read, unless Slack closes it before."""
REPLACE_PAUSE: Final = 2.0
"""Seconds between two attempts to open the next WebSocket while the old one still works."""
MOST_OPEN: Final = 500
"""Envelopes that may be under way."""
LARGEST: Final = 4 * 1024 * 1024
"""Bytes of an envelope."""

_log = get_logger("slack")


@attrs.frozen(eq=False, repr=False)
class Delivery:
    """Something that Slack delivers."""

    kind: str
    """"events_api", "interactive" or "slash_commands"."""
    payload: Mapping[str, Any]
    """The content, whose fields are as Slack documents them or not; see `read_payload`."""

    @property
    def conversation(self) -> str:
        """Id of the conversation that it is about, "" if none."""
        return conversation_of(self.kind, self.payload)


TakeItem = Callable[[Delivery], Callable[[], Awaitable[None]]]
"""Called for each delivery in the order in which they come; what it returns is then awaited, and raises NotKept."""
Connect = Callable[[str], Awaitable[trio.abc.Stream]]
"""Opens a stream to a WebSocket's address. Raises OSError, trio.BrokenResourceError."""


async def connect_stream(url: str) -> trio.abc.Stream:
    """Return a stream to the host of a WebSocket address, encrypted for wss. Raises OSError and trio.BrokenResourceError."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme == "wss":
        stream = await trio.open_ssl_over_tcp_stream(host, parts.port or 443, https_compatible=True)
        await stream.do_handshake()
        return stream
    return await trio.open_tcp_stream(host, parts.port or 80)


class SocketMode:
    """Keeps a WebSocket to Slack open.

    One connection is open as a rule, two while one replaces the other. Each is a `_Link` with a task in the
    nursery of `run`.

    How it ends: `run` raises the reason, and the adapter calls it again after a pause. It never goes on by
    itself after a loss, so that pauses and the state of the channel are kept in one place.
    """

    def __init__(
        self,
        api: SlackApi,
        take: TakeItem,
        is_up: Callable[[], None],
        *,
        connect: Connect = connect_stream,
        allow_plain: bool = False,
    ) -> None:
        """is_up: called when Slack has greeted. connect: opens a stream. allow_plain: ws:// is taken too, for a fake on loopback."""
        self._api = api
        self._take = take
        self._is_up = is_up
        self._connect = connect
        self._schemes = ("wss", "ws") if allow_plain else ("wss",)
        self._under_way = trio.CapacityLimiter(MOST_OPEN)

    async def run(self) -> None:
        """Receive until cancelled. Raises ServiceDown when a connection is lost, RateLimited, and CredentialsRefused."""
        failure: Exception = ServiceDown("the connection was lost")
        async with trio.open_nursery() as nursery:
            try:
                await self._keep_open(nursery)
            except (ServiceDown, RateLimited, CredentialsRefused) as error:
                failure = error  # raised in here, it would come out as a group
            nursery.cancel_scope.cancel()
        raise failure

    async def _keep_open(self, nursery: trio.Nursery) -> NoReturn:
        """Open one connection after the other, each before the one before it ends if Slack announces that."""
        old: _Link | None = None
        while True:
            try:
                link = await self._open(nursery)
            except (ServiceDown, RateLimited):
                # Nothing delivers any more, so the failure is one of the channel. While the old connection
                # works it is only a delay.
                if old is None or old.is_over.is_set():
                    raise
                # The pause ends early when the old connection does: then there is nothing left to wait for.
                with trio.move_on_after(REPLACE_PAUSE):
                    await old.is_over.wait()
                continue
            self._is_up()
            # The new connection has been greeted, so from here on Slack may deliver on either.
            if old is not None:
                old.retire()
            # Set by an announcement or by the end of the connection. In the first case the loop opens the next
            # one.
            await link.needs_successor.wait()
            if link.is_over.is_set():
                raise ServiceDown(link.reason)
            old = link

    async def _open(self, nursery: trio.Nursery) -> _Link:
        """Return a connection on which Slack has greeted.

        The address is asked for anew each time, because it holds a ticket that counts once and for a short
        time. Raises ServiceDown, RateLimited and CredentialsRefused; no connection is left open then.
        """
        url = await self._api.open_socket_url()
        parts = urlsplit(url)
        if parts.scheme not in self._schemes:
            raise ServiceDown(f"Slack names an address that is not encrypted ({parts.scheme}://)")
        try:
            with trio.fail_after(CONNECT_TIME):
                stream = await self._connect(url)
        except (OSError, trio.BrokenResourceError, trio.TooSlowError) as error:
            raise ServiceDown(f"the WebSocket cannot be opened ({type(error).__name__})") from None
        link = _Link(stream, parts, self._take, self._under_way)
        # Started before the greeting, since it is what reads it.
        nursery.start_soon(link.run)
        with trio.move_on_after(CONNECT_TIME):
            await link.is_greeted.wait()
        # Refused, closed, or silent for CONNECT_TIME. Its task ends by itself behind `cut`.
        if not link.is_up:
            link.cut()
            raise ServiceDown(link.reason or "Slack does not greet")
        return link


class _Link:
    """One WebSocket.

    Its task reads, one more sends pings, and each delivery is handled in a task of its own. The events tell
    `SocketMode` how far it is; all of them are set at the end, so that nobody waits for a connection that is
    over.
    """

    def __init__(
        self, stream: trio.abc.Stream, address: SplitResult, take: TakeItem, under_way: trio.CapacityLimiter
    ) -> None:
        self._socket = WebSocket(stream, LARGEST)
        self._stream = stream
        self._address = address
        self._take = take
        self._under_way = under_way
        self._scope = trio.CancelScope()
        self.reason = ""
        """Reason why it is over or needs a successor."""
        self.is_up = False
        self.is_greeted = trio.Event()
        """Slack has greeted, or will not any more."""
        self.needs_successor = trio.Event()
        """Slack has announced its end, or it is over."""
        self.is_over = trio.Event()

    async def run(self) -> None:
        """Receive until the connection ends. Raises nothing."""
        try:
            async with trio.open_nursery() as nursery:
                with self._scope:
                    nursery.start_soon(self._ping)
                    await self._receive(nursery)
                nursery.cancel_scope.cancel()
        finally:
            self.reason = self.reason or "the connection was lost"
            for event in (self.is_over, self.needs_successor, self.is_greeted):
                event.set()
            await trio.aclose_forcefully(self._stream)

    def cut(self) -> None:
        """End the connection now. What was not acknowledged comes again."""
        self._scope.cancel()

    def retire(self) -> None:
        """Give the connection its time to deliver what is on the way.

        Deliveries under way on it may still be acknowledged. What is left then is delivered again on the new
        connection.
        """
        self._scope.deadline = min(self._scope.deadline, trio.current_time() + DRAIN_TIME)

    async def _receive(self, nursery: trio.Nursery) -> None:
        """Read frames until the connection ends. A frame that is no JSON is logged and passed over."""
        path, query = self._address.path or "/", self._address.query
        try:
            await self._socket.connect(self._address.netloc, f"{path}?{query}" if query else path)
        except WebSocketClosed:
            self.reason = "the WebSocket was refused"
            return
        while True:
            try:
                text = await self._socket.receive()
            except (WebSocketClosed, BadMessage):
                return
            try:
                frame = decode_object(text)
            except ValueError:
                _log.warning("a frame of Slack is no JSON object")
                continue
            await self._handle(frame, nursery)

    async def _handle(self, frame: Mapping[str, Any], nursery: trio.Nursery) -> None:
        """Handle a frame: a greeting, the announcement of the end, or something delivered."""
        match frame:
            case {"type": "hello"}:
                self.is_up = True
                self.is_greeted.set()
            case {"type": "disconnect"}:
                self.reason = f"Slack ends the connection: {str(frame.get('reason'))[:80]}"
                self.needs_successor.set()
                self.is_greeted.set()
            case {"type": str(kind), "envelope_id": str(id), "payload": dict(payload)}:
                # Waits while MOST_OPEN deliveries are under way; nothing is read meanwhile, and TCP holds Slack
                # back.
                await self._under_way.acquire_on_behalf_of(token := object())
                # `take` is called here and not in the task, since tasks start in any order.
                nursery.start_soon(self._finish, id, self._take(Delivery(kind, payload)), token)
            case _:
                _log.debug("a frame of Slack is not known", type=str(frame.get("type"))[:40])

    async def _finish(self, id: str, work: Callable[[], Awaitable[None]], token: object) -> None:
        """Do what a delivery asks for, and acknowledge it."""
        try:
            await work()
            # Without its acknowledgement Slack delivers it again, on the next connection, where it is
            # recognised.
            with suppress(WebSocketClosed):
                await self._socket.write([encode_json({"envelope_id": id})])
        except NotKept as error:
            _log.warning("a delivery of Slack was not taken", reason=str(error))
        finally:
            self._under_way.release_on_behalf_of(token)

    async def _ping(self) -> None:
        """End the connection when Slack does not answer a ping."""
        await self.is_greeted.wait()
        while True:
            await trio.sleep(PING_PAUSE)
            silence = trio.current_time() - self._socket.active_at
            # While all places are taken nothing is read, and no pong either.
            if silence >= PING_PAUSE + PONG_TIME and self._under_way.available_tokens:
                self.reason = "the connection is silent"
                self.cut()
            with trio.move_on_after(PONG_TIME), suppress(WebSocketClosed):
                await self._socket.ping()
