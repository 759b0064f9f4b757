"""From settings to models: which role is which model of which provider. Pure functions; mistakes are found before any call.

A model is named `<provider>/<model>`. The provider is a section of the settings, or a provider type, which exists under its own name
without a section. A role that the settings do not name uses the default model. The default model is, in this order: the choice made
by `/model`, `models.default`, a standard model of the first provider whose key is known, the stand-in.

    providers = find_providers(settings.providers)
    role_spec("compact", settings.models, providers)  # "anthropic/claude-haiku-5-5"
    split_spec("anthropic/claude-haiku-5-5", providers, "models.compact")  # (ProviderAccount("anthropic", …), "claude-haiku-5-5")

Errors name the key of the settings that is wrong, what was found there and what to do, because people read them in `pegasus config
check` and at the start. None of them contains a key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import attrs

from pegasus.settings import MODEL_ROLES, PROVIDER_TYPES

if TYPE_CHECKING:
    from pegasus.settings import ModelSettings, ProviderSettings

OFFLINE: Final = "offline/stand-in"
DEFAULTS: Final = (("ANTHROPIC_API_KEY", "anthropic/claude-sonnet-5-5"), ("OPENAI_API_KEY", "openai/gpt-6.1-terra"))
"""Default models by the key that is known. Sonnet 5.5: Anthropic's current middle model
(https://platform.claude.com/docs/en/about-claude/models/overview). GPT-6.1 Terra: OpenAI's middle model that takes
tools in Chat Completions, with reasoning_effort "none" (https://developers.openai.com/api/docs/models)."""

_KEYS: Final = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY", "gemini": "GEMINI_API_KEY"}
"""Environment variables of the provider types that need a key at their own address."""
_FAMILIES: Final = {
    "anthropic": ("claude-",),
    "openai": ("gpt-", "chatgpt-", "o1", "o3", "o4"),
    "gemini": ("gemini-", "gemma-"),
}
"""Beginnings of model names at the services' own addresses."""
_LONGEST_NAME: Final = 200
"""Characters of a model that somebody chooses."""


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
    for _, spec in DEFAULTS:
        if providers[spec.partition("/")[0]].api_key:
            return spec
    return OFFLINE


def split_spec(spec: str, providers: Mapping[str, ProviderAccount], path: str) -> tuple[ProviderAccount, str]:
    """Return provider and model id of `<provider>/<model>`, checked.

    path: the settings key that a message names. Raises ModelConfigError.
    """
    name, slash, model = spec.partition("/")
    if not slash or not name or not model:
        raise ModelConfigError(f'{path}: found "{spec}"; allowed: "<provider>/<model>", as in "{DEFAULTS[0][1]}"')
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
    variable = _KEYS.get(provider.type)
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
        raise ModelConfigError(f'/model: found {spec[:60]!r}; allowed: "<provider>/<model>", as in "{DEFAULTS[0][1]}"')
    provider, model = split_spec(spec, providers, "/model")
    families = _FAMILIES.get(provider.type, ())
    if not settings.choices and families and not provider.base_url and not model.lower().startswith(families):
        beginnings = " or ".join(f'"{family}"' for family in families)
        raise ModelConfigError(f'/model: found "{spec}"; the models of {provider.name} begin with {beginnings}')


def list_choices(
    settings: ModelSettings, providers: Mapping[str, ProviderAccount], known: Sequence[str]
) -> tuple[str, ...]:
    """Return the models that can be chosen: `models.choices`, else the models of the settings and the known ones.

    known: names of models, without provider. Models of providers without a key are left out.
    """
    if settings.choices:
        return tuple(settings.choices)
    specs = [role_spec(role, settings, providers) for role in MODEL_ROLES]
    specs += [*settings.fallback, *(route.model for route in settings.routes.values())]
    for name, families in _FAMILIES.items():
        if providers[name].api_key and not providers[name].base_url:
            specs += [f"{name}/{model}" for model in known if model.startswith(families)]
    return tuple(spec for spec in dict.fromkeys(specs) if _is_usable(spec, providers))


def _is_usable(spec: str, providers: Mapping[str, ProviderAccount]) -> bool:
    """Return True if the provider of this model exists and has what it needs."""
    try:
        split_spec(spec, providers, "")
    except ModelConfigError:
        return False
    return True


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
