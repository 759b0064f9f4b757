"""Which model is meant: roles, defaults, providers, and the mistakes a person can make there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pegasus.models.catalog import known_window
from pegasus.models.providers.accounts import KNOWN_SERVICES, ModelConfigError, find_providers, split_spec
from pegasus.models.roles import list_choices, problems, role_spec
from pegasus.settings import ModelSettings, ProviderSettings, SettingsSource, load_settings


def test_without_any_key_it_is_the_stand_in() -> None:
    assert role_spec("default", ModelSettings(), find_providers({})) == "offline/stand-in"


@pytest.mark.parametrize(
    ("env", "provider"),
    [
        ({"ANTHROPIC_API_KEY": "k"}, "anthropic"),
        ({"OPENAI_API_KEY": "k"}, "openai"),
        ({"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"}, "anthropic"),
        ({"ANTHROPIC_API_KEY": "", "OPENAI_API_KEY": "k"}, "openai"),
        ({"GEMINI_API_KEY": "k"}, "gemini"),
        ({"GOOGLE_API_KEY": "k"}, "gemini"),
        ({"GROQ_API_KEY": "k", "OPENROUTER_API_KEY": "k"}, "openrouter"),
        ({"MISTRAL_API_KEY": "k"}, "mistral"),
        ({"DEEPSEEK_API_KEY": "k"}, "deepseek"),
        ({"XAI_API_KEY": "k"}, "xai"),
        ({"AWS_BEARER_TOKEN_BEDROCK": "k"}, "offline"),
        ({"AWS_BEARER_TOKEN_BEDROCK": "k", "AWS_REGION": "us-west-2"}, "bedrock"),
        ({"GOOGLE_OAUTH_ACCESS_TOKEN": "k", "GOOGLE_CLOUD_PROJECT": "p"}, "vertex"),
        ({"AZURE_OPENAI_API_KEY": "k", "AZURE_OPENAI_ENDPOINT": "https://me.openai.azure.com/"}, "offline"),
    ],
)
def test_the_default_is_the_first_provider_with_a_key(env: dict[str, str], provider: str) -> None:
    assert role_spec(
        "default", ModelSettings(), find_providers(load_settings(SettingsSource(), env).providers)
    ).startswith(provider + "/")


def test_a_key_in_the_settings_counts_as_one() -> None:
    providers = find_providers({"anthropic": ProviderSettings("anthropic", api_key="k")})
    assert role_spec("default", ModelSettings(), providers).startswith("anthropic/")


def test_roles_that_are_not_named_fall_back_to_default() -> None:
    settings = ModelSettings(default="openai/a", compact="ollama/b")
    specs = [role_spec(role, settings, find_providers({})) for role in ("default", "subagent", "compact", "reflection")]
    assert specs == ["openai/a", "openai/a", "ollama/b", "openai/a"]


def test_a_model_may_be_named_where_a_role_is_expected() -> None:
    assert role_spec("openai/x", ModelSettings(default="openai/a"), find_providers({})) == "openai/x"


def test_a_model_id_may_have_slashes_of_its_own() -> None:
    provider, model = split_spec("ollama/library/llama3:8b", find_providers({}), "models.default")
    assert (provider.name, model) == ("ollama", "library/llama3:8b")


def test_what_a_section_leaves_out_is_of_the_environment_only_under_the_name_of_its_type(tmp_path: Path) -> None:
    """Those are the defaults of their keys, which a file says otherwise, with "" too."""
    file = tmp_path / "pegasus.toml"
    file.write_text(
        '[providers.openai]\nbase_url = "http://proxy:1"\n'
        '[providers.anthropic]\napi_key = ""\n'
        '[providers.corp]\ntype = "openai"\nbase_url = "http://elsewhere:1"\n'
    )
    keys = {"OPENAI_API_KEY": "o", "ANTHROPIC_API_KEY": "a", "OLLAMA_BASE_URL": "http://box:1"}
    providers = find_providers(load_settings(SettingsSource(file), keys).providers)
    assert (providers["openai"].api_key, providers["openai"].base_url) == ("o", "http://proxy:1")
    assert providers["anthropic"].api_key == ""
    assert providers["corp"].api_key == ""
    assert providers["ollama"].base_url == "http://box:1"


@pytest.mark.parametrize(
    ("settings", "configured", "words"),
    [
        (ModelSettings(default="gpt"), {}, ["models.default", '"gpt"', "<provider>/<model>"]),
        (ModelSettings(default="openai/"), {}, ["models.default", "<provider>/<model>"]),
        (ModelSettings(compact="nobody/x"), {}, ["models.compact", "nobody", "anthropic"]),
        (ModelSettings(default="anthropic/x"), {}, ["models.default", "no key", "ANTHROPIC_API_KEY"]),
        (ModelSettings(fallback=("offline/x", "openai/y")), {}, ["models.fallback[1]", "OPENAI_API_KEY"]),
        (ModelSettings(default="a/x"), {"a": ProviderSettings("openai", "k", "localhost:1")}, ["providers.a.base_url", "http://"]),
        (ModelSettings(default="a/x"), {"a": ProviderSettings("openai", "k", "http://:1")}, ["providers.a.base_url"]),
        (ModelSettings(default="a/x"), {"a": ProviderSettings("openai", "two words")}, ["providers.a.api_key"]),
        (ModelSettings(default="a/x"), {"a": ProviderSettings("openai", "schlüssel")}, ["providers.a.api_key"]),
        (ModelSettings(), {"a": ProviderSettings()}, ["providers.a.type", "anthropic, openai, gemini, ", "lmstudio"]),
    ],
)  # fmt: skip
def test_each_mistake_is_named_with_its_key(
    settings: ModelSettings, configured: dict[str, ProviderSettings], words: list[str]
) -> None:
    found = problems(settings, configured)
    assert len(found) == 1
    assert all(word in found[0] for word in words)
    assert "schlüssel" not in found[0]


def test_good_settings_have_no_problems() -> None:
    configured = {
        "lab": ProviderSettings("openai", base_url="http://localhost:1234/v1"),
        "gemini": ProviderSettings(api_key="k"),
    }
    settings = ModelSettings(default="lab/x", subagent="gemini/y", compact="ollama/z", fallback=("offline/stand-in",))
    assert problems(settings, configured) == []


def test_a_secret_is_not_in_an_error() -> None:
    with pytest.raises(ModelConfigError) as caught:
        split_spec("a/x", find_providers({"a": ProviderSettings("openai", "geheim nis")}), "models.default")
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("anthropic/claude-sonnet-5-5", 1_000_000),
        ("anthropic/claude-haiku-4-5-20251001", 200_000),
        ("openai/gpt-6.1-terra", 1_050_000),
        ("openai/gpt-4o-mini", 128_000),
        ("openrouter/openai/gpt-4.1", 1_047_576),
        ("ollama/llama3", 0),
    ],
)
def test_context_windows_are_known_by_name(model: str, tokens: int) -> None:
    assert known_window(model) == tokens


@pytest.mark.parametrize(
    ("env", "spec", "url"),
    [
        ({"GROQ_API_KEY": "k"}, "groq/openai/gpt-oss-120b", "https://api.groq.com/openai/v1"),
        (
            {"AZURE_OPENAI_API_KEY": "k", "AZURE_OPENAI_ENDPOINT": "https://me.openai.azure.com/"},
            "azure/mine",
            "https://me.openai.azure.com/openai/v1",
        ),
        (
            {"AZURE_OPENAI_API_KEY": "k", "AZURE_OPENAI_ENDPOINT": "https://me.openai.azure.com/openai/v1/"},
            "azure/mine",
            "https://me.openai.azure.com/openai/v1",
        ),
        (
            {"AWS_BEARER_TOKEN_BEDROCK": "k", "AWS_DEFAULT_REGION": "us-east-1", "AWS_REGION": "eu-central-1"},
            "bedrock/openai.gpt-oss-120b",
            "https://bedrock-mantle.eu-central-1.api.aws/v1",
        ),
        (
            {"GOOGLE_OAUTH_ACCESS_TOKEN": "k", "GOOGLE_CLOUD_PROJECT": "p-1"},
            "vertex/google/gemini-3.8-flash",
            "https://aiplatform.googleapis.com/v1/projects/p-1/locations/global/endpoints/openapi",
        ),
        ({}, "vllm/any", "http://localhost:8000/v1"),
    ],
)
def test_a_known_service_needs_nothing_but_its_variables(env: dict[str, str], spec: str, url: str) -> None:
    providers = find_providers(load_settings(SettingsSource(), env).providers)
    account, _ = split_spec(spec, providers, "models.default")
    assert account.url == url
    assert account.api_key == env.get(next((name for name in env if "KEY" in name or "TOKEN" in name), ""), "")
    assert not account.is_own_service


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("groq/x", "provider groq has no key; set GROQ_API_KEY, or api_key in [providers.groq]"),
        ("azure/x", "provider azure has no address; set AZURE_OPENAI_ENDPOINT, or base_url in [providers.azure]"),
        ("bedrock/x", "provider bedrock has no address; set AWS_REGION, or base_url in [providers.bedrock]"),
    ],
)
def test_what_a_known_service_lacks_is_named(spec: str, words: str) -> None:
    with pytest.raises(ModelConfigError, match=re.escape(words)):
        split_spec(spec, find_providers({}), "models.default")


def test_the_later_of_two_variables_for_a_key_wins() -> None:
    env = {"GEMINI_API_KEY": "gemini", "GOOGLE_API_KEY": "google"}
    assert load_settings(SettingsSource(), env).providers["gemini"].api_key == "gemini"


def test_a_section_may_give_the_name_of_a_service_to_another_server() -> None:
    providers = find_providers({"xai": ProviderSettings("anthropic", base_url="http://127.0.0.1:1")})
    account, _ = split_spec("xai/any", providers, "models.default")
    assert account.service is KNOWN_SERVICES["anthropic"], "nothing of xai counts for it"
    assert account.type == "anthropic"


@pytest.mark.parametrize(
    ("spec", "tokens"),
    [
        ("deepseek/deepseek-flash", 1_000_000),
        ("xai/grok-4.5", 500_000),
        ("groq/openai/gpt-oss-120b", 131_072),
        ("bedrock/openai.gpt-oss-120b", 131_072),
        ("mistral/mistral-medium-3-5", 0),
    ],
)
def test_windows_of_known_services(spec: str, tokens: int) -> None:
    assert known_window(spec) == tokens


def test_the_default_models_of_services_with_a_key_can_be_chosen() -> None:
    providers = find_providers(
        load_settings(SettingsSource(), {"GROQ_API_KEY": "k", "AWS_BEARER_TOKEN_BEDROCK": "k"}).providers
    )
    choices = list_choices(ModelSettings(), providers)
    assert "groq/openai/gpt-oss-120b" in choices
    assert not [spec for spec in choices if spec.startswith("bedrock/")]  # it has no address


@pytest.mark.parametrize(
    ("spec", "thinks"),
    [
        ("openai/gpt-6.1-terra", True),
        ("openai/gpt-4.1", False),
        ("anthropic/claude-sonnet-5-5", True),
        ("anthropic/claude-haiku-4-5", False),
        ("gemini/gemini-3.8-flash", True),
        ("deepseek/deepseek-flash", True),
        ("xai/grok-4.5", True),
        ("vllm/any", False),
    ],
)
def test_models_that_think_unasked_have_room_for_it(spec: str, thinks: bool) -> None:
    name, _, model = spec.partition("/")
    assert find_providers({})[name].thinks(model) is thinks
