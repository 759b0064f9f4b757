"""One run of an actor's function (`Incarnation`), and what the function sees of it (`Inbox`).

A run goes through these stages::

    created → running → up → (asked to stop → (cancelled)) → done

It is **up** when it first asks for a message, calls `inbox.started()`, or returns without an error. Until then whoever
starts it waits. It is **done** when its function has returned or raised; everything that has to happen then happens in
one piece without an await (`_finish`), so nobody ever sees a run that has ended halfway.

The task of a run never raises into the nursery that it lives in. Its end is a value, its `exit`, that its supervisor is
given. Only Trio's own errors pass through, because Trio relies on that.

An actor is asked to stop by ending its inbox, so that it can finish the message in hand and tidy up. One that has never
asked for a message would not notice; it is cancelled at once. A nested supervisor has no inbox either, and is asked in
its own way. Which time an actor has, and what comes after it, is in _children.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final, Generic, Never, TypeVar

import attrs
import trio
from trio.lowlevel import Task, current_task

from actors._cell import CURRENT, HANDLING, ActorCell, until
from actors._events import (
    ActorDied,
    ActorError,
    Crashed,
    Exit,
    Exited,
    Killed,
    Normal,
    Started,
    Stopped,
    cause_of,
    describe_exit,
    ends_program,
    is_end_of_inbox,
    passes_through,
)
from actors._ref import Ref
from actors._reply import Exchange, Reply, exchange_of

if TYPE_CHECKING:
    from actors._children import Children
    from actors._loop import SupervisorLoop
    from actors._spec import Child

M = TypeVar("M", covariant=True)

NOTHING: Final = object()
"""Value of `Incarnation.current` when no message is in hand. None could be a message."""


@attrs.define(eq=False, repr=False)
class Incarnation:
    """One run of an actor, from its start to its end.

    Example::

        incarnation = children.spawn("counter")
        await incarnation.settled.wait()  # it is up, or has ended
        incarnation.stop()
        if not await incarnation.ends_by(trio.current_time() + 5):
            incarnation.kill("did not stop within 5 s")

    A restart makes a new incarnation; address, mailbox and counts stay in the cell.
    """

    cell: ActorCell
    """Address whose run this is."""
    child: Child[Never]
    """Specification that the run was started with: its function, arguments and shutdown time."""
    attempt: int
    """Number of the run, from 1."""
    siblings: Children
    """Children of the supervisor that has started it. They are told when it comes up and when it ends."""

    scope: trio.CancelScope = attrs.field(init=False, factory=trio.CancelScope)
    """Around the actor's function."""
    task: Task | None = attrs.field(init=False, default=None)
    """The actor's own task; None until it has run for the first time."""
    nested: tuple[SupervisorLoop, ...] = attrs.field(init=False, default=())
    """Supervisors that this run has opened and not left yet."""

    current: object = attrs.field(init=False, default=NOTHING)
    """The message in hand: received, and the next one not asked for yet."""
    current_since: float = attrs.field(init=False, default=0.0)
    """Trio time at which it was received."""
    held: dict[Exchange, None] = attrs.field(init=False, factory=dict)
    """Open questions that this run has to answer before it ends, in the order in which it got them."""

    has_received: bool = attrs.field(init=False, default=False)
    """True if it has ever asked for a message."""
    up: bool = attrs.field(init=False, default=False)
    """True if it has come up. Stays true when it has ended."""
    stopping: bool = attrs.field(init=False, default=False)
    """True if it was asked to stop."""
    stop_deadline: float = attrs.field(init=False, default=math.inf)
    """Trio time at which it is cancelled, once it was asked to stop."""
    kill_reason: str | None = attrs.field(init=False, default=None)
    """Reason why it was cancelled; None if it was not."""
    stuck: bool = attrs.field(init=False, default=False)
    """True if a Stuck event has been published."""

    done: bool = attrs.field(init=False, default=False)
    """True if it has ended."""
    exit: Exit | None = attrs.field(init=False, default=None)
    """Way in which it ended; None while it runs."""
    fatal: BaseException | None = attrs.field(init=False, default=None)
    """An error of this run that has to end the whole tree: KeyboardInterrupt or SystemExit."""
    settled: trio.Event = attrs.field(init=False, factory=trio.Event)
    """Set when it is up or has ended, and when the supervisor stops and nobody need wait for that any more."""
    ended: trio.Event = attrs.field(init=False, factory=trio.Event)
    """Set when it has ended."""

    @property
    def is_supervisor(self) -> bool:
        """True if the actor is a supervisor and nothing else."""
        return self.child.subtree is not None

    # ------------------------------------------------------------ the task

    def take_arguments(self) -> None:
        """Make this run responsible for the questions among its arguments: they end with it."""
        for argument in self.child.args:
            exchange = argument._exchange if isinstance(argument, Reply) else exchange_of(argument)
            if exchange is not None and exchange.open:
                exchange.move_to(self.cell)
                exchange.take(self)

    async def run(self) -> None:
        """Run the actor's function. The body of the actor's task. Raises only what is Trio's own."""
        CURRENT.set(self)
        HANDLING.set(None)
        self.task = current_task()
        error: BaseException | None = None
        try:
            with self.scope:
                await self.child.run(Inbox(self), *self.child.args)
        except BaseException as raised:
            if passes_through(raised):
                raise
            error = cause_of(raised)
        self._finish(self._exit_of(error))

    def _exit_of(self, error: BaseException | None) -> Exit:
        """Return the exit for an error that the function has raised; None if it has returned.

        An actor that lets EndOfChannel escape from `receive` when it is to stop has stopped, not crashed.
        """
        if error is None or (self.stopping and is_end_of_inbox(error)):
            if self.kill_reason is not None:
                return Killed(self.kill_reason)
            return Stopped() if self.stopping else Normal()
        if ends_program(error):
            self.fatal = error
        return Crashed(error)

    def _finish(self, exit: Exit) -> None:
        """End the run. There is no await in it, so that every step is seen together with all others.

        The exit comes first, since an asker that is woken must find the actor ended. The supervisor's task is informed last,
        so that what it does about the end follows after all of this.
        """
        if not self.up and isinstance(exit, Normal):
            self.come_up()
        self.exit = self.cell.exit = exit
        self.done = True
        self._release_messages(exit)
        self.cell.end_receiving()
        self.cell.publish(Exited, exit)
        self.settled.set()
        self.ended.set()
        self.cell.check_gone()
        self.siblings.child_ended(self)

    def _release_messages(self, exit: Exit) -> None:
        """Fail the open questions, and turn the message in hand into a dead letter unless the run ended normally."""
        error = exit.error if isinstance(exit, Crashed) else None
        message, self.current = self.current, NOTHING
        if message is not NOTHING and isinstance(exit, Crashed | Killed):
            self.cell.handled -= 1
            why = f"the actor ended while it handled this: {describe_exit(exit)}"
            self.cell.dead_letter(message, why, holder=self, cause=error)
        for exchange in tuple(self.held):
            exchange.fail(ActorDied, f"the actor ended before it answered: {describe_exit(exit)}", error)
        self.held.clear()

    # ------------------------------------------------------------ for the supervisor

    def stop(self) -> None:
        """Ask the actor to stop: it receives nothing more. Without effect when it was asked before, or has ended."""
        if self.stopping or self.done:
            return
        self.stopping = True
        self.stop_deadline = trio.current_time() + self.child.shutdown
        if self.is_supervisor:
            for supervisor in self.nested:
                supervisor.stop()
        elif not self.has_received:
            self.scope.cancel(reason="asked to stop")
        else:
            self.cell.end_receiving()

    def kill(self, reason: str) -> None:
        """Cancel the actor, and everything below it at once. Of several reasons the first is kept.

        The task of a nested supervisor is shielded, so cancelling the scope is not enough; it is killed by itself.
        """
        if self.done:
            return
        if self.kill_reason is None:
            self.kill_reason = reason
        self.scope.cancel(reason=reason)
        for supervisor in self.nested:
            supervisor.kill(reason)

    async def ends_by(self, deadline: float) -> bool:
        """Wait until the run has ended, at most until this Trio time. Return whether it has ended."""
        if not self.done:
            with until(deadline):
                await self.ended.wait()
        return self.done

    def describe_end(self) -> str:
        """Return how the run ended, in words."""
        return "it still runs" if self.exit is None else describe_exit(self.exit)

    @property
    def crash(self) -> BaseException | None:
        """The error that the run crashed with; None if it did not crash."""
        return self.exit.error if isinstance(self.exit, Crashed) else None

    # ------------------------------------------------------------ for the inbox

    def come_up(self) -> None:
        """Note that the actor is up, unless that is known. Whoever starts it need not wait any longer."""
        if self.up or self.done:
            return
        self.up = True
        self.cell.note_up()
        self.cell.publish(Started)
        self.siblings.child_is_up(self)
        self.settled.set()

    def begin_receiving(self) -> None:
        """Note that the actor asks for messages, which also says that it is up.

        From now on `stop` ends its inbox and does not cancel it.
        """
        if not self.has_received:
            self.has_received = True
            self.come_up()

    def take_in_hand(self, message: object) -> bool:
        """Take a message in hand that was received. Return False if its asker has left already, so that it is skipped."""
        cell = self.cell
        exchange = exchange_of(message)
        if exchange is not None:
            if exchange.left:
                cell.dead_letter(message, "its asker has left")
                return False
            exchange.take(self)
        HANDLING.set(exchange)
        cell.handled += 1
        self.current = message
        self.current_since = trio.current_time()
        return True


