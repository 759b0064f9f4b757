"""Events and the bus that publishes them: messages, webhooks, schedules, every step of a task, start and stop.

The bus lets one part of the program see what another does, without either importing the other. Observers subscribe to it
(docs/events.md). The composition root starts `event_bus` as an actor and gives its address to all emitters.

    event     the event and its types
    bus       the actor and its messages: subscriptions, order, backlogs; the last events with numbers, for programs that follow them

Example:
    await bus.ask(Subscribe, inbox.ref, frozenset({EventType.TASK_COMPLETED}))
    await bus.tell(Emit((Event(EventType.HEARTBEAT, clock(), "cron"),)))
    delivered = await inbox.receive()  # Deliver((event,))
"""

from pegasus.events.bus import (
    BusMessage,
    BusStatus,
    Deliver,
    Emit,
    EventReader,
    EventWindow,
    GetBusStatus,
    RecentEvents,
    Subscribe,
    event_bus,
    event_json,
    keep_events,
)
from pegasus.events.event import Event, EventType

__all__ = [
    "BusMessage",
    "BusStatus",
    "Deliver",
    "Emit",
    "Event",
    "EventReader",
    "EventType",
    "EventWindow",
    "GetBusStatus",
    "RecentEvents",
    "Subscribe",
    "event_bus",
    "event_json",
    "keep_events",
]
