"""The HTTP client of providers: what it sends, and what becomes of refusals."""

from __future__ import annotations

import json
import random
from typing import Any

import httpx2
import pytest

from pegasus.models import ModelError, ModelService
from pegasus.models.formats.anthropic import AnthropicWire
from pegasus.models.formats.chat import ChatWire
from pegasus.models.formats.ollama import OllamaWire
from pegasus.models.providers.connections import ProviderClient, RefusedByServer, SdkClient
from pegasus.settings import ModelSettings, ProviderSettings
from pegasus.testing.provider import ProviderServer, open_provider
from pegasus.testing.provider.answers import ProviderAnswer, page, refuse, reset
from pegasus.testing.provider.ollama import OllamaHost
from tests.pegasus.models.conftest import KEY, request


async def test_a_key_is_sent_as_a_bearer_token_and_headers_are_added() -> None:
    async with open_provider(lambda _: ProviderAnswer("hi"), api_key=KEY) as server:
        client = ProviderClient(KEY, f"{server.openai_url}/")
        await client.load()
        body = ChatWire("m").body(request())
        response = await client.post("/chat/completions", body, headers={"X-Team": "7"}, query={"v": "1"})
        assert response.status_code == 200
        await response.aclose()
        await client.aclose()
        (seen,) = server.requests
    assert (seen.headers["x-team"], seen.query, seen.headers["content-type"]) == ("7", "v=1", "application/json")


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
async def test_a_header_replaces_that_of_the_client_whatever_its_case(kind: str) -> None:
    async with open_provider(lambda _: ProviderAnswer("hi")) as server:
        client, path, body = reach(server, kind)
        await client.load()
        for headers in ({"User-Agent": "team-7"}, {"user-agent": "team-8"}, {}):
            response = await client.post(path, body, headers=headers)
            await response.aclose()
        await client.aclose()
        seen = [each.headers["user-agent"] for each in server.requests]
    assert seen[:2] == ["team-7", "team-8"]
    assert seen[2] == "pegasus" or seen[2].startswith("AsyncAnthropic")


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
async def test_a_body_in_pieces_is_one_body_with_its_length(kind: str) -> None:
    async with open_provider(lambda _: ProviderAnswer("hi")) as server:
        client, path, body = reach(server, kind)
        await client.load()
        for pieces in ([body], [body[:9], body[9:50], body[50:]]):
            response = await client.post(path, pieces)
            assert response.status_code == 200
            await response.aclose()
        await client.aclose()
        whole, parts = server.requests
    assert parts.raw == whole.raw == json.loads(body)
    assert parts.headers["content-length"] == str(len(body))
    assert "transfer-encoding" not in parts.headers


def reach(server: ProviderServer, kind: str) -> tuple[ProviderClient, str, bytes]:
    """Return a client of a server, and path and body of a call."""
    if kind == "openai":
        return ProviderClient(KEY, server.openai_url), "/chat/completions", ChatWire("m").body(request())
    return SdkClient(KEY, server.url, {}), AnthropicWire.path, AnthropicWire("m").body(request())


@pytest.mark.parametrize("additions", [{}, {"X-Api-Key": KEY}])
async def test_anthropic_gets_the_headers_of_its_own_sdk_but_those_about_this_machine(
    additions: dict[str, str],
) -> None:
    import anthropic  # takes a second of each worker that collects the tests

    body = AnthropicWire("m").body(request())
    async with open_provider(lambda _: ProviderAnswer("hi"), api_key=KEY) as server:
        client = SdkClient(KEY, server.url, additions)
        await client.load()
        response = await client.post(AnthropicWire.path, body, headers={"anthropic-beta": "x"}, query={"v": "1"})
        await response.aclose()
        await client.aclose()
        async with anthropic.AsyncAnthropic(
            api_key=KEY, base_url=server.url, max_retries=0, default_headers=additions, open_telemetry=False
        ) as official:
            options: Any = {"headers": {"anthropic-beta": "x"}, "params": {"v": "1"}}
            await official.post(AnthropicWire.path, content=body, options=options, cast_to=httpx2.Response)
        ours, theirs = server.requests
    assert (ours.path, ours.query) == (theirs.path, theirs.query)
    expected = {name: value for name, value in theirs.headers.items() if not name.startswith("x-stainless-")}
    assert ours.headers == {**expected, "x-stainless-retry-count": "0"}