class Inbox(Generic[M]):
    """The actor's view of its mailbox: an async iterator of messages, one at a time.

    ::

        async def counter(inbox: Inbox[Add | Total]) -> None:
            async for message in inbox:
                ...

    Asking for the next message says that the one before is finished. When the actor is asked to stop, the iteration
    ends; messages that are still queued are not given out. A task that waited may still get one that was sent just before.
    One task of the actor may receive at a time.

    Every receive is a checkpoint. It takes a message only after that, so on cancel no message was taken.
    """

    __slots__ = ("_incarnation",)

    def __init__(self, incarnation: Incarnation) -> None:
        self._incarnation = incarnation

    def __aiter__(self) -> Inbox[M]:
        return self

    async def __anext__(self) -> M:
        """Return the next message; end the iteration when the actor is to stop.

        With messages in the mailbox the checkpoint comes before one is taken; otherwise the wait is the checkpoint. So a
        cancel never takes a message with it, and an actor with a full mailbox still lets others run.
        """
        incarnation = self._incarnation
        cell = incarnation.cell
        incarnation.current = NOTHING
        incarnation.begin_receiving()
        if cell.depth:
            await trio.lowlevel.checkpoint()
        while not incarnation.stopping:
            try:
                message = await cell.receive()
            except (trio.EndOfChannel, trio.ClosedResourceError):
                break
            if incarnation.take_in_hand(message):
                return message  # type: ignore[return-value]
        raise StopAsyncIteration

    async def receive(self) -> M:
        """Return the next message. Raises trio.EndOfChannel when the actor is to stop. On cancel no message was taken."""
        try:
            return await self.__anext__()
        except StopAsyncIteration:
            raise trio.EndOfChannel from None

    def receive_nowait(self) -> M:
        """Return the next message. Raises trio.WouldBlock if there is none, trio.EndOfChannel when the actor is to stop.

        An actor that takes several messages at once may still answer the earlier ones: their questions stay open until
        they are answered, their Replies are dropped, or the actor ends.
        """
        incarnation = self._incarnation
        if incarnation.stopping:
            raise trio.EndOfChannel
        while True:
            message = incarnation.cell.take()
            incarnation.begin_receiving()
            incarnation.current = NOTHING
            if incarnation.take_in_hand(message):
                return message  # type: ignore[return-value]

    def reject(self, message: object, why: str = "the actor does not know this message") -> None:
        """Turn the message in hand into a dead letter; its asker gets ActorError. For the `case _:` of a match.

        Raises ValueError if the message is not in hand. A message is in hand from when it is received until the next one
        is asked for.
        """
        incarnation = self._incarnation
        cell = incarnation.cell
        if message is not incarnation.current:
            raise ValueError(f"{cell.path!r} rejects {message!r}, which it has not in hand")
        incarnation.current = NOTHING
        exchange = exchange_of(message)
        if exchange is not None and exchange.holder is incarnation:
            exchange.fail(ActorError, why)
        cell.handled -= 1
        cell.dead_letter(message, why, holder=incarnation)

    def started(self) -> None:
        """Say that the actor is up, before it first receives. Whoever starts it need not wait any longer."""
        self._incarnation.come_up()

    @property
    def attempt(self) -> int:
        """Number of this run of the actor: 1 for the first, 2 after the first restart, and so on."""
        return self._incarnation.attempt

    @property
    def ref(self) -> Ref[M]:
        """The actor's own address."""
        return Ref(self._incarnation.cell)

    def part(self) -> InboxPart[M]:
        """Return this inbox for a part of the actor's life, which the actor can end."""
        return InboxPart(self._incarnation)


