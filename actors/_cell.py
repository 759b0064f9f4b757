"""The permanent half of an actor: its address, its mailbox and its counters, which survive restarts (`ActorCell`).

The other half, one run of the actor's function, is an `Incarnation`. A cell has one incarnation after another.

**A mailbox is a Trio memory channel.** It is opened when the actor is first started, outlives restarts, and is closed when
the actor will not run again. What a channel does not know is added around it: the policies of a full mailbox, the counters,
dead letters, and the records of who waits. A run that is to stop has its receiving end closed under it (`end_receiving`),
and the next run goes on with a clone of that end. A task that already waits for a message gets the next one from its sender
directly. Such a message counts as waiting until the task runs, although it takes no place in the channel.

**Every message ends in exactly one way**: it is handled, dropped by the policy of its mailbox, or becomes a dead letter.
So at any moment, for every cell::

    sent = handled + queued + dropped + dead

A message that was refused with MailboxFull was never sent. The message in hand counts as handled; if the actor dies with
it, it is counted as dead instead. A sender that waits for room has not sent yet, so a cancel there loses nothing. If the
mailbox is closed meanwhile, its message becomes a dead letter.

**Waits of a start or stop.** While a supervisor waits for a child to come up or to end, it restarts nobody. If that
child then waits for a sibling that is down, neither goes on. So its question fails, and its message is not kept for the
sibling's next run but becomes a dead letter (`is_unreachable`, `fail_waiters`).
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext, suppress
from contextvars import ContextVar
from random import Random
from threading import get_ident
from typing import TYPE_CHECKING, Final, cast
from weakref import WeakValueDictionary

import attrs
import trio
from trio.lowlevel import Task, TrioToken, current_task

from actors._events import ActorDied, DeadLetter, Event, EventHub, Exit, MailboxFull, Overflowed
from actors._reply import Exchange, break_cycle_of_asker, break_cycle_of_sender, exchange_of
from actors._signal import Signal
from actors._spec import Mailbox, Overflow

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors._children import Children
    from actors._incarnation import Incarnation

_NO_MAILBOX: Final = Mailbox()
UNREACHABLE: Final = (
    "the actor is down and cannot be restarted while its supervisor waits for the sender to start or end"
)

CURRENT: ContextVar[Incarnation | None] = ContextVar("actors.current", default=None)
"""The run of an actor that the current task belongs to.

Tasks that the actor starts inherit it, so a supervisor that such a task opens stands below the actor. Only the actor's own
task can make the actor wait, see `current_actor`.
"""
HANDLING: ContextVar[Exchange | None] = ContextVar("actors.handling", default=None)
"""The question that the current task works on. Questions that it asks inherit the deadline."""


class ActorSystem:
    """State that all actors of one tree share.

    Example::

        system = ActorSystem(trio.lowlevel.current_trio_token(), random=None)
        cell = system.cell("lines/first")
        assert system.cell("lines/first") is cell

    `open_supervisor` makes one for each root; the supervisors below it and all refs share it.
    """

    def __init__(self, token: TrioToken, random: Random | None) -> None:
        self.cells: WeakValueDictionary[str, ActorCell] = WeakValueDictionary()
        """By path. A cell lives as long as a supervisor, a Ref or a running actor holds it."""
        self.hub = EventHub()
        self.waits: dict[Exchange, Task] = {}
        """Questions whose answers are waited for, each with the task that waits."""
        self.token = token
        self.thread = get_ident()
        """Trio's thread, and its token to reach it from others."""
        self._seed = 0 if random is None else random.getrandbits(64)

    def random_for(self, path: str) -> Random:
        """Return a random source that depends on nothing but the tree's seed and the path of a supervisor."""
        return Random(f"{self._seed}/{path}")  # noqa: S311

    def cell(self, path: str) -> ActorCell:
        """Return the only cell of this path. It is made when it is mentioned for the first time."""
        cell = self.cells.get(path)
        if cell is None:
            cell = self.cells[path] = ActorCell(self, path)
        return cell


