"""The WebSocket gateway (subprotocol pegasus.v1): where programs, people and bridges talk to the agent.

The protocol's rules are pure (frames, render, delivery, routes), the I/O around them thin (websocket, connection, server).
Clients are in pegasus.gateway.client; the rest is imported at first use, so that a client does not import a server.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pegasus.gateway.client import (
        Accepted,
        Client,
        ClientError,
        Conversation,
        ConversationEvent,
        Daemon,
        Dropped,
        Locate,
        NotConnected,
        Offline,
        Online,
        open_client,
        open_conversation,
    )
    from pegasus.gateway.config import GatewayConfig, local_origins
    from pegasus.gateway.control import BadParams, Caller, Method, Methods, Params
    from pegasus.gateway.server import gateway, open_listeners

__all__ = [
    "Accepted",
    "BadParams",
    "Caller",
    "Client",
    "ClientError",
    "Conversation",
    "ConversationEvent",
    "Daemon",
    "Dropped",
    "GatewayConfig",
    "Locate",
    "Method",
    "Methods",
    "NotConnected",
    "Offline",
    "Online",
    "Params",
    "gateway",
    "local_origins",
    "open_client",
    "open_conversation",
    "open_listeners",
]

_CLIENT = (
    "Accepted",
    "Client",
    "ClientError",
    "Conversation",
    "ConversationEvent",
    "Daemon",
    "Dropped",
    "Locate",
    "NotConnected",
    "Offline",
    "Online",
    "open_client",
    "open_conversation",
)
_WHERE = {
    **dict.fromkeys(_CLIENT, "client"),
    "GatewayConfig": "config",
    "local_origins": "config",
    "gateway": "server",
    "open_listeners": "server",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE.get(name, 'control')}"), name)
