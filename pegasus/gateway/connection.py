"""One client from its first byte to its last: who it is, what it says, and the one task that writes to it.

What it says is handled in the task that reads it, one frame at a time; what takes time (the disk, a control-plane call)
is answered later through the outgoing queue, and the reader stops where too many answers are outstanding.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

import trio

from actors import ActorError, Answer
from pegasus.gateway import render
from pegasus.gateway.control import CALLS_UNDER_WAY, Caller, answer_call
from pegasus.gateway.frames import Call, FrameError, Hello, read_frame, read_hello
from pegasus.gateway.outgoing import Outgoing
from pegasus.gateway.replies import Replies
from pegasus.gateway.websocket import Headers, ServerSocket
from pegasus.gateway.writer import Writer
from pegasus.intake import JOURNAL_TIMEOUT, Denied, InvalidMessage
from pegasus.messages import InboundMessage
from pegasus.observe import get_logger
from pegasus.protocol import BAD_HELLO, GOING_AWAY, SERVER_ERROR, SUBPROTOCOL, TOO_LARGE, TRY_LATER, UNAUTHORIZED
from pegasus.storage import Accepted, Acknowledge, Connected, Disconnected, Overloaded, StorageError

if TYPE_CHECKING:
    from pegasus.gateway.hub import Hub


_log = get_logger("gateway")


class Connection:
    """A client's connection; `run` is its life. hello: who it is, None before it has said so."""

    def __init__(self, hub: Hub, stream: trio.SocketStream, *, refused: str = "") -> None:
        config = hub.config
        self.hello: Hello | None = None
        self.replies: Replies | None = None
        self.greeted = False
        self.heard_at = self.pinged_at = trio.current_time()
        self.outgoing = Outgoing(config.queue_frames, config.queue_bytes)
        self._hub = hub
        self._refused = refused
        self._bearer: str | None = None
        self._calls = 0
        self._open = False
        self._announced = False
        self._settled = trio.Event()
        self._scope = trio.CancelScope()
        self._nursery: trio.Nursery
        self._socket = ServerSocket(stream, self, subprotocol=SUBPROTOCOL, max_bytes=config.max_frame_bytes)
        self._writer = Writer(self._socket, self.outgoing, config.send_timeout, self)

    async def run(self) -> None:
        """Serve the client until it has gone; the caller closes the stream."""
        try:
            with self._scope:
                async with trio.open_nursery() as self._nursery:
                    self._nursery.start_soon(self._read)
                    self._nursery.start_soon(self._write)
                    await self._wait_for_hello()
        finally:
            await self._leave()

    def close(self, code: int, reason: str, *, flush: bool = True) -> None:
        """End it: what is queued is still written (flush), then goodbye is said, all within the close timeout."""
        self.outgoing.close(code, reason, flush=flush)
        self._settled.set()
        self._scope.deadline = min(self._scope.deadline, trio.current_time() + self._hub.config.close_timeout)

    def cut(self) -> None:
        """End it at once, without goodbye."""
        self._scope.cancel()

    def push(self, frame: str) -> None:
        """Queue a frame; a client whose queue is full is disconnected. What it misses waits in the outbox."""
        if self.outgoing.push(frame):
            return
        _log.warning("a client does not read; it is disconnected", client=str(self), queued=len(self.outgoing))
        self.close(TRY_LATER, "you do not read; the replies are kept for you", flush=False)

    def __str__(self) -> str:
        if self.hello is None:
            return "not greeted"
        return f"{self.hello.type} bridge" if self.hello.channel is None else str(self.hello.channel.address)

    # ---------------------------------------------------------------- what the client says (websocket.Listener)

    def heard(self) -> None:
        self.heard_at = trio.current_time()

    async def opened(self, headers: Headers) -> None:
        self._open = True
        fields = {name.lower(): value.decode("utf-8", "replace") for name, value in headers}
        origin = fields.get(b"origin")
        scheme, _, credentials = fields.get(b"authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            self._bearer = credentials.strip()
        if self._refused:
            self._refuse("overloaded", self._refused, TRY_LATER)
        elif origin is not None and origin not in self._hub.config.origins:
            self._refuse(
                "unauthorized",
                f"Origin: found {origin[:100]!r}, which is not in gateway.allowed_origins of the settings",
                UNAUTHORIZED,
            )

    async def text(self, data: str) -> None:
        if self.outgoing.closing is not None:
            return
        if self.hello is None:
            await self._greet(data)
            return
        try:
            frame = read_frame(data, self.hello)
        except FrameError as error:
            await self._answer(render.error(error.code, error.message, error.id))
            return
        match frame:
            case InboundMessage():
                await self._message(frame)
            case Acknowledge():
                await self._hub.journal.tell(frame)
            case Call():
                await self._call(frame, self.hello)

    async def binary(self) -> None:
        if self.hello is None:
            self._refuse("unauthorized", "the first frame must be a hello; found a binary frame", UNAUTHORIZED)
        else:
            await self._answer(render.error("bad_frame", "found a binary frame, allowed: JSON objects in text frames"))

    async def too_large(self) -> None:
        limit = self._hub.config.max_frame_bytes
        message = f"found a frame of more than {limit} bytes, allowed: gateway.max_frame_bytes = {limit}"
        self._refuse("too_large", message, TOO_LARGE)

    async def broken(self, code: int, reason: str) -> None:
        if self._open:
            self._refuse("bad_frame", f"found bytes that are no WebSocket text: {reason}", code)
        else:
            self.cut()

    # ---------------------------------------------------------------- hello

    async def _wait_for_hello(self) -> None:
        timeout = self._hub.config.hello_timeout
        with trio.move_on_after(timeout):
            await self._settled.wait()
            return
        if self._open:
            self._refuse("unauthorized", f"no hello within {timeout:g} s", UNAUTHORIZED)
        else:
            self.cut()

    async def _greet(self, data: str) -> None:
        try:
            hello = read_hello(data)
        except FrameError as error:
            self._refuse(error.code, error.message, UNAUTHORIZED if error.code == "unauthorized" else BAD_HELLO)
            return
        why = self._not_welcome(hello)
        if why:
            self._refuse("unauthorized", why, UNAUTHORIZED)
            return
        self._settled.set()
        try:
            await self._join(hello)
        except (ActorError, StorageError) as error:
            _log.error("a client could not be greeted: the journal does not answer", error=str(error))
            self._refuse("internal", "the journal does not answer; try again", SERVER_ERROR)

    def _not_welcome(self, hello: Hello) -> str:
        import hmac

        token = self._bearer if hello.token is None else hello.token
        if token is None:
            return "no token, neither in hello nor as Authorization: Bearer"
        if not hmac.compare_digest(token.encode("utf-8", "replace"), self._hub.config.token.encode()):
            return "wrong token; the right one is in the file `token` of the agent's home directory"
        if hello.channel is not None:
            try:
                self._hub.intake.check_access(hello.channel)
            except Denied as error:
                return str(error)
        return ""

    async def _join(self, hello: Hello) -> None:
        journal = self._hub.journal
        self.hello = hello
        self.replies = Replies(self, self._hub, hello)
        self._hub.routes.add(hello, self)  # first, so that no reply falls between the journal's answer and the pushes
        await journal.tell(Connected(hello.type, hello.channel.channel_id if hello.channel else None))
        self._announced = True
        seq = await self.replies.greet()
        self.outgoing.answer(render.welcome(self._hub.config.agent, hello, seq))
        self.greeted = True
        self.start(self.replies.first)

    async def _leave(self) -> None:
        if self.hello is None:
            return
        self._hub.left(self, self.hello)
        if not self._announced:
            return
        with trio.move_on_after(1.0) as scope:
            scope.shield = True
            channel = self.hello.channel
            await self._hub.journal.tell(Disconnected(self.hello.type, channel.channel_id if channel else None))

    def _refuse(self, code: str, message: str, close: int) -> None:
        _log.info("refused a client", client=str(self), code=code, why=message)
        self.outgoing.answer(render.error(code, message))
        self.close(close, message if len(message) < 100 else code)

    # ---------------------------------------------------------------- frames after hello

    async def _message(self, message: InboundMessage) -> None:
        await self.outgoing.slot()
        try:
            answer = await self._hub.intake.send(message)
        except (InvalidMessage, Denied) as error:
            self.outgoing.answer(render.error("bad_frame", f"not accepted: {error}", message.id))
        except ActorError as error:
            self.outgoing.answer(_not_accepted(message.id, error))
        else:
            self.outgoing.answer(partial(_accepted, message.id, answer))

    async def _call(self, call: Call, hello: Hello) -> None:
        if self._calls >= CALLS_UNDER_WAY:
            message = f"{CALLS_UNDER_WAY} calls are under way already; wait for a result"
            await self._answer(render.error("overloaded", message, call.id))
            return
        self._calls += 1
        self.start(partial(self._run_call, Caller.of(hello), call))

    async def _run_call(self, caller: Caller, call: Call) -> None:
        try:
            await self._answer(await answer_call(self._hub.methods, caller, call))
        finally:
            self._calls -= 1

    async def _answer(self, frame: str) -> None:
        await self.outgoing.slot()
        self.outgoing.answer(frame)

    # ---------------------------------------------------------------- tasks

    def start(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run something that ends with the connection; nothing, if that has ended."""
        if not self._scope.cancel_called:  # afterwards the nursery may be closed, while the hub still knows us
            self._nursery.start_soon(work)

    async def _read(self) -> None:
        await self._socket.run()
        self.close(GOING_AWAY, "the client has gone")

    async def _write(self) -> None:
        try:
            await self._writer.run()
        finally:
            self.cut()


async def _accepted(id: str, answer: Answer[Accepted | Overloaded]) -> str:
    """The answer to a message, once the journal has given its own."""
    try:
        result = await answer.get(JOURNAL_TIMEOUT)
    except StorageError as error:
        return render.error("internal", f"not accepted, disk: {error}", id)
    except ActorError as error:
        return _not_accepted(id, error)
    if isinstance(result, Overloaded):
        message = f"not accepted, {result.waiting} messages are waiting already; send it again later"
        return render.error("overloaded", message, id)
    return render.accepted(id)


def _not_accepted(id: str, error: ActorError) -> str:
    return render.error("internal", f"not accepted, the journal does not answer ({error.why}); send it again", id)
