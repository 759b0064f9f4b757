"""Values that say what happened: errors, exits of actors, and the stream of events of a tree.

Three kinds of values, from the narrowest audience to the widest:

* an **error** is raised in the one task that did something with an actor: asked it, sent to it, started it;
* an **exit** is the reason why one run of an actor ended, for its supervisor and for whoever watches it;
* an **event** is published to everybody who subscribed to the tree: logs, the tree view, tests.

Nothing in this file knows actors, supervisors or mailboxes. All other files of the package import it.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import TypeAlias

import attrs
import trio

from actors._signal import Signal

# ------------------------------------------------------------ errors


class ActorError(Exception):
    """Base class of the errors that the library raises.

    ::

        try:
            total = await ref.ask(Total, timeout=1)
        except ActorError as error:
            log.warning(error.brief)

    `str(error)` reads like `Add to 'counter': its mailbox is full (64 messages) (t=12.500)`.
    """

    brief: str
    """The text without the time. Equal for equal failures, so it suits logs that count them."""
    why: str
    """The reason alone, without the target and the message."""
    target: str
    """Path of the actor concerned, for example "lines/first"."""
    message_type: str
    """Name of the message's class; "" if no message is concerned."""
    time: float
    """trio.current_time() of the failure, in seconds. An error can only be made within a run of Trio."""

    def __init__(self, why: str, *, target: str, message_type: str = "") -> None:
        subject = f"{message_type} to {target!r}" if message_type else repr(target)
        self.brief = f"{subject}: {why}"
        self.time = trio.current_time()
        super().__init__(f"{self.brief} (t={self.time:.3f})")
        self.why = why
        self.target = target
        self.message_type = message_type


class ActorDied(ActorError):
    """The callee does not exist, has ended, or ended before it answered. If it crashed, the crash is the `__cause__`.

    Example::

        try:
            await ref.ask(Total, timeout=1)
        except ActorDied as error:
            log.warning("no total", cause=error.__cause__)

    The caller decides whether asking again makes sense. Behind the same ref a restarted actor may answer.
    """


class MailboxFull(ActorError):
    """The mailbox has no room and its policy does not let the sender wait. The message was not sent.

    Also the error of an asker whose question was dropped from a full mailbox later on.

    Example::

        try:
            ref.tell_nowait(Sample(value))
        except MailboxFull:
            lost += 1  # or: await ref.tell(...), which waits under Overflow.BLOCK
    """


class AskTimeout(ActorError):
    """The deadline of the ask has passed, its own or an inherited one. The callee may still do what was asked.

    It is skipped if the callee has not begun with it, and `reply.scope()` is cancelled if it has.

    Example::

        try:
            price = await ref.ask(Price, item, timeout=0.5)
        except AskTimeout:
            price = last_known[item]

    Repeat only questions that may be handled twice: nothing says how far the callee has got.
    """


class AskCycle(ActorError):
    """The wait would never end, because the callee waits for the asker, directly or through others.

    Example: actor "a" asks "b" while "b" waits for an answer of "a". The second ask raises at once, and `error.path` names both,
    the first again at its end. The design is wrong then: one of the two has to `tell`, or to ask in a task of its own.
    """

    path: tuple[str, ...]
    """Paths of the actors that would wait for each other. The first and the last are the same."""

    def __init__(self, path: tuple[str, ...], *, message_type: str) -> None:
        super().__init__(f"would wait for itself: {' → '.join(path)}", target=path[1], message_type=message_type)
        self.path = path


class GaveUp(ActorError):
    """A supervisor ended because children failed more often than its intensity allows, or could not start.

    The last failure is the `__cause__`. `open_supervisor` raises this error from its block. The same object is also
    the event of that moment, and therefore has `path` and `attempt` like every other event.

    Example::

        try:
            async with open_supervisor([Child("counter", counter)]) as supervisor:
                await supervisor.wait_stopped()
        except GaveUp as error:
            raise SystemExit(f"{error.brief}: {error.__cause__}") from error
    """

    path: str
    """Path of the supervisor; "" for the root."""
    attempt: int
    """Number of the supervisor's run, from 1."""

    def __init__(self, why: str, *, name: str, path: str, attempt: int) -> None:
        super().__init__(why, target=path or name)
        self.path = path
        self.attempt = attempt


# ------------------------------------------------------------ exits


# OTP's reasons are any term, with `normal` and `shutdown` as special ones. These four are enough to decide about a restart:
# Normal and Stopped are normal ends, Crashed and Killed abnormal ones (see Restart.TRANSIENT).


