"""The event bus, which publishes events to their subscribers, the most urgent first; and the last events, for whoever follows them.

Events that wait together in the mailbox of the bus are published in the order of their priorities, and in order of emission among
equals. Events that are emitted together keep their order, and go as early as the most urgent of them. The bus keeps no history and
stores nothing. A task's event is written to its log before it is emitted (`TaskLogs.record`), so whoever is moved by it is moved by
something that no crash takes back. A task makes no further event before it has heard the last one, so priorities do not change the
order of its events.

A subscriber whose mailbox is full has a backlog, and a Trio task that forwards it: a subscriber that is slow, full or down delays
nobody else. The backlog of an *essential* subscriber is not bounded, since it may lose nothing; of others the oldest
events are dropped beyond `BACKLOG`.

Why the oldest: an observer shows the present state, and the newest event is the one that matters for that. Why no bound for
essential subscribers: tasks are moved by their events, so a dropped one would be a task that stands still.

`Emit` has no reply, because an emitter must never depend on its observers. The other requests have one, so that a subscriber knows
from which moment on it receives events. `Deliver` is the only message that the bus sends; a subscriber has it among the messages
of its own mailbox.

A crash of the bus loses subscriptions and backlogs, and so does a crash between the write of an event and its publication. Neither
loses a move of a task: in the tree the agent and the observers of tasks stand behind the bus and the persister and are restarted with
them. The agent then replays the logs of all pending tasks, which moves each to where its last line puts it, and publishes each task as
it is (TASK_UPDATED). So observers need no memory of what they have missed.

A program that follows events reads them here at its own speed, so a slow one delays nobody and costs no memory of its own. Each
event has a number, which grows by 1. Whoever comes back with the number of the last event that it has seen gets what follows, as
long as that is kept, and is told if something is missing. The first number is the time of the start in ms: numbers of an earlier
process are smaller than all that are kept, so they are recognised as a gap.

A reader gets events as JSON with long texts cut, since the payload of a task's event may hold a whole file. `cut` bounds each
event, and MAX_KEPT the number of them. The full text is in the log of the task. Most events are never read. A short one is kept as
it is, and becomes JSON when somebody reads it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Final, Protocol, TypeAlias

import attrs
import trio

from actors import ActorError, Inbox, Ref, Reply, Signal
from pegasus.events.event import Event, EventType
from pegasus.messages import Json
from pegasus.observe import get_logger
from pegasus.retry import retry

BACKLOG: Final = 1000
"""Largest number of events that wait for a subscriber that is not essential."""
PUBLISHED_TOGETHER: Final = 1024
"""Messages that are taken at a time. More would delay the most urgent of them, fewer would sort less."""

_log = get_logger("bus")


# ------------------------------------------------------------------ messages


@attrs.frozen(eq=False, repr=False)
class Emit:
    """Publish events. Sent with `tell`, not `ask`: an emitter never waits for subscribers.

    An event about a task that is not on disk asks the task for what it says (TASK_SUSPENDED, TASK_RESUMED, TASK_CANCELLED). Events
    that the bus has taken and not delivered are lost if it crashes.

    Example: `await bus.tell(Emit((Event(EventType.SYSTEM_STARTED, clock(), "agent"),)))`.
    """

    events: tuple[Event, ...]
    """Events to publish, one behind the other; at least one."""
    for_observers: bool = False
    """Nothing is moved by them, so essential subscribers do not get them."""


@attrs.frozen(eq=False, repr=False)
class Deliver:
    """To a subscriber: events were published.

    Example::

        async def observer(inbox: Inbox[Deliver], bus: Ref[BusMessage]) -> None:
            await bus.ask(Subscribe, inbox.ref)
            async for message in inbox:
                for event in message.events:
                    print(event.type.name)
    """

    events: tuple[Event, ...]
    """Published events, the same objects for every subscriber: those that were emitted together, as far as it wants them."""


@attrs.frozen(eq=False, repr=False)
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
    """True if none may be lost. Of a subscriber that is not essential and 1,000 events behind, the oldest are dropped."""


@attrs.frozen
class BusStatus:
    """Figures of the bus. `dropped` above 0 means that an observer misses events.

    Example: `BusStatus(pending=0, emitted=412, subscribers=("tasks/recent",), dropped=0)` of a bus whose observers keep up.
    """

    pending: int
    """Events that wait in the backlogs of subscribers."""
    emitted: int
    """Events since the bus started."""
    subscribers: tuple[str, ...]
    """Paths of the subscribers in the tree of actors."""
    dropped: int
    """Events that subscribers were too slow for, all together."""


@attrs.frozen(eq=False, repr=False)
class GetBusStatus:
    """Return the figures of the bus.

    Example: `status = await bus.ask(GetBusStatus, timeout=1)`.
    """

    reply: Reply[BusStatus]
    """Receives the figures as of when this message is handled."""


BusMessage: TypeAlias = Emit | Subscribe | GetBusStatus
"""Everything that the bus accepts."""


# ------------------------------------------------------------------ the actor


async def event_bus(inbox: Inbox[BusMessage]) -> None:
    """Run the bus. Stopped, cancelled or crashed: backlogs and subscriptions are gone.

    Takes everything that waits in the mailbox (at most PUBLISHED_TOGETHER further messages) before it publishes, since priorities
    have an effect only among events that are looked at together. When the mailbox is closed, tasks that forward backlogs are
    cancelled: a subscriber that is slow must not hold up the stop of the process.
    """
    async with trio.open_nursery() as nursery:
        bus = _Bus(nursery)
        async for message in inbox:
            bus.take(message)
            with suppress(trio.WouldBlock, trio.EndOfChannel):
                for _ in range(PUBLISHED_TOGETHER):
                    bus.take(inbox.receive_nowait())
            bus.publish()
        nursery.cancel_scope.cancel()


class _Bus:
    """The subscriptions, and the events that are about to be published."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        """Runs one forwarding task for each subscription."""
        self._waiting: list[Emit] = []
        """Events that were taken and not published yet, in order of emission."""
        self._emitted = 0
        """Events since the start."""
        self._subscriptions: dict[Ref[Deliver], _Subscription] = {}
        """Subscriptions in order of arrival; deliveries of one event are made in this order."""

    def take(self, message: BusMessage) -> None:
        """Take a message.

        A new subscriber receives only events that were emitted after its request. Waiting events are therefore published before any
        request is handled.
        """
        if isinstance(message, Emit):
            self._emitted += len(message.events)
            self._waiting.append(message)
            return
        self.publish()
        match message:
            case Subscribe():
                self._subscribe(message)
            case GetBusStatus(reply):
                reply.send(self._status())

    def publish(self) -> None:
        """Hand the events that wait to their subscribers, in order of priority. Never waits."""
        emitted = sorted(self._waiting, key=_urgency)
        self._waiting = []
        for subscription in self._subscriptions.values():
            for emit in emitted:
                if not (emit.for_observers and subscription.is_essential):
                    subscription.put(emit.events)

    def _subscribe(self, message: Subscribe) -> None:
        known = self._subscriptions.get(message.subscriber)
        if known is not None:
            known.types, known.is_essential = message.types, message.essential
        else:
            subscription = _Subscription(message)
            self._subscriptions[message.subscriber] = subscription
            self._nursery.start_soon(subscription.run)
        message.reply.send(None)

    def _status(self) -> BusStatus:
        subscriptions = self._subscriptions.values()
        pending = sum(subscription.pending for subscription in subscriptions)
        dropped = sum(subscription.dropped for subscription in subscriptions)
        return BusStatus(pending, self._emitted, tuple(ref.path for ref in self._subscriptions), dropped)


def _urgency(emit: Emit) -> int:
    """Return the smallest priority of events that were emitted together. The number of a type is its usual priority."""
    return min(event.type if event.priority is None else event.priority for event in emit.events)


class _Subscription:
    """A subscriber and its backlog."""

    def __init__(self, request: Subscribe) -> None:
        self.types = request.types
        """Types to deliver; None = all."""
        self.is_essential = request.essential
        """True if the backlog is kept whole however long it becomes."""
        self.dropped = 0
        """Events that were dropped because the subscriber was too slow."""
        self._subscriber = request.subscriber
        self._backlog: deque[Event] = deque()
        """Events that its mailbox had no room for, oldest first."""
        self._is_forwarding = False
        """True if an event was taken out of the backlog and is not delivered yet. New events must queue behind it."""
        self._added = Signal()
        """Given when the backlog has received an event."""

    @property
    def pending(self) -> int:
        """Events that wait for it."""
        return len(self._backlog) + self._is_forwarding

    def put(self, emitted: tuple[Event, ...]) -> None:
        """Deliver those events that it wants, behind those that wait already. Never waits."""
        events = emitted if self.types is None else tuple(event for event in emitted if event.type in self.types)
        if not events:
            return
        if not self.pending:
            with suppress(ActorError):  # its mailbox is full
                self._subscriber.tell_nowait(Deliver(events))
                return
        self._backlog += events
        while len(self._backlog) > BACKLOG and not self.is_essential:
            self._backlog.popleft()
            self.dropped += 1
            if self.dropped.bit_count() == 1:  # 1, 2, 4, 8 …: one warning for each doubling
                _log.warning("a subscriber is too slow", subscriber=self._subscriber.path, dropped=self.dropped)
        self._added.notify()

    async def run(self) -> None:
        """Forward the backlog, however long the subscriber is down, or full and refuses instead of letting the sender wait."""
        while True:
            while not self._backlog:
                await self._added.wait()
            self._is_forwarding = True
            await retry(partial(self._subscriber.tell, Deliver((self._backlog.popleft(),))), ActorError)
            self._is_forwarding = False


# ------------------------------------------------------------------ the last events


MAX_KEPT: Final = 1000
"""Events that are kept."""
MAX_TEXT: Final = 2000
"""Characters of a text within an event that are kept."""
MAX_EVENT: Final = 16_000
"""Characters of all texts of an event that are kept. With MAX_KEPT it bounds the memory; usual events are far smaller."""
MAX_ITEMS: Final = 100
"""Items of a list or an object within an event that are kept."""
SHOWN: Final = frozenset(EventType) - {EventType.TASK_UPDATED}
"""Types of the events that are kept. The one left out says again, to parts of this process, what others have said."""


def event_json(event: Event) -> dict[str, Json]:
    """Return an event as JSON, with long texts cut. `type` is the name of the type, `ts` the wall clock in ms.

    The same event gives the same JSON, whether it comes from the bus or from the log of its task; only `source` is not in a log.
    """
    named: dict[str, Json] = {"type": event.type.name, "ts": event.timestamp, "source": event.source}
    if event.task_id is not None:
        named["taskId"] = event.task_id
    return {**named, "data": _Cutter().cut(event.payload)}


class _Cutter:
    """Cuts the texts of one event."""

    def __init__(self) -> None:
        self._left = MAX_EVENT
        """Characters that may still be kept."""

    def cut(self, value: Json) -> Json:
        """Return the value with its texts cut, in the order in which they stand."""
        match value:
            case str():
                room = min(MAX_TEXT, self._left)
                self._left -= min(len(value), room)
                return value if len(value) <= room else f"{value[:room]}…"
            case Mapping():
                return {key[:MAX_TEXT]: self.cut(item) for key, item in list(value.items())[:MAX_ITEMS]}
            case list() | tuple():
                return [self.cut(item) for item in value[:MAX_ITEMS]]
        return value


@attrs.frozen
class NumberedEvent:
    """An event that is kept.

    Example: `NumberedEvent(n, event_json(event))`; a program that comes back names the last `n` that it has seen.
    """

    n: int
    """Number of the event."""
    event: Mapping[str, Json]
    """The event as `event_json` gives it."""


class EventWindow(Protocol):
    """Read-only view of the last events, for programs that follow them. The actor `recent` owns the events.

    `EventReader` follows it.
    """

    @property
    def newest(self) -> int:
        """Number of the newest event; that before the first one while there is none."""

    @property
    def oldest(self) -> int:
        """Number of the oldest event that is kept; the next number while there is none."""

    def after(self, n: int) -> tuple[Sequence[NumberedEvent], bool]:
        """Return the kept events with larger numbers, and whether events between them and `n` are missing."""

    async def wait_beyond(self, n: int) -> None:
        """Wait until there is an event with a larger number."""


class RecentEvents:
    """The last events. The actor that keeps them writes; others get it as an `EventWindow`.

    Example:
        recent = RecentEvents(first=wall_clock())
        recent.add(event)
        recent.after(recent.newest - 1)  # ([NumberedEvent], False)
    """

    def __init__(self, first: int) -> None:
        """Begin without events. first: number of the first one, greater than all that an earlier process has given."""
        self._kept: deque[Event | Mapping[str, Json]] = deque(maxlen=MAX_KEPT)
        """The events, oldest first: as they are, if they are known to be short, else as JSON."""
        self._first = first
        """Number of the first event, which no other process has."""
        self.newest = first - 1
        """Number of the newest event; that before the first one while there is none."""
        self._news = Signal()
        """Given by each event."""

    def add(self, event: Event) -> None:
        """Keep an event, and wake the readers. Never waits."""
        self.newest += 1
        is_short = len(event.line or repr(event.payload)) <= MAX_TEXT
        self._kept.append(event if is_short else self._json(event))
        self._news.notify()

    @property
    def oldest(self) -> int:
        """Number of the oldest event that is kept; the next number while there is none."""
        return self.newest - len(self._kept) + 1

    def after(self, n: int) -> tuple[Sequence[NumberedEvent], bool]:
        """Return the kept events with larger numbers, and whether events between them and `n` are missing.

        n: number of the last event that a reader has seen. One that was never given counts as a gap.
        """
        is_gap = not self.oldest - 1 <= n <= self.newest
        missing = len(self._kept) if is_gap else self.newest - n
        found = [*islice(reversed(self._kept), missing)]  # most readers lack a few of the thousand
        return [
            NumberedEvent(n, self._json(each) if isinstance(each, Event) else each)
            for n, each in enumerate(reversed(found), self.newest - missing + 1)
        ], is_gap

    def _json(self, event: Event) -> dict[str, Json]:
        """Return an event with its id, and that of the event which caused it. An id is unique over restarts by the first number."""
        cause = {"cause": f"{self._first}-{event.parent_id}"} if event.parent_id is not None else {}
        return {"id": f"{self._first}-{event.id}", **cause, **event_json(event)}

    async def wait_beyond(self, n: int) -> None:
        """Wait until there is an event with a larger number."""
        while self.newest <= n:
            await self._news.wait()


class EventReader:
    """Events as they come, and whether some before them are missing: a reader that is slow finds only what is kept.

    Example: `async for events, is_gap in EventReader(window): ...`. Each time there are events, a gap, or both.
    """

    def __init__(self, window: EventWindow, seen: int | None = None) -> None:
        """seen: number of the last event that the reader knows; None: it begins with the next one."""
        self._window = window
        self._seen = window.newest if seen is None else seen

    def __aiter__(self) -> EventReader:
        return self

    async def __anext__(self) -> tuple[Sequence[NumberedEvent], bool]:
        while True:
            events, is_gap = self._window.after(self._seen)
            self._seen = self._window.newest
            if events or is_gap:
                return events, is_gap
            await self._window.wait_beyond(self._seen)


async def keep_events(inbox: Inbox[Deliver], bus: Ref[BusMessage], recent: RecentEvents) -> None:
    """Run the actor: the events of the bus are added to `recent`. Ended: the readers wait until it runs again."""
    await bus.ask(Subscribe, inbox.ref, SHOWN, False)
    inbox.started()
    async for message in inbox:
        for event in message.events:
            recent.add(event)
