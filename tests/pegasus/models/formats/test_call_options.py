"""Options of the settings on the wire, in both formats."""

from __future__ import annotations

import json
import random

import attrs
import pytest

from pegasus.models import Label, ModelError, ModelRequest, ModelService, UserTurn
from pegasus.settings import ModelOptionSettings, ModelSettings, ProviderSettings
from pegasus.testing.provider import ProviderServer, open_provider
from pegasus.testing.provider.answers import ProviderAnswer, refuse
from pegasus.testing.provider.requests import ProviderRequest
from tests.pegasus.models.conftest import KEY, provider_of

HELLO = ModelRequest("", (UserTurn(text="hello"),))


def service_of(
    form: str, server: ProviderServer, options: dict[str, ModelOptionSettings], **provider: object
) -> ModelService:
    settings = ModelSettings(default=f"{form}/m", options=options)
    account: ProviderSettings = attrs.evolve(provider_of(form, server), **provider)  # type: ignore[arg-type]
    return ModelService(settings, {form: account}, rng=random.Random(1))


@pytest.fixture(params=["anthropic", "openai"])
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_body_headers_and_query(form: str) -> None:
    async with open_provider(lambda _: ProviderAnswer("hi")) as server:
        role = ModelOptionSettings(temperature=0.5, max_tokens=77, extra_body={"top_p": 0.9, "model": "other"})
        service = service_of(form, server, {"compact": role}, headers={"X-Team": "seven"}, query={"api-version": "v9"})
        await service.client("compact").generate(HELLO)
        await service.client().generate(HELLO)
        compact, plain = server.requests
        assert compact.raw["temperature"] == 0.5
        assert compact.raw["max_tokens"] == 77
        assert compact.raw["top_p"] == 0.9
        assert compact.model == "other"
        assert list(compact.raw)[-1] == "messages"
        assert not {"temperature", "top_p"} & set(plain.raw)
        assert plain.raw["max_tokens"] == 8192
        assert [request.headers["x-team"] for request in server.requests] == ["seven", "seven"]
        assert [request.query for request in server.requests] == ["api-version=v9", "api-version=v9"]
        await service.aclose()


async def test_a_model_by_its_name_has_the_options_of_the_role_in_its_label(form: str) -> None:
    async with open_provider(lambda _: ProviderAnswer("hi")) as server:
        service = service_of(form, server, {"subagent": ModelOptionSettings(max_tokens=55)})
        await service.client(f"{form}/other").generate(attrs.evolve(HELLO, label=Label("subagent")))
        assert server.requests[0].raw["max_tokens"] == 55
        await service.aclose()


async def test_a_header_of_the_settings_replaces_one_of_the_sdk(form: str) -> None:
    async with open_provider(lambda _: ProviderAnswer("hi")) as server:
        name = "X-Api-Key" if form == "anthropic" else "Authorization"
        service = service_of(form, server, {}, headers={name: KEY, "User-Agent": "mine"})
        await service.client().generate(HELLO)
        assert server.requests[0].headers["user-agent"] == "mine"
        assert server.requests[0].headers[name.lower()] == KEY
        await service.aclose()


async def test_a_model_that_refuses_a_temperature_is_asked_without_it(form: str) -> None:
    def script(request: ProviderRequest) -> ProviderAnswer:
        if "temperature" in request.raw:
            return refuse(400, "Unsupported value: 'temperature' does not support 0.2 with this model.")
        return ProviderAnswer("hi")

    async with open_provider(script) as server:
        service = service_of(form, server, {}, temperature=0.2)
        for _ in range(2):
            await service.client().generate(HELLO)
        assert ["temperature" in request.raw for request in server.requests] == [True, False, False]
        await service.aclose()


async def test_values_of_headers_are_in_no_message(form: str) -> None:
    async with open_provider(lambda _: refuse(400, "I do not like seven-secret-1234")) as server:
        service = service_of(form, server, {}, headers={"X-Team": "seven-secret-1234"})
        with pytest.raises(ModelError) as caught:
            await service.client().generate(HELLO)
        assert "I do not like …" in str(caught.value)
        await service.aclose()


async def test_a_count_of_tokens_has_the_headers_and_the_query_of_the_settings() -> None:
    """A gateway in front of the service may need them for any request."""
    asked: list[ProviderRequest] = []

    def count(request: ProviderRequest) -> int:
        asked.append(request)
        return 100

    async with open_provider(lambda _: ProviderAnswer("hi")) as server:
        server.tokens = count
        role = ModelOptionSettings(headers={"X-Role": "r"})
        service = service_of(
            "anthropic", server, {"compact": role}, headers={"X-Team": "seven"}, query={"api-version": "v9"}
        )
        for label in (Label("compact"), Label("default"), Label("subagent")):
            call, counter = attrs.evolve(HELLO, label=label), service.target("default").counter
            assert await counter.compare(call, counter.estimate(call)) == 100
        assert [request.headers.get("x-team") for request in asked] == ["seven"] * 3
        assert [request.headers.get("x-role") for request in asked] == ["r", None, None]
        assert [request.query for request in asked] == ["api-version=v9"] * 3
        await service.aclose()


async def test_equal_options_give_equal_bytes(form: str) -> None:
    async with open_provider(lambda _: ProviderAnswer("hi")) as server:
        service = service_of(form, server, {}, extra_body={"metadata": {"user_id": "é"}}, temperature=1)
        for _ in range(2):
            await service.client().generate(HELLO)
        first, second = server.requests
        assert first.body == second.body
        assert json.loads(first.body)["metadata"] == {"user_id": "é"}
        await service.aclose()
