r"""OpenAI's Responses API (https://developers.openai.com/api/docs/guides/migrate-to-responses), for models that reason.

OpenAI's reasoning models take tools in Chat Completions only without reasoning; here they reason between the calls. The service could
keep the conversation itself. It does not: `store` is false, and the conversation goes along with every request, as in the other
formats. So a conversation can change its provider, survives one, and is compacted here.

Reasoning comes as items with a summary for people and the reasoning itself, encrypted (`include`). They go back unchanged and in their
places: the service refuses a reasoning item whose following item is missing, and a call without its reasoning answers worse.
`AssistantTurn.thinking` holds them. Where text or calls stood between them, it also records these places, as in `anthropic.py`.

A request looks like this. The turns are a flat list of items:

    {"model": "gpt-6.1-terra", "stream": true, "store": false, "include": ["reasoning.encrypted_content"], "max_output_tokens": 16384,
     "reasoning": {"effort": "medium", "summary": "auto"}, "instructions": "…",
     "tools": [{"type": "function", "name": "reply", "description": "…", "parameters": {…}, "strict": false}],
     "input": [
       {"role": "user", "content": [{"type": "input_text", "text": "What time is it?"}]},
       {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA…"},
       {"type": "function_call", "call_id": "call_1", "name": "current_time", "arguments": "{}"},
       {"type": "function_call_output", "call_id": "call_1", "output": "12:00"}]}

The answer is a stream of events. Items are opened, extended and closed; the last event has the usage:

    {"type": "response.output_item.added", "output_index": 0, "item": {"type": "reasoning", "id": "rs_2", "summary": []}}
    {"type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": 0, "delta": "The user"}
    {"type": "response.output_item.done", "output_index": 0, "item": {"type": "reasoning", "id": "rs_2", "encrypted_content": "gAAA…"}}
    {"type": "response.output_text.delta", "output_index": 1, "delta": "It is "}
    {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": "{\"te"}
    {"type": "response.completed", "response": {"status": "completed", "usage": {"input_tokens": 120, "output_tokens": 90}}}
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import attrs

from pegasus.messages import Json, Metadata
from pegasus.models.base import (
    AssistantTurn,
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
from pegasus.models.formats.wire_format import (
    AnswerAssembler,
    StreamedCall,
    WireAnswer,
    WireFormat,
    recorded_blocks,
    token_count,
    wire_name,
)
from pegasus.models.json_text import join_surrogates

_ENCRYPTED: Final = "reasoning.encrypted_content"
"""Field of reasoning items that the service leaves out unless it is asked for."""
_REASONING_MODELS: Final = r"(?:.*[/.])?(?:gpt-(?:[5-9]|\d\d)|o\d)"
"""Models of OpenAI's that reason, with or without a maker's name before them (https://developers.openai.com/api/docs/models)."""


def is_reasoning_model(model: str) -> bool:
    """Return True for a model of OpenAI's that reasons. Those for chats (`gpt-5-chat-latest`) do not."""
    return bool(re.match(_REASONING_MODELS, model)) and "-chat" not in model


class ResponsesWire(WireFormat):
    """`WireFormat` of the Responses API.

    source: value of `thinking_of`; encrypted reasoning of one service is worthless to another.

    It learns from refusals to leave out what a model or an account does not take: the effort, the summary (some accounts are not
    verified for it), the encrypted reasoning, and reasoning items that this account cannot decrypt.

    Example: `ResponsesWire("gpt-6.1-terra").body(request)` is the JSON body for a POST to `<base URL>/responses`.
    """

    path = "/responses"
    """Path of a call, below the base URL."""

    def __init__(self, model: str, source: str = "responses") -> None:
        super().__init__(model)
        self.source = source
        self.assembler = partial(ResponseAssembler, source=source)
        self._takes_effort = True
        self._takes_summary = True
        self._takes_encrypted = True

    def head(self, request: ModelRequest) -> dict[str, Json]:
        """Return the request without the turns.

        `input` is empty here: the items of the turns are put into it from the encoded texts that are kept.
        """
        body: dict[str, Json] = {"model": self.model, "stream": True, "store": False}
        # Without it reasoning could not go back, since nothing is stored at the service.
        if self._takes_encrypted:
            body["include"] = [_ENCRYPTED]
        body["max_output_tokens"] = request.max_tokens
        # Left out where nothing is to be said about it.
        reasoning: dict[str, Json] = {}
        if request.options.effort and self._takes_effort:
            reasoning["effort"] = request.options.effort
        if self._takes_summary:
            reasoning["summary"] = "auto"
        if reasoning:
            body["reasoning"] = reasoning
        if request.system.strip():
            body["instructions"] = request.system
        if request.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "name": spec.name,
                    "description": spec.description,
                    "parameters": spec.parameters,
                    # Strict schemas forbid optional arguments, which many tools have.
                    "strict": False,
                }
                for spec in request.tools
            ]
            # "auto" is what the service does by itself.
            choice = request.tool_choice
            if choice in ("none", "required"):
                body["tool_choice"] = choice
            elif choice != "auto":
                body["tool_choice"] = {"type": "function", "name": wire_name(choice)}
        return {**body, "input": []}

    def user_messages(self, turn: UserTurn) -> list[Json]:
        """Return the results, each as an item of its own, then one message with pictures and text."""
        items: list[Json] = [
            {"type": "function_call_output", "call_id": result.call_id, "output": result.content}
            for result in turn.results
        ]
        parts: list[Json] = [
            {"type": "input_image", "detail": "auto", "image_url": f"data:{image.mime};base64,{image.data}"}
            for image in turn.images
        ]
        # A message of the user must not be empty; results alone need none.
        if turn.text or not (items or parts):
            parts.append({"type": "input_text", "text": turn.text or "(empty message)"})
        return [*items, {"role": "user", "content": parts}] if parts else items

    def assistant_messages(self, turn: WireAnswer) -> list[Json]:
        """Return reasoning, text and calls of an answer; in the model's own order if that was recorded and fits the turn."""
        # Empty where no layout was recorded, or where the turn was changed since, by a compaction for example.
        layout = recorded_blocks(turn, "message", "function_call", ("reasoning",))
        calls: dict[object, Metadata] = {
            call.id: {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.json}
            for call in turn.calls
        }
        items: list[Json] = []
        for block in layout:
            kind = block.get("type")
            items.append(
                calls.pop(block["id"]) if kind == "function_call" else _message(block) if kind == "message" else block
            )
        if turn.text.strip() and not any(block.get("type") == "message" for block in layout):
            items.append(_message({"text": turn.text}))
        # Calls that the layout does not name come last.
        items += calls.values()
        # The service refuses reasoning without an item behind it.
        if not items or (isinstance(items[-1], Mapping) and items[-1].get("type") == "reasoning"):
            items.append(_message({"text": "(silence)"}))
        return items

    def learn(self, status: int, body: object, message: str, request: ModelRequest) -> bool:
        """Leave out one thing that the refusal names. Return False if there is nothing left to leave out.

        One thing at a time, so that no option is lost that the service would have taken. What was learned holds
        for all later calls of the model.
        """
        if status not in (400, 403, 404, 422):
            return False
        error = body.get("error", body) if isinstance(body, Mapping) else None
        fields = error if isinstance(error, Mapping) else {}
        refused = f"{fields.get('param')} {fields.get('code')} {message}".lower()
        has_items = any(isinstance(turn, AssistantTurn) and turn.thinking_of == self.source for turn in request.turns)
        is_about_items = re.search(
            r"invalid_encrypted_content|could not be (?:verified|decrypted)|\brs_|of type 'reasoning'", refused
        )
        # From the most specific to the most general: a refusal of a summary also speaks of reasoning.
        if is_about_items and has_items and self.sends_thinking:
            self.sends_thinking = False
        elif "summar" in refused and self._takes_summary:
            self._takes_summary = False
        elif ("encrypted" in refused or "include" in refused) and self._takes_encrypted:
            self._takes_encrypted = False
        elif "effort" in refused and request.options.effort and self._takes_effort:
            self._takes_effort = False
        elif "reasoning" in refused and status in (400, 422) and (self._takes_effort or self._takes_summary):
            self._takes_effort = self._takes_summary = False
        else:
            return False
        return True


