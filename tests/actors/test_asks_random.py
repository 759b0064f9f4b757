"""Random conversations: whoever asks whom, every ask ends, in time, with its own answer or the right error.

Actors do what the messages tell them: ask each other, forward, keep, forget, crash. The test keeps books of its own on
who waits for which question and where that is, and so knows which wait would close a circle, and how that one goes.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any, TypeAlias

import attrs
import trio

from actors import (
    ActorDied,
    ActorError,
    AskCycle,
    AskTimeout,
    Child,
    Inbox,
    Intensity,
    Mailbox,
    MailboxFull,
    Ref,
    Reply,
    Supervisor,
    open_supervisor,
)
from actors.testing import Faults, Simulation, simulate
from tests.actors.kit import Boom

SEEDS = int(os.environ.get("ACTORS_SEEDS", "120"))
OFTEN = Intensity(10**6)


# ------------------------------------------------------------ what an actor may be told to do


@attrs.frozen
class Ask:
    """Wait for the answer, or, if `beside`, let a task of its own do so."""

    target: str
    timeout: float | None
    script: Script
    beside: bool = False


@attrs.frozen
class Request:
    """Ask, do something else, and only then wait."""

    target: str
    timeout: float | None
    script: Script
    meanwhile: Script


@attrs.frozen
class Sleep:
    seconds: float


@attrs.frozen
class Crash:
    pass


@attrs.frozen
class Forward:
    """Leave the answer to another one."""

    target: str
    script: Script


@attrs.frozen
class Keep:
    """Answer later."""

    seconds: float


@attrs.frozen
class Forget:
    """Do not answer a question that nobody else has had: the frames of a crash may keep the Reply of one handed on."""


Step: TypeAlias = Ask | Request | Sleep | Crash | Forward | Keep | Forget
Script: TypeAlias = tuple[Step, ...]


@attrs.frozen(eq=False)
class Do:
    """A question. by: when its asker will have left, as the asker reckons; for a request, at the latest."""

    reply: Reply[int]
    number: int
    by: float
    script: Script
    request: bool = False
    handed_on: bool = False


def a_script(random: Random, names: str, depth: int) -> Script:
    return tuple(a_step(random, names, depth) for _ in range(random.choice((0, 1, 1, 2))))


def a_step(random: Random, names: str, depth: int) -> Step:
    target, timeout = random.choice(names), random.choice((None, None, 0.0, 0.5, 1.0, 3.0))
    drawn = random.random()
    if depth and drawn < 0.45:
        return Ask(target, timeout, a_script(random, names, depth - 1))
    if depth and drawn < 0.55:
        return Ask(target, timeout, a_script(random, names, depth - 1), beside=True)
    if depth and drawn < 0.65:
        return Request(target, timeout, *(a_script(random, names, depth - 1) for _ in range(2)))
    if depth and drawn < 0.8:
        return Forward(target, a_script(random, names, depth - 1))
    if drawn < 0.92:
        return random.choice((Sleep(0.5), Sleep(1.0), Keep(0.5), Keep(2.0)))
    return random.choice((Crash(), Forget()))


# ------------------------------------------------------------ the books


class Books:
    """where: whom a question has been given to. waits: for which one an actor waits. closed: by handing one on."""

    def __init__(self) -> None:
        self.number = 0
        self.where: dict[int, str] = {}
        self.waits: dict[str, int] = {}
        self.closed: dict[int, tuple[str, ...]] = {}
        self.replies: dict[int, Any] = {}  # the exchange behind the Reply, which tells whether it is still open

    def new(self, target: str) -> int:
        self.number += 1
        self.where[self.number] = target
        return self.number

    def circle(self, me: str, number: int) -> tuple[str, ...] | None:
        """The circle that is closed if this actor waits for this question now."""
        path = [me]
        waited: int | None = number
        while waited is not None and self.is_open(waited):
            path.append(self.where[waited])
            if path[-1] == me:
                return tuple(path)
            assert len(path) < 20, f"there is a circle already, below {path}"
            waited = self.waits.get(path[-1])
        return None

    def is_open(self, number: int) -> bool:
        return number in self.replies and self.replies[number].open

    def hand_on(self, number: int, target: str) -> None:
        self.where[number] = target
        for me, waited in self.waits.items():
            if waited == number and (path := self.circle(me, number)) is not None:
                self.closed[number] = path


class Talk:
    """One run: the actors, those who begin to ask, and somebody who stops actors now and then."""

    def __init__(self, random: Random, seen: Counter[str]) -> None:
        self.books = Books()
        self.seen = seen
        self.wrong: list[BaseException] = []
        self._random = random
        self._names = "abcdef"[: random.randint(2, 6)]
        self._root: Supervisor

    async def run(self) -> None:
        random = self._random
        async with open_supervisor(intensity=OFTEN) as self._root:
            for name in self._names:
                mailbox = Mailbox(random.choice((1, 2, 100)))
                await self._root.start_child(Child(name, self.actor, name, mailbox=mailbox, shutdown=1))
            plans = [[self._plan() for _ in range(2)] for _ in range(3)]
            async with trio.open_nursery() as nursery:
                for plan in plans:
                    nursery.start_soon(self._client, plan)
                if random.random() < 0.5:
                    await self._disturb(random.choice(self._names), random.choice((0.3, 1.0)))
        if self.wrong:
            raise self.wrong[0]

    def _plan(self) -> tuple[str, float | None, Script]:
        random = self._random
        return random.choice(self._names), random.choice((None, 2.0, 5.0)), a_script(random, self._names, 3)

    async def _client(self, plan: list[tuple[str, float | None, Script]]) -> None:
        for target, timeout, script in plan:
            await self.ask(None, math.inf, target, timeout, script)

    async def _disturb(self, name: str, seconds: float) -> None:
        await trio.sleep(seconds)
        await self._root.stop_child(name)
        await trio.sleep(seconds)
        with suppress(ActorDied):
            await self._root.restart_child(name)

    # ------------------------------------------------------------ an actor

    async def actor(self, inbox: Inbox[Do], name: str) -> None:
        """What is found out here must not count as one more crash."""
        try:
            await self._serve(inbox, name)
        except* AssertionError as group:
            self.wrong.append(group)
            raise

    async def _serve(self, inbox: Inbox[Do], name: str) -> None:
        async with trio.open_nursery() as nursery:
            async for message in inbox:
                deadline = message.reply._exchange.deadline
                assert deadline <= message.by if message.request else deadline == message.by
                await self._do(name, message, nursery)
                del message
            nursery.cancel_scope.cancel()

    async def _do(self, me: str, message: Do, nursery: trio.Nursery) -> None:
        reply: Reply[int] | None = message.reply
        number, deadline, request = message.number, message.by, message.request

        def by() -> float:
            if not self.books.is_open(number):
                return math.inf
            return self.books.replies[number].deadline if request else deadline

        for step in message.script:
            match step:
                case Forward(target, script) if reply is not None:
                    if self._forward(Do(reply, number, message.by, script, request, handed_on=True), target):
                        reply = None
                case Keep(seconds) if reply is not None:
                    nursery.start_soon(self._answer_later, reply, number, seconds)
                    reply = None
                case Forget():
                    reply = reply if message.handed_on else None
                case _:
                    await self._step(me, by, step, nursery)
        if reply is not None:
            reply.send(number)

    async def _step(self, me: str, by: Callable[[], float], step: Step, nursery: trio.Nursery) -> None:
        match step:
            case Ask(target, timeout, script, beside=True):
                nursery.start_soon(self._ask_beside, by, target, timeout, script)
            case Ask(target, timeout, script):
                await self.ask(me, by(), target, timeout, script)
            case Request():
                await self._request(me, by, step, nursery)
            case Sleep(seconds):
                await trio.sleep(seconds)
            case Crash():
                raise Boom

    def _forward(self, message: Do, target: str) -> bool:
        before = self.books.where[message.number]
        self.books.hand_on(message.number, target)
        try:
            self._ref(target).tell_nowait(message)
        except MailboxFull:
            self.books.where[message.number] = before
            self.books.closed.pop(message.number, None)
            return False
        return True

    async def _answer_later(self, reply: Reply[int], number: int, seconds: float) -> None:
        await trio.sleep(seconds)
        reply.send(number)

    # ------------------------------------------------------------ asking

    async def _ask_beside(self, by: Callable[[], float], target: str, timeout: float | None, script: Script) -> None:
        await self.ask(None, by(), target, timeout, script)

    async def ask(self, me: str | None, by: float, target: str, timeout: float | None, script: Script) -> None:
        """me: the actor whose own task this is. by: the deadline that it inherits."""
        begun = trio.current_time()
        number = self.books.new(target)
        deadline = min(by, math.inf if timeout is None else begun + timeout)
        make = self._make(number, deadline, script)
        circle: list[tuple[str, ...] | None] = [None]

        def about_to_wait(reply: Reply[int]) -> Do:
            message = make(reply)
            if me is not None:
                circle[0] = self.books.circle(me, number)
                self.books.waits[me] = number
            return message

        try:
            answer = await self._ref(target).ask(about_to_wait, timeout=timeout)
            self._check(answer, number, circle[0], begun, deadline)
        except ActorError as error:
            self._check(error, number, circle[0], begun, deadline)
        finally:
            if me is not None:
                self.books.waits.pop(me, None)

    async def _request(self, me: str, by: Callable[[], float], step: Request, nursery: trio.Nursery) -> None:
        number = self.books.new(step.target)
        inherited, begun = by(), trio.current_time()
        try:
            answer = await self._ref(step.target).request(self._make(number, inherited, step.script, request=True))
        except ActorError as error:
            return self._check(error, number, None, begun, inherited)
        for action in step.meanwhile:
            if not isinstance(action, Forward | Keep | Forget):
                await self._step(me, by, action, nursery)
        begun = trio.current_time()
        deadline = min(inherited, math.inf if step.timeout is None else begun + step.timeout)
        circle = self.books.circle(me, number)
        self.books.waits[me] = number
        try:
            self._check(await answer.get(step.timeout), number, circle, begun, deadline)
        except ActorError as error:
            self._check(error, number, circle, begun, deadline)
        finally:
            self.books.waits.pop(me, None)

    def _make(self, number: int, by: float, script: Script, *, request: bool = False) -> Callable[[Reply[int]], Do]:
        def make(reply: Reply[int]) -> Do:
            self.books.replies[number] = reply._exchange
            return Do(reply, number, by, script, request)

        return make

    def _check(self, outcome: Any, number: int, circle: tuple[str, ...] | None, begun: float, deadline: float) -> None:
        """How an ask ended is how it had to end, and when."""
        self.books.replies.pop(number, None)  # an error that it holds would keep all frames alive, and Replies in them
        now = trio.current_time()
        assert now <= max(begun, deadline)
        assert circle is None or isinstance(outcome, AskCycle | AskTimeout)
        match outcome:
            case AskCycle(path=path) if circle is not None:
                assert path == circle
                assert now == begun
                self.seen[f"a circle of {len(path) - 1}"] += 1
            case AskCycle(path=path):
                assert path == self.books.closed[number]
                self.seen["a circle closed by another one"] += 1
            case AskTimeout():
                assert now == max(begun, deadline)
                self.seen["too late"] += 1
            case ActorError():
                self.seen[type(outcome).__name__] += 1
            case _:
                assert outcome == number
                self.seen["answered"] += 1

    def _ref(self, name: str) -> Ref[Do]:
        return self._root.ref(name)


# ------------------------------------------------------------ the test


def test_every_ask_ends_in_time_with_its_own_answer_or_the_right_error() -> None:
    """ACTORS_SEEDS says how many conversations."""
    seen: Counter[str] = Counter()

    async def main(simulation: Simulation) -> None:
        await Talk(simulation.random, seen).run()

    simulate(main, seeds=range(SEEDS), faults=Faults(crash=100, cancel=200, max_strikes=3), twice=10)
    assert {"answered", "too late", "ActorDied", "ActorError", "a circle of 1", "a circle of 2"} <= seen.keys()
    assert SEEDS < 100 or {"a circle of 3", "a circle closed by another one"} <= seen.keys()
