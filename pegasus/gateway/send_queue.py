"""`SendQueue`: the frames that wait for one client, whoever has them for it.

It is bounded, and stands between everybody who has a frame for a client and the one task that writes to that client
(`write_to`). Five kinds of traffic are bounded in five ways, because their senders can do different things about a slow client:

* *Pushes* (replies, typing) come from the agent, which must not wait for one client. If the queue is full the client is
  disconnected. Nothing is lost: its replies stay in the outbox until somebody acknowledges them.
* *Drafts* replace each other: of each conversation only the newest waits, behind the replies before it. Each draft is the whole text
  so far, so nothing is missing. They do not count for the bounds of the others, and are left out while the queue is more than half
  full or MAX_DRAFTS of them wait. One that ends it, withdrawn or cut off, is never left out.
* *States* of tasks and approvals replace each other: the newest of each waits, however slow the client is, for at most MAX_STATES of
  them.
* *Answers* are caused by the client's own frames. While ANSWERS of them are outstanding the client is not read, and TCP
  slows it down.
* *Backlog* (replies read from the journal) waits until the queue is at most half full.

After `close` nothing is taken any more, so a connection that is ending is neither filled nor reported a second time.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol, TypeAlias

import attrs
import trio

from actors import Signal
from pegasus.observe import get_logger
from pegasus.protocol import TRY_LATER, WebSocketClosed

ANSWERS = 64
"""Answers that one connection may have outstanding. So many messages share a sync of the disk; the next is not read before."""

MAX_DRAFTS = 16
"""Conversations of a bridge whose drafts may wait for it. The agent works on few at the same time."""
MAX_STATES = 256
"""Tasks and approvals whose newest state may wait for a client. One conversation never has so many open ones."""

_log = get_logger("gateway")

FrameSource: TypeAlias = str | Callable[[], Awaitable[str]]
"""A frame, or a function that waits for it. Frames behind the latter wait, too, which keeps answers in order. It must end by
itself within a bounded time, and may not raise."""


@attrs.frozen(eq=False, repr=False)
class QueuedFrame:
    """A frame that waits in a queue."""

    frame: FrameSource
    """Text of the frame, or a function that waits for it."""
    size: int = 0
    """Bytes that count for the bound, or a little more. Drafts, and answers that are not known yet, count as nothing; they are few."""
    is_answer: bool = False
    """True if it answers a frame of the client. While too many of these wait, the client is not read."""
    draft_of: str | None = None
    """ChannelId of the conversation that it is the draft of; None if it is none."""


class FrameSocket(Protocol):
    """The part of a `WebSocket` that the writer needs."""

    async def write(self, frames: list[str]) -> None:
        """Send text messages in one write. Raises WebSocketClosed."""


class SendQueue:
    """The frames that wait for one client; see the top of this file for the five kinds of traffic.

    Example::

        queue = SendQueue()
        queue.push('{"type":"reply", …}')
        await queue.answer('{"type":"accepted", …}')
        await queue.write_to(socket, 30.0)    # the writer: both frames in one write, and what follows
    """

    def __init__(self, max_frames: int = 256, max_bytes: int = 1 << 20) -> None:
        self.client = "a client that has not greeted"
        """The client's name in the log."""
        self.closing: tuple[int, str] | None = None
        """Code and reason of the close frame that is sent behind what is queued. None until the first `close`."""
        self.closed = trio.Event()
        """Set by `close`."""
        self._max_frames = max_frames
        self._max_bytes = max_bytes
        self._entries: deque[QueuedFrame] = deque()
        """Entries that wait, oldest first."""
        self._drafts: dict[str, QueuedFrame] = {}
        """The drafts among the entries, by channelId."""
        self._states: dict[str, str] = {}
        """The newest frame about each task or approval, by its id, behind the entries."""
        self._bytes = 0
        """Bytes of the entries."""
        self._answers = 0
        """Answers that wait."""
        self._changed = Signal()
        """Wakes the writer, a backlog, and the reader whose answers wait, whenever something was added, taken or closed."""

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def _counted(self) -> int:
        """Number of entries that count for the bounds."""
        return len(self._entries) - len(self._drafts)

    @property
    def is_behind(self) -> bool:
        """True if more than half of what may wait for the client waits."""
        return self._counted > self._max_frames // 2 or self._bytes > self._max_bytes // 2

    def put(self, frame: FrameSource, *, is_answer: bool = False) -> None:
        """Queue a frame whatever waits already: the welcome, or the last error before a close."""
        if self.closing is None:
            size = len(frame) * (1 if frame.isascii() else 4) if isinstance(frame, str) else 0
            self._entries.append(QueuedFrame(frame, size, is_answer))
            self._bytes += size
            self._answers += is_answer
            self._changed.notify()

    def push(self, frame: str) -> None:
        """Queue a frame of the agent. If the queue is full, close it instead; the last frame may be of any size."""
        if self.closing is None and (self._counted >= self._max_frames or self._bytes >= self._max_bytes):
            _log.warning("a client does not read; it is disconnected", client=self.client, queued=len(self._entries))
            self.close(TRY_LATER, "you do not read; the replies are kept for you", flush=False)
        self.put(frame)

    def push_draft(self, channel_id: str, frame: str, *, is_last: bool = False) -> None:
        """Queue the draft of a conversation, instead of the one that waits, if one does."""
        waiting = self._drafts.get(channel_id)
        is_full = self.is_behind or (waiting is None and len(self._drafts) >= MAX_DRAFTS)
        if self.closing is not None or (is_full and not is_last):
            return
        if waiting is not None:
            self._entries.remove(waiting)  # a reply may stand between the two: the new one comes behind it
        draft = self._drafts[channel_id] = QueuedFrame(frame, draft_of=channel_id)
        self._entries.append(draft)
        self._changed.notify()

    def push_state(self, name: str, frame: str) -> None:
        """Queue the state of a task or an approval instead of the one that waits, if one does. name: its id."""
        if self.closing is None:
            self._states.pop(name, None)
            self._states[name] = frame
            if len(self._states) > MAX_STATES:
                del self._states[next(iter(self._states))]
            self._changed.notify()

    async def answer(self, frame: FrameSource) -> None:
        """Queue an answer. If too many wait, wait until the writer has taken enough of them. Cancelled in this wait, it is queued."""
        self.put(frame, is_answer=True)
        while self._answers >= ANSWERS:
            await self._changed.wait()

    async def wait_for_room(self) -> None:
        """Wait until the queue is at most half full or closing."""
        while self.is_behind and self.closing is None:
            await self._changed.wait()
        await trio.lowlevel.checkpoint()

    def close(self, code: int, reason: str, *, flush: bool = True) -> None:
        """Take nothing more. What is queued is still written (flush) or dropped. Only the first call counts."""
        if self.closing is None:
            self.closing = (code, reason)
            if not flush:
                self.drop()
            self.closed.set()
            self._changed.notify()

    def drop(self) -> None:
        """Drop what is queued: the client is not to have it."""
        self._entries.clear()
        self._drafts.clear()
        self._states.clear()
        self._bytes = self._answers = 0
        self._changed.notify()

    async def write_to(self, socket: FrameSocket, send_timeout: float) -> bool:
        """Write what is queued until the queue is closed and empty. Return whether the client can still be reached. For one task.

        The oldest frame and those behind it that are known go out in one write. It takes several turns of the event loop, in each of
        which a reply may be pushed. A write for each frame would let a burst of large replies fill the queue of a client that reads as
        fast as it can.

        After the client has gone, pending answers are waited for nevertheless, so that what it has asked for is done. A write that
        takes longer than `send_timeout` seconds leaves half a frame on the wire, so the connection cannot be used any more.
        """
        with trio.CancelScope() as scope, suppress(WebSocketClosed):
            while frames := await self._next_frames():
                scope.deadline = trio.current_time() + send_timeout
                await socket.write(frames)
                scope.deadline = math.inf
            return True
        if scope.cancelled_caught:
            _log.warning("a client does not take what is sent; it is disconnected", client=self.client)
            self.close(TRY_LATER, "you do not read", flush=False)
        while await self._next_frames():
            pass
        return False

    async def _next_frames(self) -> list[str]:
        """Wait for frames, and take those of the next write. Return [] when the queue is closed and empty."""
        while not self._entries and not self._states:
            if self.closing is not None:
                return []
            await self._changed.wait()
        frames: list[str] = []
        while self._entries and (not frames or isinstance(self._entries[0].frame, str)):
            entry = self._entries.popleft()
            self._bytes -= entry.size
            self._answers -= entry.is_answer
            if entry.draft_of is not None:
                del self._drafts[entry.draft_of]
            self._changed.notify()
            frames.append(entry.frame if isinstance(entry.frame, str) else await entry.frame())
        if not self._entries:
            frames += self._states.values()
            self._states.clear()
        return frames
