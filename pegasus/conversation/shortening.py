"""Shortening of a conversation in place, for a provider that finds it too long: sizes, and texts that are cut in the middle.

Shortening changes neither calls nor their ids nor the number of thoughts, so the progress that is read from the entries stays the
same.

Sizes are in tokens by a rough estimate that is too high rather than too low: a conversation that is shortened a little early costs
little, and one that is shortened too late is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from pegasus.conversation.entry import Entry, with_content
from pegasus.models import ToolCall

SHORTEST: Final = 200
"""Length in characters below which a text is not shortened any more."""
IMAGE_TOKENS: Final = 1_600
"""Tokens of an attached picture: about what providers count for a large one (Anthropic: width × height / 750)."""
ENTRY_TOKENS: Final = 4
"""Tokens that an entry costs besides its texts: role, separators."""
_OMISSION: Final = " […{:,} characters left out…] "
"""Note in place of the middle of a text, with the number of characters that are missing."""
_NO_MEDIA: Final = "(What was attached here was left out, to save room.)"
"""Note in place of pictures and files."""


# ------------------------------------------------------------------ sizes


def estimate_tokens(text: str) -> int:
    """Return about how many tokens a text has: a third of its UTF-8 bytes.

    Latin text has about four bytes a token and Chinese, Japanese and Korean text about three, so the result is rather too high.
    """
    return len(text.encode("utf-8", "replace")) // 3 + 1


def entry_tokens(entry: Entry) -> int:
    """Return about how many tokens an entry has as a provider sees it: text, calls, thinking blocks, pictures."""
    tokens = ENTRY_TOKENS + estimate_tokens(entry.content)
    for call in entry.calls:
        tokens += estimate_tokens(call.name) + estimate_tokens(" ".join(map(str, call.arguments.values())))
    thinking, media = entry.metadata.get("thinking"), entry.metadata.get("media")
    if isinstance(thinking, list):
        tokens += sum(estimate_tokens(str(block)) for block in thinking)
    if isinstance(media, list):
        tokens += IMAGE_TOKENS * len(media)
    return tokens


# ------------------------------------------------------------------ shortening in place


def shorten_entries(entries: Sequence[Entry], limit: int) -> list[Entry] | None:
    """Return the entries with their longest texts cut in the middle until all of them have at most `limit` tokens.

    The length that a text may have is halved again and again, so that the longest texts lose most. When no text may be longer than
    SHORTEST and it is still too much, attached pictures are left out as well, and the result is returned whatever its size.
    Thinking blocks are removed except from the last assistant entry: a provider may want those of the last turn back.

    Returns None if nothing is long enough to be shortened and no pictures are attached.
    """
    length = max((len(entry.content) + len(str(entry.calls)) for entry in entries), default=0)
    last_turn = max((index for index, entry in enumerate(entries) if entry.role == "assistant"), default=-1)
    shortened = list(entries)
    while length > SHORTEST:
        length = max(length // 2, SHORTEST)
        shortened = [
            _shorten_entry(entry, length, keep_thinking=index == last_turn) for index, entry in enumerate(entries)
        ]
        if sum(map(entry_tokens, shortened)) <= limit:
            return shortened
    shortened = [_without_media(entry) for entry in shortened]
    return shortened if shortened != list(entries) else None


def cut_middle(text: str, limit: int) -> str:
    """Return the text, or its beginning and its end with a note of how much is left out; at most `limit` characters."""
    if len(text) <= limit:
        return text
    room = limit - len(_OMISSION.format(len(text)))
    if room < 20:
        return f"{text[: max(0, limit - 1)]}…"[:limit]
    head = room * 2 // 3
    tail = room - head
    return f"{text[:head]}{_OMISSION.format(len(text) - room)}{text[len(text) - tail :]}"


def _shorten_entry(entry: Entry, length: int, *, keep_thinking: bool) -> Entry:
    """Return an entry with its text, and the strings in its calls, cut to `length` characters.

    keep_thinking: False to drop the thoughts that a provider has signed. They cannot be cut, because the signature is of the
    whole.
    """
    metadata = entry.metadata
    if "thinking" in metadata and not keep_thinking:
        metadata = {key: value for key, value in metadata.items() if key not in ("thinking", "thinkingOf")}
    calls = tuple(
        ToolCall(call.id, call.name, _cut_strings(call.arguments, length), call.error) for call in entry.calls
    )
    return with_content(attrs.evolve(entry, calls=calls, metadata=metadata), cut_middle(entry.content, length))


def _without_media(entry: Entry) -> Entry:
    """Return an entry without its attachments, and with a note that there were some."""
    if "media" not in entry.metadata:
        return entry
    metadata = {key: value for key, value in entry.metadata.items() if key != "media"}
    return attrs.evolve(entry, content=f"{entry.content}\n{_NO_MEDIA}", metadata=metadata)


def _cut_strings(value: Any, length: int) -> Any:
    """Return a JSON value with every string in it cut to `length` characters; keys stay."""
    if isinstance(value, str):
        return cut_middle(value, length)
    if isinstance(value, Mapping):
        return {key: _cut_strings(inner, length) for key, inner in value.items()}
    return [_cut_strings(inner, length) for inner in value] if isinstance(value, list) else value
