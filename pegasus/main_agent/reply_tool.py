"""The reply tool: the only way the agent is heard. Building posts from calls, and honest results from what became of them."""

from __future__ import annotations

import json

import attrs

from pegasus.identity import SILENCE
from pegasus.intake import INTERNAL_ID_PREFIX
from pegasus.messages import Address, ChannelInfo, Json, Metadata, OutboundMessage
from pegasus.models import ToolCall, ToolSpec
from pegasus.storage import Item, Post, PostResult, Unroutable
from pegasus.tools import check_arguments

REPLY = ToolSpec(
    "reply",
    "Speak. The only way anybody hears you. Give back the channel of the message you answer, or choose another known one.",
    {
        "type": "object",
        "properties": {
            "text": {"type": "string", "description": "What to say"},
            "channelId": {"type": "string", "description": "The id from the message's metadata line"},
            "channelType": {"type": "string", "description": "The channel type from the metadata line"},
            "replyTo": {"type": "string", "description": "The thread from the metadata line, if there is one"},
        },
        "required": ["text", "channelId"],
    },
)


@attrs.frozen
class Unspeakable:
    """A reply call that cannot be posted; why is for the model."""

    why: str


def post_key(item: int | None, call_id: str) -> str:
    """The idempotency key of a reply: the queue item's number is unique over all sessions, the call id within its session."""
    return f"main/{item or 0}/{call_id}"


def post_of(call: ToolCall, item: Item) -> Post | Unspeakable:
    """What a reply call wants said, and where. Nothing is delivered for a call that misses something (checklist 21)."""
    problem = call.error or check_arguments(REPLY.parameters, call.arguments)
    if problem is not None:
        return Unspeakable(problem)
    text, channel_id = str(call.arguments["text"]), str(call.arguments["channelId"])
    if not text.strip():
        return Unspeakable("text is empty")
    return Post(
        key=post_key(item.n, call.id),
        text=text,
        channel_id=channel_id,
        source=item.message.channel,
        channel_type=_text(call.arguments.get("channelType")),
        reply_to=_text(call.arguments.get("replyTo")),
        metadata=_in_reply_to(item.message.id),
    )


def spoken(text: str, item: Item, thought: int) -> Post | None:
    """What the model wrote is what is said (direct speech); None if it chose silence. thought: its number within the item."""
    said = text.strip()
    return answer_to(item, said, f"text-{thought}") if said and said != SILENCE else None


def answer_to(item: Item, text: str, purpose: str) -> Post:
    """A fixed text to the sender of an item: commands and apologies. purpose: makes the key unique within the item."""
    return answer_in(item.message.channel, text, key=f"main/{item.n}/{purpose}", message_id=item.message.id)


def answer_in(channel: ChannelInfo, text: str, *, key: str, message_id: str) -> Post:
    """A fixed text to a channel that a message came from."""
    return Post(
        key=key,
        text=text,
        channel_id=channel.channel_id,
        source=channel,
        channel_type=channel.type,
        reply_to=channel.reply_to,
        metadata=_in_reply_to(message_id),
    )


def _in_reply_to(message_id: str) -> Metadata:
    """Which message is answered; what a task had to say was nobody's message."""
    return {} if message_id.startswith(INTERNAL_ID_PREFIX) else {"inReplyTo": message_id}


def reply_result(message: OutboundMessage) -> str:
    """The tool result of a reply that is in the outbox: kept for delivery, which is not yet delivered (trap T19)."""
    result: dict[str, Json] = {
        "queued": True,
        "channelType": message.channel.type,
        "channelId": message.channel.channel_id,
        "seq": message.seq,
    }
    return json.dumps(result, ensure_ascii=False, separators=(",", ":"))


def failure_result(result: Unroutable | Unspeakable) -> str:
    """The tool result of a reply that nobody will get."""
    if isinstance(result, Unspeakable):
        return f"Error: nothing was said: {result.why}"
    known = ", ".join(map(_address, result.known)) or "none yet"
    return f"Error: nothing was said: {result.reason}. Known channels: {known}"


def result_of(result: PostResult) -> tuple[str, bool]:
    """The content of the tool result, and whether the call failed."""
    if isinstance(result, OutboundMessage):
        return reply_result(result), False
    return failure_result(result), True


def _address(address: Address) -> str:
    return f"channelType {address.type} channelId {address.channel_id}"


def _text(value: Json) -> str | None:
    return value if isinstance(value, str) and value else None
