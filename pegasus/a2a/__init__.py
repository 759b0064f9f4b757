"""A2A: this agent for other agents (Agent2Agent protocol, version 1.0), and other agents for this one.

    errors    the errors of the protocol, in both bindings
    record    a task as the protocol sees it, made of its log
    forms     what clients send
    watch     who waits for news of a task
    push      push notifications
    card      the agent card, and its signature
    service   the operations
    bindings  JSON-RPC and HTTP+JSON
    door      the handlers, and the work behind them
    description  the forms of the routes, for /openapi.json
    client    the other end: an agent of the settings, which is sent a message and whose task is followed

The composition root imports the package at the first request for it, at a start that finds deliveries to be made, or when a task first
asks another agent. The last needs no server, so each name is imported by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegasus.late import late_names

if TYPE_CHECKING:
    from pegasus.a2a.client import RemoteAgent, find_agent
    from pegasus.a2a.description import form_of
    from pegasus.a2a.door import A2aDoor
else:
    __getattr__ = late_names(__name__)


__all__ = ["A2aDoor", "RemoteAgent", "find_agent", "form_of"]
