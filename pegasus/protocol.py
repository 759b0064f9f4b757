"""The protocol pegasus.v1 between the gateway and its clients: every frame, declared once for both directions.

A frame is one JSON object in one WebSocket text message. Its `type` says which of the classes below it is; the other keys
are the class's fields in camelCase. `encode_frame` writes a frame, `decode_client_frame` reads what a client sends and
`decode_server_frame` what the gateway sends, all through `pegasus.wire`:

    hello, message, ack, call              client → gateway
    welcome, accepted, reply, typing,
    progress, task, approval, said,
    result, event, error                           gateway → client

The module knows the shape of frames and nothing else. Whether a client may name a channel is decided by the gateway, whether
a name may be used by `pegasus.intake`. The client package imports this module instead of the server.

Two rules hold for reading. First, whatever text comes, it gives a frame or a BadFrame that says what was found and what is
allowed; no other exception. Second, what a client's frame holds can be written as UTF-8 JSON again, since `wire` reads it as foreign:
it has no halves of surrogate pairs, no numbers beyond 64 bits and no endless nesting. The journal relies on that. Unknown keys are
ignored, and null is the same as an absent key, so that older and newer programs understand each other.

Example::

    text = encode_frame(CallFrame(id="7", method="status"))       # '{"type":"call","id":"7","method":"status"}'
    decode_client_frame(text)                                     # CallFrame(id='7', method='status', params={})
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Final, TypeAlias

import attrs

from pegasus.messages import (
    Address,
    ApprovalNotice,
    ChannelInfo,
    FileEdit,
    Json,
    Media,
    Metadata,
    OutboundMessage,
    ReplyDraft,
    Said,
    TaskProgress,
    Typing,
)
from pegasus.wire import WireError, decode_json, describe, encode_json, from_wire, is_unicode, to_unicode, to_wire

SUBPROTOCOL: Final = "pegasus.v1"
"""The name that is agreed in the WebSocket handshake."""
PROTOCOL: Final = 1
"""The number that `welcome` carries."""

# Codes that a connection is closed with: our own from 4000 on, the others from RFC 6455 section 7.4 and its registry.
BAD_HELLO: Final = 4400
"""The hello has an invalid field."""
UNAUTHORIZED: Final = 4401
"""No token, a wrong one, a foreign Origin, or no hello."""
STOPPING: Final = "the gateway is stopping"
"""Reason in the close frame of a gateway that is stopped; a connection that is lost has none."""
GOING_AWAY: Final = 1001
"""The gateway stops."""
TOO_LARGE: Final = 1009
"""A frame is larger than the gateway takes."""
SERVER_ERROR: Final = 1011
"""The journal could not be read; connecting again will get what is missing."""
TRY_LATER: Final = 1013
"""Too many clients; also sent to a client that does not read, whose replies are kept."""


class WebSocketClosed(Exception):
    """The connection is closed, or is being closed. str() is a sentence for a person."""

    def __init__(self, code: int | None = None, reason: str = "") -> None:
        """code, reason: of the other side's close frame; None and "" without one."""
        said = "" if code is None else f" ({code}{': ' + reason if reason else ''})"
        super().__init__(f"the connection was closed{said}")
        self.code = code
        self.reason = reason


class BadFrame(Exception):
    """A text that is not a frame of this protocol, or not one that is allowed at this point.

    Example::

        try:
            frame = decode_client_frame(text)
        except BadFrame as error:
            return encode_frame(ErrorFrame(error.code, error.message, error.id))

    The gateway answers in this way and keeps the connection; only a bad hello ends it.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        """One of the codes of ErrorFrame."""
        self.message = message
        """Description of what was found and what is allowed, for a person."""
        self.id: str | None = None
        """The id of the client's frame, where it had one. It may be of any length and content."""
        self.frame: type[ClientFrame] | None = None
        """The class of the client's frame, where its `type` could be read: a field of this frame is wrong."""


# ------------------------------------------------------------------ from the client


@attrs.frozen
class ClientChannel:
    """The channel that a client names in its hello: an address, or only a type."""

    type: str
    """Kind of channel, such as "web". It may not have a colon."""
    channel_id: str | None = None
    """None for a bridge, which serves all conversations of its type."""
    user_id: str | None = None
    """Person who writes, where that is not the conversation itself."""
    reply_to: str | None = None
    """Thread within the conversation."""

    @cached_property
    def info(self) -> ChannelInfo | None:
        """The channel that the client speaks for; None for a bridge."""
        if self.channel_id is None:
            return None
        return ChannelInfo(self.type, self.channel_id, self.user_id, self.reply_to)

    def __str__(self) -> str:
        return f"{self.type} bridge" if self.channel_id is None else f"{self.type}:{self.channel_id}"


