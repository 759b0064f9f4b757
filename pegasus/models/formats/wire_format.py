"""Base classes of a provider's wire format, and the pieces that all wire formats share.

A wire format translates between the values of `base.py` and one HTTP API. It does no I/O: `HttpModel` sends the bytes of `body`,
feeds what comes back to an `AnswerAssembler`, takes the pieces of the answer from there, and asks `adapt` what to make of a refusal.
To add a provider with an API of its own, write a subclass of `WireFormat` in a new file, and one of `AnswerAssembler`, which its
`assembler` returns; name the first in `PROVIDERS` of `providers/accounts.py`. `chat.py` is a good model. Two rules hold for every
format:

* `body` is a pure function of the request and of what `adapt` has learned. The conversation stands at the end of the body, so the
  next request of the same conversation begins with the same bytes, and the provider finds them in its prompt cache.
* Names of tools and ids of calls are restricted on the wire (`wire_name`, `wire_id`). The base classes restrict them in the request
  and undo it in the answer, so neither a format nor the rest of Pegasus sees it.

A conversation is sent again and again, a little longer each time. So its JSON is kept until its first turn is forgotten, and that of
prompt and tools until others come: a request with 300 messages takes a tenth of a millisecond then, instead of two, and costs about
the same however long the conversation is.

**Names.** Chat templates and prompts teach models to decorate names of tools, and servers pass on what the model wrote:

    functions.reply   functions.reply:0   default_api:reply   reply<|channel|>commentary   " reply "   Reply

A name counts as a tool's if it is the tool's own, or if it is that of exactly one tool once the decoration is removed. An unknown
namespace is no decoration: `github.search` is not `search`.
"""

from __future__ import annotations

import json
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final
from weakref import WeakKeyDictionary

import attrs

from pegasus.messages import Json, Metadata
from pegasus.models.base import (
    AssistantTurn,
    CallBegun,
    CallOptions,
    CallPiece,
    ModelRequest,
    ModelResponse,
    ReasoningPiece,
    StreamPiece,
    TextPiece,
    ToolCall,
    ToolResult,
    ToolSpec,
    Turn,
    Usage,
    UserTurn,
)
from pegasus.models.formats.pictures import RefusedPictures, describe_pictures
from pegasus.models.json_text import join_surrogates, parse_arguments, unwrap_arguments
from pegasus.models.refusals import output_limit, provider_message
from pegasus.outside import without_fences

_MOST_TOKENS: Final = 1 << 40
"""Largest number of tokens of one call that is taken for true. No model has a window near it."""
_COPIED: Final = 100_000
"""Bytes of a conversation that are copied for each request; what is older is kept as it is. From 128 KiB on, memory that is freed goes
back to the system at once."""
_UNLIMITED: Final = 1 << 31
"""Length limit of answers, in tokens, while a model has not refused a smaller one."""


@attrs.frozen
class WireCall:
    """Tool call of an earlier answer, as a request repeats it: `WireCall("call_1", "reply", {"text": "Hi"}, '{"text":"Hi"}')`."""

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
    new: bytes
    """The messages of the newer ones, without the brackets of the list; never empty."""
    opening: bytes = b""
    """Beginning of `old`: that of the request, before its messages."""
    old: bytes = b""
    """The opening and the messages of the older ones, each followed by a comma; b"" while there are none. Put together again only when
    `new` is full."""

    def behind(self, opening: bytes) -> _SentTurns:
        """Return these with another opening."""
        if not self.old or self.opening == opening:
            return self
        return _SentTurns(self.turns, self.new, opening, opening + self.old[len(self.opening) :])

    def extended(self, turns: tuple[Turn, ...], json: bytes, opening: bytes) -> _SentTurns:
        """Return these with more turns. turns: all of them. json: the messages of the new ones. opening: that of these."""
        if len(self.new) < _COPIED:
            return _SentTurns(turns, b"".join((self.new, b",", json)), self.opening, self.old)
        return _SentTurns(turns, json, opening, b"".join((self.old or opening, self.new, b",")))


