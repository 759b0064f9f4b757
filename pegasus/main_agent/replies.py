"""Replies: calls of the reply tool, and other texts for people, as posts for the outbox.

A call of the reply tool becomes a post for the outbox. The journal stores the post as a reply or refuses it, and the result of the
call says which of the two happened. The result says "queued": the reply is kept for delivery. It does not say "delivered", since that
is not known yet.

Each post has an idempotency key, made of the queue item and the call. A crash between the call and its result may lead to the same
post twice; the journal then answers with the reply that it has stored already.

Where a reply goes is decided by the journal, which knows all channels (the rule is in `pegasus/storage/directory.py`), before anything
else is decided about it (`reply_decisions`). What fits no channel is refused with a list of the known ones, and nothing is sent. A
wrong guess would send private text to strangers, while a refusal costs one more thought.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

import attrs

from pegasus.access import ROLE, Role
from pegasus.formatting import truncate
from pegasus.identity import SILENCE
from pegasus.main_agent.session import REPLY_NAME, SENT
from pegasus.messages import APART, IN_REPLY_TO, Address, Json, Metadata, OutboundMessage, StoredFile
from pegasus.models import ToolCall, ToolSpec
from pegasus.storage import Item, Post, PostResult, Unroutable
from pegasus.tools import ToolOutcome, prepare_arguments
from pegasus.wire import encode_json

COMMAND: Final = "command"
"""Last part of the idempotency key of a command's answer. Stored in the outbox, so it must not change between versions."""
REPLY: Final = ToolSpec(
    REPLY_NAME,
    "Speak. The only way anybody hears you. Give back the channel of the message you answer, or choose another known one.",
    {
        "type": "object",
        "properties": {
            "channelId": {"type": "string", "description": "The id from the message's metadata line"},
            "channelType": {"type": "string", "description": "The channel type from the metadata line"},
            "replyTo": {"type": "string", "description": "The thread from the metadata line, if there is one"},
            "text": {"type": "string", "description": "What to say"},
            "media": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Paths of files in the workspace to send with it, such as one that a task has made",
            },
        },
        "required": ["channelId", "text"],
    },
)
"""The tool as the model is shown it. The address comes before the text, and `channelId` is required, so that a draft can be addressed
early; a call without it is accepted all the same (see `_parse_reply`)."""
ACCEPTED: Final[Metadata] = {
    "type": "object",
    "properties": {
        **{name: {"type": "string"} for name in ("channelId", "channelType", "replyTo", "text")},
        "media": {"type": ["array", "string"], "items": {"type": "string"}},
    },
}
"""Schema that calls of `reply` are checked against."""
WHO: Final = "who"
"""Key of a reply's metadata: "guest" if it comes of a guest's work and does not go to the guest's own conversation."""
QUESTION: Final = "question"
"""Key of a reply's metadata: the beginning of that message, if it came from the conversation that the reply goes to."""
QUESTION_LENGTH: Final = 200
"""Characters of a message that its replies repeat in their metadata, enough for people to recognise it."""

_NO_NOTES: Final[Metadata] = MappingProxyType({})
_TOO_MANY_REPLIES: Final = "this message has had as many replies as it may have; do not reply to it any more"
"""Text for the model. The setting `agent.max_replies` protects people from a model that sends the same reply again and again."""


def reply_key(item: int | None, call_id: str) -> str:
    """Return the idempotency key of a post: item numbers are unique over all sessions, call ids within one session.

    call_id: of the call; for a text that no call has asked for, a word for its purpose, such as "apology" or "text-1". Call ids come
    from models, which do not know these words.
    """
    return f"main/{item or 0}/{call_id}"


def item_of_key(key: str) -> int:
    """Return the number of the item that a reply with this key came of; 0 if it came of none.

    >>> item_of_key(reply_key(12, "call_1"))
    12
    """
    head, _, rest = key.partition("/")
    number = rest.partition("/")[0]
    return int(number) if head == "main" and number.isascii() and number.isdigit() else 0


@attrs.frozen(eq=False, repr=False)
class WantedReply:
    """A reply as a call wants it: `WantedReply(post, ("chart.png",))`, or `WantedReply(refusal="text is empty")`.

    Example::

        wanted = parse_replies(item, response.calls, room=3)
        wanted["call_1"].post  # the post, or None if `refusal` says why not
    """

    post: Post | None = None
    """The post, None if it is refused."""
    paths: tuple[str, ...] = ()
    """Paths of the files that it is to send and does not have yet."""
    refusal: str = ""
    """Reason why there is no post, in words for the model."""
    held: Post | None = None
    """The reply, or its files alone, that goes out only if an owner says yes."""
    missing: str = ""
    """Reason why a part of it is not sent, in words for the model."""


def parse_replies(item: Item, calls: tuple[ToolCall, ...], room: int) -> dict[str, WantedReply]:
    """Return the replies that the calls want, by call id; at most `room` of them have a post.

    They are parsed before the thought is written, since posts and thought go into one durable step.
    """
    parsed: dict[str, WantedReply] = {}
    for call in calls:
        if call.name == REPLY.name:
            wanted = _parse_reply(call, item)
            if wanted.post is not None:
                wanted = wanted if room > 0 else WantedReply(refusal=_TOO_MANY_REPLIES)
                room -= 1
            parsed[call.id] = wanted
    return parsed


