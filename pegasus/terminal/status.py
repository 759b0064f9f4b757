"""The one quiet line under the prompt: a passing hint, the connection, the agent's thinking."""

from __future__ import annotations

import attrs

from pegasus.terminal.neutral import neutralise

FRAME_SECONDS = 0.2
"""How long one picture of the spinner stays: slow enough to cost nothing, fast enough to look alive."""
PATIENCE = 5
"""Seconds of thinking after which the line says for how long, and how to end it."""

DRAFT_SHOWN = 60
"""Characters that are shown of a reply while it is being written."""

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


@attrs.frozen
class Status:
    """What there is to tell.

    online: the gateway has said welcome. lost: it had, and is away. unsent: messages typed but not accepted.
    draft: the reply that is being written, as far as it is.
    """

    online: bool = False
    lost: bool = False
    thinking: bool = False
    unsent: int = 0
    draft: str = ""


def status_line(status: Status, seconds: float, hint: str = "", *, unicode: bool = True) -> str:
    """The line's text, empty when there is nothing to tell; the agent has been thinking for `seconds`."""
    if not status.online:
        tale = _connection(status)
    elif status.thinking:
        tale = _drafted(status.draft, unicode) or _thought(seconds, unicode)
    else:
        tale = ""
    return (" · " if unicode else " - ").join(part for part in (hint, tale) if part)


def _connection(status: Status) -> str:
    state = "connection lost, trying again" if status.lost else "connecting"
    if not status.unsent:
        return state
    return f"{state}; {status.unsent} message{'' if status.unsent == 1 else 's'} waiting to be sent"


def _drafted(draft: str, unicode: bool) -> str:
    """The end of what is being written, in one line."""
    text = " ".join(neutralise(draft).split())
    dots = "…" if unicode else "..."
    return text if len(text) <= DRAFT_SHOWN else dots + text[-DRAFT_SHOWN:]


def _thought(seconds: float, unicode: bool) -> str:
    frame = _FRAMES[int(seconds / FRAME_SECONDS) % len(_FRAMES)] + " " if unicode else ""
    if seconds < PATIENCE:
        return f"{frame}thinking"
    return f"{frame}thinking for {_duration(int(seconds))}, Ctrl-C stops"


def _duration(seconds: int) -> str:
    minutes, rest = divmod(seconds, 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{seconds} s"
