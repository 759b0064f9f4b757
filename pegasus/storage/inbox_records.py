"""Records of the inbox's log, as they are read back: see `inbox` for their lines."""

from __future__ import annotations

import attrs

from pegasus.messages import Address, ChannelInfo, Metadata
from pegasus.storage.item_queue import MAIN
from pegasus.storage.record_log import count_field


@attrs.frozen(eq=False, repr=False)
class MessageHead:
    """The parts of an accepted message that are kept in memory; the text is read back later.

    Example: of `{"type": "message", "n": 7, "message": {...}}` it is the part "message", without files.
    """

    text: str
    """The text, read for its size alone and not kept."""
    id: str
    """The sender's id, by which duplicates are recognised."""
    channel: ChannelInfo
    """Channel that it came from. Its address decides the queue of the item and becomes a known address."""
    metadata: Metadata = attrs.field(factory=dict)
    """Read for the account of its sender, and not kept."""


@attrs.frozen(eq=False, repr=False)
class MessageRecord:
    """An accepted message.

    Example: `{"type": "message", "n": 12, "lane": "main", "rank": 3, "message": {...}}`, written by `accept`.
    """

    message: MessageHead
    n: int = count_field()
    """The number of the item, from 1."""
    lane: str = MAIN
    """The lane that the item waits in."""
    rank: float = 0
    """The priority. Another version may have written any number."""
    owner: bool = False
    """The item is marked as an owner's."""
    discards: tuple[int, ...] = ()
    """Items that need no more work from here on."""
    at: float = 0
    """Wall clock when it was accepted, ms."""


@attrs.frozen(eq=False, repr=False)
class DoneRecord:
    """An item needs no more work.

    Example: `{"type": "done", "n": 12}`. It is a note: a crash may lose it, and the item is handed out again.
    """

    n: int = count_field()
    """Number of the item. A number that does not wait has no effect, since a rewrite may have dropped the item."""


@attrs.frozen(eq=False, repr=False)
class AddressRecord:
    """A client of the address was connected.

    Example: `{"type": "address", "channel": {...}}`, written when a client of a new address connects.
    """

    channel: Address
    """Address of the client."""


@attrs.frozen(eq=False, repr=False)
class CompactedRecord:
    """The last number that was given.

    Example: the first record of a rewritten file. Without it, numbers of dropped items would be given again.
    """

    last_n: int = count_field()
    """Highest number that was given before the rewrite."""


@attrs.frozen(eq=False, repr=False)
class IdsRecord:
    """Ids of messages that are not in the file any more.

    Example: after a rewrite one such record stands for up to 1,000 dropped messages, whose ids are still recognised.
    """

    packed: str
    """Base64 of pairs of a digest and a number, 8 bytes each, big-endian."""


@attrs.frozen(eq=False, repr=False)
class AddressesRecord:
    """Addresses that were seen, as pairs of type and channel id.

    Example: `{"type": "addresses", "known": [["web", "c1"], ["telegram", "42"]]}`, written by a rewrite.
    """

    known: tuple[tuple[str, str], ...]
    """Oldest first, so that reading them in order makes the last one the newest."""


@attrs.frozen(eq=False, repr=False)
class HeardRecord:
    """Addresses at which guests were heard.

    Example: `{"type": "heard", "guests": [["telegram", "42", "telegram:42"], ["slack", "C1", "*"]]}`, written by a rewrite.
    """

    guests: tuple[tuple[str, str, str], ...]
    """Type, channelId, and the account of the one guest, or SEVERAL."""
