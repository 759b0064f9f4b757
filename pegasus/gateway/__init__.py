"""The WebSocket gateway (subprotocol pegasus.v1): programs, people and bridges talk to the agent here.

It is the adapter of every channel type that has none of its own, and the control plane of the command line. The protocol's
frames are in `pegasus.protocol`, its client in `pegasus.client`, and both ends of a WebSocket in `pegasus.websocket`.
docs/gateway.md describes the protocol for people who write a client.

Read the files in this order; each uses only those before it:

    config        the bounds, the methods that a client may call, and reading their parameters
    send_queue    what waits to be sent to one client: bounded, and in which way, by who has it for the client
    reply_feed    the replies for one client: which goes to whom, and when
    delivery      what comes from the agent, as frames to the feeds, and for the HTTP API
    services      what connections share, and a client of the HTTP server
    requests      what a client may say, and what is done about it
    connection    one client, from its first byte to its last; imported when the first connects
    server        the actor: accepts connections and serves them; listening, for the HTTP server too
"""

from __future__ import annotations

from pegasus.gateway.config import (
    BadParams,
    Caller,
    Conflict,
    EventStream,
    GatewayConfig,
    LateMethods,
    Method,
    Methods,
    NotAllowed,
    NotFound,
    Params,
    PushEvent,
    bad_params_for,
    connections_within,
    notice_for,
    read_number,
    require_all_conversations,
    require_owner,
    require_text,
)
from pegasus.gateway.delivery import ClientUpdate, Listeners, MessagesMissed
from pegasus.gateway.requests import CALL_TIMEOUT, check_media_size, read_frame, read_hello, read_message
from pegasus.gateway.server import (
    GatewayMessage,
    accept_connections,
    failures_logged,
    open_listeners,
    run_gateway,
)
from pegasus.gateway.services import ServeConnection

__all__ = [
    "CALL_TIMEOUT",
    "BadParams",
    "Caller",
    "ClientUpdate",
    "Conflict",
    "EventStream",
    "GatewayConfig",
    "GatewayMessage",
    "LateMethods",
    "Listeners",
    "MessagesMissed",
    "Method",
    "Methods",
    "NotAllowed",
    "NotFound",
    "Params",
    "PushEvent",
    "ServeConnection",
    "accept_connections",
    "bad_params_for",
    "check_media_size",
    "connections_within",
    "failures_logged",
    "notice_for",
    "open_listeners",
    "read_frame",
    "read_hello",
    "read_message",
    "read_number",
    "require_all_conversations",
    "require_owner",
    "require_text",
    "run_gateway",
]
