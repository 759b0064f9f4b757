"""What text from outside must pass before it enters a session (seed 000 "Input Sanitization", traps T29 and T30)."""

from __future__ import annotations

import re
import unicodedata

from pegasus.messages import ChannelInfo
from pegasus.storage import escape_field

_STRIPPED = frozenset({"Cc", "Cf", "Zl", "Zp"})
_KEPT = frozenset("\n\t\r")
_BLANK = r"\s\u115f\u1160\u2800\u3164\uffa0"
"""Characters that show as a blank, whatever Unicode calls them."""
_UNSEEN = r"\u034f\u17b4\u17b5\u180b-\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef"
"""Characters that show as nothing and are of none of the stripped categories (Unicode, Default_Ignorable_Code_Point)."""
_BRACKET = re.compile(rf"(^|[\n\r])((?:(?![\n\r])[{_BLANK}{_UNSEEN}])*)([\[［﹇])([^\n\r]{{0,80}})")
_BLANKS = re.compile(f"[{_BLANK}]+")
_IMITATION = re.compile(r"\[\s*(?:channel\s*:|task\s|reply\s)", re.IGNORECASE)
_ALIKE = str.maketrans("асеһӏрѕтукαεκρτոհӀ", "acehlpstykaekptnhl")
"""Letters of other alphabets that look like those of our words."""


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
    """Put a backslash before every line start that a reader could take for a metadata line or a notification.

    Blanks of every kind, letters of other alphabets and widths that look the same, and marks on them make no difference.
    """
    return _BRACKET.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    before, blanks, bracket, line = found.groups()
    if _IMITATION.match(found.string, found.start(3)) or (
        not found[0].isascii() and _IMITATION.match(_looks(bracket + line))
    ):
        return f"{before}{blanks}\\{bracket}{line}"
    return found[0]


def _looks(line: str) -> str:
    """The line as it looks: in plain small letters with plain blanks, without marks."""
    plain = _BLANKS.sub(" ", unicodedata.normalize("NFKD", line)).casefold().translate(_ALIKE)
    return "".join(c for c in plain if unicodedata.category(c)[0] != "M")


def metadata_line(channel: ChannelInfo) -> str:
    """`[channel: <type> | id: <channelId> | thread: <replyTo>]`, thread only if present; fields escaped."""
    thread = f" | thread: {escape_field(channel.reply_to)}" if channel.reply_to else ""
    return f"[channel: {escape_field(channel.type)} | id: {escape_field(channel.channel_id)}{thread}]"


def user_content(text: str, channel: ChannelInfo, attachments: tuple[str, ...] = ()) -> str:
    """The content of a user entry: metadata line, clean text, then a line for each attachment."""
    lines = [metadata_line(channel), escape_imitations(sanitize_for_prompt(text).strip())]
    lines += [escape_imitations(sanitize_for_prompt(label)) for label in attachments]
    return "\n".join(lines)
