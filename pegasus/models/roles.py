"""Models by role, as the settings say, and the models that `/model` may choose. Pure functions; mistakes are found before any call.

A model is named `<provider>/<model>`. A role that the settings do not name uses the default model. The default model is, in this
order: the choice made by `/model`, `models.default`, a standard model of the first provider whose key is known, a model of a local
server that answers, the stand-in.

    role_spec("compact", settings.models, find_providers(settings.providers))  # "anthropic/claude-haiku-5-5"
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pegasus.formatting import quote
from pegasus.models.catalog import PRICES
from pegasus.models.providers import (
    EXAMPLE,
    KNOWN_SERVICES,
    PROVIDERS,
    ModelConfigError,
    ProviderAccount,
    find_providers,
    split_spec,
)
from pegasus.settings import MODEL_ROLES

if TYPE_CHECKING:
    from pegasus.settings import ModelSettings, ProviderSettings, RouteSettings

AUDIO_ROLES: Final = ("transcribe", "speech")
"""Settings of [models] that name a model which is no conversation."""
AUDIO_PROVIDERS: Final = ("openai", "llamacpp", "lmstudio")
"""Types of providers that may have endpoints for speech."""
EMBED_ROLE: Final = "embed"
"""Setting of [models] that names what makes vectors."""
EMBED_PROVIDERS: Final = ("openai", "gemini", "ollama", "llamacpp", "lmstudio")
"""Types of providers that may have the endpoint for embeddings."""
OFFLINE: Final = "offline/stand-in"
"""Name of the stand-in."""
_LONGEST_NAME: Final = 200
"""Characters of a model that somebody chooses."""


def role_spec(
    role: str, settings: ModelSettings, providers: Mapping[str, ProviderAccount], chosen: str = "", found: str = ""
) -> str:
    """Return `<provider>/<model>` of a role; a name that is no role is returned as it is.

    chosen: model that replaces the default of the settings, "" for none. found: local model that answers where the settings name no
    model and no key is known, "" for none.
    """
    if role not in MODEL_ROLES:
        return role
    default = chosen or settings.default
    named: str = default if role == "default" else getattr(settings, role) or default
    return named or _standard_model(providers, found)


def _standard_model(providers: Mapping[str, ProviderAccount], found: str) -> str:
    """Return the model for `default = ""`: that of the first provider with a key, else a local one, else the stand-in."""
    with_default = ((name, service.default) for name, service in KNOWN_SERVICES.items() if service.default)
    usable = (f"{name}/{model}" for name, model in with_default if providers[name].api_key and providers[name].url)
    return next(usable, found or OFFLINE)


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
        raise ModelConfigError(f'/model: found {quote(spec)}; allowed: "<provider>/<model>", as in "{EXAMPLE}"')
    provider, model = split_spec(spec, providers, "/model")
    families = provider.service.families
    if not settings.choices and families and not provider.base_url and not model.lower().startswith(families):
        beginnings = " or ".join(f'"{family}"' for family in families)
        raise ModelConfigError(f'/model: found "{spec}"; the models of {provider.name} begin with {beginnings}')


def list_choices(
    settings: ModelSettings, providers: Mapping[str, ProviderAccount], local: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the models that can be chosen.

    These are `models.choices`, else those of the settings, local ones, those whose price is known, and the default models of known
    services. local: models of the local servers that answer. Models of providers without a key are left out.
    """
    if settings.choices:
        return tuple(settings.choices)
    specs = [role_spec(role, settings, providers) for role in MODEL_ROLES]
    specs += [*settings.fallback, *(route.model for route in settings.routes.values()), *local]
    for name, service in KNOWN_SERVICES.items():
        if name in PROVIDERS and service.families and providers[name].api_key and not providers[name].base_url:
            specs += [f"{name}/{model}" for model in PRICES if model.startswith(service.families)]
    others = (name for name in KNOWN_SERVICES if name not in PROVIDERS and providers[name].api_key)
    specs += [f"{name}/{KNOWN_SERVICES[name].default}" for name in others if KNOWN_SERVICES[name].default]
    return tuple(spec for spec in dict.fromkeys(specs) if _is_usable(spec, providers))


def _is_usable(spec: str, providers: Mapping[str, ProviderAccount]) -> bool:
    """Return True if the provider of this model exists and has what it needs."""
    try:
        split_spec(spec, providers, "")
    except ModelConfigError:
        return False
    return True


def describe_rules(settings: ModelSettings) -> list[str]:
    """Return a line for each rule that sends calls to another model: `Rule long sends calls of at least 50,000 tokens to …`."""
    return [f"Rule {name} sends {_calls_of(route)} to {route.model}." for name, route in settings.routes.items()]


def _calls_of(route: RouteSettings) -> str:
    """Return which calls a rule is about."""
    least, most = f"at least {route.min_tokens:,}", f"at most {route.max_tokens:,}"
    sizes = [size for size, count in ((least, route.min_tokens), (most, route.max_tokens)) if count]
    conditions = [
        f"of role {route.role}" if route.role else "",
        f"for {route.channel}" if route.channel else "",
        "with an image" if route.media else "",
        f"of {' and '.join(sizes)} tokens" if sizes else "",
    ]
    return " ".join(["calls", *filter(None, conditions)]) if any(conditions) else "every call"


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
    for role in (*AUDIO_ROLES, EMBED_ROLE):
        try:
            if spec := getattr(settings, role):
                endpoint_account(spec, providers, role)
        except ModelConfigError as error:
            found.append(str(error))
    return found


def endpoint_account(spec: str, providers: Mapping[str, ProviderAccount], role: str) -> tuple[ProviderAccount, str]:
    """Return provider and model id of what hears, speaks or makes vectors. role: the key of [models]. Raises ModelConfigError."""
    provider, model_id = split_spec(spec, providers, f"models.{role}")
    types, what = (EMBED_PROVIDERS, "embeddings") if role == EMBED_ROLE else (AUDIO_PROVIDERS, "speech")
    if provider.type not in types:
        raise ModelConfigError(
            f'models.{role}: found "{spec}"; allowed: a provider with OpenAI\'s endpoints for {what}, of type {", ".join(types)}'
        )
    return provider, model_id


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
