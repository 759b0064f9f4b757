r"""Anthropic's Messages API (https://platform.claude.com/docs/en/api/messages), for Claude and for servers with the same API.

Prompt cache: Anthropic caches everything up to a block with `cache_control`. There are three such markers: on the last tool, on the
system prompt, and on the last block of the conversation, where it moves on with every call. Everything before a marker is, byte for
byte, what was sent the time before. In the conversation with people (role "default") the cache lives for an hour, else for five
minutes: people pause, and reading fifty thousand tokens anew costs as much as the higher price of an hour for a hundred calls. Tasks
do not pause (https://platform.claude.com/docs/en/build-with-claude/prompt-caching).

Thinking: `claude_thinking.py` decides whether and how much. Claude signs its thinking blocks; `answer_blocks.py` gives them back.

A request looks like this. Results come before the text, in the same user message, and arguments of calls are plain JSON:

    {"model": "claude-sonnet-5-5", "max_tokens": 8192, "stream": true,
     "tools": [{"name": "reply", "description": "…", "input_schema": {…}, "cache_control": {"type": "ephemeral"}}],
     "system": [{"type": "text", "text": "…", "cache_control": {"type": "ephemeral"}}],
     "messages": [
       {"role": "user", "content": [{"type": "text", "text": "What time is it?"}]},
       {"role": "assistant", "content": [
         {"type": "thinking", "thinking": "…", "signature": "…"},
         {"type": "tool_use", "id": "toolu_1", "name": "current_time", "input": {}}]},
       {"role": "user", "content": [
         {"type": "tool_result", "tool_use_id": "toolu_1", "content": "12:00", "cache_control": {"type": "ephemeral"}}]}]}

The answer is a stream of events. A block is opened, extended by deltas and closed; usage comes at the beginning and at the end:

    {"type": "message_start", "message": {"usage": {"input_tokens": 40, "cache_read_input_tokens": 900}}}
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "It is "}}
    {"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": "toolu_2", "name": "reply"}}
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "{\"te"}}
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 12}}
    {"type": "message_stop"}
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

import attrs

from pegasus.messages import Json, Metadata
from pegasus.models.base import (
    NO_OPTIONS,
    AssistantTurn,
    ModelRequest,
    ModelResponse,
    ReasoningPiece,
    TextPiece,
    ToolSpec,
    Turn,
    Usage,
    UserTurn,
)
from pegasus.models.formats.answer_blocks import AnswerBlock, BlockAssembler, BlockTypes
from pegasus.models.formats.claude_thinking import ThinkingSwitch, claude_version
from pegasus.models.formats.wire_format import WireAnswer, WireFormat, token_count, wire_name
from pegasus.models.json_text import join_surrogates

PROVIDER_TYPE: Final = "anthropic"
"""Value of `thinking_of` for blocks of this API. Blocks of another provider are not sent back."""
BLOCKS: Final = BlockTypes("text", "tool_use", ("thinking", "redacted_thinking"))
_MINUTES: Final[Json] = {"type": "ephemeral"}
"""Cache marker of the usual lifetime, five minutes, which each use renews."""
_HOUR: Final[Json] = {"type": "ephemeral", "ttl": "1h"}
"""Cache marker of the long lifetime. All markers of a request have the same one: a longer one must not follow a shorter one."""


class AnthropicWire(WireFormat):
    """`WireFormat` of the Messages API.

    It learns from refusals what `ThinkingSwitch` learns, to keep caches for five minutes only, and to leave out old thinking. A
    conversation may hold blocks of another account, whose signatures are invalid here. They are not repaired but left out for good:
    without its thinking the conversation still makes sense, and a single foreign block would otherwise make every further call fail.

    Example:
        wire = AnthropicWire("claude-sonnet-5-5")
        assembler = wire.assembler(request)
        for event in events_of(post(wire.path, wire.body(request))):
            assembler.feed(event)
        response = assembler.response()
    """

    path = "/v1/messages"
    """Path of a call, below the base URL."""
    source = PROVIDER_TYPE
    has_error_mark = True
    count_path = "/v1/messages/count_tokens"
    """Path of the exact count of a request's tokens."""

    def __init__(self, model: str) -> None:
        super().__init__(model)
        self._thinking = ThinkingSwitch(model)
        if claude_version(model) is None:  # another server, which may not know the long lifetime of a cache
            self.leave_out("ttl")

    def assembler(self, request: ModelRequest) -> MessageAssembler:
        """Return an assembler for the answer to a request."""
        return MessageAssembler(request, self.source)

    def head(self, request: ModelRequest) -> dict[str, Json]:
        """Return the request without the turns."""
        prompt = self._prompt(request)
        return {"max_tokens": request.max_tokens, "stream": True, **self._thinking.fields(request), **prompt}

    def headers(self, request: ModelRequest) -> Mapping[str, str]:
        """Return the header that lets older models think between calls."""
        return self._thinking.headers(request)

    def count_body(self, request: ModelRequest) -> bytes:
        """Return the body for `count_tokens`: as for a call, without the parameters of the answer."""
        return b"".join(self.encode(attrs.evolve(request, options=NO_OPTIONS), self._prompt))

    def _prompt(self, request: ModelRequest) -> dict[str, Json]:
        """Return the fields that the prompt is made of, without the turns."""
        prompt: dict[str, Json] = {"model": self.model}
        marker = _HOUR if "ttl" not in self.left_out and request.label.role == "default" else _MINUTES
        if tools := request.tools or _tools_of_history(request.turns):
            specs: list[dict[str, Json]] = [
                {"name": spec.name, "description": spec.description, "input_schema": spec.parameters} for spec in tools
            ]
            specs[-1]["cache_control"] = marker
            prompt["tools"] = list[Json](specs)
            choice = request.tool_choice if request.tools else "none"
            if choice != "auto":
                known = {"none": "none", "required": "any"}.get(choice)
                prompt["tool_choice"] = {"type": known} if known else {"type": "tool", "name": wire_name(choice)}
        if request.system.strip():
            prompt["system"] = [{"type": "text", "text": request.system, "cache_control": marker}]
        return {**prompt, "messages": []}

    def user_messages(self, turn: UserTurn) -> list[Json]:
        """Return one message with results, pictures and text. The API rejects blank text, so a note stands for an empty message."""
        content: list[Json] = []
        for result in turn.results:
            block: Metadata = {"type": "tool_result", "tool_use_id": result.call_id, "content": result.content}
            content.append({**block, "is_error": True} if result.is_error else block)
        for image in turn.images:
            source: Json = {"type": "base64", "media_type": image.mime, "data": image.data}
            content.append({"type": "image", "source": source})
        if turn.text or not content:
            content.append({"type": "text", "text": turn.text or "(empty message)"})
        return [{"role": "user", "content": content}]

    def assistant_messages(self, turn: WireAnswer) -> list[Json]:
        """Return one message with thinking, text and calls."""
        calls: dict[str, Json] = {
            call.id: {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}
            for call in turn.calls
        }
        return [{"role": "assistant", "content": BLOCKS.restore(turn, calls, dict)}]

    def mark_last(self, message: Any, head: dict[str, Any]) -> Json:
        """Return the message with the cache marker on its last block, the same one as in the head."""
        *blocks, last = message["content"]
        marked = [*head.get("system", ()), *head.get("tools", ())]
        marker = next((block["cache_control"] for block in marked if "cache_control" in block), _MINUTES)
        return {**message, "content": [*blocks, {**last, "cache_control": marker}]}

    def learn(self, status: int, body: object, message: str, request: ModelRequest) -> bool:
        """Leave out what is refused: thinking of another account, the long lifetime of caches, thinking itself."""
        if status not in (400, 422):
            return False
        if "thinking" in message and ("signature" in message or "cannot be modified" in message):
            return self.leave_out("thinking blocks")
        is_about_cache = re.search(r"\bttl\b|cache_control", message) is not None
        return (is_about_cache and self.leave_out("ttl")) or self._thinking.learn(message, request)


