"""`Connection`: one client from its first byte to its last.

Three tasks work for it. The *reader* handles one frame after the other (`requests`), and stops where too many answers are
outstanding. The *writer* is the only one that writes frames. The *main task* watches the time: the hello must come soon, and a
connection that is closing must end soon. After the hello two more read replies from the journal (`ReplyFeed.run`) and ping a
silent client.

The order of the steps at the hello matters. The client's feed joins the hub first, so that no reply is missed while the journal
is read. Then the journal is asked for the number of the last reply, and the welcome is queued. Only then does the feed queue replies.

When the client goes, frames that it had sent whole are still answered: a message in the journal's mailbox is accepted whether or
not its sender waits for the answer. Cancelled, the connection is cut without a close frame, and removed from the hub.
"""

from __future__ import annotations

import math
from contextlib import ExitStack, suppress
from typing import Final

import attrs
import trio

from actors import ActorError
from pegasus.access import MESSAGE, AccessDenied, TokenGrant
from pegasus.formatting import quote
from pegasus.gateway.config import HELLO_BYTES
from pegasus.gateway.reply_feed import ReplyFeed
from pegasus.gateway.requests import Requests, error_frame, read_hello
from pegasus.gateway.send_queue import SendQueue
from pegasus.gateway.services import GatewayServices, ServeConnection
from pegasus.observe import get_logger
from pegasus.protocol import (
    BAD_HELLO,
    GOING_AWAY,
    PROTOCOL,
    SERVER_ERROR,
    SUBPROTOCOL,
    TOO_LARGE,
    TRY_LATER,
    UNAUTHORIZED,
    BadFrame,
    HelloFrame,
    WebSocketClosed,
    WelcomeFrame,
    encode_frame,
)
from pegasus.storage import StorageError
from pegasus.websocket import BROKEN_STREAM, BadMessage, Headers, WebSocket

LINGER: Final = 2.0
"""Seconds that a client whose bytes are no WebSocket frames gets to read the reason, before the connection is cut."""
REVOKED_TIME: Final = 1.0
"""Seconds in which a client whose token was revoked may read that; then it is cut."""

_log = get_logger("gateway")


