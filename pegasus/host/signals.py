"""Signal handling of the daemon: SIGTERM and SIGINT stop it gracefully, a second one ends it at once, SIGHUP reloads.

A stop has three stages, so that it ends in time whatever hangs:

1. The first signal sets `Signals.stop`. Supervisors ask their actors to stop, in order, and each may finish its step.
2. When a third of the grace is left, the whole body is cancelled. A model call that hangs is abandoned at once; a tool
   that runs a command gets the remaining third to send TERM, then KILL, and to reap every process it has started.
   Cancelling only at the end of the grace would leave no time for that, and the process would have to be killed.
3. An alarm ends the process by force `FORCE_AFTER` seconds after the grace, should the cancellation hang too (a disk
   that does not answer holds a thread that cannot be cancelled).

The handlers are installed with `signal.signal` instead of `trio.open_signal_receiver`: the second signal and the alarm
must work even when the event loop is stuck.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final

import trio

HARD_STOP_SHARE: Final = 1 / 3
"""Part of the grace that is reserved for cancelling and cleaning up after actors that did not stop when asked."""
FORCE_AFTER: Final = 2.0
"""Seconds after the end of the grace at which the process is ended by force."""


class Signals:
    """State of the stop, made by `handle_signals`.

    Example::

        with handle_signals(grace=10.0, on_reload=reload) as signals:
            await signals.stop.wait()
    """

    stop: trio.Event
    """Set by the first SIGTERM or SIGINT, or by `request_stop`."""
    number: int | None
    """Number of the signal that stopped the process, None before it or after `request_stop`."""
    overran: bool
    """True after the body if it had to be cancelled because it did not end by itself in time."""

    def __init__(self, grace: float, on_reload: Callable[[], None]) -> None:
        self.stop = trio.Event()
        self.overran = False
        self.number = None
        self.grace = grace
        """Grace period in seconds. Read when the signal arrives, so a reload may still change it."""
        self._on_reload = on_reload
        self._scope = trio.CancelScope()
        self._token = trio.lowlevel.current_trio_token()

    @property
    def late(self) -> bool:
        """True from the moment at which the body of a stop that takes too long is cancelled."""
        return trio.current_time() >= self._scope.deadline

    def request_stop(self) -> None:
        """Begin the same graceful stop without a signal. Call it from the event loop."""
        if not self.stop.is_set():
            self.stop.set()
            self._scope.deadline = trio.current_time() + self.grace * (1 - HARD_STOP_SHARE)

    def _handle_stop(self, number: int, _frame: FrameType | None) -> None:
        """Begin a graceful stop; at the second signal end the process at once."""
        if self.number is not None:
            os._exit(128 + number)
        self.number = number
        signal.setitimer(signal.ITIMER_REAL, self.grace + FORCE_AFTER)
        self._token.run_sync_soon(self.request_stop)

    def _handle_alarm(self, _number: int, _frame: FrameType | None) -> None:
        """End a process whose stop hangs."""
        with suppress(OSError):
            os.write(2, f"pegasus: still not stopped {self.grace:g} s after the signal; ending now\n".encode())
        os._exit(128 + (self.number or signal.SIGTERM))

    def _handle_hangup(self, _number: int, _frame: FrameType | None) -> None:
        """Reload from the event loop; several signals before its next turn count once."""
        self._token.run_sync_soon(self._on_reload, idempotent=True)


@contextmanager
def handle_signals(*, grace: float, on_reload: Callable[[], None]) -> Iterator[Signals]:
    """Install the handlers while the body runs. Use it in the main thread, inside trio.run.

    grace: seconds that a stop may take in all. The body is cancelled when `HARD_STOP_SHARE` of it is left; the block
    then ends without an error and `overran` is set. on_reload: called from the event loop after SIGHUP; must neither
    raise nor block. The handlers that were there before are put back at the end.
    """
    signals = Signals(grace, on_reload)
    handlers = {
        signal.SIGTERM: signals._handle_stop,
        signal.SIGINT: signals._handle_stop,
        signal.SIGALRM: signals._handle_alarm,
        signal.SIGHUP: signals._handle_hangup,
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
