"""Base classes of a provider's wire format, and the pieces that all wire formats share.

A wire format translates between the values of `base.py` and one HTTP API. It does no I/O: `HttpModel` sends the bytes of `body`,
feeds what comes back to an `AnswerAssembler`, takes the pieces of the answer from there, and asks `adapt` what to make of a refusal.
To add a provider with an API of its own, write a subclass of `WireFormat` in a new file, and one of `AnswerAssembler` as its
`assembler`; name the first in `PROVIDERS` of `providers/accounts.py`. `chat.py` is a good model. Two rules hold for every format:

* `body` is a pure function of the request and of what `adapt` has learned. The conversation stands at the end of the body, so the
  next request of the same conversation begins with the same bytes, and the provider finds them in its prompt cache.
* Names of tools and ids of calls are restricted on the wire (`wire_name`, `wire_id`). The base classes restrict them in the request
  and undo it in the answer, so neither a format nor the rest of Pegasus sees it.

A conversation is sent again and again, a little longer each time. So its JSON is kept until its first turn is forgotten, and that of
prompt and tools until others come: a request with 300 messages takes a tenth of a millisecond then, instead of two, and costs about
the same however long the conversation is.
"""

from __future__ import annotations

import json
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final
from weakref import WeakKeyDictionary

import attrs

from pegasus.messages import Json, Metadata
from pegasus.models.base import (
    AssistantTurn,
    CallOptions,
    ModelRequest,
    ModelResponse,
    StreamPiece,
    ToolCall,
    ToolResult,
    Turn,
    UserTurn,
)
from pegasus.models.formats.pictures import RefusedPictures, describe_pictures
from pegasus.models.json_text import join_surrogates, parse_arguments
from pegasus.models.refusals import output_limit, provider_message
from pegasus.outside import without_fences

_MOST_TOKENS: Final = 1 << 40
"""Largest number of tokens of one call that is taken for true. No model has a window near it."""
_UNLIMITED: Final = 1 << 31
"""Length limit of answers, in tokens, while a model has not refused a smaller one."""


@attrs.frozen
class WireCall:
    """Tool call of an earlier answer, as a request repeats it: `WireCall("call_1", "reply", {"text": "Hi"}, '{"text":"Hi"}')`.

    Example: `{"id": call.id, "function": {"name": call.name, "arguments": call.json}}` in Chat Completions.
    """

    id: str
    """Its id on the wire."""
    name: str
    """The tool's name on the wire."""
    arguments: Metadata
    """The arguments as values, for services that take no text."""
    json: str
    """The arguments as JSON text."""


@attrs.frozen(eq=False, repr=False)
class _SentTurns:
    """Turns of a conversation that were sent before: all but the first one, by which they are found, and the last."""

    turns: tuple[Turn, ...]
    """The turns behind the first one. They compare by identity."""
    json: bytes
    """The messages of all of them, without the brackets of the list."""


@attrs.frozen(eq=False, repr=False)
class WireAnswer:
    """Earlier answer of the model, as a request repeats it: `WireAnswer("It is noon.")`.

    Example: `assistant_messages(WireAnswer("", (call,)))` of a format makes the messages of an answer that only
    calls a tool.
    """

    text: str
    """Text of the answer. It may be blank."""
    calls: tuple[WireCall, ...] = ()
    """Its calls, with the ids and names that the service knows."""
    thinking: Sequence[Mapping[str, Any]] = ()
    """Blocks of thinking, where this service wrote them and takes them back (see `AssistantTurn.thinking`)."""


