"""From settings to models: which role is which model of which provider. Pure functions; mistakes are found before any call.

A model is named `<provider>/<model>`. The provider is a section of the settings, or a provider type, which exists under its own name
without a section. A role that the settings do not name uses the default model. The default model is, in this order: the choice made
by `/model`, `models.default`, a standard model of the first provider whose key is known, the stand-in.

    providers = find_providers(settings.providers)
    role_spec("compact", settings.models, providers)  # "anthropic/claude-haiku-5-5"
    split_spec("anthropic/claude-haiku-5-5", providers, "models.compact")  # (ProviderAccount("anthropic", …), "claude-haiku-5-5")

To add a provider, add an entry to `PROVIDERS` and its type to `PROVIDER_TYPES` of the settings. If its servers speak a format of their
own, write a `WireFormat` first.

Errors name the key of the settings that is wrong, what was found there and what to do, because people read them in `pegasus config
check` and at the start. None of them contains a key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urlsplit

import attrs

from pegasus.models.anthropic import AnthropicWire
from pegasus.models.catalog import PRICES
from pegasus.models.http_model import ProviderClient
from pegasus.models.openai import ChatWire
from pegasus.models.wire_format import WireFormat
from pegasus.settings import MODEL_ROLES, PROVIDER_TYPES

if TYPE_CHECKING:
    from pegasus.settings import ModelSettings, ProviderSettings

OFFLINE: Final = "offline/stand-in"


@attrs.frozen
class ProviderType:
    """Everything that is peculiar to a type of provider, apart from its wire format."""

    wire: Callable[[str, ProviderAccount], WireFormat] | None = None
    """Makes the wire format for a model by its name; None for the stand-in, which is not a server."""
    connect: Callable[[ProviderAccount], ProviderClient] | None = None
    """Makes the HTTP client; None for the stand-in."""
    base_url: str = ""
    """The service's own address."""
    key: str = ""
    """Environment variable of the key that the service needs at its own address; "" for a service that is free."""
    families: tuple[str, ...] = ()
    """Beginnings of model names at the service's own address; () for any."""
    default: str = ""
    """Model that is used if the settings name none and the key is known."""


def _anthropic_client(account: ProviderAccount) -> ProviderClient:
    """Return a client. Servers other than Anthropic's own get the key in both headers that are in use."""
    headers = {} if account.is_own_service else {"X-Api-Key": account.api_key or "none"}
    return ProviderClient(
        "anthropic", "AsyncAnthropic", account.api_key, account.url, open_telemetry=False, default_headers=headers
    )


def _openai_client(account: ProviderAccount) -> ProviderClient:
    return ProviderClient("openai", "AsyncOpenAI", account.api_key, account.url)


def _chat(model: str, account: ProviderAccount) -> ChatWire:
    return ChatWire(model, account.type, is_own=account.is_own_service)


PROVIDERS: Final = {
    # Sonnet 5.5 is the current middle model (https://platform.claude.com/docs/en/about-claude/models/overview).
    "anthropic": ProviderType(
        lambda model, account: AnthropicWire(model),
        _anthropic_client,
        "https://api.anthropic.com",
        "ANTHROPIC_API_KEY",
        ("claude-",),
        "claude-sonnet-5-5",
    ),
    # GPT-6.1 Terra is the middle model that takes tools in Chat Completions, with reasoning_effort "none"
    # (https://developers.openai.com/api/docs/models).
    "openai": ProviderType(
        _chat,
        _openai_client,
        "https://api.openai.com/v1",
        "OPENAI_API_KEY",
        ("gpt-", "chatgpt-", "o1", "o3", "o4"),
        "gpt-6.1-terra",
    ),
    # https://ai.google.dev/gemini-api/docs/openai
    "gemini": ProviderType(
        _chat,
        _openai_client,
        "https://generativelanguage.googleapis.com/v1beta/openai/",
        "GEMINI_API_KEY",
        ("gemini-", "gemma-"),
    ),
    # https://docs.ollama.com/api/openai-compatibility
    "ollama": ProviderType(_chat, _openai_client, "http://localhost:11434/v1"),
    "offline": ProviderType(),
}
"""By the types of the settings (`PROVIDER_TYPES`). The first with a default model and a key gives the default model."""
_EXAMPLE: Final = "anthropic/claude-sonnet-5-5"
_LONGEST_NAME: Final = 200
"""Characters of a model that somebody chooses."""
_BACK: Final = "default"
"""Argument of `/model` that goes back to the model of the settings."""
_MOST_SHOWN: Final = 40
"""Models in a list."""


class ModelConfigError(ValueError):
    """A model or provider in the settings cannot work. `str()` names the key path and what to do."""


