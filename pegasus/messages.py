"""The values that travel between people and the agent, shared by every room."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import attrs

Json: TypeAlias = "bool | int | float | str | list[Json] | Mapping[str, Json] | None"
"""What the json module reads and writes."""

Metadata: TypeAlias = Mapping[str, Json]


@attrs.frozen
class ChannelInfo:
    """Where a message comes from or goes to.

    type: kind of channel ("cli", "web", "slack" …; unknown kinds are allowed).
    channel_id: the space of the conversation; type + channel_id is the *address* that replies are numbered by.
    user_id: who wrote; reply_to: thread within the space.
    """

    type: str
    channel_id: str
    user_id: str | None = None
    reply_to: str | None = None

    @property
    def address(self) -> Address:
        """The part that `seq` counts by: type and channel_id, without user or thread."""
        return Address(self.type, self.channel_id)


@attrs.frozen(order=True)
class Address:
    """A conversation space: what replies are numbered by (interfaces 8.3)."""

    type: str
    channel_id: str

    def __str__(self) -> str:
        return f"{self.type}:{self.channel_id}"


@attrs.frozen
class Media:
    """A file that travels with a message; `data` is base64."""

    name: str
    mime: str
    data: str


@attrs.frozen
class InboundMessage:
    """What somebody said to the agent. `id` is the sender's own; the same id on the same address is one message."""

    text: str
    channel: ChannelInfo
    id: str
    metadata: Metadata = attrs.field(factory=dict)
    media: tuple[Media, ...] = ()


@attrs.frozen
class OutboundMessage:
    """What the agent says to somebody. `seq` is 1 for the first reply to an address and grows by 1 (interfaces 8.3)."""

    text: str
    channel: ChannelInfo
    seq: int
    metadata: Metadata = attrs.field(factory=dict)
    media: tuple[Media, ...] = ()


@attrs.frozen
class Typing:
    """The agent began (`active`) or ended thinking about a message of this channel. Never stored, may be lost.

    after: the seq of the last reply that came of it to this address, 0 if none did; the end is told after that one.
    """

    channel: ChannelInfo
    active: bool
    after: int = 0


@attrs.frozen
class Progress:
    """What the agent is about to say to this channel, as far as it is written (direct speech). Never stored, may be lost.

    Each draft is the whole text so far. What is said in the end comes as a reply, and may be something else.
    """

    channel: ChannelInfo
    text: str
