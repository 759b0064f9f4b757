"""Tokens of a prompt: known from the provider for what was sent before, estimated for what is new, counted where it matters.

Three parts of Pegasus need the size of a prompt before it is sent: compaction (does the conversation still fit?), budgets (may this
call be made?) and routing rules (`min_tokens`). All of them ask the model's `TokenCounter`, which works in three steps:

1. Every answer comes with the provider's own count of its prompt. For the next call of the same conversation only the turns since
   then are unknown. So an error of the estimate never adds up, and the cost of estimating does not grow with the conversation.
2. New text is estimated by its letters: four ASCII characters are a token, other characters are 0.8 tokens each. This is right within
   a few percent for English and code with current tokenizers. For other scripts tokenizers differ widely (Chinese needs half as much
   again with GPT-4's than with GPT-5's), so the estimate is multiplied by one factor for each model, which follows what the
   provider reports.
3. Near a limit an estimate is not good enough. There the prompt is counted exactly, if the provider has a way. Anthropic is asked
   (`CountByProvider`). OpenAI's own tokenizer is used once its table is on this machine (`CountByTable`): tiktoken fetches it
   (about 4 MB) in the background after the daemon is ready, into its own cache folder (`TIKTOKEN_CACHE_DIR`). Without a network the
   estimate is used, and `/usage` says so.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

import attrs
import trio

from pegasus.messages import Json
from pegasus.models.base import (
    NO_OPTIONS,
    AssistantTurn,
    CallOptions,
    ModelError,
    ModelRequest,
    ToolSpec,
    Turn,
    Usage,
    UserTurn,
)
from pegasus.models.formats import image_tokens
from pegasus.models.providers import ProviderClient
from pegasus.observe import get_logger

_log = get_logger("models")

# ------------------------------------------------------------------ size of text

_PER_ASCII: Final = 0.25
"""Tokens of an ASCII character: English prose has about 4.4 characters a token, code about 3.3."""
_PER_OTHER: Final = 0.8
"""Tokens of any other character: about right for Chinese, too much for Greek and Cyrillic until the factor is learned."""
_LEAST_PER_ASCII, _LEAST_PER_OTHER = 0.2, 0.25
"""The same for a lower estimate: English with long words, and Cyrillic with a tokenizer that knows it well."""
# Rounded measurements with several tokenizers. An error here is a constant for each turn, and the learned factor absorbs it.
_PER_TURN, _PER_CALL, _PER_RESULT, _PER_TOOL = 4, 10, 8, 8
"""Tokens of the structure around the text."""


def text_tokens(text: str) -> float:
    """Return the approximate tokens of a text, without any learned factor."""
    ascii_length = len(text.encode("ascii", "ignore"))
    return _PER_ASCII * ascii_length + _PER_OTHER * (len(text) - ascii_length)


@attrs.frozen(eq=False, repr=False)
class PromptParts:
    """A part of a prompt, taken apart for counting."""

    texts: tuple[str, ...]
    """Texts that are measured by their characters, or counted by a tokenizer."""
    fixed: float
    """Tokens of everything that is not text: structure and pictures."""
    tokens: float = attrs.field(init=False)
    """Approximate tokens of this part, without any learned factor."""

    @tokens.default
    def _estimate(self) -> float:
        return self.fixed + sum(map(text_tokens, self.texts))


def turn_parts(turn: Turn) -> PromptParts:
    """Return the texts of a turn and the tokens of the rest."""
    if isinstance(turn, AssistantTurn):
        thoughts = [str(block.get("thinking", "")) for block in turn.thinking if isinstance(block, dict)]
        calls = [f"{call.name} {_json(call.arguments)}" for call in turn.calls]
        return PromptParts((turn.text, *thoughts, *calls), _PER_TURN + _PER_CALL * len(calls))
    results = [result.content for result in turn.results]
    pictures = sum(image_tokens(image) for image in turn.images)
    return PromptParts((turn.text, *results), _PER_TURN + _PER_RESULT * len(results) + pictures)


def prompt_parts(system: str, tools: tuple[ToolSpec, ...]) -> PromptParts:
    """Return the same for what stands before the turns."""
    return PromptParts((system, *(tool.text for tool in tools)), _PER_TURN + _PER_TOOL * len(tools))


def _json(value: Json) -> str:
    """Return JSON as it roughly stands in the prompt."""
    return json.dumps(value, ensure_ascii=False, default=str)


@attrs.frozen
class PromptSize:
    """Size of a prompt beside the window that it must fit into: `PromptSize(90_000, 128_000)`."""

    tokens: int
    """Tokens of the request: estimated, or counted where it is close."""
    window: int
    """Tokens that fit into the model."""
    is_assumed: bool = False
    """Nobody has told the window, and no call has shown that there is such a model."""


# ------------------------------------------------------------------ the counter of one model


@attrs.frozen
class PromptEstimate:
    """Estimate of a prompt before its answer came: `PromptEstimate(known=12_000, tokens=12_340)`."""

    known: int
    """Tokens of this conversation that the provider had counted, 0 if it had counted none."""
    tokens: int
    """Approximate tokens of the whole prompt."""


@attrs.frozen(eq=False, repr=False)
class _CountedPrompt:
    """Prompt of a conversation that the provider has counted."""

    turns: int
    """Number of its turns, by which the new ones of the next request are found."""
    tokens: int
    """Tokens as the provider has counted them, else as they were estimated."""
    last: Turn | None
    """Its last turn, None if that is also the first. The next request may have a longer one in its place."""
    last_tokens: float
    """Estimate of the last turn, which is subtracted if it was replaced."""


_FIRST_CEILING: Final = 1.5
"""Factor of an upper estimate before anything was learned."""
_MARGIN, _DECAY = 1.1, 0.8
"""An upper estimate stays this much above what was seen, and falls this fast towards it."""
_LEAST, _MOST = 0.25, 4.0
"""Bounds of believable factors. Other reports are about something else: a conversation that the provider shortened, say."""
_INERTIA: Final = 1000.0
"""Tokens of text that move the factor half of the way to what they say. Short texts say little."""


class TokenCounter:
    """Counter for the prompts of one model. Everything it learns is in memory only.

    Conversations are recognised by their first turn, which compares by identity; they are forgotten when that turn is.

    Example::

        counter = TokenCounter()
        counter.estimate(request)  # 1,234: whole request estimated
        counter.learn(request, response.usage)
        counter.estimate(next_request)  # what the provider counted, and the estimate of the turns since
    """

    def __init__(self, exact: ExactCount | None = None) -> None:
        self._exact = exact
        self._counted: WeakKeyDictionary[Turn, _CountedPrompt] = WeakKeyDictionary()
        self.factor = 1.0
        """Tokens of this model for one token of the estimate, as its provider's counts have shown."""
        self._ceiling = _FIRST_CEILING
        """The same for upper estimates."""
        self._pending: tuple[tuple[object, ...], tuple[int, list[PromptParts]]] | None = None
        """Prompt without an answer that was looked at last, and what is known of it: several steps ask for its size."""

    @property
    def method(self) -> str:
        """Way of counting tokens near a limit, for people."""
        return (self._exact.method if self._exact is not None else "") or "estimated from the length of the text"

    def estimate(self, request: ModelRequest) -> int:
        """Return the approximate tokens of the request. Immediate."""
        known, new = self._split(request)
        return round(known + self.factor * sum(part.tokens for part in new))

    def estimate_usage(self, request: ModelRequest, answer: str) -> Usage:
        """Return the approximate usage of a call with this text as its answer. Immediate."""
        return Usage(self.estimate(request), round(text_tokens(answer)))

    def at_most(self, request: ModelRequest) -> int:
        """Return an upper estimate of what the provider will count. Immediate."""
        known, new = self._split(request)
        return math.ceil(known + self._ceiling * sum(part.tokens for part in new)) + 1

    def at_least(self, request: ModelRequest) -> int:
        """Return a lower estimate of the text of the whole request. It takes time that grows with the conversation.

        Thinking is left out: providers drop that of earlier turns.
        """
        turns = (attrs.evolve(turn, thinking=()) if isinstance(turn, AssistantTurn) else turn for turn in request.turns)
        parts = (prompt_parts(request.system, request.tools), *map(turn_parts, turns))
        texts = "".join(text for part in parts for text in part.texts)
        ascii_length = len(texts.encode("ascii", "ignore"))
        return math.floor(_LEAST_PER_ASCII * ascii_length + _LEAST_PER_OTHER * (len(texts) - ascii_length))

    async def compare(self, request: ModelRequest, limit: int) -> int:
        """Return the tokens of the request: estimated, but counted exactly, if possible, where that is within a tenth of the limit.

        Never raises; takes at most 5 seconds.
        """
        estimate = self.estimate(request)
        if self._exact is None or not 0.9 * limit <= estimate <= 1.1 * limit:
            return estimate
        counted = await self._exact.count(request, *self._split(request))
        return estimate if counted is None else counted

    def learn(self, request: ModelRequest, usage: Usage) -> PromptEstimate:
        """Take note of the provider's count after an answer. Return what was estimated before.

        A provider that does not count teaches nothing. Then the estimate itself is kept as the count, so that the next estimate has
        only the new turns to look at all the same.
        """
        known, new = self._split(request)
        estimated = sum(part.tokens for part in new)
        estimate = PromptEstimate(known, round(known + self.factor * estimated))
        if not request.turns:
            return estimate
        if usage.prompt_tokens > 0 and estimated > 0 and not _has_new_pictures(request, len(new)):
            self._adjust((usage.prompt_tokens - known) / estimated, estimated)
        self._pending = None
        first, last = request.turns[0], request.turns[-1]
        is_longer = last is not first
        self._counted[first] = _CountedPrompt(
            len(request.turns),
            usage.prompt_tokens or estimate.tokens,
            last if is_longer else None,
            self.factor * (new[-1] if new else turn_parts(last)).tokens if is_longer else 0.0,
        )
        return estimate

    def _adjust(self, ratio: float, weight: float) -> None:
        """Learn from one report: `weight` tokens of the estimate were `ratio` times as many in truth.

        The factor moves by an amount that depends on the length of the text. The ceiling jumps up to a larger ratio at once and
        sinks slowly, because a budget must not be exceeded by a few texts that are denser than usual.
        """
        if not _LEAST <= ratio <= _MOST:
            return
        self.factor += (ratio - self.factor) * weight / (weight + _INERTIA)
        self._ceiling = max(ratio * _MARGIN, self._ceiling * _DECAY)

    def _split(self, request: ModelRequest) -> tuple[int, list[PromptParts]]:
        """Return the tokens that are known of this conversation (0 if none are), and the parts that they do not cover."""
        prompt = request.system, request.tools, request.turns
        if self._pending is None or self._pending[0] != prompt:
            self._pending = prompt, self._split_anew(request)
        return self._pending[1]

    def _split_anew(self, request: ModelRequest) -> tuple[int, list[PromptParts]]:
        """Return what `_split` does, after looking at the texts of the new turns."""
        counted = self._counted.get(request.turns[0]) if request.turns else None
        if counted is None or counted.turns > len(request.turns):
            return 0, [prompt_parts(request.system, request.tools), *map(turn_parts, request.turns)]
        if counted.last is None or counted.last is request.turns[counted.turns - 1]:
            return counted.tokens, list(map(turn_parts, request.turns[counted.turns :]))
        known = max(0, round(counted.tokens - counted.last_tokens))
        return known, list(map(turn_parts, request.turns[counted.turns - 1 :]))


