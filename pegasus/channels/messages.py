"""The messages to an adapter, and to the switchboard."""

from __future__ import annotations

from typing import TypeAlias

import attrs

from pegasus.messages import OutboundMessage, Progress, Typing


@attrs.frozen
class DeliverReply:
    """Bring this reply to its channel. It may come twice after a crash; `seq` grows by 1 for each address, so it tells."""

    reply: OutboundMessage


@attrs.frozen
class CatchUp:
    """Ask the journal for `Unacknowledged`: some replies could not be handed over, because the adapter's mailbox was full."""


AdapterMessage: TypeAlias = DeliverReply | Typing | Progress | CatchUp
SwitchboardMessage: TypeAlias = Typing | Progress
"""Replies are not sent to the switchboard. It pulls them from the journal's outbox, where they are safe until acknowledged."""
