"""Server side of Ollama's own API: models and their descriptions, checks of a chat request, lines of an answer.

`open_provider(script, ollama=OllamaHost())` serves `/api/chat`, `/api/show`, `/api/tags` and `/api/version` as Ollama does
(https://docs.ollama.com/api, https://github.com/ollama/ollama/blob/main/api/types.go). It has the habits that surprise clients:

* A prompt that is longer than `num_ctx` (4,096 unless the request says another) is cut without a word: the first tokens are gone, and
  `prompt_eval_count` is about half of `num_ctx`. Since 0.12.6 `"truncate": false` makes that a refusal
  (https://github.com/ollama/ollama/issues/4967, https://github.com/ollama/ollama/pull/18399).
* Another `num_ctx` loads the model again, which may take minutes.
* A model without the capability refuses tools and thinking with status 400. An unknown model is status 404.
* Arguments of tool calls are objects, and results name their tool. A string in place of an object is refused by its JSON decoder.

Unknown fields are refused, which Ollama does not do: a client that sends one has made a mistake that would go unnoticed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import attrs

from pegasus.messages import Json
from pegasus.models import AssistantTurn, Image, ToolCall, Turn
from pegasus.testing.provider.answers import NewId, ProviderAnswer, dump, split
from pegasus.testing.provider.requests import (
    Invalid,
    TurnBuilder,
    check_schema,
    refuse_other_keys,
    require,
    require_text,
    require_tool_name,
)

DEFAULT_NUM_CTX: Final = 4096
"""Window of a request that names none."""
_KEYS: Final = frozenset(
    ["model", "messages", "tools", "stream", "think", "options", "truncate", "shift", "keep_alive", "format"]
)
_OPTIONS: Final = frozenset(["num_ctx", "num_predict", "temperature", "top_p", "top_k", "seed", "stop", "num_keep"])
_PER_TOKEN: Final = 4
"""Characters of a token."""
_THINK: Final = (True, False, "low", "medium", "high", "max")


@attrs.define(eq=False)
class OllamaModel:
    """Model that the host has.

    Example::

        host = OllamaHost(OllamaModel("qwen3:8b", capabilities=("completion", "tools", "thinking"), loading=20.0))
    """

    name: str = "test-model"
    """Name with its tag, as requests have it."""
    context_length: int = 40_960
    """The model's own limit."""
    capabilities: tuple[str, ...] = ("completion", "tools")
    """As `/api/show` tells them; () for a server that is too old for that."""
    num_ctx: int = 0
    """`PARAMETER num_ctx` of its Modelfile, 0 for none."""
    loading: float = 0.0
    """Seconds that it takes to load."""


