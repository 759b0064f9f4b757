"""Providers of models: who they are, how they are connected to, and which models their servers tell of.

accounts.py        `PROVIDERS`, `KNOWN_SERVICES` and the accounts that the settings make of them
connections.py     HTTP clients, one for each account
http_model.py      `HttpModel`: a call over HTTP with its attempts, the pauses between them, and the answer, which moves its deadline
local_servers.py   models of Ollama, llama.cpp, LM Studio and vLLM on one's own machine
offers.py          models that a newcomer can choose from
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegasus.late import late_names
from pegasus.models.providers.accounts import (
    EXAMPLE,
    KNOWN_SERVICES,
    PROVIDERS,
    ModelConfigError,
    ProviderAccount,
    find_providers,
    split_spec,
)
from pegasus.models.providers.connections import (
    ProviderClient,
    RefusedByServer,
    close_response,
    is_local_address,
    read_at_most,
)
from pegasus.models.providers.local_servers import (
    LOCAL_SERVERS,
    SMALLEST_WINDOW,
    LocalModel,
    describe_models,
    find_local_models,
)

if TYPE_CHECKING:
    from pegasus.models.providers.http_model import HttpModel
    from pegasus.models.providers.offers import (
        ModelOffer,
        ServerWantsKey,
        find_names,
        find_offers,
        find_offers_at,
        is_known_service,
        key_variable,
    )
else:
    __getattr__ = late_names(__name__)

__all__ = [
    "EXAMPLE",
    "KNOWN_SERVICES",
    "LOCAL_SERVERS",
    "PROVIDERS",
    "SMALLEST_WINDOW",
    "HttpModel",
    "LocalModel",
    "ModelConfigError",
    "ModelOffer",
    "ProviderAccount",
    "ProviderClient",
    "RefusedByServer",
    "ServerWantsKey",
    "close_response",
    "describe_models",
    "find_local_models",
    "find_names",
    "find_offers",
    "find_offers_at",
    "find_providers",
    "is_known_service",
    "is_local_address",
    "key_variable",
    "read_at_most",
    "split_spec",
]
