"""The client side of the gateway: what `pegasus chat`, `send`, `status` and `tree` are made of.

`open_client` is one connection. `open_conversation` is a conversation that outlives connections: it dials again, sends
again what was not accepted, and hands out each reply once.
"""

from __future__ import annotations

from pegasus.gateway.conversation import (
    Conversation,
    ConversationEvent,
    Daemon,
    Dropped,
    Locate,
    Offline,
    Online,
    open_conversation,
)
from pegasus.gateway.dialling import open_client
from pegasus.gateway.link import (
    Accepted,
    Client,
    ClientError,
    ClientEvent,
    NotConnected,
    Refused,
    Welcome,
)

__all__ = [
    "Accepted",
    "Client",
    "ClientError",
    "ClientEvent",
    "Conversation",
    "ConversationEvent",
    "Daemon",
    "Dropped",
    "Locate",
    "NotConnected",
    "Offline",
    "Online",
    "Refused",
    "Welcome",
    "open_client",
    "open_conversation",
]
