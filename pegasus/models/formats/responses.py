r"""OpenAI's Responses API (https://developers.openai.com/api/docs/guides/migrate-to-responses), for models that reason.

OpenAI's reasoning models take tools in Chat Completions only without reasoning; here they reason between the calls. The service could
keep the conversation itself. It does not: `store` is false, and the conversation goes along with every request, as in the other
formats. So a conversation can change its provider, survives one, and is compacted here.

Reasoning comes as items with a summary for people and the reasoning itself, encrypted (`include`). They go back unchanged and in their
places (`answer_blocks.py`): the service refuses a reasoning item whose following item is missing, and a call without its reasoning
answers worse.

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
from collections.abc import Mapping
from typing import Any, Final

import attrs

from pegasus.messages import Json
from pegasus.models.base import AssistantTurn, ModelRequest, ReasoningPiece, TextPiece, Usage, UserTurn
from pegasus.models.formats.answer_blocks import AnswerBlock, BlockAssembler, BlockTypes
from pegasus.models.formats.wire_format import WireAnswer, WireFormat, usage_of, wire_name
from pegasus.models.json_text import join_surrogates

ITEMS: Final = BlockTypes("message", "function_call", ("reasoning",))
_DELTAS: Final = tuple(
    f"response.{kind}.delta"
    for kind in ("output_text", "refusal", "function_call_arguments", "reasoning_summary_text", "reasoning_text")
)
"""Types of the events that extend an item."""
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
    """

    path = "/responses"
    """Path of a call, below the base URL."""

    def __init__(self, model: str, source: str = "responses") -> None:
        super().__init__(model)
        self.source = source

    def assembler(self, request: ModelRequest) -> ResponseAssembler:
        """Return an assembler for the answer to a request."""
        return ResponseAssembler(request, self.source)

    def head(self, request: ModelRequest) -> dict[str, Json]:
        """Return the request without the turns.

        `input` is empty here: the items of the turns are put into it from the encoded texts that are kept.
        """
        body: dict[str, Json] = {"model": self.model, "stream": True, "store": False}
        # Without it reasoning could not go back, since nothing is stored at the service.
        if "encrypted" not in self.left_out:
            body["include"] = [_ENCRYPTED]
        body["max_output_tokens"] = request.max_tokens
        # Left out where nothing is to be said about it.
        reasoning: dict[str, Json] = {}
        if request.options.effort and "effort" not in self.left_out:
            reasoning["effort"] = request.options.effort
        if "summary" not in self.left_out:
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
        """Return reasoning, text and calls of an answer."""
        calls: dict[str, Json] = {
            call.id: {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.json}
            for call in turn.calls
        }
        return ITEMS.restore(turn, calls, _message)

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
        is_about_reasoning = "reasoning" in refused and status in (400, 422)
        # From the most specific to the most general: a refusal of a summary also speaks of reasoning.
        return (
            (bool(is_about_items) and has_items and self.leave_out("thinking blocks"))
            or ("summar" in refused and self.leave_out("summary"))
            or (("encrypted" in refused or "include" in refused) and self.leave_out("encrypted"))
            or ("effort" in refused and bool(request.options.effort) and self.leave_out("effort"))
            or (is_about_reasoning and self.leave_out("effort") | self.leave_out("summary"))
        )


def _message(block: Mapping[str, Json]) -> dict[str, Json]:
    """Return a message of the assistant. Its phase (a comment between calls, or the answer) goes back with it."""
    message: dict[str, Json] = {"role": "assistant", "content": block["text"]}
    return {**message, "phase": block["phase"]} if block.get("phase") else message


# ------------------------------------------------------------------ answers


