"""The tasks in memory: their entries, the queue of those that want a slot, and the last that are over.

Memory holds the tasks that wait for a slot, are at work or are suspended, and the last that are over. Everything else is read
from the logs, so memory does not grow with what was done. `TaskRegistry` is plain bookkeeping and never waits.

An entry is never replaced, and is removed only when its task is over, has no actor and is not among the last REMEMBERED. Tasks
that reflect come on top of these. So parts of the agent may keep an entry across an `await`; they must look at its fields again
afterwards.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

import attrs
import trio

from actors import Ref, Reply
from pegasus.access import ROLE, Role
from pegasus.events import Event
from pegasus.messages import account_of
from pegasus.tasks.core.fsm import TaskFSM
from pegasus.tasks.core.task_events import TaskState
from pegasus.tasks.core.views import TaskView
from pegasus.tasks.run.messages import TaskMessage

HOOK: Final = "hook"
"""Key of a task's metadata: the webhook that has begun it."""
WAITING_OF_HOOK: Final = 100
"""Tasks of one webhook that may wait for their first slot. A service sends what has happened at once, and not once more."""
REMEMBERED: Final = 200
"""Finished tasks whose views are kept in memory: enough for a list of what happened lately, and a bound on memory."""


@attrs.define(eq=False, repr=False)
class TaskEntry:
    """A task in memory.

    Example: `TaskEntry(task_view(fsm), fsm)` for a task that waits for its first slot.
    """

    view: TaskView
    """The task as others see it, after the last event that the agent knows of."""
    fsm: TaskFSM | None = None
    """The task itself, if it is in memory and no actor has it; else it is read from its log when it is needed."""
    ref: Ref[TaskMessage] | None = None
    """Its actor, while there is one."""
    run: int = 0
    """Id of the event that started its actor, 0 without one. What an actor tells that another event has started is old."""
    notified: int = 0
    """Notifications that were handed to the notifier."""
    is_told: bool = False
    """True while its submitter knows of its end and it is on the pending list still."""
    reflects: bool = False
    """True if a reflection on its result runs or is due."""
    holds_slot: bool = False
    """True if it holds one of the slots, since `since`."""
    since: float = 0.0
    """Trio time."""
    is_ending: bool = False
    """True if it is being cancelled: it starts nothing any more."""
    pausing: trio.Event | None = None
    """Not None while a person wants it to pause and it has not. Set when it has, or rests for another reason, or is over."""
    is_resuming: bool = False
    """True if TASK_RESUMED is on its way to the disk."""
    start: Event | None = None
    """The event that starts it when it gets a slot. It is on disk, and waits for its actor; None: the task does not want a slot."""
    created: trio.Event = attrs.field(factory=trio.Event)
    """Set when TASK_CREATED is on disk."""
    starting: trio.Event | None = None
    """Set when its actor, which is being started, is up; None while none is being started."""
    ended: trio.Event = attrs.field(factory=trio.Event)
    """Set when its last actor has ended and the agent knows all that it recorded."""
    lock: trio.Lock = attrs.field(factory=trio.Lock)
    """Held while the agent records an event of the task."""
    waiting: list[Reply[TaskView]] = attrs.field(factory=list)
    """Requests to answer when the task is over."""
    rests: trio.Event = attrs.field(factory=trio.Event)
    """Set, and replaced, whenever the task is suspended or over."""

    def take_slot(self) -> None:
        """Note that the task holds a slot from now on."""
        self.holds_slot, self.since = True, trio.current_time()

    @property
    def task_id(self) -> str:
        """Id of the task."""
        return self.view.task_id

    @property
    def is_from_guest(self) -> bool:
        """True if a guest has asked for it."""
        return self.view.metadata.get(ROLE) == Role.GUEST

    @property
    def hook(self) -> str:
        """Name of the webhook that has begun it, "" if none has."""
        return str(self.view.metadata.get(HOOK) or "")

    @property
    def is_waiting(self) -> bool:
        """True while it waits for its first slot."""
        return self.view.state is TaskState.IDLE and not self.holds_slot

    @property
    def sender(self) -> str:
        """The person who has asked for it, "" if nobody on a channel has."""
        return account_of(self.view.channel, self.view.metadata) if self.view.channel is not None else ""

    def is_of(self, type: str, channel_id: str) -> bool:
        """Return whether it was asked for on this channel."""
        channel = self.view.channel
        return channel is not None and (channel.type, channel.channel_id) == (type, channel_id)

    @property
    def is_over(self) -> bool:
        """True if the task is over, and is not being resumed."""
        return self.view.is_over and not self.is_resuming


