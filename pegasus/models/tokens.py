"""How many tokens a conversation has: known from the provider for what was sent before, estimated for what is new.

The estimate counts pieces of text by kind, with weights fitted to o200k_base on English, Chinese and code (Chinese a tenth more:
other tokenizers need more for it than this one, seldom less). From every answer's usage it learns by how much this model's own
tokenizer differs, for Latin text and code apart from all other scripts.
"""

from __future__ import annotations

import json
import math
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol
from weakref import WeakKeyDictionary, ref

import attrs

from pegasus.messages import Json
from pegasus.models.base import AssistantTurn, ModelRequest, ToolSpec, Turn, Usage, UserTurn
from pegasus.models.pictures import image_tokens

_WORD = re.compile(r"[A-Za-z]+")
_NARROW: Final = (
    (re.compile(r"[a-z](?=[A-Z])"), 0.36),  # a hump
    (re.compile(r"\d{1,3}"), 1.5),
    (re.compile(r"[!-/:-@\[-`{-~]+"), 0.82),
    (re.compile(r"\n\s*|[ \t]{2,}"), 0.92),
)
_WIDE: Final = (
    (re.compile(r"[\u3400-\u9fff\uf900-\ufaff]"), 0.75),
    (re.compile(r"[\u3041-\u30ff]"), 0.8),
    (re.compile(r"[\uac00-\ud7af]"), 0.72),
    (re.compile(r"[\u2010-\u206f\u3000-\u303f\uff00-\uffef]+"), 0.84),
    (re.compile(r"[^\W\d_A-Za-z\u3041-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]"), 0.38),  # other alphabets
    (re.compile(r"[\u2190-\u2bff\U00010000-\U0010ffff]"), 1.0),  # emoji
)
_PER_WORD, _PER_LETTER, _SHORT = 1.02, 0.14, 6  # a word, and each of its letters above six

_SLICE, _SLICES = 4096, 16
_PER_TURN, _PER_CALL, _PER_RESULT, _PER_TOOL = 4, 10, 8, 8  # tokens of what holds the text together

_PRIOR: Final = 60.0
"""Tokens of evidence that weigh as much as the weights above do."""
_FORGET: Final = 0.98
_LESSONS: Final = 64
"""What is remembered until it is needed; older ones would count for little by then."""
_LEAST, _MOST = 0.25, 4.0


class TokenCounter(Protocol):
    """Counts for one model."""

    async def count(self, request: ModelRequest) -> int:
        """Tokens of the whole request, as exactly as this model's provider lets one know; never raises, at most 5 s."""

    def estimate(self, known: int, new: Sequence[Turn]) -> int:
        """Tokens of a prompt of which `known` are known, and `new` turns. At once, without network."""

    async def compare(self, request: ModelRequest, limit: int) -> int:
        """Tokens of the request: estimated, and only counted where the estimate is within a tenth of the limit.

        Of a request that has less than half of that for certain, any number between what it has and that half.
        """


# ------------------------------------------------------------------ sizes of what is written


@attrs.frozen
class Size:
    """Tokens by estimate. narrow: Latin text, digits, code; wide: all other scripts; fixed: what is no text."""

    narrow: float = 0.0
    wide: float = 0.0
    fixed: float = 0.0

    def __add__(self, other: Size) -> Size:
        return Size(self.narrow + other.narrow, self.wide + other.wide, self.fixed + other.fixed)


NOTHING: Final = Size()


def text_size(text: str) -> Size:
    """Size of a text; of a very long one, by samples."""
    if len(text) > _SLICE * _SLICES:
        step = len(text) // _SLICES
        sample = text_size("".join(text[n * step : n * step + _SLICE] for n in range(_SLICES)))
        share = len(text) / (_SLICE * _SLICES)
        return Size(sample.narrow * share, sample.wide * share)
    words = _WORD.findall(text)
    long = sum(length - _SHORT for length in map(len, words) if length > _SHORT)
    narrow = _PER_WORD * len(words) + _PER_LETTER * long + _weigh(_NARROW, text)
    return Size(narrow, 0.0 if text.isascii() else _weigh(_WIDE, text))


def _weigh(kinds: Iterable[tuple[re.Pattern[str], float]], text: str) -> float:
    return sum(weight * len(pattern.findall(text)) for pattern, weight in kinds)


