"""The WebSocket gateway (subprotocol pegasus.v1): programs, people and bridges talk to the agent here.

It is the adapter of every channel type that has none of its own, and the control plane of the command line. The protocol's
frames are in `pegasus.protocol`, its client in `pegasus.client`, and docs/gateway.md describes it for people who write one.

Read the files in this order; each uses only those before it:

    config        the bounds
    frames        what a client may say: text in, a message, an acknowledgement or a call out
    delivery      which reply goes to whom and when: pure decisions
    send_queue    the bounded queue of one client
    reply_feed    the replies of one client, pushed and read from the journal
    hub           all feeds: hands on what comes from the agent
    control       the methods that a client may call
    websocket     the server's end of a WebSocket
    connection    one client, from its first byte to its last
    server        the actor: accepts connections and serves them
"""

from __future__ import annotations

from pegasus.gateway.config import GatewayConfig, connections_within
from pegasus.gateway.control import BadParams, Caller, Method, Methods, Params
from pegasus.gateway.server import open_listeners, run_gateway

__all__ = [
    "BadParams",
    "Caller",
    "GatewayConfig",
    "Method",
    "Methods",
    "Params",
    "connections_within",
    "open_listeners",
    "run_gateway",
]
