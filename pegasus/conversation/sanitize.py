"""What text from outside must pass before it enters a session (seed 000 "Input Sanitization", traps T29 and T30)."""

from __future__ import annotations

import re
import unicodedata

from pegasus.messages import ChannelInfo
from pegasus.storage.addresses import escape_field

_STRIPPED = frozenset({"Cc", "Cf", "Zl", "Zp"})
_KEPT = frozenset("\n\t\r")
_IMITATION = re.compile(r"(^|[\n\r])([ \t]*)(\[\s*(?:channel\s*:|task\s|reply\s))", re.IGNORECASE)


class _Table(dict[int, int | None]):
    """A translate() table that decides about a code point when it first meets it."""

    def __missing__(self, code_point: int) -> int | None:
        character = chr(code_point)
        category = unicodedata.category(character)
        keep: int | None = code_point
        if category in _STRIPPED and character not in _KEPT:
            keep = None
        elif category == "Cs":  # a lone surrogate, which no UTF-8 file can hold
            keep = 0xFFFD
        self[code_point] = keep
        return keep


_TABLE = _Table()


def sanitize_for_prompt(text: str) -> str:
    r"""Strip Unicode Cc, Cf, Zl and Zp, keeping \n \t \r; lone surrogates become U+FFFD.

    Joiners go too (they are Cf), so family emoji come apart: the seeds want it so, for safety.
    """
    return text.translate(_TABLE)


def escape_imitations(text: str) -> str:
    """Put a backslash before every line start that imitates a metadata line or a notification."""
    return _IMITATION.sub(r"\1\2\\\3", text)


def metadata_line(channel: ChannelInfo) -> str:
    """`[channel: <type> | id: <channelId> | thread: <replyTo>]`, thread only if present; fields escaped."""
    thread = f" | thread: {escape_field(channel.reply_to)}" if channel.reply_to else ""
    return f"[channel: {escape_field(channel.type)} | id: {escape_field(channel.channel_id)}{thread}]"


def user_content(text: str, channel: ChannelInfo, attachments: tuple[str, ...] = ()) -> str:
    """The content of a user entry: metadata line, clean text, then a line for each attachment."""
    lines = [metadata_line(channel), escape_imitations(sanitize_for_prompt(text).strip())]
    lines += [escape_imitations(sanitize_for_prompt(label)) for label in attachments]
    return "\n".join(lines)
