"""Messages as a program that embeds the agent sees them, and their mapping to those of the rest of the product.

They have the shape of a message bus, with `channel`, `sender_id`, `chat_id`, `content`, `timestamp`, `media`, `metadata` side by side.
The product has a text, and the channel as a value of its own (`pegasus.messages`). The mapping loses nothing in either direction:

| here | there |
|---|---|
| `channel`, `chat_id` | `channel.type`, `channel.channel_id` |
| `sender_id` ("" = unknown) | `channel.user_id` (None) |
| `reply_to` | `channel.reply_to` |
| `content`, `media`, `id` | `text`, `media`, `id` |
| `timestamp` | `metadata["timestamp"]`, for which there is no other place |
"""

from __future__ import annotations

import uuid
from base64 import b64decode, b64encode
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final

import attrs

from pegasus.file_types import detect_type
from pegasus.messages import Address, ChannelInfo, InboundMessage, Json, Media, Metadata, OutboundMessage, StoredFile

TIMESTAMP: Final = "timestamp"
"""Key in the metadata of the product's message."""


def new_message_id() -> str:
    """Return an id for a message that has none."""
    return f"embed-{uuid.uuid4().hex}"


def _check_metadata(instance: object, attribute: object, value: Mapping[str, Json]) -> None:
    if _is_time(value.get(TIMESTAMP)):
        raise ValueError('metadata: found the key "timestamp"; allowed: any other; the time has a field of its own')


