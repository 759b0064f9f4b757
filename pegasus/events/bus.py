"""The event bus: takes events, has them written down, hands them out.

What waits is taken as one batch, the most urgent first, in order of emission among equals. The batch's task events go to the
gate as one Record; when it has answered, the whole batch is handed to the subscribers, in that order. What is emitted
meanwhile is the next batch, so that many events cost one sync. Nothing of a batch is told before its task events are on disk.
A batch without any, with none before it, is handed out on the spot.

Each subscriber whose mailbox is full has a backlog, and a task that forwards it: one that is slow, full or down delays nobody else.
A subscriber that subscribes again in a new run begins anew: recorded events from before are not brought to it any more, for
it finds them in the logs; its Subscribe is answered when the last of them has been written. Other events wait for it.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from heapq import heappush
from typing import Final, TypeAlias

import trio

from actors import ActorError, Inbox, Ref, Reply, watch
from pegasus.events.event import Event, EventType
from pegasus.events.messages import BusMessage, BusStatus, Deliver, Emit, GetBusStatus, Record, Subscribe, Unsubscribe
from pegasus.observe import get_logger

BACKLOG: Final = 1000
"""Events that wait for a subscriber; of one that is not essential, the oldest beyond it are dropped."""
MAX_PENDING: Final = 10_000
"""Events that wait to be written; while there are more, the bus takes no messages, so that emitters wait."""
AGAIN_FIRST: Final = 0.05
AGAIN_LIMIT: Final = 5.0
"""Seconds before a gate that failed, or a subscriber that refused, is asked again; doubled each time."""

_E = EventType
RECORDED: Final = frozenset(
    {
        _E.TASK_CREATED,
        _E.REASON_DONE,
        _E.TOOL_CALL_COMPLETED,
        _E.TOOL_CALL_FAILED,
        _E.STEP_COMPLETED,
        _E.NEED_MORE_INFO,
        _E.TASK_NOTIFY,
        _E.TASK_SUSPENDED,
        _E.TASK_RESUMED,
        _E.REFLECTION_COMPLETE,
        _E.TASK_COMPLETED,
        _E.TASK_FAILED,
    }
)
"""The types that are lines of a task's log (interfaces section 5)."""

_Waiting: TypeAlias = tuple[int, int, Event]
_log = get_logger("bus")


def is_recorded(event: Event) -> bool:
    """Whether the gate writes it down: a task event that changes a task."""
    return event.type in RECORDED and event.task_id is not None


async def event_bus(inbox: Inbox[BusMessage], gate: Ref[Record] | None) -> None:
    """The actor. gate: told every task event before anybody else; None: nothing is written down.

    Stopped: what was emitted is still recorded if the gate answers, else dropped, which is logged. Cancelled or crashed:
    what was not handed out is gone, and so are the subscriptions.
    """
    async with trio.open_nursery() as nursery:
        bus = _Bus(gate, nursery)
        nursery.start_soon(bus.pump)
        async for message in inbox:
            bus.take(message)
            try:
                while not bus.is_full:
                    bus.take(inbox.receive_nowait())
            except (trio.WouldBlock, trio.EndOfChannel):
                pass
            bus.go()
            await bus.wait_for_room()
        await bus.settle()
        nursery.cancel_scope.cancel()


