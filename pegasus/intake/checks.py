"""Checks of the names in a message, before anything of it is stored. Pure.

Names (message ids, channel types, channelIds, userIds, replyTo) come from outside and go to three places: into the line
`[channel: <type> | id: <channelId> …]` that the model reads, into the journal, and back to the client. The model's copy is
stripped of invisible characters. So a channel type `cli` followed by a zero-width space would read to the model as `cli`,
the owner's terminal, although it is another channel. Therefore a name is refused if stripping or Unicode's compatibility
normalisation (NFKC) changes it: two different names never look the same because of characters that nobody can see.
"""

from __future__ import annotations

import re
import unicodedata

from pegasus.messages import InboundMessage

NAME_LENGTH = 256
"""Characters that a name may have. Real ids of chat services have fewer than 100."""
NAME_RULE = f"a string of 1 to {NAME_LENGTH} characters without control characters, invisible ones and compatibility forms (NFKC)"

_STRIPPED = frozenset({"Cc", "Cf", "Zl", "Zp"})
"""Unicode's categories of controls, formats, and separators of lines and paragraphs: what the model's copy of a text lacks."""
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters, and halves of surrogate pairs, which no UTF-8 file can hold."""
_INVISIBLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\ufe00-\ufe0f\U000e0100-\U000e01ef]")
"""Characters without a shape of their own that are in none of these categories and not changed by NFKC."""


class InvalidMessage(ValueError):
    """A field of a message is not what is allowed. str() names the field as it stands on the wire, and what is allowed."""


def is_name(value: str) -> bool:
    """Return whether the value may be an id or a part of a channel."""
    return (
        is_file_name(value)
        and _INVISIBLE.search(value) is None
        and not any(unicodedata.category(character) in _STRIPPED for character in value)
        and value == unicodedata.normalize("NFKC", value)
    )


def is_file_name(value: str) -> bool:
    """Return whether the value may be the name or the type of an attachment.

    The rule is milder than for ids, because people do not choose how their computer writes a file's name: macOS decomposes
    accented letters, which NFKC would change. The model sees these names escaped.
    """
    return 0 < len(value) <= NAME_LENGTH and _CONTROL.search(value) is None


def check_message(message: InboundMessage) -> None:
    """Raise InvalidMessage for the first id or part of the channel that cannot be used."""
    channel = message.channel
    _check_name("id", message.id)
    _check_name("channel.type", channel.type)
    _check_name("channel.channelId", channel.channel_id)
    if channel.user_id is not None:
        _check_name("channel.userId", channel.user_id)
    if channel.reply_to is not None:
        _check_name("channel.replyTo", channel.reply_to)


def _check_name(field: str, value: str) -> None:
    if not is_name(value):
        raise InvalidMessage(f"{field}: found {value!a:.80}, allowed: {NAME_RULE}")
