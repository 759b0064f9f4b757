"""`MailProxy`: IMAP and SMTP of any server, line by line, so that a bridge is disturbed between two commands.

The steps are what both protocols have anyway: a body is fetched, a flag is stored, the dot at the end of a mail comes, and its answer.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

import attrs
import trio

from pegasus.testing.bridges.steps import Step, StepCut, StepPoints, StepRefused

LITERAL: Final = re.compile(rb"\{(\d+)\+?\}\r\n\Z")
"""End of a line of IMAP behind which so many bytes follow that are no lines."""
BUSY: Final = b"451 4.3.2 try again later\r\n"


@attrs.define(eq=False)
class ByteLines:
    """Lines of a stream, and bytes between them."""

    _stream: trio.abc.ReceiveStream
    _rest: bytes = b""

    async def line(self) -> bytes:
        r"""Return the next line with its \r\n; b"" at the end."""
        while b"\n" not in self._rest:
            if not (data := await self._stream.receive_some(65536)):
                return b""
            self._rest += data
        line, mark, self._rest = self._rest.partition(b"\n")
        return line + mark

    async def exactly(self, count: int) -> bytes:
        """Return so many bytes, or fewer at the end."""
        while len(self._rest) < count:
            if not (data := await self._stream.receive_some(65536)):
                break
            self._rest += data
        data, self._rest = self._rest[:count], self._rest[count:]
        return data


@attrs.define(eq=False)
class _ImapConnection:
    """Steps of one connection of IMAP."""

    _points: StepPoints
    _storing: bytes = b""
    """Tag of the command that stores a flag."""

    async def on_command(self, line: bytes) -> None:
        """Note what the bridge says."""
        tag, _, command = line.upper().partition(b" ")
        if command.startswith(b"UID FETCH") and b"HEADER" not in command:
            await self._points.reach(Step.HANDING_OUT)
        elif command.startswith(b"UID STORE"):
            self._storing = tag
            await self._points.reach(Step.CONFIRMING)

    async def on_answer(self, line: bytes) -> None:
        """Note what the server says."""
        if self._storing and line.upper().startswith(self._storing + b" "):
            self._storing = b""
            await self._points.reach(Step.CONFIRMED)


@attrs.define(eq=False)
class _SmtpConnection:
    """Steps of one connection of SMTP."""

    _points: StepPoints
    _is_data: bool = False
    """Lines are those of a mail."""
    _is_sent: bool = False
    """The mail is with the server, which has not answered."""

    async def on_command(self, line: bytes) -> None:
        """Note what the bridge says."""
        if self._is_data and line == b".\r\n":
            self._is_data = False
            await self._points.reach(Step.SENDING)
            self._is_sent = True

    async def on_answer(self, line: bytes) -> None:
        """Note what the server says."""
        if line.startswith(b"354"):
            self._is_data = True
        elif self._is_sent:
            self._is_sent = False
            await self._points.reach(Step.SENT)


@attrs.define(eq=False)
class MailProxy:
    """Two ports in front of the two ports of a server."""

    points: StepPoints
    imap_port: int = 0
    smtp_port: int = 0

    @asynccontextmanager
    async def open(self, imap_port: int, smtp_port: int) -> AsyncIterator[None]:
        """Listen on loopback for as long as the block lasts."""
        async with trio.open_nursery() as nursery:
            self.imap_port = await nursery.start(self._listen, imap_port, _ImapConnection)
            self.smtp_port = await nursery.start(self._listen, smtp_port, _SmtpConnection)
            try:
                yield
            finally:
                nursery.cancel_scope.cancel()

    async def _listen(
        self,
        port: int,
        make: Callable[[StepPoints], _ImapConnection | _SmtpConnection],
        task_status: trio.TaskStatus[int],
    ) -> None:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")

        async def serve(client: trio.SocketStream) -> None:
            """Carry one connection."""
            with suppress(OSError):
                server = await trio.open_tcp_stream("127.0.0.1", port)
                async with client, server:
                    await self._carry(client, server, make(self.points))

        task_status.started(listeners[0].socket.getsockname()[1])
        await trio.serve_listeners(serve, listeners)

    async def _carry(
        self, client: trio.SocketStream, server: trio.SocketStream, steps: _ImapConnection | _SmtpConnection
    ) -> None:
        """Carry both directions until one of them ends."""
        async with trio.open_nursery() as nursery:

            async def pump(
                source: trio.SocketStream, sink: trio.SocketStream, note: Callable[[bytes], Awaitable[None]]
            ) -> None:
                """Carry one direction; end the connection with it."""
                with suppress(trio.BrokenResourceError, trio.ClosedResourceError, StepCut):
                    try:
                        lines = ByteLines(source)
                        while line := await lines.line():
                            await note(line)
                            await sink.send_all(line)
                            if (literal := LITERAL.search(line)) is not None:
                                await sink.send_all(await lines.exactly(int(literal[1])))
                    except StepRefused:  # of SENDING, so the other side is SMTP
                        await source.send_all(BUSY)
                nursery.cancel_scope.cancel()

            nursery.start_soon(pump, client, server, steps.on_command)
            nursery.start_soon(pump, server, client, steps.on_answer)
