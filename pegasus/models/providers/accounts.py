"""Providers: types of them, services that are known by name, and the accounts that the settings make of both.

A provider is a section of the settings, or a provider type or known service, which exists under its own name without a section: an API
key in the environment is all that it needs. Nothing here does I/O; mistakes of the settings are found before any call.

    providers = find_providers(settings.providers)
    split_spec("anthropic/claude-haiku-5-5", providers, "models.compact")  # (ProviderAccount("anthropic", …), "claude-haiku-5-5")

To add a provider, add an entry to `PROVIDERS` and to `KNOWN_SERVICES`, and its type to `PROVIDER_TYPES` of the settings. If its
servers speak a format of their own, write a `WireFormat` first. To add a service that speaks a known format, add an entry to
`KNOWN_SERVICES`, its type to `SERVICE_TYPES`, its variable to `PROVIDER_VARIABLES` (keys are read by the settings) and a line to
docs/user/models.md.

A service whose address depends on the account has no `base_url` here: it comes from the settings, or from a variable (the name of the
resource, the region, the project). Default models are those that the services recommend for agents and that call tools; they are used
only where the settings name none.

Errors name the key of the settings that is wrong, what was found there and what to do, because people read them in `pegasus config
check` and at the start. None of them contains a key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import attrs

from pegasus.messages import Json
from pegasus.models.providers.connections import ProviderClient, SdkClient
from pegasus.models.providers.local_servers import ollama_root
from pegasus.settings import PROVIDER_TYPES, SERVICE_TYPES

if TYPE_CHECKING:
    from pegasus.models.formats import ChatDialect, ChatWire, WireFormat
    from pegasus.settings import ProviderSettings


@attrs.frozen(eq=False, repr=False)
class KnownService:
    """A service under its name: one that a type of provider is for, or another one that speaks the protocol of a type."""

    base_url: str = ""
    """Its address; "" where it depends on the account."""
    key: str = ""
    """Environment variable of the key that it needs; "" for a service that is free."""
    default: str = ""
    """Model that is used if the settings name none and the key is known; "" for none."""
    families: tuple[str, ...] = ()
    """Beginnings of its models' names; () for any."""
    address: str = ""
    """Variable that the address comes from, for messages; "" where it is fixed."""


@attrs.frozen(eq=False, repr=False)
class ProviderType:
    """Protocol of a type of provider: its wire format and its HTTP client. The stand-in, which is not a server, has neither.

    The functions import a format when a model speaks it.
    """

    wire: Callable[[str, ProviderAccount], WireFormat] | None = None
    """Makes the wire format for a model by its name."""
    connect: Callable[[ProviderAccount], ProviderClient] | None = None
    """Makes the HTTP client."""


def _anthropic_client(account: ProviderAccount) -> ProviderClient:
    """Return a client. Servers other than Anthropic's own get the key in both headers that are in use."""
    headers = {} if account.is_own_service else {"X-Api-Key": account.api_key or "none"}
    return SdkClient(account.api_key, account.url, headers)


def _http_client(account: ProviderAccount) -> ProviderClient:
    """Return a client for a service in another format than Anthropic's."""
    return ProviderClient(account.api_key, ollama_root(account.url) if account.type == "ollama" else account.url)


def _anthropic_wire(model: str, account: ProviderAccount) -> WireFormat:
    from pegasus.models.formats import AnthropicWire

    return AnthropicWire(model)


def _openai_wire(model: str, account: ProviderAccount) -> WireFormat:
    if account.uses_responses(model):
        from pegasus.models.formats import ResponsesWire

        return ResponsesWire(model, "responses" if account.is_own_service else f"responses/{account.name}")
    return _chat(model, account)


def _chat(model: str, account: ProviderAccount) -> ChatWire:
    from pegasus.models.formats import ChatWire

    return ChatWire(model, account.dialect, is_own=account.type == "openai" and account.is_own_service)


def _ollama_wire(model: str, account: ProviderAccount) -> WireFormat:
    from pegasus.models.formats import OllamaWire

    return OllamaWire(model)


