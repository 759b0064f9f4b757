"""`ServiceContext`: what the adapters of chat services are given, and `ChannelState`: how they are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from random import Random
from typing import Any

import attrs

from pegasus.intake import Intake
from pegasus.messages import ChannelInfo
from pegasus.policy import is_owner
from pegasus.settings import InForce


@attrs.frozen
class ChannelState:
    """State of a service's adapter, for people: `ChannelState("telegram", "parked", "the bot token was refused")`."""

    type: str
    state: str
    """"connecting", "up", "down" (tried again) or "parked" (not tried again)."""
    reason: str = ""
    """Why it is down or parked. Never a secret."""
    name: str = ""
    """Name of the agent on the service, such as "@pegasus_bot"."""


Deciding = Callable[[str, bool, bool, str], Awaitable[str]]
"""Answers an approval: (id, is_allowed, is_for_ever, by) → a sentence for the person who has clicked."""
Pairing = Callable[[str, str], Awaitable[str]]
"""Lets somebody in: (code, by) → a sentence for the person who has clicked."""


async def _no_answer(*_: object) -> str:
    return "This cannot be answered here."


@attrs.frozen(eq=False, repr=False, kw_only=True)
class ServiceContext:
    """Everything that the adapters of services are given by the composition root."""

    intake: Intake
    """The way in."""
    clock: Callable[[], int]
    """Wall clock, ms since the epoch."""
    random: Random = attrs.field(factory=Random)
    """For pauses. No secret comes from it."""
    owners: InForce[Collection[str]] = attrs.field(factory=lambda: InForce(()))
    """The setting `agent.owners`."""
    public_url: str = ""
    """The setting `http.public_url`: where the outside reaches this machine. "" if it does not."""
    commands: Mapping[str, str] = attrs.field(factory=dict)
    """Commands with their meaning, for services that list them. Names with their slash."""
    decide: Deciding = _no_answer
    pair: Pairing = _no_answer
    transport: Any = None
    """An `httpx2.AsyncBaseTransport` in place of the network, for tests; None: the network."""

    def is_owner(self, channel: ChannelInfo) -> bool:
        """Return whether the person on this channel is an owner."""
        return is_owner(channel, self.owners.now)
