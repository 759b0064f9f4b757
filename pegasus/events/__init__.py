"""Events and the bus that carries them: a priority queue with subscribers, FIFO among equals.

Nothing is told to a subscriber before the bus's gate (the task persister) has written it down.
"""

from pegasus.events.bus import RECORDED, is_recorded
from pegasus.events.event import Event, EventMaker, EventType
from pegasus.events.messages import BusMessage, BusStatus, Deliver, Emit, GetBusStatus, Record, Subscribe, Unsubscribe

__all__ = [
    "RECORDED",
    "BusMessage",
    "BusStatus",
    "Deliver",
    "Emit",
    "Event",
    "EventMaker",
    "EventType",
    "GetBusStatus",
    "Record",
    "Subscribe",
    "Unsubscribe",
    "is_recorded",
]
