"""OpenAI's Chat Completions, for OpenAI, Gemini, Ollama and every server that speaks it more or less.

What those leave out or do otherwise is mended here and in chat_answer.py, not in the rest of the program.
The format: https://developers.openai.com/api/reference/resources/chat.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import attrs

from pegasus.messages import Json
from pegasus.models.base import AssistantTurn, ModelRequest, ToolCall, ToolSpec, Turn, UserTurn
from pegasus.models.chat_answer import ChatAssembler
from pegasus.models.encoding import WireNames, encode, wire_id, wire_name
from pegasus.models.errors import provider_message
from pegasus.models.ids import CallIds
from pegasus.models.joined import Joined
from pegasus.models.pictures import Blindness, in_words
from pegasus.models.sdk import Sdk, load
from pegasus.models.telling import Tell, nobody

if TYPE_CHECKING:
    from pegasus.models.tokens import Exact

BASE_URLS: Final = {
    "openai": "https://api.openai.com/v1",
    "gemini": "https://generativelanguage.googleapis.com/v1beta/openai/",
    "ollama": "http://localhost:11434/v1",
}
"""The services' own addresses. Gemini: https://ai.google.dev/gemini-api/docs/openai. Ollama: https://docs.ollama.com/api/openai-compatibility."""

_WORD = re.compile(r"\w+")
_WITHOUT_PICTURES: Final = "openai, without pictures"
_UNLIMITED: Final = 1 << 31

_UNSIGNED: Final[Json] = {"google": {"thought_signature": "skip_thought_signature_validator"}}
"""What Gemini 3 and later want on a call of another model (https://ai.google.dev/gemini-api/docs/thought-signatures)."""


def sdk(kind: str, api_key: str, base_url: str) -> Sdk:
    """The client. A server that wants no key gets the word "none" as one."""
    options = {"api_key": api_key or "none", "base_url": base_url or BASE_URLS[kind]}
    return Sdk("openai", lambda: load("openai", "AsyncOpenAI", options, (api_key,)))


def is_own(kind: str, base_url: str) -> bool:
    """Whether this is the service itself, not a server that speaks like it."""
    return base_url.rstrip("/") in ("", BASE_URLS[kind].rstrip("/"))


class ChatWire:
    """The wire format for one model of one server, and what that server has been found to refuse.

    kind: "openai", "gemini" or "ollama". own: the service itself, not a server that only speaks like it.
    """

    path = "/chat/completions"

    def __init__(self, model: str, kind: str = "openai", *, own: bool = False) -> None:
        self._model = model
        self._own = kind == "openai" and own
        self._format = "gemini" if kind == "gemini" else "openai"
        self._head: tuple[object, bytes] = (None, b"")
        # OpenAI's newer models refuse max_tokens; many other servers know nothing else.
        self._limit = "max_completion_tokens" if kind == "openai" and own else "max_tokens"
        self._refused_limit = ""
        self._most = _UNLIMITED
        self._blindness = Blindness()
        self._joined = Joined()
        self._names = WireNames()
        self._usage = True
        self._no_reasoning = False

    def body(self, request: ModelRequest) -> bytes:
        """The request as JSON; each turn is serialised once in its life."""
        earlier = self._joined.before_last(request.turns, self._written)
        return b"".join((self._cached_head(request), earlier, self._written(request.turns[-1]), b"]}"))

    def _written(self, turn: Turn) -> bytes:
        if isinstance(turn, UserTurn) and turn.images and self._blindness.hides(turn):
            return _hidden(turn)
        return turn.fragments.get(self._format) or _fragment(turn, self._format)

    def assembler(self, request: ModelRequest, body: bytes, tell: Tell = nobody) -> ChatAssembler:
        """For the answer to this request."""
        return ChatAssembler(self._format, self._names.of(request.tools), CallIds(body), tell)

    def exact(self, sdk: Sdk) -> Exact | None:
        """By OpenAI's own tables, for its own models, where they are on this machine."""
        if not self._own:
            return None
        from pegasus.models.counting import ByTable

        return ByTable(self._model)

    def adapt(self, status: int, body: object, request: ModelRequest) -> bool:
        """Learn from a 400 that names a parameter this server or model does not take, each lesson once; or pictures."""
        if self._blindness.learn(status, body, request):
            self._joined.forget()
            return True
        if status not in (400, 422):
            return False
        from pegasus.models.overflow import output_limit  # patterns to compile, only where something was refused

        said = provider_message(body)
        words = set(_WORD.findall(f"{body.get('param')} {said}" if isinstance(body, Mapping) else said))
        limit = output_limit(status, body, min(request.max_tokens, self._most))
        self._most = limit or self._most
        learnt = limit is not None or self._learn(words, has_tools=bool(request.tools))
        if learnt:
            self._head = (None, b"")
        return learnt

    def _learn(self, refused: set[str], *, has_tools: bool) -> bool:
        other = "max_tokens" if self._limit == "max_completion_tokens" else "max_completion_tokens"
        if "reasoning_effort" in refused and has_tools and not self._no_reasoning:
            # gpt-5.6 and later take function tools in this API only with reasoning_effort "none".
            self._no_reasoning = True
        elif self._limit in refused and other != self._refused_limit:
            self._refused_limit, self._limit = self._limit, other
        elif "stream_options" in refused and self._usage:
            self._usage = False
        else:
            return False
        return True

    def _cached_head(self, request: ModelRequest) -> bytes:
        key = (request.system, request.tools, request.tool_choice, request.max_tokens)
        if self._head[0] != key:
            self._head = (key, self._make_head(request))
        return self._head[1]

    def _make_head(self, request: ModelRequest) -> bytes:
        head: dict[str, Json] = {"model": self._model, "stream": True, self._limit: min(request.max_tokens, self._most)}
        if self._usage:
            head["stream_options"] = {"include_usage": True}
        if request.tools:
            head["tools"] = [_tool(spec) for spec in request.tools]
            if request.tool_choice != "auto":
                head["tool_choice"] = _choice(request.tool_choice)
            if self._no_reasoning:
                head["reasoning_effort"] = "none"
        system = encode({"role": "system", "content": request.system}) + b"," if request.system.strip() else b""
        return b'%s,"messages":[%s' % (encode(head)[:-1], system)


