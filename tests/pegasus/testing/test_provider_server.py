"""The test provider itself: it must refuse what the real ones refuse, or the tests that lean on it prove nothing."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import trio

from pegasus.models import AssistantTurn, ModelRequest, ToolCall, ToolResult, ToolSpec, UserTurn
from pegasus.models.formats.anthropic import AnthropicWire
from pegasus.models.formats.chat import ChatWire
from pegasus.testing.provider import open_provider
from pegasus.testing.provider.answers import Call, ProviderAnswer, echo, hang
from pegasus.testing.provider.formats import parse
from pegasus.testing.provider.requests import Invalid, ProviderRequest
from tests.pegasus.models.conftest import REPLY

JSON = {"content-type": "application/json"}
AUTH = {"authorization": "Bearer key", "anthropic-version": "2026-10-21"}
PATHS = {"anthropic": "/v1/messages", "openai": "/v1/chat/completions"}
ASSISTANT = AssistantTurn("I think", (ToolCall("a", "reply", {"text": "x"}), ToolCall("b", "reply", {})))
TALK = ModelRequest(
    "sys",
    (
        UserTurn(text="[channel: web | id: c1 | thread: t]\nhi"),
        ASSISTANT,
        UserTurn(
            (ToolResult("a", "reply", "ok"), ToolResult("b", "reply", "Error", True)), "[channel: cli | id: main]\nnext"
        ),
    ),
    (REPLY, ToolSpec("current_time", "Time.", {"type": "object"})),
)
Change = Callable[[Any], object]


def good(form: str) -> Any:
    wire = AnthropicWire("m") if form == "anthropic" else ChatWire("m")
    return json.loads(wire.body(TALK))


def read(form: str, raw: Any) -> ProviderRequest:
    return parse(PATHS[form], JSON, json.dumps(raw).encode())


def message(n: int, key: str, value: object) -> Change:
    return lambda raw: raw["messages"][n].__setitem__(key, value)


def block(n: int, at: int, key: str, value: object) -> Change:
    return lambda raw: raw["messages"][n]["content"][at].__setitem__(key, value)


def top(key: str, value: object) -> Change:
    return lambda raw: raw.__setitem__(key, value)


@pytest.mark.parametrize("form", ["anthropic", "openai"])
def test_a_good_request_is_read_as_the_turns_it_was_made_of(form: str) -> None:
    seen = read(form, good(form))
    assert seen.system == "sys"
    assert seen.tools == ("reply", "current_time")
    assert [turn.text for turn in seen.turns] == [turn.text for turn in TALK.turns]
    assert seen.last.results == TALK.turns[2].results
    assert dict(seen.calls) == {call.id: call for call in ASSISTANT.calls}


@pytest.mark.parametrize(
    "change",
    [
        top("temperatur", 1),
        top("max_tokens", 0),
        top("model", ""),
        top("messages", []),
        top("tools", []),
        top("tool_choice", {"type": "tool", "name": "nothing"}),
        top("system", [{"type": "text", "text": " "}]),
        lambda raw: raw.pop("max_tokens"),
        lambda raw: raw.pop("tools"),
        lambda raw: raw["messages"].pop(),
        lambda raw: raw["messages"].pop(0),
        lambda raw: raw["messages"].pop(1),
        lambda raw: raw["messages"].insert(1, raw["messages"][0]),
        lambda raw: raw["tools"].append(raw["tools"][0]),
        lambda raw: raw["tools"][0].__setitem__("name", "a.b"),
        lambda raw: raw["tools"][0].__setitem__("input_schema", {}),
        lambda raw: raw["messages"][2]["content"].pop(0),
        lambda raw: raw["messages"][2]["content"].insert(0, raw["messages"][2]["content"].pop()),
        lambda raw: raw["messages"][1]["content"].append({"type": "thinking", "thinking": "", "signature": "s"}),
        lambda raw: raw["messages"][1]["content"].insert(0, {"type": "thinking", "thinking": "x"}),
        lambda raw: raw["messages"][1].__setitem__("tool_calls", []),
        message(0, "role", "system"),
        message(0, "content", ""),
        message(0, "content", []),
        block(0, 0, "text", ""),
        block(0, 0, "text", " \n"),
        block(0, 0, "type", "tool_use"),
        block(1, 1, "id", "b"),
        block(1, 1, "id", "a.b"),
        block(1, 1, "name", "two words"),
        block(1, 1, "input", "{}"),
        block(2, 0, "tool_use_id", "nobody"),
        block(2, 0, "is_error", "yes"),
        block(2, 0, "content", ""),
        block(0, 0, "cache_control", {"type": "forever"}),
        lambda raw: [
            b.__setitem__("cache_control", {"type": "ephemeral"}) for m in raw["messages"] for b in m["content"]
        ],
    ],
)
def test_anthropic_refuses(change: Change) -> None:
    raw = copy.deepcopy(good("anthropic"))
    change(raw)
    with pytest.raises(Invalid):
        read("anthropic", raw)


@pytest.mark.parametrize(
    "change",
    [
        top("top_k", 1),
        top("max_completion_tokens", 10),
        top("messages", []),
        top("tools", []),
        top("tool_choice", "nothing"),
        top("stream", False),
        lambda raw: raw["messages"].pop(1),
        lambda raw: raw["messages"].pop(2),
        lambda raw: raw["messages"].pop(3),
        lambda raw: raw["messages"].insert(1, raw["messages"][1]),
        lambda raw: raw["messages"].insert(3, raw["messages"][1]),
        lambda raw: raw["messages"][2]["tool_calls"][0].__setitem__("id", "b"),
        lambda raw: raw["messages"][2]["tool_calls"][0].__setitem__("id", "x" * 41),
        lambda raw: raw["messages"][2]["tool_calls"][0]["function"].__setitem__("arguments", {}),
        lambda raw: raw["messages"][2]["tool_calls"][0]["function"].__setitem__("arguments", "{"),
        lambda raw: raw["messages"][2]["tool_calls"][0]["function"].__setitem__("name", "a.b"),
        message(2, "tool_calls", []),
        message(1, "content", ""),
        message(1, "role", "human"),
        message(3, "tool_call_id", "nobody"),
        message(3, "content", " "),
    ],
)
def test_openai_refuses(change: Change) -> None:
    raw = copy.deepcopy(good("openai"))
    change(raw)
    with pytest.raises(Invalid):
        read("openai", raw)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"max_tokens":NaN}', b"\xff"])
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(Invalid):
        parse("/v1/messages", JSON, body)


# ------------------------------------------------------------------ scripts


def test_echo_replies_to_each_new_message_and_again_to_what_failed() -> None:
    answer = echo(read("anthropic", good("anthropic")))
    assert answer.calls == (
        Call("reply", {}),
        Call("reply", {"text": "echo: next", "channelId": "main", "channelType": "cli"}),
    )


def test_echo_gives_the_thread_back() -> None:
    raw = good("openai")
    del raw["messages"][2:]
    assert echo(read("openai", raw)).calls[0].arguments == {
        "text": "echo: hi", "channelId": "c1", "channelType": "web", "replyTo": "t",
    }  # fmt: skip


def test_a_cancelled_call_counts_as_failed() -> None:
    raw = good("anthropic")
    raw["messages"][2]["content"] = [
        {"type": "tool_result", "tool_use_id": "a", "content": '{"cancelled":true,"reason":"process restarted"}'},
        {"type": "tool_result", "tool_use_id": "b", "content": '{"queued":true}'},
    ]
    assert echo(read("anthropic", raw)).calls == (Call("reply", {"text": "x"}),)


# ------------------------------------------------------------------ the server


@pytest.mark.parametrize("form", ["anthropic", "openai"])
async def test_an_invalid_request_is_recorded_and_answered_400(form: str) -> None:
    async with open_provider() as server, httpx.AsyncClient(base_url=server.url, headers=AUTH) as client:
        answer = await client.post(PATHS[form], json={"model": "m", "messages": [], "max_tokens": 1})
        assert answer.status_code == 400
        assert answer.json()["error"]["message"] == server.invalid[0]
        assert not server.requests


async def test_who_has_no_key_or_the_wrong_one_gets_401() -> None:
    async with open_provider(api_key="right") as server, httpx.AsyncClient(base_url=server.url) as client:
        for headers in ({}, {"authorization": "Bearer wrong"}):
            assert (await client.post(PATHS["openai"], json={}, headers=headers)).status_code == 401
        right = await client.post(PATHS["openai"], json=good("openai"), headers={"authorization": "Bearer right"})
        assert right.status_code == 200


@pytest.mark.parametrize("form", ["anthropic", "openai"])
async def test_an_answer_comes_in_one_piece_where_it_is_not_streamed(form: str) -> None:
    raw = {**good(form), "stream": False}
    raw.pop("stream_options", None)
    async with open_provider() as server, httpx.AsyncClient(base_url=server.url, headers=AUTH) as client:
        text = (await client.post(PATHS[form], json=raw)).text
        assert "echo: next" in json.dumps(json.loads(text))


async def test_a_client_that_hangs_up_while_the_script_waits_is_noticed() -> None:
    waiting, ended = trio.Event(), trio.Event()

    async def never(_: ProviderRequest) -> ProviderAnswer:
        waiting.set()
        try:
            await trio.sleep_forever()
        finally:
            ended.set()
        return hang()

    async with open_provider(never) as server, httpx.AsyncClient(base_url=server.url, headers=AUTH) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: client.post(PATHS["openai"], json=good("openai")))
            await waiting.wait()
            nursery.cancel_scope.cancel()
        with trio.fail_after(2):
            await server.until(lambda it: it.hung_up == 1)
            await ended.wait()


def test_as_a_process_it_says_its_url_first_and_counts() -> None:
    command = [sys.executable, "-m", "pegasus.testing.provider", "--script", "silent"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            url = process.stdout.readline().strip()
            answer = httpx.post(url + PATHS["anthropic"], json=good("anthropic"), headers=AUTH, timeout=10)
            assert "I keep that to myself." in answer.text
            assert httpx.get(url, timeout=10).json() == {"requests": 1, "answered": 1, "invalid": []}
        finally:
            process.kill()
