"""Commands in the background: they run while their task thinks and makes other calls, and end with it.

A task owns its background commands: they run in a nursery of the task's actor (`BackgroundCommands`), which the context of every
call carries. So they end with the actor, for whatever reason that ends: the task is over or suspended, `/stop`, a shutdown, a
crash. Below that stands the guard of each command, which ends it also after a kill -9 of the daemon. Nothing of them is stored. A
task that goes on after a restart is told which commands it has lost (`lost_commands` in `pegasus.tasks.core.fsm`).

What a command writes is read all the time and kept in a ring, so a command never blocks on a reader that does not come, and costs
the same memory however much it writes. The model reads it by position: each result begins where the last one ended, and says how
much was lost if the ring had no room for it. Of a terminal the result is its text, without control
sequences (`TerminalText`).

The tools wait for an event, never for the time to pass: new output, or the end. After the first new output they wait until it
pauses, since what belongs together is rarely written in one piece.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import attrs
import trio

from actors import Signal
from pegasus.formatting import truncate
from pegasus.sandbox.autorun import AutorunSnapshot
from pegasus.sandbox.guarded import (
    DEFAULT_OUTPUT,
    NO_SANDBOX,
    CommandLimits,
    GuardedProcess,
    ProcessEnd,
    open_process,
    read_to_end,
)
from pegasus.sandbox.sandbox import Sandbox
from pegasus.sandbox.terminal_text import TerminalText, shown_text
from pegasus.wire import encode_json

MAX_RUNNING: Final = 8
"""Background commands of one task at the same time."""
MAX_REMEMBERED: Final = 16
"""Ended commands of one task whose output can still be read; the oldest are forgotten first."""
MAX_COMMAND_NAME: Final = 80
"""Characters of a command line where commands are listed."""
PAUSE: Final = 0.2
"""Seconds without output after which what was written counts as complete for now."""
LONGEST_GATHERING: Final = 1.5
"""Seconds after the first new output until a result is returned, even if more keeps coming."""
_LONGEST_SEQUENCE: Final = 64
"""Bytes of a control sequence whose rest is waited for."""
_BEGUN: Final = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*)?")
"""Beginning of a control sequence."""
_INPUT_LIMIT: Final = 5.0
"""Seconds that a command has to take its input, before the call says that it does not read."""


class CommandError(Exception):
    """A request that a background command cannot carry out. The text says why, and what would work.

    Example::

        try:
            command = commands.get("c3")
        except CommandError as error:   # "there is no background command 'c3' of this task; there are: c1, c2"
            raise ToolError(str(error)) from error
    """


@attrs.frozen(eq=False, repr=False)
class CommandOutput:
    """The output of a background command since it was last read.

    Example::

        CommandOutput("Listening on 8000")            # all of it
        CommandOutput("…and the end", lost=120_000)   # what came before had no room in the ring
    """

    text: str
    """The next text; of a terminal, the lines that were changed."""
    lost: int = 0
    """Bytes before it that were not kept."""
    waiting: int = 0
    """Bytes after it that did not fit into the result."""


class OutputRing:
    """The newest part of a stream of any length, by position. Memory stays within about twice the limit.

    For example:

        ring = OutputRing(1000)
        ring.add(b"...")
        data, missing = ring.read(0)   # what is kept from position 0 on, and how many bytes before it are lost
    """

    def __init__(self, limit: int = DEFAULT_OUTPUT) -> None:
        """limit: bytes to keep."""
        self._limit = limit
        self._kept = bytearray()
        """At least the newest bytes up to the limit; trimmed only at twice that, so that adding stays cheap."""
        self.total = 0
        """Bytes of the stream so far, which is the position of the next one."""

    def add(self, data: bytes | bytearray) -> None:
        """Take the next bytes of the stream."""
        self.total += len(data)
        # Of a part longer than the limit only the end is copied.
        self._kept += data[-self._limit :]
        if len(self._kept) > 2 * self._limit:
            del self._kept[: -self._limit]

    def read(self, position: int, count: int | None = None) -> tuple[bytes, int]:
        """Return up to `count` bytes from a position on, and the number of bytes that are lost between it and the first of them."""
        first = self.total - min(len(self._kept), self._limit)
        # A position before the ring is no error: the reader is told how much it has missed.
        start = max(position, first)
        at = len(self._kept) - (self.total - start)
        end = len(self._kept) if count is None else at + count
        return bytes(self._kept[at:end]), start - position


class BackgroundCommand:
    """One background command: its output so far, and its end. Made by `BackgroundCommands.start`.

    Example::

        server = await commands.start("python -m http.server", folder, environment, CommandLimits())
        await server.wait_for_news(5.0)
        output = await server.read(4_000)   # CommandOutput("Serving HTTP on …", 0, 0)
        await server.stop()
    """

    def __init__(
        self,
        command_id: str,
        line: str,
        limits: CommandLimits,
        terminal: bool,
        changed: Callable[[BackgroundCommand], None],
    ) -> None:
        """line: the command as the model gave it. terminal: it has one instead of pipes. changed: told at start and end."""
        self.id = command_id
        """Name by which the model calls it, unique in its task: "c1"."""
        self.line = line
        """Command line."""
        self.started_at = trio.current_time()
        """Time of its start."""
        self.end: ProcessEnd | None = None
        """Its end; None while it runs."""
        self.ended = trio.Event()
        """Set when nothing of it is left, and its output is complete."""
        self._tell_change = changed
        self._limits = limits
        self._terminal = terminal
        self._text = TerminalText() if terminal else None
        self._output = OutputRing(limits.output)
        self._position = 0
        """Position in the output up to which it was read."""
        self._process: GuardedProcess | None = None
        self._news = Signal()  # given when there is output, and at the end
        self._stopping = trio.Event()
        self._writing = trio.Lock()  # held by the call that writes to it
        self._reading = trio.Lock()  # held by the call that reads from it
        self._input_ended = False

    @property
    def name(self) -> str:
        """Return the command line in one line, shortened, for lists. Characters that a terminal could act on are replaced."""
        line = " ".join(self.line.split())
        return truncate("".join(each if each.isprintable() else "\ufffd" for each in line), MAX_COMMAND_NAME)

    async def run(
        self,
        cwd: Path,
        env: Mapping[str, str],
        sandbox: Sandbox,
        at_end: Callable[[], Awaitable[object]],
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Run it to its end. Raises ProcessError, before it counts as started. Cancelled: returns when nothing of it is left.

        at_end: called when nothing of it is left, also by a cancel.
        """
        end: ProcessEnd | None = None
        try:
            async with open_process(
                self.line,
                cwd=cwd,
                env=env,
                limits=self._limits,
                stdin=True,
                merged=True,
                terminal=self._terminal,
                sandbox=sandbox,
            ) as process:
                self._process = process
                self._tell_change(self)
                task_status.started()
                try:
                    await read_to_end(process, self._take_output, flood=self._limits.flood, stopping=self._stopping)
                finally:
                    end = await process.stop()
        finally:
            self.end = end
            if self._process is not None:
                self._tell_change(self)
            self.ended.set()
            self._news.notify()
            with trio.CancelScope(shield=True):
                await at_end()

    def _take_output(self, data: bytes | bytearray) -> None:
        """Store output, and wake up those who wait for it."""
        self._output.add(data)
        self._news.notify()

    def request_stop(self) -> None:
        """Begin to end it. Never waits."""
        self._stopping.set()

    async def stop(self) -> None:
        """End it with everything that it has started; returns when nothing of it is left. A cancel does not stop the ending."""
        self._stopping.set()
        await self.ended.wait()

    async def write(self, data: bytes, *, end: bool = False) -> None:
        """Write to its input. end: nothing follows. Raises CommandError if it has ended, has closed its input or does not read it.

        Cancelled, or too late: a part of the text may have been written, and nobody knows which.
        """
        process = self._process
        if self.end is not None or process is None or process.stdin is None:
            raise CommandError(f"{self.id} has ended; nobody reads its input")
        if self._input_ended:
            raise CommandError(f"the input of {self.id} was ended before; nothing can be written to it any more")
        if self._terminal:
            data = data.replace(
                b"\n", b"\r"
            )  # the Enter key; a terminal makes a line break of it unless a program wants the key
        with trio.move_on_after(_INPUT_LIMIT) as scope:
            async with self._writing:
                try:
                    if data:
                        await process.stdin.send_all(data)
                    if end and self._terminal:
                        # The terminal stays open: a program that reads on after ^D gets what is written later.
                        await process.stdin.send_all(b"\x04")
                    elif end:
                        self._input_ended = True
                        await process.stdin.aclose()
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    raise CommandError(f"{self.id} has closed its input; nobody reads it") from None
        if scope.cancelled_caught:
            raise CommandError(f"{self.id} does not read its input; a part of the text may have been written")

    async def wait_for_news(self, seconds: float) -> None:
        """Wait for output that was not read yet, and until it pauses; or for the end, or until `seconds` are over.

        Cancelled: nothing is lost, since reading is a step of its own.
        """
        with trio.move_on_after(seconds):
            while self.end is None and self._output.total == self._position:
                await self._news.wait()
            # A program that writes all the time never pauses, so the gathering has an end of its own.
            with trio.move_on_after(LONGEST_GATHERING):
                paused = False
                while self.end is None and not paused:
                    with trio.move_on_after(PAUSE) as pause:
                        await self._news.wait()
                    paused = pause.cancelled_caught

    async def read(self, room: int) -> CommandOutput:
        """Return the next part of the output. room: characters of JSON that fit into the result.

        What a terminal shows is worked out in a thread; one that is cancelled meanwhile has read what it has read.
        """
        async with self._reading:
            if self._text is None:
                data, lost = self._output.read(self._position, room)
                while len(data) > 1 and len(encode_json(data.decode("utf-8", "replace"))) > room:
                    data = data[: len(data) // 2]  # binary output: escapes take the room of several characters
                # The end of an ended command is returned as it is, even in the middle of a character: no rest will
                # come.
                is_all = self._position + lost + len(data) == self._output.total
                data = data if self.end is not None and is_all else _whole_sequences(_whole_characters(data))
                self._position += lost + len(data)
                text = shown_text(data.decode("utf-8", "replace"))
                return CommandOutput(text, lost, self._output.total - self._position)
            data, lost = self._output.read(self._position)
            self._position += lost + len(data)
            text = await trio.to_thread.run_sync(self._text.read, data)
        # Of a terminal the newest lines count, so what has no room is lost at the beginning.
        shown = text[-room:]
        return CommandOutput(shown, lost + len(text) - len(shown))


def _whole_characters(data: bytes) -> bytes:
    """Return UTF-8 without the first bytes of a character at its end whose rest was not written yet."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:  # the first byte of a character of 2 to 4 bytes
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data[:-back] if back < length else data
        if byte < 0x80:
            break
    return data


def _whole_sequences(data: bytes) -> bytes:
    """Return output without the beginning of a control sequence at its end whose rest was not written yet."""
    cut = data.rfind(b"\x1b", max(0, len(data) - _LONGEST_SEQUENCE))
    return data[:cut] if cut > 0 and _BEGUN.fullmatch(data, cut) else data


class BackgroundCommands:
    """The background commands of one task, in a nursery of its actor.

    For example:

        async with trio.open_nursery() as nursery:
            commands = BackgroundCommands(nursery)
            server = await commands.start("python -m http.server", folder, environment, CommandLimits())
            await server.wait_for_news(5.0)
            await commands.end_all()
    """

    def __init__(self, nursery: trio.Nursery) -> None:
        """nursery: they run in it; its cancel ends them."""
        self.changed: Callable[[], None] = lambda: None
        """Called when one has started or ended; it must not wait."""
        self.names: tuple[str, ...] = ()
        """Id and command line of those that run, for people; oldest first."""
        self.autorun: AutorunSnapshot | None = None
        """Files that programs run by themselves, as they were at the first command of the task; None before it."""
        self.looking = trio.Lock()
        """Lock that is held while those files are looked at anew."""
        self.changed_files: list[str] = []
        """Those of them that commands have changed and that the model was not told about."""
        self._nursery = nursery
        self._commands: dict[str, BackgroundCommand] = {}
        self._starting = 0
        """Commands that count as running but are not among them yet."""
        self._number = 0
        """Number of the newest."""
        self.lost: Mapping[str, str] = {}
        """Commands that a former actor of the task had started, by id: their command lines. They do not run any more."""

    def __iter__(self) -> Iterator[BackgroundCommand]:
        """Iterate over all that are known, oldest first."""
        return iter(tuple(self._commands.values()))

    @property
    def running(self) -> tuple[BackgroundCommand, ...]:
        """Return those that run, oldest first."""
        return tuple(command for command in self._commands.values() if command.end is None)

    def _take_change(self, command: BackgroundCommand) -> None:
        """Note that one has started or ended. The oldest that have ended are forgotten, if there are many."""
        self._commands[command.id] = command
        ended = [command for command in self._commands.values() if command.end is not None]
        for oldest in ended[: max(0, len(ended) - MAX_REMEMBERED)]:
            del self._commands[oldest.id]
        self.names = tuple(f"{command.id} {command.name}" for command in self.running)
        self.changed()

    def remember_lost(self, lost: Mapping[str, str]) -> None:
        """Take over the commands of a former actor of the task, so that no id is used twice and a call for one is explained."""
        self.lost = dict(lost)
        numbers = (int(name[1:]) for name in lost if name[1:].isdecimal())
        self._number = max(self._number, *numbers, 0)

    async def start(
        self,
        line: str,
        cwd: Path,
        env: Mapping[str, str],
        limits: CommandLimits,
        terminal: bool = False,
        sandbox: Sandbox = NO_SANDBOX,
        at_end: Callable[[], Awaitable[object]] = trio.lowlevel.checkpoint,
    ) -> BackgroundCommand:
        """Start a command and return when it runs. Raises ProcessError, and CommandError if there are too many.

        Cancelled: it does not run.

        at_end: called when it has ended, also by a cancel.
        """
        running = len(self.running) + self._starting
        if running >= MAX_RUNNING:
            names = ", ".join(command.id for command in self.running)
            raise CommandError(
                f"{running} background commands are running ({names}), which is the most there may be; stop one first"
            )
        self._number += 1
        command = BackgroundCommand(f"c{self._number}", line, limits, terminal, self._take_change)
        # Counted before the first wait: calls at the same time must not start more than there may be.
        self._starting += 1
        try:
            await self._nursery.start(command.run, cwd, env, sandbox, at_end)
        finally:
            self._starting -= 1
        return command

    def get(self, command_id: str) -> BackgroundCommand:
        """Return a command. Raises CommandError, which says what there is."""
        command = self._commands.get(command_id)
        if command is not None:
            return command
        if command_id in self.lost:
            raise CommandError(f"{command_id} ({self.lost[command_id]}) does not run any more: {LOST}")
        known = ", ".join(self._commands) or "none"
        raise CommandError(f"there is no background command {command_id!r} of this task; there are: {known}")

    def request_end(self) -> None:
        """Begin to end all of them. Never waits."""
        for command in self.running:
            command.request_stop()

    async def end_all(self) -> None:
        """End all of them at the same time; returns when nothing of them is left.

        Cancelled: they are ended all the same, since a stop is not taken back.
        """
        async with trio.open_nursery() as nursery:
            for command in self.running:
                nursery.start_soon(command.stop)


LOST: Final = "background commands end when their task is suspended or over, and when the agent stops; start it again if it is needed"
"""Reason for which a command of a former actor of the task is gone, for the model."""
