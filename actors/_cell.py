"""What stays of an actor when it is restarted: its address, its mailbox, its counts.

A message ends in exactly one way: handled, dropped by the mailbox's policy, or as a dead letter. So, always,
sent = handled + queued + dropped + dead. (A refused message was never sent; one in hand counts as handled, and is
moved to the dead if the actor dies with it.)
"""

from __future__ import annotations

from collections import deque
from random import Random
from threading import get_ident
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import trio
from trio.lowlevel import Abort, Task, TrioToken, current_task, reschedule, wait_task_rescheduled

from actors._circle import busy_actor, check_line, check_moved
from actors._errors import ActorDied, MailboxFull
from actors._events import DeadLetter, Hub, Overflowed
from actors._reply import Exchange, Reply
from actors._spec import Mailbox, Overflow

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors._children import Children
    from actors._exits import Exit
    from actors._life import Life

_NO_MAILBOX = Mailbox()
HOPELESS = "the actor is down, and does not come back as long as its supervisor waits for the sender to start or end"
_FIRST_FIELD: dict[type, str] = {}


def exchange_of(message: object) -> Exchange | None:
    """What the message asks, if its first field is a Reply."""
    try:
        name = _FIRST_FIELD[type(message)]
    except KeyError:
        name = first_field(message)
    if not name:
        return None
    first = getattr(message, name, None)
    return first._exchange if type(first) is Reply else None


def first_field(message: object) -> str:
    """Name of the first positional field of an attrs class, dataclass or named tuple; "" for anything else."""
    fields = getattr(type(message), "__match_args__", ())
    _FIRST_FIELD[type(message)] = name = fields[0] if fields else ""
    return name


class System:
    """What the actors of one tree share: addresses, events, Trio's thread, and the seed of its random sources."""

    def __init__(self, token: TrioToken, random: Random | None) -> None:
        self.cells: WeakValueDictionary[str, Cell] = WeakValueDictionary()
        self.hub = Hub()
        self.token = token
        self.thread = get_ident()
        self.now = trio.lowlevel.current_clock().current_time  # trio.current_time() without looking for the clock
        self._seed = 0 if random is None else random.getrandbits(64)

    def random_for(self, path: str) -> Random:
        """A source that depends on nothing but the tree's seed and the path of the supervisor it is for."""
        return Random(f"{self._seed}/{path}")  # noqa: S311

    def cell(self, path: str) -> Cell:
        """The one cell of this path; it is made at first mention and lives as long as somebody holds it."""
        cell = self.cells.get(path)
        if cell is None:
            cell = self.cells[path] = Cell(self, path)
        return cell


