r"""Anthropic's Messages API (https://platform.claude.com/docs/en/api/messages), for Claude and for servers with the same API.

Prompt cache: Anthropic caches everything up to a block with `cache_control`. There are three such markers: on the last tool, on the
system prompt, and on the last block of the conversation, where it moves on with every call. Everything before a marker is, byte for
byte, what was sent the time before.

Thinking: Claude signs its thinking blocks and wants them back unchanged and in their places. `AssistantTurn.thinking` holds them.
Where the model wrote text or calls between its thinking blocks, `thinking` also records where these stood ("layout"). A layout that
does not fit the turn any more (a turn that was joined with another one) is reduced to the thinking blocks alone.

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

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import attrs

from pegasus.messages import Json
from pegasus.models.base import (
    AssistantTurn,
    ModelRequest,
    ModelResponse,
    ToolCall,
    ToolResult,
    ToolSpec,
    Turn,
    Usage,
    UserTurn,
)
from pegasus.models.errors import output_limit, provider_message
from pegasus.models.pictures import RefusedPictures, describe_pictures
from pegasus.models.sdk import SdkClient, load_client
from pegasus.models.stop_reasons import CUT, missing_arguments, refusal_note, stop_reason
from pegasus.models.wire_format import (
    UNLIMITED,
    CallIds,
    MessageCache,
    encode_json,
    ignore_text,
    join_surrogates,
    original_names,
    parse_arguments,
    wire_id,
    wire_name,
    wire_names,
)

BASE_URL: Final = "https://api.anthropic.com"
"""Address of Anthropic's own service."""
PROVIDER_TYPE: Final = "anthropic"
"""Value of `thinking_of` for blocks of this API. Blocks of another provider are not sent back."""
THINKING: Final = ("thinking", "redacted_thinking")
"""Types of thinking blocks."""
_EPHEMERAL: Final[Json] = {"type": "ephemeral"}
"""Cache marker of the usual lifetime, five minutes, which each use renews."""


def anthropic_client(api_key: str, base_url: str) -> SdkClient:
    """Return the HTTP client. Servers other than Anthropic's own get the key in both headers that are in use.

    api_key: "" for a server that needs none. base_url: "" for Anthropic's own service. The SDK is imported at the first call only.
    """
    options: dict[str, object] = {
        "api_key": api_key or "none",
        "base_url": base_url or BASE_URL,
        "open_telemetry": False,
    }
    if base_url not in ("", BASE_URL):
        options["default_headers"] = {"X-Api-Key": api_key or "none"}
    return SdkClient("anthropic", lambda: load_client("anthropic", "AsyncAnthropic", options, (api_key,)))


