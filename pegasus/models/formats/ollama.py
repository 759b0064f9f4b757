"""Ollama's own API: wire format of `POST /api/chat` (https://docs.ollama.com/api/chat).

Its endpoint in OpenAI's format has no way to choose the window. There a prompt of more than 4,096 tokens loses its beginning,
system prompt and tools first, and nobody is told. Here `num_ctx` says how large the window is, and `truncate` false makes a prompt
that is too long a refusal (https://github.com/ollama/ollama/pull/17944); servers before 0.12.6 ignore that field.

A request and the lines of its answer:

    {"model": "qwen3:8b", "stream": true, "truncate": false, "options": {"num_ctx": 32768, "num_predict": 8192},
     "tools": […], "messages": [{"role": "system", "content": "…"}, {"role": "user", "content": "…"}]}

    {"message": {"role": "assistant", "content": "", "thinking": "The user …"}, "done": false}
    {"message": {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "reply", "arguments": {"text": "…"}}}]},
     "done": false}
    {"message": {"role": "assistant", "content": ""}, "done": true, "done_reason": "stop", "prompt_eval_count": 120, "eval_count": 9}

What differs from OpenAI's format: arguments are objects, results name their tool, pictures are base64 alone, and a choice of tools
does not exist. Calls come whole, not in pieces.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import attrs

from pegasus.messages import Json
from pegasus.models.base import CallOptions, ModelRequest, ToolCall, ToolSpec, Usage, UserTurn
from pegasus.models.formats.chat import function_tool
from pegasus.models.formats.wire_format import AnswerAssembler, WireAnswer, WireFormat, token_count
from pegasus.models.json_text import join_surrogates

LARGEST_WINDOW: Final = 32_768
"""Tokens of `num_ctx` at most, unless the settings say another number. Memory grows with the window: many models take 128,000 and
more, which would not fit into the memory of the machines that they run on."""
_SHORTEST_ANSWER: Final = 256
"""Tokens."""


def usual_window(limit: int, chosen: int) -> int:
    """Return the window to ask for where the settings name none. limit: the model's own. chosen: that of its Modelfile. 0: unknown."""
    return chosen or (min(limit, LARGEST_WINDOW) if limit else 0)


