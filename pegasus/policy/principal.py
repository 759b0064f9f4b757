"""The person that work is done for, and their role.

A role is decided by the program when a message is accepted, from the settings and from what the sender's channel has proved. It
goes with all work that comes of the message: the thought, its tool calls, the tasks and their sub-agents, and the notifications
of those. Nothing that a model writes can change it.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import attrs

from pegasus.messages import ChannelInfo, InboundMessage, Metadata

ROLE: Final = "role"
"""Key of a role in the metadata of messages, of tasks and of their notifications. Stored, so it must not change."""
_NOTHING: Final[Metadata] = MappingProxyType({})
"""Metadata of work that has none."""


class Role(StrEnum):
    """The rights of a person. Stored with tasks, so the values must not change.

    Example: `Role.OWNER if is_owner(channel, settings.owners) else Role.GUEST`.
    """

    OWNER = "owner"
    """Somebody named in `agent.owners`."""
    GUEST = "guest"
    """Anybody else who may write to the agent."""


@attrs.frozen
class Principal:
    """The person that work is done for.

    Example::

        Principal(Role.GUEST, ChannelInfo("slack", "#general", "U1"))
    """

    role: Role
    """Rights of the person, decided when the message was accepted."""
    channel: ChannelInfo | None = None
    """The channel that the work was asked for on, with the person's userId; None if nobody asked for it."""
    is_owner: bool = attrs.field(init=False, eq=False, repr=False)
    """True if the work may do what an owner may."""
    guest: str = attrs.field(init=False, eq=False, repr=False)
    """Name of the person for budgets, as "slack:U1"; "" for an owner, and for work of which nobody knows who asked for it."""

    @is_owner.default
    def _has_all_rights(self) -> bool:
        return self.role is Role.OWNER

    @guest.default
    def _name_for_budgets(self) -> str:
        return "" if self.is_owner or self.channel is None else self.channel.sender


NOBODY: Final = Principal(Role.GUEST)
"""A principal without special rights, for work of which nobody knows who asked for it."""


def is_owner(channel: ChannelInfo, owners: Iterable[str]) -> bool:
    """Return whether this channel or its user is the owner's.

    owners: the entries of `agent.owners`: a channel type ("cli", or "cli:*"), or "type:userId", or "type:channelId".
    """
    for entry in owners:
        type, _, name = entry.partition(":")
        if type == channel.type and (name in ("", "*") or name in (channel.channel_id, channel.user_id)):
            return True
    return False


def principal_of(channel: ChannelInfo | None, owners: Iterable[str], recorded: Metadata = _NOTHING) -> Principal:
    """Return the principal of work that was asked for on this channel.

    recorded: metadata of the task, or of the notification, that the work belongs to. A role in it can only take rights away: work
    for a guest stays so if an owner's channel hears of it, and work for somebody who is no owner any more loses its rights.
    """
    if channel is None:
        return NOBODY
    is_allowed = recorded.get(ROLE, Role.OWNER) == Role.OWNER and is_owner(channel, owners)
    return Principal(Role.OWNER if is_allowed else Role.GUEST, channel)


def sender_of(message: InboundMessage, owners: Iterable[str]) -> Principal:
    """Return the person who has sent a message, or for whom the task works that has sent it.

    Its metadata has a role only from the program itself: `pegasus.intake` removes what a client claims (`with_role`).
    """
    return principal_of(message.channel, owners, message.metadata)


def with_role(message: InboundMessage, role: Role) -> InboundMessage:
    """Return the message with the highest role that it may have, and without one that its sender claims.

    The highest one of all is not written: whether the sender is an owner is decided by the settings when the message is worked on.
    """
    others = {key: value for key, value in message.metadata.items() if key != ROLE}
    metadata = others if role is Role.OWNER else {**others, ROLE: role}
    return attrs.evolve(message, metadata=metadata)