@pytest.mark.parametrize(
    ("answer", "status", "body"),
    [
        (refuse(404, "no such model"), 404, {"error": {"message": "no such model", "type": "not_found_error"}}),
        (page("<html>busy</html>", 503), 503, "<html>busy</html>"),
        (ProviderAnswer(status=500, body=b"", content_type="text/plain"), 500, ""),
        (ProviderAnswer(status=400, body=b"[" * 100_000, content_type="application/json"), 400, "[" * 100_000),
    ],
)
@pytest.mark.parametrize("kind", ["openai", "anthropic"])
async def test_a_refusal_has_its_status_and_body(answer: ProviderAnswer, status: int, body: object, kind: str) -> None:
    async with open_provider(lambda _: answer) as server:
        client, path, call = reach(server, kind)
        await client.load()
        with pytest.raises(RefusedByServer) as caught:
            await client.post(path, call)
        await client.aclose()
    assert caught.value.status_code == status
    found = caught.value.body
    if isinstance(body, dict):
        assert isinstance(found, dict)
        assert found["error"]["message"] == body["error"]["message"]
    else:
        assert found == body


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
async def test_only_the_beginning_of_a_huge_refusal_is_read(kind: str) -> None:
    huge = ProviderAnswer(status=400, body=b"x" * 20_000_000, content_type="text/plain")
    async with open_provider(lambda _: huge) as server:
        client, path, call = reach(server, kind)
        await client.load()
        with pytest.raises(RefusedByServer) as caught:
            await client.post(path, call)
        await client.aclose()
    assert isinstance(caught.value.body, str)
    assert 1_000_000 < len(caught.value.body) < 2_000_000


async def test_a_proxy_of_the_environment_is_not_asked_for_a_server_of_ones_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with open_provider(lambda _: ProviderAnswer("hi"), ollama=OllamaHost()) as server:
        accounts = {"ollama": ProviderSettings(base_url=server.url)}
        service = ModelService(ModelSettings(default="ollama/test-model"), accounts, rng=random.Random(1))
        assert (await service.client().generate(request())).text == "hi"
        assert service.context_window() == 32_768
        await service.aclose()


async def test_a_connection_that_is_reset_is_tried_again() -> None:
    answers = [reset(), ProviderAnswer("hi")]
    async with open_provider(lambda _: answers.pop(0), ollama=OllamaHost()) as server:
        accounts = {"ollama": ProviderSettings(base_url=server.url)}
        service = ModelService(ModelSettings(default="ollama/test-model"), accounts, rng=random.Random(1))
        assert (await service.client().generate(request())).text == "hi"
        await service.aclose()


@pytest.mark.parametrize(
    ("provider", "says"),
    [("ollama", "(`ollama serve`)"), ("llamacpp", "llama-server -m"), ("lmstudio", "`lms server start`")],
)
async def test_a_server_that_is_not_running_is_named_with_how_to_start_it(
    provider: str, says: str, fast_clock: object
) -> None:
    accounts = {provider: ProviderSettings(base_url="http://127.0.0.1:1/v1")}
    service = ModelService(ModelSettings(default=f"{provider}/m"), accounts, rng=random.Random(1))
    with pytest.raises(ModelError, match="does not answer at") as caught:
        await service.client().generate(request())
    assert says in str(caught.value)
    await service.aclose()


async def test_after_closing_it_connects_again() -> None:
    async with open_provider(lambda _: ProviderAnswer("hi"), ollama=OllamaHost()) as server:
        client = ProviderClient("", server.url)
        for _ in range(2):
            await client.load()
            response = await client.post("/api/chat", OllamaWire("test-model").body(request()))
            assert json.loads((await response.aread()).splitlines()[0])["message"]["content"] == "hi"
            await response.aclose()
            await client.aclose()