PROVIDERS: Final = {
    "anthropic": ProviderType(_anthropic_wire, _anthropic_client),
    "openai": ProviderType(_openai_wire, _http_client),
    "gemini": ProviderType(_chat, _http_client),
    "ollama": ProviderType(_ollama_wire, _http_client),
    "llamacpp": ProviderType(_chat, _http_client),
    "lmstudio": ProviderType(_chat, _http_client),
    "offline": ProviderType(),
}
"""By the types of the settings (`PROVIDER_TYPES`)."""
KNOWN_SERVICES: Final[Mapping[str, KnownService]] = {
    # Sonnet 5.5 is the current middle model (https://platform.claude.com/docs/en/about-claude/models/overview).
    "anthropic": KnownService("https://api.anthropic.com", "ANTHROPIC_API_KEY", "claude-sonnet-5-5", ("claude-",)),
    # GPT-6.1 Terra is the current middle model (https://developers.openai.com/api/docs/models).
    "openai": KnownService(
        "https://api.openai.com/v1", "OPENAI_API_KEY", "gpt-6.1-terra", ("gpt-", "chatgpt-", "o1", "o3", "o4")
    ),
    # https://ai.google.dev/gemini-api/docs/openai
    "gemini": KnownService(
        "https://generativelanguage.googleapis.com/v1beta/openai/",
        "GEMINI_API_KEY",
        "gemini-3.8-flash",
        ("gemini-", "gemma-"),
    ),
    "ollama": KnownService("http://localhost:11434"),
    "llamacpp": KnownService("http://localhost:8080/v1"),
    "lmstudio": KnownService("http://localhost:1234/v1"),
    "offline": KnownService(),
    # https://openrouter.ai/docs/quickstart, https://openrouter.ai/docs/features/model-routing
    "openrouter": KnownService("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", "openrouter/auto"),
    # https://console.groq.com/docs/openai, https://console.groq.com/docs/models
    "groq": KnownService("https://api.groq.com/openai/v1", "GROQ_API_KEY", "openai/gpt-oss-120b"),
    # https://docs.mistral.ai/capabilities/reasoning/
    "mistral": KnownService("https://api.mistral.ai/v1", "MISTRAL_API_KEY", "mistral-medium-3-5"),
    # https://api-docs.deepseek.com/quick_start/pricing
    "deepseek": KnownService("https://api.deepseek.com", "DEEPSEEK_API_KEY", "deepseek-flash", ("deepseek-",)),
    # https://docs.x.ai/docs/models
    "xai": KnownService("https://api.x.ai/v1", "XAI_API_KEY", "grok-4.5", ("grok-",)),
    # https://docs.together.ai/docs/openai-api-compatibility
    "together": KnownService("https://api.together.xyz/v1", "TOGETHER_API_KEY", "openai/gpt-oss-120b"),
    # https://docs.fireworks.ai/tools-sdks/openai-compatibility
    "fireworks": KnownService(
        "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY", "accounts/fireworks/models/gpt-oss-120b"
    ),
    # https://docs.aws.amazon.com/bedrock/latest/userguide/inference-chat-completions-mantle.html
    "bedrock": KnownService("", "AWS_BEARER_TOKEN_BEDROCK", "openai.gpt-oss-120b", address="AWS_REGION"),
    # https://cloud.google.com/vertex-ai/generative-ai/docs/start/openai
    "vertex": KnownService("", "GOOGLE_OAUTH_ACCESS_TOKEN", "google/gemini-3.8-flash", address="GOOGLE_CLOUD_PROJECT"),
    # https://learn.microsoft.com/azure/foundry/openai/api-version-lifecycle; models are deployments, whose names are the user's own
    "azure": KnownService("", "AZURE_OPENAI_API_KEY", address="AZURE_OPENAI_ENDPOINT"),
    # https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html
    "vllm": KnownService("http://localhost:8000/v1"),
}
"""By name: the services of the types, then others. The first with a key and a default model gives the default model."""
EXAMPLE: Final = "anthropic/claude-sonnet-5-5"


class ModelConfigError(ValueError):
    """A model or provider in the settings cannot work. `str()` names the key path and what to do.

    Example: `raise ModelConfigError('models.default: found "gpt"; allowed: "<provider>/<model>"')`. A start
    ends with it, a reload keeps the old settings, and a call becomes a ModelError.
    """


