"""The directory of known addresses, and where a reply goes (interfaces 8.2, trap T20).

Ids reach the model escaped, in the metadata line, and come back as the model copied them. So the directory is
keyed by the escaped id; escaping is idempotent, hence the raw id and the escaped one both find it.
"""

from __future__ import annotations

import unicodedata
from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice
from typing import TypeVar

from pegasus.messages import Address, ChannelInfo
from pegasus.storage.messages import Post, Unroutable

K = TypeVar("K")

REMEMBERED = 10_000
"""Addresses the directory holds at most; the ones seen longest ago go first."""
NAMED = 20
"""Addresses that an Unroutable names at most."""

_PERCENT = str.maketrans({"|": "%7C", "[": "%5B", "]": "%5D"})
_STRIPPED = frozenset({"Cc", "Cf", "Zl", "Zp", "Cs"})


def escape_field(text: str) -> str:
    """An id or name as it may stand in the metadata line: `|`, `[`, `]` percent-escaped, no control characters.

    Unicode Cc, Cf, Zl and Zp go (trap T29), and lone surrogates, which no provider's UTF-8 could carry.
    """
    if not text.isprintable():
        text = "".join(character for character in text if unicodedata.category(character) not in _STRIPPED)
    return text.translate(_PERCENT)


class Directory:
    """Addresses that were seen, newest last, and those that have somebody connected now."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._remembered = remembered
        self._seen: OrderedDict[Address, None] = OrderedDict()
        self._connected: dict[Address, int] = {}
        self._bridges: dict[str, int] = {}
        self._by_id: dict[str, dict[Address, None]] = {}
        self.bytes = 0
        """About how many bytes it takes to write down what was seen."""

    def __iter__(self) -> Iterator[Address]:
        """The addresses that were seen, the newest last."""
        return iter(self._seen)

    def __len__(self) -> int:
        return len(self._seen)

    def saw(self, address: Address) -> bool:
        """This address exists; True if that was news."""
        news = address not in self._seen
        self._seen[address] = None
        self._seen.move_to_end(address)
        if news:
            self.bytes += _size(address)
            self._index(address)
            if len(self._seen) > self._remembered:
                self._forget(next(iter(self._seen)))
        return news

    def connected(self, type: str, channel_id: str | None) -> None:
        """A client for the address is there; with channel_id None, a bridge or an adapter for the whole type."""
        if channel_id is None:
            self._bridges[type] = self._bridges.get(type, 0) + 1
            return
        address = Address(type, channel_id)
        self._connected[address] = self._connected.get(address, 0) + 1
        self._index(address)

    def disconnected(self, type: str, channel_id: str | None) -> None:
        """The counterpart of `connected`; one without it changes nothing."""
        if channel_id is None:
            _release(self._bridges, type)
            return
        address = Address(type, channel_id)
        _release(self._connected, address)
        self._drop_unknown(address)

    def has_bridge(self, type: str) -> bool:
        """Whether somebody is there who takes replies for the whole type."""
        return type in self._bridges

    def named(self, channel_id: str) -> list[Address]:
        """Known addresses with this id, as it is or as the metadata line shows it."""
        return list(self._by_id.get(escape_field(channel_id), ()))

    def newest(self, limit: int = NAMED) -> tuple[Address, ...]:
        """Known addresses for people to choose from, the newest first."""
        unseen = (address for address in reversed(self._connected) if address not in self._seen)
        return tuple(islice((*unseen, *islice(reversed(self._seen), limit)), limit))

    def _index(self, address: Address) -> None:
        self._by_id.setdefault(escape_field(address.channel_id), {})[address] = None

    def _forget(self, address: Address) -> None:
        del self._seen[address]
        self.bytes -= _size(address)
        self._drop_unknown(address)

    def _drop_unknown(self, address: Address) -> None:
        if address in self._seen or address in self._connected:
            return
        key = escape_field(address.channel_id)
        alike = self._by_id.get(key)
        if alike is not None:
            alike.pop(address, None)
            if not alike:
                del self._by_id[key]


def _size(address: Address) -> int:
    return len(address.type) + len(address.channel_id) + 8


def _release(counts: dict[K, int], key: K) -> None:
    left = counts.get(key, 0) - 1
    if left > 0:
        counts[key] = left
    else:
        counts.pop(key, None)


def resolve(directory: Directory, post: Post) -> ChannelInfo | Unroutable:
    """Where a reply goes, or why nowhere.

    In the order of interfaces 8.2: a known address with the given id and type; the one known type that has the id (a model
    often gives the type of the message it answers, although the id is another's: trap T20); the source, if the id is its
    own; a new id, if its type is given and an adapter or bridge for that type is there.
    """
    if not post.channel_id:
        return Unroutable("channelId is missing", directory.newest())
    alike = _alike(directory, post)
    fitting = [address for address in alike if _type_fits(address.type, post.channel_type)] or alike
    choice = _choose(fitting, post)
    if choice is not None:
        return _channel(choice, post)
    if fitting:
        types = ", ".join(sorted({escape_field(address.type) for address in fitting}))
        return Unroutable(
            f"several channels have the id {post.channel_id!r}; say which channelType: {types}", tuple(fitting[:NAMED])
        )
    if post.channel_type and directory.has_bridge(post.channel_type):
        return _channel(Address(post.channel_type, post.channel_id), post)
    return Unroutable(_reason(post), directory.newest())


def _alike(directory: Directory, post: Post) -> list[Address]:
    """Addresses with the id that was given; the source counts as known, even if the directory has lost it."""
    alike = directory.named(post.channel_id)
    source = post.source.address
    if source not in alike and escape_field(source.channel_id) == escape_field(post.channel_id):
        alike.append(source)
    return alike


def _type_fits(type: str, given: str | None) -> bool:
    return not given or type == given or escape_field(type) == escape_field(given)


def _choose(fitting: list[Address], post: Post) -> Address | None:
    """Types may share an id, and two ids may look alike once escaped: the source is meant first, then the exact one."""
    if post.source.address in fitting:
        return post.source.address
    types = {address.type for address in fitting}
    wanted = post.channel_type if post.channel_type in types else None
    exact = [a for a in fitting if a.channel_id == post.channel_id and a.type == (wanted or a.type)]
    return next((some[0] for some in (exact, fitting) if len(some) == 1), None)


def _channel(address: Address, post: Post) -> ChannelInfo:
    if address != post.source.address:
        return ChannelInfo(address.type, address.channel_id, None, post.reply_to or None)
    thread = post.reply_to or None
    if thread and post.source.reply_to and thread == escape_field(post.source.reply_to):
        thread = post.source.reply_to
    return ChannelInfo(address.type, address.channel_id, post.source.user_id, thread)


def _reason(post: Post) -> str:
    if post.channel_type:
        return f"no channel of type {post.channel_type!r} with the id {post.channel_id!r} is known, and nobody serves that type now"
    return f"no channel with the id {post.channel_id!r} is known; a new one needs its channelType"
