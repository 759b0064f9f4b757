"""The actor's view of its mailbox."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Generic, TypeVar

import trio
from trio.lowlevel import checkpoint, wait_task_rescheduled

from actors._cell import exchange_of, first_field
from actors._context import HANDLING
from actors._errors import ActorError

if TYPE_CHECKING:
    from types import FrameType

    from actors._life import Life
    from actors._ref import Ref
    from actors._reply import Exchange

M = TypeVar("M", covariant=True)
NOTHING = object()
"""What is in hand when no message is."""


class Inbox(Generic[M]):
    """What an actor receives, one message at a time; one task of the actor may wait at a time.

    Asking for the next message says that the one before is finished. When the actor is told to stop, the iteration
    ends (and `receive` raises trio.EndOfChannel); what is still queued is not given out.
    """

    __slots__ = ("_life",)

    def __init__(self, life: Life) -> None:
        self._life = life

    def __aiter__(self) -> Inbox[M]:
        return self

    async def __anext__(self) -> M:
        life = self._life
        cell = life.cell
        if life.current is not NOTHING:
            self._finish_current()
        elif not life.reads:
            life.reads = True
            life.come_up()
        if cell.queue:
            await checkpoint()
        while not life.stopping:
            if cell.queue:
                message = self._take()
                if message is not NOTHING:
                    return message  # type: ignore[return-value]
            else:
                cell.start_receiving()
                await wait_task_rescheduled(cell.stop_receiving)
        raise StopAsyncIteration

    async def receive(self) -> M:
        """The next message. trio.EndOfChannel when the actor is to stop; on cancel no message was taken."""
        try:
            return await self.__anext__()
        except StopAsyncIteration:
            raise trio.EndOfChannel from None

    def receive_nowait(self) -> M:
        """The next message if one is there; else trio.WouldBlock. trio.EndOfChannel when the actor is to stop.

        Who takes several at once may answer them later, so the one before counts as kept: forgotten, it fails its asker
        only when its Reply is garbage collected, which for a batch in a local variable is when the batch is done.
        """
        life = self._life
        if life.stopping:
            raise trio.EndOfChannel
        cell = life.cell
        if cell.queue and not life.reads:
            life.reads = True
            life.come_up()
        while cell.queue:
            life.current = NOTHING
            message = self._take()
            if message is not NOTHING:
                return message  # type: ignore[return-value]
        raise trio.WouldBlock

    def reject(self, message: object, why: str = "the actor does not know this message") -> None:
        """The message in hand will not be handled: it becomes a dead letter, its asker gets ActorError. `case _:` of a match.

        ValueError if the message is not in hand: it is that from when it is received until the next one is.
        """
        life = self._life
        if message is not life.current:
            raise ValueError(f"{life.cell.path!r} rejects {message!r}, which it has not in hand")
        life.current = NOTHING
        exchange = exchange_of(message)
        if exchange is not None and exchange.holder is life:
            exchange.fail(ActorError, why)
        life.cell.handled -= 1
        life.cell.bury(message, why, by=life)

    def started(self) -> None:
        """Say that the actor is up, before it first receives: whoever starts it need not wait any longer."""
        self._life.come_up()

    @property
    def attempt(self) -> int:
        """1 for the actor's first run, 2 after its first restart, and so on."""
        return self._life.attempt

    @property
    def ref(self) -> Ref[M]:
        """The actor's own address."""
        from actors._ref import Ref

        return Ref(self._life.cell)

    # ------------------------------------------------------------ in hand

    def _take(self) -> object:
        """Take the oldest message in hand; NOTHING if its asker has left already, so that it need not be done."""
        life = self._life
        cell = life.cell
        message = cell.take() if cell.senders else cell.queue.popleft()
        exchange = exchange_of(message)
        if exchange is None:
            if HANDLING.get() is not None:
                HANDLING.set(None)
        else:
            if exchange.open:
                exchange.holder = life
                life.held[exchange] = None
            elif exchange.left:
                cell.bury(message, "its asker has left")
                return NOTHING
            HANDLING.set(exchange)
        cell.handled += 1
        life.current = message
        life.since = cell.system.now()
        return message

    def _finish_current(self) -> None:
        life = self._life
        exchange = exchange_of(life.current)
        if exchange is not None and exchange.holder is life:
            _fail_if_forgotten(exchange, life, sys._getframe(1))
        life.current = NOTHING


def _fail_if_forgotten(exchange: Exchange, life: Life, frame: FrameType) -> None:
    """The message is finished and not answered; unless its Reply is kept for later, it never will be."""
    from actors._reach import is_kept

    box, life.current = [life.current], NOTHING
    if not is_kept(box, first_field(box[0]), frame):
        exchange.fail(ActorError, "the actor has finished it without an answer")
