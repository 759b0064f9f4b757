"""Events: the one form in which everything that happens is published.

An event is a value and never changes. `parent_id` names the event that caused it, so a chain can be followed from a result back to
the message that asked for it.

One class serves all types, with a JSON object as its payload. The bus and its observers then need no knowledge of the parts that
emit. A part that makes events of values of its own, as the task system does, gives the value along (`data`), and converts it once:
the payload is for observers, the `line` for the log.

Event types are numbers, because the number is also the usual priority: what ends or changes a task is seen before the results of
its tools when both wait in the bus. The gaps between the numbers leave room for further types. The numbers are part of the
contract with observers (docs/events.md); a log of a task has the names instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from functools import partial
from itertools import count

import attrs

from pegasus.messages import Json


class EventType(IntEnum):
    """Type of an event. The number is also the priority of an event that names none: smaller is more urgent.

    Example: `EventType.TASK_CREATED` (200) goes before `EventType.TASK_COMPLETED` (220) on the bus.
    """

    SYSTEM_STARTED = 0
    SYSTEM_SHUTTING_DOWN = 1
    HEARTBEAT = 90
    MESSAGE_RECEIVED = 100
    WEBHOOK_TRIGGERED = 110
    SCHEDULE_FIRED = 120
    TASK_CREATED = 200
    TASK_UPDATED = 205
    """State of a task now, for the parts of this process (`data`). More urgent than TASK_STATE_CHANGED, which often goes with it:
    then all updates are equally urgent, and keep their order."""
    TASK_STATE_CHANGED = 210
    TASK_COMPLETED = 220
    TASK_FAILED = 230
    TASK_CANCELLED = 235
    TASK_SUSPENDED = 240
    TASK_RESUMED = 250
    TASK_NOTIFY = 260
    REASON_DONE = 300
    STEP_COMPLETED = 335
    REFLECTION_COMPLETE = 345
    NEED_MORE_INFO = 350
    TOOL_CALL_REQUESTED = 400
    TOOL_CALL_COMPLETED = 410
    TOOL_CALL_FAILED = 420


_NUMBERS = count(1)
"""Numbers of the events to come; they go on for as long as the process runs. They mean nothing but which event has caused another."""


@attrs.frozen(eq=False, repr=False)
class Event:
    """Something that happened. Events are compared by identity, not by content."""

    type: EventType
    """Kind of event, by which subscribers choose."""
    timestamp: int
    """Wall clock, ms since the epoch."""
    source: str
    """Origin, e.g. "agent", "task", "cli:main"."""
    task_id: str | None = None
    """Task that the event is about."""
    payload: Mapping[str, Json] = attrs.field(factory=dict)
    """Details, as JSON; those of task events are in `pegasus.tasks.core.task_events`. Never changed, so that it need not be copied."""
    priority: int | None = None
    """Priority on the bus instead of the number of the type; smaller goes first."""
    parent_id: int | None = None
    """Id of the event that caused this one, which this process has made."""
    data: object = None
    """The value that the payload was made of, for the part that made it; None if there is none."""
    line: bytes = b""
    """Line of the event in the log of its task, newline included. b"": it is not recorded, so it says what happens, or asks for it."""
    id: int = attrs.field(factory=partial(next, _NUMBERS), kw_only=True)
    """Unique among the events that this process has made. An event that was read from a log has the number of its line instead, which
    may be equal to such an id; it is the cause of none."""
