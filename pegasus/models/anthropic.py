"""Anthropic's Messages API (https://platform.claude.com/docs/en/api/messages), for Claude and for servers that speak like it.

What is cached by the provider: the tools, the system prompt, and the conversation up to the last block, whose
cache_control moves on with every call. Everything before that marker is, byte for byte, what was sent the time before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import attrs

from pegasus.messages import Json
from pegasus.models.base import (
    AssistantTurn,
    ModelRequest,
    ToolCall,
    ToolResult,
    ToolSpec,
    Turn,
    UserTurn,
)
from pegasus.models.encoding import WireNames, encode, wire_id, wire_name
from pegasus.models.errors import provider_message
from pegasus.models.ids import CallIds
from pegasus.models.joined import Joined
from pegasus.models.message_answer import THINKING, TYPE, MessageAssembler
from pegasus.models.pictures import Blindness, in_words
from pegasus.models.sdk import Sdk, load
from pegasus.models.telling import Tell, nobody

if TYPE_CHECKING:
    from pegasus.models.tokens import Exact

BASE_URL: Final = "https://api.anthropic.com"

_EPHEMERAL: Final[Json] = {"type": "ephemeral"}
_MARKER: Final = b',"cache_control":{"type":"ephemeral"}'
_WITHOUT_THINKING: Final = "anthropic, without thinking"
_WITHOUT_PICTURES: Final = "anthropic, without pictures"
_UNLIMITED: Final = 1 << 31


def sdk(api_key: str, base_url: str) -> Sdk:
    """The client. Servers other than Anthropic's own get the key in both headers that are in use."""
    options: dict[str, object] = {
        "api_key": api_key or "none",
        "base_url": base_url or BASE_URL,
        "open_telemetry": False,
    }
    if base_url not in ("", BASE_URL):
        options["default_headers"] = {"X-Api-Key": api_key or "none"}
    return Sdk("anthropic", lambda: load("anthropic", "AsyncAnthropic", options, (api_key,)))


class AnthropicWire:
    """The wire format for one model; keeps the head of the body, which seldom changes."""

    path = "/v1/messages"

    def __init__(self, model: str) -> None:
        self._model = model
        self._head: tuple[object, bytes] = (None, b"")
        self._form = TYPE
        self._most = _UNLIMITED
        self._blindness = Blindness()
        self._joined = Joined()
        self._names = WireNames()

    def body(self, request: ModelRequest) -> bytes:
        """The request as JSON; each turn is serialised once in its life."""
        earlier = self._joined.before_last(request.turns, self._written)
        last = self._written(request.turns[-1])[:-3]
        return b"".join((self._cached_head(request), earlier, last, _MARKER, b"}]}]}"))

    def assembler(self, request: ModelRequest, body: bytes, tell: Tell = nobody) -> MessageAssembler:
        """For the answer to this request."""
        return MessageAssembler(self._names.of(request.tools), CallIds(body), tell)

    def adapt(self, status: int, body: object, request: ModelRequest) -> bool:
        """Learn to leave thinking out where it is refused: a conversation may hold another model's or another account's.

        Also pictures; and to ask for no longer answers than the model gives, or than the window has room for.
        """
        from pegasus.models.overflow import output_limit  # patterns to compile, only where something was refused

        said = provider_message(body)
        limit = output_limit(status, body, min(request.max_tokens, self._most))
        if limit is not None:
            self._most, self._head = limit, (None, b"")
            return True
        if self._blindness.learn(status, body, request):
            self._joined.forget()
            return True
        refused = "thinking" in said and ("signature" in said or "cannot be modified" in said)
        if status != 400 or not refused or self._form == _WITHOUT_THINKING:
            return False
        self._form = _WITHOUT_THINKING
        self._joined.forget()
        return True

    def exact(self, sdk: Sdk) -> Exact:
        """Anthropic's own way of counting tokens."""
        from pegasus.models.counting import ByProvider

        return ByProvider(sdk, self.path + "/count_tokens", self.count_body)

    def count_body(self, request: ModelRequest) -> bytes:
        """The body for count_tokens: as for a call, without what says how to answer."""
        parts = map(self._written, request.turns)
        head = self._make_head(request, *self._tools(request))
        for key in ("max_tokens", "stream"):
            del head[key]
        return encode(head)[:-1] + b',"messages":[' + b",".join(parts) + b"]}"

    def _written(self, turn: Turn) -> bytes:
        """The turn, as it was serialised when it was first sent."""
        if isinstance(turn, UserTurn) and turn.images and self._blindness.hides(turn):
            return _hidden(turn)
        return turn.fragments.get(self._form) or _fragment(turn, self._form)

    def _tools(self, request: ModelRequest) -> tuple[tuple[ToolSpec, ...], str]:
        """The tools to declare, and the choice among them."""
        return request.tools or _tools_of_history(request.turns), request.tool_choice if request.tools else "none"

    def _cached_head(self, request: ModelRequest) -> bytes:
        tools, choice = self._tools(request)
        key = (request.system, tools, choice, request.max_tokens)
        if self._head[0] != key:
            self._head = (key, encode(self._make_head(request, tools, choice))[:-1] + b',"messages":[')
        return self._head[1]

    def _make_head(self, request: ModelRequest, tools: tuple[ToolSpec, ...], choice: str) -> dict[str, Json]:
        head: dict[str, Json] = {
            "model": self._model,
            "max_tokens": min(request.max_tokens, self._most),
            "stream": True,
        }
        if tools:
            specs: list[dict[str, Json]] = [_tool(spec) for spec in tools]
            specs[-1]["cache_control"] = _EPHEMERAL
            head["tools"] = list[Json](specs)
            if choice != "auto":
                head["tool_choice"] = _choice(choice)
        if request.system.strip():
            head["system"] = [{"type": "text", "text": request.system, "cache_control": _EPHEMERAL}]
        return head


