"""Messages of the event bus.

`Emit` has no reply, because an emitter must never depend on its observers. The other requests have one, so that a subscriber knows
from which moment on it receives events. `Deliver` is the only message that the bus sends; a subscriber has it among the messages
of its own mailbox.
"""

from __future__ import annotations

from typing import TypeAlias

import attrs

from actors import Ref, Reply
from pegasus.events.event import Event, EventType


@attrs.frozen(eq=False)
class Emit:
    """Publish an event. Sent with `tell`, not `ask`: an emitter never waits for subscribers.

    An event of a task must be on disk when it is emitted. Events that the bus has taken and not delivered are
    lost for its observers if it crashes.

    Example: `await bus.tell(Emit(events.create(EventType.SYSTEM_STARTED, "agent")))`.
    """

    event: Event
    """Event to publish."""


@attrs.frozen(eq=False)
class Deliver:
    """To a subscriber: an event was published."""

    event: Event
    """Published event, the same object for every subscriber."""


@attrs.frozen(eq=False)
class Subscribe:
    """Deliver events from now on. A subscriber that subscribes again replaces its types.

    A subscriber that is down is kept; events wait for it while it is restarted.

    Example: `await bus.ask(Subscribe, inbox.ref, frozenset({EventType.TASK_FAILED}))`.
    """

    reply: Reply[None]
    """Answered when the subscription is in force. A new subscriber does not receive events that were emitted before."""
    subscriber: Ref[Deliver]
    """Mailbox for the deliveries. A subscription is identified by it."""
    types: frozenset[EventType] | None = None
    """Types to deliver; None = all."""
    essential: bool = False
    """Whether none may be lost. Of a subscriber that is not essential and 1,000 events behind, the oldest are dropped."""


@attrs.frozen(eq=False)
class Unsubscribe:
    """Deliver nothing more to a subscriber. A subscription that does not exist is no error."""

    reply: Reply[None]
    """Answered at once. Deliveries that are in the subscriber's mailbox stay there; its backlog in the bus is dropped."""
    subscriber: Ref[Deliver]
    """Mailbox that was given to `Subscribe`."""


@attrs.frozen
class BusStatus:
    """Figures of the bus. `dropped` above 0 means that an observer misses events."""

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
"""Everything that the bus accepts."""
