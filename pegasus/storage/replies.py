"""A reply in memory and in the file: what `outbox` keeps of it, and its records."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from pegasus.messages import Address, ChannelInfo, Json, OutboundMessage
from pegasus.storage.volume import Span
from pegasus.wire import encode_line, from_wire, number_of, text_of, to_wire

GONE = Span(0, 0)
"""The place of a reply whose text is in the file no more."""


class Stored:
    """A reply. message: None if it is to be read back from `span`; span.length 0: its text is gone (acknowledged)."""

    __slots__ = ("acked", "at", "channel", "key", "message", "seq", "span")

    def __init__(self, key: str, channel: ChannelInfo, seq: int, at: int, span: Span) -> None:
        self.key = key
        self.channel = channel
        self.seq = seq
        self.at = at
        self.span = span
        self.message: OutboundMessage | None = None
        self.acked = False


class Numbering:
    """The replies to one address. last, acked: seqs; unacknowledged: in seq order."""

    __slots__ = ("acked", "channel", "last", "unacknowledged")

    def __init__(self, channel: ChannelInfo) -> None:
        self.channel = channel  # the latest, so that replies to one channel share it
        self.last = 0
        self.acked = 0
        self.unacknowledged: deque[Stored] = deque()

    def share(self, channel: ChannelInfo) -> ChannelInfo:
        """The same channel, as one object for all replies in a row that go to it."""
        if self.channel != channel:
            self.channel = channel
        return self.channel


class Compaction(NamedTuple):
    """New content of a file, where unacknowledged replies will be in it, and the ones that were given up."""

    parts: list[bytes | Span]
    moved: list[tuple[Stored, Span]]
    dropped: list[Stored]


def message_in(line: bytes) -> OutboundMessage:
    """The reply in a record that was read back. Raises ValueError or KeyError if there is none."""
    return from_wire(json.loads(line)["message"], OutboundMessage)


def reply_line(key: str, at: int, message: OutboundMessage) -> bytes:
    """A reply. Raises TypeError, ValueError or RecursionError if it is no JSON."""
    return encode_line({"type": "reply", "key": key, "at": at, "message": to_wire(message)})


def ack_line(address: Address, seq: int) -> bytes:
    """An acknowledgement of everything up to seq."""
    return encode_line({"type": "ack", "channel": to_wire(address), "seq": seq})


def channel_in(channel: dict[str, Any]) -> ChannelInfo:
    """The channel in a record. Raises KeyError or TypeError."""
    user_id, reply_to = (
        None if (value := channel.get(key)) is None else text_of(value) for key in ("userId", "replyTo")
    )
    return ChannelInfo(text_of(channel["type"]), text_of(channel["channelId"]), user_id, reply_to)


def address_line(numbering: Numbering) -> bytes:
    """The numbering of an address."""
    address = to_wire(numbering.channel.address)
    return encode_line({"type": "address", "channel": address, "seq": numbering.last, "acked": numbering.acked})


def keys_line(some: Iterable[Stored]) -> bytes:
    """What a compaction keeps of acknowledged replies; each channel is written once."""
    places: dict[ChannelInfo, int] = {}
    replies: list[Json] = [[stored.key, stored.seq, places.setdefault(stored.channel, len(places))] for stored in some]
    return encode_line({"type": "keys", "channels": [to_wire(channel) for channel in places], "replies": replies})


def keys_in(record: dict[str, Any]) -> list[tuple[str, ChannelInfo, int]]:
    """Key, channel and seq of acknowledged replies. Raises KeyError, TypeError, ValueError or IndexError."""
    channels = [channel_in(channel) for channel in record["channels"]]
    return [(text_of(key), channels[place], number_of(seq)) for key, seq, place in record["replies"]]
