r"""OpenAI's Chat Completions (https://developers.openai.com/api/reference/resources/chat), for OpenAI, Gemini, Ollama and others.

Many servers speak this format, and few speak it completely: they leave out usage, indices or ids of tool calls, send arguments as
objects, or refuse parameters. What they do differently is handled in this file and nowhere else. Two principles:

* Requests start with what the service is known to take, and `adapt` learns from refusals that name a parameter. `chat_dialects.py` has
  the few services that want reasoning back in a way of their own.
* Answers are read leniently: a missing field is normal, a wrong type is an error of the protocol (see `AnswerAssembler`).

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

Reasoning has no place in the format, so each service has made its own:

    {"delta": {"reasoning_content": "Let me see"}}           DeepSeek, Moonshot, xAI, llama.cpp, older vLLM
    {"delta": {"reasoning": "Let me see"}}                   vLLM, Groq, Ollama, OpenRouter
    {"delta": {"reasoning_details": [{"type": "reasoning.text", "text": "Let me see", "index": 0}]}}    OpenRouter, beside "reasoning"
    {"delta": {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Let me see"}]}]}}    Mistral

All of them are read from every server. What a service wants back is kept in `ModelResponse.thinking`, see `chat_dialects.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from pegasus.messages import Json, Metadata
from pegasus.models.base import ModelRequest, ModelResponse, ToolCall, ToolSpec, Turn, Usage, UserTurn
from pegasus.models.formats.chat_dialects import OPENAI, ChatDialect, extend_details, short_id
from pegasus.models.formats.wire_format import (
    AnswerAssembler,
    StreamedCall,
    WireAnswer,
    WireFormat,
    encode_json,
    usage_of,
    wire_name,
)
from pegasus.models.json_text import join_surrogates

_UNSIGNED: Final[Json] = {"google": {"thought_signature": "skip_thought_signature_validator"}}
"""Signature that Gemini 3 and later accept on a call of another model (https://ai.google.dev/gemini-api/docs/thought-signatures)."""
_REASONING_WITH_TOOLS: Final = "reasoning with tools"
"""Left out for models that take tools only with `reasoning_effort` "none", as gpt-5.6 and later do in this API."""
_USER_BEHIND_RESULTS: Final = "user behind results"
"""Left out for servers that want a message of the assistant between results and a message of the user."""


class ChatWire(WireFormat):
    """`WireFormat` of Chat Completions, for one model of one server.

    dialect: what is peculiar to the service. is_own: OpenAI itself, not a server that only speaks its format.

    It learns more from refusals than others: the name of the length limit, whether usage can be asked for, whether effort can be set,
    whether tools need `reasoning_effort = "none"`, and whether reasoning must be sent back.
    """

    path = "/chat/completions"
    """Path of a call, below the base URL. This format has no way to count tokens exactly."""

    def __init__(self, model: str, dialect: ChatDialect = OPENAI, *, is_own: bool = False) -> None:
        super().__init__(model)
        self.source = dialect.name
        self._dialect = dialect
        if dialect.has_short_ids:
            self.id_of = short_id
        # OpenAI's newer models refuse max_tokens; many other servers know nothing else. The second one is taken when the first is
        # refused. A server that refuses both has another problem.
        names = ("max_tokens", "max_completion_tokens")
        self._limit_names = names[::-1] if is_own else names
        if dialect.needs_answer_to_results:
            self.leave_out(_USER_BEHIND_RESULTS)

    def assembler(self, request: ModelRequest) -> ChatAssembler:
        """Return an assembler for the answer to a request."""
        return ChatAssembler(request, self.source, self._dialect)

    def head(self, request: ModelRequest) -> dict[str, Json]:
        """Return the request without the turns."""
        limit = self._limit_names[self._limit_names[0] in self.left_out]
        body: dict[str, Json] = {"model": self.model, "stream": True, limit: request.max_tokens}
        effort = self._effort(request)
        if "stream_options" not in self.left_out:
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
        if request.tools and _REASONING_WITH_TOOLS in self.left_out:
            return "none"
        return "" if "effort" in self.left_out else request.options.effort

    def user_messages(self, turn: UserTurn) -> list[Json]:
        """Return the results, each as a message of its own, then one message with pictures and text."""
        messages: list[Json] = [
            {"role": "tool", "tool_call_id": result.call_id, "content": result.content} for result in turn.results
        ]
        if messages and _USER_BEHIND_RESULTS in self.left_out and (turn.images or turn.text):
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

    def assistant_messages(self, turn: WireAnswer) -> list[Json]:
        """Return one message. Most servers reject an empty one, so a note stands for silence.

        Gemini wants its thought signature back, and a signature at least on the first call of a turn. `thinking` holds what came
        as `extra_content` beside a call, and the reasoning of services that want it back; a turn of another provider has none.
        """
        text = turn.text if turn.text.strip() else ""
        message: dict[str, Json] = {"role": "assistant", "content": text or (None if turn.calls else "(silence)")}
        if self._dialect.wants_back:
            self._dialect.add_reasoning(message, turn)
        if not turn.calls:
            return [message]
        extras = {block["id"]: block["extra_content"] for block in turn.thinking if "extra_content" in block}
        if self._dialect.signs_calls and not extras:
            extras = {turn.calls[0].id: _UNSIGNED}
        calls: list[Json] = []
        for call in turn.calls:
            function: Json = {"name": call.name, "arguments": call.json}
            wire: Metadata = {"id": call.id, "type": "function", "function": function}
            extra = extras.get(call.id)
            calls.append({**wire, "extra_content": extra} if extra else wire)
        return [{**message, "tool_calls": calls}]

    def learn(self, status: int, body: object, message: str, request: ModelRequest) -> bool:
        """Change one parameter that the refusal names. Return False if there is nothing left to change.

        Many servers put the parameter into `param`, others only into the message. So both are searched for the names that this format
        could change. Refusals with other statuses are not about the request.
        """
        if status not in (400, 422):
            return False
        fields = body if isinstance(body, Mapping) else {}
        refused = set(re.findall(r"\w+", f"{fields.get('param')} {fields.get('detail')} {message}"))
        effort = self._effort(request)
        if "reasoning_content" in refused and self._dialect.wants_back != "reasoning_content":
            self._dialect = attrs.evolve(self._dialect, wants_back="reasoning_content")
            return True
        is_about_effort = bool(refused & {"reasoning_effort", "reasoning"}) and effort not in ("", "none")
        is_about_tools = "reasoning_effort" in refused and bool(request.tools) and not effort
        is_about_order = {"role", "tool"} <= refused and _has_both(request.turns)
        return (
            (is_about_effort and self.leave_out("effort"))
            or (is_about_tools and self.leave_out(_REASONING_WITH_TOOLS))
            or (is_about_order and self.leave_out(_USER_BEHIND_RESULTS))
            or (self._limit_names[0] in refused and self.leave_out(self._limit_names[0]))
            or ("stream_options" in refused and self.leave_out("stream_options"))
        )


def _has_both(turns: tuple[Turn, ...]) -> bool:
    """Return True if a turn has results and a message of the user."""
    return any(isinstance(turn, UserTurn) and turn.results and (turn.text or turn.images) for turn in turns)


def function_tool(spec: ToolSpec) -> Json:
    """Return the declaration of a tool in this format."""
    function: Json = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
    return {"type": "function", "function": function}


# ------------------------------------------------------------------ answers


@attrs.define(eq=False, repr=False, slots=False)
class ChatAssembler(AnswerAssembler):
    """`AnswerAssembler` for chat completion chunks."""

    _dialect: ChatDialect
    """Says what of the reasoning must go back to the service."""
    _details: list[dict[str, Any]] = attrs.field(factory=list, init=False)
    """OpenRouter's blocks of reasoning, see `extend_details`."""
    _call_by_index: dict[int, StreamedCall] = attrs.field(factory=dict, init=False)
    """The call that a piece with this index belongs to: the last one that began with it."""
    _has_deltas: bool = attrs.field(default=False, init=False)
    """A piece has come as a delta, so that a message is whole."""
    _usage: Any = attrs.field(default=None, init=False)
    """The server's own usage object, the last one that came; None for servers that send none."""

    def feed(self, event: Any) -> object:
        """Take one chunk. Return the error object if the chunk is an error, else None."""
        if event.get("error"):
            return event["error"]
        if event.get("object") == "error":
            return event
        if "choices" not in event and event.get("code") and isinstance(event.get("message"), str):
            return event  # DashScope's own form of an error in the middle of a stream
        self._usage = event.get("usage") or self._usage
        for choice in event.get("choices") or ():
            if choice.get("index", 0) in (0, None):
                self._take_choice(choice)
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
        self.complete = self.complete or bool(self.texts or self.calls)

    def _take_choice(self, choice: Any) -> None:
        """Take the first choice of a chunk. Only one answer was asked for, other choices are ignored.

        A delta adds to the answer. A message is the answer so far: it replaces what came before.
        """
        if delta := choice.get("delta"):
            self._has_deltas = True
            self._extend(delta)
        elif message := choice.get("message"):
            self._replace(message)
        if choice.get("finish_reason"):
            self.stop = str(choice["finish_reason"])
            self.complete = True

    def _replace(self, message: Any) -> None:
        """Take a message in place of what came before, part by part: one that lacks the calls or the text leaves them as they are.

        A server that has sent no delta may send its pieces as messages. They add, unless one begins with all the text before it.
        """
        content, so_far = message.get("content"), "".join(self.texts)
        is_whole = self._has_deltas or (isinstance(content, str) and content.startswith(so_far))
        calls, text, thoughts = (
            message.get("tool_calls") or message.get("function_call"),
            so_far,
            "".join(self.thoughts),
        )
        if not is_whole or not (self.texts or self.calls or self.thoughts):
            self._extend(message)
            return
        kept = [] if calls else self.calls
        self.retract()
        self._call_by_index.clear()
        self._extend(message)
        if thoughts and not self.thoughts:
            self.add_reasoning(thoughts)
        if text and not self.texts:
            self.add_text(text)
        for call in kept:
            self.restore_call(call)

    def _extend(self, delta: Any) -> None:
        """Add a piece of the answer."""
        details = delta.get("reasoning_details") or ()
        for detail in details:
            extend_details(self._details, detail)
        reasoning = delta.get("reasoning_content") or delta.get("reasoning")
        if not reasoning:
            reasoning = "".join(str(detail.get("text") or detail.get("summary") or "") for detail in details)
        if isinstance(reasoning, str) and (reasoning or details):
            self.add_reasoning(reasoning)
        self._take_text(delta.get("content"))
        self._take_text(delta.get("refusal"))
        self.is_refusal = self.is_refusal or bool(delta.get("refusal"))
        for call in delta.get("tool_calls") or ():
            self._extend_call(call)
        if delta.get("function_call"):  # the form before tool_calls, which some servers still send
            self._extend_call({"index": 0, "function": delta["function_call"]})

    def _take_text(self, content: Any) -> None:
        """Take text, or a list of parts that have text.

        Some servers send parts. Parts of thinking are reasoning, other parts without text (references) are left out.
        """
        if isinstance(content, str) and content:
            self.add_text(content)
        for part in content if isinstance(content, list) else ():
            if part.get("type") == "thinking":
                inner = part.get("thinking")
                texts = inner if isinstance(inner, list) else [{"text": inner}]
                self.add_reasoning("".join(str(item.get("text") or "") for item in texts))
            elif isinstance(part.get("text"), str):
                self._take_text(part["text"])

    def _extend_call(self, delta: Any) -> None:
        """Take a piece of a tool call."""
        function = delta.get("function") or {}
        call_id = str(delta.get("id") or "")
        call = self._find_call(delta.get("index"), call_id, bool(function.get("name")))
        call.id = call.id or call_id
        if not call.name and function.get("name"):
            self.name_call(call, function["name"])
        call.extra = delta.get("extra_content") or call.extra
        if (arguments := function.get("arguments")) is not None:
            self.add_arguments(call, arguments)

    def _find_call(self, index: Any, call_id: str, has_name: bool) -> StreamedCall:
        """Return the call that a piece belongs to, a new one if it begins another call.

        index: of the piece, None if it has none. call_id, has_name: whether the piece has an id and a function name.

        Normally the index says it. Some servers give all parallel calls index 0 but different ids; others give neither index nor
        id, and then a name begins a new call and everything else continues the last one.
        """
        has_index = isinstance(index, int)
        call = self._call_by_index.get(index) if has_index else (self.calls[-1] if self.calls else None)
        is_other_id = call is not None and bool(call_id) and bool(call.id) and call_id != call.id
        begins_by_name = not has_index and not call_id and has_name
        if call is None or is_other_id or begins_by_name:
            call = self.begin_call()
        if has_index:
            self._call_by_index[index] = call
        return call

    def kept_thinking(self, calls: Sequence[ToolCall]) -> Sequence[Json]:
        """Return `extra_content` of calls (Gemini's signatures), and the reasoning that the service wants back."""
        extras: list[Json] = [
            {"id": call.id, "extra_content": streamed.extra}
            for call, streamed in zip(calls, self.calls, strict=True)
            if streamed.extra
        ]
        if self._dialect.wants_back:
            last = self._request.turns[-1]
            continues = bool(calls) or (isinstance(last, UserTurn) and bool(last.results))
            reasoning = join_surrogates("".join(self.thoughts))
            extras += self._dialect.reasoning_to_keep(reasoning, self._details, continues=continues)
        return extras

    def total_usage(self) -> Usage:
        """Return the usage of the answer."""
        return usage_of(self._usage, "prompt_tokens", "completion_tokens")


def read_again(response: ModelResponse, request: ModelRequest) -> ModelResponse:
    """Return an answer as this version reads it: text and calls go through the form of Chat Completions.

    So a version that reads calls or their arguments in another way is noticed where answers are replayed. request: what is answered.
    Usage, thoughts and the reason of the end stay as they are.
    """
    calls: list[Json] = [
        {
            "index": number,
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": encode_json(call.arguments).decode()},
        }
        for number, call in enumerate(response.calls)
    ]
    delta: dict[str, Json] = {"role": "assistant", "content": response.text, **({"tool_calls": calls} if calls else {})}
    assembler = ChatWire("recorded").assembler(request)
    assembler.feed({"choices": [{"index": 0, "delta": delta, "finish_reason": "tool_calls" if calls else "stop"}]})
    found = assembler.response()
    return attrs.evolve(response, text=found.text, calls=found.calls)