class Connection:
    """One client. Make it with an accepted stream, `run` it, then close the stream.

    place: closed when the client has greeted. refusal: why the client is refused once its handshake is done, "" if it is welcome.
    visitor: the question of the HTTP server; None: it has connected to the gateway's own port.
    """

    def __init__(
        self,
        services: GatewayServices,
        stream: trio.abc.Stream,
        place: ExitStack,
        refusal: str,
        visitor: ServeConnection | None,
    ) -> None:
        self._is_open = False
        """The WebSocket handshake is done, so errors and close frames can be sent."""
        self._services = services
        self._config = services.config
        self._place = place
        self._refusal = refusal
        """Reason why the client is refused after the handshake; "" if it is not."""
        self._visitor = visitor
        self._queue = SendQueue(self._config.now.queue_frames, self._config.now.queue_bytes)
        self._stream = stream
        compresses = self._config.now.compression
        self._socket = WebSocket(stream, HELLO_BYTES, takes_fragments=False, compresses=compresses)
        self._bearer: str | None = None
        """The token of the handshake's Authorization header."""
        self._requests: Requests | None = None
        """Handles the client's frames; None before the hello."""
        self._feed: ReplyFeed | None = None
        """The client's replies; None before the hello."""
        self._settled = trio.Event()
        """Set by a good hello, or when the connection closes before one."""
        self._scope = trio.CancelScope()
        """Around everything that this connection does; cancelled by `cut`, or by its deadline when closing takes too long."""
        self._nursery: trio.Nursery
        """The tasks named at the top of this file, and one for each running call."""

    async def run(self) -> None:
        """Serve the client until it has gone. The caller closes the stream.

        The hub is left last, and even when this is cancelled: otherwise replies would go to a client that has gone, instead of
        to the bridges of its type.
        """
        try:
            with self._scope:
                async with trio.open_nursery() as self._nursery:
                    self._nursery.start_soon(self._read)
                    self._nursery.start_soon(self._write)
                    await self._wait_for_hello()
                    await self._queue.closed.wait()
                    # The writer still works: it empties the queue and shakes hands for the end. This deadline holds for
                    # all of that together.
                    self._scope.deadline = trio.current_time() + self._config.now.close_timeout
        finally:
            if self._feed is not None:
                await self._services.hub.leave(self._feed)

    def close(self, code: int, reason: str) -> None:
        """End the connection: what is queued is still written, then the close frame is sent, all within the close timeout."""
        self._queue.close(code, reason)
        self._settled.set()

    def cut(self) -> None:
        """End the connection at once, without a close frame."""
        self._scope.cancel()

    # ---------------------------------------------------------------- tasks

    async def _read(self) -> None:
        """Read until the client has gone, or has sent what is no WebSocket frame."""
        try:
            handshake = self._visitor.handshake if self._visitor is not None else None
            self._look_at(await self._socket.accept(SUBPROTOCOL, handshake))
            while True:
                text = await self._socket.receive()
                # The client may have sent this before it learned of the refusal. Carrying it out would answer into a
                # closed queue.
                if self._queue.closing is None:
                    await self._handle(text)
        except BadMessage as error:
            self._refuse_bytes(error)
            await self._socket.drop()
        except WebSocketClosed:
            pass
        # The queue is closed so that the writer ends. What waits in it is lost with the connection; replies are still
        # in the outbox.
        self.close(GOING_AWAY, "the client has gone")

    async def _write(self) -> None:
        """Write until the queue is closed and empty, then close the connection."""
        is_reachable = await self._queue.write_to(self._socket, self._config.now.send_timeout)
        if self._queue.closing is not None and is_reachable:
            await self._finish(*self._queue.closing)
        self.cut()

    async def _finish(self, code: int, reason: str) -> None:
        """Send the close frame, and wait until the client has gone. One that sends no frames gets a moment to read the reason."""
        if not self._is_open:
            return
        await self._socket.close(code, reason)
        with trio.move_on_after(LINGER if self._socket.is_broken else math.inf), suppress(*BROKEN_STREAM):
            if self._socket.is_broken and isinstance(self._stream, trio.abc.HalfCloseableStream):
                await self._stream.send_eof()
            await self._socket.ended.wait()

    async def _wait_for_hello(self) -> None:
        """Return when the client has greeted, or when the connection is closing; refuse it if neither happens in time."""
        with trio.move_on_after(self._config.now.hello_timeout):
            await self._settled.wait()
            return
        if self._is_open:
            self._refuse("unauthorized", f"no hello within {self._config.now.hello_timeout:g} s", UNAUTHORIZED)
        else:
            self.cut()

    async def _keep_alive(self) -> None:
        """Ping the client whenever it has been silent for a while, and cut it off if it does not answer.

        Without it a client whose machine was switched off would be kept until TCP gives up, which may take hours; its replies
        would go to it instead of to a bridge.
        """
        interval = self._config.now.keepalive
        while True:
            if trio.current_time() < self._socket.active_at + interval:
                await trio.sleep_until(self._socket.active_at + interval)
                continue
            pinged_at = trio.current_time()
            # A client that does not read may have filled the socket's buffer. Then the ping waits, and that counts as
            # silence.
            with trio.move_on_after(interval):
                try:
                    await self._socket.ping()
                except WebSocketClosed:
                    return
            await trio.sleep_until(pinged_at + interval)
            if self._socket.active_at < pinged_at:
                client, seconds = self._queue.client, round(2 * interval)
                _log.info("a client does not answer pings; it is cut off", client=client, seconds=seconds)
                self.cut()

    # ---------------------------------------------------------------- what the client does

    def _look_at(self, headers: Headers) -> None:
        """Look at the handshake's headers: a browser's page must be an allowed one; the token may be among them."""
        self._is_open = True
        fields = {name.lower(): value.decode("utf-8", "replace") for name, value in headers}
        origin = fields.get(b"origin")
        scheme, _, credentials = fields.get(b"authorization", "").partition(" ")
        # The token is only kept here. It is compared with the hello, because what it allows depends on the channel that
        # is named there.
        if scheme.lower() == "bearer":
            self._bearer = credentials.strip()
        if self._refusal:
            self._refuse("overloaded", self._refusal, TRY_LATER)
        elif self._visitor is None and origin is not None and origin not in self._config.now.origins:
            message = f"Origin: found {quote(origin, 100)}, which is not in gateway.allowed_origins of the settings"
            self._refuse("unauthorized", message, UNAUTHORIZED)

    async def _handle(self, text: str | bytes) -> None:
        """Handle a frame: the hello, or what may follow it. A binary one is refused."""
        match text, self._requests:
            case bytes(), None:
                self._refuse("unauthorized", "the first frame must be a hello; found a binary frame", UNAUTHORIZED)
            case bytes(), _:
                message = "found a binary frame, allowed: JSON objects in text frames"
                await self._queue.answer(error_frame("bad_frame", message))
            case str(), None:
                await self._greet(text)
            case str(), Requests():
                await self._requests.handle(text)

    def _refuse_bytes(self, error: BadMessage) -> None:
        """End a connection for a frame beyond the limits, or for bytes that are no frames.

        Before the hello a large frame is `unauthorized`, for no other frame is allowed there.
        """
        if error.code != TOO_LARGE:
            self._refuse("bad_frame", f"found bytes that are no WebSocket text: {error.reason}", error.code)
        elif self._requests is None:
            message = f"the first frame must be a hello in one piece, of at most {HELLO_BYTES} bytes"
            self._refuse("unauthorized", message, UNAUTHORIZED)
        else:
            limit = self._config.now.max_frame_bytes
            message = f"found a frame of more than {limit} bytes, allowed: gateway.max_frame_bytes = {limit}"
            self._refuse("too_large", message, TOO_LARGE)

    # ---------------------------------------------------------------- hello

    async def _greet(self, data: str) -> None:
        """Handle the first frame: admit the client, or refuse it.

        Once it has shown the token, its place among the newcomers is free, and the larger limits apply to it.
        """
        try:
            hello = read_hello(data)
        except BadFrame as error:
            self._refuse(error.code, error.message, UNAUTHORIZED if error.code == "unauthorized" else BAD_HELLO)
            return
        try:
            grant = await self._grant_of(hello)
            objection = self._reason_to_refuse(hello) if grant is None else await self._refusal_of(grant, hello)
        except (ActorError, StorageError) as error:
            # Not a refusal for good, which ends clients and bridges: they come again.
            self._refuse("internal", f"cannot tell whether you may come in: {error}; try again", SERVER_ERROR)
            return
        if grant is None or objection:
            self._refuse("unauthorized", objection, UNAUTHORIZED)
            return
        hello = self._as_granted(hello, grant)
        self._requests = Requests(hello.channel, grant, self._services, self._queue, self._nursery)
        self._nursery.start_soon(self._end_when_revoked, grant)
        self._queue.client = str(hello.channel)
        self._socket.max_bytes = self._config.now.max_frame_bytes
        self._socket.takes_fragments = True
        self._place.close()
        self._settled.set()
        try:
            await self._welcome(hello, grant)
        except (ActorError, StorageError) as error:
            _log.error("a client could not be greeted: the journal does not answer", error=str(error))
            self._refuse(
                "internal",
                "the journal does not answer, since its disk or its database does not; try again",
                SERVER_ERROR,
            )

    async def _welcome(self, hello: HelloFrame, grant: TokenGrant) -> None:
        """Queue the welcome, then start the tasks that a greeted client has. Raises ActorError, StorageError."""
        sent = self._requests.sent if self._requests is not None else ()
        self._feed = await self._services.hub.join(hello, self._queue, grant, sent)
        seq = await self._feed.look_up_seqs()
        self._queue.put(encode_frame(WelcomeFrame(PROTOCOL, self._config.now.agent, hello.channel, seq)))
        if grant.gets_replies:
            self._nursery.start_soon(self._feed.run)
        if grant.gets_replies and not hello.calls_only:
            self._nursery.start_soon(self._services.hub.show_what_is_open, self._feed)
        self._nursery.start_soon(self._keep_alive)

    async def _grant_of(self, hello: HelloFrame) -> TokenGrant | None:
        """Return the rights of the token that a client shows; None without one that counts.

        The token in the hello counts more than that of the handshake, and that more than a cookie. Raises ActorError and StorageError.
        """
        token = self._bearer if hello.token is None else hello.token
        if token is None:
            return self._visitor.grant if self._visitor is not None else None
        return await self._config.now.find_grant(token)

    def _reason_to_refuse(self, hello: HelloFrame) -> str:
        """Return why a hello without a good token is refused."""
        if self._bearer is None and hello.token is None:
            return "no token, neither in hello nor as Authorization: Bearer"
        return (
            "wrong token; the owner's is in the file `token` of the agent's home directory, and "
            "the command `token add NAME` makes one for another client"
        )

    async def _refusal_of(self, grant: TokenGrant, hello: HelloFrame) -> str:
        """Return why a client with a good token may not greet as this channel, "" if it may.

        A bridge is not looked up in the rules of access; each of its messages is. Raises ActorError and StorageError.
        """
        hello = self._as_granted(hello, grant)
        refusal = grant.refusal(hello.channel.type, hello.channel.channel_id)
        channel = hello.channel.info
        if not refusal and channel is not None:
            try:
                await self._services.intake.check_connect(channel, grant)
            except AccessDenied as error:
                return str(error)
        return refusal

    def _as_granted(self, hello: HelloFrame, grant: TokenGrant) -> HelloFrame:
        """Return the hello with the conversation of the token, if it names none or comes from a page.

        The page is the same for everybody who has signed in, so it names the owner's conversation.
        """
        channel = hello.channel
        is_page = self._visitor is not None and grant is self._visitor.grant
        if grant.channel_id and (is_page or channel.channel_id is None):
            hello = attrs.evolve(hello, channel=attrs.evolve(channel, channel_id=grant.channel_id))
        # A client that may only read acknowledges nothing: what it says about the replies it has would count as an
        # acknowledgement.
        return hello if grant.allows(MESSAGE) else attrs.evolve(hello, last_seq=None, last_seqs={})

    async def _end_when_revoked(self, grant: TokenGrant) -> None:
        """End the connection when its token counts no more. Replies that are queued for it are not written any more."""
        await grant.revoked.wait()
        self._queue.drop()
        message = f"the token {quote(grant.name)} was revoked; ask the owner for another one"
        self._refuse("unauthorized", message, UNAUTHORIZED)
        await trio.sleep(REVOKED_TIME)
        self.cut()

    def _refuse(self, code: str, message: str, close_code: int) -> None:
        """Send an error and end the connection. The close frame's reason may have 123 bytes, so a long message is not repeated."""
        self._services.refusals.log(self._queue.client, code, message)
        self._queue.put(error_frame(code, message))
        self.close(close_code, message if len(message) < 100 else code)
