"""What a client may say, out of its text frames. Pure: a frame in, a value or a FrameError that names the mistake out.

Rules of this file: nothing a client sends raises anything but FrameError; what passes can be written as UTF-8 JSON again.
"""

from __future__ import annotations

import binascii
import json
import math
from collections.abc import Mapping
from typing import Any, TypeAlias, cast

import attrs

from pegasus.intake import NAME_RULE, is_name
from pegasus.messages import Address, ChannelInfo, InboundMessage, Json, Media
from pegasus.storage import Acknowledge

MAX_DEPTH = 32
"""Levels of lists and objects a frame may nest; far below what a recursive reader of the stored line can take."""
MAX_INTEGER = 2**64
FRAME_TYPES = "message, ack, call"


class FrameError(Exception):
    """A frame that cannot be used: `code` of interfaces section 3, what was found and what is allowed, and its id."""

    def __init__(self, code: str, message: str, id: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.id = id


@attrs.frozen
class Hello:
    """Who a client is. channel None: a bridge for the whole `type`. last: seq by channelId that the client says it has."""

    type: str
    channel: ChannelInfo | None
    token: str | None = None
    last: Mapping[str, int] = attrs.field(factory=dict)


@attrs.frozen
class Call:
    """A call of the control plane."""

    id: str
    method: str
    params: Mapping[str, Json]


Incoming: TypeAlias = InboundMessage | Acknowledge | Call


def read_hello(text: str) -> Hello:
    """Read the first frame. FrameError `unauthorized` if it is no hello at all, `bad_frame` if a field is wrong."""
    try:
        frame = _object(text)
    except FrameError as error:
        raise FrameError("unauthorized", f"the first frame must be a hello; {error.message}") from None
    if frame.get("type") != "hello":
        raise FrameError("unauthorized", f"the first frame must be a hello; found type {_show(frame.get('type'))}")
    channel = _field(frame, "channel", dict, "hello")
    type = _name(channel, "type", "hello.channel")
    if channel.get("channelId") is None:
        return Hello(type, None, _optional(frame, "token", str, "hello"), _last_seqs(frame))
    full = _channel(channel, "hello.channel")
    last = _optional(frame, "lastSeq", int, "hello")
    seqs = {} if last is None else {full.channel_id: _seq(last, "hello.lastSeq")}
    return Hello(type, full, _optional(frame, "token", str, "hello"), seqs)


def read_frame(text: str, hello: Hello) -> Incoming:
    """Read a frame of a client that said `hello`. Raises FrameError `bad_frame` or `unknown_type`."""
    frame = _object(text)
    try:
        return _incoming(frame, hello)
    except FrameError as error:
        error.id = _readable_id(frame)
        raise


def _incoming(frame: dict[str, Json], hello: Hello) -> Incoming:
    match frame.get("type"):
        case "message":
            return _message(frame, hello)
        case "ack":
            return _ack(frame, hello)
        case "call":
            return _call(frame)
        case "hello":
            raise FrameError("bad_frame", "hello was said already; allowed now: " + FRAME_TYPES)
        case str() as other:
            raise FrameError("unknown_type", f"type: found {_show(other)}, allowed: {FRAME_TYPES}")
        case other:
            raise FrameError("bad_frame", f"type: found {_show(other)}, allowed: {FRAME_TYPES}")


def _message(frame: dict[str, Json], hello: Hello) -> InboundMessage:
    id = _name(frame, "id", "message")
    text = _field(frame, "text", str, "message")
    channel = _message_channel(frame, hello)
    metadata = _optional(frame, "metadata", dict, "message") or {}
    media = _media(_optional(frame, "media", list, "message") or [])
    _check_content([text, metadata])
    return InboundMessage(text=text, channel=channel, id=id, metadata=metadata, media=media)


def _message_channel(frame: dict[str, Json], hello: Hello) -> ChannelInfo:
    given = _optional(frame, "channel", dict, "message")
    if given is None:
        if hello.channel is None:
            raise FrameError("bad_frame", "message.channel: missing; a bridge must name the channel of each message")
        return hello.channel
    channel = _channel(given, "message.channel")
    _check_own(channel.address, hello, "message.channel")
    if hello.channel is None or channel.user_id is not None:
        return channel
    return attrs.evolve(channel, user_id=hello.channel.user_id)


def _ack(frame: dict[str, Json], hello: Hello) -> Acknowledge:
    seq = _seq(_field(frame, "seq", int, "ack"), "ack.seq")
    given = _optional(frame, "channel", dict, "ack")
    if given is None:
        if hello.channel is None:
            raise FrameError("bad_frame", "ack.channel: missing; a bridge must name the channel it acknowledges")
        return Acknowledge(hello.channel.address, seq)
    address = Address(_name(given, "type", "ack.channel"), _name(given, "channelId", "ack.channel"))
    _check_own(address, hello, "ack.channel")
    return Acknowledge(address, seq)


def _call(frame: dict[str, Json]) -> Call:
    params = _optional(frame, "params", dict, "call") or {}
    _check_content([params])
    return Call(_name(frame, "id", "call"), _name(frame, "method", "call"), params)


# ------------------------------------------------------------------ parts of frames


def _channel(value: dict[str, Json], where: str) -> ChannelInfo:
    return ChannelInfo(
        type=_name(value, "type", where),
        channel_id=_name(value, "channelId", where),
        user_id=_optional_name(value, "userId", where),
        reply_to=_optional_name(value, "replyTo", where),
    )


def _check_own(address: Address, hello: Hello, where: str) -> None:
    if hello.channel is None and address.type != hello.type:
        raise FrameError("bad_frame", f"{where}.type: found {_show(address.type)}, allowed: {_show(hello.type)}")
    if hello.channel is not None and address != hello.channel.address:
        own = hello.channel.address
        raise FrameError("bad_frame", f"{where}: found {_show(str(address))}, allowed: {_show(str(own))}")


def _last_seqs(frame: dict[str, Json]) -> dict[str, int]:
    given = _optional(frame, "lastSeqs", dict, "hello") or {}
    for name in given:
        if not is_name(name):
            raise FrameError("bad_frame", f"hello.lastSeqs: found the channelId {_show(name)}, allowed: {NAME_RULE}")
    return {name: _seq(value, f"hello.lastSeqs[{_show(name)}]") for name, value in given.items()}


def _media(files: list[Json]) -> tuple[Media, ...]:
    return tuple(_file(file, f"message.media[{n}]") for n, file in enumerate(files))


def _file(file: Json, where: str) -> Media:
    if not isinstance(file, dict):
        raise FrameError("bad_frame", f"{where}: found {_show(file)}, allowed: an object with name, mime and data")
    name, mime = _name(file, "name", where), _name(file, "mime", where)
    data = _field(file, "data", str, where)
    try:
        binascii.a2b_base64(data.encode("ascii"), strict_mode=True)
    except ValueError as error:
        raise FrameError("bad_frame", f"{where}.data: found {_show(data)} ({error}), allowed: base64") from None
    return Media(name, mime, data)


# ------------------------------------------------------------------ single values


def _object(text: str) -> dict[str, Json]:
    try:
        frame = json.loads(text, parse_constant=_no_constant)
    except FrameError:
        raise
    except RecursionError:
        raise FrameError("bad_frame", f"found JSON nested too deep, allowed: {MAX_DEPTH} levels") from None
    except ValueError as error:  # not JSON, or a number of more digits than Python reads
        raise FrameError("bad_frame", f"found no JSON ({error}), allowed: one JSON object per text frame") from None
    if not isinstance(frame, dict):
        raise FrameError("bad_frame", f"found {_show(frame)}, allowed: one JSON object per text frame")
    return frame


def _no_constant(name: str) -> Any:
    raise FrameError("bad_frame", f"found {name}, which is no JSON value, allowed: finite numbers")


_KINDS: dict[type, str] = {str: "a string", int: "a whole number", dict: "an object", list: "a list"}


def _field(frame: Mapping[str, Json], key: str, kind: type, where: str) -> Any:
    value = frame.get(key)
    if value is None:
        raise FrameError("bad_frame", f"{where}.{key}: missing, allowed: {_KINDS[kind]}")
    if not isinstance(value, kind) or isinstance(value, bool):
        raise FrameError("bad_frame", f"{where}.{key}: found {_show(value)}, allowed: {_KINDS[kind]}")
    return value


def _optional(frame: Mapping[str, Json], key: str, kind: type, where: str) -> Any:
    return None if frame.get(key) is None else _field(frame, key, kind, where)


def _name(frame: Mapping[str, Json], key: str, where: str) -> str:
    value = cast(str, _field(frame, key, str, where))
    if not is_name(value):
        raise FrameError("bad_frame", f"{where}.{key}: found {_show(value)}, allowed: {NAME_RULE}")
    return value


def _optional_name(frame: Mapping[str, Json], key: str, where: str) -> str | None:
    return None if frame.get(key) is None else _name(frame, key, where)


def _seq(value: Json, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise FrameError("bad_frame", f"{where}: found {_show(value)}, allowed: a whole number from 0 on")
    return value


def _readable_id(frame: Mapping[str, Json]) -> str | None:
    id = frame.get("id")
    return id if isinstance(id, str) and is_name(id) else None


def _check_content(values: list[Json]) -> None:
    """Walk level by level, so that no depth can exhaust the stack; raise for what JSON or UTF-8 could not give back."""
    depth = 0
    while values:
        if depth > MAX_DEPTH:
            raise FrameError("bad_frame", f"found JSON nested too deep, allowed: {MAX_DEPTH} levels")
        below: list[Json] = []
        for value in values:
            if isinstance(value, dict):
                below += value.keys()
                below += value.values()
            elif isinstance(value, list):
                below += value
            else:
                _check_scalar(value)
        values, depth = below, depth + 1


def _check_scalar(value: Json) -> None:
    if isinstance(value, str):
        try:
            value.isascii() or value.encode()
        except UnicodeEncodeError:
            raise FrameError("bad_frame", f"found half a surrogate pair in {_show(value)}, allowed: Unicode") from None
    elif isinstance(value, float) and not math.isfinite(value):
        raise FrameError("bad_frame", "found a number too large for a float, allowed: finite numbers")
    elif isinstance(value, int) and abs(value) >= MAX_INTEGER:
        raise FrameError("bad_frame", "found a whole number beyond 64 bits; send it as a string")


def _show(value: object) -> str:
    """A value as an error message shows it: its kind if it is large, never more than some 60 characters, plain ASCII."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, str):
        return ascii(value) if len(value) <= 40 else f"{value[:40]!a}… ({len(value)} characters)"
    text = repr(value)
    return f"the number {text[:40]}{'…' if len(text) > 40 else ''}"
