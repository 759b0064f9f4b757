"""`OutgoingChat`: replies and signs that wait for one conversation of a service."""

from __future__ import annotations

from collections import deque
from typing import Final

import attrs
import trio

from pegasus.messages import OutboundMessage, Progress, Typing

LONGEST_TYPING: Final = 900.0
"""Seconds after which a typing sign is not repeated any more, whether its end was announced or not."""


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

    def note_sign(self, sign: Typing | Progress) -> None:
        """Take over a sign to be shown when there is nothing to send. The newest draft replaces the others."""
        if isinstance(sign, Progress):
            self.draft = sign
        else:
            self.typing = sign
            self.typing_since = self.typing_due = trio.current_time()

    def sign_due(self) -> float | None:
        """Return Trio's clock at which something is to be shown, None if there is nothing."""
        due = [self.typing_due] if self.typing is not None else []
        if self.draft is not None:
            due.append(0.0 if self.draft.is_withdrawal else self.next_draft)
        return max(min(due), self.quiet_until) if due else None

    def take_sign(self, draft_pause: float, typing_pause: float) -> Typing | Progress | None:
        """Return what is to be shown now, a draft before the typing sign; None if that has been shown for too long.

        The pauses are the seconds until the next draft, and until the sign is shown again.
        """
        now = trio.current_time()
        draft, self.draft = self.draft, None
        if draft is not None:
            self.next_draft = now + draft_pause
            return draft
        self.typing_due = now + typing_pause
        if now - self.typing_since > LONGEST_TYPING:
            self.typing = None
        return self.typing