class Cell:
    """One address. expected: it runs or will run again. open: it takes messages. life: the present or the last run.

    waits_for: the question that the actor's own task waits for. stands_at: in whose mailbox it waits for room.
    """

    __slots__ = (
        "__weakref__",
        "_gone",
        "attempt",
        "dead",
        "dropped",
        "exit",
        "expected",
        "handled",
        "high_water",
        "life",
        "mailbox",
        "open",
        "path",
        "queue",
        "receiver",
        "senders",
        "sent",
        "stands_at",
        "system",
        "waits_for",
    )

    def __init__(self, system: System, path: str) -> None:
        self.system = system
        self.path = path
        self.mailbox = _NO_MAILBOX
        self.queue: deque[object] = deque()
        self.open = self.expected = False
        self.life: Life | None = None
        self.exit: Exit | None = None
        self.attempt = 0
        self.receiver: Task | None = None
        self.waits_for: Exchange | None = None
        self.stands_at: Cell | None = None
        self.sent = self.handled = self.dropped = self.dead = self.high_water = 0
        self.senders: deque[tuple[Task, object]] | None = None  # those that wait for room
        self._gone: trio.Event | None = None

    # ------------------------------------------------------------ messages in

    def offer(self, message: object) -> bool:
        """Take the message, or end it by policy or as a dead letter. False: the sender has to wait for room."""
        exchange = exchange_of(message)
        if exchange is None:
            return self.put(message)
        target, holder, taken = exchange.target, exchange.holder, False
        exchange.move_to(self)
        try:
            taken = self.put(message)
        finally:
            if not taken:
                exchange.move_back(target, holder)
        if taken:
            check_moved(exchange)
        return taken

    def put(self, message: object) -> bool:
        """As `offer`, for a message that is known to have been nowhere else."""
        if not self.open:
            return self._put_nowhere(message)
        queue = self.queue
        size = len(queue)
        if size >= self.mailbox.capacity and not self._make_room(message):
            return self.mailbox.overflow is not Overflow.BLOCK
        self.sent += 1
        queue.append(message)
        if size >= self.high_water:
            self.high_water = len(queue)
        if self.receiver is not None:
            task, self.receiver = self.receiver, None
            reschedule(task)
        return True

    def _put_nowhere(self, message: object) -> bool:
        why = "the actor is not running"
        if self.system.hub.closed:  # nobody would hear of a dead letter
            kind = type(message).__name__
            raise ActorDied(f"{why}, its tree has ended", target=self.path, message_type=kind, time=self.system.now())
        self.sent += 1
        self.bury(message, why)
        return True

    def _make_room(self, message: object) -> bool:
        """What a full mailbox does. True: the message fits now."""
        overflow = self.mailbox.overflow
        if overflow is Overflow.BLOCK:
            return False
        if overflow is Overflow.REJECT:
            self._overflowed(message)
            raise self.full(message)
        if overflow is Overflow.DROP_OLDEST:
            self._drop(self.queue.popleft())
            return True
        self.sent += 1
        self._drop(message)
        return False

    def full(self, message: object) -> MailboxFull:
        why = f"its mailbox is full ({self.mailbox.capacity} messages)"
        return MailboxFull(why, target=self.path, message_type=type(message).__name__, time=trio.current_time())

    def _drop(self, message: object) -> None:
        self.dropped += 1
        exchange = exchange_of(message)
        if exchange is not None and exchange.open:
            exchange.settle(None, self.full(message))
        self._overflowed(message)

    def _overflowed(self, message: object) -> None:
        self.system.hub.publish(Overflowed(message, path=self.path, time=trio.current_time(), attempt=self.attempt))

    async def wait_for_room(self, message: object) -> None:
        """Stand in line with a message until it is in the mailbox, or the mailbox closes. On cancel it was not sent."""
        if self.is_hopeless():
            self._strand_in_line(message)
            return
        senders = self.senders
        if senders is None:
            senders = self.senders = deque()
        place = (current_task(), message)
        senders.append(place)
        exchange = exchange_of(message)
        before = self if exchange is None else exchange.target
        if exchange is not None and before is not self:
            exchange.target = self
            check_moved(exchange)

        def leave(_: Callable[[], object]) -> Abort:
            senders.remove(place)
            if exchange is not None:
                exchange.target = before
            return Abort.SUCCEEDED

        me = busy_actor()
        if me is None or me.waits_for is not None:  # an ask waits for its answer, whatever it takes
            await wait_task_rescheduled(leave)
            return
        me.stands_at = self
        check_line(me)
        try:
            await wait_task_rescheduled(leave)
        finally:
            me.stands_at = None

    # ------------------------------------------------------------ messages out

    def take(self) -> object:
        """The oldest message; whoever waits for room may move up."""
        message = self.queue.popleft()
        if self.senders:
            self._move_up(self.senders)
        return message

    def _move_up(self, senders: deque[tuple[Task, object]]) -> None:
        task, message = senders.popleft()
        self.sent += 1
        self.queue.append(message)
        if (exchange := exchange_of(message)) is not None:
            exchange.move_to(self)
            check_moved(exchange)
        reschedule(task)

    def start_receiving(self) -> None:
        """The current task will be woken when there is a message, or a reason not to wait for one."""
        if self.receiver is not None:
            raise trio.BusyResourceError("another task of this actor is receiving already")
        self.receiver = current_task()

    def stop_receiving(self, _: Callable[[], object]) -> Abort:
        self.receiver = None
        return Abort.SUCCEEDED

    def bury(self, message: object, why: str, *, by: Life | None = None, cause: BaseException | None = None) -> None:
        """The message becomes a dead letter; its asker hears of it, unless its Reply has been handed on.

        by: the run that had it in hand.
        """
        self.dead += 1
        exchange = exchange_of(message)
        if exchange is not None and exchange.target is self and exchange.holder is by:
            exchange.fail(ActorDied, why, cause)
        self.system.hub.publish(
            DeadLetter(message, why, path=self.path, time=trio.current_time(), attempt=self.attempt)
        )

    # ------------------------------------------------------------ down, for somebody who must not wait

    def is_hopeless(self) -> bool:
        """Whether it is down, and the current task must not wait for it, since it is itself waited for."""
        life = self.life
        return life is not None and life.done and life.siblings.held_up_by(current_task())

    def strand(self, siblings: Children, only: Exchange | None = None) -> None:
        """It is down, and one of its siblings is waited for: what that one waits for here becomes dead letters.

        only: of the current task, which is about to wait.
        """
        kept = deque[object]()
        while self.queue:
            message = self.queue.popleft()
            exchange = exchange_of(message)
            if exchange is None or not exchange.open:
                kept.append(message)
            elif exchange is only or siblings.held_up_by(exchange.task):
                self.bury(message, HOPELESS)
            else:
                kept.append(message)
        self.queue = kept
        senders = self.senders or deque()
        for place in tuple(senders):
            task, message = place
            if siblings.held_up_by(task):
                senders.remove(place)
                self._strand_in_line(message)
                reschedule(task)

    def _strand_in_line(self, message: object) -> None:
        """A message that stood in line, or was about to."""
        self.sent += 1
        if (exchange := exchange_of(message)) is not None:
            exchange.move_to(self)
        self.bury(message, HOPELESS)

    # ------------------------------------------------------------ open and closed

    def expect(self, mailbox: Mailbox) -> None:
        """It is being started: take messages."""
        self.mailbox = mailbox
        self.open = self.expected = True

    def close(self, why: str) -> None:
        """It will not run again: take no more messages; what is queued or stands in line becomes dead letters."""
        self.expected = False
        self.refuse(why)
        self.check_gone()

    def refuse(self, why: str) -> None:
        """Take no more messages."""
        self.open = False
        while self.queue:
            self.bury(self.take(), why)

    async def wait_gone(self) -> None:
        """Until the actor neither runs nor will run again."""
        if self._gone is None:
            self._gone = trio.Event()
        gone = self._gone
        self.check_gone()
        await gone.wait()

    def check_gone(self) -> None:
        if self._gone is not None and not self.expected and (self.life is None or self.life.done):
            gone, self._gone = self._gone, None
            gone.set()