@attrs.define(eq=False, repr=False, slots=False)
class ResponseAssembler(BlockAssembler):
    """`AnswerAssembler` for the events of a response.

    What counts is the closed item; pieces are for those who watch, and for an answer that was cut off before the item was closed.
    """

    types = ITEMS
    _usage: Any = attrs.field(default=None, init=False)
    """The service's own usage object; None before the end."""

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
            self._extend(self.blocks[event["output_index"]], "\n\n")
        elif kind in _DELTAS:
            self.is_refusal = self.is_refusal or "refusal" in kind
            self._extend(self.blocks[event["output_index"]], event["delta"])
        return None

    def feed_whole(self, body: Any) -> object:
        """Take a response that was not streamed."""
        if "output" not in body:
            return body.get("error") or body
        return self._end(body)

    def _open(self, index: int, fields: Any) -> AnswerBlock:
        """Begin an item of the answer. Reasoning whose text is hidden shows at least that the model is at work."""
        item = self.blocks[index] = AnswerBlock(str(fields.get("type") or ""), fields)
        if item.kind == ITEMS.call:
            item.call = self.begin_call(name=fields["name"])
        elif item.kind in ITEMS.thinking:
            self.pieces.append(ReasoningPiece(""))
        return item

    def _extend(self, item: AnswerBlock, piece: str) -> None:
        """Take a piece of an item."""
        item.is_streamed = True
        if item.call is not None:
            self.add_arguments(item.call, piece)
            return
        item.pieces.append(piece)
        if item.kind in ITEMS.thinking:
            self.pieces.append(ReasoningPiece(piece))
        elif item.kind == ITEMS.text:
            self.pieces.append(TextPiece(piece))

    def _close(self, index: int, fields: Any) -> None:
        """End an item. What no piece has brought is streamed as one piece: some servers close an item without having streamed it."""
        item = self.blocks.get(index) or self._open(index, fields)
        item.fields = fields
        if item.kind == ITEMS.text:
            parts = fields.get("content") or ()
            self.is_refusal = self.is_refusal or any(part.get("type") == "refusal" for part in parts)
        whole = str(fields.get("arguments") or "") if item.call is not None else self.content(item)
        if whole and not item.is_streamed:
            self._extend(item, whole)
        if item.call is not None:
            item.call.id, item.call.name = str(fields.get("call_id") or ""), str(fields["name"])
            item.call.pieces = [whole] if whole else item.call.pieces

    def _end(self, response: Any) -> object:
        """Take the finished response. Return its error if it failed.

        "incomplete" is no error: the answer was cut off by its length or a filter, which the stop reason says.
        """
        self._usage = response.get("usage") or self._usage
        if response.get("status") == "failed" or response.get("error"):
            return response.get("error") or {"code": "server_error", "message": "the response failed"}
        # A response that was not streamed has its items only here.
        for index, fields in enumerate(response.get("output") or ()):
            if index not in self.blocks:
                self._close(index, fields)
        details = response.get("incomplete_details") or {}
        self.stop = str(details.get("reason") or response.get("status") or "")
        self.complete = True
        return None

    def content(self, block: AnswerBlock) -> str:
        """Return the text or the reasoning of an item: what the closed item says, else its pieces."""
        fields = block.fields
        if block.kind == ITEMS.text:
            whole = "".join(str(part.get("text") or part.get("refusal") or "") for part in fields.get("content") or ())
        else:
            parts = fields.get("summary") or fields.get("content") or ()
            whole = "\n\n".join(str(part.get("text") or "") for part in parts)
        return whole or "".join(block.pieces)

    def record(self, block: AnswerBlock) -> dict[str, Json] | None:
        """Return a text with its phase, or reasoning that the service takes back."""
        fields = block.fields
        if block.kind in ITEMS.thinking:
            keys = ("type", "id", "summary", "encrypted_content")
            return {key: fields.get(key) for key in keys} if fields.get("encrypted_content") else None
        text, phase = join_surrogates(self.content(block)), fields.get("phase")
        return {"type": block.kind, "text": text, **({"phase": phase} if phase else {})} if text else None

    def total_usage(self) -> Usage:
        """Return the usage of the answer. Reasoning is part of the output."""
        return usage_of(self._usage, "input_tokens", "output_tokens")