@attrs.define(eq=False, repr=False)
class ActorCell:
    """One address with its mailbox.

    Example::

        cell.expect(child.mailbox)  # the supervisor, before a start
        cell.offer(message)  # a sender: into the mailbox, or a dead letter
        message = await cell.receive()  # the run

    Messages that wait survive a restart, because they belong to the cell and not to the run.
    """

    system: ActorSystem
    """"Tree that it belongs to. Its event hub gets what happens here."""
    path: str
    """Names from the root's child down, joined by "/"."""
    mailbox: Mailbox = attrs.field(init=False, default=_NO_MAILBOX)
    sending: trio.MemorySendChannel[object] = attrs.field(init=False)
    """End of the mailbox for senders. There is none before the first start, when `open` is False."""
    receiving: trio.MemoryReceiveChannel[object] = attrs.field(init=False)
    """End of the mailbox for the present run."""
    has_receiver: bool = attrs.field(init=False, default=False)
    """True while a task of the actor waits for a message."""
    senders: dict[Task, trio.CancelScope] = attrs.field(init=False, factory=dict)
    """Tasks that wait for room, each with a scope that ends its wait."""

    open: bool = attrs.field(init=False, default=False)
    """True if it takes messages. A cell that is down and waits for a restart does."""
    expected: bool = attrs.field(init=False, default=False)
    """True if the actor runs or will run again."""
    incarnation: Incarnation | None = attrs.field(init=False, default=None)
    """The present run or the last one; None before the first."""
    exit: Exit | None = attrs.field(init=False, default=None)
    """End of the last run that has ended."""
    attempt: int = attrs.field(init=False, default=0)
    """Number of the present or last run, from 1."""

    waits_for: Exchange | None = attrs.field(init=False, default=None)
    """The question whose answer the actor's own task waits for."""
    waits_for_room_in: ActorCell | None = attrs.field(init=False, default=None)
    """The actor in whose full mailbox the actor's own task wants to put a message."""

    # The five counters cover all runs, and are never reset. See the equation at the top of this file.
    sent: int = attrs.field(init=False, default=0)
    handled: int = attrs.field(init=False, default=0)
    """Messages that a run has taken, the one in hand included."""
    dropped: int = attrs.field(init=False, default=0)
    """Messages that the policy of the full mailbox has dropped."""
    dead: int = attrs.field(init=False, default=0)
    """Messages that became dead letters. Counted over all runs, like the counts above."""
    high_water: int = attrs.field(init=False, default=0)
    """Largest number of messages that have waited at the same time."""
    _gone: trio.Event = attrs.field(init=False, factory=trio.Event)
    """Set when somebody has to learn that the actor neither runs nor will run again, and replaced when it is started."""
    _came_up: Signal | None = attrs.field(init=False, default=None)
    """Given whenever a run is up; None as long as nobody has waited for that."""

    def run_in_trio(self, action: Callable[[Exchange], None], exchange: Exchange) -> None:
        """Call `action(exchange)` in Trio's thread, from a finaliser.

        Python may run a finaliser in any thread, and also after the Trio run has ended, when there is nobody to wake.
        """
        if get_ident() == self.system.thread:
            if trio.lowlevel.in_trio_run():
                action(exchange)
            return
        with suppress(trio.RunFinishedError):
            self.system.token.run_sync_soon(action, exchange)

    def publish(self, kind: Callable[..., Event], *details: object) -> None:
        """Publish an event about the present or last run of this actor."""
        if self.system.hub.has_streams:  # else it is not even made: that would take a twentieth of the time of a start
            self.system.hub.publish(kind(*details, path=self.path, attempt=self.attempt))

    # ------------------------------------------------------------ messages in

    def offer(self, message: object) -> bool:
        """Put the message into the mailbox, or end it by the mailbox's policy or as a dead letter.

        A question moves to this actor before it is put in, because a dead letter fails only a question that is here; if it
        is not accepted, it goes back to where it was, with the run that was responsible for it.

        Return False if the sender has to wait for room; then nothing has changed. Raises MailboxFull, and ActorDied
        after the end of the whole tree, when nobody would see a dead letter.
        """
        exchange = exchange_of(message)
        if exchange is None:
            return self._accept(message)
        target, holder = exchange.target, exchange.holder
        exchange.move_to(self)
        accepted = False
        try:
            accepted = self._accept(message)
        finally:
            if not accepted:
                exchange.move_back(target, holder)
        if accepted:
            break_cycle_of_asker(exchange)
        return accepted

    def _accept(self, message: object) -> bool:
        """Do the work of `offer`, without regard to a question that the message may be."""
        if not self.open:
            self._refuse(message)
            return True
        try:
            self.sending.send_nowait(message)
        except trio.WouldBlock:
            return self._overflow(message)
        self._count_sent()
        return True

    def _count_sent(self) -> None:
        """Count a message that is in the mailbox now."""
        self.sent += 1
        if self.high_water < self.depth:
            self.high_water = min(self.depth, self.mailbox.capacity)  # one given to a waiting task takes no place

    def _refuse(self, message: object) -> None:
        """Turn a message for an actor that is down into a dead letter."""
        why = "the actor is not running"
        if self.system.hub.closed:
            message_type = type(message).__name__
            raise ActorDied(f"{why}, its tree has ended", target=self.path, message_type=message_type)
        self.sent += 1
        self.dead_letter(message, why)

    def _overflow(self, message: object) -> bool:
        """Apply the policy of a full mailbox. Return False if the sender has to wait for room."""
        overflow = self.mailbox.overflow
        if overflow is Overflow.BLOCK:
            return False
        if overflow is Overflow.REJECT:
            self.publish(Overflowed, message)
            raise self.full_error(message)
        self.sent += 1
        if overflow is Overflow.DROP_OLDEST:
            oldest = self.take()
            self.sending.send_nowait(message)
            self._drop(oldest)
        else:
            self._drop(message)
        return True

    def full_error(self, message: object) -> MailboxFull:
        """Return the error for a message that does not fit."""
        why = f"its mailbox is full ({self.mailbox.capacity} messages)"
        return MailboxFull(why, target=self.path, message_type=type(message).__name__)

    def _drop(self, message: object) -> None:
        """Count and publish a message that the policy drops. Its asker gets MailboxFull."""
        self.dropped += 1
        exchange = exchange_of(message)
        if exchange is not None and exchange.open:
            exchange.settle(None, self.full_error(message))
        self.publish(Overflowed, message)

    async def wait_for_room(self, message: object) -> None:
        """Wait until the message is in the mailbox, or has become a dead letter because the mailbox was closed.

        A question is in the line of this mailbox meanwhile, and its former holder not responsible for it. On cancel it was
        not sent, and the question is where it was before, so it can still be answered there.
        """
        if self.is_unreachable():
            self._dead_letter_unsent(message)
            return
        exchange = exchange_of(message)
        if exchange is None:
            await self._stand_in_line(message)
            return
        target, holder = exchange.target, exchange.holder
        exchange.move_to(self)
        break_cycle_of_asker(exchange)
        try:
            await self._stand_in_line(message)
        except trio.Cancelled:
            exchange.move_back(target, holder)
            raise

    async def _stand_in_line(self, message: object) -> None:
        """Do the work of `wait_for_room`. The wait is recorded, for the search for cycles and for `fail_waiters`."""
        sender = current_actor()
        if sender is not None and sender.waits_for is not None:
            sender = None  # it asks, and is recorded as waiting for the answer, for which it waits after the room
        if sender is not None:
            sender.waits_for_room_in = self
            break_cycle_of_sender(sender)
        task = current_task()
        try:
            with trio.CancelScope() as self.senders[task]:
                await self.sending.send(message)
                return
        finally:
            del self.senders[task]
            if sender is not None:
                sender.waits_for_room_in = None
        self._dead_letter_unsent(message)

    # ------------------------------------------------------------ messages out

    @property
    def depth(self) -> int:
        """Number of messages that wait to be received."""
        return self.sent - self.handled - self.dropped - self.dead

    def take(self) -> object:
        """Remove the oldest message from the mailbox. Raises trio.WouldBlock if there is none.

        The first sender that waits for room moves up in the same step, so nobody else takes its place. Its message is
        counted here, since it may be received before the sender runs.
        """
        moves_up = self.senders and self.receiving.statistics().tasks_waiting_send
        message = self.receiving.receive_nowait()
        if moves_up:
            self.sent += 1
        return message

    async def receive(self) -> object:
        """Return the oldest message, which the caller has to count. For one task at a time.

        Raises trio.EndOfChannel or trio.ClosedResourceError if the actor is asked to stop. On cancel no message is lost.
        """
        if self.has_receiver:
            raise trio.BusyResourceError("another task of this actor is receiving already")
        if self.depth:
            return self.take()
        self.has_receiver = True
        try:
            return await self.receiving.receive()
        finally:
            self.has_receiver = False

    def end_receiving(self) -> None:
        """End the wait of the task in `receive`, if there is one. The messages stay in the mailbox."""
        if self.has_receiver:
            former, self.receiving = self.receiving, self.receiving.clone()
            former.close()

    def dead_letter(
        self, message: object, why: str, *, holder: Incarnation | None = None, cause: BaseException | None = None
    ) -> None:
        """Count and publish the message as a dead letter, and fail its asker.

        holder: the run that had the message in hand. A question that has been handed on since then is in other hands,
        and its asker still waits.
        """
        self.dead += 1
        exchange = exchange_of(message)
        if exchange is not None and exchange.target is self and exchange.holder is holder:
            exchange.fail(ActorDied, why, cause)
        self.publish(DeadLetter, message, why)

    # ------------------------------------------------------------ senders that must not wait

    def is_unreachable(self) -> bool:
        """Return whether the actor is down and the current task must not wait for its restart (see the module)."""
        incarnation = self.incarnation
        return incarnation is not None and incarnation.done and incarnation.siblings.blocked_by(current_task())

    def fail_if_unreachable(self, exchange: Exchange) -> None:
        """Fail this question, which the current task is about to wait for, if the actor is unreachable for it."""
        if exchange.holder is None and self.is_unreachable():
            exchange.refuse(exchange.make_error(ActorDied, UNREACHABLE))

    def fail_waiters(self, siblings: Children) -> None:
        """Fail the questions, and end the waits for room, of tasks that must not wait for this actor, which is down."""
        for exchange, task in tuple(self.system.waits.items()):
            if exchange.target is self and exchange.holder is None and exchange.open and siblings.blocked_by(task):
                exchange.refuse(exchange.make_error(ActorDied, UNREACHABLE))
        for task, scope in self.senders.items():
            if siblings.blocked_by(task):
                scope.cancel(reason=UNREACHABLE)

    def _dead_letter_unsent(self, message: object) -> None:
        """Turn a message into a dead letter that has waited for room, or was about to."""
        self.sent += 1
        if (exchange := exchange_of(message)) is not None:
            exchange.move_to(self)
        self.dead_letter(message, UNREACHABLE)

    # ------------------------------------------------------------ open and closed

    def expect(self, mailbox: Mailbox) -> None:
        """Take messages from now on, because the actor is being started. The mailbox is that of its present spec."""
        if not self.open:
            self.mailbox = mailbox
            self.sending, self.receiving = trio.open_memory_channel(mailbox.capacity)
        self.open = self.expected = True
        if self._gone.is_set():
            self._gone = trio.Event()

    def close(self, why: str) -> None:
        """Note that the actor will not run again, and turn all messages that wait into dead letters."""
        self.expected = False
        self.close_mailbox(why)
        self.check_gone()

    def close_mailbox(self, why: str) -> None:
        """Take no more messages, and turn all that wait, in the mailbox or before it, into dead letters."""
        if self.open:
            self.open = False
            with suppress(trio.WouldBlock):
                while True:
                    self.dead_letter(self.take(), why)
            self.sending.close()

    @property
    def alive(self) -> bool:
        """True while the actor is up and was not asked to stop."""
        incarnation = self.incarnation
        return incarnation is not None and incarnation.up and not incarnation.done and not incarnation.stopping

    async def wait_alive(self) -> None:
        """Wait until `alive` is True. Always a checkpoint."""
        await trio.lowlevel.checkpoint()
        while not self.alive:
            if self._came_up is None:
                self._came_up = Signal()
            await self._came_up.wait()

    def note_up(self) -> None:
        """Wake the tasks in `wait_alive`."""
        if self._came_up is not None:
            self._came_up.notify()

    async def wait_gone(self) -> None:
        """Wait until the actor neither runs nor will run again. Always a checkpoint."""
        self.check_gone()
        await self._gone.wait()

    def check_gone(self) -> None:
        """Wake the tasks in `wait_gone` if the actor neither runs nor will run again."""
        if not self.expected and (self.incarnation is None or self.incarnation.done):
            self._gone.set()


def until(deadline: float) -> AbstractContextManager[object, bool]:
    """Return a context that is left at this Trio time.

    Most waits have no deadline, and a cancel scope costs as much as the rest of an ask. So without one, it is empty.
    """
    if deadline == math.inf:
        return cast("AbstractContextManager[object, bool]", nullcontext())
    return trio.move_on_at(deadline)


def current_actor() -> ActorCell | None:
    """Return the actor whose own task is running, so that it handles nothing while this task waits.

    None for other tasks, also for those that an actor has started: while they wait, the actor goes on.
    """
    incarnation = CURRENT.get()
    return incarnation.cell if incarnation is not None and incarnation.task is current_task() else None
