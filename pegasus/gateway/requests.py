"""The frames that a client may send: `read_hello` and `read_frame` read them, `Requests` carries them out.

`pegasus.protocol` reads the shape of a frame. The two functions add what depends on the conversation between the two sides. The
first frame is a hello, and no later one is. A client names its own address only; a bridge, addresses of its own channel type only.
Sequence numbers are possible ones, and attachments are base64. Both functions are pure: text in, a value or a BadFrame out. Ids and
names of messages are checked by `pegasus.intake`, where messages of adapters pass too; those of the other frames are checked here.

`Requests` handles one frame after the other. What takes time (the disk, a call of the control plane) is answered later
through the queue; answers to messages keep their order, and results of calls come when they are there.
"""

from __future__ import annotations

import binascii
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import TypeAlias

import attrs
import trio

from actors import ActorError, Answer
from pegasus.access import MESSAGE, READ, AccessDenied, TokenGrant
from pegasus.formatting import quote
from pegasus.gateway.config import BadParams, Caller, EventStream, Params
from pegasus.gateway.send_queue import FrameSource, SendQueue
from pegasus.gateway.services import GatewayServices
from pegasus.intake import (
    JOURNAL_TIMEOUT,
    NAME_RULE,
    InvalidMessage,
    TooManyMessages,
    is_attachment_label,
    is_name,
)
from pegasus.messages import Address, ChannelInfo, InboundMessage, Json, Media
from pegasus.observe import get_logger
from pegasus.protocol import (
    AcceptedFrame,
    AckFrame,
    BadFrame,
    CallFrame,
    ClientChannel,
    ClientFrame,
    ErrorFrame,
    EventFrame,
    HelloFrame,
    MessageFrame,
    ResultFrame,
    decode_client_frame,
    encode_frame,
)
from pegasus.storage import Accepted, Acknowledge, Overloaded, StorageError
from pegasus.wire import describe

MAX_SEQ = 2**63
"""Sequence numbers are smaller than this, so that every reader can hold them."""
CALL_TIMEOUT = 30.0
"""Seconds that a method may take. It is cancelled then, and the caller gets an error."""
MOST_FILES = 100
"""Files of one message. Each is written by itself, and a message of many thousands would hold up everybody else's."""
MAX_CALLS = 16
"""Calls that one connection may have running at the same time. A further one is answered `overloaded`."""
MOST_SENT = 200
"""Ids of messages that are remembered of a connection, so that it is not told what it has said itself."""

Incoming: TypeAlias = InboundMessage | Acknowledge | CallFrame
"""Meaning of a frame after the hello, for the rest of the product."""

_log = get_logger("gateway")