class WireFormat(ABC):
    """Wire format of one provider, for one model. It remembers what the server refused (see `adapt`), until the process ends.

    model: name of the model at the provider.

    Example: `AnthropicWire("claude-sonnet-5-5").body(request)`, and `adapt` after a refusal, which says whether
    another try is worth it.
    """

    path: str
    """Path of a call, below the base URL."""
    source: str
    """Value of `thinking_of` for blocks of this service. Those of another one are not sent."""
    assembler: Callable[[ModelRequest], AnswerAssembler]
    """Makes an assembler for the answer to a request."""
    streams_lines = False
    """Its streamed answers are a JSON object in each line; else they are server-sent events."""
    has_error_mark = False
    """A result can be marked as an error; else its text says so."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.id_of: Callable[[str], str] = wire_id
        """Returns the id of a call on the wire."""
        self._longest_answer = _UNLIMITED
        self._refuses_temperature = False
        """True for models that think and accept no temperature, or only 1."""
        self._pictures = RefusedPictures()
        """Pictures that the server does not accept; they are described in words instead."""
        self.sends_thinking = True
        """False once the server has refused thinking blocks of this conversation."""
        self._sent: WeakKeyDictionary[Turn, _SentTurns] = WeakKeyDictionary()
        """Conversations by their first turn. Cleared whenever a lesson changes how turns are translated."""
        self._last_head: dict[str, Json] = {}
        """Head of the last request."""
        self._last_opening = b""
        """Its JSON, without the two brackets at its end."""

    def body(self, request: ModelRequest) -> bytes:
        """Return the request as JSON."""
        return self.encode(request, self.head)

    def encode(self, request: ModelRequest, head_of: Callable[[ModelRequest], dict[str, Json]]) -> bytes:
        """Return a request as JSON: its head, with the messages of the turns at the end of the last list.

        Turns that were sent before are not translated again, but the last one is in any case, as it may be marked.

        head_of: as `head`.
        """
        head = self.add_options(head_of(self._restrict(request)), request.options)
        *earlier, last = request.turns
        fragments = [self._earlier_messages(earlier)] if earlier else []
        newest = self._messages(last)
        newest[-1] = self.mark_last(newest[-1], head)
        fragments.append(encode_json(newest)[1:-1])
        if head != self._last_head:
            self._last_head, self._last_opening = head, encode_json(head).removesuffix(b"]}")
        opening = self._last_opening
        return b"".join((opening, b"" if opening.endswith(b"[") else b",", b",".join(fragments), b"]}"))

    def _earlier_messages(self, earlier: Sequence[Turn]) -> bytes:
        """Return the messages of the turns before the last one, without the brackets of the list. Only new turns are translated."""
        first, rest = earlier[0], tuple(earlier[1:])
        sent = self._sent.get(first)
        if sent is None or sent.turns != rest[: len(sent.turns)]:
            sent = _SentTurns((), encode_json(self._messages(first))[1:-1])
        if new := rest[len(sent.turns) :]:
            messages = [message for turn in new for message in self._messages(turn)]
            sent = _SentTurns(rest, b",".join((sent.json, encode_json(messages)[1:-1])))
        self._sent[first] = sent
        return sent.json

    def _messages(self, turn: Turn) -> list[Json]:
        """Return the messages of a turn as this server may read it."""
        prepared = self._prepare(turn)
        return self.assistant_messages(prepared) if isinstance(prepared, WireAnswer) else self.user_messages(prepared)

    def add_options(self, head: dict[str, Json], options: CallOptions) -> dict[str, Json]:
        """Return the head with the temperature and the additional fields of the settings. Its last field stays the last one."""
        *_, messages = head
        last = head.pop(messages)
        if options.temperature is not None and not self._refuses_temperature:
            head["temperature"] = options.temperature
        return {**head, **options.extra_body, messages: last}

    def _restrict(self, request: ModelRequest) -> ModelRequest:
        """Return the request with the tool names and the answer's length that the server accepts."""
        tools = tuple(
            tool if (name := wire_name(tool.name)) == tool.name else attrs.evolve(tool, name=name)
            for tool in request.tools
        )
        return attrs.evolve(request, tools=tools, max_tokens=min(request.max_tokens, self._longest_answer))

    def _prepare(self, turn: Turn) -> UserTurn | WireAnswer:
        """Return a turn as this server may read it: with restricted names and ids, and without what it has refused."""
        if isinstance(turn, AssistantTurn):
            calls = (
                WireCall(
                    self.id_of(call.id), wire_name(call.name), call.arguments, encode_json(call.arguments).decode()
                )
                for call in turn.calls
            )
            is_own = self.sends_thinking and turn.thinking_of == self.source
            thinking = [block for block in turn.thinking if isinstance(block, dict)] if is_own else []
            return WireAnswer(turn.text, tuple(calls), thinking)
        results = tuple(
            attrs.evolve(result, call_id=self.id_of(result.call_id), content=self._output(result))
            for result in turn.results
        )
        text, images = turn.text if turn.text.strip() else "", turn.images
        if images and self._pictures.hides(turn):
            text, images = "\n\n".join(filter(None, (text, describe_pictures(images)))), ()
        return UserTurn(results, text, images)

    def _output(self, result: ToolResult) -> str:
        """Return the content of a result, which must not be blank."""
        output = result.content if result.content.strip() else "(no output)"
        is_marked = self.has_error_mark or not result.is_error or without_fences(output).startswith("Error")
        return output if is_marked else f"Error: {output}"

    def adapt(self, status: int, body: object, request: ModelRequest) -> bool:
        """Learn from a refusal how to ask differently. Return True if the call is worth another try at once.

        status: HTTP status of the refusal. body: its parsed JSON, or its text. Every format learns to ask for shorter answers, and to
        leave out pictures and the temperature. Each lesson can be learned only once, so a server that refuses everything does not
        cause an endless loop.
        """
        limit = output_limit(status, body, min(request.max_tokens, self._longest_answer))
        if limit is not None:
            self._longest_answer = limit
        elif self._is_temperature_refused(status, body, request):
            self._refuses_temperature = True
        elif not self._pictures.learn(status, body, request) and not self.learn(
            status, body, provider_message(body), request
        ):
            return False
        self._sent.clear()
        return True

    def _is_temperature_refused(self, status: int, body: object, request: ModelRequest) -> bool:
        """Return True if the refusal is about a temperature that was sent."""
        was_sent = request.options.temperature is not None and not self._refuses_temperature
        return was_sent and status in (400, 422) and "temperature" in provider_message(body)

    # -------------------------------------------------------------- to be implemented by a format

    @abstractmethod
    def head(self, request: ModelRequest) -> dict[str, Json]:
        """Return the body without the turns and options. Its last field is the list that the messages of the turns are appended to.

        The tools have their names on the wire, and the length of the answer is what the server accepts.
        """

    @abstractmethod
    def user_messages(self, turn: UserTurn) -> list[Json]:
        """Return the messages of a user turn, at least one. Its results are not blank; a blank text is empty."""

    @abstractmethod
    def assistant_messages(self, turn: WireAnswer) -> list[Json]:
        """Return the messages of an answer, at least one."""

    def mark_last(self, message: Json, head: dict[str, Json]) -> Json:
        """Return the last message of a request as it is sent, for formats that mark it. head: the rest of the request."""
        return message

    def headers(self, request: ModelRequest) -> Mapping[str, str]:
        """Return headers of a request that only this format needs."""
        return {}

    @abstractmethod
    def learn(self, status: int, body: object, message: str, request: ModelRequest) -> bool:
        """Do what `adapt` does, for refusals that are peculiar to this format. message: the provider's, out of the body."""


