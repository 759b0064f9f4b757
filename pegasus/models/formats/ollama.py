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
from typing import Any, Final

import attrs

from pegasus.messages import Json
from pegasus.models.base import (
    CallBegun,
    CallOptions,
    CallPiece,
    ModelRequest,
    ModelResponse,
    ReasoningPiece,
    TextPiece,
    ToolSpec,
    Usage,
    UserTurn,
)
from pegasus.models.formats.chat import function_tool
from pegasus.models.formats.wire_format import (
    AnswerAssembler,
    StreamedCall,
    WireAnswer,
    WireFormat,
    encode_json,
    token_count,
)
from pegasus.models.json_text import join_surrogates

SOURCE: Final = "ollama"
"""Value of `thinking_of`."""
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

    Example: `OllamaWire("qwen3:8b").body(request)` is the JSON body for a POST to `/api/chat`.
    """

    path = "/api/chat"
    source = SOURCE
    streams_lines = True

    def __init__(self, model: str) -> None:
        super().__init__(model)
        self.assembler = OllamaAssembler
        # The only family so far that thinks by degrees (https://docs.ollama.com/capabilities/thinking).
        self._takes_degrees = "gpt-oss" in model.lower()
        self._can_think = True
        """False for models that have refused `think`."""

    def head(self, request: ModelRequest) -> dict[str, Json]:
        """Return the request without the turns."""
        # Without a window in the settings Ollama takes its own.
        options: dict[str, Json] = {"num_predict": request.max_tokens}
        if window := request.options.context_window:
            options = {"num_ctx": window, "num_predict": min(request.max_tokens, max(_SHORTEST_ANSWER, window // 2))}
        body: dict[str, Json] = {"model": self.model, "stream": True, "truncate": False, "options": options}
        if request.options.effort and self._can_think:
            # Other models only know whether to think: at low effort they do not.
            body["think"] = request.options.effort if self._takes_degrees else request.options.effort != "low"
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
        if status != 400 or not request.options.effort or not self._can_think or not re.search(r"\bthink", message):
            return False
        if self._takes_degrees:
            self._takes_degrees = False
        else:
            self._can_think = False
        return True


def _offered(request: ModelRequest) -> tuple[ToolSpec, ...]:
    """Return the tools that the model may call. A request for one tool offers only that: the format has no other way to say it."""
    named = tuple(spec for spec in request.tools if spec.name == request.tool_choice)
    return named or request.tools


# ------------------------------------------------------------------ answers


@attrs.define(eq=False, repr=False, slots=False)
class OllamaAssembler(AnswerAssembler):
    """`AnswerAssembler` for the lines of an answer.

    Example: `OllamaAssembler(request).feed({"message": {"content": "Hel"}, "done": False})` is None, and
    `pieces` has a TextPiece.
    """

    _pieces: list[str] = attrs.field(factory=list, init=False)
    """Pieces of the answer's text."""
    _thoughts: list[str] = attrs.field(factory=list, init=False)
    """Pieces of the reasoning."""
    _calls: list[tuple[str, str, Any]] = attrs.field(factory=list, init=False)
    """Id ("" if the server gives none), name on the wire, and arguments of each call."""
    _usage: Usage = attrs.field(factory=Usage, init=False)
    """Tokens, once the last line has come."""
    _stop: str = attrs.field(default="", init=False)
    """The server's `done_reason`."""

    def feed(self, event: Any) -> object:
        """Take one line. Return the error if the line is one, else None."""
        if event.get("error"):
            error = event["error"]
            return {"message": error} if isinstance(error, str) else error
        message = event.get("message") or {}
        if thought := message.get("thinking"):
            self._thoughts.append(thought)
            self.pieces.append(ReasoningPiece(thought))
        if text := message.get("content"):
            self._pieces.append(text)
            self.pieces.append(TextPiece(text))
        for call in message.get("tool_calls") or ():
            self._take_call(call)
        if event.get("done"):
            self._stop = str(event.get("done_reason") or "stop")
            self._usage = Usage(token_count(event.get("prompt_eval_count")), token_count(event.get("eval_count")))
            self.complete = True
        return None

    def feed_whole(self, body: Any) -> object:
        """Take an answer that was not streamed. It has the form of the last line, with the whole message."""
        return self.feed(body)

    def _take_call(self, call: Any) -> None:
        """Take a tool call. Its arguments are an object; text is accepted too, as some servers in front of Ollama send it."""
        function = call["function"]
        name, arguments = str(function["name"]), function.get("arguments")
        number = len(self._calls)
        self._calls.append((str(call.get("id") or ""), name, arguments))
        self.pieces.append(CallBegun(number, self.names.get(name, name)))
        if arguments:
            self.pieces.append(
                CallPiece(number, arguments if isinstance(arguments, str) else encode_json(arguments).decode())
            )

    def response(self) -> ModelResponse:
        """Return the answer. Only valid when `complete`."""
        last = len(self._calls) - 1
        calls, reason = self.finish_calls(
            [
                StreamedCall(call_id, name, arguments, is_last=number == last)
                for number, (call_id, name, arguments) in enumerate(self._calls)
            ],
            self._stop,
        )
        reasoning = join_surrogates("".join(self._thoughts))
        return ModelResponse(
            text=join_surrogates("".join(self._pieces)),
            calls=calls,
            usage=self._usage,
            stop_reason=reason,
            thinking=({"thinking": reasoning},) if reasoning else (),
            thinking_of=SOURCE if reasoning else None,
            reasoning=reasoning,
        )
