"""The WebSocket gateway (subprotocol pegasus.v1): where programs, people and bridges talk to the agent.

The protocol's rules are pure (frames, render, delivery, routes), the I/O around them thin (websocket, connection, server).
"""

from __future__ import annotations

from pegasus.gateway.config import GatewayConfig, local_origins
from pegasus.gateway.control import BadParams, Caller, Method, Methods, Params
from pegasus.gateway.server import open_listeners, run_gateway

__all__ = [
    "BadParams",
    "Caller",
    "GatewayConfig",
    "Method",
    "Methods",
    "Params",
    "local_origins",
    "open_listeners",
    "run_gateway",
]
