"""How large a request is, roughly and fast: for limits and rules that must know before the call is made.

Not the token counter of the session, which is exact to a few percent; this one costs microseconds, since only what is new in
a conversation is measured.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from weakref import ref

from pegasus.models.base import AssistantTurn, ModelRequest, ToolSpec, Turn, UserTurn

ASCII_PER_TOKEN: Final = 3.6
"""Between English prose (about 4.4) and code (about 3)."""
PER_MESSAGE: Final = 4
PER_IMAGE: Final = 1600
"""Tokens of a picture of the size that providers scale large ones to
(https://docs.anthropic.com/en/docs/build-with-claude/vision)."""
FIRST_FACTOR: Final = 1.5
"""What a size may be off by while nothing is known of the model."""
_MARGIN, _FORGETTING = 1.1, 0.8
_LEAST, _MOST = 0.3, 6.0
_MOST_SPECS, _MOST_TALKS = 500, 200


def text_size(text: str) -> int:
    """About how many tokens a text is. What is not ASCII counts one each: about right for Chinese, too much for Greek."""
    if text.isascii():
        return int(len(text) / ASCII_PER_TOKEN) + 1
    plain = len(text.encode("ascii", "ignore"))
    return int(plain / ASCII_PER_TOKEN) + len(text) - plain + 1


class Sizer:
    """Measures requests, and learns from what providers report how far it is off for each model."""

    def __init__(self) -> None:
        self._talks: dict[int, _Measured] = {}
        self._specs: dict[int, tuple[ToolSpec, int]] = {}
        self._factors: dict[str, float] = {}

    def size(self, request: ModelRequest) -> int:
        """About how many tokens the prompt has."""
        return text_size(request.system) + self._conversation(request.turns) + self._tools(request.tools)

    def at_most(self, model: str, size: int) -> int:
        """An upper estimate of what the provider will count for a prompt of this size."""
        return int(size * self._factors.get(model, FIRST_FACTOR)) + 1

    def learn(self, model: str, size: int, reported: int) -> None:
        """A provider has counted `reported` tokens for a prompt of this size."""
        if size and reported:
            seen = reported / size * _MARGIN
            factor = max(seen, self._factors.get(model, FIRST_FACTOR) * _FORGETTING)
            self._factors[model] = min(max(factor, _LEAST), _MOST)

    def _conversation(self, turns: Sequence[Turn]) -> int:
        """Only what is new since the last request of this conversation is measured; the last turn may have grown."""
        sure = len(turns) - 1
        measured = self._talks.get(id(turns[0])) if turns else None
        begin, total = measured.found_in(turns) if measured is not None else (0, 0)
        total += sum(map(_size_of, turns[begin:sure]))
        if sure > 0:
            if len(self._talks) >= _MOST_TALKS:
                self._talks.clear()
            self._talks[id(turns[0])] = _Measured(ref(turns[0]), ref(turns[sure - 1]), sure, total)
        return total + (_size_of(turns[-1]) if turns else 0)

    def _tools(self, tools: Sequence[ToolSpec]) -> int:
        total = 0
        for spec in tools:
            known = self._specs.get(id(spec))
            if known is None or known[0] is not spec:
                if len(self._specs) >= _MOST_SPECS:
                    self._specs.clear()
                known = self._specs[id(spec)] = (spec, _json_size(spec.parameters) + text_size(spec.description) + 8)
            total += known[1]
        return total


class _Measured(NamedTuple):
    """The first `number` turns of a conversation have this size. The turns themselves are not kept alive."""

    first: ref[Turn]
    last: ref[Turn]
    number: int
    size: int

    def found_in(self, turns: Sequence[Turn]) -> tuple[int, int]:
        """How many of these turns are the measured ones, and their size; conversations only become longer."""
        number = self.number
        same = len(turns) > number and turns[0] is self.first() and turns[number - 1] is self.last()
        return (number, self.size) if same else (0, 0)


def _size_of(turn: Turn) -> int:
    if isinstance(turn, UserTurn):
        results = sum(text_size(result.content) + PER_MESSAGE for result in turn.results)
        return results + text_size(turn.text) + PER_IMAGE * len(turn.images) + PER_MESSAGE
    return _assistant_size(turn)


def _assistant_size(turn: AssistantTurn) -> int:
    calls = sum(_json_size(call.arguments) + PER_MESSAGE for call in turn.calls)
    thinking = sum(_json_size(block) for block in turn.thinking)
    return calls + thinking + text_size(turn.text) + PER_MESSAGE


def _json_size(value: object) -> int:
    return text_size(json.dumps(value, ensure_ascii=False, default=_plain))


def _plain(value: Any) -> Any:
    """What tool specifications hold beside plain JSON."""
    return dict(value) if isinstance(value, Mapping) else str(value)
