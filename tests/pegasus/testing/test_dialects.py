"""The dialects of the test provider: strict where the services are, and understood by OpenAI's own client."""

from __future__ import annotations

import gc
import json
from typing import Any

import openai
import pytest
from openai.types.chat import completion_create_params as params
from pydantic import TypeAdapter

from pegasus.models import AssistantTurn, ModelRequest, ToolCall, ToolResult, UserTurn
from pegasus.models.base import CallOptions
from pegasus.models.formats.chat import ChatWire
from pegasus.testing.provider import open_provider
from pegasus.testing.provider.answers import Call, ProviderAnswer
from pegasus.testing.provider.dialects import DIALECTS, Dialect
from pegasus.testing.provider.formats import parse
from pegasus.testing.provider.requests import Invalid
from tests.pegasus.models.conftest import KEY, REPLY

HEADERS = {"content-type": "application/json"}
ANSWER = ProviderAnswer("Noon.", (Call("reply", {"text": "noon"}),), reasoning="I need the clock.", pieces=3)


def talk(**message: Any) -> bytes:
    """A request whose second message is a call, with these additions."""
    call = {"id": "abcdefghi", "type": "function", "function": {"name": "reply", "arguments": "{}"}}
    answer = {"role": "assistant", "content": None, "tool_calls": [call], **message}
    result = {"role": "tool", "tool_call_id": answer["tool_calls"][0]["id"], "content": "done"}
    messages = [{"role": "user", "content": "hi"}, answer, result]
    tools = [{"type": "function", "function": {"name": "reply", "parameters": {"type": "object"}}}]
    return json.dumps({"model": "m", "messages": messages, "tools": tools}).encode()


def read(dialect: str, body: bytes) -> None:
    parse("/v1/chat/completions", HEADERS, body, dialect=DIALECTS[dialect])


def long_id() -> dict[str, Any]:
    return {"tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "reply", "arguments": "{}"}}]}


def details(signature: str) -> list[Any]:
    return [{"type": "reasoning.text", "text": "x", "index": 0, "signature": signature}]


@pytest.mark.parametrize(
    ("dialect", "message", "why"),
    [
        ("deepseek", {}, "reasoning_content"),
        ("openrouter", {}, "reasoning_details"),
        ("openrouter", {"reasoning_details": details("signed-of-another-text")}, "signature"),
        ("mistral", long_id(), "length of 9"),
        ("gemini", {}, "thought_signature"),
        ("vertex", {}, "thought_signature"),
        ("groq", {"reasoning": "x"}, "reasoning"),
        ("vllm", {"reasoning_content": "x"}, "reasoning_content"),
    ],
)
def test_what_a_service_refuses(dialect: str, message: dict[str, Any], why: str) -> None:
    with pytest.raises(Invalid, match=why):
        read(dialect, talk(**message))


@pytest.mark.parametrize(
    ("dialect", "message"),
    [
        ("deepseek", {"reasoning_content": ""}),
        ("openrouter", {"reasoning_details": details("signed-8cdc1683")}),
        ("mistral", {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "x"}], "closed": True}]}),
        ("groq", {}),
        ("azure", {}),
    ],
)
def test_what_a_service_takes(dialect: str, message: dict[str, Any]) -> None:
    read(dialect, talk(**message))


def test_mistral_wants_no_user_right_after_a_result() -> None:
    raw = json.loads(talk())
    raw["messages"].append({"role": "user", "content": "and?"})
    with pytest.raises(Invalid, match="Unexpected role 'user' after role 'tool'"):
        read("mistral", json.dumps(raw).encode())
    read("groq", json.dumps(raw).encode())


# The client leaves its generators open at [DONE]; Trio says so when they are collected.
@pytest.mark.filterwarnings("ignore:Async generator .* was garbage collected:ResourceWarning")
@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
async def test_the_official_client_reads_every_dialect(dialect: Dialect) -> None:
    async with open_provider(lambda _: ANSWER, dialect=dialect) as server:
        client = openai.AsyncOpenAI(api_key=KEY, base_url=server.url + dialect.root, max_retries=0)
        ask = {"role": "user", "content": "hi"}
        stream = await client.chat.completions.create(model="m", messages=[ask], stream=True)  # type: ignore[list-item]
        text, arguments = "", ""
        async for chunk in stream:
            for choice in chunk.choices:
                text += choice.delta.content if isinstance(choice.delta.content, str) else ""
                for call in choice.delta.tool_calls or ():
                    assert call.function is not None
                    arguments += call.function.arguments or ""
        assert text == "Noon."
        assert json.loads(arguments) == {"text": "noon"}
        await client.close()
        del stream
        gc.collect()


def test_requests_have_the_types_of_the_official_client() -> None:
    called = AssistantTurn("Let me see.", (ToolCall("c1", "reply", {"text": "x"}),))
    turns = (UserTurn(text="hi"), called, UserTurn((ToolResult("c1", "reply", "done"),), "thanks"))
    request = ModelRequest("sys", turns, (REPLY,), options=CallOptions(effort="high", temperature=0.5))
    sent = json.loads(ChatWire("m").body(request))
    TypeAdapter(params.CompletionCreateParamsStreaming).validate_python(sent, strict=False, extra="forbid")