def _parse_reply(call: ToolCall, item: Item) -> WantedReply:
    """Return the reply that a call wants; it is refused for wrong or empty arguments.

    item: the message being worked on. Its channel decides between channels of the same id, and gets a reply without a channelId.
    """
    if call.error:
        return WantedReply(refusal=call.error)
    arguments, problem = prepare_arguments(ACCEPTED, call.arguments)
    if problem is not None:
        return WantedReply(refusal=problem)
    text, paths = str(arguments.get("text") or ""), media_paths(call)
    if not text.strip() and not paths:
        return WantedReply(refusal="text is empty" if "text" in arguments else "text is required")
    channel_id, kind, thread = (
        str(arguments.get(name) or "").strip() or None for name in ("channelId", "channelType", "replyTo")
    )
    source = item.message.channel
    if channel_id is None and kind not in (None, source.type, source.address.escaped.type):
        return WantedReply(refusal=f"channelId is missing, and channelType {kind!r} is not that of the message")
    if channel_id is None:
        channel_id, kind, thread = source.channel_id, source.type, source.reply_to
    return WantedReply(_post(item, text, call.id, channel_id, kind, thread), paths)


def media_paths(call: ToolCall) -> tuple[str, ...]:
    """Return the paths of the files that a call of `reply` sends, each once. A model may give a single path instead of a list."""
    media = call.arguments.get("media")
    paths = [media] if isinstance(media, str) else media if isinstance(media, list) else []
    return tuple(dict.fromkeys(path for path in paths if isinstance(path, str) and path.strip()))


def reply_to_sender(item: Item, text: str, purpose: str) -> Post:
    """Return the post of a text to the sender of an item: the answer to a command, an apology.

    purpose: makes the key unique within the item.
    """
    channel = item.message.channel
    return _post(item, text, purpose, channel.channel_id, channel.type, channel.reply_to)


def direct_reply(text: str, item: Item, thought: int, files: tuple[StoredFile, ...] = ()) -> Post | None:
    """Return the post of a text that is the reply itself (direct speech); None if the model chose silence.

    thought: number of the thought within the item, for the key. files: they go out behind the text.
    """
    text = text.strip()
    if not text or text == SILENCE:
        return None
    return attrs.evolve(reply_to_sender(item, text, f"text-{thought}"), files=files)


def files_alone(files: tuple[StoredFile, ...], item: Item, thoughts: int) -> Post:
    """Return the post of gathered files after a turn that has ended without a text. thoughts: that it had, for the key."""
    return attrs.evolve(reply_to_sender(item, "", f"{SENT}-{thoughts}"), files=files)


def _post(item: Item, text: str, purpose: str, channel_id: str, channel_type: str | None, reply_to: str | None) -> Post:
    """Return a post about an item. Its metadata names the message that it answers; an internal item is nobody's message.

    In the conversation of that message, the metadata has its beginning as well: only one of the clients there has sent it, and the
    others could not tell what is being answered. No other conversation is told.
    """
    message, key = item.message, reply_key(item.n, purpose)
    metadata: dict[str, Json] = {} if message.is_internal else {IN_REPLY_TO: message.id}
    given = Address(channel_type or message.channel.type, channel_id)
    is_same = given == message.channel.address or given.escaped == message.channel.address.escaped
    if metadata and is_same and (question := truncate(message.text[: 4 * QUESTION_LENGTH], QUESTION_LENGTH)):
        metadata[QUESTION] = question
    # The guest's own conversation shows nobody else who it is for.
    if message.metadata.get(ROLE) == Role.GUEST and not (is_same and message.metadata.get(APART)):
        metadata[WHO] = Role.GUEST.value
    return Post(
        key=key,
        text=text,
        channel_id=channel_id,
        source=message.channel,
        channel_type=channel_type,
        reply_to=reply_to,
        metadata=metadata,
    )


def queued_result(message: OutboundMessage, notes: Metadata = _NO_NOTES) -> str:
    """Return the tool result (JSON) of a reply that is in the outbox. notes: what else the model is told."""
    channel = message.channel
    facts: dict[str, Json] = {"queued": True, "channelType": channel.type, "channelId": channel.channel_id}
    facts["seq"] = message.seq
    if message.files:
        facts["files"] = [file.name for file in message.files]
    return encode_json({**facts, **notes})


def post_outcome(result: PostResult, notes: Metadata) -> ToolOutcome:
    """Return what the model is told about a reply that had a post. notes: what it is told beside."""
    if isinstance(result, OutboundMessage):
        return ToolOutcome(queued_result(result, notes), failed=False)
    return refused_outcome(unroutable_reason(result, None))


def unroutable_reason(result: Unroutable, only: Address | None) -> str:
    """Return why a reply has no channel, for the model. only: the one channel that may be named; None: all that are known."""
    known = ", ".join(
        f"channelType {address.type} channelId {address.channel_id}"
        for address in result.known
        if only in (None, address)
    )
    return f"{result.reason}. Known channels: {known or 'none yet'}"


def refused_outcome(reason: str) -> ToolOutcome:
    """Return the outcome of a reply that is not sent. It says so, so that the model does not assume that the text was sent."""
    return ToolOutcome.failure(f"nothing was said: {reason}")
