"""The bounded queue between everybody who has something for a client and the one task that writes to it.

Four kinds of traffic, four ways to bound it: pushes (replies, typing) are refused when the queue is full, and the caller
disconnects the client; drafts are left out while it is more than half full; answers to what the client itself said wait in
at most ANSWERS slots, and the client is not read while they are taken; what is read from the journal waits for room.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeAlias

import trio

ANSWERS = 64
"""Answers one connection may have outstanding: that many messages share an fsync, and the next is not read before."""

Later: TypeAlias = Callable[[], Awaitable[str]]
"""A frame that is not known yet. Whatever is behind it waits, which keeps answers in order; it must have a deadline."""


class Ping:
    """An entry that asks the writer for a ping."""


Entry: TypeAlias = str | Later | Ping
PING = Ping()


class Closing(NamedTuple):
    """How the connection is to end once what is queued is written."""

    code: int
    reason: str


class Outgoing:
    """frames, size: what pushes may fill; size in bytes at most (a character may be counted as four)."""

    def __init__(self, frames: int = 256, size: int = 1 << 20) -> None:
        self.closing: Closing | None = None
        self._frames = frames
        self._limit = size
        self._size = 0
        self._answers = 0
        self._pinging = False
        self._entries: deque[tuple[Entry, bool]] = deque()
        self._news = trio.Event()
        self._space = trio.lowlevel.ParkingLot()

    def __len__(self) -> int:
        return len(self._entries)

    def push(self, frame: str) -> bool:
        """Queue a frame nobody waits for; False if the queue is full. The last one may be of any size."""
        if len(self._entries) >= self._frames or self._size >= self._limit:
            return False
        self._put(frame, is_answer=False)
        return True

    def answer(self, frame: str | Later) -> None:
        """Queue the answer to something the client said; it takes one of the slots until the writer takes it."""
        self._put(frame, is_answer=True)

    def ping(self) -> None:
        """Queue a ping, unless one waits already."""
        if not self._pinging:
            self._pinging = True
            self._put(PING, is_answer=False)

    async def slot(self) -> None:
        """Wait until an answer may be queued."""
        while self._answers >= ANSWERS and self.closing is None:
            await self._space.park()

    @property
    def is_behind(self) -> bool:
        """More than half of what pushes may fill is full."""
        return len(self._entries) > self._frames // 2 or self._size > self._limit // 2

    async def room(self) -> None:
        """Wait until the queue is half empty."""
        while self.is_behind and self.closing is None:
            await self._space.park()

    def close(self, code: int, reason: str, *, flush: bool = True) -> None:
        """Take nothing more; what is queued is still to be written (flush) or dropped. The first call counts."""
        if self.closing is None:
            self.closing = Closing(code, reason)
            if not flush:
                self._entries.clear()
            self._news.set()
            self._space.unpark_all()

    async def take(self) -> Entry | None:
        """The oldest entry; waits for one; None when the queue is closed and empty. For one task, the writer."""
        while not self._entries and self.closing is None:
            self._news = trio.Event()
            await self._news.wait()
        return self.take_nowait()

    def take_nowait(self) -> Entry | None:
        """The oldest entry, None if there is none."""
        if not self._entries:
            return None
        entry, is_answer = self._entries.popleft()
        self._answers -= is_answer
        if isinstance(entry, str):
            self._size -= _size(entry)
        elif entry is PING:
            self._pinging = False
        self._space.unpark_all()
        return entry

    def _put(self, entry: Entry, *, is_answer: bool) -> None:
        if self.closing is not None:
            return
        self._entries.append((entry, is_answer))
        self._answers += is_answer
        self._size += _size(entry) if isinstance(entry, str) else 0
        self._news.set()


def _size(frame: str) -> int:
    return len(frame) if frame.isascii() else 4 * len(frame)
