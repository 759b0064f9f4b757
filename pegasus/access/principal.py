"""The person that a message comes from and work is done for: their role, whether they may write at all, and the program between.

A **role** is decided by the program when a message is accepted, from the settings and from what the sender's channel has proved. It
goes with all work that comes of the message: the thought, its tool calls, the tasks and their sub-agents, and the notifications
of those. Nothing that a model writes can change it.

**Who may write** is decided by the settings `[channels.<type>]` and by the people whom the owner has let in (`pairing`), before a
message is accepted. Names are compared as they are: lower and upper case differ, and there are no patterns. The name of a person is
believed here; the client has shown the gateway a token that lets it speak for this channel.

    access    somebody unknown who writes
    pairing   gets one short answer with a code, which the owner approves (never in a group)
    allow_list   gets no answer
    open      is heard

Owners are let in without being listed. A channel type without a section in the settings is open.

A bridge says in the metadata of a message what only it can know: `group` (true or false) whether several people read the
conversation, and `mentioned` (false) that the message is not meant for the agent. Without `group`, the ids of Telegram and Slack
show it; a conversation of another type counts as a direct one.

**The program** that brings a message has shown a token. A `TokenGrant` says what that allows, and whom its client may speak for. Those
that count are in `tokens`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import attrs
import trio

from pegasus.formatting import quote
from pegasus.messages import (
    ACCOUNT,
    APART,
    FOLDER,
    GOES_BACK,
    INSTRUCTIONS,
    ChannelInfo,
    InboundMessage,
    Json,
    Metadata,
)

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


def folder_of(recorded: Metadata, person: Principal) -> str:
    """Return the folder that is recorded with a message or a task, "" if there is none or the work is not for an owner alone."""
    folder = recorded.get(FOLDER)
    return folder if isinstance(folder, str) and person.is_owner and not person.is_apart else ""


# ------------------------------------------------------------------ who may write

GROUP: Final = "group"
"""Key of a message's metadata: whether several people read the conversation."""
MENTIONED: Final = "mentioned"
"""Key of a message's metadata: False if it is not meant for the agent."""


class AccessDenied(Exception):
    """The sender may not write. str() is one line for the program that has sent the message.

    Example::

        try:
            access.check_rules(channel)
        except AccessDenied as error:
            return error_frame("bad_frame", f"not accepted: {error}")
    """


class NotListed(AccessDenied):
    """The settings do not name the sender, who may write only if the owner has let them in (`pairing`).

    Example: `Intake` catches it and lets the message in all the same if `PairingBook.knows` its person.
    """


class PairingRequired(NotListed):
    """The sender may ask the owner to be let in.

    Example: `Intake.send` catches it, has `PairingBook.request` send the person a code for the owner, and raises it again.
    """


@attrs.frozen(eq=False, repr=False)
class ChannelRules:
    """The rules of one channel type."""

    access: str = "open"
    """"pairing", "allow_list" or "open"."""
    allow_from: Collection[str] = frozenset()
    """UserIds and channelIds that may write."""
    groups: str = "all"
    """Messages that are heard in groups: "mention", "all" or "off"."""


def rules_of(type: str, access: str, allow_from: Collection[str], groups: str) -> ChannelRules:
    """Return the rules of a section `[channels.<type>]`. access: "" = the usual one of the type."""
    if not access:
        usual = "allow_list" if allow_from else "open"
        access = usual if type in OWN_TYPES else "pairing"
    return ChannelRules(access, frozenset(allow_from), groups)


@attrs.frozen
class Access:
    """The rules about who may talk to the agent.

    Example::

        access = Access({"sms": ChannelRules("allow_list", {"+8613800138000"})})
        access.check_rules(ChannelInfo("sms", "+8613800138000"))  # passes
        access.check_rules(ChannelInfo("sms", "+1"))              # raises NotListed
    """

    rules: Mapping[str, ChannelRules] = attrs.field(factory=dict)
    """By channel type. A type that is absent is open to everybody."""

    def check_rules(self, channel: ChannelInfo, metadata: Metadata = _NOTHING, *, owners: Iterable[str] = ()) -> None:
        """Raise AccessDenied unless the settings let the person on this channel write; NotListed if they let in others only.

        metadata: that of the message. owners: the setting `agent.owners`; () if the client may not speak for an owner.
        """
        rules = self.rules.get(channel.type)
        if rules is None:
            return
        key, in_group = f"channels.{channel.type}", is_group(channel, metadata)
        if in_group and (rules.groups == "off" or (rules.groups == "mention" and metadata.get(MENTIONED) is False)):
            raise AccessDenied(f"{key}.groups = {rules.groups!r} of the settings: this is not heard in groups")
        if rules.access == "open" or channel.user_id in rules.allow_from:
            return
        if channel.channel_id in rules.allow_from or _is_let_in_as_owner(channel, owners, rules):
            return
        if rules.access == "pairing" and not in_group:
            raise PairingRequired(
                f"{key}.access = 'pairing' of the settings: the owner has to let this person in first"
            )
        raise NotListed(f"{key}.allow_from of the settings names neither this user nor this channel")