@attrs.frozen
class StreamedCall:
    """Tool call as it has arrived: `StreamedCall("call_1", "reply", '{"text": "Hi"}', is_last=True)`.

    Example: an assembler hands a list of them to `finish_calls`, which reads the arguments and finds what is
    cut off.
    """

    id: str
    """The server's id, "" if it gives none."""
    name: str
    """The tool's name on the wire."""
    arguments: object
    """JSON text, or the value itself from servers that send it so."""
    is_last: bool
    """Nothing came after it, so it may be cut off."""


@attrs.define(eq=False, repr=False, slots=False)
class AnswerAssembler(ABC):
    """Collector of the events of one streamed answer: of its pieces at once, and of the whole in the end.

    The data comes from outside. Malformed data may raise KeyError, IndexError, TypeError, AttributeError or ValueError from any
    method; the caller turns these into a ModelError of kind "protocol".

    Example::

        assembler = wire.assembler(request)
        assembler.feed(event)               # for each event; its pieces are then in `assembler.pieces`
        assembler.response()                # once `assembler.complete`
    """

    _request: ModelRequest
    """The request that is answered: its tools have the names that calls get."""
    names: Mapping[str, str] = attrs.field(init=False)
    """The tools' own names by their names on the wire."""
    pieces: list[StreamPiece] = attrs.field(factory=list, init=False)
    """Pieces of the answer that have come and were not taken yet. Whoever takes them clears the list."""
    complete: bool = attrs.field(default=False, init=False)
    """True once the end of the answer has arrived; the usage may still follow. A stream that ends before was cut off."""

    @names.default
    def _own_names(self) -> Mapping[str, str]:
        return {wire_name(tool.name): tool.name for tool in self._request.tools}

    @abstractmethod
    def feed(self, event: Any) -> object:
        """Take the JSON of one server-sent event. Return the error object if the event is an error, else None."""

    @abstractmethod
    def feed_whole(self, body: Any) -> object:
        """Take a complete answer from a server that does not stream. Return as `feed` does."""

    @abstractmethod
    def response(self) -> ModelResponse:
        """Return the answer. Only valid when `complete`."""

    def finish(self) -> None:  # noqa: B027 formats without such a mark do nothing
        """Note the end of the stream that some formats mark by `[DONE]`."""

    def finish_calls(self, streamed: Sequence[StreamedCall], word: str) -> tuple[tuple[ToolCall, ...], str]:
        """Return the finished calls, with the tools' own names, and our stop reason.

        Ids are those of the server, which may use one again in another answer (see `with_unique_ids`).

        word: the provider's for the end of the answer. Arguments that cannot be read become an error for the model, and so do missing
        ones if the answer was cut off at this call: they were still to come.
        """
        reason = stop_reason(word, has_calls=bool(streamed))
        cut = CUT.get(reason, "")
        calls: list[ToolCall] = []
        for number, call in enumerate(streamed):
            arguments, error = parse_arguments(call.arguments, cut=cut)
            is_empty = call.arguments in (None, {}) or (isinstance(call.arguments, str) and not call.arguments.strip())
            if cut and is_empty and call.is_last:
                error = f"the arguments are missing: {cut}"
            name = self.names.get(call.name) or join_surrogates(call.name)
            calls.append(ToolCall(wire_id(call.id or f"call_{number}"), name, arguments, error))
        return tuple(calls), reason