def _tools_of_history(turns: tuple[Turn, ...]) -> tuple[ToolSpec, ...]:
    """Return placeholder tools for a request without tools: the API wants every tool declared that the conversation calls."""
    names = sorted({call.name for turn in turns if isinstance(turn, AssistantTurn) for call in turn.calls})
    return tuple(ToolSpec(wire_name(name), "No longer available.", {"type": "object"}) for name in names)


@attrs.define(eq=False, repr=False, slots=False)
class MessageAssembler(BlockAssembler):
    """`AnswerAssembler` for the events of a message (https://platform.claude.com/docs/en/build-with-claude/streaming).

    A message is a list of content blocks. `content_block_start` opens a block, deltas with its index extend it.
    """

    types = BLOCKS
    _usage: dict[str, Any] = attrs.field(factory=dict, init=False)
    """The API's own usage fields."""
    _hour_tokens: object = attrs.field(default=0, init=False)
    """Tokens that were written to the cache for an hour."""
    _stop_details: object = attrs.field(default=None, init=False)
    """The API's reason for a refusal, for the text that stands for the answer."""

    def feed(self, event: Any) -> object:
        """Take one event. Return the error object if the event is an error, else None."""
        match event.get("type") or ("error" if "error" in event else ""):
            case "content_block_delta":
                self._extend(self.blocks[event["index"]], event["delta"])
            case "content_block_start":
                self._start(event["index"], event["content_block"])
            case "message_start":
                self._count(event["message"].get("usage"))
            case "message_delta":
                self._end(event["delta"], event.get("usage"))
                self.complete = bool(self.stop)
            case "message_stop":
                self.complete = True
            case "error":
                return event.get("error") or event
        return None

    def feed_whole(self, body: Any) -> object:
        """Take a message that was not streamed."""
        if body.get("type") == "error" or "content" not in body:
            return body.get("error") or body
        for index, block in enumerate(body["content"]):
            self._start(index, block)
        self._end(body, body.get("usage"))
        self.complete = True
        return None

    def _start(self, index: int, fields: Any) -> None:
        """Begin a block of the answer; its text is streamed, and a tool call gets its number."""
        self.blocks[index] = block = AnswerBlock(fields["type"], dict(fields))
        if block.kind == BLOCKS.text:
            self._stream_text(block, str(fields.get("text", "")))
        elif block.kind == BLOCKS.call:
            block.call = self.begin_call(fields.get("id"), fields["name"])
            if given := fields.get("input"):
                self.add_arguments(block.call, given)
        elif block.kind in BLOCKS.thinking:
            self.pieces.append(ReasoningPiece(str(fields.get("thinking", ""))))

    def _extend(self, block: AnswerBlock, delta: Any) -> None:
        """Take a piece of a block."""
        match delta["type"]:
            case "text_delta":
                block.pieces.append(delta["text"])
                self._stream_text(block, delta["text"])
            case "input_json_delta" if block.call is not None:
                if block.call.value is not None:  # the pieces take the place of what the block was opened with
                    block.call.value, block.call.pieces = None, []
                self.add_arguments(block.call, delta["partial_json"])
            case "thinking_delta":
                block.pieces.append(delta["thinking"])
                self.pieces.append(ReasoningPiece(delta["thinking"]))
            case "signature_delta":
                block.fields["signature"] = block.fields.get("signature", "") + delta["signature"]

    def _stream_text(self, block: AnswerBlock, piece: str) -> None:
        """Stream a block's text once it is more than blanks. A blank block is not part of the answer."""
        if not block.is_streamed:
            piece = self.content(block)
            block.is_streamed = bool(piece.strip())
        if block.is_streamed:
            self.pieces.append(TextPiece(piece))

    def _end(self, fields: Any, usage: Any) -> None:
        """Take the reason of the end, and the usage."""
        self.stop = fields.get("stop_reason") or self.stop
        self._stop_details = fields.get("stop_details") or self._stop_details
        self._count(usage)

    def _count(self, usage: Any) -> None:
        """Merge usage numbers. They are cumulative: a later number replaces an earlier one, null changes nothing."""
        self._usage.update({key: value for key, value in (usage or {}).items() if isinstance(value, int)})
        created = (usage or {}).get("cache_creation")
        if isinstance(created, dict):
            self._hour_tokens = created.get("ephemeral_1h_input_tokens")

    def content(self, block: AnswerBlock) -> str:
        """Return the whole text of a block, or its thinking: what it began with, and its pieces."""
        return str(block.fields.get("text" if block.kind == BLOCKS.text else "thinking", "")) + "".join(block.pieces)

    def record(self, block: AnswerBlock) -> dict[str, Json] | None:
        """Return a text that is not blank, or a thinking block as the API wants it back."""
        whole = join_surrogates(self.content(block))
        if block.kind == BLOCKS.text:
            return {"type": block.kind, "text": whole} if whole.strip() else None
        return {**block.fields, "thinking": whole} if block.kind == "thinking" else dict(block.fields)

    def response(self) -> ModelResponse:
        """Return the answer. Only valid when `complete`. The provider's reason stands for a text that it has kept back."""
        answer = super().response()
        if answer.text or answer.calls or answer.stop_reason != "refusal":
            return answer
        return attrs.evolve(answer, text=_refusal_note(self._stop_details))

    def total_usage(self) -> Usage:
        """Return the usage of the answer.

        The API counts input that was read from the cache or written to it apart from other input. `prompt_tokens` is the sum of the
        three, as in the other formats, so that sizes and budgets mean the same for every provider.
        """
        names = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        new, output, read, written = (token_count(self._usage.get(name)) for name in names)
        return Usage(new + read + written, output, read, written, min(written, token_count(self._hour_tokens)))


def _refusal_note(details: object) -> str:
    """Return the provider's explanation of its refusal, as a note in place of the text it kept back; "" if it gave none."""
    given = details.get("explanation") or details.get("category") if isinstance(details, dict) else None
    text = given if isinstance(given, str) else json.dumps(given)
    return f"(The provider refused this answer: {text})" if given else ""