def _is_let_in_as_owner(channel: ChannelInfo, owners: Iterable[str], rules: ChannelRules) -> bool:
    """Return whether an owner writes. Where the settings list people, an entry for a whole type, as "cli:*", names nobody."""
    named = [entry for entry in owners if entry.partition(":")[2] not in ("", "*") or not rules.allow_from]
    return is_owner(channel, named)


def is_group(channel: ChannelInfo, metadata: Metadata = _NOTHING) -> bool:
    """Return whether several people read this conversation, as far as that is known. metadata: that of a message there."""
    stated = metadata.get(GROUP)
    if isinstance(stated, bool):
        return stated
    if channel.user_id is None or channel.user_id == channel.channel_id:
        return False
    if channel.type == "telegram":
        return channel.channel_id.startswith("-")
    return channel.type == "slack" and not channel.channel_id.startswith(("D", "@", "U"))


def person_of(channel: ChannelInfo) -> str:
    """Return the id of the person on a channel within its type: the user, or the conversation where no user is named."""
    return channel.user_id or channel.channel_id


# ------------------------------------------------------------------ the program that brings a message

MESSAGE: Final = "message"
"""Scope: send messages, and get the replies to them."""
READ: Final = "read"
"""Scope: get replies, and call methods that only show something."""
CONTROL: Final = "control"
"""Scope: call all methods, with the rights of an owner."""
SCOPES: Final = (MESSAGE, READ, CONTROL)
"""All scopes, in the order in which they are shown."""


@attrs.frozen(eq=False, repr=False)
class StoredToken:
    """A token as it stands in the file.

    Example::

        StoredToken("phone", hash_token(token), (MESSAGE,), type="web", channel_id="phone", created=1_772_020_800_000)
    """

    name: str
    """Name by which its owner revokes it."""
    hash: str = attrs.field(repr=False)
    """SHA-256 of the token, in hexadecimal digits."""
    scopes: tuple[str, ...]
    """Some of SCOPES."""
    type: str = ""
    """Channel type that its client must name; "" = any."""
    channel_id: str = ""
    """Conversation that its client must name; "" = `token-<name>`, or none for a bridge."""
    bridge: bool = False
    """The client serves all conversations of its type."""
    created: int = 0
    """Wall clock, ms."""