# ------------------------------------------------------------------ JSON


def encode_json(value: Json) -> bytes:
    """Return compact UTF-8 JSON that every provider accepts.

    Lone surrogates become "?", NaN and infinities become null: tool results and tool arguments may contain both, and a body that a
    provider rejects would make the whole conversation unusable.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        finite = json.loads(json.dumps(value), parse_constant=lambda _: None)
        text = json.dumps(finite, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


def recorded_blocks(turn: WireAnswer, text: str, call: str, thinking: Container[object]) -> Sequence[Mapping[str, Any]]:
    """Return the blocks that were recorded of an answer, in the model's own order; of one that was changed since, those of thinking.

    text, call, thinking: types of these blocks.
    """
    texts = "".join(str(block.get("text")) for block in turn.thinking if block.get("type") == text)
    ids = [block.get("id") for block in turn.thinking if block.get("type") == call]
    fits = texts in ("", turn.text) and len(ids) == len({called.id for called in turn.calls}.intersection(ids))
    return turn.thinking if fits else [block for block in turn.thinking if block.get("type") in thinking]


def token_count(value: object) -> int:
    """Return a count of tokens that a server reports; 0 for anything that cannot be one.

    A number beyond all bounds could not be multiplied by a price, and a negative one would give a budget its money back.
    """
    return value if type(value) is int and 0 < value < _MOST_TOKENS else 0


# ------------------------------------------------------------------ names and ids

_ALLOWED: Final = r"[a-zA-Z0-9_-]{1,64}"
_LONGEST_NAME: Final = 64
_LONGEST_ID: Final = 40


@lru_cache(maxsize=512)
def wire_name(name: str) -> str:
    """Return a tool's name as all wire formats allow it (`^[a-zA-Z0-9_-]{1,64}$`). Different names stay different.

    Each request and each answer asks for the names of all tools, so they are remembered.
    """
    return _restrict(name, _LONGEST_NAME)


def wire_id(call_id: str) -> str:
    """Return a call's id as all wire formats allow it: OpenAI takes 40 characters, Anthropic `^[a-zA-Z0-9_-]+$`."""
    return _restrict(call_id, _LONGEST_ID)