def _tool(spec: ToolSpec) -> Json:
    function: Json = {"name": wire_name(spec.name), "description": spec.description, "parameters": spec.parameters}
    return {"type": "function", "function": function}


def _choice(choice: str) -> Json:
    return choice if choice in ("none", "required") else {"type": "function", "function": {"name": wire_name(choice)}}


# ------------------------------------------------------------------ a turn


def _fragment(turn: Turn, form: str) -> bytes:
    """The turn as its messages, joined by commas."""
    messages = _user_messages(turn) if isinstance(turn, UserTurn) else iter((_assistant_message(turn, form),))
    turn.fragments[form] = fragment = b",".join(map(encode, messages))
    return fragment


def _user_messages(turn: UserTurn) -> Iterator[Json]:
    for result in turn.results:
        content = result.content if result.content.strip() else "(no output)"
        if result.is_error and not content.startswith("Error"):
            content = f"Error: {content}"  # this format has no other mark for it
        yield {"role": "tool", "tool_call_id": wire_id(result.call_id), "content": content}
    if turn.images:
        yield {"role": "user", "content": list(_parts(turn))}
    elif turn.text.strip():
        yield {"role": "user", "content": turn.text}
    elif not turn.results:
        yield {"role": "user", "content": "(empty message)"}


def _parts(turn: UserTurn) -> Iterator[Json]:
    for image in turn.images:
        yield {"type": "image_url", "image_url": {"url": f"data:{image.mime};base64,{image.data}"}}
    if turn.text.strip():
        yield {"type": "text", "text": turn.text}


def _hidden(turn: UserTurn) -> bytes:
    """The same with words in place of its pictures."""
    fragment = turn.fragments.get(_WITHOUT_PICTURES)
    if fragment is None:
        text = "\n\n".join(part for part in (turn.text, in_words(turn.images)) if part.strip())
        messages = _user_messages(attrs.evolve(turn, text=text, images=()))
        turn.fragments[_WITHOUT_PICTURES] = fragment = b",".join(map(encode, messages))
    return fragment


def _assistant_message(turn: AssistantTurn, form: str) -> Json:
    text = turn.text if turn.text.strip() else ""
    if not turn.calls:
        return {"role": "assistant", "content": text or "(silence)"}
    extras = _extras(turn, form)
    calls: list[Json] = [_call(call, extras.get(call.id)) for call in turn.calls]
    return {"role": "assistant", "content": text or None, "tool_calls": calls}


def _call(call: ToolCall, extra: Json) -> Json:
    function: Json = {"name": wire_name(call.name), "arguments": encode(call.arguments).decode()}
    wire: dict[str, Json] = {"id": wire_id(call.id), "type": "function", "function": function}
    return {**wire, "extra_content": extra} if extra else wire


def _extras(turn: AssistantTurn, form: str) -> dict[str, Json]:
    """What must go back beside each call. Gemini wants a signature at least on the first call of a turn."""
    own = turn.thinking if turn.thinking_of == form else ()
    extras = {str(block["id"]): block["extra_content"] for block in own if isinstance(block, Mapping) and "id" in block}
    if form == "gemini" and not extras:
        return {turn.calls[0].id: _UNSIGNED}
    return extras