@attrs.define(eq=False, repr=False)
class TaskRegistry:
    """Tasks by id, in order of registration; the queue of those that want a slot; the last that are over.

    Example:
        registry = TaskRegistry()
        registry.enqueue(registry.register(TaskEntry(task_view(fsm), fsm)), created)
        registry.dequeue()  # the most urgent entry
    """

    _remembered: int = REMEMBERED
    """Finished tasks that are kept."""
    tasks: dict[str, TaskEntry] = attrs.field(factory=dict, init=False)
    """Tasks in memory by id. Only `register` and `finished` change it."""
    _queue: deque[TaskEntry] = attrs.field(factory=deque, init=False)
    """Tasks that want a slot, in order of arrival. It is searched for the most urgent one, which is cheap at its length."""
    _finished: dict[str, None] = attrs.field(factory=dict, init=False)
    """Ids of tasks that are over, in the order in which they have ended last."""

    def __iter__(self) -> Iterator[TaskEntry]:
        """Iterate over a copy: tasks may be registered and removed meanwhile."""
        return iter(tuple(self.tasks.values()))

    def register(self, entry: TaskEntry) -> TaskEntry:
        """Hold a task, unless one of its id is held already; returns the one that is held."""
        return self.tasks.setdefault(entry.task_id, entry)

    def count_guests_at_work(self) -> int:
        """Return how many tasks of guests, and of webhooks, hold a slot."""
        return sum(entry.is_from_guest and entry.holds_slot for entry in self.tasks.values())

    def count_waiting(self, *, guests: bool, hook: str = "") -> int:
        """Return how many tasks wait for their first slot, of guests or of owners; with `hook` of this webhook."""
        waiting = [entry for entry in self.tasks.values() if entry.is_waiting and entry.hook == hook]
        return sum(entry.is_from_guest == guests for entry in waiting)

    def count_of_guest(self, sender: str) -> int:
        """Return how many tasks of this guest have not ended. sender: as `account_of` names them."""
        return sum(
            entry.is_from_guest and not entry.is_over and entry.sender == sender for entry in self.tasks.values()
        )

    @property
    def active(self) -> int:
        """Number of tasks that hold a slot."""
        return sum(entry.holds_slot for entry in self.tasks.values())

    @property
    def waiting(self) -> int:
        """Number of tasks that wait for their first slot, including those that are not on disk yet."""
        return sum(entry.is_waiting for entry in self.tasks.values())

    def enqueue(self, entry: TaskEntry, start: Event) -> None:
        """Put a task into the queue for a slot. start: the event that starts it, which is on disk."""
        entry.start = start
        self._queue.append(entry)

    def dequeue(self, *, guests: bool = True) -> TaskEntry | None:
        """Take the most urgent task out of the queue, None if there is none: owners' before guests', the first among equals.

        guests: a guest's may be taken.
        """
        entries = [entry for entry in self._queue if guests or not entry.is_from_guest]
        if not entries:
            return None
        entry = min(
            entries, key=lambda entry: (entry.is_from_guest, entry.fsm.priority if entry.fsm is not None else 0)
        )
        self._queue.remove(entry)
        return entry

    def withdraw(self, entry: TaskEntry) -> None:
        """Take a task out of the queue if it is there."""
        if entry in self._queue:
            self._queue.remove(entry)

    def finished(self, entry: TaskEntry) -> None:
        """Add a task to those that are over, and remove the oldest of them from memory.

        One that reflects or is being resumed is passed over, and looked at again when the next task is over.
        """
        self._finished.pop(entry.task_id, None)  # it goes to the end if it was resumed and has ended again
        self._finished[entry.task_id] = None
        for task_id in tuple(self._finished)[: -self._remembered]:
            oldest = self.tasks[task_id]
            if not oldest.view.is_over:  # it was resumed, and is added again when it is over
                del self._finished[task_id]
            elif oldest.is_over and oldest.ref is None and not oldest.reflects:
                del self._finished[task_id], self.tasks[task_id]
