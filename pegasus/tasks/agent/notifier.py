"""Notifications of tasks on their way to the one listener: every one, in the order of its task, until it was taken.

Notifications that wait together are sent together, so that a listener which stores them needs one durable step for many. Those of
one task are sent one behind the other, since of what is sent together nobody knows which is stored first.

Nothing is stored here. Every notification follows from an event in a log, so after a crash recovery adds all notifications of each
pending task again, with the same numbers. That is why a task leaves the pending list only when the listener has taken its last one.

What the listener refuses is tried again after a fixed pause and without a limit. The listener is an actor of the same process, and
is expected to take notifications again once it runs and can store them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

import attrs

from actors import ActorError, Ref, Signal
from pegasus.observe import get_logger
from pegasus.retry import retry
from pegasus.tasks.agent.messages import Notify
from pegasus.tasks.core.views import Notification

_log = get_logger("tasks")

SENT_TOGETHER: Final = 64
"""Notifications that are sent together."""


@attrs.frozen(eq=False, repr=False)
class _Waiting:
    """A notification that the listener has not taken yet."""

    notification: Notification
    """The notification."""
    is_last: bool
    """The task is over with it: it leaves the pending list when the listener has taken it."""


@attrs.define(eq=False, repr=False)
class TaskNotifier:
    """The queue of notifications. It is not bounded: its items are few and small, and none may be lost.

    Example: `notifier.add(notification, is_last=view.is_over)`; `run` sends it.
    """

    _listener: Ref[Notify]
    """Receives the notifications of all tasks."""
    _queue: deque[_Waiting] = attrs.field(factory=deque, init=False)
    """Notifications in order of arrival, which is the order of the log for each task."""
    _added: Signal = attrs.field(factory=Signal, init=False)
    """Given when one was added."""

    def add(self, notification: Notification, *, is_last: bool) -> None:
        """Put a notification into the queue. Never waits."""
        self._queue.append(_Waiting(notification, is_last))
        self._added.notify()

    async def run(self, told: Callable[[Sequence[Notification]], Awaitable[None]]) -> None:
        """Send notifications until it is cancelled. Cancelled: those that were not taken are sent again after the next start.

        told: called with the last notifications of tasks when the listener has taken them.
        """
        while True:
            while not self._queue:
                await self._added.wait()
            batch = self._next_batch()
            await self._send(batch)
            if ends := [waiting.notification for waiting in batch if waiting.is_last]:
                await told(ends)

    def _next_batch(self) -> list[_Waiting]:
        """Take the first notifications of different tasks off the queue."""
        batch: dict[str, _Waiting] = {}
        while self._queue and len(batch) < SENT_TOGETHER and self._queue[0].notification.task_id not in batch:
            waiting = self._queue.popleft()
            batch[waiting.notification.task_id] = waiting
        return list(batch.values())

    async def _send(self, batch: Sequence[_Waiting]) -> None:
        """Send a batch; return when the listener has taken it."""

        def log(error: Exception, seconds: float) -> None:
            tasks = ", ".join(waiting.notification.task_id for waiting in batch)
            _log.info("task notifications not taken yet, retrying", tasks=tasks, error=str(error), seconds=seconds)

        notifications = tuple(waiting.notification for waiting in batch)
        await retry(partial(self._listener.ask, Notify, notifications), ActorError, log)
