"""The client of the gateway: the terminal chat, `pegasus send`, `status` and the like are made of it.

`open_client` is one connection. `open_conversation` is a conversation that outlives connections: it dials again, sends again
what was not accepted, and yields each reply once. Nothing of the server is imported.
"""

from __future__ import annotations

from pegasus.client.client import Client, ClientError, ClientEvent, MessageAccepted, NotConnected, Refused, Welcome
from pegasus.client.connect import open_client
from pegasus.client.conversation import (
    Conversation,
    ConversationEvent,
    Endpoint,
    FindEndpoint,
    MessageRejected,
    Offline,
    Online,
    open_conversation,
)

__all__ = [
    "Client",
    "ClientError",
    "ClientEvent",
    "Conversation",
    "ConversationEvent",
    "Endpoint",
    "FindEndpoint",
    "MessageAccepted",
    "MessageRejected",
    "NotConnected",
    "Offline",
    "Online",
    "Refused",
    "Welcome",
    "open_client",
    "open_conversation",
]