@attrs.frozen
class HelloFrame:
    """The first frame of a client: who it is, and which replies it has.

    Example::

        await socket.send_message(encode_frame(HelloFrame(ClientChannel("web", "me"), token, last_seq=12)))
        welcome = decode_server_frame(await socket.get_message())  # WelcomeFrame, or ErrorFrame and the end
    """

    channel: ClientChannel
    """Conversation or channel type that the client speaks for as long as it is connected."""
    token: str | None = attrs.field(default=None, repr=False)
    """None where the handshake carried `Authorization: Bearer …`."""
    last_seq: int | None = None
    """The last reply that the client has; only greater ones are sent. None: everything that nobody acknowledged."""
    last_seqs: Mapping[str, Json] = attrs.field(factory=dict)
    """The same for a bridge, by channelId."""
    calls_only: bool = False
    """The client makes calls and is no conversation: its address does not become one that the agent may write to."""
    every_reply: bool = False
    """Replies above `last_seq` are sent also if another client of the address has acknowledged them, as far as they are kept."""
    delivery: str = ""
    """Delivery class that a bridge declares, such as "at-least-once". The gateway does not look at it, the conformance suite does."""


@attrs.frozen(eq=False, repr=False)
class MessageFrame:
    """A message for the agent. The answer is AcceptedFrame or ErrorFrame with the same id.

    Example: `MessageFrame("m-1", "hello")` from a client, `MessageFrame("e-7", "hello", ChannelInfo("matrix", "!room", "@anna"))`
    from a bridge. A client that saw no answer sends it again with the same id.
    """

    id: str
    """Chosen by the client. The same id on the same address is one message, however often it is sent."""
    text: str
    """Text as it was written; it may be empty if there are files."""
    channel: ChannelInfo | None = None
    """Required from a bridge. Any other client may name a user or a thread of its own address here."""
    metadata: Metadata = attrs.field(factory=dict)
    """Free-form facts about the message, such as {"group": true}."""
    media: tuple[Media, ...] = ()
    """Files that go with it, in base64."""


@attrs.frozen(eq=False, repr=False)
class AckFrame:
    """Acknowledgement of all replies up to and including `seq`. It has no answer."""

    seq: int
    """Highest number that the client has."""
    channel: Address | None = None
    """The address whose replies are acknowledged; required from a bridge."""


@attrs.frozen
class CallFrame:
    """A call of the control plane. The answer is ResultFrame or ErrorFrame with the same id."""

    id: str
    """Chosen by the client, by which it finds the result among other frames."""
    method: str
    """Name of the method, such as "status"."""
    params: Mapping[str, Json] = attrs.field(factory=dict)
    """Arguments by name. Each method says which ones it takes."""


# ------------------------------------------------------------------ from the gateway


@attrs.frozen(eq=False, repr=False)
class WelcomeFrame:
    """The answer to a good hello. Replies follow it, never precede it.

    Example: a client that has reply 12 knows from `WelcomeFrame(1, "Pegasus", channel, seq=15)` that three replies follow.
    """

    protocol: int
    """Number of the protocol, PROTOCOL."""
    agent: str
    """The agent's name, for the screen."""
    channel: ClientChannel
    """The channel of the hello."""
    seq: int
    """The last reply ever made for this address, 0 if there is none; always 0 for a bridge."""


@attrs.frozen(eq=False, repr=False)
class AcceptedFrame:
    """The message with this id is on disk."""

    id: str
    """Id that the client has chosen."""


@attrs.frozen(eq=False, repr=False)
class ResultFrame:
    """The result of a call."""

    id: str
    """Id of the call."""
    result: Mapping[str, Json]
    """Result of the method, a JSON object."""


@attrs.frozen(eq=False, repr=False)
class EventFrame:
    """An event that a call has asked for (`events.subscribe`). Such frames follow the result of the call."""

    id: str
    """The id of the call."""
    n: int
    """Number of the event; a client that comes back names the last one that it has seen."""
    event: Mapping[str, Json]
    """The event as `pegasus.events.event_json` gives it."""


@attrs.frozen(eq=False, repr=False)
class ErrorFrame:
    """A refusal.

    code: `bad_frame`, `unauthorized`, `unknown_type`, `unknown_method`, `too_large`, `overloaded` or `internal`. Programs
    decide by the code; the message is for people and does not repeat it.
    """

    code: str
    """One of the codes above."""
    message: str
    """Sentence with what was found and what is allowed."""
    id: str | None = None
    """The id of the frame that was refused, where it could be read."""


