"""Whether a summary may take the place of what it summarises. Each rule names what is wrong, for the model that gets a second try.

1. It ended by itself: not cut off, not refused, and it asks for no tool.
2. It is not empty, and not longer than it may be.
3. It has the four headings, each with something below it.
4. It names every conversation that people wrote in (of more than eight, the newest eight).
5. No line of it imitates a metadata line or a task's word: what it says is nobody's message.
6. It does not run in circles: no line comes more than three times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from pegasus.conversation import escape_imitations
from pegasus.main_agent.compaction.planning import Weigh, weigh
from pegasus.messages import Address
from pegasus.models import ModelResponse

HEADINGS: Final = ("## Now", "## People", "## Decisions and facts", "## Open")
NAMED: Final = 8
"""Conversations that a summary has to name."""
_REPEATS: Final = 3


def problems(response: ModelResponse, places: Sequence[Address], most: int, weigh: Weigh = weigh) -> list[str]:
    """What is wrong with it; [] if nothing is. places: the conversations, newest last. most: tokens it may have."""
    text = response.text.strip()
    if not text:
        return ["it is empty"]
    return [*_ending(response), *_length(text, most, weigh), *_headings(text), *_names(text, places), *_lines(text)]


def _ending(response: ModelResponse) -> list[str]:
    if response.calls:
        return ["it asks for tools; only text is wanted"]
    return [] if response.stop_reason == "end" else [f"it did not come to its end ({response.stop_reason})"]


def _length(text: str, most: int, weigh: Weigh) -> list[str]:
    size = weigh(text)
    return [f"it is too long: about {size:,} tokens, and {most:,} are allowed"] if size > most else []


def _headings(text: str) -> list[str]:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    found = []
    for heading in HEADINGS:
        if heading not in lines:
            found.append(f'the heading "{heading}" is missing')
        elif lines.index(heading) + 1 == len(lines) or lines[lines.index(heading) + 1] in HEADINGS:
            found.append(f'nothing stands below "{heading}"; write "none" there if there is nothing')
    return found


def _names(text: str, places: Sequence[Address]) -> list[str]:
    return [f"it does not name the conversation {place}" for place in places[-NAMED:] if place.channel_id not in text]


def _lines(text: str) -> list[str]:
    found = []
    if escape_imitations(text) != text:
        found.append("a line begins like a message's metadata line or a task's word")
    repeated = Counter(line.strip() for line in text.splitlines() if len(line.strip()) > 10)
    if repeated and (worst := repeated.most_common(1)[0])[1] > _REPEATS:
        found.append(f"a line comes {worst[1]} times: {worst[0][:60]!r}")
    return found
