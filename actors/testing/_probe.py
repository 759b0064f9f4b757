"""Scripted actor (`Probe`) for tests of the actors around it.

The script is a list of values that say what to do with each message: answer, fail, crash, hang, keep or ignore it.
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
    """Default error of a Probe that crashes."""


@attrs.frozen
class Answers:
    """Answer with this value."""

    value: object = None
    after: float = 0.0
    """Seconds before the answer."""


@attrs.frozen
class Fails:
    """Answer with this error."""

    error: Exception


@attrs.frozen
class Crashes:
    """Raise this."""

    error: Exception = attrs.Factory(lambda: ProbeCrash("as it was told"))


@attrs.frozen
class Hangs:
    """Do nothing for so many seconds, and then finish the message without an answer."""

    seconds: float = math.inf


@attrs.frozen
class Keeps:
    """Keep the Reply, so that the asker waits. The test may answer later by `probe.replies`."""


@attrs.frozen
class Ignores:
    """Finish the message without an answer; its asker gets ActorError."""


Act: TypeAlias = Answers | Fails | Crashes | Hangs | Keeps | Ignores


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

    def next(self, *acts: Act) -> None:
        """Append to the script."""
        self._script.extend(acts)

    async def run(self, inbox: Inbox[object]) -> None:
        """Run the actor. For `Child(name, probe.run)`."""
        self.runs += 1
        with suppress(trio.EndOfChannel):
            while True:  # no variable holds the message when the next one is asked for, so a dropped Reply is noticed
                await self._handle(await inbox.receive())

    async def _handle(self, message: object) -> None:
        self.got.append(_without_reply(message))
        self._news.set()
        self._news = trio.Event()
        await self._do(self._script.popleft() if self._script else self._then, message)

    async def wait_for(self, count: int) -> None:
        """Wait until it has received so many messages, all runs together."""
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
    field = _first_field(message)
    reply = getattr(message, field) if field else None
    return reply if isinstance(reply, Reply) else None


def _without_reply(message: object) -> object:
    if _reply_of(message) is None:
        return message
    if isinstance(message, tuple):
        return type(message)._make((None, *message[1:]))  # type: ignore[attr-defined]
    message = copy.copy(message)
    object.__setattr__(message, _first_field(message), None)
    return message


def _first_field(message: object) -> str:
    return next(iter(getattr(type(message), "__match_args__", ())), "")