def _restrict(word: str, limit: int) -> str:
    if len(word) <= limit and re.fullmatch(_ALLOWED, word):
        return word
    checksum = f"_{zlib.crc32(word.encode('utf-8', 'surrogatepass')):08x}"
    return re.sub(r"[^a-zA-Z0-9_-]", "_", word)[: limit - len(checksum)] + checksum


# ------------------------------------------------------------------ reasons why an answer ended

# The words of all providers, translated to the six of `ModelResponse.stop_reason`. Sources:
# https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons,
# https://developers.openai.com/api/reference/resources/chat, https://ai.google.dev/api/generate-content#FinishReason
# (its OpenAI endpoint says `function_call_filter: MALFORMED_FUNCTION_CALL`), and what compatible servers have been seen to send.
WORDS: Final = {
    "end": "stop eos eos_token end end_turn stop_sequence complete completed load unload",
    "tool_calls": "tool_calls tool_use function_call tool_call",
    "length": "length max_tokens max_output_tokens model_length model_context_window_exceeded context_length incomplete",
    "refusal": (
        "refusal content_filter content_filtered guardrail_intervened guardrails sensitive safety recitation blocklist "
        "prohibited_content spii image_safety language error_toxic"
    ),
    "pause": "pause_turn pause_run pause",
    "error": (
        "error function_call_filter malformed_function_call unexpected_tool_call missing_thought_signature abort aborted "
        "network_error insufficient_system_resource other unknown finish_reason_unspecified"
    ),
}
"""Providers' words by ours."""
_REASON_BY_WORD: Final = {word: reason for reason, words in WORDS.items() for word in words.split()}

CUT: Final = {
    "length": "the answer was cut off at the token limit",
    "refusal": "the answer was stopped by the provider's filter",
    "pause": "the answer paused in the middle",
    "error": "the answer was broken off by the provider",
}
"""Stop reasons after which the last tool call may be half written, with an explanation for the model.

"end" and "tool_calls" are missing here, and so are unknown words: an answer counts as whole unless its end is known to be a cut."""


def stop_reason(word: str, *, has_calls: bool) -> str:
    """Return our reason for a provider's word, or the word itself if it is unknown.

    Words for a regular end depend on the answer alone ("tool_calls" if it has calls, else "end"), because servers confuse them.
    """
    whole = word.strip().lower()
    reason = _REASON_BY_WORD.get(whole) or _REASON_BY_WORD.get(whole.partition(":")[0].strip()) or word
    if reason in ("", "end", "tool_calls"):
        return "tool_calls" if has_calls else "end"
    return reason


def unfinished(response: ModelResponse) -> str | None:
    """Return the text that asks the model to continue an incomplete answer, or None if that is not necessary.

    With tool calls it is not necessary: their results cause the next call, and a half-written call has an error that says why.
    """
    if response.calls or response.stop_reason not in ("length", "pause", "error"):
        return None
    why = CUT[response.stop_reason]
    if response.stop_reason == "length":
        return f"({why[0].upper()}{why[1:]}. Go on from there, in smaller steps; do not begin anew.)"
    return f"({why[0].upper()}{why[1:]}. Go on from there.)"