@attrs.frozen(eq=False, repr=False)
class TokenGrant:
    """Rights that come with a token."""

    token: StoredToken
    """The token as it is stored, without the secret itself."""
    is_home: bool = False
    """The token is that of the home, and may all."""
    revoked: trio.Event = attrs.field(factory=trio.Event)
    """Set when the token counts no more."""

    @property
    def name(self) -> str:
        """Name of the token, for people."""
        return self.token.name

    def allows(self, scope: str) -> bool:
        """Return whether the token has a scope."""
        return self.is_home or scope in self.token.scopes

    @property
    def is_bound(self) -> bool:
        """True for the token of one conversation, of a channel type or of a bridge. It shows no conversations of others."""
        return not self.is_home and bool(self.token.channel_id or self.token.type or self.token.bridge)

    @property
    def sees_all_conversations(self) -> bool:
        """True if its client may see what was said in the conversations of others."""
        return self.allows(CONTROL) and not self.is_bound

    @property
    def gets_replies(self) -> bool:
        """True if its client gets replies."""
        return self.allows(MESSAGE) or self.allows(READ)

    def vouches_for(self, type: str) -> bool:
        """Return whether its client may speak for an owner on channels of this type.

        One with the scope "control" may. So may a bridge that is bound to the type of a service, because the service has checked who
        writes. A client that merely may send messages is a guest, whatever it says about itself.
        """
        if self.is_home or self.allows(CONTROL):
            return True
        return self.token.bridge and self.token.type == type and type not in OWN_TYPES

    def proves_owner(self, type: str) -> bool:
        """Return whether its client, with a conversation of its own on this type, is an owner's whatever `agent.owners` lists."""
        return self.is_home and type in OWN_TYPES

    def owners_for(self, type: str, owners: Collection[str]) -> Collection[str]:
        """Return the entries that name owners among those for whom its client speaks on this type. owners: `agent.owners`."""
        if self.proves_owner(type):
            return (*owners, f"{type}:*")
        return owners if self.vouches_for(type) else ()

    def is_owner(self, channel: ChannelInfo, owners: Collection[str]) -> bool:
        """Return whether its client counts as an owner on this channel. owners: `agent.owners`."""
        return is_owner(channel, self.owners_for(channel.type, owners))

    def attest(self, message: InboundMessage, *, is_bridge: bool) -> InboundMessage:
        """Return the message with what its client has proved about its sender, and without what it claims."""
        channel = message.channel
        if self.proves_owner(channel.type) and not is_bridge:
            return with_role(message, Role.OWNER)
        account = self.account_of(channel, is_bridge=is_bridge)
        is_own_door = self.is_own_door(None if is_bridge else channel.channel_id)
        role = None if self.vouches_for(channel.type) else Role.GUEST
        return with_role(message, role, account, is_own_door=is_own_door)

    def is_own_door(self, channel_id: str | None) -> bool:
        """Return whether an owner speaks through its client without anybody in between: it has one conversation and an owner's rights.

        Others pass on what people have written somewhere else. channel_id: None for a bridge.
        """
        return channel_id is not None and not self.token.bridge and self.allows(CONTROL)

    def account_of(self, channel: ChannelInfo, *, is_bridge: bool) -> str:
        """Return the account by which a message of its client is counted, if a guest has written it.

        Users count only behind a bridge that is believed (`vouches_for`). Any other client could name another user, and another
        conversation, for each message, so that its token counts. Whoever holds the owner's token is counted by conversation.
        """
        if is_bridge and self.vouches_for(channel.type):
            return channel.sender
        return str(channel.address) if self.is_home else self.name

    @property
    def channel_id(self) -> str:
        """Conversation of a client that names none; "" for the owner's token and for a bridge, which name theirs."""
        return "" if self.is_home or self.token.bridge else own_channel_id(self.token)

    def below(self, id: str) -> str:
        """Return the channelId for a conversation that a client calls `id`, below that of its token if this fixes none.

        >>> TokenGrant(StoredToken("app", "", (MESSAGE,))).below("chat 7")
        'token-app/chat 7'
        """
        is_free = self.is_home or self.token.bridge or self.token.channel_id
        return id if is_free else f"{self.channel_id}/{id}"

    def refusal(self, type: str, channel_id: str | None) -> str:
        """Return why a client with this token may not greet as this channel, "" if it may. channel_id: None for a bridge."""
        if self.is_home:
            return ""
        fixed, who = self.token, f"the token {quote(self.name)}"
        if fixed.type and type != fixed.type:
            return f"{who} is for channel type {quote(fixed.type)}, and the hello names {quote(type)}"
        if fixed.bridge and channel_id is not None:
            return f"{who} is that of a bridge; leave channelId out of the hello"
        if fixed.bridge or channel_id in (None, self.channel_id):
            return ""
        if fixed.channel_id:
            return f"{who} is for channelId {quote(fixed.channel_id)}, and the hello names {quote(channel_id)}"
        if channel_id is not None and channel_id.startswith(self.below("")):
            return ""
        own = f"{quote(self.channel_id)}, and those that begin with {quote(self.below(''))}"
        return f"{who} is for channelId {own}, and the hello names {quote(channel_id)}; --channel fixes another one"


OWNER_GRANT: Final = TokenGrant(StoredToken("home", "", SCOPES), is_home=True)
"""Rights of the token of the home."""


def own_channel_id(token: StoredToken) -> str:
    """Return the conversation that a token which is no bridge's is bound to.

    A name of a token has no "/", so nothing below one token's conversation belongs to another token.
    """
    return token.channel_id or f"token-{token.name}"
