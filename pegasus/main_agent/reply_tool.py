"""The reply tool: the only way in which the agent can send text to people.

A call becomes a post for the outbox. The journal stores the post as a reply or refuses it, and the result of the call says which of
the two happened. The result says "queued": the reply is kept for delivery. It does not say "delivered", since that is not known yet.

Each post has an idempotency key, made of the queue item and the call. A crash between the call and its result may lead to the same
post twice; the journal then answers with the reply that it has stored already.

Where a reply goes is decided by the journal, which knows all channels: a known channelId of the given type; the only known type with
that channelId; the type of the message being answered, if the id is its own; or a new id, if a bridge for the given type is present.
Anything else is refused with a list of the known channels, and nothing is sent. A wrong guess would send private text to strangers,
while a refusal costs one more thought.

Everything here is pure. `tool_calls` gives the posts to the journal together with the thought, in one durable step.
"""

from __future__ import annotations

from typing import Final

import attrs

from pegasus.identity import SILENCE
from pegasus.intake import INTERNAL_ID_PREFIX
from pegasus.messages import Address, ChannelInfo, Json, Metadata, OutboundMessage
from pegasus.models import ToolCall, ToolSpec
from pegasus.storage import Item, Post, PostResult, Unroutable
from pegasus.tools import check_arguments
from pegasus.wire import encode_json

REPLY: Final = ToolSpec(
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
"""The tool as the model is shown it."""


@attrs.frozen
class InvalidReply:
    """A reply call that cannot be posted.

    Example: `InvalidReply("text is empty")`.
    """

    problem: str
    """Reason, in words that help the model to call again correctly."""


def reply_key(item: int | None, call_id: str) -> str:
    """Return the idempotency key of a call: item numbers are unique over all sessions, call ids within one session."""
    return f"main/{item or 0}/{call_id}"


def parse_reply(call: ToolCall, item: Item) -> Post | InvalidReply:
    """Return the post for a reply call, or the reason why there is none: arguments that are missing, wrong or empty.

    item: the message being worked on. Its channel decides between channels of the same id; its id becomes `inReplyTo`.
    """
    problem = call.error or check_arguments(REPLY.parameters, call.arguments)
    if problem is not None:
        return InvalidReply(problem)
    text = str(call.arguments["text"])
    if not text.strip():
        return InvalidReply("text is empty")
    return Post(
        key=reply_key(item.n, call.id),
        text=text,
        channel_id=str(call.arguments["channelId"]),
        source=item.message.channel,
        channel_type=_optional_text(call.arguments.get("channelType")),
        reply_to=_optional_text(call.arguments.get("replyTo")),
        metadata=_reply_metadata(item.message.id),
    )


def direct_reply(text: str, item: Item, thought: int) -> Post | None:
    """Return the post of a text that is the reply itself (direct speech); None if the model chose silence.

    thought: number of the thought within the item, for the key.
    """
    text = text.strip()
    return reply_to_sender(item, text, f"text-{thought}") if text and text != SILENCE else None


def reply_to_sender(item: Item, text: str, purpose: str) -> Post:
    """Return the post of a fixed text to the sender of an item: the answer to a command, an apology.

    purpose: makes the key unique within the item.
    """
    return reply_in_channel(item.message.channel, text, key=reply_key(item.n, purpose), message_id=item.message.id)


def reply_in_channel(channel: ChannelInfo, text: str, *, key: str, message_id: str) -> Post:
    """Return the post of a fixed text to the channel that a message came from."""
    return Post(
        key=key,
        text=text,
        channel_id=channel.channel_id,
        source=channel,
        channel_type=channel.type,
        reply_to=channel.reply_to,
        metadata=_reply_metadata(message_id),
    )


def queued_result(message: OutboundMessage) -> str:
    """Return the tool result (JSON) of a reply that is in the outbox."""
    return encode_json(
        {
            "queued": True,
            "channelType": message.channel.type,
            "channelId": message.channel.channel_id,
            "seq": message.seq,
        }
    )


def reply_result(result: PostResult | InvalidReply) -> tuple[str, bool]:
    """Return the content of the tool result, and whether the call failed.

    The content of a failure begins with "Error: " and says that no text was sent, so that the model does not assume that it was.
    """
    if isinstance(result, OutboundMessage):
        return queued_result(result), False
    if isinstance(result, InvalidReply):
        return f"Error: nothing was said: {result.problem}", True
    return f"Error: nothing was said: {result.reason}. Known channels: {_format_addresses(result)}", True


def _format_addresses(result: Unroutable) -> str:
    return ", ".join(map(_format_address, result.known)) or "none yet"


def _format_address(address: Address) -> str:
    return f"channelType {address.type} channelId {address.channel_id}"


def _reply_metadata(message_id: str) -> Metadata:
    """Return the metadata of a reply: the message that it answers. A notice is nobody's message."""
    return {} if message_id.startswith(INTERNAL_ID_PREFIX) else {"inReplyTo": message_id}


def _optional_text(value: Json) -> str | None:
    return value if isinstance(value, str) and value else None
