"""Models that a newcomer can choose from: those with a key, those of local servers, and well-known services that want a key.

`pegasus init` shows them. Nothing is asked of a known service here: its model is offered because its key is known, and whether the
key works is seen by a test call. Servers of the user's own, whose address is in the settings or is typed, are asked for their models.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import attrs
import trio

from pegasus.models.providers.accounts import KNOWN_SERVICES, find_providers
from pegasus.models.providers.local_servers import LocalModel, describe_models, find_local_models, refuses_key

if TYPE_CHECKING:
    from pegasus.settings import Settings

MOST_LOCAL: Final = 6
"""Models of local servers that are offered."""
_WELL_KNOWN: Final = ("anthropic", "openai", "gemini", "openrouter")
"""Services that are offered without a key; others can be typed."""


@attrs.frozen(eq=False, repr=False)
class ModelOffer:
    """Model that can be chosen: `ModelOffer("ollama/qwen3:8b", "Ollama on this machine")`."""

    spec: str
    """`<provider>/<model>`."""
    why: str
    """Reason why it is offered, for people."""
    section: Mapping[str, str] = attrs.field(factory=dict)
    """Keys of [providers.NAME] that it needs, for a server that is not known by its name."""


def key_variable(provider: str) -> str:
    """Return the environment variable of the key that a provider needs, "" for one that needs none or is not known by name."""
    entry = KNOWN_SERVICES.get(provider)
    return entry.key if entry is not None else ""


async def find_offers(settings: Settings) -> list[ModelOffer]:
    """Return the models on offer, the best first: with a key, then local ones, then those that want a key.

    Takes about two seconds at most, for the local servers. Raises ModelConfigError for providers that are wrong in the settings.
    """
    providers = find_providers(settings.providers)
    ready, missing = [], []
    for name, entry in KNOWN_SERVICES.items():
        if not entry.default:
            continue
        # The key of a service whose address is not known (Azure without its resource) is not enough.
        if providers[name].api_key and providers[name].url:
            origin = settings.origins.get(f"providers.{name}.api_key", "the settings")
            ready.append(ModelOffer(f"{name}/{entry.default}", f"key found in {origin}"))
        elif name in _WELL_KNOWN:
            missing.append(ModelOffer(f"{name}/{entry.default}", "needs an API key"))
    # Only the user's own machine and network are asked; nothing about the user goes to a service for this list.
    local = await find_local_models({name: provider.base_url for name, provider in settings.providers.items()})
    found = [_local_offer(model, is_known=model.provider in providers) for model in local[:MOST_LOCAL]]
    return [*ready, *found, *await _own_offers(settings), *missing]


async def _own_offers(settings: Settings) -> list[ModelOffer]:
    """Return the models of servers in OpenAI's format that have a section of the settings and no known name."""
    found: dict[str, list[LocalModel]] = {
        name: []
        for name, provider in settings.providers.items()
        if provider.type == "openai" and provider.base_url and name not in KNOWN_SERVICES
    }

    async def ask(name: str) -> None:
        """Ask the server of a section for its models."""
        provider = settings.providers[name]
        found[name] = await describe_models(name, provider.base_url, False, key=provider.api_key)

    async with trio.open_nursery() as nursery:
        for name in found:
            nursery.start_soon(ask, name)
    return [
        ModelOffer(model.spec, f"at {model.base_url}")
        for models in found.values()
        for model in models[:MOST_LOCAL]
        if model.is_chat
    ]


class ServerWantsKey(Exception):
    """A server that tells its models only to those who show a key it knows."""


def is_known_service(provider: str) -> bool:
    """Return whether a provider is known by its name, and with it whether it needs a key."""
    return provider in KNOWN_SERVICES


async def find_offers_at(address: str, settings: Settings, key: str = "") -> list[ModelOffer]:
    """Return the models of a server in OpenAI's format at this address, which may lack its `/v1`; [] if none answers.

    Takes eight seconds at most. Raises ServerWantsKey where the server refuses to tell. The provider is that of the settings with this
    address, else a new one, "server". key: shown to the server, and part of the offers.
    """
    refused = False
    address = address.strip().rstrip("/")
    # With "/v1" first, since most servers have it and people leave it out.
    for url in dict.fromkeys((address if address.endswith("/v1") else f"{address}/v1", address)):
        known = next((name for name, provider in settings.providers.items() if provider.base_url == url), "")
        # A name that no section of the settings has: one more than there are sections is always enough.
        names = ("server", *(f"server{number}" for number in range(2, len(settings.providers) + 2)))
        name = known or next(name for name in names if name not in settings.providers)
        shown = key or (settings.providers[known].api_key if known else "")
        section = {} if known else {"type": "openai", "base_url": url}
        if key:  # in settings "${" begins a variable
            section["api_key"] = key.replace("${", "$${")
        if models := await describe_models(name, url, False, key=shown):
            return [ModelOffer(model.spec, f"at {url}", section) for model in models if model.is_chat]
        refused = refused or await refuses_key(url, shown)
    if refused:
        raise ServerWantsKey(address)
    return []


def _local_offer(model: LocalModel, *, is_known: bool) -> ModelOffer:
    """Return the offer of a local model. is_known: its provider exists without a section of the settings."""
    notes = [f"{model.server} on this machine"]
    if model.context_window:
        notes.append(f"{model.context_window:,} tokens")
    if model.has_tools is False:
        notes.append("no tools")
    return ModelOffer(model.spec, ", ".join(notes), {} if is_known else {"type": "openai", "base_url": model.base_url})


async def find_names(spec: str, settings: Settings) -> list[str]:
    """Return the names of the models that the server of a model lists; [] if it does not tell, or answers to any name.

    spec: `<provider>/<model>`. Takes two seconds at most; never raises.
    """
    account = find_providers(settings.providers).get(spec.partition("/")[0])
    if account is None or not account.url or account.type == "anthropic":
        return []
    is_ollama = account.type == "ollama"
    models = await describe_models(account.name, account.url, is_ollama, key=account.api_key)
    return [model.name for model in models if model.server != "llama.cpp"]
