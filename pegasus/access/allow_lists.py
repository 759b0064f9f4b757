"""Allow lists: who may talk to the agent.

Who may write is decided by the settings `[channels.<type>]` and by the people whom the owner has let in (`pairing`), before a message
is accepted. Names are compared as they are: lower and upper case differ, and there are no patterns. The name of a person is believed
here; the client has shown the gateway a token that lets it speak for this channel.

    access    somebody unknown who writes
    pairing   gets one short answer with a code, which the owner approves (never in a group)
    allow_list   gets no answer
    open      is heard

Owners are let in without being listed. A channel type without a section in the settings is open.

A bridge says in the metadata of a message what only it can know: `group` (true or false) whether several people read the
conversation, and `mentioned` (false) that the message is not meant for the agent. Without `group`, the ids of Telegram and Slack
show it; a conversation of another type counts as a direct one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import attrs

from pegasus.access.principal import OWN_TYPES, is_owner
from pegasus.messages import ChannelInfo, Metadata

GROUP: Final = "group"
"""Key of a message's metadata: whether several people read the conversation."""
MENTIONED: Final = "mentioned"
"""Key of a message's metadata: False if it is not meant for the agent."""

_NOTHING: Final[Metadata] = {}


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
