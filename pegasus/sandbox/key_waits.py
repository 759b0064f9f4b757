"""Telling apart programs that wait for somebody to type, where nobody can: editors, pagers, prompts, passwords.

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

import re
import termios
from contextlib import suppress
from typing import Final

import trio

from pegasus.sandbox.guarded import GuardedProcess, TakeOutput

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
