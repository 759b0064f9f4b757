"""The last events, numbered, for programs that follow them: `RecentEvents`, and the actor that fills it.

A program that follows events reads them here at its own speed, so a slow one delays nobody and costs no memory of its own. Each
event has a number, which grows by 1. Whoever comes back with the number of the last event that it has seen gets what follows, as
long as that is kept, and is told if something is missing. The first number is the time of the start in ms: numbers of an earlier
process are smaller than all that are kept, so they are recognised as a gap.

A reader gets events as JSON with long texts cut, since the payload of a task's event may hold a whole file. `cut` bounds each
event, and MAX_KEPT the number of them. The full text is in the log of the task. Most events are never read. One whose line in
the log is short is kept as it is, and becomes JSON when somebody reads it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final, Protocol

import attrs

from actors import Inbox, Ref, Signal
from pegasus.events.bus import BusMessage, Deliver, Subscribe
from pegasus.events.event import Event, EventType
from pegasus.messages import Json

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

    Example: `await window.wait_beyond(seen); events, is_gap = window.after(seen)`.
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
        self._kept.append(event if 0 < len(event.line) <= MAX_TEXT else self._json(event))
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
        seen = 0 if is_gap else n - self.oldest + 1
        events = islice(enumerate(self._kept, self.oldest), seen, None)
        return [NumberedEvent(n, self._json(each) if isinstance(each, Event) else each) for n, each in events], is_gap

    def _json(self, event: Event) -> dict[str, Json]:
        """Return an event with its id, and that of the event which caused it. An id is unique over restarts by the first number."""
        cause = {"cause": f"{self._first}-{event.parent_id}"} if event.parent_id is not None else {}
        return {"id": f"{self._first}-{event.id}", **cause, **event_json(event)}

    async def wait_beyond(self, n: int) -> None:
        """Wait until there is an event with a larger number."""
        while self.newest <= n:
            await self._news.wait()


async def keep_events(inbox: Inbox[Deliver], bus: Ref[BusMessage], recent: RecentEvents) -> None:
    """Run the actor: the events of the bus are added to `recent`. Ended: the readers wait until it runs again."""
    await bus.ask(Subscribe, inbox.ref, SHOWN, False)
    inbox.started()
    async for message in inbox:
        for event in message.events:
            recent.add(event)
