"""Questions: the state that asker and callee share (`Exchange`), and the callee's handle of it (`Reply`).

A question is a message whose first field is a Reply. Its exchange is **open** until the first of three things happens:

* it is *settled*: there is an answer, a value or an error, and the asker is woken with it;
* its asker *leaves*: the deadline has passed, the asker was cancelled, or it dropped its Answer. A later answer is
  ignored, and scopes from `reply.scope()` are cancelled;
* it is *refused*: waiting on would close a cycle. The asker gets AskCycle, and for the callee it is as if it had left.

No asker waits for an answer that cannot come. At any moment an open exchange is in one place that is responsible for it:

* in a mailbox (or in the line before a full one), which settles it when the message is dropped or becomes a dead letter;
* in the hands of a run of an actor (`holder`), which settles it when the run ends;
* nowhere else than in a Reply that some code still references, for example in a task outside the tree. When the last
  reference to that Reply is gone, nobody can answer any more, and the finaliser of the Reply settles the exchange.

The last rule also covers an actor that forgets to answer. Its asker is woken as soon as the interpreter has released
the Reply: when the variables that hold the message are assigned again, or at the end of the run at the latest.

**Waits that would never end.** An actor whose own task waits for an answer, or for room in a mailbox, handles nothing
meanwhile. If such waits form a cycle, none of them ends, unless one is an ask that is broken off. Each wait is recorded
before it begins (`waits_for` and `waits_for_room_in` of a cell), and each event that can close a cycle is followed
by a search along these records:

* an ask, or a request that has to wait for room, is refused with AskCycle before it begins;
* a question that is handed on may reach an actor that waits for the asker: the asker gets AskCycle;
* a message that has to wait for room: the ask in the cycle that is nearest to the sender is broken off.

A cycle of nothing but full mailboxes is not broken, since there is no question that could fail. Actors that let each
other wait for room are a mistake of the program; its tree view shows them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import trio
from trio.lowlevel import checkpoint

from actors._events import ActorDied, ActorError, AskCycle

if TYPE_CHECKING:
    from actors._cell import ActorCell
    from actors._incarnation import Incarnation

R = TypeVar("R", contravariant=True)


class Exchange:
    """State of one question, from when it is made until nobody waits for it.

    Asker and callee each have a handle of it (`Ref.ask` or Answer; Reply), and neither handle refers to the other, so
    dropping one is noticed while the other is still held.

    Example::

        exchange = Exchange(cell, deadline=trio.current_time() + 1)
        message = Total(Reply(exchange))
        if cell.offer(message):
            total = await exchange.wait()
    """

    __slots__ = (
        "_answer",
        "_receive",
        "_scopes",
        "_send",
        "asker",
        "deadline",
        "holder",
        "left",
        "message_type",
        "open",
        "target",
        "waits",
    )

    def __init__(self, target: ActorCell, deadline: float) -> None:
        self.target = target
        """The actor in whose mailbox the question was put last. Named in errors, and awaited in the search for cycles."""
        self.waits = target.system.waits
        """Questions of this tree whose answers are waited for. This one is among them while its asker waits."""
        self.deadline = deadline
        """Trio time after which the asker does not wait any more. Questions that this one leads to inherit it."""
        self.message_type: type = object
        """Class of the message, for errors."""
        self.holder: Incarnation | None = None
        """The run of an actor that has taken the question and must answer it before it ends."""
        self.asker: ActorCell | None = None
        """The actor whose own task waits for the answer. None if the asker is no actor, or does not wait now."""
        self.open = True
        """True if there is neither an answer nor a reason why none is needed."""
        self.left = False
        """True if the asker does not wait any more."""
        self._send: trio.MemorySendChannel[tuple[object, BaseException | None]]
        self._receive: trio.MemoryReceiveChannel[tuple[object, BaseException | None]]
        self._send, self._receive = trio.open_memory_channel(1)
        """Way of the answer: a value, or an error in its place."""
        self._answer: tuple[object, BaseException | None] | None = None
        """The answer, once the asker has received it."""
        self._scopes: list[trio.CancelScope] = []
        """Scopes from `Reply.scope`, to be cancelled when the asker leaves."""

    # ------------------------------------------------------------ the way of the question

    def move_to(self, target: ActorCell) -> None:
        """Note that the question goes into this mailbox. Its former holder is not responsible for it any more."""
        self.target = target
        self._release()

    def move_back(self, target: ActorCell, holder: Incarnation | None) -> None:
        """Undo `move_to`, because there was no room in the mailbox. A holder that has ended meanwhile cannot answer."""
        self.target = target
        if holder is not None and holder.done:
            self.fail(ActorDied, f"the actor ended before it answered: {holder.describe_end()}")
        elif holder is not None:
            self.take(holder)

    def take(self, holder: Incarnation) -> None:
        """Make a run of an actor responsible for the question, if it is still open."""
        if self.open:
            self.holder = holder
            holder.held[self] = None

    def _release(self) -> None:
        if self.holder is not None:
            self.holder.held.pop(self, None)
            self.holder = None

    # ------------------------------------------------------------ the callee's half

    def settle(self, value: object, error: BaseException | None = None) -> None:
        """Answer with a value, or with an error if one is given. The exchange must be open."""
        self.open = False
        self._release()
        self._send.send_nowait((value, error))

    def fail(self, kind: type[ActorError], why: str, cause: BaseException | None = None) -> None:
        """Settle with an error of this class. Without effect if the exchange is not open."""
        if self.open:
            self.settle(None, self.make_error(kind, why, cause))

    def refuse(self, error: ActorError) -> None:
        """Settle with an error because the asker must not wait, and let the callee's work for it stop. It must be open."""
        self.settle(None, error)
        self._abandon()

    def refuse_cycle(self, cycle: tuple[ActorCell, ...]) -> None:
        """Refuse with AskCycle."""
        self.refuse(self.cycle_error(cycle))

    def cycle_error(self, cycle: tuple[ActorCell, ...]) -> AskCycle:
        """Return the error for a wait that would close this cycle."""
        return AskCycle(tuple(cell.path for cell in cycle), message_type=self.message_type.__name__)

    def make_error(self, kind: type[ActorError], why: str, cause: BaseException | None = None) -> ActorError:
        """Return an error that names the target, the message and the time."""
        error = kind(why, target=self.target.path, message_type=self.message_type.__name__)
        error.__cause__ = cause
        return error

    def open_scope(self) -> trio.CancelScope:
        """Return a new cancel scope that is cancelled when the asker leaves; at once if it has left already."""
        scope = trio.CancelScope()
        if self.left:
            scope.cancel(reason="the asker has left")
        else:
            self._scopes.append(scope)
        return scope

    # ------------------------------------------------------------ the asker's half

    async def wait(self) -> object:
        """Return the answer or raise the error, now and at every later call. On cancel, the asker has not left."""
        if self._answer is None:
            self._answer = await self._receive.receive()
        else:
            await checkpoint()
        value, error = self._answer
        if error is not None:
            raise error
        return value

    def leave(self) -> None:
        """Note that the asker does not wait any more. Without effect if the exchange is not open."""
        if self.open:
            self.open = False
            self._release()
            self._abandon()

    def _abandon(self) -> None:
        self.left = True
        for scope in self._scopes:
            scope.cancel(reason="the asker has left")