def _message(block: Mapping[str, Json]) -> dict[str, Json]:
    """Return a message of the assistant. Its phase (a comment between calls, or the answer) goes back with it."""
    message: dict[str, Json] = {"role": "assistant", "content": block["text"]}
    return {**message, "phase": block["phase"]} if block.get("phase") else message


# ------------------------------------------------------------------ answers


@attrs.define(eq=False, repr=False)
class _StreamedItem:
    """An item of the answer while its pieces arrive.

    Pieces are kept beside the fields, since an answer that is cut off has no closed item.
    """

    kind: str = ""
    """"message", "function_call", "reasoning", or a kind that is ignored."""
    number: int = -1
    """Number of a call in the answer."""
    pieces: list[str] = attrs.field(factory=list)
    """Pieces that were streamed: text, arguments or reasoning."""
    fields: dict[str, Any] = attrs.field(factory=dict)
    """The item itself, once it is closed; before, as it was opened."""


@attrs.define(eq=False, repr=False, slots=False)
class ResponseAssembler(AnswerAssembler):
    """`AnswerAssembler` for the events of a response.

    What counts is the closed item; pieces are for those who watch, and for an answer that was cut off before the item was closed.

    Example: `ResponsesWire(model).assembler(request)` makes one. `feed` takes an event and returns None, or the
    error in it.
    """

    _source: str
    """As `ResponsesWire.source`."""
    _items: dict[int, _StreamedItem] = attrs.field(factory=dict, init=False)
    """Items by their place in the answer."""
    _calls: int = attrs.field(default=0, init=False)
    """Number of calls that have begun."""
    _usage: Any = attrs.field(default=None, init=False)
    """The service's own usage object; None before the end."""
    _stop: str = attrs.field(default="", init=False)
    """The status of the response, or why it is incomplete."""
    _is_refusal: bool = attrs.field(default=False, init=False)
    """True if the text came as a refusal."""

    def feed(self, event: Any) -> object:
        """Take one event. Return the error object if the event is an error, else None."""
        kind = str(event.get("type") or "")
        # Proxies send errors in forms of their own, without a type.
        if kind == "error" or (not kind and event.get("error")):
            return event.get("error") or event
        if kind in ("response.completed", "response.incomplete", "response.failed"):
            return self._end(event["response"])
        if kind == "response.output_item.added":
            self._open(event["output_index"], event["item"])
        elif kind == "response.output_item.done":
            self._close(event["output_index"], event["item"])
        elif kind == "response.reasoning_summary_part.added" and event.get("summary_index"):
            self._extend(event["output_index"], "\n\n")
        elif kind in (
            "response.output_text.delta",
            "response.refusal.delta",
            "response.function_call_arguments.delta",
            "response.reasoning_summary_text.delta",
            "response.reasoning_text.delta",
        ):
            self._is_refusal = self._is_refusal or "refusal" in kind
            self._extend(event["output_index"], event["delta"])
        return None

    def feed_whole(self, body: Any) -> object:
        """Take a response that was not streamed."""
        if "output" not in body:
            return body.get("error") or body
        return self._end(body)

    def _open(self, index: int, fields: Any) -> _StreamedItem:
        """Begin an item of the answer. Reasoning whose text is hidden shows at least that the model is at work."""
        item = self._items[index] = _StreamedItem(str(fields.get("type") or ""), fields=fields)
        if item.kind == "function_call":
            item.number = self._calls
            self._calls += 1
            name = str(fields["name"])
            self.pieces.append(CallBegun(item.number, self.names.get(name, name)))
        elif item.kind == "reasoning":
            self.pieces.append(ReasoningPiece(""))
        return item

    def _extend(self, index: int, piece: str) -> None:
        """Take a piece of an item."""
        item = self._items[index]
        item.pieces.append(piece)
        if item.kind == "function_call":
            self.pieces.append(CallPiece(item.number, piece))
        elif item.kind == "reasoning":
            self.pieces.append(ReasoningPiece(piece))
        elif item.kind == "message":
            self.pieces.append(TextPiece(piece))

    def _close(self, index: int, fields: Any) -> None:
        """End an item. What no piece has brought is streamed as one piece."""
        item = self._items.get(index) or self._open(index, fields)
        item.fields = fields
        if item.kind == "message":
            parts = fields.get("content") or ()
            self._is_refusal = self._is_refusal or any(part.get("type") == "refusal" for part in parts)
        # Some servers close an item without having streamed it.
        whole = _content(item)
        if whole and not item.pieces:
            self._extend(index, whole)

    def _end(self, response: Any) -> object:
        """Take the finished response. Return its error if it failed.

        "incomplete" is no error: the answer was cut off by its length or a filter, which the stop reason says.
        """
        self._usage = response.get("usage") or self._usage
        if response.get("status") == "failed" or response.get("error"):
            return response.get("error") or {"code": "server_error", "message": "the response failed"}
        # A response that was not streamed has its items only here.
        for index, fields in enumerate(response.get("output") or ()):
            if index not in self._items:
                self._close(index, fields)
        details = response.get("incomplete_details") or {}
        self._stop = str(details.get("reason") or response.get("status") or "")
        self.complete = True
        return None

    def response(self) -> ModelResponse:
        """Return the answer. Only valid when `complete`.

        Calls, texts and reasoning are gathered in the order of the items. That order is kept in `thinking`
        where the fields of a turn cannot say it.
        """
        items = [item for _, item in sorted(self._items.items())]
        streamed = [
            StreamedCall(
                str(item.fields.get("call_id") or ""),
                str(item.fields["name"]),
                _content(item),
                is_last=item is items[-1],
            )
            for item in items
            if item.kind == "function_call"
        ]
        # A call that came last may be cut off if the answer was ended by its length.
        calls, reason = self.finish_calls(streamed, "refusal" if self._is_refusal and not streamed else self._stop)
        layout = _layout_of(items, calls)
        # Where all reasoning came first and no message has a phase, the order needs no record: reasoning, text,
        # calls is what `assistant_messages` makes anyway.
        reasoning = [block for block in layout if block["type"] == "reasoning"]
        has_phase = any("phase" in block for block in layout)
        kept = tuple[Json, ...](reasoning if layout[: len(reasoning)] == reasoning and not has_phase else layout)
        return ModelResponse(
            text="".join(str(block["text"]) for block in layout if block["type"] == "message"),
            calls=calls,
            usage=_usage(self._usage),
            stop_reason=reason,
            thinking=kept,
            thinking_of=self._source if kept else None,
            reasoning=join_surrogates(
                "\n\n".join(filter(None, map(_content, (i for i in items if i.kind == "reasoning"))))
            ),
        )


