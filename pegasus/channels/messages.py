"""What may be said to a channel adapter, and to the switchboard."""

from __future__ import annotations

from typing import TypeAlias

import attrs

from pegasus.messages import OutboundMessage, Progress, Typing


@attrs.frozen
class DeliverReply:
    """Bring this reply to its channel. May come twice after a crash: seq tells (interfaces 8.3)."""

    message: OutboundMessage


@attrs.frozen
class CatchUp:
    """Some replies could not be handed over because the mailbox was full: ask the journal for Unacknowledged."""


AdapterMessage: TypeAlias = DeliverReply | Typing | Progress | CatchUp
SwitchboardMessage: TypeAlias = Typing | Progress