class InboxPart(Inbox[M]):
    """An inbox that ends before the actor does. To whoever works with it that looks like a stop of the actor.

    For an actor that runs somebody else's function again and again::

        async def while_open(inbox: Inbox[str], door: Door) -> None:
            while True:
                part = inbox.part()
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(door.call_when_closed, part.end)
                    await serve(part)  # returns when the door is closed, or when the actor is to stop
                    nursery.cancel_scope.cancel()
                if not part.has_ended:
                    return
                await door.opened()

    What was sent and not received stays in the mailbox, for the next part.
    """

    __slots__ = ("_scope", "has_ended")

    def __init__(self, incarnation: Incarnation) -> None:
        super().__init__(incarnation)
        self.has_ended = False
        """True once `end` was called."""
        self._scope = trio.CancelScope()
        """Around the wait for a message."""

    def end(self) -> None:
        """End the iteration: nothing more is received by this part."""
        self.has_ended = True
        self._scope.cancel()

    async def __anext__(self) -> M:
        """Return the next message; end the iteration when the part has ended, or the actor is to stop."""
        if not self.has_ended:
            with trio.CancelScope() as self._scope:
                return await super().__anext__()
        raise StopAsyncIteration

    def receive_nowait(self) -> M:
        """Return the next message, as `Inbox.receive_nowait`; raises trio.EndOfChannel also when the part has ended."""
        if self.has_ended:
            raise trio.EndOfChannel
        return super().receive_nowait()