ClientFrame: TypeAlias = HelloFrame | MessageFrame | AckFrame | CallFrame
AgentEvent: TypeAlias = OutboundMessage | Typing | ReplyDraft | TaskProgress | FileEdit | ApprovalNotice | Said
"""Values that the agent sends to the clients of a conversation: replies, what was said elsewhere, and the state of its work."""

ServerFrame: TypeAlias = WelcomeFrame | AcceptedFrame | AgentEvent | ResultFrame | EventFrame | ErrorFrame
"""Replies, drafts and signs travel as the values that the rest of the product uses: OutboundMessage is `reply`, ReplyDraft is
`progress`, TaskProgress is `task`, FileEdit is `edit`, ApprovalNotice is `approval`, Said is `said`, and Typing is `typing`, whose
`after` the gateway leaves out."""

_CLIENT_FRAMES: Final[Mapping[str, type[ClientFrame]]] = {
    "hello": HelloFrame,
    "message": MessageFrame,
    "ack": AckFrame,
    "call": CallFrame,
}
_SERVER_FRAMES: Final[Mapping[str, type[ServerFrame]]] = {
    "welcome": WelcomeFrame,
    "accepted": AcceptedFrame,
    "reply": OutboundMessage,
    "typing": Typing,
    "progress": ReplyDraft,
    "task": TaskProgress,
    "edit": FileEdit,
    "approval": ApprovalNotice,
    "said": Said,
    "result": ResultFrame,
    "event": EventFrame,
    "error": ErrorFrame,
}
_TYPES: Final = {cls: name for table in (_CLIENT_FRAMES, _SERVER_FRAMES) for name, cls in table.items()}


# ------------------------------------------------------------------ writing and reading


def encode_frame(frame: ClientFrame | ServerFrame) -> str:
    """Return the frame as JSON text. Raises ValueError or TypeError if a free-form value in it is not JSON.

    A model may write half a surrogate pair. It is replaced in what the agent says, because many JSON readers refuse it.
    """
    if isinstance(frame, OutboundMessage | ReplyDraft | Said) and not is_unicode(frame.text):
        frame = attrs.evolve(frame, text=to_unicode(frame.text))
    if isinstance(frame, OutboundMessage) and (frame.files or frame.key):
        frame = OutboundMessage(frame.text, frame.channel, frame.seq, frame.metadata, frame.media)
    if isinstance(frame, ReplyDraft) and (frame.item or not is_unicode(frame.reasoning)):
        frame = attrs.evolve(frame, reasoning=to_unicode(frame.reasoning), item=0)
    if isinstance(frame, Said) and frame.chat:
        frame = attrs.evolve(frame, chat="")
    return encode_json({"type": _TYPES[type(frame)], **to_wire(frame)})


def decode_client_frame(frame: str | Mapping[str, Json]) -> ClientFrame:
    """Return the frame that a client has sent, as text or parsed already. Raises BadFrame `bad_frame` or `unknown_type`."""
    fields = _fields_of(frame)
    name, id = fields.get("type"), fields.get("id")
    cls = _CLIENT_FRAMES.get(name) if isinstance(name, str) else None
    try:
        if cls is not None:
            return from_wire(fields, cls, is_foreign=True)
        code = "unknown_type" if isinstance(name, str) else "bad_frame"
        error = BadFrame(code, f"type: found {describe(name)}, allowed: message, ack, call")
    except WireError as problem:
        error = BadFrame("bad_frame", f"{name}.{problem}")
    error.frame, error.id = cls, id if isinstance(id, str) else None
    raise error


def decode_server_frame(text: str | bytes) -> ServerFrame | None:
    """Return the frame that the gateway has sent, or None for a type that only a later version knows. Raises BadFrame."""
    fields = _fields_of(text)
    name = fields.get("type")
    cls = _SERVER_FRAMES.get(name) if isinstance(name, str) else None
    try:
        return None if cls is None else from_wire(fields, cls)
    except WireError as problem:
        raise BadFrame("bad_frame", f"{name}.{problem}") from None


def _fields_of(frame: str | bytes | Mapping[str, Json]) -> dict[str, Json]:
    """Return the fields of a frame; null is the same as an absent key. Raises BadFrame."""
    try:
        value = frame if isinstance(frame, Mapping) else decode_json(frame)
    except ValueError as error:  # not JSON, nested too deep, or a number with more digits than Python reads
        raise BadFrame("bad_frame", f"found no JSON ({error}), allowed: one JSON object per text frame") from None
    if not isinstance(value, Mapping):
        raise BadFrame("bad_frame", f"found {describe(value)}, allowed: one JSON object per text frame")
    fields = dict(value)
    for key, field in value.items():
        if field is None:
            del fields[key]
    return fields
