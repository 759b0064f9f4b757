"""Following tasks: who waits for one is woken when an event tells something new about it, and reads its log.

One loop reads the window of the last events for all who wait, since there may be hundreds of streams. It wakes them by the id of
their task, and only by events that a client is told of; a task with a hundred tool calls has its log read a few times. All who are
woken by the same event share one reading: hundreds of streams of one task would otherwise hold up everybody else.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final

import attrs
import trio

from actors import Signal
from pegasus.a2a.record import TELLING, TaskRecord
from pegasus.events import EventType, EventWindow

LOOK: Final = 15.0
"""Seconds after which whoever waits looks by itself. A crash of the task system may keep something from being heard."""
SHARED_FOR: Final = 1.0
"""Seconds for which a reading is shared as long as nothing is heard."""
_TELLING = frozenset(kind.name for kind in TELLING)


class TaskNews:
    """News about one task, for one who waits for them. Example: `with watch.listen(task_id) as news: await news.wait()`."""

    def __init__(self) -> None:
        self._news = trio.Event()
        self.has_begun = False
        """True when its first thought was told, or need not be."""
        self.is_new = False
        """True if its beginning was heard, so that all that follows is news."""

    def note(self) -> None:
        """Tell that there is something new."""
        self._news.set()

    async def wait(self, seconds: float = math.inf) -> bool:
        """Wait until there is something that was not waited for yet. Return False if the time was over before."""
        with trio.move_on_after(seconds):
            await self._news.wait()
        is_news, self._news = self._news.is_set(), trio.Event()
        return is_news


@attrs.define(eq=False, repr=False)
class _FollowedTask:
    """A task that somebody waits for."""

    listeners: list[TaskNews] = attrs.field(factory=list)
    record: TaskRecord | None = None
    """The task as it was read last."""
    read_at: float = -math.inf
    """Time on Trio's clock at which that reading began; minus infinity if something was heard since."""
    heard: int = 0
    """Events that were heard."""
    reading: trio.Lock = attrs.field(factory=trio.Lock)

    def note(self, kind: str = "") -> None:
        """Wake those whom this type of event tells something; all for ""."""
        self.heard, self.read_at = self.heard + 1, -math.inf
        for news in self.listeners:
            news.is_new = news.is_new or kind == EventType.TASK_CREATED.name
            if not kind or kind in _TELLING or (kind == EventType.REASON_DONE.name and not news.has_begun):
                news.has_begun = news.has_begun or bool(kind)
                news.note()


class TaskWatch:
    """Wakes those who follow tasks."""

    def __init__(
        self, recent: EventWindow, read: Callable[[str], Awaitable[TaskRecord | None]], look: float = math.inf
    ) -> None:
        """read: reads the log of a task. look: seconds after which all are woken in any case: other nodes are not heard here."""
        self._recent = recent
        self.read_anew = read
        """Returns a task with all that is on disk; None if there is none. Raises StorageError, ActorError."""
        self._look = look
        self._tasks: dict[str, _FollowedTask] = {}
        self._seen = recent.newest
        """Number of the last event that was looked at, or that came before anybody listened."""
        self._changed = Signal()

    @contextmanager
    def listen(self, task_id: str) -> Iterator[TaskNews]:
        """Return news about a task within the block. Whoever reads its log afterwards misses nothing."""
        news = TaskNews()
        if not self._tasks:
            self._seen = self._recent.newest
        task = self._tasks.setdefault(task_id, _FollowedTask())
        task.listeners.append(news)
        self._changed.notify()
        try:
            yield news
        finally:
            task.listeners.remove(news)
            if not task.listeners:
                del self._tasks[task_id]

    async def read(self, task_id: str) -> TaskRecord | None:
        """Return a task that is listened to, with all that was heard of it; None if there is none. Raises as `read_anew` does."""
        task = self._tasks[task_id]
        async with task.reading:
            if task.read_at + SHARED_FOR < trio.current_time():
                at, heard = trio.current_time(), task.heard
                task.record = await self.read_anew(task_id)
                task.read_at = at if heard == task.heard else -math.inf
            return task.record

    async def run(self) -> None:
        """Wake listeners, until cancelled. What happened while this did not run counts as news for all."""
        self._wake_all()
        while True:
            while not self._tasks:
                await self._changed.wait()
            with trio.move_on_after(self._look) as waited:
                await self._recent.wait_beyond(self._seen)
            events, is_gap = self._recent.after(self._seen)
            self._seen = self._recent.newest
            if is_gap or waited.cancelled_caught:
                self._wake_all()
            for each in events:
                if (task := self._tasks.get(str(each.event.get("taskId")))) is not None:
                    task.note(str(each.event["type"]))

    def _wake_all(self) -> None:
        for task in self._tasks.values():
            task.note()
