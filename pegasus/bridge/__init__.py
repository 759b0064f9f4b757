"""Library for bridges, programs that connect a chat service with the agent. It runs on asyncio and on Trio.

* `messenger`: `Messenger`, a whole bridge but for the service's own calls. Begin here.
* `connection`: `Bridge`, the connection that it stands on, for a bridge that wants to do everything else itself.
* `state`: `BridgeState`, what a messenger remembers between its starts.
"""

from __future__ import annotations

from pegasus.bridge.connection import Bridge, BridgeEvent, BridgeRefused, files_of, reply_id
from pegasus.bridge.messenger import Incoming, Messenger, Outgoing, Undeliverable, variables
from pegasus.bridge.state import BridgeState

__all__ = [
    "Bridge",
    "BridgeEvent",
    "BridgeRefused",
    "BridgeState",
    "Incoming",
    "Messenger",
    "Outgoing",
    "Undeliverable",
    "files_of",
    "reply_id",
    "variables",
]
