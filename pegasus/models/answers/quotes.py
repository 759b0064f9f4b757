"""Calls in the text of an answer that the model only shows: repeated from the prompt, or given as an example."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Final

from pegasus.models.answers.text_calls import TextCall, remove_calls
from pegasus.models.base import AssistantTurn, ModelRequest, UserTurn

TEXT_CALL: Final = "text_"
"""Begin of the ids of calls that were read from text."""
_SHORTEST_QUOTE: Final = 16
"""Characters. A shorter call is not looked for in the prompt."""
_LAYOUT: Final = re.compile(r"\\+[nrt]|[\s\\]+")
"""What differs between a text, the same text inside of JSON, and the same with another indentation."""
_FENCE: Final = re.compile(r"^[ \t]*(?:```|~~~).*$", re.MULTILINE)
_CODED: Final = re.compile(r"\\u([0-9a-fA-F]{4})")


def without_quotes(text: str, calls: list[TextCall], request: ModelRequest) -> list[TextCall]:
    """Return the calls in an answer's text that the model makes, rather than shows.

    What stands in the prompt is an echo: with tags only if the tags stand there too, for a model may well be asked to make a call;
    without tags also if the model has put it into a code block or indented it. If one call of a region is an echo, so are the others.

    A call in a code block with words around it is an example if the model has called tools properly in this conversation.
    """
    if not calls:
        return calls
    prompt = [_plain(source) for source in _sources(request)]
    regions = {call.end: call for call in reversed(calls)}  # the first call of a region begins where the region does

    def is_echo(call: TextCall) -> bool:
        quote = _plain(text[call.start : call.end] if call.is_certain else call.source)
        return len(quote) >= _SHORTEST_QUOTE and any(quote in source for source in prompt)

    echoes = {end for end, first in regions.items() if is_echo(first)}
    made = [call for call in calls if call.end not in echoes]
    if made and _calls_properly(request) and _FENCE.sub("", remove_calls(text, calls)).strip():
        made = [call for call in made if not _is_in_block(text, call)]
    return made


def _sources(request: ModelRequest) -> Iterator[str]:
    """Yield the texts of the prompt that others than the model have written."""
    yield request.system
    for turn in request.turns:
        if isinstance(turn, UserTurn):
            yield turn.text
            yield from (result.content for result in turn.results)


def _plain(text: str) -> str:
    """Return the text without what escaping or laying it out may change."""
    text = _CODED.sub(lambda match: chr(int(match[1], 16)), html.unescape(text))
    return _LAYOUT.sub("", text)


def _calls_properly(request: ModelRequest) -> bool:
    """Return whether the model has made a call in this conversation that its server has read."""
    turns = (turn for turn in request.turns if isinstance(turn, AssistantTurn))
    return any(not call.id.startswith(TEXT_CALL) for turn in turns for call in turn.calls)


def _is_in_block(text: str, call: TextCall) -> bool:
    """Return whether a call stands in a code block."""
    before = text[: call.start]
    return text.startswith(("```", "~~~"), call.start) or len(_FENCE.findall(before)) % 2 == 1
