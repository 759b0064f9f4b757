"""Values that the daemon gives the HTTP server: its settings, and the parts of the agent that it serves.

`HttpConfig` has the bounds of the server. Those of the settings can change while it runs (`LiveValue`); a
connection asks for the present values whenever it sets a deadline. `WebServices` has the actors and objects
that handlers of routes use. It is made once, before the first client connects.

Nothing here imports Starlette, which costs 4 MB and a tenth of a second; the daemon imports this
file at its start.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Collection, Mapping
from typing import TYPE_CHECKING

import attrs
import trio

from actors import Event as TreeEvent
from actors import Ref
from pegasus.access import WebSessions
from pegasus.events import BusMessage, EventWindow
from pegasus.gateway import GatewayConfig, GatewayMessage, Listeners, Methods
from pegasus.intake import Intake
from pegasus.messages import InboundMessage, Json
from pegasus.models import Usage
from pegasus.observe import Activity
from pegasus.settings import HookSettings, LiveValue
from pegasus.tasks import TaskAgentMessage
from pegasus.web.deliveries import HookDeliveries

if TYPE_CHECKING:
    from pegasus.channels import WebhookReceiver
    from pegasus.models import AudioModel, EmbeddingModel


@attrs.frozen(eq=False, repr=False, kw_only=True)
class HttpConfig:
    """Behaviour of the HTTP server. Made by the daemon from the settings; tests change single values.

    The times are bounds against clients that hold a connection and do nothing with it. Each of them ends only
    the connection concerned.
    """

    host: str = "127.0.0.1"
    """The address that it listens on (`http.host`)."""
    port: int = 0
    """The port that it listens on, never 0 in a running server. It is part of the cookie's name."""
    public_url: str = ""
    """Address at which the outside reaches the server (`http.public_url`); "" = none but the one it listens on."""
    allowed_hosts: Collection[str] = ()
    """Names that may stand in the Host header beside the server's own (`http.allowed_hosts`)."""
    max_body_bytes: int = 32 << 20
    """Bytes of a request's body (`http.max_body_bytes`)."""
    max_connections: int = 1000
    """Connections that may be open. Beyond that idle ones are closed, or new ones wait."""
    head_time: float = 10.0
    """Seconds in which the head of a connection's first request must be there."""
    idle_time: float = 60.0
    """Seconds that a connection is kept for the next request."""
    pause_time: float = 15.0
    """Seconds that may pass between two pieces of a body."""
    body_time: float = 300.0
    """Seconds in which a whole body must be there."""
    write_time: float = 30.0
    """Seconds that one write may take. A client that takes longer does not read, and is cut."""
    stop_time: float = 2.0
    """Seconds that requests under way have to end when the server stops. What is left is told that it stops."""


@attrs.frozen(eq=False, repr=False, kw_only=True)
class WebServices:
    """The parts of the agent that the HTTP server serves.

    Handlers get it with each request (`ApiRequest.services`). Nothing in it belongs to a single request.
    """

    config: LiveValue[HttpConfig]
    """Bounds and addresses of the server."""
    gateway_config: LiveValue[GatewayConfig]
    """Tokens, the agent's name, and the origins of pages that may connect."""
    gateway: Ref[GatewayMessage]
    """Serves the WebSockets of `/ws`."""
    intake: Intake
    """Takes messages, as it does for all channels."""
    listeners: Listeners
    """Readers of the messages of the agent."""
    methods: Methods
    """The control plane, the same table that the gateway's `call` uses."""
    sessions: WebSessions
    """Browsers that are signed in."""
    deliveries: HookDeliveries
    """Deliveries of webhooks that came before."""
    tasks: Ref[TaskAgentMessage]
    """The task system, for webhooks that become tasks."""
    bus: Ref[BusMessage]
    """Publishes events."""
    recent: EventWindow
    """The last events of tasks."""
    tree_events: Callable[[], AsyncIterable[TreeEvent]]
    """Returns a stream of what happens to actors."""
    hooks: LiveValue[Mapping[str, HookSettings]] = attrs.field(factory=lambda: LiveValue({}))
    """Webhooks by name."""
    receivers: Mapping[str, WebhookReceiver] = attrs.field(factory=dict)
    """Receivers of webhooks by the channel type that they belong to."""
    withdraw: Callable[[InboundMessage], None]
    """Ends the work on a message whose sender has gone. Never waits, never fails."""
    embedder: Callable[[], EmbeddingModel | None] = lambda: None
    """Returns the model that makes vectors of texts, None if the settings name none."""
    audio: Callable[[str], AudioModel | None] = lambda role: None
    """Returns the model that hears ("transcribe") or speaks ("speech"), None if the settings name none."""
    item_usage: Callable[[int], Usage]
    """Returns the tokens that calls of models for an item have used so far."""
    was_stopped: Callable[[int], bool] = lambda item: False
    """Returns whether somebody has stopped the turn of an item."""
    activity: Activity = attrs.field(factory=Activity)
    """Sums of what the agent has done since its start."""
    clock: Callable[[], int]
    """Wall clock, ms."""
    may_serve: trio.Event
    """Set when people can connect; nothing is served before."""
    process_ends: trio.Event = attrs.field(factory=trio.Event)
    """Set when the process stops. The server then closes its listeners, so that a proxy takes another node at once."""
    health: Callable[[], Mapping[str, Json]]
    """Returns the answer of `/readyz`: `ready`, and the names of what does not run in `down` and `parked`."""