def _has_new_pictures(request: ModelRequest, new: int) -> bool:
    """Return True if a picture is among the new turns: its tokens say nothing about text."""
    return any(isinstance(turn, UserTurn) and turn.images for turn in request.turns[-new:])


# ------------------------------------------------------------------ exact counts

_COUNT_PATIENCE: Final = 5.0
"""Seconds for one count."""
_LARGEST_COUNT: Final = 1 << 20
"""Bytes of an answer that is a count."""
_COUNT_PAUSE: Final = 300.0
"""Seconds without another try after a count by the provider failed."""


class CountByProvider:
    """Exact counts by the provider, free of charge (https://platform.claude.com/docs/en/build-with-claude/token-counting).

    A server that does not have this endpoint is not asked again; one that fails is not asked for five minutes.
    """

    def __init__(
        self,
        client: ProviderClient,
        path: str,
        body: Callable[[ModelRequest], bytes],
        options: Mapping[str, CallOptions] = MappingProxyType({}),
    ) -> None:
        """Take what a request needs. body: returns that of a count. options: of calls by role; a count has their headers and query."""
        self._client = client
        self._path = path
        self._body = body
        self._options = options
        self._not_before = -math.inf

    @property
    def method(self) -> str:
        """Words for the way in which tokens are counted now; "" if they are not."""
        return "counted by the provider" if self._not_before < math.inf else ""

    async def count(self, request: ModelRequest, known: int, new: Sequence[PromptParts]) -> int | None:
        """Return the provider's count, None if it gives none. Never raises; takes at most 5 seconds. known, new: as `CountByTable`."""
        if trio.current_time() < self._not_before:
            return None
        pause = _COUNT_PAUSE
        with trio.move_on_after(_COUNT_PATIENCE):
            try:
                await self._client.load()
                return await self._ask(request)
            except ModelError as error:
                reason = str(error)
            except Exception as error:  # a refusal, a broken connection, or a senseless answer
                status = getattr(error, "status_code", 0)
                pause = math.inf if status in (404, 405, 501) else _COUNT_PAUSE
                reason = f"{type(error).__name__} {status or ''}"
            _log.warning("the provider does not count tokens; they are estimated", reason=reason)
        self._not_before = trio.current_time() + pause
        return None

    async def _ask(self, request: ModelRequest) -> int:
        """Return the count. Raises what `post` does, and ValueError, KeyError and TypeError for a senseless answer."""
        options = self._options.get(request.label.role, NO_OPTIONS)
        body = self._body(request)
        answer = await self._client.fetch(
            self._path, body, _LARGEST_COUNT, headers=options.headers, query=options.query
        )
        count = json.loads(answer)["input_tokens"]
        if not isinstance(count, int) or count <= 0:
            raise ValueError("no count")
        return count