@attrs.frozen(repr=False)
class ProviderAccount:
    """A provider as it is used. Its repr does not show the key."""

    name: str
    type: str
    """One of `PROVIDER_TYPES`: the wire format and the rules for keys."""
    api_key: str = ""
    base_url: str = ""
    """"" for the service's own address."""

    @property
    def kind(self) -> ProviderType:
        """Entry of its type in `PROVIDERS`."""
        return PROVIDERS[self.type]

    @property
    def url(self) -> str:
        """Address that is connected to."""
        return self.base_url or self.kind.base_url

    @property
    def is_own_service(self) -> bool:
        """True for the service itself, False for another server that speaks its format."""
        return self.base_url.rstrip("/") in ("", self.kind.base_url.rstrip("/"))


def find_providers(configured: Mapping[str, ProviderSettings]) -> dict[str, ProviderAccount]:
    """Return every provider by name: each type under its own name, and the configured ones. Raises ModelConfigError.

    A section with the name of a type replaces the standard account of that type. Whether an account can be used is only checked when a
    model needs it (`split_spec`): a provider without a key is no mistake as long as no role uses it.

    Keys and addresses from the environment are in the settings already (`settings.layers`).
    """
    providers = {name: ProviderAccount(name, name) for name in PROVIDER_TYPES}
    return providers | {name: _account(name, settings) for name, settings in configured.items()}


def _account(name: str, settings: ProviderSettings) -> ProviderAccount:
    """Return a configured provider. A section without a type has the type of its name."""
    provider_type = settings.type or (name if name in PROVIDER_TYPES else "")
    if provider_type not in PROVIDER_TYPES:
        raise ModelConfigError(f'providers.{name}.type: found "{provider_type}"; allowed: {", ".join(PROVIDER_TYPES)}')
    return ProviderAccount(name, provider_type, settings.api_key, settings.base_url)


def role_spec(role: str, settings: ModelSettings, providers: Mapping[str, ProviderAccount], chosen: str = "") -> str:
    """Return `<provider>/<model>` of a role; a name that is no role is returned as it is.

    chosen: model that replaces the default of the settings, "" for none.
    """
    if role not in MODEL_ROLES:
        return role
    default = chosen or settings.default
    named: str = default if role == "default" else getattr(settings, role) or default
    return named or _standard_model(providers)


def _standard_model(providers: Mapping[str, ProviderAccount]) -> str:
    """Return the model for `default = ""`: that of the first provider with a key, else the stand-in."""
    found = (f"{name}/{kind.default}" for name, kind in PROVIDERS.items() if kind.default and providers[name].api_key)
    return next(found, OFFLINE)


def split_spec(spec: str, providers: Mapping[str, ProviderAccount], path: str) -> tuple[ProviderAccount, str]:
    """Return provider and model id of `<provider>/<model>`, checked.

    path: the settings key that a message names. Raises ModelConfigError.
    """
    name, slash, model = spec.partition("/")
    if not slash or not name or not model:
        raise ModelConfigError(f'{path}: found "{spec}"; allowed: "<provider>/<model>", as in "{_EXAMPLE}"')
    provider = providers.get(name)
    if provider is None:
        known = ", ".join(sorted(providers))
        raise ModelConfigError(f'{path}: found "{spec}"; there is no provider "{name}", only {known}')
    _check_account(provider, path)
    return provider, model


