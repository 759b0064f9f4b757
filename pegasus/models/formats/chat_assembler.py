"""Answers of OpenAI's Chat Completions: the chunks of a stream, or one completion, become a `ModelResponse`.

The requests are in `chat.py`, with an example of a stream. Answers are read leniently: a missing field is normal, a wrong type is an
error of the protocol (see `AnswerAssembler`).

Reasoning has no place in the format, so each service has made its own:

    {"delta": {"reasoning_content": "Let me see"}}           DeepSeek, Moonshot, xAI, llama.cpp, older vLLM
    {"delta": {"reasoning": "Let me see"}}                   vLLM, Groq, Ollama, OpenRouter
    {"delta": {"reasoning_details": [{"type": "reasoning.text", "text": "Let me see", "index": 0}]}}    OpenRouter, beside "reasoning"
    {"delta": {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Let me see"}]}]}}    Mistral

All of them are read from every server. What a service wants back is kept in `ModelResponse.thinking`, see `chat_dialects.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from pegasus.messages import Json
from pegasus.models.base import (
    CallBegun,
    CallPiece,
    ModelRequest,
    ModelResponse,
    ReasoningPiece,
    TextPiece,
    ToolCall,
    Usage,
    UserTurn,
)
from pegasus.models.formats.chat_dialects import ChatDialect
from pegasus.models.formats.wire_format import AnswerAssembler, encode_json, stop_reason, token_count
from pegasus.models.json_text import join_surrogates


@attrs.define(eq=False, repr=False)
class _StreamedCall:
    """A tool call while its pieces arrive.

    The pieces of parallel calls may alternate, so each call collects its own. `ChatAssembler._find_call` assigns them.
    """

    number: int
    """Place in the answer, from 0."""
    id: str = ""
    """The server's id, "" if it gives none."""
    name: str = ""
    """Name of the tool on the wire. It comes whole, in the first piece that has one."""
    pieces: list[str] = attrs.field(factory=list)
    """Pieces of the arguments as JSON text."""
    streamed: int = 0
    """Number of `pieces` that were streamed. They wait until the call has a name."""
    value: Any = None
    """Arguments that came as a JSON value instead of text."""
    extra: Json = None
    """`extra_content`, which must be sent back with the call."""


_GROWING: Final = ("text", "summary", "data")
"""Keys of a block of reasoning whose texts come in pieces."""