@attrs.frozen
class Normal:
    """The actor returned by itself.

    Example: `await ref.wait_stopped() == Normal()` for a TRANSIENT child whose work is done.
    """


@attrs.frozen
class Stopped:
    """The actor was asked to stop and ended within its time, by returning or with trio.EndOfChannel.

    Example: `(await watch(ref)).exit` after `supervisor.stop_child("counter")`, if the actor left its loop in time.
    """


@attrs.frozen
class Crashed:
    """The actor raised an error.

    Example::

        match (await watch(ref)).exit:
            case Crashed(error):
                print(f"crashed with {error!r}")
    """

    error: BaseException
    """The error with its traceback. Of an exception group with a single leaf, that leaf."""


@attrs.frozen
class Killed:
    """The actor was cancelled, because it did not stop within its time or was not given any.

    Example: `Killed("did not stop within 5 s")`, of an actor that went on working when it was asked to stop.
    """

    reason: str
    """The time that was exceeded, in words: "did not stop within 5 s"."""


Exit: TypeAlias = Normal | Stopped | Crashed | Killed


def describe_exit(exit: Exit) -> str:
    """Return the exit in words, as a part of a sentence: "crashed with ValueError: bad line"."""
    match exit:
        case Crashed(error):
            text = error.brief if isinstance(error, ActorError) else error
            return f"crashed with {type(error).__name__}: {text}"
        case Killed(reason):
            return f"killed, {reason}"
        case Normal():
            return "returned"
        case Stopped():
            return "stopped"


# An actor's function may raise anything, and trio wraps what its nurseries raise into exception groups. The following
# functions sort out what a supervisor must do with it.


def passes_through(error: BaseException) -> bool:
    """Return whether the error belongs to Trio, so that no supervisor may swallow it.

    Cancelled must reach the cancel scope it is for, GeneratorExit means that the task is being torn down, and after a
    TrioInternalError nothing can be relied on.
    """
    own = trio.Cancelled | GeneratorExit | trio.TrioInternalError
    return any(isinstance(leaf, own) for leaf in leaf_errors(error))


def cause_of(error: BaseException) -> BaseException:
    """Return the part of an error that a reader wants to see.

    Of a group that is the leaf that ends the program, if there is one; else its only leaf; else the whole group.
    """
    leaves = leaf_errors(error)
    return next((leaf for leaf in leaves if ends_program(leaf)), leaves[0] if len(leaves) == 1 else error)


def ends_program(error: BaseException) -> bool:
    """Return whether the whole tree has to end: Ctrl-C or sys.exit is no crash that a restart could repair."""
    return isinstance(error, KeyboardInterrupt | SystemExit)


def is_end_of_inbox(error: BaseException) -> bool:
    """Return whether the error is only what `inbox.receive` raises when the actor is to stop."""
    return all(isinstance(leaf, trio.EndOfChannel) for leaf in leaf_errors(error))


def leaf_errors(error: BaseException) -> tuple[BaseException, ...]:
    """Return the errors of a group, however nested, in order; of any other error, itself."""
    return tuple(_iterate_leaves(error))


def _iterate_leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from _iterate_leaves(part)
    else:
        yield error


# ------------------------------------------------------------ events


@attrs.frozen(eq=False, kw_only=True)
class _Event:
    """Fields that all events share.

    Events are compared by identity: two crashes of one actor at one virtual time are two events.
    """

    path: str
    """Path of the actor; "" for the root supervisor."""
    time: float = attrs.field(factory=trio.current_time)
    """trio.current_time() in seconds."""
    attempt: int
    """Number of the actor's run, from 1; 0 for an actor that was never started."""


@attrs.frozen(eq=False)
class Started(_Event):
    """The actor is up: it received for the first time, or called `inbox.started()`.

    Example::

        async for event in supervisor.events():
            if isinstance(event, Started) and event.attempt > 1:
                print(f"{event.path} is back")
    """


@attrs.frozen(eq=False)
class Exited(_Event):
    """A run of the actor has ended.

    Example::

        if isinstance(event, Exited):
            print(f"{event.path} {describe_exit(event.exit)}")
    """

    exit: Exit
    """Way in which it ended. Whether the actor runs again is the supervisor's decision: a Restarting follows if so."""


@attrs.frozen(eq=False)
class Restarting(_Event):
    """The actor will be started again.

    Example: `Restarting(path="counter", attempt=1, delay=0.2)`: run 1 has ended, and run 2 begins in 0.2 s.
    """

    delay: float
    """Seconds until then."""


