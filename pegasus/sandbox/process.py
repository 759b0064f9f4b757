"""Running a command to its end, to the end of its time, or until it waits for keys, and keeping the beginning and end of its output.

The command runs below a guard (`pegasus.sandbox.guarded`). It is ended with everything that it has started in
six cases: the command itself ends, its timeout is over, the call is cancelled, it writes too much, it waits for somebody to type, and
the daemon is gone. Only when nothing of it is left, the call returns.

The output is read all the time, also while everything is being ended, so that a program that cleans up never blocks on a full
pipe. After that the pipes end by themselves, since nobody is left who could write; only a process that has escaped can
hold one open, and is not waited for long.

**Waiting for keys.** Nobody can type here, so programs that wait for it are told apart (`KeyWaits`): editors, pagers, prompts.
A terminal says itself what it is read for: single keys (editors, pagers, the line editing of interpreters) or what is typed without
being shown. Neither is a proof, since a program that works may have set its terminal so, but one that then writes nothing for some
seconds waits. A program that fills the screen may write all the time, as `top` does. Whoever reads whole lines is told that there are
none, by the character that ends the input.

A program that only passes keys on to another one (`sudo`, `ssh`, `docker run`) has its terminal so all the time, whatever that other
one does, and is left alone.

Without a terminal most programs find out by themselves that nobody types. Those that do not (`vi`) move the cursor over a screen that
is not there, and then are silent.
"""

from __future__ import annotations

import codecs
import math
import re
import termios
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs
import trio

from pegasus.sandbox.guarded import (
    DEFAULT_OUTPUT,
    NO_SANDBOX,
    CommandLimits,
    GuardedProcess,
    TakeOutput,
    open_process,
    read_to_end,
)
from pegasus.sandbox.sandbox import Sandbox
from pegasus.sandbox.terminal_text import TerminalText, shown_text

MOST_DRAWN: Final = 256 * 1024
"""Bytes that are kept of each stream before it is worked out what a terminal shows of them in the end."""
_CONTINUATION_BYTES: Final = bytes(range(0x80, 0xC0))
"""Bytes of UTF-8 that continue a character."""
_END_OF_COLOUR: Final = re.compile(rb"\A\[?[0-9;]{0,16}m")
"""End of a control sequence whose beginning is left out."""


@attrs.frozen(eq=False, repr=False)
class CommandResult:
    """The end of a command and its output.

    Example::

        result = await run_process("make test", cwd=folder, env=environment, timeout=60.0)
        result.exit_code   # 0; 124 and timed_out after 60 seconds
        result.stdout      # its beginning and its end, if it was long
    """

    exit_code: int
    """The exit code; 128 + number after a signal (as shells report it), 124 after the timeout (as
    timeout(1) reports it)."""
    stdout: str
    """Its output, the middle left out if it was long."""
    stderr: str
    """The same of its errors."""
    truncated: bool
    """True if a part of the output is left out."""
    seconds: float
    """Time from the call to the end of everything."""
    signal: str | None = None
    """The name of the signal that ended it, such as "SIGSEGV"."""
    timed_out: bool = False
    """True if it was ended because its time was up."""
    outlived: int = 0
    """Processes that it had left running, and that were ended with it."""
    exceeded: str = ""
    """The limit for which it was ended: "memory", "processes", "output", or "" for none."""
    waited_for: str = ""
    """Input for which it was ended, since none can come (`KeyWaits`): "keys", "secret", or "" for none."""