@attrs.define(eq=False, repr=False)
class Requests:
    """Carries out what one greeted client says."""

    _own: ClientChannel
    """The channel of the hello."""
    _grant: TokenGrant
    """Rights of the client's token."""
    _services: GatewayServices
    _queue: SendQueue
    """Takes the answers."""
    _nursery: trio.Nursery
    """The connection's: has one task for each running call."""
    sent: deque[str] = attrs.field(init=False, factory=partial(deque, maxlen=MOST_SENT))
    """Ids of the last messages."""
    _calls: int = attrs.field(init=False, default=0)
    """Calls that are running."""

    async def handle(self, text: str) -> None:
        """Carry out a frame. Waits while the client has too many answers outstanding. Raises ActorError."""
        try:
            frame = read_frame(text, self._own)
            if isinstance(frame, InboundMessage):
                check_media_size(frame, self._services.config.now.max_media_bytes)
        except BadFrame as error:
            await self._queue.answer(error_frame(error.code, error.message, error.id))
            return
        # The frame is read before its scope is looked at: the error can then name the frame's id, by which the client
        # finds it.
        scope = self._scope_of(frame)
        if not self._grant.allows(scope):
            found = f"the token {quote(self._grant.name)} has not the scope {quote(scope)}"
            message = f"{found}, which this needs; its owner can add another token"
            id = None if isinstance(frame, Acknowledge) else frame.id
            await self._queue.answer(error_frame("bad_frame", message, id))
            return
        match frame:
            case InboundMessage():
                await self._queue.answer(await self._submit(frame))
            case Acknowledge():
                await self._services.intake.journal.tell(frame)
            # Calls run beside each other, so without a bound one client could start any number of them.
            case CallFrame() if self._calls >= MAX_CALLS:
                message = f"{MAX_CALLS} calls are under way already; wait for a result"
                await self._queue.answer(error_frame("overloaded", message, frame.id))
            case CallFrame():
                # Counted here and not in the task, since several frames may be handled before the task first runs.
                self._calls += 1
                self._nursery.start_soon(self._run_call, frame)

    def _scope_of(self, frame: Incoming) -> str:
        """Return the scope that a frame needs. A method that does not exist needs the lowest, so that everybody is told so."""
        if not isinstance(frame, CallFrame):
            return MESSAGE
        is_known = frame.method in self._services.methods
        return self._services.config.now.scope_of(frame.method) if is_known else READ

    async def _submit(self, message: InboundMessage) -> FrameSource:
        """Hand the message to the intake, and return its answer as far as it is known.

        The answer of the journal is not waited for here, so the next message can be read and share the sync of the disk.
        """
        # The message is in the journal's mailbox when `send` returns, so messages of one client are accepted in the
        # order in which it sent them, although their answers are waited for later.
        is_bridge = self._own.channel_id is None
        if is_name(message.id):  # no other is taken, and one may have a megabyte
            self.sent.append(message.id)
        try:
            answer = await self._services.intake.send(message, self._grant, is_bridge=is_bridge)
        except InvalidMessage as error:
            return error_frame("bad_frame", f"message.{error}", message.id if is_name(message.id) else None)
        except (AccessDenied, TooManyMessages, StorageError, ActorError) as error:
            return _not_accepted(message.id, error)
        return partial(_acceptance, message.id, answer)

    async def _run_call(self, call: CallFrame) -> None:
        """Run a call and queue its answer, and the events that may follow it.

        Cancelled when the client has gone; the method then ends where it waits.
        """
        try:
            answer, stream = await self._answer_to(call)
            # The result goes into the queue before the stream begins, so no event can precede it.
            await self._queue.answer(answer)
            if stream is not None:
                await stream.run(partial(self._push_event, call.id))
        finally:
            # Also when the client has gone: a stream that is cancelled counts as ended.
            self._calls -= 1

    async def _push_event(self, id: str, n: int, event: Params) -> None:
        """Queue an event of a stream when there is room for it. id: that of the call that has asked for it."""
        await self._queue.wait_for_room()
        self._queue.push(encode_frame(EventFrame(id, n, event)))

    async def _answer_to(self, call: CallFrame) -> tuple[str, EventStream | None]:
        """Run a method and return its result, or its error, as the text of a frame, and the stream that follows. Raises nothing.

        Errors keep code and message apart: a program decides by the code, and the message can be shown to a person as it is.
        A method that fails unexpectedly is logged with its traceback; the connection goes on.
        """
        method = self._services.methods.get(call.method)
        if method is None:
            allowed = ", ".join(sorted(self._services.methods))
            return error_frame(
                "unknown_method", f"method: found {quote(call.method)}, allowed: {allowed}", call.id
            ), None
        try:
            # The time covers the method and not the stream that may follow, which lasts as long as the connection.
            with trio.move_on_after(CALL_TIMEOUT):
                own = self._own
                caller = Caller(own.type, own.channel_id, own.user_id, own.reply_to, self._grant)
                result = await method(caller, call.params)
                stream = result if isinstance(result, EventStream) else None
                value = stream.result if stream is not None else result
                if not isinstance(value, Mapping):
                    raise TypeError(f"a result must be a JSON object, found {type(value).__name__}")
                return encode_frame(ResultFrame(call.id, value)), stream
        except BadParams as error:
            return error_frame("bad_frame", str(error), call.id), None
        except Exception as error:
            _log.exception("a control-plane method failed", error=error, method=call.method)
            return error_frame("internal", f"{call.method} failed: {error}; the log has the details", call.id), None
        return error_frame(
            "internal", f"{call.method} took longer than {CALL_TIMEOUT:g} s and was ended", call.id
        ), None


