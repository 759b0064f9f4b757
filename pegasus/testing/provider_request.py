"""Requests to the test provider, checked as strictly as the real services check them.

`parse` returns a request with its conversation in Pegasus's own values, the same for both formats, so that a script need not know
which format it was asked in. Anything that the real service would refuse raises `Invalid`, with a message like the service's. So a
test fails where the product would have failed with a real key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

import attrs

from pegasus.models import AssistantTurn, Image, ToolCall, ToolResult, Turn, UserTurn, picture_problem

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class Invalid(Exception):
    """A request that the provider answers with 400; `str()` is its message."""


@attrs.frozen(eq=False)
class ProviderRequest:
    """A call as it arrived."""

    format: str
    """"anthropic" or "openai"."""
    path: str
    headers: Mapping[str, str]
    """By their names in lower case."""
    body: bytes
    raw: Mapping[str, Any] = attrs.field(repr=False)
    """The parsed body."""
    turns: tuple[Turn, ...]
    """The conversation, the same for both formats."""
    system: str = ""
    tools: tuple[str, ...] = ()
    """Names of the tools."""
    stream: bool = False
    n: int = 0
    """Number of the request: 1 for the first one of the server, also counting invalid ones."""

    @property
    def model(self) -> str:
        """Model id."""
        return str(self.raw.get("model", ""))

    @property
    def last(self) -> UserTurn:
        """Last turn, which the model must answer."""
        turn = self.turns[-1]
        return turn if isinstance(turn, UserTurn) else UserTurn()

    @property
    def calls(self) -> Mapping[str, ToolCall]:
        """Calls of the assistant turn before the last turn, by id."""
        before = self.turns[-2] if len(self.turns) > 1 else None
        return {call.id: call for call in before.calls} if isinstance(before, AssistantTurn) else {}


def parse(path: str, headers: Mapping[str, str], body: bytes, n: int = 0) -> ProviderRequest:
    """Read and check a request. Raises Invalid. headers: names in lower case."""
    from pegasus.testing.provider_anthropic import read_messages  # both import the checks of this file
    from pegasus.testing.provider_openai import read_chat

    if "application/json" not in headers.get("content-type", ""):
        raise Invalid("content-type must be application/json")
    try:
        raw = json.loads(body, parse_constant=_no_constant)
    except ValueError as error:
        raise Invalid(f"the body is not valid JSON: {error}") from error
    need(isinstance(raw, dict), "the body must be an object")
    if path.endswith("/messages"):
        turns, system, tools = read_messages(raw)
        form = "anthropic"
    else:
        turns, system, tools = read_chat(raw)
        form = "openai"
    return ProviderRequest(form, path, headers, body, raw, turns, system, tools, raw.get("stream") is True, n)


def glance(path: str, headers: Mapping[str, str], body: bytes, n: int = 0) -> ProviderRequest:
    """Read only the last turn of a request, and check nothing: for benchmarks, where the server must cost little.

    Wants `"role"` first in each message, as every writer of JSON that keeps an order puts it.
    """
    messages = list(_last_messages(body.decode("utf-8", "replace")))
    results = [
        ToolResult(str(m.get("tool_call_id")), "", str(m.get("content"))) for m in messages if m["role"] == "tool"
    ]
    texts: list[str] = []
    for message in messages:
        content = message.get("content")
        blocks = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
        for block in blocks if message["role"] == "user" else ():
            if block.get("type") == "tool_result":
                results.append(ToolResult(block["tool_use_id"], "", str(block.get("content"))))
            else:
                texts.append(str(block.get("text", "")))
    turn = UserTurn(tuple(results), "".join(texts))
    form = "anthropic" if path.endswith("/messages") else "openai"
    stream = b'"stream":true' in body or b'"stream": true' in body
    usage: Mapping[str, Any] = {"stream_options": {"include_usage": b"include_usage" in body}}
    return ProviderRequest(form, path, headers, b"", usage, (turn,), "", ("reply", "current_time"), stream, n)


def _last_messages(text: str) -> list[dict[str, Any]]:
    """Return the messages after the last one of the assistant, found from the end of the body."""
    found: list[dict[str, Any]] = []
    end = len(text)
    while (start := text.rfind('{"role"', 0, end)) >= 0:
        message, _ = _DECODER.raw_decode(text, start)
        if message["role"] not in ("user", "tool"):
            break
        found.insert(0, message)
        end = start
    return found


_DECODER = json.JSONDecoder()


def _no_constant(name: str) -> None:
    raise Invalid(f"the body is not valid JSON: {name}")


# ------------------------------------------------------------------ checks both formats share


def need(condition: bool, message: str) -> None:
    """Raise Invalid unless the condition holds."""
    if not condition:
        raise Invalid(message)


def only(value: Any, keys: Collection[str], where: str) -> None:
    """Check that a value is an object without other keys than these."""
    need(isinstance(value, dict), f"{where}: an object is required")
    for key in value:
        need(key in keys, f"{where}.{key}: Extra inputs are not permitted")


def words(value: Any, where: str) -> str:
    """Return a text; raise Invalid if it is blank or has lone surrogates."""
    need(isinstance(value, str), f"{where}: Input should be a valid string")
    need(bool(value.strip()), f"{where}: text content blocks must contain non-whitespace text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Invalid(f"{where}: lone surrogates are not valid text") from None
    return str(value)


def picture(mime: Any, data: Any, where: str) -> Image:
    """Return a picture that both APIs accept."""
    need(isinstance(mime, str) and isinstance(data, str), f"{where}: Input should be a valid string")
    why = picture_problem(mime, data)
    need(why is None, f"{where}: could not process image: {why}")
    return Image(mime, data)


def tool_name(value: Any, where: str) -> str:
    """Return a tool name that both APIs accept."""
    need(
        isinstance(value, str) and bool(NAME.fullmatch(value)),
        f"{where}: String should match '^[a-zA-Z0-9_-]{{1,64}}$'",
    )
    return str(value)


def check_schema(value: Any, where: str) -> None:
    """Check the parameters of a tool."""
    need(isinstance(value, dict) and value.get("type") == "object", f"{where}: must be a JSON schema of type object")


class TurnBuilder:
    """Builder of a conversation that checks its order: roles alternate, and every call has its result in the next turn."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self._ids: set[str] = set()

    def user(self, results: list[tuple[str, str, bool]], text: str, where: str, images: tuple[Image, ...] = ()) -> None:
        """Add a user turn. results: (call id, content, is_error)."""
        before = self.turns[-1] if self.turns else None
        need(not isinstance(before, UserTurn), f"{where}: roles must alternate between user and assistant")
        open_calls = {call.id: call for call in before.calls} if isinstance(before, AssistantTurn) else {}
        read: list[ToolResult] = []
        for call_id, content, failed in results:
            need(call_id in open_calls, f"{where}: unexpected tool result: no call {call_id!r} in the message before")
            read.append(ToolResult(call_id, open_calls.pop(call_id).name, content, failed))
        need(not open_calls, f"{where}: tool calls without a result immediately after: {', '.join(open_calls)}")
        self.turns.append(UserTurn(tuple(read), text, images))

    def assistant(self, turn: AssistantTurn, where: str) -> None:
        """Add an assistant turn."""
        need(bool(self.turns), f"{where}: first message must use the user role")
        need(isinstance(self.turns[-1], UserTurn), f"{where}: roles must alternate between user and assistant")
        for call in turn.calls:
            need(call.id not in self._ids, f"{where}: tool call ids must be unique: {call.id!r}")
            self._ids.add(call.id)
        self.turns.append(turn)

    def end(self) -> tuple[Turn, ...]:
        """Return all turns; the last one must be the user's."""
        need(bool(self.turns), "messages: at least one message is required")
        need(isinstance(self.turns[-1], UserTurn), "messages: the conversation must end with a user message")
        return tuple(self.turns)
