"""Effects of Ctrl-C and Esc on the agent's work: the answer that is being made ends first, the tasks by a second Ctrl-C.

Everything here runs in the screen's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from pegasus.terminal.prompt_rules import LEAVING_HINT, ScreenListener
from pegasus.terminal.status_line import ChatStatus

AGAIN_SECONDS: Final = 2.0
"""Seconds within which Ctrl-C once more ends the tasks of the chat, too."""


class StopKeys:
    """Effects of Ctrl-C now, and the time in which another one ends more.

    listener: carries it out. status: returns what the agent does. show_hint: shows a text until the next key. hint: returns that text.
    """

    def __init__(
        self,
        listener: ScreenListener,
        status: Callable[[], ChatStatus],
        show_hint: Callable[[str], None],
        hint: Callable[[], str],
    ) -> None:
        self._listener = listener
        self._status = status
        self._show_hint, self._hint = show_hint, hint
        self._until = 0.0
        """Time on the loop's clock until which another Ctrl-C ends the tasks, too."""

    @property
    def is_awaited(self) -> bool:
        """True if another Ctrl-C ends the tasks, too."""
        return asyncio.get_running_loop().time() < self._until

    def interrupt(self) -> None:
        """End the answer that is being made, and wait for another Ctrl-C."""
        self._listener.on_interrupt()
        self._await_another("")

    def stop(self) -> None:
        """End the work of this chat."""
        self._until = 0.0
        self._listener.on_message("/stop", ())

    def show_hint(self) -> None:
        """Show how to leave. While tasks run, another Ctrl-C ends them first."""
        if self._status().tasks or self._status().questions:
            self._await_another(leaving_hint(self._status()))
        else:
            self._show_hint(LEAVING_HINT)

    def _await_another(self, afterwards: str) -> None:
        """Let another Ctrl-C end the tasks for AGAIN_SECONDS, and show that. afterwards: hint behind that time."""
        loop = asyncio.get_running_loop()
        self._until = loop.time() + AGAIN_SECONDS
        if hint := again_hint(self._status()):
            self._show_hint(hint)
            loop.call_later(AGAIN_SECONDS, lambda: self._show_hint(afterwards) if self._hint() == hint else None)


def again_hint(status: ChatStatus) -> str:
    """Return the hint while another Ctrl-C would end the tasks; "" if none runs. Those that wait for somebody end, too."""
    return "Ctrl-C again ends the tasks of this chat" if status.tasks or status.questions else ""


def leaving_hint(status: ChatStatus) -> str:
    """Return the hint for a Ctrl-C that has nothing to clear or stop: how to leave, and how to end the tasks that run."""
    if not status.tasks:
        return LEAVING_HINT
    task, *others = status.tasks
    return f"/stop or /tasks cancel {'N' if others else task.number or 'N'}; Ctrl-D leaves"