def _layout_of(items: Sequence[_StreamedItem], calls: Sequence[ToolCall]) -> list[dict[str, Json]]:
    """Return the items as they are recorded: texts, calls by their ids, and reasoning that the service takes back."""
    ids = iter(calls)
    layout: list[dict[str, Json]] = []
    for item in items:
        if item.kind == "message" and (text := join_surrogates(_content(item))):
            phase = item.fields.get("phase")
            layout.append({"type": "message", "text": text, **({"phase": phase} if phase else {})})
        elif item.kind == "function_call":
            layout.append({"type": "function_call", "id": next(ids).id})
        elif item.kind == "reasoning" and item.fields.get("encrypted_content"):
            layout.append({key: item.fields.get(key) for key in ("type", "id", "summary", "encrypted_content")})
    return layout


def _content(item: _StreamedItem) -> str:
    """Return the text, the arguments or the reasoning of an item: what the closed item says, else its pieces."""
    fields = item.fields
    whole = ""
    if item.kind == "message":
        whole = "".join(str(part.get("text") or part.get("refusal") or "") for part in fields.get("content") or ())
    elif item.kind == "function_call":
        whole = str(fields.get("arguments") or "")
    elif item.kind == "reasoning":
        parts = fields.get("summary") or fields.get("content") or ()
        whole = "\n\n".join(str(part.get("text") or "") for part in parts)
    return whole or "".join(item.pieces)


def _usage(usage: Any) -> Usage:
    """Return the usage with missing numbers as 0. Cached tokens are part of the input, reasoning of the output."""
    if not isinstance(usage, Mapping):
        return Usage()
    details = usage.get("input_tokens_details") or {}
    return Usage(
        token_count(usage.get("input_tokens")),
        token_count(usage.get("output_tokens")),
        token_count(details.get("cached_tokens")),
        token_count(details.get("cache_write_tokens")),
    )
