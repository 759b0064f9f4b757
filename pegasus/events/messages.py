"""What may be said to the event bus, and what it says to its subscribers."""

from __future__ import annotations

from typing import TypeAlias

import attrs

from actors import Ref, Reply
from pegasus.events.event import Event, EventType


@attrs.frozen(eq=False)
class Emit:
    """Make known that this happened. Told, not asked: an event is on its way when the bus has it."""

    event: Event


@attrs.frozen(eq=False)
class Deliver:
    """To a subscriber: this happened. Most urgent first, in order of emission among equals."""

    event: Event


@attrs.frozen(eq=False)
class Record:
    """To a gate: these are about to be delivered; nobody else gets one of them before the gate has answered.

    Events that come meanwhile are the next Record, so that a slow disk costs one sync for many events.
    patient: it is answered when they are written, however often that must be tried; False: who asked would rather hear at once
    that the disk refuses (StorageError, nothing was kept), and will ask again. What the answer is says nothing.
    """

    reply: Reply[object]
    events: tuple[Event, ...]
    patient: bool = True


@attrs.frozen(eq=False)
class Subscribe:
    """Have events delivered from now on. types: None = all. The same subscriber again replaces its types.

    essential: none may be lost; the bus keeps as many as it takes. Otherwise, of a subscriber that is slower than
    `BACKLOG` events, the oldest are dropped, which is logged. A subscriber that is down is kept, and gets what comes when it runs.
    """

    reply: Reply[None]
    subscriber: Ref[Deliver]
    types: frozenset[EventType] | None = None
    essential: bool = False


@attrs.frozen(eq=False)
class Unsubscribe:
    """Deliver nothing more to this subscriber."""

    reply: Reply[None]
    subscriber: Ref[Deliver]


@attrs.frozen
class BusStatus:
    """pending: events that wait to be delivered. emitted: all so far. dropped: what subscribers were too slow for, all together."""

    pending: int
    emitted: int
    subscribers: tuple[str, ...]
    dropped: int


@attrs.frozen(eq=False)
class GetBusStatus:
    """Ask how the bus is."""

    reply: Reply[BusStatus]


BusMessage: TypeAlias = Emit | Subscribe | Unsubscribe | GetBusStatus
