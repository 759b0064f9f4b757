"""Transport to a server that is a program: JSON-RPC messages as lines on its stdin and stdout.

It takes the place of the SDK's own `stdio_client` for three reasons. The program runs below a guard (`pegasus.sandbox`), so nothing
that it has started outlives the connection, whatever it ignores. Everything that it writes is bounded: lines, lines that are no
messages, messages that nobody has asked for, and what it writes to stderr. And messages to it wait in a queue, so a call can be
cancelled at once though the program does not read.

Imports the SDK, so it is imported late (see `server`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final

import anyio
import attrs
import trio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCRequest, JSONRPCResponse, jsonrpc_message_adapter

from pegasus.mcp.faults import LARGEST_MESSAGE, MOST_GARBAGE, FloodGuard, ServerDown
from pegasus.mcp.listing import clean
from pegasus.sandbox import CommandLimits, GuardedProcess, ProcessError, Sandbox, open_process

QUEUED: Final = 256
"""Messages that may wait for a program that does not read its stdin."""
END_WITHIN: Final = 1.0
"""Seconds in which a program ends that has closed its stdout."""
LOGGED_LINES: Final = 200
"""Lines of a program's stderr that are passed on for one connection; the rest is read and dropped."""
LONGEST_LINE: Final = 500
"""Characters of such a line."""
FREE_ERRORS: Final = 1 << 20
"""Bytes of stderr that are read as fast as they come."""
ERROR_RATE: Final = 64 << 10
"""Bytes a second that are read of the rest."""
SHOWN_LINES: Final = 3
"""Last lines of stderr that the reason of a program's end repeats."""

Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


@attrs.frozen(eq=False, repr=False)
class ServerProgram:
    """A program to run.

    Example::

        program = ServerProgram(("npx", "-y", "some-server"), folder, environment, sandbox, log_line, 2.0)
        async with open_program(program) as (incoming, outgoing): ...
    """

    command: tuple[str, ...]
    """The program and its arguments."""
    cwd: str
    """Its working directory."""
    env: Mapping[str, str]
    """Its environment, all of it."""
    sandbox: Sandbox
    """Walls around it."""
    log_line: Callable[[str], None]
    """Gets lines of its stderr, cleaned and bounded."""
    grace: float
    """Seconds that it has to end after its stdin was closed and it was asked to."""


@asynccontextmanager
async def counted_streams(
    incoming: AsyncIterator[tuple[SessionMessage | Exception | None, int]],
    write: Callable[[SessionMessage], Awaitable[object]],
) -> AsyncIterator[Streams]:
    """Yield the streams that the SDK's client reads and writes, between which and a server the messages are counted.

    incoming: what the server sends, each with the bytes that count; None is not passed on. write: sends a message to the server.

    The stream to the session holds no message (0): a session that is slow slows down the server, and nothing piles up
    here. The stream from the session holds QUEUED ones, so that a call can be cancelled while the server does not read.
    """
    to_session, session_reads = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    session_writes, from_session = anyio.create_memory_object_stream[SessionMessage](QUEUED)
    flood = FloodGuard()

    async def read_all() -> None:
        """Pass on what the server sends. Only the first answer to a request is free, everything else counts."""
        async for item, size in incoming:
            message = item.message if isinstance(item, SessionMessage) else None
            flood.count(size, message.id if isinstance(message, JSONRPCResponse | JSONRPCError) else None)
            if item is not None:
                try:
                    await to_session.send(item)
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    raise ServerDown("the connection was closed") from None
        raise ServerDown("it closed the connection")

    async def write_all() -> None:
        """Pass on what the session sends, and remember the ids of its requests."""
        async for item in from_session:
            if isinstance(item.message, JSONRPCRequest):
                flood.expect(item.message.id)
            await write(item)

    with to_session, session_reads, session_writes, from_session:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read_all)
            nursery.start_soon(write_all)
            yield session_reads, session_writes
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def open_program(program: ServerProgram) -> AsyncIterator[Streams]:
    """Run a program; yield the streams that the SDK's client reads and writes. On leaving the block nothing of it is left.

    Raises ServerDown (within a group) if it cannot be started, ends, or breaks a limit; the block is cancelled then.
    """
    limits = CommandLimits(grace=program.grace)
    try:
        async with open_process(
            program.command, cwd=program.cwd, env=program.env, limits=limits, stdin=True, sandbox=program.sandbox
        ) as process:
            pipe = _Pipe(process, program)
            async with trio.open_nursery() as nursery, counted_streams(pipe.messages(), pipe.write) as streams:
                nursery.start_soon(pipe.read_errors)
                yield streams
                nursery.cancel_scope.cancel()
    except ProcessError as error:
        raise ServerDown(str(error)) from None