class Reply(Generic[R]):
    """The callee's handle of a question: answer now, keep it and answer later, or hand it on.

    ::

        @attrs.frozen
        class Total:
            reply: Reply[int]

        async def counter(inbox: Inbox[Total]) -> None:
            async for message in inbox:
                message.reply.send(42)

    To hand it on, send a message that has it as its first field to another actor, or start a Child among whose `args`
    it, or such a message, is. From then on the other one is responsible for the answer.

    A Reply that can no longer be answered fails the asker: because nothing references it any more, or because the actor
    that holds it has ended.
    """

    __slots__ = ("_exchange",)

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def send(self, value: R) -> None:
        """Answer the question. Without effect when the asker has left. Raises ActorError when it was answered before."""
        self._settle(value, None)

    def fail(self, error: Exception) -> None:
        """Answer with an error, which is raised where the asker waits. Otherwise as `send`."""
        if not isinstance(error, BaseException):
            raise TypeError(f"Reply.fail got {error!r}; it must be an exception")
        self._settle(None, error)

    def _settle(self, value: object, error: Exception | None) -> None:
        exchange = self._exchange
        if exchange.open:
            exchange.settle(value, error)
        elif not exchange.left:
            raise exchange.make_error(ActorError, "was answered already")

    @property
    def abandoned(self) -> bool:
        """True once the asker has left: it timed out, was cancelled, or dropped its Answer."""
        return self._exchange.left

    def scope(self) -> trio.CancelScope:
        """Return a new cancel scope that is cancelled when the asker leaves, for work that is of use to it alone."""
        return self._exchange.open_scope()

    # Called by Python when nothing references the Reply any more, at any point of the program and perhaps in another thread.
    # So it only decides whether anything is to be done, and the rest happens in Trio's thread.
    def __del__(self) -> None:
        if self._exchange.open:
            self._exchange.target.run_in_trio(_fail_dropped, self._exchange)


def _fail_dropped(exchange: Exchange) -> None:
    exchange.fail(ActorError, "the question was dropped without an answer")


# ------------------------------------------------------------ messages


def exchange_of(message: object) -> Exchange | None:
    """Return the exchange of a message whose first field is a Reply; None for any other message."""
    fields = getattr(type(message), "__match_args__", ())  # attrs classes, dataclasses and named tuples have them
    if not fields:
        return None
    first = getattr(message, fields[0], None)
    return first._exchange if type(first) is Reply else None


# ------------------------------------------------------------ cycles of waits


def find_cycle(start: ActorCell, target: ActorCell) -> tuple[ActorCell, ...] | None:
    """Return the cycle of waits that there would be if `start` waited for `target`; None if there would be none.

    An actor's own task waits for one thing at a time, so there is one path to follow, and its length is the number of
    actors that wait for each other at the most.
    """
    path = [start, target]
    while path[-1] is not start:
        following = _awaited_by(path[-1])
        if following is None or following in path[1:]:  # `start` leads into a cycle of full mailboxes, but is not in it
            return None
        path.append(following)
    return tuple(path)


def _awaited_by(cell: ActorCell) -> ActorCell | None:
    """Return the actor that this one waits for. One whose answer is there waits no more, even if it has not run yet."""
    question = cell.waits_for
    return question.target if question is not None and question.open else cell.waits_for_room_in


def break_cycle_of_asker(exchange: Exchange) -> None:
    """End the wait of the asker with AskCycle if the question has got to an actor that waits for the asker.

    Called whenever a question is put into another mailbox. The actor that hands a question on does not wait itself.
    """
    cycle = None if exchange.asker is None or not exchange.open else find_cycle(exchange.asker, exchange.target)
    if cycle is not None:
        exchange.refuse_cycle(cycle)


def break_cycle_of_sender(sender: ActorCell) -> None:
    """End one ask with AskCycle if an actor that has begun to wait for room closes a cycle: the ask nearest to it."""
    if sender.waits_for_room_in is None:
        return
    cycle = find_cycle(sender, sender.waits_for_room_in) or ()
    for index in reversed(range(len(cycle))):
        question = cycle[index].waits_for
        if question is not None and question.open:
            question.refuse_cycle((*cycle[index:-1], *cycle[: index + 1]))
            return
