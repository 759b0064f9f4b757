r"""OpenAI's Chat Completions (https://developers.openai.com/api/reference/resources/chat), for OpenAI, Gemini, Ollama and others.

Many servers speak this format, and few speak it completely: they leave out usage, indices or ids of tool calls, send arguments as
objects, or refuse parameters. What they do differently is handled in this file and nowhere else. Two principles:

* Requests start with what the service is known to take, and `adapt` learns from refusals that name a parameter. `chat_dialects.py` has
  the few services that want reasoning back in a way of their own.
* Answers are read leniently, by `chat_assembler.py`.

A request looks like this. Every tool result is a message of its own, and arguments of calls are JSON inside a string:

    {"model": "gpt-6.1-terra", "stream": true, "max_completion_tokens": 8192, "stream_options": {"include_usage": true},
     "tools": [{"type": "function", "function": {"name": "reply", "description": "…", "parameters": {…}}}],
     "messages": [
       {"role": "system", "content": "…"},
       {"role": "user", "content": "What time is it?"},
       {"role": "assistant", "content": null, "tool_calls": [
         {"id": "call_1", "type": "function", "function": {"name": "current_time", "arguments": "{}"}}]},
       {"role": "tool", "tool_call_id": "call_1", "content": "12:00"}]}

The answer is a stream of chunks, each with a piece of the text or of a tool call. The usage comes in a last chunk without choices:

    data: {"choices": [{"index": 0, "delta": {"content": "It is "}}]}
    data: {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "id": "call_2", "function": {"name": "reply"}}]}}]}
    data: {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"arguments": "{\"te"}}]}}]}
    data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    data: {"choices": [], "usage": {"prompt_tokens": 120, "completion_tokens": 9}}
    data: [DONE]
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import attrs

from pegasus.messages import Json, Metadata
from pegasus.models.base import AssistantTurn, ModelRequest, Turn, UserTurn
from pegasus.models.formats.chat_assembler import ChatAssembler
from pegasus.models.formats.chat_dialects import OPENAI, ChatDialect, short_id
from pegasus.models.formats.wire_format import WireFormat, encode_json, function_tool, wire_name

_UNSIGNED: Final[Json] = {"google": {"thought_signature": "skip_thought_signature_validator"}}
"""Signature that Gemini 3 and later accept on a call of another model (https://ai.google.dev/gemini-api/docs/thought-signatures)."""


class ChatWire(WireFormat):
    """`WireFormat` of Chat Completions, for one model of one server.

    Example: `ChatWire("qwen3:8b").body(request)` is the JSON body for a POST to `<base URL>/chat/completions`.

    dialect: what is peculiar to the service. is_own: OpenAI itself, not a server that only speaks its format.

    It learns more from refusals than others: the name of the length limit, whether usage can be asked for, whether effort can be set,
    whether tools need `reasoning_effort = "none"`, and whether reasoning must be sent back.
    """

    path = "/chat/completions"
    """Path of a call, below the base URL. This format has no way to count tokens exactly."""

    def __init__(self, model: str, dialect: ChatDialect = OPENAI, *, is_own: bool = False) -> None:
        super().__init__(model)
        self._dialect = dialect
        if dialect.has_short_ids:
            self.id_of = short_id
        # OpenAI's newer models refuse max_tokens; many other servers know nothing else.
        self._limit_name = "max_completion_tokens" if is_own else "max_tokens"
        self._refused_limit_name = ""
        """Name that was refused before the current one. It is not tried again: a server that refuses both has another problem."""
        self._asks_for_usage = True
        """False for servers that refuse `stream_options`. Their calls are counted by an estimate."""
        self._needs_answer_to_results = dialect.needs_answer_to_results
        """True for servers that want a message of the assistant between results and a message of the user."""
        self._takes_effort = True
        """False for models that refuse to be told how much to think."""
        self._needs_no_reasoning = False
        """True for models that take tools only with `reasoning_effort` "none"."""

    def head(self, request: ModelRequest) -> dict[str, Json]:
        """Return the request without the turns."""
        body: dict[str, Json] = {"model": self.model, "stream": True, self._limit_name: request.max_tokens}
        effort = self._effort(request)
        if self._asks_for_usage:
            body["stream_options"] = {"include_usage": True}
        if request.tools:
            body["tools"] = [function_tool(spec) for spec in request.tools]
            choice = request.tool_choice
            if choice in ("none", "required"):
                body["tool_choice"] = choice
            elif choice != "auto":
                body["tool_choice"] = {"type": "function", "function": {"name": wire_name(choice)}}
        if effort:
            body |= (
                {"reasoning": {"effort": effort}} if self._dialect.has_reasoning_field else {"reasoning_effort": effort}
            )
        body["messages"] = [{"role": "system", "content": request.system}] if request.system.strip() else []
        return body

    def _effort(self, request: ModelRequest) -> str:
        """Return the effort to ask for, "" to leave it to the server."""
        if request.tools and self._needs_no_reasoning:
            return "none"
        return request.options.effort if self._takes_effort else ""

    def user_messages(self, turn: UserTurn) -> list[Json]:
        """Return the results, each as a message of its own, then one message with pictures and text."""
        messages: list[Json] = [
            {"role": "tool", "tool_call_id": result.call_id, "content": result.content} for result in turn.results
        ]
        if messages and self._needs_answer_to_results and (turn.images or turn.text):
            messages.append({"role": "assistant", "content": "(noted)"})
        if turn.images:
            urls = (f"data:{image.mime};base64,{image.data}" for image in turn.images)
            parts: list[Json] = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
            if turn.text:
                parts.append({"type": "text", "text": turn.text})
            messages.append({"role": "user", "content": parts})
        elif turn.text or not messages:
            messages.append({"role": "user", "content": turn.text or "(empty message)"})
        return messages

    def assistant_messages(self, turn: AssistantTurn) -> list[Json]:
        """Return one message. Most servers reject an empty one, so a note stands for silence.

        Gemini wants its thought signature back, and a signature at least on the first call of a turn. `thinking` holds what came
        as `extra_content` beside a call, and the reasoning of services that want it back; a turn of another provider has none.
        """
        text = turn.text if turn.text.strip() else ""
        blocks = [block for block in turn.thinking if isinstance(block, Mapping)]
        blocks = blocks if turn.thinking_of == self._dialect.name else []
        message: dict[str, Json] = {"role": "assistant", "content": text or (None if turn.calls else "(silence)")}
        self._add_reasoning(message, blocks, has_calls=bool(turn.calls))
        if not turn.calls:
            return [message]
        extras = {block["id"]: block["extra_content"] for block in blocks if "extra_content" in block}
        if self._dialect.signs_calls and not extras:
            extras = {turn.calls[0].id: _UNSIGNED}
        calls: list[Json] = []
        for call in turn.calls:
            function: Json = {"name": call.name, "arguments": encode_json(call.arguments).decode()}
            wire: Metadata = {"id": call.id, "type": "function", "function": function}
            extra = extras.get(call.id)
            calls.append({**wire, "extra_content": extra} if extra else wire)
        return [{**message, "tool_calls": calls}]

    def _add_reasoning(self, message: dict[str, Json], blocks: list[Mapping[str, Json]], *, has_calls: bool) -> None:
        """Put the reasoning of a turn into its message, in the way of the service.

        DeepSeek refuses a message with calls that has no reasoning at all, so an empty one stands for that of another provider.
        """
        kind = self._dialect.wants_back
        kept = next((block[kind] for block in blocks if block.get("type") == kind and kind in block), None)
        if kind == "reasoning_content" and (kept is not None or has_calls):
            message[kind] = kept or ""
        elif kind == "reasoning_details" and kept is not None:
            message[kind] = kept
        elif kind == "thinking" and kept is not None:
            parts: list[Json] = [{"type": "thinking", "thinking": kept, "closed": True}]
            if isinstance(message["content"], str):
                parts.append({"type": "text", "text": message["content"]})
            message["content"] = parts

    def assembler(self, request: ModelRequest) -> ChatAssembler:
        """Return an assembler for the answer to this request."""
        return ChatAssembler(request, self._dialect)

    def learn(self, status: int, body: object, message: str, request: ModelRequest) -> bool:
        """Change one parameter that the refusal names. Return False if there is nothing left to change.

        Many servers put the parameter into `param`, others only into the message. So both are searched for the names that this format
        could change. Refusals with other statuses are not about the request.
        """
        if status not in (400, 422):
            return False
        fields = body if isinstance(body, Mapping) else {}
        refused = set(re.findall(r"\w+", f"{fields.get('param')} {fields.get('detail')} {message}"))
        other = "max_tokens" if self._limit_name == "max_completion_tokens" else "max_completion_tokens"
        effort = self._effort(request)
        if "reasoning_content" in refused and self._dialect.wants_back != "reasoning_content":
            self._dialect = attrs.evolve(self._dialect, wants_back="reasoning_content")
        elif refused & {"reasoning_effort", "reasoning"} and effort not in ("", "none"):
            self._takes_effort = False
        elif "reasoning_effort" in refused and request.tools and not effort:
            # gpt-5.6 and later take function tools in this API only with reasoning_effort "none".
            self._needs_no_reasoning = True
        elif "role" in refused and "tool" in refused and not self._needs_answer_to_results and _has_both(request.turns):
            self._needs_answer_to_results = True
        elif self._limit_name in refused and other != self._refused_limit_name:
            self._refused_limit_name, self._limit_name = self._limit_name, other
        elif "stream_options" in refused and self._asks_for_usage:
            self._asks_for_usage = False
        else:
            return False
        return True


def _has_both(turns: tuple[Turn, ...]) -> bool:
    """Return True if a turn has results and a message of the user."""
    return any(isinstance(turn, UserTurn) and turn.results and (turn.text or turn.images) for turn in turns)
