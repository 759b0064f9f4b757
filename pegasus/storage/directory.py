"""Known addresses, and the address that a reply goes to.

The model names the target of a reply by an id, and perhaps a type of channel. The model sees ids escaped, in the metadata line of a
message, and returns them as it saw them. `resolve` looks at the known addresses with the given id and, if one was given, of the given
type; the source of the message that is being answered is among them. It takes the first of these that exists:

1. the source, if it is among them;
2. the only address whose id and type are exactly as given, without any escaping;
3. the only address;
4. if there is none: the given id as a new address of the given type, if a bridge or an adapter serves that type now. Without a type
   it is the source's, if that is a service: a direct message to "@anna" from a channel of Slack. Nobody is found in this way from a
   terminal, a page or an HTTP client.

Everything else is an error that names the known channels, so that the model can correct itself. A type that was given is never left
for another one, since the address may be a stranger's there. A reply is resolved once (by `own_channel`, else by `Route`): the policy
decides about the address that was found, and the post carries it.

Ids are compared as they are escaped. Escaping an escaped id changes nothing, so that both forms find the address.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator
from itertools import islice

import attrs

from pegasus.messages import APART, Address, ChannelInfo, InboundMessage, escape_field
from pegasus.storage.messages import Post, Unroutable

MAX_ADDRESSES = 10_000
"""Addresses that the directory holds at most; the ones that were seen longest ago are dropped first."""
SEVERAL = "*"
"""Stands for the accounts of an address where several people are heard."""
MAX_NAMED = 20
"""Addresses that an `Unroutable` names at most."""
_DOORS = ("cli", "web", "api")
"""Types of the program's own doors, where an id that nobody has used names nobody."""


class Directory:
    """Addresses that were seen, and those that somebody is connected for now.

    It is derived from the inbox and from connections, so it is not written by itself. Addresses that were seen
    are in the inbox's log; connections end with the process.

        directory = Directory()
        directory.add(Address("web", "c1"))
        directory.with_id("c1")   # [Address("web", "c1")]

    Example: `resolve(directory, post)` returns the channel of a reply by what the directory knows.
    """

    def __init__(self, limit: int = MAX_ADDRESSES) -> None:
        self._limit = limit
        """Addresses that are kept of those that were seen."""
        self._seen: OrderedDict[Address, None] = OrderedDict()
        """The address that was seen last is the last one."""
        self._connected: Counter[Address] = Counter()
        """Number of clients by address."""
        self._bridges: Counter[str] = Counter()
        """Number of bridges and adapters by the type that they serve."""
        self.heard: dict[Address, str] = {}
        """By address that others than its owner have written from: the account of the one guest, or SEVERAL."""

    def __iter__(self) -> Iterator[Address]:
        """Iterate over the addresses that were seen, the newest last."""
        return iter(self._seen)

    def add(self, address: Address) -> bool:
        """Note that this address exists. Return whether it is new."""
        is_new = address not in self._seen
        self._seen[address] = None
        self._seen.move_to_end(address)
        if len(self._seen) > self._limit:
            dropped, _ = self._seen.popitem(last=False)
            self.heard.pop(dropped, None)
        return is_new

    # ------------------------------------------------------------------ who is heard where

    def note_heard(self, address: Address, heard: str) -> None:
        """Note who was heard at this address, as `guest_of` returns it."""
        if heard:
            self.heard[address] = heard
        else:
            self.heard.pop(address, None)

    def guest_of(self, address: Address) -> str:
        """Return the account of the one guest who was heard at this address, SEVERAL for others than one, "" for none."""
        return self.heard.get(address, "")

    def connected(self, type: str, channel_id: str | None) -> None:
        """Note a client for the address or, with channel_id None, a bridge or an adapter for the whole type.

        Clients are counted, as several may be connected for the same address; each needs its own
        `disconnected`.
        """
        if channel_id is None:
            self._bridges[type] += 1
        else:
            self._connected[Address(type, channel_id)] += 1

    def disconnected(self, type: str, channel_id: str | None) -> None:
        """Note the opposite of `connected`. Without a call of that it changes nothing."""
        if channel_id is None:
            self._bridges -= Counter([type])
        else:
            self._connected -= Counter([Address(type, channel_id)])  # forgets what is down to 0, and goes no further

    def has_bridge(self, type: str) -> bool:
        """Return whether a bridge or an adapter serves the whole type now."""
        return type in self._bridges

    def with_id(self, channel_id: str) -> list[Address]:
        """Return the known addresses with this id, given as it is or as the metadata line shows it."""
        wanted = escape_field(channel_id)
        return [address for address in {**self._seen, **self._connected} if escape_field(address.channel_id) == wanted]

    def newest(self, limit: int = MAX_NAMED) -> tuple[Address, ...]:
        """Return known addresses to choose from, the newest first.

        Connected addresses that nobody has written from come first, since they are about to be used.
        """
        unseen = (address for address in reversed(self._connected) if address not in self._seen)
        return tuple(islice((*unseen, *islice(reversed(self._seen), limit)), limit))