def _tool(spec: ToolSpec) -> dict[str, Json]:
    return {"name": wire_name(spec.name), "description": spec.description, "input_schema": spec.parameters}


def _choice(choice: str) -> Json:
    known = {"none": "none", "required": "any"}.get(choice)
    return {"type": known} if known else {"type": "tool", "name": wire_name(choice)}


def _tools_of_history(turns: tuple[Turn, ...]) -> tuple[ToolSpec, ...]:
    """Tools must be declared where the conversation has calls of them, also in a call that offers none."""
    names = sorted({call.name for turn in turns if isinstance(turn, AssistantTurn) for call in turn.calls})
    return tuple(ToolSpec(name, "No longer available.", {"type": "object"}) for name in names)


# ------------------------------------------------------------------ a turn


def _fragment(turn: Turn, form: str) -> bytes:
    """The turn as one message. It always ends in `}]}`, where the cache marker goes in."""
    if isinstance(turn, UserTurn):
        message: Json = {"role": "user", "content": list(_user_blocks(turn))}
    else:
        message = {"role": "assistant", "content": list(_assistant_blocks(turn, form))}
    turn.fragments[form] = fragment = encode(message)
    return fragment


def _hidden(turn: UserTurn) -> bytes:
    """The same with words in place of its pictures."""
    fragment = turn.fragments.get(_WITHOUT_PICTURES)
    if fragment is None:
        note: Json = {"type": "text", "text": in_words(turn.images)}
        bare = attrs.evolve(turn, images=())
        rest = list(_user_blocks(bare)) if turn.results or turn.text.strip() else []
        fragment = encode({"role": "user", "content": [*rest, note]})
        turn.fragments[_WITHOUT_PICTURES] = fragment
    return fragment


def _user_blocks(turn: UserTurn) -> Iterator[Json]:
    for result in turn.results:
        yield _result(result)
    for image in turn.images:
        yield {"type": "image", "source": {"type": "base64", "media_type": image.mime, "data": image.data}}
    if turn.text.strip():
        yield {"type": "text", "text": turn.text}
    elif not turn.results and not turn.images:
        yield {"type": "text", "text": "(empty message)"}


def _result(result: ToolResult) -> Json:
    block: dict[str, Json] = {
        "type": "tool_result",
        "tool_use_id": wire_id(result.call_id),
        "content": result.content if result.content.strip() else "(no output)",
    }
    return {**block, "is_error": True} if result.is_error else block


def _assistant_blocks(turn: AssistantTurn, form: str) -> Iterator[Json]:
    """Thinking first, then text, then calls; where the model had mixed them, in the model's own order."""
    layout = turn.thinking if turn.thinking_of == TYPE == form else ()
    if not _fits(layout, turn):
        layout = tuple(block for block in layout if _kind(block) in THINKING)
    mixed = any(_kind(block) == "text" for block in layout)
    calls = {wire_id(call.id): call for call in turn.calls}
    empty = True
    for block in layout:
        if _kind(block) == "tool_use":
            yield _use(calls.pop(_ref(block)))
        else:
            yield block
        empty = _kind(block) in THINKING
    if turn.text.strip() and not mixed:
        yield {"type": "text", "text": turn.text}
        empty = False
    for call in calls.values():
        yield _use(call)
        empty = False
    if empty:
        yield {"type": "text", "text": "(silence)"}


def _fits(layout: tuple[Json, ...], turn: AssistantTurn) -> bool:
    """Whether the recorded order of blocks still tells of this very text and these very calls."""
    text = "".join(str(block.get("text")) for block in layout if isinstance(block, Mapping) and _kind(block) == "text")
    uses = [_ref(block) for block in layout if _kind(block) == "tool_use"]
    known = {wire_id(call.id) for call in turn.calls}
    return (not text or text == turn.text) and len(uses) == len(set(uses)) and known.issuperset(uses)


def _use(call: ToolCall) -> Json:
    return {"type": "tool_use", "id": wire_id(call.id), "name": wire_name(call.name), "input": call.arguments}


def _kind(block: Json) -> object:
    return block.get("type") if isinstance(block, Mapping) else None


def _ref(block: Json) -> str:
    return str(block.get("id")) if isinstance(block, Mapping) else ""