class ChatAssembler(AnswerAssembler):
    """`AnswerAssembler` for chat completion chunks. dialect: says what of the reasoning must go back to the service."""

    def __init__(self, request: ModelRequest, dialect: ChatDialect) -> None:
        super().__init__(request)
        self._dialect = dialect
        last = request.turns[-1]
        self._is_after_calls = isinstance(last, UserTurn) and bool(last.results)
        """True if this answer goes on after tool calls."""
        self._reasoning: list[str] = []
        """Pieces of the reasoning."""
        self._details: list[dict[str, Any]] = []
        """OpenRouter's blocks of reasoning. Texts that grow are lists of pieces (`_GROWING`)."""
        self._pieces: list[str] = []
        """Pieces of the answer's text."""
        self._calls: list[_StreamedCall] = []
        """Tool calls in the order in which they began."""
        self._call_by_index: dict[int, _StreamedCall] = {}
        """The call that a piece with this index belongs to: the last one that began with it."""
        self._usage: Any = None
        """The server's own usage object, the last one that came; None for servers that send none."""
        self._stop = ""
        """The server's `finish_reason`."""
        self._is_refusal = False
        """True if the text came as a refusal. Then `finish_reason` is an ordinary "stop"."""

    def feed(self, event: Any) -> object:
        """Take one chunk. Return the error object if the chunk is an error, else None."""
        if event.get("error"):
            return event["error"]
        if event.get("object") == "error":
            return event
        self._usage = event.get("usage") or self._usage
        for choice in event.get("choices") or ():
            if choice.get("index", 0) in (0, None):
                self._take_choice(choice, choice.get("delta") or choice.get("message") or {})
        return None

    def feed_whole(self, body: Any) -> object:
        """Take a completion that was not streamed."""
        error = self.feed(body)
        if error is None and not body["choices"]:
            return {"message": "an answer without choices"}
        self.complete = True
        return error

    def finish(self) -> None:
        """Note `[DONE]`: the end of the answer, also from servers that give no finish_reason."""
        self.complete = self.complete or bool(self._pieces or self._calls)

    def _take_choice(self, choice: Any, delta: Any) -> None:
        """Take the first choice of a chunk. Only one answer was asked for, other choices are ignored."""
        details = delta.get("reasoning_details") or ()
        for detail in details:
            self._extend_details(detail)
        reasoning = delta.get("reasoning_content") or delta.get("reasoning")
        if not reasoning:
            reasoning = "".join(str(detail.get("text") or detail.get("summary") or "") for detail in details)
        if isinstance(reasoning, str) and (reasoning or details):
            self._take_reasoning(reasoning)
        self._take_text(delta.get("content"))
        if delta.get("refusal"):
            self._is_refusal = True
            self._take_text(delta["refusal"])
        for call in delta.get("tool_calls") or ():
            self._extend_call(call)
        if delta.get("function_call"):  # the form before tool_calls, which some servers still send
            self._extend_call({"index": 0, "function": delta["function_call"]})
        if choice.get("finish_reason"):
            self._stop = str(choice["finish_reason"])
            self.complete = True

    def _take_text(self, content: Any) -> None:
        """Take text, or a list of parts that have text.

        Some servers send parts. Parts of thinking are reasoning, other parts without text (references) are left out.
        """
        if isinstance(content, str) and content:
            self._pieces.append(content)
            self.stream(TextPiece(content))
        for part in content if isinstance(content, list) else ():
            if part.get("type") == "thinking":
                inner = part.get("thinking")
                texts = inner if isinstance(inner, list) else [{"text": inner}]
                self._take_reasoning("".join(str(item.get("text") or "") for item in texts))
            elif isinstance(part.get("text"), str):
                self._take_text(part["text"])

    def _take_reasoning(self, text: str) -> None:
        """Take a piece of reasoning; "" where the provider hides its text."""
        self._reasoning.append(text)
        self.stream(ReasoningPiece(text))

    def _extend_details(self, detail: dict[str, Any]) -> None:
        """Take a piece of a reasoning block. Pieces of a block have one type and index; texts grow, other fields are replaced."""
        block = self._details[-1] if self._details else None
        if block is None or any(block.get(key) != detail.get(key) for key in ("type", "index")):
            block = {}
            self._details.append(block)
        for key, value in detail.items():
            if key in _GROWING and isinstance(value, str):
                block[key] = pieces = block[key] if isinstance(block.get(key), list) else []
                pieces.append(value)
            elif value is not None or key not in block:
                block[key] = value

    def _extend_call(self, delta: Any) -> None:
        """Take a piece of a tool call."""
        function = delta.get("function") or {}
        call_id = str(delta.get("id") or "")
        call = self._find_call(delta.get("index"), call_id, bool(function.get("name")))
        call.id = call.id or call_id
        if not call.name and function.get("name"):
            call.name = str(function["name"])
            self.stream(CallBegun(call.number, self.own_name(call.name)))
        call.extra = delta.get("extra_content") or call.extra
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            call.pieces.append(arguments)
        elif arguments is not None:
            call.value = arguments
            call.pieces.append(encode_json(arguments).decode())
        if call.name:
            for piece in call.pieces[call.streamed :]:
                self.stream(CallPiece(call.number, piece))
            call.streamed = len(call.pieces)

    def _find_call(self, index: Any, call_id: str, has_name: bool) -> _StreamedCall:
        """Return the call that a piece belongs to, a new one if it begins another call.

        index: of the piece, None if it has none. call_id, has_name: whether the piece has an id and a function name.

        Normally the index says it. Some servers give all parallel calls index 0 but different ids; others give neither index nor
        id, and then a name begins a new call and everything else continues the last one.
        """
        has_index = isinstance(index, int)
        call = self._call_by_index.get(index) if has_index else (self._calls[-1] if self._calls else None)
        is_other_id = call is not None and bool(call_id) and bool(call.id) and call_id != call.id
        begins_by_name = not has_index and not call_id and has_name
        if call is None or is_other_id or begins_by_name:
            call = _StreamedCall(len(self._calls))
            self._calls.append(call)
        if has_index:
            self._call_by_index[index] = call
        return call

    def response(self) -> ModelResponse:
        """Return the answer. Only valid when `complete`.

        `extra_content` of calls (Gemini's signatures) and the reasoning that must go back become `thinking`.
        """
        usage = _usage(self._usage)
        reason = "refusal" if self._is_refusal else stop_reason(self._stop, has_calls=bool(self._calls))
        calls: list[ToolCall] = []
        extras: list[Json] = []
        for streamed in self._calls:
            raw = streamed.value if streamed.value is not None else "".join(streamed.pieces)
            call = self.tool_call(streamed.id, streamed.name, raw, reason, is_last=streamed is self._calls[-1])
            calls.append(call)
            if streamed.extra:
                extras.append({"id": call.id, "extra_content": streamed.extra})
        thinking = (*extras, *self._kept_reasoning())
        return ModelResponse(
            text=join_surrogates("".join(self._pieces)),
            calls=tuple(calls),
            usage=usage,
            stop_reason=reason,
            thinking=thinking,
            thinking_of=self._dialect.name if thinking else None,
            reasoning=join_surrogates("".join(self._reasoning)),
        )

    def _kept_reasoning(self) -> list[Json]:
        """Return the reasoning as the service wants it back, as one block; nothing where it does not want it."""
        text = join_surrogates("".join(self._reasoning))
        match self._dialect.wants_back:
            case "reasoning_details" if self._details:
                return [{"type": "reasoning_details", "reasoning_details": [_joined(block) for block in self._details]}]
            case "thinking" if text:
                return [{"type": "thinking", "thinking": [{"type": "text", "text": text}]}]
            case "reasoning_content" if text and (self._calls or self._is_after_calls):
                return [{"type": "reasoning_content", "reasoning_content": text}]
        return []


def _joined(block: Mapping[str, Any]) -> Json:
    """Return a block of reasoning with its texts in one piece."""
    return {
        key: "".join(value) if key in _GROWING and isinstance(value, list) else value for key, value in block.items()
    }


def _usage(usage: Any) -> Usage:
    """Return the usage with missing numbers as 0. Cached tokens are part of prompt_tokens in this format.

    Some services (xAI, Gemini) leave the reasoning out of completion_tokens, and only the total has it. It is paid like the answer.
    """
    if not isinstance(usage, Mapping):
        return Usage()
    details = usage.get("prompt_tokens_details") or {}
    prompt = token_count(usage.get("prompt_tokens"))
    return Usage(
        prompt,
        max(token_count(usage.get("completion_tokens")), token_count(usage.get("total_tokens")) - prompt),
        token_count(details.get("cached_tokens") or usage.get("prompt_cache_hit_tokens")),  # the latter is DeepSeek's
        token_count(details.get("cache_write_tokens")),
    )
