"""Messages of the event bus."""

from __future__ import annotations

from typing import TypeAlias

import attrs

from actors import Ref, Reply
from pegasus.events.event import Event, EventType


@attrs.frozen(eq=False)
class Emit:
    """Publish an event. Sent with `tell`, not `ask`: nobody waits for subscribers.

    An event of a task must be on disk when it is emitted.
    """

    event: Event


@attrs.frozen(eq=False)
class Deliver:
    """To a subscriber: an event was published."""

    event: Event


@attrs.frozen(eq=False)
class Subscribe:
    """Deliver events from now on. A subscriber that subscribes again replaces its types.

    A subscriber that is down is kept; events wait for it while it is restarted.

    Example: `await bus.ask(Subscribe, inbox.ref, frozenset({EventType.TASK_FAILED}))`.
    """

    reply: Reply[None]
    subscriber: Ref[Deliver]
    types: frozenset[EventType] | None = None
    """Types to deliver; None = all."""
    essential: bool = False
    """Whether none may be lost. Of a subscriber that is not essential and 1,000 events behind, the oldest are dropped."""


@attrs.frozen(eq=False)
class Unsubscribe:
    """Deliver nothing more to a subscriber. It is no error if there is no subscription."""

    reply: Reply[None]
    subscriber: Ref[Deliver]


@attrs.frozen
class BusStatus:
    """Figures of the bus."""

    pending: int
    """Events that wait in the backlogs of subscribers."""
    emitted: int
    """Events since the bus started."""
    subscribers: tuple[str, ...]
    """Paths of the subscribers in the tree of actors."""
    dropped: int
    """Events that subscribers were too slow for, all together."""


@attrs.frozen(eq=False)
class GetBusStatus:
    """Return the figures of the bus."""

    reply: Reply[BusStatus]


BusMessage: TypeAlias = Emit | Subscribe | Unsubscribe | GetBusStatus
