"""Parts of a series on Telegram (`pegasus.channels.series`): what they are, and how they become one message.

**In a group** each part of an album is a message to nobody but for the one with the caption. So it is judged by all parts together
whether the agent is meant.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from pegasus.access import GROUP, MENTIONED
from pegasus.channels.series import FILE, MOST_FILES, SeriesPart, join_texts, note_left_out
from pegasus.channels.telegram.markup import LONGEST_TEXT
from pegasus.channels.telegram.updates import TelegramMessage
from pegasus.markdown import utf16_length
from pegasus.messages import RELAYED
from pegasus.quotes import QUOTES, parse_quotes, quotes_metadata


def part_of(heard: TelegramMessage) -> SeriesPart:
    """Return what decides whether a message is a part of a series."""
    message, metadata = heard.message, heard.message.metadata
    is_command = message.text.startswith("/")
    is_own = bool(message.text) and not is_command and QUOTES not in metadata
    means_nobody = metadata.get(GROUP) is True and metadata.get(MENTIONED) is not True and heard.series == FILE
    return SeriesPart(
        message.id,
        message.channel.channel_id,
        message.channel.user_id or "",
        message.channel.reply_to,
        heard.series,
        has_text=bool(message.text),
        is_plain=is_own and not heard.series and not heard.files and not heard.is_edit,
        may_begin=not (heard.is_bot or is_command or means_nobody),
        is_edit=heard.is_edit,
        sent=heard.sent,
    )


def join_parts(parts: Sequence[TelegramMessage]) -> TelegramMessage:
    """Return the parts of a series as one message, which has the id of the first."""
    first, metadata = parts[0], dict(parts[0].message.metadata)
    text = join_texts((part.message.text for part in parts), lambda text: utf16_length(text) >= LONGEST_TEXT)
    quotes = [quote for part in parts for quote in parse_quotes(part.message.metadata)]
    files = [file for part in parts for file in part.files]
    metadata |= quotes_metadata(list(dict.fromkeys(quotes)))
    if MENTIONED in metadata:
        metadata[MENTIONED] = any(part.message.metadata.get(MENTIONED) is True for part in parts)
    # Forwarded parts are quotes. Whether the text was typed is told by the parts that have one.
    if any(part.message.metadata.get(RELAYED) is True for part in parts if part.message.text):
        metadata[RELAYED] = True
    elif text:
        metadata.pop(RELAYED, None)
    if len(files) > MOST_FILES:
        metadata[RELAYED] = True
        text = note_left_out(text, len(files) - MOST_FILES)
    message = attrs.evolve(first.message, text=text, metadata=metadata)
    return attrs.evolve(first, message=message, files=tuple(files[:MOST_FILES]), series="")
