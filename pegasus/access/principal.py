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

from pegasus.messages import ACCOUNT, APART, GOES_BACK, INSTRUCTIONS, ChannelInfo, InboundMessage, Json, Metadata

ROLE: Final = "role"
"""Key of a role in the metadata of messages, of tasks and of their notifications. Stored, so it must not change."""
OWN_TYPES: Final = ("cli", "web", "api")
"""Channel types whose users count as owners by their token, not by a name that a service has checked. They are open to all who have
one, unless the settings say something else."""
DOOR: Final = "door"
"""Key in the metadata of a message that has not come on a door of its sender's own, but through a bridge or a token that may only
send messages. An owner's answer to an approval then counts once. Stored, so it must not change."""
_PROVED: Final = (ROLE, ACCOUNT, APART, DOOR, GOES_BACK, INSTRUCTIONS)
"""Keys of what the program itself adds to a message; what a client claims under them is removed."""
_NOTHING: Final[Metadata] = MappingProxyType({})
"""Metadata of work that has none."""


class Role(StrEnum):
    """The rights of a person. Stored with tasks, so the values must not change."""

    OWNER = "owner"
    """Somebody who has shown the owner's token, or is named in `agent.owners`."""
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
    account: str = attrs.field(default="", repr=False)
    """Account that a guest is counted by (`pegasus.messages.ACCOUNT`); "" = whoever the channel names."""
    is_apart: bool = attrs.field(default=False, kw_only=True)
    """The work belongs to a conversation in which guests are heard, and has nothing of the owner's other conversations and memory."""
    is_owner: bool = attrs.field(init=False, eq=False, repr=False)
    """True if the work may do what an owner may."""
    guest: str = attrs.field(init=False, eq=False, repr=False)
    """Name of the person for limits: "slack:U1", or a token's name; "" for an owner, and where nobody knows who asked for the work."""

    @is_owner.default
    def _has_all_rights(self) -> bool:
        return self.role is Role.OWNER

    @guest.default
    def _name_for_budgets(self) -> str:
        return "" if self.is_owner or self.channel is None else self.account or self.channel.sender

    @property
    def recorded(self) -> dict[str, Json]:
        """Metadata by which work that comes of this is known to be for the same person (`principal_of`)."""
        guest: dict[str, Json] = {} if self.is_owner else {ACCOUNT: self.guest, APART: self.is_apart}
        return {ROLE: self.role} | ({APART: True} if self.is_apart else {}) | guest


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

    recorded: metadata of the message, of the task, or of the notification, that the work belongs to. Work for a guest stays so if an
    owner's channel hears of it, and work for somebody whom a service knows and who is no owner any more loses its rights. On the
    channel types that are open by their token, the role of an owner says that the owner's token was shown, which no setting revokes.
    """
    if channel is None:
        return NOBODY
    is_recorded = recorded.get(ROLE) == Role.OWNER
    has_shown_token = is_recorded and channel.type in OWN_TYPES
    is_allowed = has_shown_token or ((is_recorded or ROLE not in recorded) and is_owner(channel, owners))
    # A guest's task of a version without conversations apart has none of the owner's things from now on.
    is_apart = recorded.get(APART, recorded.get(ROLE) == Role.GUEST and "channel" in recorded) is True
    role = Role.OWNER if is_allowed else Role.GUEST
    return Principal(role, channel, str(recorded.get(ACCOUNT, "")), is_apart=is_apart)


def sender_of(message: InboundMessage, owners: Iterable[str]) -> Principal:
    """Return the person who has sent a message, or for whom the task works that has sent it.

    The intake makes the principal when the message comes in, and keeps with the message what its sender has proved (`with_role`); what
    a client claims is removed. The Main Agent makes it again of that when it takes the message from the queue (`AgentTurn.sender`, and
    the control lane for commands), so that a reload of `agent.owners` counts for messages that wait. All others are given it.
    """
    return principal_of(message.channel, owners, message.metadata)


def with_role(
    message: InboundMessage, role: Role | None, account: str = "", *, is_own_door: bool = True
) -> InboundMessage:
    """Return the message with the role that its sender has proved, and without what the sender claims.

    role: None: the settings decide whether the sender is an owner, when the message is worked on. account: that a guest is counted
    by; "" = whoever the channel names. is_own_door: False: somebody else's program passes on what the sender has written (DOOR).
    """
    metadata = {key: value for key, value in message.metadata.items() if key not in _PROVED}
    if role is not None:
        metadata[ROLE] = role
    if account:
        metadata[ACCOUNT] = account
    if not is_own_door:
        metadata[DOOR] = "bridge"
    return attrs.evolve(message, metadata=metadata)