class AnthropicWire:
    """`WireFormat` of the Messages API.

    It learns three things from refusals: to leave out thinking (a conversation may hold blocks of another account, whose
    signatures are invalid here), to leave out pictures, and to ask for shorter answers. The lessons are kept in memory only; after a
    restart, each of them costs one refusal again.

    Example:
        wire = AnthropicWire("claude-sonnet-5-5")
        assembler = wire.assembler(request, print)
        for event in events_of(post(wire.path, wire.body(request))):
            assembler.feed(event)
        response = assembler.response()
    """

    path = "/v1/messages"
    """Path of a call, below the base URL."""
    count_path = "/v1/messages/count_tokens"
    """Path of the exact count of a request's tokens."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._sends_thinking = True
        """False once the server has refused thinking blocks of this conversation."""
        self._longest_answer = UNLIMITED
        """Upper limit of `max_tokens`, learned from a refusal."""
        self._pictures = RefusedPictures()
        """Pictures that the server does not accept; they are described in words instead."""
        self._messages = MessageCache(self._translate)
        """Messages of the turns that were sent before. Cleared whenever a lesson changes how turns are translated."""

    def body(self, request: ModelRequest) -> bytes:
        """Return the request as JSON, with the cache markers.

        The marker of the conversation is put on a copy of the last message, because the cached one must not have it in the next call.
        """
        messages = self._messages.of(request.turns)
        messages[-1] = _with_cache_marker(messages[-1])
        head: dict[str, Json] = {
            "model": self._model,
            "max_tokens": min(request.max_tokens, self._longest_answer),
            "stream": True,
        }
        return encode_json({**head, **self._prompt(request), "messages": messages})

    def count_body(self, request: ModelRequest) -> bytes:
        """Return the body for `count_tokens`: as for a call, without the parameters of the answer."""
        return encode_json(
            {"model": self._model, **self._prompt(request), "messages": self._messages.of(request.turns)}
        )

    def assembler(self, request: ModelRequest, on_text: Callable[[str], None] = ignore_text) -> MessageAssembler:
        """Return an assembler for the answer to this request."""
        return MessageAssembler(original_names(request.tools), CallIds(request.turns), on_text)

    def adapt(self, status: int, body: object, request: ModelRequest) -> bool:
        """Learn from a refusal; return True if the call is worth another try at once.

        status: HTTP status of the refusal. body: its parsed JSON, or its text. request: the request that was refused. Each lesson is
        learned at most once, so the caller may repeat without counting.

        A refused signature is not repaired but left out for good: without its thinking the conversation still makes sense, and a
        single foreign block would otherwise make every further call fail.
        """
        limit = output_limit(status, body, min(request.max_tokens, self._longest_answer))
        if limit is not None:
            self._longest_answer = limit
            return True
        if self._pictures.learn(status, body, request):
            self._messages.clear()
            return True
        message = provider_message(body)
        is_refused = "thinking" in message and ("signature" in message or "cannot be modified" in message)
        if status != 400 or not is_refused or not self._sends_thinking:
            return False
        self._sends_thinking = False
        self._messages.clear()
        return True

    def _prompt(self, request: ModelRequest) -> dict[str, Json]:
        """Return the fields before the conversation: tools and system prompt."""
        prompt: dict[str, Json] = {}
        tools = request.tools or _tools_of_history(request.turns)
        choice = request.tool_choice if request.tools else "none"
        if tools:
            names = wire_names(tools)
            specs: list[dict[str, Json]] = [
                {"name": names[spec.name], "description": spec.description, "input_schema": spec.parameters}
                for spec in tools
            ]
            specs[-1]["cache_control"] = _EPHEMERAL
            prompt["tools"] = list[Json](specs)
            if choice != "auto":
                prompt["tool_choice"] = _tool_choice(choice)
        if request.system.strip():
            prompt["system"] = [{"type": "text", "text": request.system, "cache_control": _EPHEMERAL}]
        return prompt

    def _translate(self, turn: Turn) -> Iterator[Json]:
        """Yield the message of a turn."""
        if isinstance(turn, AssistantTurn):
            layout = turn.thinking if self._sends_thinking and turn.thinking_of == PROVIDER_TYPE else ()
            yield {"role": "assistant", "content": list(_assistant_blocks(turn, layout))}
        elif not turn.images or not self._pictures.hides(turn):
            yield {"role": "user", "content": list(_user_blocks(turn))}
        else:
            note: Json = {"type": "text", "text": describe_pictures(turn.images)}
            others = list(_user_blocks(attrs.evolve(turn, images=()))) if turn.results or turn.text.strip() else []
            yield {"role": "user", "content": [*others, note]}


def _with_cache_marker(message: Any) -> Json:
    """Return a copy of the message whose last block has the cache marker."""
    *blocks, last = message["content"]
    return {**message, "content": [*blocks, {**last, "cache_control": _EPHEMERAL}]}


def _tool_choice(choice: str) -> Json:
    """Return `tool_choice` for a word, or for the name of the tool that must be called."""
    known = {"none": "none", "required": "any"}.get(choice)
    return {"type": known} if known else {"type": "tool", "name": wire_name(choice)}


def _tools_of_history(turns: tuple[Turn, ...]) -> tuple[ToolSpec, ...]:
    """Return placeholder tools for a request without tools: the API wants every tool declared that the conversation calls."""
    names = sorted({call.name for turn in turns if isinstance(turn, AssistantTurn) for call in turn.calls})
    return tuple(ToolSpec(name, "No longer available.", {"type": "object"}) for name in names)


# ------------------------------------------------------------------ content blocks of a request


def _user_blocks(turn: UserTurn) -> Iterator[Json]:
    """Yield results, pictures and text. The API rejects blank text, so a note stands for an empty message."""
    for result in turn.results:
        yield _result_block(result)
    for image in turn.images:
        yield {"type": "image", "source": {"type": "base64", "media_type": image.mime, "data": image.data}}
    if turn.text.strip():
        yield {"type": "text", "text": turn.text}
    elif not turn.results and not turn.images:
        yield {"type": "text", "text": "(empty message)"}


def _result_block(result: ToolResult) -> Json:
    """Return the block of a tool result."""
    block: dict[str, Json] = {
        "type": "tool_result",
        "tool_use_id": wire_id(result.call_id),
        "content": result.content if result.content.strip() else "(no output)",
    }
    return {**block, "is_error": True} if result.is_error else block


def _assistant_blocks(turn: AssistantTurn, layout: tuple[Json, ...]) -> Iterator[Json]:
    """Yield thinking, text and calls; in the model's own order if the layout has one and fits the turn.

    A message must not be empty and must not end in thinking, so a note stands where nothing else does.
    """
    if not _fits(layout, turn):
        layout = tuple(block for block in layout if _type_of(block) in THINKING)
    has_text = any(_type_of(block) == "text" for block in layout)
    calls = {wire_id(call.id): call for call in turn.calls}
    needs_note = True
    for block in layout:
        if _type_of(block) == "tool_use":
            yield _call_block(calls.pop(_id_of(block)))
        else:
            yield block
        needs_note = _type_of(block) in THINKING
    if turn.text.strip() and not has_text:
        yield {"type": "text", "text": turn.text}
        needs_note = False
    for call in calls.values():
        yield _call_block(call)
        needs_note = False
    if needs_note:
        yield {"type": "text", "text": "(silence)"}


def _fits(layout: tuple[Json, ...], turn: AssistantTurn) -> bool:
    """Return True if the layout has exactly this turn's text (or none) and only calls of this turn, each once."""
    text = "".join(
        str(block.get("text")) for block in layout if isinstance(block, Mapping) and _type_of(block) == "text"
    )
    ids = [_id_of(block) for block in layout if _type_of(block) == "tool_use"]
    known = {wire_id(call.id) for call in turn.calls}
    return (not text or text == turn.text) and len(ids) == len(set(ids)) and known.issuperset(ids)


