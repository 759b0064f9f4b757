"""Options of a model call: what the settings say about effort, length, times and additions to the HTTP request.

The same option may be set in four places. The first that has it wins:

    [models.options.subagent]            the role of the call
    [models.options."openai/gpt-6-sol"]  the model
    [providers.openai]                   its provider
    [models]                             everything

Tables (`headers`, `query`, `extra_body`) are merged by name in the same order, so that a role can add a header to those of the
provider. "", 0 and -1 mean "not set"; so a role cannot take back what its provider sets, only replace it.

    options = effective_options("subagent", "openai/gpt-6-sol", settings.models, providers["openai"])
    options.effort, options.timeout

This file decides what is wanted. How a service wants it said, and whether a model takes it at all, is a matter of its wire format.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pegasus.models.base import CallOptions
from pegasus.models.providers import ProviderAccount, is_local_address
from pegasus.settings import ModelOptionSettings, ModelSettings

LOCAL_TIMEOUT: Final = 600.0
"""Seconds until the first token of a server on one's own machine or network. It may have to load the model first."""
_NOTHING: Final = ModelOptionSettings()
_ROOM_TO_THINK: Final = {"": 0, "low": 2_048, "medium": 8_192, "high": 24_576}
"""Tokens by effort, about as Google counts these words (https://ai.google.dev/gemini-api/docs/openai#thinking)."""


def effective_options(role: str, spec: str, settings: ModelSettings, provider: ProviderAccount) -> CallOptions:
    """Return the options of a call. role: of the call; a name that is no role has no options. spec: `<provider>/<model>`."""
    layers = [settings.options.get(name, _NOTHING) for name in (role, spec)]
    is_patient = settings.timeout == ModelSettings().timeout and is_local_address(provider.url)

    def first(name: str, *rest: Any) -> Any:
        values = [*(getattr(layer, name) for layer in layers), *rest]
        return next((value for value in values if value), rest[-1])

    def merged(name: str) -> Mapping[str, Any]:
        tables: list[Mapping[str, Any]] = [
            getattr(provider, name),
            *(getattr(layer, name) for layer in reversed(layers)),
        ]
        return {key: value for table in tables for key, value in table.items()}

    temperatures = [layer.temperature for layer in layers] + [provider.temperature]
    effort = first("effort", settings.effort)
    thinks = effort or ("medium" if provider.thinks(spec.partition("/")[2]) else "")
    return CallOptions(
        effort=effort,
        room_to_think=_ROOM_TO_THINK[thinks],
        temperature=next((value for value in temperatures if value >= 0), None),
        max_tokens=first("max_tokens", provider.max_tokens),
        timeout=first("timeout", LOCAL_TIMEOUT if is_patient else settings.timeout),
        silence_timeout=first("silence_timeout", settings.silence_timeout),
        context_window=first("context_window", settings.context_window),
        headers=merged("headers"),
        query=merged("query"),
        extra_body=merged("extra_body"),
    )
