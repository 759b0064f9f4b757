"""Which part of a session becomes a summary, and which stays word for word.

The cut is made before a user entry of a queue item, so it never stands between a call and its result, and never after the first of
the items that are being worked on: how far those are is read from their entries. Where even they do not fit, their long texts
are shortened in place, which changes neither calls nor ids nor the number of thoughts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import attrs

from pegasus.conversation import Entry
from pegasus.messages import Json
from pegasus.models import ToolCall

COMPACT: Final = "compact"
MEMORY_INDEX: Final = "memory_index"
"""What `metadata.type` is of the first line of a compacted session, and of the message that lists long-term memory."""
SHORTEST: Final = 200
"""Characters below which a text is not shortened any more."""

IMAGE: Final = 1_600
"""Tokens of an attached file: what providers count for a large picture, about (Anthropic: width × height / 750)."""

Weigh = Callable[[str], int]
"""Tokens of a text, about."""


def weigh(text: str) -> int:
    """Tokens of a text, rather too many than too few: a third of its UTF-8 bytes (Latin text has four a token, CJK about three)."""
    return len(text.encode("utf-8", "replace")) // 3 + 1


@attrs.frozen(eq=False)
class Plan:
    """summarised: what the summary is of, the opening line of the session included. kept: what stays, all that is behind it."""

    summarised: Sequence[Entry]
    kept: Sequence[Entry]

    @property
    def is_worth_it(self) -> bool:
        """Whether something is summarised that is not a summary already."""
        return any(not is_opening(entry) and not is_memory_index(entry) for entry in self.summarised)


def is_opening(entry: Entry) -> bool:
    """Whether this is what an earlier compaction has left."""
    return entry.role == "system" and entry.metadata.get("type") == COMPACT


def is_memory_index(entry: Entry) -> bool:
    """Whether this is the list of long-term memory, which is given anew."""
    return entry.metadata.get("type") == MEMORY_INDEX


def weight(entry: Entry, weigh: Weigh = weigh) -> int:
    """Tokens of an entry as a model sees it, about."""
    tokens = 4 + weigh(entry.content) + sum(weigh(call.name) + weigh(_text(call.arguments)) for call in entry.calls)
    thinking, media = entry.metadata.get("thinking"), entry.metadata.get("media")
    if isinstance(thinking, list):
        tokens += sum(weigh(str(block)) for block in thinking)
    return tokens + IMAGE * len(media) if isinstance(media, list) else tokens


def plan(entries: Sequence[Entry], running: Collection[int], keep: int, weigh: Weigh = weigh) -> Plan:
    """Summarise as much as leaves at most `keep` tokens; less where a queue item in `running` begins earlier."""
    latest = next((i for i, entry in enumerate(entries) if entry.item in running), len(entries))
    cut, left = latest, keep - sum(weight(entry, weigh) for entry in entries[latest:])
    for i in range(latest - 1, -1, -1):
        left -= weight(entries[i], weigh)
        if left < 0:
            break
        if entries[i].item is not None:
            cut = i
    return Plan(entries[:cut], entries[cut:])


def planned_again(entries: Sequence[Entry], running: Collection[int], cut: int) -> Plan | None:
    """The plan that was made with this cut, on the session as it has grown since; None if it does not hold any more."""
    begun = next((i for i, entry in enumerate(entries) if entry.item in running), len(entries))
    return Plan(entries[:cut], entries[cut:]) if cut <= begun else None


# ------------------------------------------------------------------ where nothing can be cut


def shortened(entries: Sequence[Entry], most: int, weigh: Weigh = weigh) -> list[Entry] | None:
    """The entries with their longest texts cut in the middle, to at most `most` tokens if that can be; None if nothing is long.

    Thinking blocks are left out but in the last turn, where a provider may want them back.
    """
    longest = max((len(text) for entry in entries for text in _texts(entry)), default=0)
    if longest <= SHORTEST and not any("media" in entry.metadata for entry in entries):
        return None
    last = max((i for i, entry in enumerate(entries) if entry.role == "assistant"), default=-1)
    limit, result = longest, list(entries)
    while limit > SHORTEST:
        limit = max(limit // 2, SHORTEST)
        result = [_shortened(entry, limit, thinking=i == last) for i, entry in enumerate(entries)]
        if sum(weight(entry, weigh) for entry in result) <= most:
            return result
    return [_without_files(entry) for entry in result]


def _without_files(entry: Entry) -> Entry:
    if "media" not in entry.metadata:
        return entry
    metadata = {key: value for key, value in entry.metadata.items() if key != "media"}
    return attrs.evolve(
        entry, content=f"{entry.content}\n(What was attached here was left out, to save room.)", metadata=metadata
    )


def clip(text: str, most: int) -> str:
    """The text, or its beginning and end with a note of how much is left out; at most `most` characters."""
    if len(text) <= most:
        return text
    room = most - len(_NOTE.format(len(text)))
    if room < 20:
        return f"{text[: max(0, most - 1)]}…"[:most]
    head = room * 2 // 3
    tail = room - head
    return f"{text[:head]}{_NOTE.format(len(text) - room)}{text[len(text) - tail :]}"


_NOTE: Final = " […{:,} characters left out…] "


def _shortened(entry: Entry, most: int, *, thinking: bool) -> Entry:
    metadata = entry.metadata
    if "thinking" in metadata and not thinking:
        metadata = {key: value for key, value in metadata.items() if key not in ("thinking", "thinkingOf")}
    calls = tuple(ToolCall(c.id, c.name, _clipped(c.arguments, most), c.error) for c in entry.calls)
    return attrs.evolve(entry, content=clip(entry.content, most), calls=calls, metadata=metadata)


def _clipped(value: Any, most: int) -> Any:
    if isinstance(value, str):
        return clip(value, most)
    if isinstance(value, Mapping):
        return {key: _clipped(inner, most) for key, inner in value.items()}
    return [_clipped(inner, most) for inner in value] if isinstance(value, list) else value


def _texts(entry: Entry) -> list[str]:
    return [entry.content, *(text for call in entry.calls for text in _strings(call.arguments))]


def _strings(value: Json) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return [text for one in inner for text in _strings(one)]


def _text(arguments: Mapping[str, Json]) -> str:
    return " ".join(map(str, arguments.values()))