class _Pipe:
    """The three streams of a program: messages to and from it, and lines of its stderr."""

    def __init__(self, process: GuardedProcess, program: ServerProgram) -> None:
        self._process = process
        self._program = program
        self._garbage = 0
        """Lines that were no messages."""
        self._last_errors: list[str] = []
        """Last lines of stderr."""

    async def write(self, item: SessionMessage) -> None:
        """Write a message. One for a program that has closed its stdin is dropped: it is about to end, which the reader notices."""
        assert self._process.stdin is not None  # noqa: S101
        line = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await self._process.stdin.send_all(line)

    async def messages(self) -> AsyncIterator[tuple[SessionMessage | None, int]]:
        """Yield messages of the program and their sizes, until it ends. Raises ServerDown then. None: a line that is no message."""
        buffer = bytearray()
        while data := await self._process.stdout.receive_some():
            start = len(buffer)
            buffer += data
            while (end := buffer.find(b"\n", start)) >= 0:
                # Blank lines are allowed: some programs end lines with CR LF, or print an empty one.
                line, start = bytes(buffer[:end]).strip(), 0
                del buffer[: end + 1]
                if line:
                    yield self._parse(line), len(line)
            if len(buffer) > LARGEST_MESSAGE:
                raise ServerDown(f"it sent a message of more than {LARGEST_MESSAGE >> 20} MB")
        # The session's stream stays open meanwhile, so that the reason is known before anybody hears of a closed connection.
        with trio.move_on_after(END_WITHIN) as scope:
            ended = await self._process.wait()
        if scope.cancelled_caught:
            raise ServerDown("the program closed its stdout")
        how = f"by the signal {ended.signal}" if ended.signal else f"with exit code {ended.exit_code}"
        words = "".join(f"; {line}" for line in self._last_errors)
        raise ServerDown(f"the program ended {how}{words}")

    def _parse(self, line: bytes) -> SessionMessage | None:
        """Return the message of a line. What a program prints by mistake is dropped, but counts as unasked for. Raises ServerDown."""
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError:
            self._garbage += 1
            if self._garbage > MOST_GARBAGE:
                raise ServerDown("it writes to its stdout what is no message of the protocol") from None
            return None

    async def read_errors(self) -> None:
        """Read stderr to its end. Its first lines are logged, its last ones kept for the reason of the end.

        A program that writes without end is read slowly, which costs it time and us nothing.
        """
        assert self._process.stderr is not None  # noqa: S101
        logged, total, rest = 0, 0, b""
        async for data in self._process.stderr:
            total += len(data)
            if total > FREE_ERRORS:
                await trio.sleep(len(data) / ERROR_RATE)
            *lines, rest = (rest + data).split(b"\n")
            # A line without end must not fill the memory. Four bytes are the most of a character.
            rest = rest[-4 * LONGEST_LINE :]
            for line in lines[-LOGGED_LINES:]:
                text = clean(line.decode(errors="replace"), LONGEST_LINE)
                if not text:
                    continue
                # Kept also after LOGGED_LINES, since the last lines tell most about the end.
                self._last_errors = [*self._last_errors[1 - SHOWN_LINES :], text]
                logged += 1
                if logged <= LOGGED_LINES:
                    self._program.log_line(text)
