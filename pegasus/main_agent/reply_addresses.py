"""Addresses of replies: each is found once, and the policy decides about exactly the one that is used.

A model names the receiver of a reply. The journal knows what that means (`pegasus.storage.directory`), so it is asked first (`route`);
from then on the post carries the channel that was found. Whatever looks at the receiver afterwards, the policy, the files and the
journal itself, looks at the same value.

A reply leaves the conversation at hand if it goes anywhere else than where the message came from, and its receiver is not an owner. An
owner's conversation is one that `agent.owners` names, or any on a door that only tokens open (a terminal, a page, an HTTP client), but
no conversation that a client without the rights of an owner may speak as: "web:*" is no promise about the page of a guest. Files leave
also where others read along. A reply that leaves is decided about if anything from outside stands in the conversation, whoever has
begun the turn: the words may be there that made the model send it.

A scheduled job answers where its maker has told it to. If that is not where the job was made, and its maker had read text from
outside, that text may have chosen the place, so a reply there counts as leaving.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import attrs

from actors import Ref
from pegasus.access import OWN_TYPES, Principal, is_group, is_owner
from pegasus.main_agent.replies import WantedReply, unroutable_reason
from pegasus.main_agent.services import AgentServices
from pegasus.messages import Address, ChannelInfo, InboundMessage
from pegasus.outside import Untrusted
from pegasus.schedule import PLACED
from pegasus.storage import JournalMessage, Route, Unroutable


@attrs.frozen(eq=False, repr=False)
class ReplyAddresses:
    """Finds the channels of replies, and tells which of them are to be decided about.

    Example::

        addresses = ReplyAddresses(services, journal)
        replies = await addresses.route(parse_replies(item, calls, room), None)
    """

    _services: AgentServices
    """Gives the owners, and the conversations of guests."""
    _journal: Ref[JournalMessage]
    """Knows all addresses."""

    async def route(self, replies: Mapping[str, WantedReply], only: Address | None) -> dict[str, WantedReply]:
        """Return the replies with the channels that they go to; refused where there is none.

        only: the one channel that a refusal may name; None: all that are known.
        """
        posts = {id: reply.post for id, reply in replies.items() if reply.post is not None}
        channels = await self._journal.ask(partial(Route, posts=tuple(posts.values()))) if posts else ()
        routed = dict(replies)
        for (id, post), channel in zip(posts.items(), channels, strict=True):
            if isinstance(channel, Unroutable):
                routed[id] = WantedReply(refusal=unroutable_reason(channel, only))
            else:
                routed[id] = attrs.evolve(replies[id], post=attrs.evolve(post, to=channel))
        return routed

    def is_own(self, channel: ChannelInfo) -> bool:
        """Return whether nobody but an owner reads this conversation, as far as it is known."""
        is_owners = channel.type in OWN_TYPES or is_owner(channel, self._services.config.now.owners)
        return is_owners and not self._services.is_from_guest(channel.address)

    def labels_of(
        self,
        target: ChannelInfo,
        message: InboundMessage,
        principal: Principal,
        outside: tuple[Untrusted, ...],
        *,
        has_files: bool = False,
    ) -> tuple[Untrusted, ...]:
        """Return the labels of text from outside because of which the policy decides about a reply; () if it need not.

        target: the channel that was found. message: the one that is answered, worked on for this principal. outside: labels of the
        conversation.
        """
        is_here = target.address == message.channel.address
        is_placed = is_here and message.metadata.get(PLACED) is True
        if is_here and not has_files and not is_placed:
            return ()
        is_owners = (is_here and not is_placed and principal.is_owner) or self.is_own(target)
        if is_owners and not (is_here and is_group(message.channel, message.metadata)):
            return ()
        if is_here and not is_placed and not principal.is_owner:
            # A guest who gets an answer in the own conversation has asked for it.
            return tuple(label for label in outside if label is not Untrusted.GUEST)
        return outside