class OllamaHost:
    """Models of a host, and what was done with them. Without models it has one, "test-model".

    truncates: an older server that does not know `"truncate": false`.

    Example::

        host = OllamaHost(OllamaModel("smol", num_ctx=8192))
        async with open_provider(echo, ollama=host) as server:
            ...
        assert (host.loads, host.cut) == (1, 0)  # the model was loaded once, and no prompt was cut
    """

    def __init__(self, *models: OllamaModel, truncates: bool = False) -> None:
        self.models = {model.name: model for model in models or (OllamaModel(),)}
        self.truncates = truncates
        self.loaded: dict[str, int] = {}
        """The window that each model in memory was loaded with."""
        self.loads = 0
        """Times that a model was loaded, also because another window was wanted."""
        self.cut = 0
        """Prompts that were cut without a word."""
        self.shown = 0
        """Descriptions that were asked for."""

    def get(self, path: str) -> Json | None:
        """Return the answer to a GET, None for an unknown path.

        Other facts of the real answers, such as size and digest, are left out or have no meaning.
        """
        if path == "/api/version":
            return {"version": "0.34.2"}
        if path == "/api/tags":
            return {
                "models": [
                    {
                        "name": model.name,
                        "model": model.name,
                        "size": 1,
                        "details": {"format": "gguf", "family": "test"},
                    }
                    for model in self.models.values()
                ]
            }
        return None

    def show(self, body: bytes) -> ProviderAnswer:
        """Answer `/api/show`.

        `context_length` is the model's own limit, not the window that it is loaded with. `parameters` is text, in which
        `num_ctx` may be among others.
        """
        self.shown += 1
        name = str(json.loads(body).get("model"))
        model = self.models.get(name)
        if model is None:
            return _refuse(404, f"model '{name}' not found")
        facts: dict[str, Json] = {
            "template": "{{ .Prompt }}" + ("{{ .Tools }}" if "tools" in model.capabilities else ""),
            "details": {"family": "test"},
            "model_info": {"general.architecture": "test", "test.context_length": model.context_length},
        }
        if model.capabilities:
            facts["capabilities"] = list(model.capabilities)
        if model.num_ctx:
            facts["parameters"] = f'num_ctx                        {model.num_ctx}\nstop    "<|im_end|>"'
        return ProviderAnswer(body=dump(facts), content_type="application/json")

    def refusal(self, raw: Mapping[str, Any]) -> ProviderAnswer | None:
        """Return the refusal of a valid chat request, None if the model will answer it.

        The order is that of the server: model, tools, thinking, length.
        """
        name = str(raw.get("model"))
        model = self.models.get(name)
        if model is None:
            return _refuse(404, f"model '{name}' not found")
        if raw.get("tools") and "tools" not in model.capabilities:
            return _refuse(400, f"registry.ollama.ai/library/{name} does not support tools")
        if raw.get("think") not in (None, False) and "thinking" not in model.capabilities:
            return _refuse(400, f'"{name}" does not support thinking')
        num_ctx = self.window(raw)
        tokens = prompt_tokens(raw)
        if tokens > num_ctx and raw.get("truncate") is False and not self.truncates:
            # Versions wrap the error of the runner as text within the error; clients have to look into it.
            message = (
                f"request ({tokens} tokens) exceeds the available context size ({num_ctx} tokens), try increasing it"
            )
            inner = {"code": 400, "message": message, "type": "exceed_context_size_error"}
            inner |= {"n_prompt_tokens": tokens, "n_ctx": num_ctx}
            return _refuse(400, json.dumps({"error": inner}))
        return None

    def load(self, raw: Mapping[str, Any]) -> float:
        """Load the model with the window of a request; return the seconds that this takes, 0 if it is in memory.

        A model is in memory once; another window takes its place.
        """
        model, num_ctx = self.models[str(raw["model"])], self.window(raw)
        if self.loaded.get(model.name) == num_ctx:
            return 0.0
        self.loaded[model.name] = num_ctx
        self.loads += 1
        return model.loading

    def window(self, raw: Mapping[str, Any]) -> int:
        """Return the window that a request is answered with.

        The request wins over the Modelfile, and neither over the model's own limit.
        """
        model = self.models[str(raw["model"])]
        wanted = (raw.get("options") or {}).get("num_ctx") or model.num_ctx or DEFAULT_NUM_CTX
        return min(int(wanted), model.context_length)

    def read_tokens(self, raw: Mapping[str, Any]) -> int:
        """Return the tokens that the model reads of a prompt: all, or about half of the window if they do not fit."""
        tokens, num_ctx = prompt_tokens(raw), self.window(raw)
        if tokens <= num_ctx:
            return tokens
        self.cut += 1
        return num_ctx // 2 + 2


def prompt_tokens(raw: Mapping[str, Any]) -> int:
    """Return the tokens of a prompt: four characters each.

    Pictures are not counted. The number need not be right, as long as it grows with the prompt.
    """
    messages = [{key: value for key, value in message.items() if key != "images"} for message in raw["messages"]]
    return len(json.dumps([messages, raw.get("tools")], ensure_ascii=False)) // _PER_TOKEN


def _refuse(status: int, message: str) -> ProviderAnswer:
    """Return a refusal as Ollama writes it: the message alone."""
    return ProviderAnswer(status=status, body=dump({"error": message}), content_type="application/json")


# ------------------------------------------------------------------ requests


def read_ollama(raw: dict[str, Any]) -> tuple[tuple[Turn, ...], str, tuple[str, ...]]:
    """Return turns, system prompt and tool names of a chat request. Raises Invalid."""
    refuse_other_keys(raw, _KEYS, "body")
    require_text(raw.get("model"), "model")
    options = raw.get("options", {})
    require(isinstance(options, dict), "options: must be an object")
    refuse_other_keys(options, _OPTIONS, "options")
    for name in ("num_ctx", "num_predict"):
        require(
            type(options.get(name, 1)) is int and options.get(name, 1) != 0, f'option "{name}" must be of type integer'
        )
    require("think" not in raw or raw["think"] in _THINK, f"invalid think value: {raw.get('think')!r}")
    require(isinstance(raw.get("messages"), list) and bool(raw["messages"]), "messages: must not be empty")
    names: list[str] = []
    for index, tool in enumerate(raw.get("tools") or ()):
        where = f"tools[{index}]"
        refuse_other_keys(tool, ("type", "function"), where)
        require(tool.get("type") == "function", f"{where}.type: unexpected value")
        refuse_other_keys(tool["function"], ("name", "description", "parameters"), f"{where}.function")
        check_schema(tool["function"].get("parameters"), f"{where}.function.parameters")
        names.append(require_tool_name(tool["function"].get("name"), f"{where}.function.name"))
    system, turns = _messages(raw["messages"])
    return turns, system, tuple(names)


