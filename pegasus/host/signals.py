"""SIGTERM and SIGINT stop the process gracefully, a second one at once; SIGHUP reloads.

The handlers are the interpreter's own, not a trio.open_signal_receiver: the second signal, and the alarm that ends a
stop which takes too long, must work also when the event loop does not turn.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final

import trio

_ALARM_MARGIN: Final = 2.0  # seconds between the cancellation at the end of the grace and the end by force
_RESTORE_SCREEN: Final = "\x1b[?2004l\x1b[?25h"  # bracketed paste off, cursor on


class Signals:
    """What signals asked for. `stop` is set by the first SIGTERM or SIGINT; `overran` tells that the grace was used up."""

    def __init__(self, grace: float, on_reload: Callable[[], None]) -> None:
        self.stop = trio.Event()
        self.overran = False
        self._number: int | None = None
        self._grace = grace
        self._on_reload = on_reload
        self._scope = trio.CancelScope()
        self._token = trio.lowlevel.current_trio_token()
        self._terminal = _terminal_state()

    @property
    def number(self) -> int | None:
        """The signal that stopped the process, or None."""
        return self._number

    def request_stop(self) -> None:
        """Begin the same graceful stop without a signal. To be called from the event loop."""
        if not self.stop.is_set():
            self.stop.set()
            self._scope.deadline = trio.current_time() + self._grace

    def _stop_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._number is not None:
            self._end_by_force(number)
        self._number = number
        signal.setitimer(signal.ITIMER_REAL, self._grace + _ALARM_MARGIN)
        self._token.run_sync_soon(self.request_stop)

    def _alarm(self, _number: int, _frame: FrameType | None) -> None:
        with suppress(OSError):
            os.write(2, f"pegasus: still not stopped {self._grace:g} s after the signal; ending now\n".encode())
        self._end_by_force(self._number or signal.SIGTERM)

    def _hangup(self, _number: int, _frame: FrameType | None) -> None:
        self._token.run_sync_soon(self._on_reload, idempotent=True)

    def _end_by_force(self, number: int) -> None:
        _restore_terminal(self._terminal)
        os._exit(128 + number)


@contextmanager
def handle_signals(*, grace: float, on_reload: Callable[[], None]) -> Iterator[Signals]:
    """Within the body signals mean what interfaces.md says. To be used in the main thread, inside trio.run.

    grace: seconds from the first signal to the cancellation of the body; the body then ends here without an error and
    `overran` is set. If it does not end then either, the process does, with 128 + the signal's number, as after a second
    signal. on_reload is called from the event loop on SIGHUP, must not raise, and must not wait.
    """
    signals = Signals(grace, on_reload)
    handlers = {
        signal.SIGTERM: signals._stop_signal,
        signal.SIGINT: signals._stop_signal,
        signal.SIGALRM: signals._alarm,
        signal.SIGHUP: signals._hangup,
    }
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        with signals._scope:
            yield signals
        signals.overran = signals._scope.cancelled_caught
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def _terminal_state() -> list[object] | None:
    """How the terminal is set now, to set it back when a chat that changed it is ended by force."""
    import termios

    try:
        return termios.tcgetattr(0)
    except (OSError, termios.error):
        return None


def _restore_terminal(state: list[object] | None) -> None:
    if state is None:
        return
    import termios

    with suppress(OSError, termios.error):
        if os.tcgetpgrp(0) != os.getpgrp():  # a background process that touches its terminal is stopped
            return
        termios.tcsetattr(0, termios.TCSANOW, state)  # type: ignore[arg-type]
        if sys.__stdout__ is not None and os.isatty(1):
            os.write(1, _RESTORE_SCREEN.encode())