@attrs.frozen(eq=False, repr=False)
class WireAnswer:
    """Earlier answer of the model, as a request repeats it: `WireAnswer("It is noon.")`."""

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
    streams_lines = False
    """Its streamed answers are a JSON object in each line; else they are server-sent events."""
    has_error_mark = False
    """A result can be marked as an error; else its text says so."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.id_of: Callable[[str], str] = wire_id
        """Returns the id of a call on the wire."""
        self._longest_answer = _UNLIMITED
        self._pictures = RefusedPictures()
        """Pictures that the server does not accept; they are described in words instead."""
        self.left_out: set[str] = set()
        """Parts of a request that the server has refused, in words of the format: "temperature", "thinking blocks", …"""
        self._sent: WeakKeyDictionary[Turn, _SentTurns] = WeakKeyDictionary()
        """Conversations by their first turn. Cleared whenever a lesson changes how turns are translated."""
        self._last_head: dict[str, Json] = {}
        """Head of the last request."""
        self._last_opening = b""
        """Its JSON, without the two brackets at its end."""

    def body(self, request: ModelRequest) -> bytes:
        """Return the request as JSON."""
        return b"".join(self.pieces(request))

    def pieces(self, request: ModelRequest) -> Sequence[bytes]:
        """Return the request as JSON, in pieces to be sent one after the other: two for a long conversation, else one.

        A long conversation that is put together for each request costs more with each message: its bytes are copied twice, into
        memory that the system has to give and clear each time. Measured by `./scripts/bench turn`, after 600 turns against after
        40: 1.20 in one piece, 1.05 in several; the minimal program, which copies once, 1.26.
        """
        return self.encode(request, self.head)

    def encode(self, request: ModelRequest, head_of: Callable[[ModelRequest], dict[str, Json]]) -> Sequence[bytes]:
        """Return the pieces of a request: its head, with the messages of the turns at the end of the last list.

        Turns that were sent before are not translated again, but the last one is in any case, as it may be marked.

        head_of: as `head`.
        """
        head = self.add_options(head_of(self._restrict(request)), request.options)
        *earlier, last = request.turns
        newest = self._messages(last)
        newest[-1] = self.mark_last(newest[-1], head)
        end = b"%s]}" % encode_json(newest)[1:-1]
        if head != self._last_head:
            self._last_head, self._last_opening = head, encode_json(head).removesuffix(b"]}")
        opening = self._last_opening
        if not opening.endswith(b"["):
            opening += b","
        if not earlier:
            return (opening + end,)
        sent = self._earlier_messages(earlier, opening)
        if not sent.old:
            return (b"".join((opening, sent.new, b",", end)),)
        return sent.old, b"".join((sent.new, b",", end))

    def _earlier_messages(self, earlier: Sequence[Turn], opening: bytes) -> _SentTurns:
        """Return the messages of the turns before the last one, the older ones behind the opening. Only new turns are translated."""
        first, rest = earlier[0], tuple(earlier[1:])
        sent = self._sent.get(first)
        if sent is None or sent.turns != rest[: len(sent.turns)]:
            sent = _SentTurns((), encode_json(self._messages(first))[1:-1])
        sent = sent.behind(opening)
        if new := rest[len(sent.turns) :]:
            messages = [message for turn in new for message in self._messages(turn)]
            sent = sent.extended(rest, encode_json(messages)[1:-1], opening)
        self._sent[first] = sent
        return sent

    def _messages(self, turn: Turn) -> list[Json]:
        """Return the messages of a turn as this server may read it."""
        prepared = self._prepare(turn)
        return self.assistant_messages(prepared) if isinstance(prepared, WireAnswer) else self.user_messages(prepared)

    def add_options(self, head: dict[str, Json], options: CallOptions) -> dict[str, Json]:
        """Return the head with the temperature and the additional fields of the settings. Its last field stays the last one."""
        *_, messages = head
        last = head.pop(messages)
        if options.temperature is not None and "temperature" not in self.left_out:
            head["temperature"] = options.temperature
        return {**head, **options.extra_body, messages: last}

    def _restrict(self, request: ModelRequest) -> ModelRequest:
        """Return the request with the tool names and the answer's length that the server accepts; usually it has them."""
        has_known_names = all(wire_name(tool.name) == tool.name for tool in request.tools)
        if has_known_names and request.max_tokens <= self._longest_answer:
            return request
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
            is_own = "thinking blocks" not in self.left_out and turn.thinking_of == self.source
            thinking = [block for block in turn.thinking if isinstance(block, dict)] if is_own else []
            return WireAnswer(turn.text, tuple(calls), thinking)
        results = tuple(
            ToolResult(self.id_of(result.call_id), result.name, self._output(result), result.is_error)
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
        elif not (
            (self._is_temperature_refused(status, body, request) and self.leave_out("temperature"))
            or self._pictures.learn(status, body, request)
            or self.learn(status, body, provider_message(body), request)
        ):
            return False
        self._sent.clear()
        return True

    def _is_temperature_refused(self, status: int, body: object, request: ModelRequest) -> bool:
        """Return True if the refusal is about a temperature: models that think accept none, or only 1."""
        was_sent = request.options.temperature is not None
        return was_sent and status in (400, 422) and "temperature" in provider_message(body)

    def leave_out(self, part: str) -> bool:
        """Leave a part out of all further requests. Return False if it was left out before."""
        is_new = part not in self.left_out
        self.left_out.add(part)
        return is_new

    # -------------------------------------------------------------- to be implemented by a format

    @abstractmethod
    def head(self, request: ModelRequest) -> dict[str, Json]:
        """Return the body without the turns and options. Its last field is the list that the messages of the turns are appended to.

        The tools have their names on the wire, and the length of the answer is what the server accepts.
        """

    @abstractmethod
    def assembler(self, request: ModelRequest) -> AnswerAssembler:
        """Return an assembler for the answer to a request."""

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


@attrs.define(eq=False, repr=False)
class StreamedCall:
    """Tool call of an answer while its pieces arrive. Those of several calls may alternate."""

    number: int
    """Place among the calls of the answer, from 0."""
    id: str = ""
    """The server's id, "" if it gives none."""
    name: str = ""
    """The tool's name on the wire; "" until it has come."""
    pieces: list[str] = attrs.field(factory=list)
    """Pieces of the arguments as JSON text."""
    value: object = None
    """Arguments that came as a value instead of text."""
    extra: Json = None
    """Addition of the service, which must go back with the call."""

    @property
    def arguments(self) -> object:
        """JSON text, or the value itself from servers that send it so."""
        return "".join(self.pieces) if self.value is None else self.value


@attrs.define(eq=False, repr=False, slots=False)
class AnswerAssembler(ABC):
    """Collector of the events of one streamed answer: of its pieces at once, and of the whole in the end.

    A format's own assembler says with `add_text`, `add_reasoning`, `begin_call` and `add_arguments` what an event brings; each
    piece is streamed and kept.

    The data comes from outside. Malformed data may raise KeyError, IndexError, TypeError, AttributeError or ValueError from any
    method; the caller turns these into a ModelError of kind "protocol".

    Example::

        assembler = wire.assembler(request)
        assembler.feed(event)               # for each event; its pieces are then in `assembler.pieces`
        assembler.response()                # once `assembler.complete`
    """

    _request: ModelRequest
    """The request that is answered: its tools have the names that calls get."""
    source: str
    """As `WireFormat.source`."""
    names: ToolNames = attrs.field(init=False)
    """The tools by what the model may call them."""
    pieces: list[StreamPiece | None] = attrs.field(factory=list, init=False)
    """Pieces of the answer that were not taken yet; None: those before it are void. Whoever takes them clears the list."""
    complete: bool = attrs.field(default=False, init=False)
    """True once the end of the answer has arrived; the usage may still follow. A stream that ends before was cut off."""
    texts: list[str] = attrs.field(factory=list, init=False)
    """Pieces of the answer's text."""
    thoughts: list[str] = attrs.field(factory=list, init=False)
    """Pieces of the reasoning."""
    calls: list[StreamedCall] = attrs.field(factory=list, init=False)
    """Tool calls in the order in which they began."""
    stop: str = attrs.field(default="", init=False)
    """The provider's word for the end of the answer."""
    is_refusal: bool = attrs.field(default=False, init=False)
    """True if the text came as a refusal. Then `stop` may be the word for an ordinary end."""

    @names.default
    def _offered(self) -> ToolNames:
        return ToolNames(self._request.tools)

    @abstractmethod
    def feed(self, event: Any) -> object:
        """Take the JSON of one server-sent event. Return the error object if the event is an error, else None."""

    @abstractmethod
    def feed_whole(self, body: Any) -> object:
        """Take a complete answer from a server that does not stream. Return as `feed` does."""

    @abstractmethod
    def total_usage(self) -> Usage:
        """Return the tokens as the server has counted them; those that it did not are 0."""

    def kept_thinking(self, calls: Sequence[ToolCall]) -> Sequence[Json]:
        """Return what must go back to the service with the answer. calls: those of the answer."""
        return ()

    def finish(self) -> None:  # noqa: B027 formats without such a mark do nothing
        """Note the end of the stream that some formats mark by `[DONE]`."""

    # -------------------------------------------------------------- what an event brings

    def add_text(self, text: str) -> None:
        """Take a piece of the answer's text."""
        self.texts.append(text)
        self.pieces.append(TextPiece(text))

    def add_reasoning(self, text: str) -> None:
        """Take a piece of the reasoning; "" where the provider hides its text."""
        self.thoughts.append(text)
        self.pieces.append(ReasoningPiece(text))

    def begin_call(self, id: object = "", name: object = "") -> StreamedCall:
        """Begin a tool call, which may get its name later."""
        call = StreamedCall(len(self.calls), str(id or ""))
        self.calls.append(call)
        if name:
            self.name_call(call, name)
        return call

    def name_call(self, call: StreamedCall, name: object) -> None:
        """Take the name of a call, which comes whole. Arguments that have come before are streamed behind it."""
        call.name = str(name)
        self.pieces.append(CallBegun(call.number, self.names.own_name(call.name)))
        self.pieces += (CallPiece(call.number, piece) for piece in call.pieces)

    def add_arguments(self, call: StreamedCall, given: Any) -> None:
        """Take a piece of a call's arguments, or all of them as a value."""
        piece = given
        if not isinstance(given, str):
            call.value, piece = given, encode_json(given).decode()
        call.pieces.append(piece)
        if call.name:
            self.pieces.append(CallPiece(call.number, piece))

    def retract(self) -> None:
        """Forget text, reasoning and calls that came so far: the server sends them anew."""
        self.texts, self.thoughts, self.calls = [], [], []
        self.pieces.append(None)

    def restore_call(self, call: StreamedCall) -> None:
        """Take a call again that was retracted."""
        again = attrs.evolve(call, number=len(self.calls), name="")
        self.calls.append(again)
        if call.name:
            self.name_call(again, call.name)

    # -------------------------------------------------------------- the whole answer

    def response(self) -> ModelResponse:
        """Return the answer. Only valid when `complete`."""
        calls, reason = self.finish_calls(self.calls[-1] if self.calls else None)
        text, reasoning = (join_surrogates("".join(pieces)) for pieces in (self.texts, self.thoughts))
        return self.make_response(text, calls, reason, self.kept_thinking(calls), reasoning)

    def make_response(
        self, text: str, calls: tuple[ToolCall, ...], reason: str, thinking: Sequence[Json], reasoning: str
    ) -> ModelResponse:
        """Return an answer of this service. thinking: what must go back to it."""
        return ModelResponse(
            text=text,
            calls=calls,
            usage=self.total_usage(),
            stop_reason=reason,
            thinking=tuple(thinking),
            thinking_of=self.source if thinking else None,
            reasoning=reasoning,
        )

    def finish_calls(self, last: StreamedCall | None) -> tuple[tuple[ToolCall, ...], str]:
        """Return the finished calls, with the tools' own names, and our stop reason.

        Ids are those of the server, which may use one again in another answer (see `with_unique_ids`). Arguments that cannot be read
        become an error for the model, and so do missing ones if the answer was cut off at this call: they were still to come.

        last: the call that nothing came after, so that it may be cut off.
        """
        is_refusal = self.is_refusal and not self.calls
        reason = stop_reason("refusal" if is_refusal else self.stop, has_calls=bool(self.calls))
        cut = CUT.get(reason, "")
        calls: list[ToolCall] = []
        for number, call in enumerate(self.calls):
            given = call.arguments
            arguments, error = parse_arguments(given, cut=cut)
            is_empty = given in (None, {}) or (isinstance(given, str) and not given.strip())
            if cut and is_empty and call is last:
                error = f"the arguments are missing: {cut}"
            name = join_surrogates(self.names.own_name(call.name))
            if (tool := self.names.get(call.name)) is not None:
                arguments = unwrap_arguments(arguments, tool.parameters)
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


def token_count(value: object) -> int:
    """Return a count of tokens that a server reports; 0 for anything that cannot be one.

    A number beyond all bounds could not be multiplied by a price, and a negative one would give a budget its money back.
    """
    return value if type(value) is int and 0 < value < _MOST_TOKENS else 0


def usage_of(usage: Any, prompt: str, completion: str) -> Usage:
    """Return the usage in one of OpenAI's forms; missing numbers are 0. Cached tokens are a part of the prompt's.

    Some services (xAI, Gemini) leave the reasoning out of the answer's tokens, and only the total has it. It is paid like the answer.

    prompt, completion: keys of both numbers.
    """
    if not isinstance(usage, Mapping):
        return Usage()
    details, read = usage.get(f"{prompt}_details"), token_count(usage.get(prompt))
    if not isinstance(details, Mapping):
        details = {}
    return Usage(
        read,
        max(token_count(usage.get(completion)), token_count(usage.get("total_tokens")) - read),
        token_count(details.get("cached_tokens") or usage.get("prompt_cache_hit_tokens")),  # the latter is DeepSeek's
        token_count(details.get("cache_write_tokens")),
    )


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


# ------------------------------------------------------------------ names of tools and ids of calls

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


# ------------------------------------------------------------------ what models write

_DECORATION: Final = frozenset(
    {
        "function",
        "functions",
        "tool",
        "tools",
        "toolcall",
        "functioncall",
        "defaultapi",
        "default",
        "api",
        "call",
        "mcp",
        "multitooluse",
        "name",
        "namespace",
        "pegasus",
    }
    | {"assistant", "to", "commentary", "final", "recipient", "json"}
)
"""Words beside a name that say nothing, in their plain form."""
_TOKEN: Final = re.compile(r"<[^<>]*>?|\[[A-Z_]{2,}\]")
"""Special token of a chat template, or another tag."""
_WORD: Final = re.compile(r"[\w-]+")
_BEFORE: Final = re.compile(
    r"(?:functions?|tools?|default_api|(?:tool_)?calls?|multi_tool_use|mcp|pegasus)[_.:/]+(?=\w)", re.IGNORECASE
)
_BEHIND: Final = re.compile(r"[_.:#-]+(?:call_?\w{0,40}|\d+)$")
"""Decoration that may be joined to a name whose own words are joined alike."""
_LONGEST: Final = 300
"""Characters of a name that are looked at."""


@attrs.define(eq=False, repr=False)
class ToolNames(Mapping[str, ToolSpec]):
    """The tools of a request by what a model may call them. Iterating yields the names without decoration.

    Example: `ToolNames((REPLY,))["functions.reply:0"].name` is "reply".
    """

    _tools: Sequence[ToolSpec]
    """The tools that are offered."""
    _exact: dict[str, ToolSpec] = attrs.field(init=False)
    """Tools by their own names, and by those on the wire: a model has seen the latter."""
    _plain: dict[str, ToolSpec | None] | None = attrs.field(default=None, init=False)
    """Tools by their plain names, made when a name is not exact; None for a name that several have."""

    @_exact.default
    def _by_name(self) -> dict[str, ToolSpec]:
        return {name: tool for tool in self._tools for name in (wire_name(tool.name), tool.name)}

    def __getitem__(self, name: str) -> ToolSpec:
        """Return the tool that a model means. Raises KeyError if there is none, or more than one."""
        if (tool := self._exact.get(name) or self._find(name[:_LONGEST])) is None:
            raise KeyError(name)
        return tool

    def __iter__(self) -> Iterator[str]:
        """Yield the names without decoration."""
        return iter(self._exact)

    def __len__(self) -> int:
        """Return their number."""
        return len(self._exact)

    def own_name(self, name: str) -> str:
        """Return the own name of the tool that a model means; what it wrote if there is no such tool."""
        tool = self.get(name)
        return name if tool is None else tool.name

    def _find(self, name: str) -> ToolSpec | None:
        """Return the only tool whose name this is without decoration."""
        if self._plain is None:
            self._plain = {}
            for tool in self._tools:
                for known in {_plain(tool.name), _plain(wire_name(tool.name))}:
                    self._plain[known] = tool if self._plain.get(known, tool) is tool else None
        # What stands behind a special token belongs to the template; before it stands the name, if anything does.
        written = _TOKEN.split(name)[0]
        said = [word for word in _WORD.findall(written) if _plain(word) not in _DECORATION]
        core = written if said else _TOKEN.sub(" ", name)
        words = [word for word in _WORD.findall(core) if not word.isdigit() and _plain(word) not in _DECORATION]
        candidates = (core, *words) if len(words) == 1 else (core,)
        for candidate in candidates:
            forms = [candidate, _BEHIND.sub("", candidate.strip())]
            while before := _BEFORE.match(forms[-1]):
                forms.append(forms[-1][before.end() :])
            for form in forms:
                if (found := self._plain.get(_plain(form))) is not None:
                    return found
        return None


def _plain(name: str) -> str:
    """Return a name without case, and without what stands between its words."""
    return re.sub(r"[\W_]", "", name).casefold()
