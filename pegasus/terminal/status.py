"""Status line under the prompt: a hint until the next key, the connection, the agent's thinking.

The line is a function of a `ChatStatus` and a time, without any state of its own. It is empty while all is well and the agent is
idle: a line that always shows something is soon not read any more.
"""

from __future__ import annotations

from typing import Final

import attrs

from pegasus.formatting import plural
from pegasus.terminal.neutral import neutralise

FRAME_SECONDS: Final = 0.2
"""Seconds between two pictures of the spinner: fast enough to show that the chat works, slow enough to cost no CPU."""
PATIENCE: Final = 5
"""Seconds of thinking after which the line shows for how long, and how to stop it."""
DRAFT_SHOWN: Final = 60
"""Characters that are shown of a reply while it is being written."""

_FRAMES: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
"""Pictures of the spinner in turn; none on a terminal without Unicode."""


@attrs.frozen
class ChatStatus:
    """Facts that the line shows. `ChatStatus(online=True)` is an idle agent: the line is empty."""

    online: bool = False
    """The gateway has sent its welcome on the present connection."""
    lost: bool = False
    """There was a connection before."""
    thinking: bool = False
    """The agent works on a message of this conversation."""
    unsent: int = 0
    """Messages that were typed and are not accepted yet."""
    draft: str = ""
    """Reply that is being written, as far as it is."""


def status_line(status: ChatStatus, seconds: float, hint: str = "", *, unicode: bool = True) -> str:
    """Return the text of the line, "" when there is nothing to show. seconds: for how long the agent has been thinking."""
    if not status.online:
        state = _connection_text(status)
    elif status.thinking:
        state = _draft_text(status.draft, unicode) or _thinking_text(seconds, unicode)
    else:
        state = ""
    return (" · " if unicode else " - ").join(part for part in (hint, state) if part)


def _connection_text(status: ChatStatus) -> str:
    """Return the state of a connection that is not there, and how many messages wait for it."""
    state = "connection lost, trying again" if status.lost else "connecting"
    return f"{state}; {plural(status.unsent, 'message')} waiting to be sent" if status.unsent else state


def _draft_text(draft: str, unicode: bool) -> str:
    """Return the end of the draft in one line."""
    text = " ".join(neutralise(draft).split())
    dots = "…" if unicode else "..."
    return text if len(text) <= DRAFT_SHOWN else dots + text[-DRAFT_SHOWN:]


def _thinking_text(seconds: float, unicode: bool) -> str:
    """Return the spinner, and after some seconds for how long, and how to stop."""
    frame = _FRAMES[int(seconds / FRAME_SECONDS) % len(_FRAMES)] + " " if unicode else ""
    if seconds < PATIENCE:
        return f"{frame}thinking"
    minutes, rest = divmod(int(seconds), 60)
    duration = f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
    return f"{frame}thinking for {duration}, Ctrl-C stops"