@attrs.frozen(repr=False)
class ProviderAccount:
    """A provider as it is used. Its repr does not show the key."""

    name: str
    """Name of the section in the settings, before the "/" of a model's name."""
    type: str
    """One of `PROVIDER_TYPES`: the wire format and the rules for keys."""
    api_key: str = ""
    """Key; "" where none is known or needed."""
    base_url: str = ""
    """"" for the service's own address."""
    wire: str = ""
    """Wire format: "chat", "responses", or "" where the model decides."""
    temperature: float = -1.0
    """Option of all its models, see `effective_options`; so are the following. -1: not set."""
    max_tokens: int = 0
    """Length of answers at most; 0: not set."""
    headers: Mapping[str, str] = attrs.field(factory=dict)
    """Further headers of each request. They may hold keys."""
    query: Mapping[str, str] = attrs.field(factory=dict)
    """Further query parameters of each request. They may hold keys."""
    extra_body: Mapping[str, Json] = attrs.field(factory=dict)
    """Further fields of each request's body."""

    @property
    def kind(self) -> ProviderType:
        """Entry of its type in `PROVIDERS`."""
        return PROVIDERS[self.type]

    @property
    def service(self) -> KnownService:
        """Entry of its name in `KNOWN_SERVICES`; that of its type where it has another name, or its name another protocol."""
        return KNOWN_SERVICES[self.name if self._is_known else self.type]

    @property
    def _is_known(self) -> bool:
        """True if it is one of the services that are known beside those of the types."""
        return SERVICE_TYPES.get(self.name) == self.type

    @property
    def url(self) -> str:
        """Address that is connected to; "" if there is none."""
        return self.base_url or self.service.base_url

    @property
    def dialect(self) -> ChatDialect:
        """Way in which it speaks Chat Completions: by its type, else by its name if that is a known service, else by its address."""
        from pegasus.models.formats import dialect_of

        known = self.name if self._is_known else ""
        return dialect_of("gemini" if self.type == "gemini" else known, self.url)

    def uses_responses(self, model: str) -> bool:
        """Return True if a model is asked by the Responses API: as the settings say, else those of OpenAI itself that reason."""
        if self.type != "openai" or self.wire or not self.is_own_service:
            return self.type == "openai" and self.wire == "responses"
        from pegasus.models.formats import is_reasoning_model

        return is_reasoning_model(model)

    def thinks(self, model: str) -> bool:
        """Return True if a model is known to think also where no effort is set, so that its answers need room for that."""
        if self.type == "anthropic":
            from pegasus.models.formats import thinking_way

            return thinking_way(model) == "adaptive"
        return self.kind.wire is not None and (self.uses_responses(model) or self.dialect.thinks)

    @property
    def is_own_service(self) -> bool:
        """True for the service itself, False for another server that speaks its format."""
        return self.url.rstrip("/") == KNOWN_SERVICES[self.type].base_url.rstrip("/")

    @property
    def key_name(self) -> str:
        """Environment variable of the key of its type's own service; "" for another server."""
        return KNOWN_SERVICES[self.type].key if self.is_own_service else ""


def find_providers(configured: Mapping[str, ProviderSettings]) -> dict[str, ProviderAccount]:
    """Return every provider by name: each type under its own name, and the configured ones. Raises ModelConfigError.

    A section with the name of a type replaces the standard account of that type. Whether an account can be used is only checked when a
    model needs it (`split_spec`): a provider without a key is no mistake as long as no role uses it.

    Keys and addresses from the environment are in the settings already (`settings.layers`).
    """
    providers = {name: ProviderAccount(name, name) for name in PROVIDER_TYPES}
    providers |= {name: ProviderAccount(name, kind) for name, kind in SERVICE_TYPES.items()}
    return providers | {name: _account(name, settings) for name, settings in configured.items()}


def _account(name: str, settings: ProviderSettings) -> ProviderAccount:
    """Return a configured provider. A section without a type has the type of its name."""
    provider_type = settings.type or (name if name in PROVIDER_TYPES else SERVICE_TYPES.get(name, ""))
    if provider_type not in PROVIDER_TYPES:
        raise ModelConfigError(f'providers.{name}.type: found "{provider_type}"; allowed: {", ".join(PROVIDER_TYPES)}')
    return ProviderAccount(
        name,
        provider_type,
        settings.api_key,
        settings.base_url,
        settings.wire,
        settings.temperature,
        settings.max_tokens,
        settings.headers,
        settings.query,
        settings.extra_body,
    )


def split_spec(spec: str, providers: Mapping[str, ProviderAccount], path: str) -> tuple[ProviderAccount, str]:
    """Return provider and model id of `<provider>/<model>`, checked.

    path: the settings key that a message names. Raises ModelConfigError.
    """
    name, slash, model = spec.partition("/")
    if not slash or not name or not model:
        raise ModelConfigError(f'{path}: found "{spec}"; allowed: "<provider>/<model>", as in "{EXAMPLE}"')
    provider = providers.get(name)
    if provider is None:
        known = ", ".join(sorted(providers))
        raise ModelConfigError(f'{path}: found "{spec}"; there is no provider "{name}", only {known}')
    _check_account(provider, path)
    return provider, model


def _check_account(provider: ProviderAccount, path: str) -> None:
    """Check that a provider can be used. path: key of the model that needs it. Raises ModelConfigError.

    A service's own address needs a key; another server may do without one. The address of a company's own part of a service (Azure,
    Bedrock, Vertex) comes from the settings or the environment; a key in a header of the settings is as good as one in api_key.
    """
    entry = provider.service
    if not provider.url and entry.address:
        raise ModelConfigError(
            f"{path}: provider {provider.name} has no address; set {entry.address}, or base_url in [providers.{provider.name}]"
        )
    if entry.key and not provider.base_url and not provider.api_key:
        raise ModelConfigError(
            f"{path}: provider {provider.name} has no key; set {entry.key}, or api_key in [providers.{provider.name}]"
        )
    if not (provider.api_key.isascii() and provider.api_key.isprintable() and " " not in provider.api_key):
        raise ModelConfigError(f"providers.{provider.name}.api_key: found blanks or letters that no key has")
    if provider.base_url and not _is_http(provider.base_url):
        raise ModelConfigError(
            f'providers.{provider.name}.base_url: found "{provider.base_url}"; allowed: http://… or https://…'
        )


def _is_http(url: str) -> bool:
    """Return True for an address that can be connected to."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
