"""Following tasks: who waits for one is woken when an event tells something new about it.

One loop reads the window of the last events for all who wait, since there may be hundreds of streams. It wakes them by the id of
their task, and only by events that a client is told of; a task with a hundred tool calls has its log read a few times.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import trio

from actors import Signal
from pegasus.a2a.record import TELLING
from pegasus.events import EventType, EventWindow

_TELLING = frozenset(kind.name for kind in TELLING)


class TaskNews:
    """News about one task, for one who waits for them. Example: `with watch.listen(task_id) as news: await news.wait()`."""

    def __init__(self) -> None:
        self._news = trio.Event()
        self.has_begun = False
        """True when its first thought was told, or need not be."""

    def note(self) -> None:
        """Tell that there is something new."""
        self._news.set()

    async def wait(self) -> None:
        """Wait until there is something that was not waited for yet."""
        await self._news.wait()
        self._news = trio.Event()


class TaskWatch:
    """Wakes those who follow tasks."""

    def __init__(self, recent: EventWindow, look: float = math.inf) -> None:
        """look: seconds after which all are woken in any case: what tasks of other nodes do is not heard here."""
        self._recent = recent
        self._look = look
        self._listeners: dict[str, list[TaskNews]] = {}
        self._changed = Signal()

    @contextmanager
    def listen(self, task_id: str) -> Iterator[TaskNews]:
        """Return news about a task within the block. Whoever reads its log afterwards misses nothing."""
        news = TaskNews()
        self._listeners.setdefault(task_id, []).append(news)
        self._changed.notify()
        try:
            yield news
        finally:
            self._listeners[task_id].remove(news)
            if not self._listeners[task_id]:
                del self._listeners[task_id]

    async def run(self) -> None:
        """Wake listeners, until cancelled. What happened while this did not run counts as news for all."""
        while True:
            while not self._listeners:
                await self._changed.wait()
            seen = self._recent.newest
            self._wake(())
            while self._listeners:
                with trio.move_on_after(self._look) as waited:
                    await self._recent.wait_beyond(seen)
                events, is_gap = self._recent.after(seen)
                is_gap = is_gap or waited.cancelled_caught
                seen = self._recent.newest
                self._wake(
                    () if is_gap else [(str(each.event.get("taskId")), str(each.event["type"])) for each in events]
                )

    def _wake(self, events: Sequence[tuple[str, str]]) -> None:
        """Wake the listeners of these tasks; of all tasks for ()."""
        if not events:
            for listeners in self._listeners.values():
                for news in listeners:
                    news.note()
        for task_id, kind in events:
            for news in self._listeners.get(task_id, ()):
                if kind in _TELLING or (kind == EventType.REASON_DONE.name and not news.has_begun):
                    news.has_begun = True
                    news.note()