async def _acceptance(id: str, answer: Answer[Accepted | Overloaded]) -> str:
    """Return the frame that answers a message, once the journal has decided, or after JOURNAL_TIMEOUT seconds."""
    try:
        # A timeout does not take the message back. It may be accepted after all, and its id makes a second one a
        # duplicate.
        result = await answer.get(JOURNAL_TIMEOUT)
    except (StorageError, ActorError) as error:
        return _not_accepted(id, error)
    if isinstance(result, Overloaded):
        return error_frame("overloaded", f"not accepted: {result.reason}", id)
    return encode_frame(AcceptedFrame(id))


def _not_accepted(id: str, error: AccessDenied | TooManyMessages | StorageError | ActorError) -> str:
    """Return the frame that says why a message was not accepted."""
    match error:
        case AccessDenied():
            return error_frame("bad_frame", f"not accepted: {error}", id)
        case TooManyMessages():
            return error_frame("overloaded", f"not accepted: {error}", id)
        case StorageError():
            return error_frame("internal", f"not accepted, disk: {error}", id)
        case ActorError():
            return error_frame(
                "internal", f"not accepted, the journal does not answer ({error.why}); send it again", id
            )


def error_frame(code: str, message: str, id: str | None = None) -> str:
    """Return an error frame as text. id: that of the frame that was refused, by which the client finds it."""
    return encode_frame(ErrorFrame(code, message, id))


# ------------------------------------------------------------------ the rules, pure


def read_hello(text: str) -> HelloFrame:
    """Return the first frame of a client, a hello whose fields can be used. The token is not looked at here.

    Raises BadFrame: `unauthorized` if the text is no hello at all, `bad_frame` if a field of the hello is wrong.
    """
    try:
        frame = decode_client_frame(text)
    except BadFrame as error:
        if error.frame is HelloFrame:  # with a bad field
            raise
        raise BadFrame("unauthorized", f"the first frame must be a hello; {error.message}") from None
    if not isinstance(frame, HelloFrame):
        raise BadFrame("unauthorized", "the first frame must be a hello; found another type")
    channel = frame.channel
    _check_name("hello.channel.type", channel.type)
    if ":" in channel.type:
        raise BadFrame(
            "bad_frame", f"hello.channel.type: found {describe(channel.type)}, allowed: a name without a colon"
        )
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


def read_frame(data: str | Mapping[str, Json], own: ClientChannel) -> Incoming:
    """Return what a client says that has greeted as `own`. Raises BadFrame `bad_frame` or `unknown_type`.

    data: the frame as text, or parsed already.

    The error carries the frame's id if it has one that can be echoed: a client finds what was refused by it. An id that is no
    name is left out, because it may be of any length.
    """
    # Two sources of the id: a frame that could be read has it as a field; of one that could not, the reader may have
    # found it.
    id: str | None = None
    try:
        frame = decode_client_frame(data)
        id = frame.id if isinstance(frame, MessageFrame | CallFrame) else None
        return _understand(frame, own)
    except BadFrame as error:
        id = id or error.id
        error.id = id if id and is_name(id) else None
        raise


def read_message(fields: Mapping[str, Json], own: ClientChannel) -> InboundMessage:
    """Return a message that came in another way than a frame, checked as one. Raises BadFrame, whose text names `message.…`."""
    message = read_frame({**fields, "type": "message"}, own)
    if not isinstance(message, InboundMessage):
        raise TypeError("a message frame is no message")
    return message