def _is_time(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@attrs.frozen
class InboundChatMessage:
    """A message from a person to the agent. `pegasus.embedding` calls it `InboundMessage`."""

    channel: str
    """Kind of channel: "cli", "telegram" … Any word will do."""
    sender_id: str
    """Person who has written; "" if that is not known. With `channel` it decides who is an owner (`agent.owners`)."""
    chat_id: str
    """Conversation within the channel."""
    content: str
    """Text of the message, or a command: "/stop"."""
    timestamp: int | None = None
    """Time at which it was written, ms since the epoch; None: unknown."""
    media: tuple[Media, ...] = ()
    """Files that came with it; `attachment` makes one of a path."""
    metadata: Metadata = attrs.field(factory=dict, validator=_check_metadata)
    """Free-form data. {"group": True, "mentioned": False} says that several people read along and the agent was not meant."""
    id: str = attrs.field(factory=new_message_id)
    """The sender's own id: the same one in the same chat is the same message, however often it comes."""
    reply_to: str | None = None
    """Thread within the chat."""

    @property
    def session_key(self) -> str:
        """Return the name of its conversation: "telegram:c1"."""
        return session_key(self)

    def to_core(self) -> InboundMessage:
        """Return it as the rest of the product has it."""
        metadata = dict(self.metadata) | ({} if self.timestamp is None else {TIMESTAMP: self.timestamp})
        channel = ChannelInfo(self.channel, self.chat_id, self.sender_id or None, self.reply_to)
        return InboundMessage(self.content, channel, self.id, metadata, self.media)

    @classmethod
    def from_core(cls, message: InboundMessage) -> InboundChatMessage:
        """Return a message of the product in this shape."""
        metadata, channel = dict(message.metadata), message.channel
        time = metadata.pop(TIMESTAMP) if _is_time(metadata.get(TIMESTAMP)) else None
        return cls(
            channel.type,
            channel.user_id or "",
            channel.channel_id,
            message.text,
            time if isinstance(time, int) else None,
            message.media,
            metadata,
            message.id,
            channel.reply_to,
        )


class MessageKind(StrEnum):
    """Kind of a message from the agent."""

    PROGRESS = "progress"
    """The text so far of a turn that is not over. Each replaces the one before."""
    REASONING = "reasoning"
    """The newest part of the model's reasoning, only with `agent.show_reasoning`. It is no part of any text."""
    FINAL = "final"
    """The end of a turn, once, with everything that was said in it; empty if the agent chose silence."""
    MESSAGE = "message"
    """A message that no turn of `process_message` waits for: the result of a task, a reminder."""


@attrs.frozen
class TurnUsage:
    """Usage of all model calls for a message: `TurnUsage(1200, 80, 900, 0.0031)`."""

    input_tokens: int
    """Tokens of all prompts, what came from a cache included."""
    output_tokens: int
    """Tokens of all answers, thinking included."""
    cached_tokens: int = 0
    """Those of the input that the provider had in its cache."""
    cost: float | None = None
    """Dollars; None if a price is not known."""


@attrs.frozen
class OutboundChatMessage:
    """A message of the agent. `pegasus.embedding` calls it `OutboundMessage`.

    A program that can change what it has shown shows `content`, again and again. One that can only append, such as a terminal, writes
    `delta`. One that does neither waits for `is_final`. None of them shows a text twice.

    Example::

        async for message in agent.process_message(InboundMessage("cli", "me", "main", "Hello")):
            if message.is_final:
                print(message.content, message.usage)
    """

    channel: str
    """Kind of channel, as in the message that is answered."""
    chat_id: str
    """Conversation within the channel."""
    content: str
    """The whole text, Markdown; of progress the whole text so far."""
    kind: MessageKind = MessageKind.MESSAGE
    """State of a turn, its end, or a message beside any turn."""
    sender_id: str = ""
    """Person who is answered; "" if that is not known."""
    reply_to: str | None = None
    """Thread within the chat."""
    media: tuple[Media, ...] = ()
    """Files to send with it; `content_of` returns the bytes of one."""
    metadata: Metadata = attrs.field(factory=dict)
    """Metadata of the reply; of several in one turn that of the last one."""
    seq: int = 0
    """Number of the reply within its chat, from 1; of several in one turn that of the last. 0 for what is no reply."""
    files: tuple[StoredFile, ...] = ()
    """The same files as they lie below the home's folder data."""
    delta: str = ""
    """Text that a reader who appends has to write; "" if everything was shown already."""
    usage: TurnUsage | None = None
    """Usage of the turn so far; only of the final message, and None if nothing counts it."""
    replies: tuple[OutboundMessage, ...] = ()
    """The single replies of the turn, in order; only of the final message."""

    @property
    def is_final(self) -> bool:
        """True for the last message of a turn."""
        return self.kind is MessageKind.FINAL

    @property
    def session_key(self) -> str:
        """Return the name of its conversation: "telegram:c1"."""
        return session_key(self)

    def to_core(self) -> OutboundMessage:
        """Return the reply as the rest of the product has it."""
        channel = ChannelInfo(self.channel, self.chat_id, self.sender_id or None, self.reply_to)
        return OutboundMessage(self.content, channel, self.seq, self.metadata, self.media, self.files)

    @classmethod
    def from_core(cls, reply: OutboundMessage) -> OutboundChatMessage:
        """Return a reply of the product in this shape."""
        channel = reply.channel
        return cls(
            channel.type,
            channel.channel_id,
            reply.text,
            sender_id=channel.user_id or "",
            reply_to=channel.reply_to,
            media=reply.media,
            metadata=reply.metadata,
            seq=reply.seq,
            files=reply.files,
            delta=reply.text,
        )


def session_key(message: InboundChatMessage | OutboundChatMessage) -> str:
    """Return the name of the conversation that a message belongs to: its channel and its chat.

    >>> session_key(InboundChatMessage("telegram", "u1", "c1", "Hello"))
    'telegram:c1'
    """
    return str(Address(message.channel, message.chat_id))


def attachment(path: str | Path) -> Media:
    """Return a file as an attachment of a message. Blocks while it reads. Raises OSError."""
    path = Path(path)
    content = path.read_bytes()
    return Media(path.name, detect_type(content, path.name), b64encode(content).decode("ascii"))


def content_of(media: Media) -> bytes:
    """Return the content of a file of a message."""
    return b64decode(media.data)