def place(message: InboundMessage, heard: str, *, is_owners: bool) -> tuple[InboundMessage, str]:
    """Return a message with the conversation that it belongs to in its metadata, apart or not, and who is heard at its address then.

    heard: who was heard there before, as `Directory.guest_of` returns it.

    The sender of a message says so if a guest writes, or several people read along. Everything else, such as a report, belongs to
    the conversation that its address has had. An owner's private message does where another person is heard; whoever was a guest
    there, and is the owner by now, is no other person.
    """
    said = message.metadata.get(APART)
    is_apart = said if isinstance(said, bool) else bool(heard)
    hears = heard
    if not message.is_internal:
        if said is not True and is_owners and heard == message.account:
            is_apart = False
        hears = heard_after(heard, message.account, is_apart=is_apart, is_owners=is_owners)
    if is_apart and said is not True:
        message = attrs.evolve(message, metadata={**message.metadata, APART: True})
    return message, hears


def heard_after(heard: str, account: str, *, is_apart: bool, is_owners: bool) -> str:
    """Return who is heard at an address after somebody has written there: the account of the one guest, SEVERAL, or "" for none."""
    if is_apart:
        new = SEVERAL if is_owners else account
        return new if heard in ("", new) else SEVERAL
    return "" if is_owners and heard == account else heard


def resolve(directory: Directory, post: Post) -> ChannelInfo | Unroutable:
    """Return the channel that a reply goes to, by the rules at the top of this module, or the reason why there is none.

    Raises nothing: a wrong target is a normal answer, `Unroutable`, which the model gets as a tool result.
    """
    if post.to is not None:
        return post.to
    if not post.channel_id:
        return Unroutable("channelId is missing", directory.newest())
    if (own := own_channel(post)) is not None:
        return own
    source, alike = post.source, directory.with_id(post.channel_id)
    if _is_alike(source.channel_id, post.channel_id) and source.address not in alike:
        alike.append(source.address)  # it counts as known, even if the directory has dropped it
    fitting = [address for address in alike if _type_fits(address.type, post.channel_type)]
    choice = _choose(fitting, post)
    if choice is not None:
        return _channel(choice, post)
    if fitting:
        types = ", ".join(sorted({escape_field(address.type) for address in fitting}))
        return Unroutable(
            f"several channels have the id {post.channel_id!r}; say which channelType: {types}",
            tuple(fitting[:MAX_NAMED]),
        )
    type = post.channel_type or (post.source.type if post.source.type not in _DOORS else "")
    if type and directory.has_bridge(type):
        return _channel(Address(type, post.channel_id), post)
    return Unroutable(_reason(post), directory.newest())


def own_channel(post: Post) -> ChannelInfo | None:
    """Return the channel of a reply that answers in its own conversation, as most do: no address need be looked for. Else None."""
    source = post.source
    is_own = _is_alike(source.channel_id, post.channel_id) and _type_fits(source.type, post.channel_type)
    return _channel(source.address, post) if is_own else None


def _type_fits(type: str, given: str | None) -> bool:
    """Return whether the type is the given one, as it is or escaped; no given type fits all."""
    return not given or _is_alike(type, given)


def _is_alike(known: str, given: str) -> bool:
    """Return whether both are the same, as they are or escaped."""
    return known == given or escape_field(known) == escape_field(given)


def _choose(fitting: list[Address], post: Post) -> Address | None:
    """Return the one address that is meant, None if there is none or several.

    Types may share an id, and two ids may look alike once they are escaped. Then the source is meant first, and after
    it the address whose id and type are exactly the given ones.
    """
    if post.source.address in fitting:
        return post.source.address
    exact = [a for a in fitting if a.channel_id == post.channel_id and a.type == (post.channel_type or a.type)]
    return next((candidates[0] for candidates in (exact, fitting) if len(candidates) == 1), None)


def _channel(address: Address, post: Post) -> ChannelInfo:
    """Return the channel of a reply. User and thread of the source belong to the source's address only."""
    source, thread = post.source, post.reply_to or None
    if address != source.address:
        return ChannelInfo(address.type, address.channel_id, None, thread)
    if thread == source.reply_to or (thread and source.reply_to and thread == escape_field(source.reply_to)):
        return source
    return attrs.evolve(source, reply_to=thread)


def _reason(post: Post) -> str:
    """Return why a reply cannot be sent, for the model."""
    if post.channel_type:
        return f"no channel of type {post.channel_type!r} with the id {post.channel_id!r} is known, and nobody serves that type now"
    return f"no channel with the id {post.channel_id!r} is known; a new one needs its channelType"
