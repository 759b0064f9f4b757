"""Requests to the test provider, checked as strictly as the real services check them.

`parse` returns a request with its conversation in Pegasus's own values, the same for both formats, so that a script need not know
which format it was asked in. Anything that the real service would refuse raises `Invalid`, with a message like the service's. So a
test fails where the product would have failed with a real key.

`parse_last_turn` is the cheap alternative for benchmarks: parsing and checking a megabyte in every call would cost more
than the client that is measured.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import attrs

from pegasus.models import AssistantTurn, ToolCall, ToolResult, Turn, UserTurn
from pegasus.testing.provider_anthropic import read_messages
from pegasus.testing.provider_checks import Invalid, require
from pegasus.testing.provider_openai import read_chat


@attrs.frozen(eq=False)
class ProviderRequest:
    """A call as it arrived.

    Scripts read `last`, `calls` and `turns`; tests of a client read `raw` and `body` too:

        answer = ProviderAnswer("three turns" if len(request.turns) == 3 else "another number")
    """

    format: str
    """"anthropic" or "openai"."""
    path: str
    """Path of the URL without the query."""
    headers: Mapping[str, str]
    """By their names in lower case."""
    body: bytes
    """The bytes as they arrived, for tests that compare requests byte by byte."""
    raw: Mapping[str, Any] = attrs.field(repr=False)
    """The parsed body."""
    turns: tuple[Turn, ...]
    """The conversation, the same for both formats."""
    system: str = ""
    """The system prompt; "" if there is none."""
    tools: tuple[str, ...] = ()
    """Names of the tools."""
    stream: bool = False
    """Whether the answer is to be streamed."""
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
    """Read and check a request. Raises Invalid. headers: names in lower case.

    path: the URL's, which tells the format. n: number of the request. JSON's constants `NaN` and `Infinity`,
    which Python would accept, are refused.
    """
    if "application/json" not in headers.get("content-type", ""):
        raise Invalid("content-type must be application/json")
    try:
        raw = json.loads(body, parse_constant=_no_constant)
    except ValueError as error:
        raise Invalid(f"the body is not valid JSON: {error}") from error
    require(isinstance(raw, dict), "the body must be an object")
    if path.endswith("/messages"):
        turns, system, tools = read_messages(raw)
        form = "anthropic"
    else:
        turns, system, tools = read_chat(raw)
        form = "openai"
    return ProviderRequest(form, path, headers, body, raw, turns, system, tools, raw.get("stream") is True, n)


def parse_last_turn(path: str, headers: Mapping[str, str], body: bytes, n: int = 0) -> ProviderRequest:
    """Read only the last turn of a request, and check nothing: for benchmarks, where the server must cost little.

    Wants `"role"` first in each message, as every writer of JSON that keeps an order puts it.

    Tools are assumed to be those of the Main Agent, and `raw` has only what decides about the answer's form.
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
"""Decoder of one value that begins somewhere in a text."""


def _no_constant(name: str) -> None:
    """Refuse NaN and Infinity, which are no JSON."""
    raise Invalid(f"the body is not valid JSON: {name}")