def _call_block(call: ToolCall) -> Json:
    """Return the block of a tool call."""
    return {"type": "tool_use", "id": wire_id(call.id), "name": wire_name(call.name), "input": call.arguments}


def _type_of(block: Json) -> object:
    """Return the type of a block, None for anything else. Blocks from the session file may be any JSON."""
    return block.get("type") if isinstance(block, Mapping) else None


def _id_of(block: Json) -> str:
    """Return the id of a block, "" for none."""
    return str(block.get("id")) if isinstance(block, Mapping) else ""


# ------------------------------------------------------------------ answers


class MessageAssembler:
    """`AnswerAssembler` for the events of a message (https://platform.claude.com/docs/en/build-with-claude/streaming).

    A message is a list of content blocks. `content_block_start` opens a block, deltas with its index extend it. The pieces of each
    block are collected in `block["pieces"]` and joined at the end.
    """

    def __init__(self, names: Mapping[str, str], ids: CallIds, on_text: Callable[[str], None] = ignore_text) -> None:
        self._names = names
        """The tools' own names by their names on the wire."""
        self._ids = ids
        """Makes the ids of calls unique within the conversation."""
        self._on_text = on_text
        """Receives each piece of text as it arrives."""
        self._blocks: dict[int, dict[str, Any]] = {}
        """Content blocks by their index. Each has the API's fields, "pieces", and "streaming" once its text is streamed."""
        self._usage: dict[str, Any] = {}
        """The API's own usage fields."""
        self._stop = ""
        """The API's `stop_reason`."""
        self._stop_details: object = None
        """The API's reason for a refusal, for the text that stands for the answer."""
        self.complete = False
        """True once the end of the answer has arrived. A stream that ends before was cut off."""

    def feed(self, event: Any) -> object:
        """Take one event. Return the error object if the event is an error, else None."""
        kind = event.get("type") or ("error" if "error" in event else "")
        if kind == "content_block_delta":
            self._extend(self._blocks[event["index"]], event["delta"])
        elif kind == "content_block_start":
            self._blocks[event["index"]] = block = {**event["content_block"], "pieces": []}
            self._start_streaming(block)
        elif kind == "message_start":
            self._count(event["message"].get("usage"))
        elif kind == "message_delta":
            self._stop = event["delta"].get("stop_reason") or self._stop
            self._stop_details = event["delta"].get("stop_details") or self._stop_details
            self._count(event.get("usage"))
            self.complete = bool(self._stop)
        elif kind == "message_stop":
            self.complete = True
        elif kind == "error":
            return event.get("error") or event
        return None

    def finish(self) -> None:
        """Do nothing: the `[DONE]` of other formats has no meaning in this one."""

    def feed_whole(self, body: Any) -> object:
        """Take a message that was not streamed."""
        if body.get("type") == "error" or "content" not in body:
            return body.get("error") or body
        self._blocks = {index: {**block, "pieces": []} for index, block in enumerate(body["content"])}
        for block in self._blocks.values():
            self._start_streaming(block)
        self._count(body.get("usage"))
        self._stop = body.get("stop_reason") or ""
        self._stop_details = body.get("stop_details")
        self.complete = True
        return None

    def _extend(self, block: dict[str, Any], delta: Any) -> None:
        """Take a piece of a block."""
        kind = delta["type"]
        if kind == "text_delta":
            block["pieces"].append(delta["text"])
            if block.get("streaming"):
                self._on_text(delta["text"])
            else:
                self._start_streaming(block)
        elif kind == "input_json_delta":
            block["pieces"].append(delta["partial_json"])
        elif kind == "thinking_delta":
            block["pieces"].append(delta["thinking"])
        elif kind == "signature_delta":
            block["signature"] = block.get("signature", "") + delta["signature"]

    def _start_streaming(self, block: dict[str, Any]) -> None:
        """Stream a block's text once it is more than blanks. A blank block is not part of the answer."""
        text = _text_of(block) if block["type"] == "text" else ""
        if text.strip():
            block["streaming"] = True
            self._on_text(text)

    def _count(self, usage: Any) -> None:
        """Merge usage numbers. They are cumulative: a later number replaces an earlier one, null changes nothing."""
        self._usage.update({key: value for key, value in (usage or {}).items() if isinstance(value, int)})

    def response(self) -> ModelResponse:
        """Return the answer. Only valid when `complete`.

        The texts of all blocks are joined. `thinking` gets the thinking blocks, and the places of the others where these matter.
        """
        blocks = [block for _, block in sorted(self._blocks.items())]
        layout: list[Json] = []
        texts: list[str] = []
        calls: list[ToolCall] = []
        reason = stop_reason(self._stop, has_calls=any(block["type"] == "tool_use" for block in blocks))
        for block in blocks:
            kind = block["type"]
            if kind == "text":
                text = join_surrogates(_text_of(block))
                if text.strip():
                    texts.append(text)
                    layout.append({"type": "text", "text": text})
            elif kind == "tool_use":
                calls.append(self._call(block, reason, is_last=block is blocks[-1]))
                layout.append({"type": "tool_use", "id": calls[-1].id})
            elif kind in THINKING:
                layout.append(_thinking_block(block))
        thinking = _without_tail(layout)
        is_refusal = reason == "refusal" and not calls
        return ModelResponse(
            text="".join(texts) or (refusal_note(self._stop_details) if is_refusal else ""),
            calls=tuple(calls),
            usage=self._total_usage(),
            stop_reason=reason,
            thinking=thinking,
            thinking_of=PROVIDER_TYPE if thinking else None,
        )

    def _call(self, block: dict[str, Any], reason: str, *, is_last: bool) -> ToolCall:
        """Return the call in a finished block. Arguments that cannot be read become an error for the model."""
        raw = "".join(block["pieces"]) or block.get("input")
        arguments, error = parse_arguments(raw, cut=CUT.get(reason, ""))
        error = error or missing_arguments(raw, reason, is_last=is_last)
        name = str(block["name"])
        call_id = self._ids.unique(str(block.get("id") or ""))
        return ToolCall(call_id, self._names.get(name, join_surrogates(name)), arguments, error)

    def _total_usage(self) -> Usage:
        """Return the usage of the answer.

        The API counts input that was read from the cache or written to it apart from other input. `prompt_tokens` is the sum of the
        three, as in the other formats, so that sizes and budgets mean the same for every provider.
        """
        count = self._usage.get
        read, written = count("cache_read_input_tokens", 0), count("cache_creation_input_tokens", 0)
        return Usage(count("input_tokens", 0) + read + written, count("output_tokens", 0), read, written)


def _text_of(block: dict[str, Any]) -> str:
    """Return the text of a block: what it began with, and its pieces."""
    return str(block.get("text", "")) + "".join(block["pieces"])


def _thinking_block(block: dict[str, Any]) -> Json:
    """Return a thinking block as the API wants it back."""
    if block["type"] == "thinking":
        block["thinking"] = join_surrogates(block.get("thinking", "") + "".join(block["pieces"]))
    return {key: value for key, value in block.items() if key != "pieces"}


def _without_tail(layout: list[Json]) -> tuple[Json, ...]:
    """Return the thinking blocks alone if they all come first; else the whole layout, so that their places are known."""
    places = [n for n, block in enumerate(layout) if _type_of(block) in THINKING]
    if places != list(range(len(places))):
        return tuple(layout)
    return tuple(layout[: len(places)])