async def run_process(
    command: str | Sequence[str],
    *,
    cwd: str | Path,
    env: Mapping[str, str],
    timeout: float = math.inf,
    limits: CommandLimits | None = None,
    stdin: bytes = b"",
    terminal: bool = False,
    shown: bool = False,
    sandbox: Sandbox = NO_SANDBOX,
) -> CommandResult:
    """Run a program (a sequence) or a shell command (a str) to its end, or for `timeout` seconds. Nothing of it is left on return.

        result = await run_process("make test", cwd=folder, env=environment, timeout=60.0)

    stdin: bytes that it can read; by default it reads /dev/null. terminal: it runs on a terminal, which has no
    input but `stdin` and then ends it; all its output is then in `stdout`, with the terminal's control characters. shown: the output
    is what a terminal would show of it in the end, and a program that waits for keys is ended early. sandbox: the walls around it.

    On cancel
    everything is ended first, which takes up to `limits.grace` seconds, and a few seconds more if the guard was
    attacked. Raises ProcessError if it cannot be started.
    """
    limits = limits or CommandLimits()
    # A progress bar writes a hundred times what it shows.
    bytes_read = max(limits.output, MOST_DRAWN) if shown else limits.output
    stdout, stderr = HeadAndTail(bytes_read), HeadAndTail(bytes_read)
    waits = KeyWaits(is_terminal=terminal)
    start = trio.current_time()
    async with (
        open_process(
            command, cwd=cwd, env=env, limits=limits, stdin=bool(stdin), terminal=terminal, sandbox=sandbox
        ) as process,
        trio.open_nursery() as nursery,
    ):
        if process.stdin is not None:
            nursery.start_soon(_write_stdin, process.stdin, stdin, process.stderr is None)
        takers: tuple[TakeOutput, TakeOutput] = (stdout.add, stderr.add)
        if shown:
            nursery.start_soon(waits.watch, process)
            takers = waits.hearing(stdout.add), waits.hearing(stderr.add)
        with trio.move_on_after(max(timeout - (trio.current_time() - start), 0.0)) as scope:
            await read_to_end(process, *takers, flood=limits.flood, stopping=waits.found)
        ended = await process.stop()
        nursery.cancel_scope.cancel()
    out, err = (stdout.text(), stdout.truncated), (stderr.text(), stderr.truncated)
    if shown:  # in a thread, since there may be much of it
        out, err = await trio.to_thread.run_sync(
            lambda: (stdout.shown(limits.output, terminal), stderr.shown(limits.output, terminal))
        )
    return CommandResult(
        124 if scope.cancelled_caught or waits.what else ended.exit_code,
        out[0],
        err[0],
        out[1] or err[1],
        trio.current_time() - start,
        ended.signal,
        scope.cancelled_caught,
        ended.outlived,
        ended.exceeded,
        waits.what,
    )


