"""The event bus: it publishes events to their subscribers, the most urgent first.

Events that wait together in the mailbox of the bus are published in the order of their priorities, and in order of emission among
equals. The bus keeps no history and stores nothing. Events of tasks are emitted after they were recorded in the log of
their task, so subscribers only ever see events that are already on disk (`pegasus.tasks.run.task.apply_recorded`).

A subscriber whose mailbox is full has a backlog, and a Trio task that forwards it: a subscriber that is slow, full or down delays
nobody else. The backlog of an *essential* subscriber is not bounded, since it may lose nothing; of others the oldest
events are dropped beyond `BACKLOG`.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import Final

import trio

from actors import ActorError, Inbox, Ref
from pegasus.events.event import Event
from pegasus.events.messages import BusMessage, BusStatus, Deliver, Emit, GetBusStatus, Subscribe, Unsubscribe
from pegasus.observe import get_logger

BACKLOG: Final = 1000
"""Events that wait for a subscriber that is not essential."""
PUBLISHED_TOGETHER: Final = 1024
"""Messages that are taken at a time."""
RETRY_FIRST: Final = 0.05
"""Seconds until a subscriber that refused an event is tried again; doubled each time."""
RETRY_LIMIT: Final = 5.0
"""Longest pause between two tries, seconds."""

_log = get_logger("bus")


async def event_bus(inbox: Inbox[BusMessage]) -> None:
    """Run the bus. Stopped, cancelled or crashed: backlogs and subscriptions are gone."""
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
        self._waiting: list[Event] = []
        self._emitted = 0
        self._dropped = 0
        """Events that former subscribers were too slow for."""
        self._subscriptions: dict[Ref[Deliver], _Subscription] = {}

    def take(self, message: BusMessage) -> None:
        """Take a message. Whoever subscribes receives what is emitted behind that, so what waits is published first."""
        if isinstance(message, Emit):
            self._emitted += 1
            self._waiting.append(message.event)
            return
        self.publish()
        match message:
            case Subscribe():
                self._subscribe(message)
            case Unsubscribe(reply, subscriber):
                self._unsubscribe(subscriber)
                reply.send(None)
            case GetBusStatus(reply):
                reply.send(self._status())

    def publish(self) -> None:
        """Hand the events that wait to their subscribers, in order of priority. Never waits."""
        events, self._waiting = sorted(self._waiting, key=lambda event: event.effective_priority), []
        for subscription in self._subscriptions.values():
            for event in events:
                if subscription.types is None or event.type in subscription.types:
                    subscription.put(event)

    def _subscribe(self, message: Subscribe) -> None:
        known = self._subscriptions.get(message.subscriber)
        if known is not None:
            known.types, known.is_essential = message.types, message.essential
        else:
            subscription = _Subscription(message)
            self._subscriptions[message.subscriber] = subscription
            self._nursery.start_soon(subscription.run)
        message.reply.send(None)

    def _unsubscribe(self, subscriber: Ref[Deliver]) -> None:
        subscription = self._subscriptions.pop(subscriber, None)
        if subscription is not None:
            self._dropped += subscription.dropped
            subscription.scope.cancel()

    def _status(self) -> BusStatus:
        subscriptions = self._subscriptions.values()
        pending = sum(subscription.pending for subscription in subscriptions)
        dropped = self._dropped + sum(subscription.dropped for subscription in subscriptions)
        return BusStatus(pending, self._emitted, tuple(ref.path for ref in self._subscriptions), dropped)


class _Subscription:
    """A subscriber and its backlog."""

    def __init__(self, request: Subscribe) -> None:
        self.types = request.types
        self.is_essential = request.essential
        self.dropped = 0
        """Events that it was too slow for."""
        self.scope = trio.CancelScope()
        """Scope of `run`."""
        self._subscriber = request.subscriber
        self._backlog: deque[Event] = deque()
        self._is_forwarding = False
        self._added = trio.Event()

    @property
    def pending(self) -> int:
        """Events that wait for it."""
        return len(self._backlog) + self._is_forwarding

    def put(self, event: Event) -> None:
        """Deliver an event, behind those that wait already. Never waits."""
        if not self.pending:
            with suppress(ActorError):  # its mailbox is full
                self._subscriber.tell_nowait(Deliver(event))
                return
        self._backlog.append(event)
        if len(self._backlog) > BACKLOG and not self.is_essential:
            self._backlog.popleft()
            self.dropped += 1
            if self.dropped.bit_count() == 1:  # 1, 2, 4, 8 …: one warning for each doubling
                _log.warning("a subscriber is too slow", subscriber=self._subscriber.path, dropped=self.dropped)
        self._added.set()

    async def run(self) -> None:
        """Forward the backlog, until the subscriber unsubscribes."""
        with self.scope:
            while True:
                while not self._backlog:
                    self._added = trio.Event()
                    await self._added.wait()
                self._is_forwarding = True
                await self._forward(Deliver(self._backlog.popleft()))
                self._is_forwarding = False

    async def _forward(self, delivery: Deliver) -> None:
        pause = RETRY_FIRST
        while True:
            try:
                await self._subscriber.tell(delivery)
                return
            except ActorError:  # its mailbox refuses instead of letting the sender wait
                await trio.sleep(pause)
            pause = min(pause * 2, RETRY_LIMIT)
