"""Scripted actor (`Probe`) for tests of the actors around it.

The script is a list of values that say what to do with each message: answer, fail, crash, hang, keep or ignore it. A
value is used up by the message that it was meant for, also if the Probe crashes with that message: the run after the
restart goes on with the next value. So `[Crashes(), Answers(42)]` is an actor that fails once and then works.

A Reply that nobody holds any more fails its asker at once (see _reply.py). The Probe therefore keeps only copies of the
messages, in which the Reply is replaced by None, and holds a Reply itself only for `Keeps`.
"""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import TypeAlias

import attrs
import trio

from actors._incarnation import Inbox
from actors._reply import Reply


class ProbeCrash(Exception):
    """Default error of a Probe that crashes.

    Example: `Probe([Crashes()])`, whose run then ends with `Crashed(ProbeCrash("scripted"))`.
    """


@attrs.frozen
class Answers:
    """Answer with this value. A message without a Reply is only received.

    Example: `Probe(then=Answers(42, after=0.1))` answers each question with 42 after a tenth of a second.
    """

    value: object = None
    after: float = 0.0
    """Seconds before the answer."""


@attrs.frozen
class Fails:
    """Answer with this error: the asker gets it, and the Probe goes on.

    Example: `Probe([Fails(ValueError("no such item"))])`; `await ref.ask(Price, "x")` raises that ValueError.
    """

    error: Exception
    """Error for the asker. A message that is no question is only received."""


@attrs.frozen
class Crashes:
    """Raise this in the actor, so that its supervisor decides; an asker gets ActorDied.

    Example: `Probe([Crashes(OSError("disk full"))], then=Answers(1))` crashes once and works after its restart.
    """

    error: Exception = attrs.Factory(lambda: ProbeCrash("scripted"))
    """Error that the run ends with."""


@attrs.frozen
class Hangs:
    """Do nothing for so many seconds, and then finish the message without an answer.

    The default waits until the Probe is cancelled, at the end of its shutdown time when it is stopped.

    Example: `Probe([Hangs(5)])` lets an `ask` with a timeout of one second fail with AskTimeout.
    """

    seconds: float = math.inf
    """Time for which the next message waits as well."""


@attrs.frozen
class Keeps:
    """Keep the Reply, so that the asker waits. The test may answer later by `probe.replies`.

    Example::

        probe = Probe([Keeps()])
        ...
        await probe.wait_for(1)
        probe.replies[0].send(42)
    """


@attrs.frozen
class Ignores:
    """Finish the message without an answer; its asker gets ActorError.

    Example: `Probe(then=Ignores())`, which is the default: it receives everything and answers nothing.
    """


Act: TypeAlias = Answers | Fails | Crashes | Hangs | Keeps | Ignores
"""One entry of a script."""


class Probe:
    """Scripted actor that keeps what it receives, over its restarts.

    ::

        probe = Probe([Crashes(), Answers(42)])
        async with open_supervisor([Child("probe", probe.run)]) as supervisor:
            ...
        assert probe.got == [Total(None), Total(None)]

    script: what to do with each message in turn. then: what to do with all messages after that.
    """

    def __init__(self, script: Iterable[Act] = (), *, then: Act = Ignores()) -> None:
        self.got: list[object] = []
        """Messages received, with None in the place of a Reply, since a Reply that is kept could still be answered."""
        self.runs = 0
        """Number of times it was started."""
        self.replies: list[Reply[object]] = []
        """Replies that it has kept, oldest first."""
        self._script = deque(script)
        self._then = then
        self._news = trio.Event()
        """Set at the next message, and replaced by a new one then."""

    def next(self, *acts: Act) -> None:
        """Append to the script. What is appended comes after the entries that are left, and before `then`."""
        self._script.extend(acts)

    async def run(self, inbox: Inbox[object]) -> None:
        """Run the actor. For `Child(name, probe.run)`. It ends normally when it is asked to stop."""
        self.runs += 1
        with suppress(trio.EndOfChannel):
            while True:  # no variable holds the message when the next one is asked for, so a dropped Reply is noticed
                await self._handle(await inbox.receive())

    async def _handle(self, message: object) -> None:
        """Record a message, wake `wait_for`, and follow the script. The record comes first, so a crash is in it."""
        self.got.append(_without_reply(message))
        self._news.set()
        self._news = trio.Event()
        await self._do(self._script.popleft() if self._script else self._then, message)

    async def wait_for(self, count: int) -> None:
        """Wait until it has received so many messages, all runs together. Returns at once if it has already."""
        while len(self.got) < count:
            await self._news.wait()

    async def _do(self, act: Act, message: object) -> None:
        match act:
            case Crashes(error):
                raise error
            case Hangs(seconds):
                await trio.sleep(seconds)
            case Keeps():
                if (reply := _reply_of(message)) is not None:
                    self.replies.append(reply)
            case Answers(value, after):
                await trio.sleep(after)
                if (reply := _reply_of(message)) is not None:
                    reply.send(value)
            case Fails(error):
                if (reply := _reply_of(message)) is not None:
                    reply.fail(error)


def _reply_of(message: object) -> Reply[object] | None:
    """Return the Reply of a question; None for any other message. It is the first field, where `ask` puts it."""
    field = _first_field(message)
    reply = getattr(message, field) if field else None
    return reply if isinstance(reply, Reply) else None


def _without_reply(message: object) -> object:
    """Return a copy of a question with None in the place of its Reply; any other message itself."""
    if _reply_of(message) is None:
        return message
    if isinstance(message, tuple):
        return type(message)._make((None, *message[1:]))  # type: ignore[attr-defined]
    message = copy.copy(message)
    object.__setattr__(message, _first_field(message), None)
    return message


def _first_field(message: object) -> str:
    """Return the name of the first positional field of a message; "" if its class has none."""
    return next(iter(getattr(type(message), "__match_args__", ())), "")