class HeadAndTail:
    """The beginning and the end of a stream of any length. Memory stays within about three times the limit.

    For example:

        output = HeadAndTail(1000)
        output.add(b"...")
        output.text()
    """

    def __init__(self, limit: int = DEFAULT_OUTPUT) -> None:
        """limit: bytes to keep, half of them from the beginning and half from the end."""
        self._half = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        """At least the last half; trimmed only when it is four times that, so that adding stays cheap."""
        self.total = 0
        """Bytes of the stream so far."""

    def add(self, data: bytes | bytearray) -> None:
        """Take the next bytes of the stream."""
        self.total += len(data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data[-self._half :] if self._half else b""
        if len(self._tail) > 4 * self._half:
            del self._tail[: -self._half]

    @property
    def dropped(self) -> int:
        """Bytes in the middle that are not kept."""
        return self.total - len(self._head) - min(len(self._tail), self._half)

    @property
    def truncated(self) -> bool:
        """True if something is not kept."""
        return self.dropped > 0

    def text(self) -> str:
        """Return the kept text. Bytes that are not UTF-8 are replaced, and a line in the middle tells how much is missing."""
        tail = bytes(self._tail[-self._half :]) if self._half else b""
        if not self.truncated:
            return bytes(self._head + tail).decode("utf-8", "replace")
        # An incremental decoder keeps back a last character that is cut in two. The tail may begin with the end of one.
        head = codecs.getincrementaldecoder("utf-8")("replace").decode(self._head)
        tail = tail.lstrip(_CONTINUATION_BYTES)
        if b"\x1b" in tail:
            tail = _END_OF_COLOUR.sub(b"", tail, count=1)
        return f"{head}{self._notice}{tail.decode('utf-8', 'replace')}"

    @property
    def _notice(self) -> str:
        """The line in the middle."""
        return f"\n… {self.dropped:,} bytes left out …\n"

    def shown(self, limit: int, is_terminals: bool) -> tuple[str, bool]:
        """Return what a terminal would show of it in the end, with the middle left out above so many bytes, and whether it is.

        is_terminals: a terminal has written it, which ends lines in its own way.
        """
        text = TerminalText().read_all(self.text()) if is_terminals else shown_text(self.text())
        encoded = text.encode("utf-8", "surrogatepass")
        if len(encoded) <= limit:
            return text, self.truncated
        cut = HeadAndTail(limit)
        cut.add(encoded)
        if self.truncated:  # the notice of this stream is in the middle, and goes with it
            cut.total += self.dropped - len(self._notice.encode())
        return cut.text(), True


async def _write_stdin(pipe: trio.abc.SendStream, data: bytes, is_terminal: bool) -> None:
    """Write the input of the command and its end: of a pipe by closing it, of a terminal by the character ^D."""
    with suppress(trio.BrokenResourceError):  # the command has closed its stdin
        await pipe.send_all(data + b"\x04" if is_terminal else data)
    if not is_terminal:
        await pipe.aclose()


# ------------------------------------------------------------------ waiting for keys

QUIET: Final = 3.0
"""Seconds without output after which a program waits that reads single keys of a screen, or what is not shown."""
LONGER: Final = 6.0
"""Seconds after which one waits that reads single keys and fills no screen; one that fills the screen waits although it writes."""
_END_OF_INPUT: Final = b"\x04"
_SCREEN: Final = re.compile(rb"\x1b\[(?:\?(?:47|1047|1049)(?P<state>[hl])|(?P<place>(?:\d*;\d*)?H))")
"""Sequences by which programs fill a screen, and leave one of their own. Without a terminal the move to its beginning does not count:
`clear` writes it."""
_BEGINNING: Final = (b"H", b"1;1H", b";H", b"0;0H")
_RELAYS: Final = frozenset(
    {"sudo", "su", "doas", "ssh", "mosh-client", "script", "machinectl", "systemd-run", "unbuffer", "expect", "socat"}
    | {"docker", "podman", "kubectl", "oc", "nerdctl", "lxc", "incus", "vagrant", "tmux: client", "screen"}
)
"""Programs that pass keys on."""


class KeyWaits:
    """Watcher of one command. Example: `run_process` with `shown=True`."""

    def __init__(self, *, is_terminal: bool) -> None:
        self.found = trio.Event()
        """Set when the command waits for keys, and is to be ended."""
        self.what = ""
        """Input that it waits for: "keys", "secret", or "" for none."""
        self._is_terminal = is_terminal
        self._heard_at = trio.current_time()
        """Time of the last output."""
        self._screen_at: float | None = None
        """Time at which it began to fill the screen."""

    def hearing(self, take: TakeOutput) -> TakeOutput:
        """Return a function that takes output as `take` does, and tells the watcher."""

        def hear(data: bytes | bytearray) -> None:
            self._heard_at = trio.current_time()
            for found in _SCREEN.finditer(data):
                if found["state"] == b"l":
                    self._screen_at = None
                elif self._screen_at is None and (self._is_terminal or found["place"] not in _BEGINNING):
                    self._screen_at = self._heard_at
            take(data)

        return hear

    async def watch(self, process: GuardedProcess) -> None:
        """Look from time to time, and return when the command waits for keys."""
        while not self.found.is_set():
            await trio.sleep(QUIET / 2)
            quiet = trio.current_time() - self._heard_at
            if self._is_terminal:
                await self._look_at_terminal(process, quiet)
            elif self._screen_at is not None and quiet >= LONGER:
                self._find("keys")

    async def _look_at_terminal(self, process: GuardedProcess, quiet: float) -> None:
        """Find out what the terminal is read for."""
        modes = process.terminal_modes()
        if modes is None:
            return
        if not modes & termios.ICANON:
            filled = 0.0 if self._screen_at is None else trio.current_time() - self._screen_at
            waits = quiet >= LONGER or filled >= LONGER or (filled and quiet >= QUIET)
            if waits and not _RELAYS & process.programs_on_terminal():
                self._find("keys")
        elif quiet >= QUIET:
            if not modes & termios.ECHO:
                self._find("secret")
            elif process.stdin is not None:
                with suppress(trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError):
                    await process.stdin.send_all(_END_OF_INPUT)

    def _find(self, what: str) -> None:
        self.what = what
        self.found.set()
