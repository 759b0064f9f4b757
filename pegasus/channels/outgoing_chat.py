"""`OutgoingChat`: replies and signs that wait for one conversation of a service."""

from __future__ import annotations

from collections import deque

import attrs
import trio

from pegasus.messages import OutboundMessage, Progress, Typing


@attrs.define(eq=False, repr=False)
class OutgoingChat:
    """The way out to one conversation. It exists while there is something to send or to show."""

    channel_id: str
    waiting: deque[OutboundMessage] = attrs.field(factory=deque)
    """Replies to be sent, in the order of seq."""
    is_behind: bool = False
    """More replies wait in the journal."""
    draft: Progress | None = None
    """The newest draft that was not shown yet."""
    next_draft: float = 0.0
    """Trio's clock from which on a draft may be shown."""
    typing: Typing | None = None
    """The sign that is shown while the agent thinks."""
    typing_since: float = 0.0
    typing_due: float = 0.0
    """Trio's clock at which the sign is to be shown again."""
    quiet_until: float = 0.0
    """Trio's clock until which the service wants no call about this conversation."""
    woken: trio.Event = attrs.field(factory=trio.Event)