class OllamaWire(WireFormat):
    """`WireFormat` of Ollama's own API, for one model.

    The window is `options.context_window` of the request. Every change of it makes Ollama load the model again, so all calls of a
    model should have the same. An answer gets at most half of it: a longer one would push its own question out.

    It learns from refusals whether the model can think, and whether it takes a word for how much.
    """

    path = "/api/chat"
    source = "ollama"
    streams_lines = True

    def __init__(self, model: str) -> None:
        super().__init__(model)
        # The only family so far that thinks by degrees (https://docs.ollama.com/capabilities/thinking).
        if "gpt-oss" not in model.lower():
            self.leave_out("degrees")

    def assembler(self, request: ModelRequest) -> OllamaAssembler:
        """Return an assembler for the answer to a request."""
        return OllamaAssembler(request, self.source)

    def head(self, request: ModelRequest) -> dict[str, Json]:
        """Return the request without the turns."""
        # Without a window in the settings Ollama takes its own.
        options: dict[str, Json] = {"num_predict": request.max_tokens}
        if window := request.options.context_window:
            options = {"num_ctx": window, "num_predict": min(request.max_tokens, max(_SHORTEST_ANSWER, window // 2))}
        body: dict[str, Json] = {"model": self.model, "stream": True, "truncate": False, "options": options}
        if (effort := request.options.effort) and "thinking" not in self.left_out:
            # Other models only know whether to think: at low effort they do not.
            body["think"] = effort != "low" if "degrees" in self.left_out else effort
        if request.tools and request.tool_choice != "none":
            body["tools"] = [function_tool(spec) for spec in _offered(request)]
        # The turns are added behind the system prompt by `WireFormat.body`.
        body["messages"] = [{"role": "system", "content": request.system}] if request.system.strip() else []
        return body

    def add_options(self, head: dict[str, Json], options: CallOptions) -> dict[str, Json]:
        """Return the head with the temperature among the options, where this API has it. `options` of the settings are merged, too."""
        own: Any = head["options"]
        if options.temperature is not None:
            own["temperature"] = options.temperature
        given = options.extra_body.get("options")
        own.update(given if isinstance(given, dict) else {})
        extra = {name: value for name, value in options.extra_body.items() if name != "options"}
        # Messages stay last in the body: their JSON is kept from call to call, and is put behind the rest.
        messages = head.pop("messages")
        return {**head, **extra, "messages": messages}

    def user_messages(self, turn: UserTurn) -> list[Json]:
        """Return the results, each as a message of its own, then one message with text and pictures."""
        messages: list[Json] = []
        for result in turn.results:
            named: dict[str, Json] = {"tool_name": result.name, "tool_call_id": result.call_id}
            messages.append({"role": "tool", "content": result.content, **named})
        if turn.text or turn.images or not messages:
            text = turn.text or ("" if turn.images else "(empty message)")
            message: dict[str, Json] = {"role": "user", "content": text}
            if turn.images:
                message["images"] = [image.data for image in turn.images]
            messages.append(message)
        return messages

    def assistant_messages(self, turn: WireAnswer) -> list[Json]:
        """Return one message. What the model thought before a call goes back to it, as it needs that to go on."""
        text = turn.text if turn.text.strip() else ""
        if not turn.calls:
            return [{"role": "assistant", "content": text or "(silence)"}]
        message: dict[str, Json] = {"role": "assistant", "content": text}
        if turn.thinking:
            message["thinking"] = str(turn.thinking[0].get("thinking", ""))
        message["tool_calls"] = [
            {"id": call.id, "function": {"index": index, "name": call.name, "arguments": dict(call.arguments)}}
            for index, call in enumerate(turn.calls)
        ]
        return [message]

    def learn(self, status: int, body: object, message: str, request: ModelRequest) -> bool:
        """Ask with less thinking where a refusal is about that: first by yes or no, then not at all.

        Ollama says `"llama3.1:8b" does not support thinking` and `think value "low" is not supported for this model`.
        """
        if status != 400 or not request.options.effort or not re.search(r"\bthink", message):
            return False
        return self.leave_out("degrees") or self.leave_out("thinking")


def _offered(request: ModelRequest) -> tuple[ToolSpec, ...]:
    """Return the tools that the model may call. A request for one tool offers only that: the format has no other way to say it."""
    named = tuple(spec for spec in request.tools if spec.name == request.tool_choice)
    return named or request.tools


# ------------------------------------------------------------------ answers


@attrs.define(eq=False, repr=False, slots=False)
class OllamaAssembler(AnswerAssembler):
    """`AnswerAssembler` for the lines of an answer."""

    _usage: Usage = attrs.field(factory=Usage, init=False)
    """Tokens, once the last line has come."""

    def feed(self, event: Any) -> object:
        """Take one line. Return the error if the line is one, else None."""
        if event.get("error"):
            error = event["error"]
            return {"message": error} if isinstance(error, str) else error
        message = event.get("message") or {}
        if thought := message.get("thinking"):
            self.add_reasoning(thought)
        if text := message.get("content"):
            self.add_text(text)
        for call in message.get("tool_calls") or ():
            # Arguments are an object; text is accepted too, as some servers in front of Ollama send it.
            begun = self.begin_call(call.get("id"), call["function"]["name"])
            if arguments := call["function"].get("arguments"):
                self.add_arguments(begun, arguments)
        if event.get("done"):
            self.stop = str(event.get("done_reason") or "stop")
            self._usage = Usage(token_count(event.get("prompt_eval_count")), token_count(event.get("eval_count")))
            self.complete = True
        return None

    def feed_whole(self, body: Any) -> object:
        """Take an answer that was not streamed. It has the form of the last line, with the whole message."""
        return self.feed(body)

    def kept_thinking(self, calls: Sequence[ToolCall]) -> Sequence[Json]:
        """Return the reasoning, which the model needs to go on after a call."""
        reasoning = join_surrogates("".join(self.thoughts))
        return ({"thinking": reasoning},) if reasoning else ()

    def total_usage(self) -> Usage:
        """Return the usage of the answer."""
        return self._usage