def texts_of(turn: Turn) -> tuple[list[str], float]:
    """The texts of a turn, and the tokens of what is no text."""
    if isinstance(turn, AssistantTurn):
        thoughts = [str(block.get("thinking", "")) for block in turn.thinking if isinstance(block, dict)]
        calls = [f"{call.name} {_compact(call.arguments)}" for call in turn.calls]
        return [turn.text, *thoughts, *calls], _PER_TURN + _PER_CALL * len(calls)
    results = [result.content for result in turn.results]
    pictures = sum(image_tokens(image) for image in turn.images)
    return [turn.text, *results], _PER_TURN + _PER_RESULT * len(results) + pictures


def head_texts(system: str, tools: tuple[ToolSpec, ...]) -> tuple[list[str], float]:
    """The same of what stands before the turns."""
    specs = [f"{tool.name} {tool.description} {_compact(tool.parameters)}" for tool in tools]
    return [system, *specs], _PER_TURN + _PER_TOOL * len(specs)


def _bytes(texts: Iterable[str]) -> int:
    """No fewer than they have in UTF-8."""
    return sum(len(text) if text.isascii() else 4 * len(text) for text in texts)


def _compact(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def _sum(texts: Iterable[str], fixed: float) -> Size:
    return sum(map(text_size, texts), Size(fixed=fixed))


# ------------------------------------------------------------------ what is learnt


@attrs.frozen(eq=False)
class _Seen:
    """A prompt that the provider has counted. turns: how many; last: the last of them, None if that is also the first."""

    turns: int
    tokens: int
    last: Turn | None


class _Observation(NamedTuple):
    """These turns made the prompt so much longer, says the provider."""

    turns: Sequence[ref[Turn]]
    tokens: int


class Gauge:
    """What is known of one model's tokenizer, and of the conversations it has counted. In memory only.

    What the text of a turn comes to is only looked at when an estimate is wanted: most calls are far from every limit.
    """

    def __init__(self) -> None:
        self._sizes: WeakKeyDictionary[Turn, Size] = WeakKeyDictionary()
        self._seen: WeakKeyDictionary[Turn, _Seen] = WeakKeyDictionary()
        self._heads: tuple[object, Size] = (None, NOTHING)
        self._lessons: deque[_Observation] = deque(maxlen=_LESSONS)
        self._factors = (1.0, 1.0)
        self._xx, self._xz, self._zz = _PRIOR, 0.0, _PRIOR
        self._xy, self._zy = _PRIOR, _PRIOR

    @property
    def factors(self) -> tuple[float, float]:
        """By how much this tokenizer differs from the weights, for narrow and for wide text."""
        while self._lessons:
            turns, tokens = self._lessons.popleft()
            size = NOTHING
            for turn in (reference() for reference in turns):
                if turn is None or (isinstance(turn, UserTurn) and turn.images):
                    break
                size += self.size(turn)
            else:
                self._fit(size.narrow, size.wide, tokens - size.fixed)
        return self._factors

    def at_most(self, request: ModelRequest) -> int:
        """No fewer tokens than the request has, by its length alone: a token is a byte or more."""
        seen, begin = self._standing(request)
        parts = [texts_of(turn) for turn in request.turns[begin:]]
        if seen is None:
            parts.append(head_texts(request.system, request.tools))
        return (seen.tokens if seen else 0) + sum(_bytes(texts) + math.ceil(fixed) for texts, fixed in parts)

    def estimate(self, known: int, new: Iterable[Turn]) -> int:
        """`known` tokens and the estimate of the turns."""
        return round(known + sum(self._tokens(self.size(turn)) for turn in new))

    def whole(self, request: ModelRequest) -> int:
        """Tokens of a request: from the last count of this conversation if there is one, else estimated whole."""
        known, new = self.since(request)
        if known is not None:
            return max(0, self.estimate(known, new))
        return self.estimate(round(self._tokens(self._head(request))), new)

    def since(self, request: ModelRequest) -> tuple[int | None, tuple[Turn, ...]]:
        """Tokens known of this conversation (None: nothing is), and the turns that they do not cover."""
        seen, begin = self._standing(request)
        if seen is None:
            return None, request.turns
        known = seen.tokens
        if begin < seen.turns and seen.last is not None:
            known = round(known - self._tokens(self.size(seen.last)))
        return known, request.turns[begin:]

    def learn(self, request: ModelRequest, usage: Usage) -> None:
        """The provider has counted this request."""
        if usage.prompt_tokens <= 0 or not request.turns:
            return
        seen, begin = self._standing(request)
        if seen is not None and seen.turns == begin < len(request.turns):
            new = [ref(turn) for turn in request.turns[begin:]]
            self._lessons.append(_Observation(new, usage.prompt_tokens - seen.tokens))
        first, last = request.turns[0], request.turns[-1]
        self._seen[first] = _Seen(len(request.turns), usage.prompt_tokens, last if last is not first else None)

    def _standing(self, request: ModelRequest) -> tuple[_Seen | None, int]:
        """What was counted of this conversation, if anything, and the first turn that is new.

        The last turn may have been replaced by a longer one, which is then counted anew.
        """
        seen = self._seen.get(request.turns[0]) if request.turns else None
        if seen is None or seen.turns > len(request.turns):
            return None, 0
        if seen.last is None or seen.last is request.turns[seen.turns - 1]:
            return seen, seen.turns
        return seen, seen.turns - 1

    def size(self, turn: Turn) -> Size:
        """Size of a turn, measured once in its life."""
        size = self._sizes.get(turn)
        if size is None:
            size = self._sizes[turn] = _sum(*texts_of(turn))
        return size

    def _head(self, request: ModelRequest) -> Size:
        key = (request.system, request.tools)
        if self._heads[0] != key:
            self._heads = (key, _sum(*head_texts(*key)))
        return self._heads[1]

    def _tokens(self, size: Size) -> float:
        narrow, wide = self.factors
        return size.narrow * narrow + size.wide * wide + size.fixed

    def _fit(self, x: float, z: float, y: float) -> None:
        """One more observation for the least squares that give the factors; long and short ones count by their length."""
        if x + z < 1.0 or not (x + z) * _LEAST <= y <= (x + z) * _MOST:
            return  # not this conversation, or one that the provider has shortened
        share = 1.0 / (x + z)
        rest = (1 - _FORGET) * _PRIOR  # what is forgotten gives way to the prior
        self._xx, self._zz = (_FORGET * old + new * new * share + rest for old, new in ((self._xx, x), (self._zz, z)))
        self._xz = _FORGET * self._xz + x * z * share
        self._xy, self._zy = (_FORGET * old + new * y * share + rest for old, new in ((self._xy, x), (self._zy, z)))
        determinant = self._xx * self._zz - self._xz * self._xz
        narrow = (self._xy * self._zz - self._zy * self._xz) / determinant
        wide = (self._zy * self._xx - self._xy * self._xz) / determinant
        self._factors = (min(max(narrow, _LEAST), _MOST), min(max(wide, _LEAST), _MOST))


# ------------------------------------------------------------------ counting

Exact = Callable[[ModelRequest, Gauge], Awaitable[int | None]]
"""Counts exactly, or gives None: it cannot now. Never raises."""


class Counter:
    """A TokenCounter. exact: the provider's own way to count, if it has one."""

    def __init__(self, gauge: Gauge, exact: Exact | None = None) -> None:
        self._gauge = gauge
        self._exact = exact

    async def count(self, request: ModelRequest) -> int:
        """Tokens of the whole request, counted if that is possible, else estimated."""
        counted = await self._exact(request, self._gauge) if self._exact is not None else None
        return counted if counted is not None else self._gauge.whole(request)

    def learn(self, request: ModelRequest, usage: Usage) -> None:
        """The provider has counted this request: the model itself says so after every answer."""
        self._gauge.learn(request, usage)

    def estimate(self, known: int, new: Sequence[Turn]) -> int:
        """`known` tokens and what the new turns come to."""
        return self._gauge.estimate(known, new)

    async def compare(self, request: ModelRequest, limit: int) -> int:
        """Tokens of the request, exact where it matters: within a tenth of the limit."""
        bound = self._gauge.at_most(request)
        if 2 * bound < limit:
            return bound
        guess = self._gauge.whole(request)
        return await self.count(request) if 0.9 * limit <= guess <= 1.1 * limit else guess
