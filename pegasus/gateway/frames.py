"""The rules of the protocol about who a client is and what it may say. Pure: text in, a value or a BadFrame out.

`pegasus.protocol` reads the shape of a frame. This module adds what depends on the conversation between the two sides: that
the first frame is a hello and no later one is, that a client speaks for its own address only (a bridge: for its own channel
type), that sequence numbers are possible ones, and that attachments are base64. Ids and names of messages are checked by
`pegasus.intake`, where messages of adapters pass too; those of the other frames are checked here.
"""

from __future__ import annotations

import binascii
from collections.abc import Mapping
from typing import TypeAlias

import attrs

from pegasus.intake import NAME_RULE, is_file_name, is_name
from pegasus.messages import Address, ChannelInfo, InboundMessage, Json, Media
from pegasus.protocol import (
    AckFrame,
    BadFrame,
    CallFrame,
    ClientChannel,
    ClientFrame,
    HelloFrame,
    MessageFrame,
    decode_client_frame,
)
from pegasus.storage import Acknowledge
from pegasus.wire import describe

MAX_SEQ = 2**63
"""Sequence numbers are smaller than this, so that every reader can hold them."""

Incoming: TypeAlias = InboundMessage | Acknowledge | CallFrame
"""What a client may say after its hello, as the rest of the product understands it."""


def read_hello(text: str) -> HelloFrame:
    """Return the first frame of a client, a hello whose fields can be used. The token is not looked at here.

    Raises BadFrame: `unauthorized` if the text is no hello at all, `bad_frame` if a field of the hello is wrong.
    """
    try:
        frame = decode_client_frame(text)
    except BadFrame as error:
        if error.message.startswith("hello."):  # it is a hello, with a bad field
            raise
        raise BadFrame("unauthorized", f"the first frame must be a hello; {error.message}") from None
    if not isinstance(frame, HelloFrame):
        raise BadFrame("unauthorized", "the first frame must be a hello; found another type")
    channel = frame.channel
    _check_name("hello.channel.type", channel.type)
    _check_name("hello.channel.channelId", channel.channel_id)
    _check_name("hello.channel.userId", channel.user_id)
    _check_name("hello.channel.replyTo", channel.reply_to)
    if frame.last_seq is not None:
        _check_seq("hello.lastSeq", frame.last_seq)
    for name, seq in frame.last_seqs.items():
        if not is_name(name):
            raise BadFrame("bad_frame", f"hello.lastSeqs: found the channelId {describe(name)}, allowed: {NAME_RULE}")
        _check_seq(f"hello.lastSeqs[{describe(name)}]", seq)
    return frame


def known_seqs(hello: HelloFrame) -> dict[str, int]:
    """Return the last reply that the client says it has, by channelId."""
    if hello.channel.channel_id is None:
        return {name: seq for name, seq in hello.last_seqs.items() if isinstance(seq, int)}
    return {} if hello.last_seq is None else {hello.channel.channel_id: hello.last_seq}


def read_frame(text: str, own: ClientChannel) -> Incoming:
    """Return what a client says that has greeted as `own`. Raises BadFrame `bad_frame` or `unknown_type`.

    The error carries the frame's id if it has one that can be echoed: a client finds what was refused by it. An id that is no
    name is left out, because it may be of any length.

    Example::

        read_frame('{"type":"ack","seq":3}', ClientChannel("web", "c1"))  # Acknowledge(Address("web", "c1"), 3)
    """
    try:
        frame = decode_client_frame(text)
    except BadFrame as error:
        error.id = error.id if error.id is not None and is_name(error.id) else None
        raise
    try:
        return _understand(frame, own)
    except BadFrame as error:
        if isinstance(frame, MessageFrame | CallFrame) and is_name(frame.id):
            error.id = frame.id
        raise


def _understand(frame: ClientFrame, own: ClientChannel) -> Incoming:
    """Return a frame as what it means for the rest of the product. A second hello is refused: it could change the address."""
    match frame:
        case MessageFrame():
            return _read_message(frame, own)
        case AckFrame():
            return _read_ack(frame, own)
        case CallFrame():
            _check_name("call.id", frame.id)
            _check_name("call.method", frame.method)
            return frame
        case HelloFrame():
            raise BadFrame("bad_frame", "hello was said already; allowed now: message, ack, call")


def _read_message(frame: MessageFrame, own: ClientChannel) -> InboundMessage:
    """Return a message with its channel settled and its attachments checked."""
    channel = _channel_of(frame.channel, own)
    for number, file in enumerate(frame.media):
        _check_media(f"message.media[{number}]", file)
    return InboundMessage(frame.text, channel, frame.id, frame.metadata, frame.media)


def _channel_of(named: ChannelInfo | None, own: ClientChannel) -> ChannelInfo:
    """Return the channel of a message: the one it names, if it is the client's own, or else that of the hello.

    A message that names its own address without a user is still written by the user of the hello.
    """
    if named is None:
        if own.info is None:
            raise BadFrame("bad_frame", "message.channel: missing; a bridge must name the channel of each message")
        return own.info
    _check_own("message.channel", named.address, own)
    if own.channel_id is None or named.user_id is not None:
        return named
    return attrs.evolve(named, user_id=own.user_id)


def _read_ack(frame: AckFrame, own: ClientChannel) -> Acknowledge:
    """Return an acknowledgement of replies to the client's own address; a bridge names one of its type."""
    _check_seq("ack.seq", frame.seq)
    if frame.channel is None:
        if own.info is None:
            raise BadFrame("bad_frame", "ack.channel: missing; a bridge must name the channel it acknowledges")
        return Acknowledge(own.info.address, frame.seq)
    _check_name("ack.channel.channelId", frame.channel.channel_id)
    address = Address(frame.channel.type, frame.channel.channel_id)
    _check_own("ack.channel", address, own)
    return Acknowledge(address, frame.seq)


# ------------------------------------------------------------------ single values


def _check_own(field: str, address: Address, own: ClientChannel) -> None:
    """Raise BadFrame if a client names an address that is not its own, or a bridge one of another channel type."""
    if address.type != own.type and own.channel_id is None:
        raise BadFrame("bad_frame", f"{field}.type: found {describe(address.type)}, allowed: {describe(own.type)}")
    if own.channel_id is not None and address != Address(own.type, own.channel_id):
        raise BadFrame("bad_frame", f"{field}: found {describe(str(address))}, allowed: {describe(str(own))}")


def _check_name(field: str, value: str | None) -> None:
    if value is not None and not is_name(value):
        raise BadFrame("bad_frame", f"{field}: found {describe(value)}, allowed: {NAME_RULE}")


def _check_seq(field: str, value: Json) -> None:
    """Raise BadFrame for a sequence number that no reply can have. JSON's true is no number here."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < MAX_SEQ:
        raise BadFrame("bad_frame", f"{field}: found {describe(value)}, allowed: a whole number from 0 on")


def _check_media(field: str, file: Media) -> None:
    """Raise BadFrame for an attachment that could not be decoded or named later, when its sender no longer waits."""
    names: Mapping[str, str] = {"name": file.name, "mime": file.mime}
    for key, value in names.items():
        if not is_file_name(value):
            raise BadFrame(
                "bad_frame", f"{field}.{key}: found {describe(value)}, allowed: 1 to 256 printable characters"
            )
    try:
        binascii.a2b_base64(file.data.encode("ascii"), strict_mode=True)
    except ValueError as error:
        raise BadFrame("bad_frame", f"{field}.data: found {describe(file.data)} ({error}), allowed: base64") from None