# ------------------------------------------------------------ the place where a task waits

MACHINERY: Final = (str(Path(__file__).parent), str(Path(trio.__file__).parent))
"""Folders of code that nobody looks for a fault in: this package and Trio."""


def stack_of(task: Task | None) -> tuple[str, ...]:
    """Return "file:line in function" for each await that the task stands in, outermost first.

    Those of the tasks in its nurseries follow. This needs no help of the task, so it also works for a stuck one.
    """
    return tuple(_describe_frame(frame, line) for frame, line in _await_frames(task))


def location_of(task: Task | None) -> str | None:
    """Return the innermost await that is neither Trio's nor this package's, as "file:line in function"."""
    own = [place for place in _await_frames(task) if not place[0].f_code.co_filename.startswith(MACHINERY)]
    return _describe_frame(*own[-1]) if own else None


def _await_frames(task: Task | None) -> Iterator[tuple[FrameType, int]]:
    """Yield the frames and lines of a task's awaits, and then those of the tasks in its nurseries, ordered by name."""
    if task is None:
        return
    yield from task.iter_await_frames()
    for nursery in task.child_nurseries:
        for child in sorted(nursery.child_tasks, key=lambda child: child.name):
            yield from _await_frames(child)


def _describe_frame(frame: FrameType, line: int) -> str:
    return f"{frame.f_code.co_filename}:{line} in {frame.f_code.co_qualname}"
