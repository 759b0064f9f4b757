"""Events and the bus that publishes them: messages, webhooks, schedules, every step of a task, start and stop.

Observers subscribe to the bus; see docs/events.md. The composition root starts `event_bus` as an actor.
"""

from pegasus.events.bus import event_bus
from pegasus.events.event import Event, EventMaker, EventType
from pegasus.events.messages import BusMessage, BusStatus, Deliver, Emit, GetBusStatus, Subscribe, Unsubscribe

__all__ = [
    "BusMessage",
    "BusStatus",
    "Deliver",
    "Emit",
    "Event",
    "EventMaker",
    "EventType",
    "GetBusStatus",
    "Subscribe",
    "Unsubscribe",
    "event_bus",
]
