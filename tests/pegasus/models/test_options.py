"""Options that hold for a call: which of the four places wins."""

from __future__ import annotations

import pytest

from pegasus.models.base import CallOptions
from pegasus.models.providers.accounts import find_providers
from pegasus.models.providers.connections import is_local_address
from pegasus.models.setup import effective_options
from pegasus.settings import ModelOptionSettings, ModelSettings, ProviderSettings


def effective(
    role: str = "default", settings: ModelSettings | None = None, spec: str = "openai/x", **provider: object
) -> CallOptions:
    name = spec.partition("/")[0]
    providers = find_providers({name: ProviderSettings(name, **provider)})  # type: ignore[arg-type]
    return effective_options(role, spec, settings or ModelSettings(), providers[name])


def test_nothing_is_set() -> None:
    assert effective() == CallOptions()


def test_the_role_beats_the_model_the_provider_and_the_rest() -> None:
    places = {
        "compact": ModelOptionSettings(effort="low"),
        "openai/x": ModelOptionSettings(effort="high", max_tokens=7),
    }
    settings = ModelSettings(effort="medium", options=places)
    assert effective("compact", settings).effort == "low"
    assert effective("default", settings).effort == "high"
    assert effective("default", settings, "openai/other").effort == "medium"
    assert effective("compact", settings, max_tokens=9).max_tokens == 7
    assert effective("compact", settings, "openai/other", max_tokens=9).max_tokens == 9


def test_a_temperature_of_zero_counts() -> None:
    settings = ModelSettings(options={"compact": ModelOptionSettings(temperature=0.0)})
    assert effective("compact", settings, temperature=1.5).temperature == 0
    assert effective("default", settings, temperature=1.5).temperature == 1.5
    assert effective("default", settings).temperature is None


def test_tables_are_joined() -> None:
    role = ModelOptionSettings(headers={"A": "role"}, extra_body={"x": {"deep": 1}})
    model = ModelOptionSettings(headers={"A": "model", "B": "model"}, query={"q": "model"}, extra_body={"x": 2, "y": 3})
    settings = ModelSettings(options={"subagent": role, "openai/x": model})
    options = effective("subagent", settings, headers={"A": "provider", "C": "provider"}, extra_body={"y": 4, "z": 5})
    assert options.headers == {"A": "role", "B": "model", "C": "provider"}
    assert options.query == {"q": "model"}
    assert options.extra_body == {"x": {"deep": 1}, "y": 3, "z": 5}


def test_a_server_of_ones_own_gets_more_time_unless_a_time_is_set() -> None:
    assert effective(spec="ollama/x").timeout == 600
    assert effective(spec="ollama/x", base_url="https://ollama.example.com").timeout == 120
    assert effective(settings=ModelSettings(timeout=90), spec="ollama/x").timeout == 90
    own = ModelSettings(options={"ollama/x": ModelOptionSettings(timeout=120, silence_timeout=5)})
    assert effective(settings=own, spec="ollama/x").timeout == 120
    assert effective(settings=own, spec="ollama/x").silence_timeout == 5
    assert effective().timeout == 120
    assert effective().silence_timeout == 60


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:11434/v1",
        "http://127.0.0.1:8080",
        "http://[::1]:1234/v1",
        "http://192.168.1.20:8000/v1",
        "http://10.0.0.5/v1",
        "http://ollama:11434",
        "http://gpu.local/v1",
    ],
)
def test_addresses_of_ones_own_network(url: str) -> None:
    assert is_local_address(url)


@pytest.mark.parametrize("url", ["https://api.openai.com/v1", "http://8.8.8.8", "", "http://[::1", "https://a.b.c/x"])
def test_addresses_elsewhere(url: str) -> None:
    assert not is_local_address(url)


def test_options_show_no_secret() -> None:
    assert "hidden" not in repr(effective(headers={"X": "hidden"}))