def _messages(messages: list[Any]) -> tuple[str, tuple[Turn, ...]]:
    """Return the system prompt and the turns.

    Results name their tool, which other formats do not ask for.
    """
    conversation = TurnBuilder()
    system = ""
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        require(isinstance(message, dict), f"{where}: an object is required")
        role = message.get("role")
        content = message.get("content", "")
        require(isinstance(content, str), f"json: cannot unmarshal into Go struct field {where}.content of type string")
        if role == "system":
            require(index == 0, f"{where}: a system message after the first is not expected here")
            system = content
        elif role == "tool":
            refuse_other_keys(message, ("role", "content", "tool_name", "tool_call_id"), where)
            require(bool(content), f"{where}.content: must not be empty")
            require_tool_name(message.get("tool_name"), f"{where}.tool_name")
            conversation.result(str(message.get("tool_call_id")), content, is_error=content.startswith("Error"))
        elif role == "user":
            refuse_other_keys(message, ("role", "content", "images"), where)
            images = tuple(_image(data, where) for data in message.get("images", ()))
            require(bool(content.strip() or images), f"{where}: must not be empty")
            conversation.user(content, where, images)
        elif role == "assistant":
            conversation.assistant(_assistant(message, where), where)
        else:
            raise Invalid(f"{where}.role: {role!r} is not one of system, user, assistant, tool")
    return system, conversation.end(f"messages[{len(messages)}]")


def _image(data: Any, where: str) -> Image:
    """Return a picture, which has no type on this wire."""
    require(isinstance(data, str) and not data.startswith("data:"), f"{where}.images: illegal base64 data")
    return Image("image/png", data)


def _assistant(message: Any, where: str) -> AssistantTurn:
    """Return an assistant message.

    `thinking` may be sent back; it is not kept here.
    """
    refuse_other_keys(message, ("role", "content", "thinking", "tool_calls"), where)
    calls = tuple(
        _call(call, f"{where}.tool_calls[{index}]") for index, call in enumerate(message.get("tool_calls", ()))
    )
    content = message.get("content", "")
    require(bool(calls) or bool(content.strip()), f"{where}: must not be empty")
    return AssistantTurn(content, calls)


def _call(call: Any, where: str) -> ToolCall:
    """Return a tool call. Its arguments are an object; JSON text is what OpenAI's format has there."""
    refuse_other_keys(call, ("id", "function", "type"), where)
    function = call.get("function")
    refuse_other_keys(function, ("index", "name", "arguments"), f"{where}.function")
    arguments = function.get("arguments")
    kind = "json: cannot unmarshal string into Go struct field ChatRequest.messages.tool_calls.function.arguments"
    require(isinstance(arguments, dict), kind)
    return ToolCall(str(call.get("id")), require_tool_name(function.get("name"), f"{where}.function.name"), arguments)


# ------------------------------------------------------------------ answers


def answer_lines(answer: ProviderAnswer, new_id: NewId, tokens: int, model: str) -> list[bytes]:
    """Return the lines of an answer. tokens: of the prompt, as the host counts them.

    Tool calls come whole, each in a line of its own. Arguments that are no object cannot be sent: Ollama parses what the model
    wrote, and what it cannot parse comes as text.
    """
    texts = split(answer.text, answer.pieces) if answer.text else []
    thoughts = split(answer.reasoning, answer.pieces) if answer.reasoning else []
    lines = [_line(model, {"content": "", "thinking": piece}) for piece in thoughts]
    lines += [_line(model, {"content": piece}) for piece in texts]
    for index, call in enumerate(answer.calls):
        if isinstance(call.arguments, str):
            lines.append(_line(model, {"content": f'{{"name": "{call.name}", "arguments": {call.arguments}}}'}))
            continue
        function: dict[str, Json] = {"index": index, "name": call.name, "arguments": call.arguments}
        wire: dict[str, Json] = {"id": call.id or f"call_{new_id()}", "function": function}
        lines.append(_line(model, {"content": "", "tool_calls": [wire]}))
    if answer.error:
        return [*lines, dump({"error": answer.error[1]}) + b"\n"]
    end: dict[str, Json] = {"done_reason": answer.stop_reason or "stop", "total_duration": 1, "load_duration": 1}
    end |= {"prompt_eval_count": tokens, "eval_count": answer.usage.completion_tokens}
    return [*lines, _line(model, {"content": ""}, end)]


def _line(model: str, message: dict[str, Json], end: dict[str, Json] | None = None) -> bytes:
    """Return one line of a stream. end: the fields of the last one."""
    head: dict[str, Json] = {"model": model, "created_at": "2026-11-23T04:00:00.0Z"}
    return dump({**head, "message": {"role": "assistant", **message}, "done": end is not None, **(end or {})}) + b"\n"


def whole_answer(lines: list[bytes]) -> bytes:
    """Return an answer that is not streamed: everything in one object.

    The last line has the counts of all.
    """
    parts = [json.loads(line) for line in lines]
    message = {"role": "assistant", "content": "".join(part["message"]["content"] for part in parts)}
    calls = [call for part in parts for call in part["message"].get("tool_calls", ())]
    return dump({**parts[-1], "message": {**message, "tool_calls": calls} if calls else message})
