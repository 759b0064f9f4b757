"""What happens in a tree, as one stream of values: for logs, for the tree view, for tests."""

from __future__ import annotations

import weakref
from collections import deque
from types import TracebackType
from typing import TypeAlias

import attrs
import trio

from actors._errors import GaveUp
from actors._exits import Exit


@attrs.frozen(eq=False, kw_only=True)
class _Event:
    """path: the actor. time: trio.current_time() in seconds. attempt: how many times it had been started."""

    path: str
    time: float
    attempt: int


@attrs.frozen(eq=False)
class Started(_Event):
    """The actor is up: it receives, or has said so by inbox.started()."""


@attrs.frozen(eq=False)
class Exited(_Event):
    """The actor has ended. A crash keeps its error with the traceback."""

    exit: Exit


@attrs.frozen(eq=False)
class Restarting(_Event):
    """The actor will be started again in `delay` seconds."""

    delay: float


@attrs.frozen(eq=False)
class DeadLetter(_Event):
    """A message that nobody will handle, and why."""

    message: object
    why: str


@attrs.frozen(eq=False)
class Overflowed(_Event):
    """A full mailbox dropped or refused this message."""

    message: object


@attrs.frozen(eq=False)
class Stuck(_Event):
    """The actor was cancelled and still runs; `stack` is where it waits, outermost first, "file:line in function"."""

    stack: tuple[str, ...]


Event: TypeAlias = Started | Exited | Restarting | GaveUp | DeadLetter | Overflowed | Stuck


class Events:
    """The events of a tree from now on: an async iterator that ends after the tree has ended.

    A reader that is more than `capacity` events behind loses the oldest; `missed` counts them. For one reading task.
    """

    def __init__(self, capacity: int) -> None:
        self.missed = 0
        self._queue: deque[Event] = deque(maxlen=capacity)
        self._news = trio.Event()
        self._ended = False

    def __aiter__(self) -> Events:
        return self

    async def __anext__(self) -> Event:
        await trio.lowlevel.checkpoint()
        while not self._queue:
            if self._ended:
                raise StopAsyncIteration
            self._news = trio.Event()
            await self._news.wait()
        return self._queue.popleft()

    def __enter__(self) -> Events:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def receive_nowait(self) -> Event:
        """The next event that has already happened; trio.WouldBlock when there is none."""
        if not self._queue:
            raise trio.WouldBlock
        return self._queue.popleft()

    def close(self) -> None:
        """Take no more events; what is there can still be read."""
        self._ended = True
        self._news.set()

    def _put(self, event: Event) -> None:
        if self._ended:
            return
        self.missed += len(self._queue) == self._queue.maxlen
        self._queue.append(event)
        self._news.set()


class Hub:
    """Hands every event to every stream that somebody still holds."""

    def __init__(self) -> None:
        self._streams: list[weakref.ref[Events]] = []
        self.closed = False

    def subscribe(self, capacity: int) -> Events:
        stream = Events(capacity)
        if self.closed:
            stream.close()
        self._streams = [ref for ref in self._streams if ref() is not None]
        self._streams.append(weakref.ref(stream))
        return stream

    @property
    def heard(self) -> bool:
        """Whether anybody has ever listened; else the frequent events need not even be made."""
        return bool(self._streams)

    def publish(self, event: Event) -> None:
        for ref in self._streams:
            stream = ref()
            if stream is not None:
                stream._put(event)

    def close(self) -> None:
        self.closed = True
        for ref in self._streams:
            stream = ref()
            if stream is not None:
                stream.close()