@attrs.frozen(eq=False)
class DeadLetter(_Event):
    """A message that no actor will handle.

    Example::

        if isinstance(event, DeadLetter):
            print(f"{type(event.message).__name__} to {event.path} is lost: {event.why}")

    A program learns in this way of messages that were told to nobody: `tell` to an actor that is down raises nothing.
    """

    message: object
    """The message itself. The asker of a question has its ActorDied already."""
    why: str
    """The reason in words: "the actor is not running"."""


@attrs.frozen(eq=False)
class Overflowed(_Event):
    """A full mailbox dropped or refused a message.

    Example: `Overflowed(path="display", attempt=1, message=Frame(7))`, of an actor that is slower than its senders.
    """

    message: object
    """The message that is lost: under DROP_OLDEST that is not the one that was just sent."""


@attrs.frozen(eq=False)
class Stuck(_Event):
    """The actor was cancelled and still runs, so something in it is shielded or does not await.

    Example::

        if isinstance(event, Stuck):
            print(f"{event.path} resists being cancelled", *event.stack, sep=", ")

    The supervisor goes on waiting, since a Trio task cannot be ended by force.
    """

    stack: tuple[str, ...]
    """The awaits it stands in, outermost first, each as "file:line in function"."""


Event: TypeAlias = Started | Exited | Restarting | GaveUp | DeadLetter | Overflowed | Stuck


class Events:
    """Stream of the events of a tree, from the moment of `supervisor.events()` until after the tree has ended.

    ::

        events = supervisor.events()
        async for event in events:
            log(event)

    Publishing an event never waits, so a slow reader cannot hold up a supervisor. A reader that is more than
    `capacity` events behind loses the oldest ones. One task may iterate at a time.
    """

    missed: int
    """Number of events that were lost because the reader was too slow."""

    def __init__(self, capacity: int) -> None:
        self.missed = 0
        self._queue: deque[Event] = deque(maxlen=capacity)
        """Events that have not been read, oldest first. When it is full, the oldest makes room."""
        self._news = Signal()
        """Given by each event, and by `close`."""
        self._closed = False
        """True if no more events are taken."""

    def __aiter__(self) -> Events:
        return self

    async def __anext__(self) -> Event:
        await trio.lowlevel.checkpoint()
        while not self._queue:
            if self._closed:
                raise StopAsyncIteration
            await self._news.wait()
        return self._queue.popleft()

    def __enter__(self) -> Events:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def receive_nowait(self) -> Event:
        """Return the next event that has already happened. Raises trio.WouldBlock when there is none."""
        if not self._queue:
            raise trio.WouldBlock
        return self._queue.popleft()

    def close(self) -> None:
        """Take no more events. Those already in the stream can still be read; then the iteration ends."""
        self._closed = True
        self._news.notify()

    def _publish(self, event: Event) -> None:
        """Append an event and wake the reader. Without effect after `close`."""
        if self._closed:
            return
        self.missed += len(self._queue) == self._queue.maxlen
        self._queue.append(event)
        self._news.notify()


class EventHub:
    """Distributor of the events of one tree to its streams.

    Streams are held weakly: one that its reader has dropped costs nothing and needs no `close`.

    Example::

        events = hub.subscribe(Events(capacity=1000))
        hub.publish(Started(path="counter", attempt=1))
        assert isinstance(events.receive_nowait(), Started)
    """

    closed: bool
    """True if the tree has ended. Dead letters could not be published any more."""

    def __init__(self) -> None:
        self.closed = False
        self._streams: list[weakref.ref[Events]] = []

    @property
    def has_streams(self) -> bool:
        """True if `subscribe` was ever called, so that an event may be read."""
        return bool(self._streams)

    def subscribe(self, stream: Events) -> Events:
        """Give the stream all events from now on. A stream of a tree that has ended is closed at once."""
        if self.closed:
            stream.close()
        self._streams = [ref for ref in self._streams if ref() is not None]
        self._streams.append(weakref.ref(stream))
        return stream

    def publish(self, event: Event) -> None:
        """Append the event to every stream."""
        for stream in self._open_streams():
            stream._publish(event)

    def close(self) -> None:
        """End all streams. For the end of the tree."""
        self.closed = True
        for stream in self._open_streams():
            stream.close()

    def _open_streams(self) -> list[Events]:
        return [stream for ref in self._streams if (stream := ref()) is not None]