def _understand(frame: ClientFrame, own: ClientChannel) -> Incoming:
    """Return a frame as what it means for the rest of the product. A second hello is refused: it could change the address."""
    match frame:
        case MessageFrame(id, text, channel, metadata, media):
            channel = _channel_of(channel, own)
            for number, file in enumerate(media):
                _check_media(f"message.media[{number}]", file)
            return InboundMessage(text, channel, id, metadata, media)
        case AckFrame():
            return _read_ack(frame, own)
        case CallFrame():
            _check_name("call.id", frame.id)
            _check_name("call.method", frame.method)
            return frame
        case HelloFrame():
            raise BadFrame("bad_frame", "hello was said already; allowed now: message, ack, call")


def _channel_of(named: ChannelInfo | None, own: ClientChannel) -> ChannelInfo:
    """Return the channel of a message: the one it names, if it is the client's own, or else that of the hello.

    A message that names its own address without a user is still written by the user of the hello.
    """
    if named is None:
        if own.info is None:
            raise BadFrame("bad_frame", "message.channel: missing; a bridge must name the channel of each message")
        return own.info
    _check_own("message.channel", named.address, own)
    # A bridge names a user with each message, or none where the service knows none. The hello of a bridge has no user
    # to add.
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
    _check_own("ack.channel", frame.channel, own)
    return Acknowledge(frame.channel, frame.seq)


# ------------------------------------------------------------------ single values


def _check_own(field: str, address: Address, own: ClientChannel) -> None:
    """Raise BadFrame if a client names an address that is not its own, or a bridge one of another channel type."""
    if own.info is None and address.type != own.type:
        raise BadFrame("bad_frame", f"{field}.type: found {describe(address.type)}, allowed: {describe(own.type)}")
    if own.info is not None and address != own.info.address:
        raise BadFrame("bad_frame", f"{field}: found {describe(str(address))}, allowed: {describe(str(own))}")


def _check_name(field: str, value: str | None) -> None:
    if value is not None and not is_name(value):
        raise BadFrame("bad_frame", f"{field}: found {describe(value)}, allowed: {NAME_RULE}")


def _check_seq(field: str, value: Json) -> None:
    """Raise BadFrame for a sequence number that no reply can have. JSON's true is no number here."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < MAX_SEQ:
        raise BadFrame("bad_frame", f"{field}: found {describe(value)}, allowed: a whole number from 0 on")


def check_media_size(message: InboundMessage, max_bytes: int) -> None:
    """Raise BadFrame `too_large`, with the id of the message, for too many files, or more than `max_bytes` bytes together."""
    size = sum(file.size for file in message.media)
    problem = ""
    if size > max_bytes:
        problem = f"found {size:,} bytes, allowed: media.max_bytes = {max_bytes}"
    elif len(message.media) > MOST_FILES:
        problem = f"found {len(message.media):,} files, allowed: {MOST_FILES}"
    if problem:
        error = BadFrame("too_large", f"message.media: {problem}")
        error.id = message.id if is_name(message.id) else None
        raise error


def _check_media(field: str, file: Media) -> None:
    """Raise BadFrame for an attachment that could not be decoded or named later, when its sender no longer waits."""
    for key, value in (("name", file.name), ("mime", file.mime)):
        if not is_attachment_label(value):
            raise BadFrame(
                "bad_frame", f"{field}.{key}: found {describe(value)}, allowed: 1 to 256 printable characters"
            )
    try:
        # In strict mode, since Python otherwise skips what is no base64, and the file would have another content than
        # was sent.
        binascii.a2b_base64(file.data.encode("ascii"), strict_mode=True)
    except ValueError as error:
        raise BadFrame("bad_frame", f"{field}.data: found {describe(file.data)} ({error}), allowed: base64") from None
