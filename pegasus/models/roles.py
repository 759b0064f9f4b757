"""From settings to a plan: which role is which model of which provider. Pure; every mistake is found here, before a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import attrs

from pegasus.settings import MODEL_ROLES, PROVIDER_TYPES

OFFLINE: Final = "offline/stand-in"
DEFAULTS: Final = (("ANTHROPIC_API_KEY", "anthropic/claude-sonnet-5-5"), ("OPENAI_API_KEY", "openai/gpt-6.1-terra"))
"""What default = "" means, by the key that is there. Sonnet 5.5: Anthropic's current middle model
(https://platform.claude.com/docs/en/about-claude/models/overview). GPT-6.1 Terra: OpenAI's middle model that takes
tools in Chat Completions, with reasoning_effort "none" (https://developers.openai.com/api/docs/models)."""

_KEYS: Final = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY", "gemini": "GEMINI_API_KEY"}
_NEEDS_KEY: Final = frozenset({"anthropic", "openai", "gemini"})


if TYPE_CHECKING:
    from pegasus.settings import ModelSettings, ProviderSettings


class ModelConfigError(ValueError):
    """A model or provider in the settings that cannot work; str() names the key path and what to do."""


@attrs.frozen(eq=False, repr=False)
class Provider:
    """A provider as it will be used. base_url "" = the service's own address."""

    name: str
    type: str
    api_key: str = ""
    base_url: str = ""


def find_providers(configured: Mapping[str, ProviderSettings]) -> dict[str, Provider]:
    """Every provider by name: each type under its own name, and the configured ones.

    What the environment says of keys and addresses is in the settings already (`settings.layers`).
    """
    providers = {name: Provider(name, name) for name in PROVIDER_TYPES}
    return providers | {name: _configured(name, settings) for name, settings in configured.items()}


def _configured(name: str, settings: ProviderSettings) -> Provider:
    kind = settings.type or (name if name in PROVIDER_TYPES else "")
    path = f"providers.{name}"
    if kind not in PROVIDER_TYPES:
        raise ModelConfigError(f'{path}.type: found "{kind}"; allowed: {", ".join(PROVIDER_TYPES)}')
    return Provider(name, kind, settings.api_key, settings.base_url)


def default_spec(providers: Mapping[str, Provider]) -> str:
    """What default = "" means: the first of DEFAULTS whose provider has a key, else the stand-in."""
    for _, spec in DEFAULTS:
        if providers[spec.partition("/")[0]].api_key:
            return spec
    return OFFLINE


def role_spec(role: str, settings: ModelSettings, providers: Mapping[str, Provider], chosen: str = "") -> str:
    """`<provider>/<model>` of a role, or of a name that is one already. Roles not named fall back to default.

    chosen: takes the place of the default of the settings.
    """
    if role not in MODEL_ROLES:
        return role
    default = chosen or settings.default
    named: str = default if role == "default" else getattr(settings, role) or default
    return named or default_spec(providers)


_FAMILIES: Final = {
    "anthropic": ("claude-",),
    "openai": ("gpt-", "chatgpt-", "o1", "o3", "o4"),
    "gemini": ("gemini-", "gemma-"),
}
"""How the names of models begin at the services' own addresses."""
_LONGEST: Final = 200


def check_choice(spec: str, settings: ModelSettings, providers: Mapping[str, Provider]) -> None:
    """Whether a person may choose this model at run time. Raises ModelConfigError with what is allowed."""
    if settings.choices and spec not in settings.choices:
        allowed = ", ".join(settings.choices)
        raise ModelConfigError(f'/model: found "{spec}"; allowed: {allowed} (models.choices of the settings)')
    if len(spec) > _LONGEST or " " in spec or not spec.isprintable():
        raise ModelConfigError(f'/model: found {spec[:60]!r}; allowed: "<provider>/<model>", as in "{DEFAULTS[0][1]}"')
    provider, model = split_spec(spec, providers, "/model")
    families = _FAMILIES.get(provider.type, ())
    if not settings.choices and families and not provider.base_url and not model.lower().startswith(families):
        begins = " or ".join(f'"{family}"' for family in families)
        raise ModelConfigError(f'/model: found "{spec}"; the models of {provider.name} begin with {begins}')


def choices(settings: ModelSettings, providers: Mapping[str, Provider], known: Sequence[str]) -> tuple[str, ...]:
    """What can be chosen: what the settings list, else the models they name and those known of providers that can be used.

    known: names of models, without provider.
    """
    if settings.choices:
        return tuple(settings.choices)
    named = [role_spec(role, settings, providers) for role in MODEL_ROLES]
    named += [*settings.fallback, *(route.model for route in settings.routes.values())]
    for name, families in _FAMILIES.items():
        if providers[name].api_key and not providers[name].base_url:
            named += [f"{name}/{model}" for model in known if model.startswith(families)]
    return tuple(spec for spec in dict.fromkeys(named) if _can_be_used(spec, providers))


def _can_be_used(spec: str, providers: Mapping[str, Provider]) -> bool:
    try:
        split_spec(spec, providers, "")
    except ModelConfigError:
        return False
    return True


def split_spec(spec: str, providers: Mapping[str, Provider], path: str) -> tuple[Provider, str]:
    """Provider and model id of `<provider>/<model>`, checked. path: the key to blame. Raises ModelConfigError."""
    name, slash, model = spec.partition("/")
    if not slash or not name or not model:
        raise ModelConfigError(f'{path}: found "{spec}"; allowed: "<provider>/<model>", as in "{DEFAULTS[0][1]}"')
    provider = providers.get(name)
    if provider is None:
        known = ", ".join(sorted(providers))
        raise ModelConfigError(f'{path}: found "{spec}"; there is no provider "{name}", only {known}')
    _check(provider, path)
    return provider, model


def _check(provider: Provider, path: str) -> None:
    own_server = not provider.base_url
    if provider.type in _NEEDS_KEY and own_server and not provider.api_key:
        variable = _KEYS[provider.type]
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
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def problems(settings: ModelSettings, configured: Mapping[str, ProviderSettings]) -> list[str]:
    """Everything wrong with the models and providers of these settings, one line each; [] if all is well."""
    try:
        providers = find_providers(configured)
    except ModelConfigError as error:
        return [str(error)]
    specs = [
        (f"models.{role}", role_spec(role, settings, providers)) for role in MODEL_ROLES if getattr(settings, role)
    ]
    specs += [(f"models.fallback[{index}]", spec) for index, spec in enumerate(settings.fallback)]
    specs += [(f"models.choices[{index}]", spec) for index, spec in enumerate(settings.choices)]
    specs += [(f"models.routes.{name}.model", route.model) for name, route in settings.routes.items()]
    found: list[str] = []
    for path, spec in specs:
        try:
            split_spec(spec, providers, path)
        except ModelConfigError as error:
            found.append(str(error))
    return found
