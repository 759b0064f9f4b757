"""The bounded queue between everybody who has a frame for a client and the one task that writes to that client.

Four kinds of traffic are bounded in four ways, because their senders can do different things about a client that is slow:

* *Pushes* (replies, typing) come from the agent, which must not wait for one client. If the queue is full the client is
  disconnected. Nothing is lost: its replies stay in the outbox until somebody acknowledges them.
* *Drafts* are left out while the queue is more than half full. Each draft is the whole text so far, so the next one, or the
  reply, makes up for it.
* *Answers* are caused by the client's own frames. It may have ANSWERS outstanding; while it has, it is not read, and TCP
  slows it down.
* *Backlog* (replies read from the journal) waits until the queue is at most half full.

After `close` nothing is taken any more, so a connection that is ending is neither filled nor reported a second time.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol, TypeAlias

import attrs
import trio

from pegasus.observe import get_logger
from pegasus.protocol import TRY_LATER

ANSWERS = 64
"""Answers that one connection may have outstanding. So many messages share a sync of the disk; the next is not read before."""

_log = get_logger("gateway")


class PendingFrame(Protocol):
    """A frame whose content is not known yet. Frames behind it wait, which keeps answers in order."""

    async def frame(self) -> str:
        """Wait for the frame's text. Must end by itself within a bounded time, and may not raise."""


Entry: TypeAlias = str | PendingFrame


@attrs.frozen
class Closing:
    """The end of a connection, once what is queued has been written."""

    code: int
    """The code of the WebSocket close frame."""
    reason: str
    """The reason in it, for a person."""


class SendQueue:
    """The frames that wait for one client; see the top of this file for its four kinds of traffic.

    Example::

        queue = SendQueue()
        queue.push('{"type":"reply", …}')
        await queue.reserve()                 # place for an answer
        queue.answer('{"type":"accepted", …}')
        await queue.take()                    # the writer: '{"type":"reply", …}'
    """

    def __init__(self, max_frames: int = 256, max_bytes: int = 1 << 20) -> None:
        self.client = "a client that has not greeted"
        """The client's name in the log."""
        self.closing: Closing | None = None
        """Set by the first `close`."""
        self._max_frames = max_frames
        self._max_bytes = max_bytes
        self._bytes = 0
        """Bytes of the frames that wait, or a little more. Answers that are not known yet count as nothing; they are few."""
        self._entries: deque[tuple[Entry, bool]] = deque()
        """Each entry, and whether it holds one of the places for answers."""
        self._places = trio.Semaphore(ANSWERS)
        """Free places for answers."""
        self._changed = trio.Event()
        """Replaced by a new one whenever something was added, taken or closed: for the writer, and for a backlog."""
        self._closed = trio.Event()
        """Set by `close`."""

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def is_behind(self) -> bool:
        """More than half of what may wait for the client waits."""
        return len(self._entries) > self._max_frames // 2 or self._bytes > self._max_bytes // 2

    def put(self, frame: str) -> None:
        """Queue a frame whatever waits already: the welcome, or the last error before a close."""
        self._append(frame, holds_place=False)

    def push(self, frame: str) -> None:
        """Queue a frame of the agent. If the queue is full, close it instead; the last frame may be of any size."""
        if self.closing is not None:
            return
        if len(self._entries) >= self._max_frames or self._bytes >= self._max_bytes:
            _log.warning("a client does not read; it is disconnected", client=self.client, queued=len(self._entries))
            self.close(TRY_LATER, "you do not read; the replies are kept for you", flush=False)
            return
        self._append(frame, holds_place=False)

    def push_draft(self, frame: str) -> None:
        """Queue a draft, unless the client is behind."""
        if not self.is_behind:
            self.push(frame)

    async def reserve(self) -> None:
        """Wait for a place for an answer. Cancelled, no place is taken. While the queue is closing it may wait for ever."""
        await self._places.acquire()

    def answer(self, entry: Entry) -> None:
        """Queue the answer for which a place was reserved; the place is free again when the writer takes the answer."""
        self._append(entry, holds_place=True)

    async def wait_for_room(self) -> None:
        """Wait until the queue is at most half full or closing."""
        while self.is_behind and self.closing is None:
            await self._changed.wait()
        await trio.lowlevel.checkpoint()

    def close(self, code: int, reason: str, *, flush: bool = True) -> None:
        """Take nothing more. What is queued is still written (flush) or dropped. Only the first call counts."""
        if self.closing is None:
            self.closing = Closing(code, reason)
            if not flush:
                self._entries.clear()
                self._bytes = 0
            self._closed.set()
            self._notify()

    async def wait_closing(self) -> None:
        """Wait until the queue was closed."""
        await self._closed.wait()

    async def take(self) -> Entry | None:
        """Wait for the oldest entry and return it; None when the queue is closed and empty. For one task, the writer."""
        while not self._entries:
            if self.closing is not None:
                return None
            await self._changed.wait()
        entry, holds_place = self._entries.popleft()
        if holds_place:
            self._places.release()
        self._bytes -= _size(entry)
        self._notify()
        return entry

    def take_known(self) -> list[str]:
        """Return the oldest frames up to the first that is not known yet, without waiting.

        The writer sends them with the frame that `take` returned, in one write. One write takes several turns of the event loop,
        in each of which a reply may be pushed; a frame for each write would let a burst of large replies fill the queue of a
        client that reads as fast as it can.
        """
        frames: list[str] = []
        while self._entries and isinstance(self._entries[0][0], str):
            entry, holds_place = self._entries.popleft()
            if holds_place:
                self._places.release()
            self._bytes -= _size(entry)
            frames.append(str(entry))
        if frames:
            self._notify()
        return frames

    def _append(self, entry: Entry, *, holds_place: bool) -> None:
        if self.closing is None:
            self._entries.append((entry, holds_place))
            self._bytes += _size(entry)
            self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


def _size(entry: Entry) -> int:
    """Return the size of a frame in bytes, or a little more; 0 for one that is not known yet."""
    if not isinstance(entry, str):
        return 0
    return len(entry) if entry.isascii() else 4 * len(entry)