_TABLE_PATIENCE: Final = 60.0
"""Seconds for fetching a table. No call waits for it."""
_TABLE_BLOCK: Final = 20_000
"""Characters that are encoded at a time: tiktoken takes more than linear time for some long texts."""


class CountByTable:
    """Exact counts by OpenAI's own tokenizer, for OpenAI's own models.

    Until `load` has succeeded it gives no counts. It only counts text: what came before is known from the provider.
    """

    def __init__(self, model: str) -> None:
        is_old = model in ("gpt-4", "gpt-4-turbo") or model.startswith(("gpt-4-", "gpt-3.5", "gpt-35"))
        self.encoding_name = "cl100k_base" if is_old else "o200k_base"
        self._encoding: Any = None

    @property
    def method(self) -> str:
        """Words for the way in which tokens are counted now; "" if they are not."""
        return f"counted by tiktoken ({self.encoding_name})" if self._encoding is not None else ""

    async def load(self) -> None:
        """Load the table, from tiktoken's cache or else from the network; give up after a minute. Never raises.

        The download has no timeout of its own, so its thread may outlive this call; a table that comes too late is used next time.
        """
        if self._encoding is not None:
            return
        with trio.move_on_after(_TABLE_PATIENCE) as scope:
            try:
                self._encoding = await trio.to_thread.run_sync(
                    _load_encoding, self.encoding_name, abandon_on_cancel=True
                )
            except Exception as error:  # no network, no disk space, another version of the package
                _log.info("no table for tiktoken; tokens are estimated", encoding=self.encoding_name, reason=str(error))
        if scope.cancelled_caught:
            _log.info(
                "fetching the table for tiktoken takes too long; tokens are estimated", encoding=self.encoding_name
            )

    async def count(self, request: ModelRequest, known: int, new: Sequence[PromptParts]) -> int | None:
        """Return the known tokens and the count of the new text, None without a table. Never raises; takes at most 5 seconds."""
        if self._encoding is None:
            return None
        with trio.move_on_after(_COUNT_PATIENCE):
            return known + await trio.to_thread.run_sync(self._count, new, abandon_on_cancel=True)
        return None

    def _count(self, parts: Sequence[PromptParts]) -> int:
        """Count in a thread. tiktoken releases the interpreter's lock while it works."""
        texts = sum(self._length(text) for part in parts for text in part.texts)
        return texts + round(sum(part.fixed for part in parts))

    def _length(self, text: str) -> int:
        """Return the tokens of a text, encoded in blocks."""
        encode = self._encoding.encode_ordinary
        return sum(len(encode(text[start : start + _TABLE_BLOCK])) for start in range(0, len(text), _TABLE_BLOCK))


ExactCount: TypeAlias = CountByProvider | CountByTable


def _load_encoding(name: str) -> Any:
    """Return a tiktoken encoding. Blocking: half a second from the cache, else a download of about 4 MB."""
    import tiktoken

    return tiktoken.get_encoding(name)