class _Bus:
    """waiting: a heap of (priority, number of emission, event). batch: what is being written and handed out."""

    def __init__(self, gate: Ref[Record] | None, nursery: trio.Nursery) -> None:
        self._gate = gate
        self._nursery = nursery
        self._waiting: list[_Waiting] = []
        self._batch: list[_Waiting] = []
        self._emitted = 0
        self._dropped = 0
        self._subscriptions: dict[Ref[Deliver], _Subscription] = {}
        self._joining: list[Reply[None]] = []
        self._closing = False
        self._news = trio.Event()
        self._quiet = trio.Event()
        self._room = trio.Event()

    # ------------------------------------------------------------------ messages

    def take(self, message: BusMessage) -> None:
        """Never waits."""
        match message:
            case Emit(event):
                self._emitted += 1
                heappush(self._waiting, (event.effective_priority, self._emitted, event))
            case Subscribe():
                self._subscribe(message)
            case Unsubscribe(reply, subscriber):
                self._unsubscribe(subscriber)
                reply.send(None)
            case GetBusStatus(reply):
                reply.send(self._status())

    def _subscribe(self, message: Subscribe) -> None:
        before = self._subscriptions.get(message.subscriber)
        if before is not None and not before.has_ended:
            before.types, before.essential = message.types, message.essential
            message.reply.send(None)
            return
        kept: list[Event] = []
        if before is not None:
            kept = [event for event in before.left() if not is_recorded(event)]
            self._unsubscribe(message.subscriber)
        subscription = _Subscription(message, self._emitted, kept, again=before is not None)
        self._subscriptions[message.subscriber] = subscription
        self._nursery.start_soon(subscription.run)
        if self._waiting or self._batch:
            self._joining.append(message.reply)
        else:
            message.reply.send(None)

    def _unsubscribe(self, subscriber: Ref[Deliver]) -> None:
        subscription = self._subscriptions.pop(subscriber, None)
        if subscription is not None:
            self._dropped += subscription.dropped
            subscription.scope.cancel()

    def _status(self) -> BusStatus:
        pending = len(self._waiting) + len(self._batch)
        paths = tuple(ref.path for ref in self._subscriptions)
        dropped = self._dropped + sum(it.dropped for it in self._subscriptions.values())
        return BusStatus(pending, self._emitted, paths, dropped)

    # ------------------------------------------------------------------ events

    def go(self) -> None:
        """Let go on its way what was taken."""
        if self._batch or any(self._is_to_record(event) for _, _, event in self._waiting):
            self._news.set()
        elif self._waiting:
            batch, self._waiting = sorted(self._waiting), []
            self._hand_out(batch)
            self._answer_joining()

    def _is_to_record(self, event: Event) -> bool:
        return self._gate is not None and is_recorded(event)

    async def pump(self) -> None:
        """Batch after batch, for ever."""
        while True:
            while not self._waiting:
                self._answer_joining()  # also those who came while the last batch was written
                self._quiet.set()
                self._news = trio.Event()
                await self._news.wait()
            self._batch, self._waiting = sorted(self._waiting), []
            joining, self._joining = self._joining, []
            self._room.set()
            if await self._is_recorded(tuple(event for _, _, event in self._batch if is_recorded(event))):
                self._hand_out(self._batch)
            else:
                _log.error("stopped before the task events could be written", events=len(self._batch))
            self._batch = []
            for reply in joining:
                reply.send(None)

    def _answer_joining(self) -> None:
        joining, self._joining = self._joining, []
        for reply in joining:
            reply.send(None)

    async def _is_recorded(self, events: tuple[Event, ...]) -> bool:
        """Have the gate write them, however often it takes. False if the bus is to stop and the gate does not answer."""
        if self._gate is None or not events:
            await trio.lowlevel.checkpoint()
            return True
        pause = AGAIN_FIRST
        while True:
            try:
                await self._gate.ask(Record, events, False)
                return True
            except Exception as error:  # whatever a gate fails with, nothing is told that is not written
                if self._closing:
                    return False
                _log.warning("task events are not written yet, will ask again", problem=str(error), seconds=pause)
            await trio.sleep(pause)
            pause = min(pause * 2, AGAIN_LIMIT)

    def _hand_out(self, batch: list[_Waiting]) -> None:
        for subscription in self._subscriptions.values():
            for _, number, event in batch:
                if subscription.wants(number, event):
                    subscription.put(event)

    @property
    def is_full(self) -> bool:
        """More waits than may."""
        return len(self._waiting) >= MAX_PENDING

    async def wait_for_room(self) -> None:
        """Until the next batch has been taken, if too much waits."""
        if self.is_full:
            self._room = trio.Event()
            await self._room.wait()

    async def settle(self) -> None:
        """Until all that was emitted has been recorded, or could not be."""
        self._closing = True
        if self._waiting or self._batch:
            self._quiet = trio.Event()
            await self._quiet.wait()


class _Subscription:
    """since: events with a greater number are for it; of one that has begun anew, also older ones that no log keeps."""

    def __init__(self, asked: Subscribe, since: int, backlog: list[Event], *, again: bool) -> None:
        self.types = asked.types
        self.essential = asked.essential
        self.dropped = 0
        self.has_ended = False
        self.scope = trio.CancelScope()
        self._backlog = deque(backlog)
        self._in_hand: Event | None = None
        self._subscriber = asked.subscriber
        self._since = since
        self._again = again
        self._news = trio.Event()

    def wants(self, number: int, event: Event) -> bool:
        """Whether this event is for it."""
        if self.types is not None and event.type not in self.types:
            return False
        return number > self._since or (self._again and not is_recorded(event))

    def put(self, event: Event) -> None:
        """Bring it this event, after those that wait already."""
        if not self._backlog and self._in_hand is None:
            with suppress(ActorError):  # its mailbox has no room
                self._subscriber.tell_nowait(Deliver(event))
                return
        self._backlog.append(event)
        if len(self._backlog) > BACKLOG and not self.essential:
            self._backlog.popleft()
            self.dropped += 1
            if self.dropped & (self.dropped - 1) == 0:
                _log.warning("a subscriber is too slow", subscriber=self._subscriber.path, dropped=self.dropped)
        self._news.set()

    def left(self) -> list[Event]:
        """What it was not brought yet."""
        return [*([] if self._in_hand is None else [self._in_hand]), *self._backlog]

    async def run(self) -> None:
        """Until it unsubscribes."""
        with self.scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._notice_end)
                await self._forward()

    async def _notice_end(self) -> None:
        await watch(self._subscriber)
        self.has_ended = True

    async def _forward(self) -> None:
        while True:
            while not self._backlog:
                self._news = trio.Event()
                await self._news.wait()
            self._in_hand = self._backlog.popleft()
            await self._deliver(Deliver(self._in_hand))
            self._in_hand = None

    async def _deliver(self, delivery: Deliver) -> None:
        pause = AGAIN_FIRST
        while True:
            try:
                await self._subscriber.tell(delivery)
                return
            except ActorError:  # its mailbox refuses instead of letting us wait
                await trio.sleep(pause)
            pause = min(pause * 2, AGAIN_LIMIT)
