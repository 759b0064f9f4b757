"""The client of the gateway, which the terminal chat, `pegasus send`, `status` and the like are made of.

* `open_client` makes one connection. It ends when the connection ends.
* `open_conversation` makes a conversation that outlives connections: it connects again, sends again what was not accepted, and
  yields each reply once.

* `open_websocket` makes the WebSocket below them, for a bridge whose service has one.

Nothing of the server is imported, so a command starts quickly and may run on another machine than the daemon.

Example::

    async with open_client("ws://127.0.0.1:7717", token, ChannelInfo("cli", "main"), calls_only=True) as client:
        status = await client.call("status")
"""

from __future__ import annotations

from pegasus.client.client import (
    Client,
    ClientError,
    ClientEvent,
    MessageAccepted,
    NotConnected,
    Refused,
    open_client,
    open_websocket,
)
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
from pegasus.client.stdio_lines import read_lines, write_line
from pegasus.protocol import EventFrame

__all__ = [
    "Client",
    "ClientError",
    "ClientEvent",
    "Conversation",
    "ConversationEvent",
    "Endpoint",
    "EventFrame",
    "FindEndpoint",
    "MessageAccepted",
    "MessageRejected",
    "NotConnected",
    "Offline",
    "Online",
    "Refused",
    "open_client",
    "open_conversation",
    "open_websocket",
    "read_lines",
    "write_line",
]