def _check_account(provider: ProviderAccount, path: str) -> None:
    """Check that a provider can be used. path: key of the model that needs it. Raises ModelConfigError.

    A service's own address needs a key; another server may do without one.
    """
    variable = provider.kind.key
    if variable and not provider.base_url and not provider.api_key:
        raise ModelConfigError(
            f"{path}: provider {provider.name} has no key; set {variable}, or api_key in [providers.{provider.name}]"
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


# ------------------------------------------------------------------ choosing a model at run time


def check_choice(spec: str, settings: ModelSettings, providers: Mapping[str, ProviderAccount]) -> None:
    """Check a model that somebody wants to choose with `/model`. Raises ModelConfigError with what is allowed.

    The names of models at the services' own addresses are checked by their beginning, to find typing errors before the first call
    fails. Other servers may name their models as they like.
    """
    if settings.choices and spec not in settings.choices:
        allowed = ", ".join(settings.choices)
        raise ModelConfigError(f'/model: found "{spec}"; allowed: {allowed} (models.choices of the settings)')
    if len(spec) > _LONGEST_NAME or " " in spec or not spec.isprintable():
        raise ModelConfigError(f'/model: found {spec[:60]!r}; allowed: "<provider>/<model>", as in "{_EXAMPLE}"')
    provider, model = split_spec(spec, providers, "/model")
    families = provider.kind.families
    if not settings.choices and families and not provider.base_url and not model.lower().startswith(families):
        beginnings = " or ".join(f'"{family}"' for family in families)
        raise ModelConfigError(f'/model: found "{spec}"; the models of {provider.name} begin with {beginnings}')


def list_choices(settings: ModelSettings, providers: Mapping[str, ProviderAccount]) -> tuple[str, ...]:
    """Return the models that can be chosen: `models.choices`, else the models of the settings and those whose price is known.

    Models of providers without a key are left out.
    """
    if settings.choices:
        return tuple(settings.choices)
    specs = [role_spec(role, settings, providers) for role in MODEL_ROLES]
    specs += [*settings.fallback, *(route.model for route in settings.routes.values())]
    for name, kind in PROVIDERS.items():
        if kind.families and providers[name].api_key and not providers[name].base_url:
            specs += [f"{name}/{model}" for model in PRICES if model.startswith(kind.families)]
    return tuple(spec for spec in dict.fromkeys(specs) if _is_usable(spec, providers))


def _is_usable(spec: str, providers: Mapping[str, ProviderAccount]) -> bool:
    """Return True if the provider of this model exists and has what it needs."""
    try:
        split_spec(spec, providers, "")
    except ModelConfigError:
        return False
    return True


class ModelSwitch(Protocol):
    """Object that changes the model of the running agent, for the command `/model`.

        /model                       shows the model and the choices
        /model anthropic/claude-…    changes it, for owners only
        /model default               goes back to the model of the settings

    The choice is on disk before it holds, so that an answer "Now using …" is still true after a crash.
    """

    @property
    def current(self) -> str:
        """`<provider>/<model>` that answers now."""

    @property
    def chosen(self) -> str:
        """Model that was chosen at run time, "" if the settings decide."""

    def choices(self) -> Sequence[str]:
        """Return the models that can be chosen, those of the settings first."""

    async def choose(self, spec: str) -> str:
        """Use this model from the next call on, over restarts; "" to use that of the settings. Return its name.

        Raises ModelConfigError with what is allowed, and StorageError; nothing has changed then.
        """


async def model_command(argument: str, switch: ModelSwitch, *, owner: bool) -> str:
    """Return the answer to `/model argument`. owner: whether the sender may change anything. Raises StorageError."""
    wanted = argument.strip()
    if not wanted:
        origin = "chosen with /model" if switch.chosen else "as in the settings"
        return f"I use {switch.current} ({origin}).\n{_list(switch.choices())}"
    if not owner:
        return "Only my owner may change the model."
    before = switch.current
    try:
        now = await switch.choose("" if wanted.lower() == _BACK else wanted)
    except ModelConfigError as error:
        return f"{error}\n{_list(switch.choices())}\nStill using {switch.current}."
    if now == before:
        return f"Still using {now}."
    back = f" /model {_BACK} goes back to the one of the settings." if switch.chosen else ""
    return f"Now using {now} (before: {before}).{back}"


def _list(choices: Sequence[str]) -> str:
    lines = [f"- {name}" for name in choices[:_MOST_SHOWN]]
    if len(choices) > _MOST_SHOWN:
        lines.append(f"- … {len(choices) - _MOST_SHOWN} more")
    return "\n".join(["Models that can be chosen (/model <provider>/<model>):", *lines])


# ------------------------------------------------------------------ checking the settings


def problems(settings: ModelSettings, configured: Mapping[str, ProviderSettings]) -> list[str]:
    """Return everything that is wrong with the models and providers of these settings, one line each; [] if all is well.

    For `pegasus config check`, which shows all mistakes at once. Roles that are not named in the settings are not checked.
    """
    try:
        providers = find_providers(configured)
    except ModelConfigError as error:
        return [str(error)]
    found: list[str] = []
    for path, spec in _named_models(settings, providers):
        try:
            split_spec(spec, providers, path)
        except ModelConfigError as error:
            found.append(str(error))
    return found


def _named_models(settings: ModelSettings, providers: Mapping[str, ProviderAccount]) -> Iterator[tuple[str, str]]:
    """Yield every model that the settings name, with its key path."""
    for role in MODEL_ROLES:
        if getattr(settings, role):
            yield f"models.{role}", role_spec(role, settings, providers)
    for index, spec in enumerate(settings.fallback):
        yield f"models.fallback[{index}]", spec
    for index, spec in enumerate(settings.choices):
        yield f"models.choices[{index}]", spec
    for name, route in settings.routes.items():
        yield f"models.routes.{name}.model", route.model
