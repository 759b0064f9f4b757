"""Whatever the code of an actor does, wherever it runs: its supervisor does what the policy says, and all can be stopped.

Three siblings, of which the middle one misbehaves once in one of the places where code of its own runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio

from actors import (
    ActorDied,
    ActorError,
    Answer,
    AskTimeout,
    Child,
    Crashed,
    Event,
    Events,
    Exited,
    Inbox,
    Intensity,
    Killed,
    Normal,
    Ref,
    Reply,
    Restart,
    Started,
    Stopped,
    Strategy,
    Supervisor,
)
from tests.actors.kit import Boom, Crash, Total, happened, settle, tree

SHUTDOWN = 2.0
LONG = 5.0
FOR_EVER = 1e9

HOOKS = ("start", "up", "handle", "scope", "end", "finally")
"""Before it is up; before it first receives; while it handles; in the scope of a reply; told to stop; while it unwinds."""
policies = pytest.mark.parametrize("restart", Restart, ids=lambda restart: restart.value)
strategies = pytest.mark.parametrize("strategy", Strategy, ids=lambda strategy: strategy.value)


class Hooked:
    """An actor that does something wrong once, at `hook`; at the first two only after a restart."""

    def __init__(self, hook: str = "", kind: str = "") -> None:
        self.reached = False
        self._hook = hook
        self._kind = kind
        self._running = 0

    async def at(self, hook: str, attempt: int = 2) -> None:
        if hook != self._hook or self.reached or attempt != 2:
            return
        self.reached = True
        if self._kind == "raise":
            raise Boom(hook)
        await trio.sleep(LONG if self._kind == "slow" else FOR_EVER)

    async def run(self, inbox: Inbox[Any]) -> None:
        self._running += 1
        assert self._running == 1, "two of it run side by side"
        try:
            await self.at("start", inbox.attempt)
            inbox.started()
            await self.at("up", inbox.attempt)
            async for message in inbox:
                await self._handle(message)
            await self.at("end")
        finally:
            try:
                await self.at("finally")
            finally:
                self._running -= 1

    async def _handle(self, message: Any) -> None:
        if isinstance(message, Crash):
            raise Boom
        await self.at("handle")
        with message.reply.scope():
            await self.at("scope")
        message.reply.send(1)


class World:
    """Three siblings that serve, and what has been seen of them."""

    def __init__(self, root: Supervisor, events: Events, victim: Hooked, hook: str) -> None:
        self.root = root
        self.victim = victim
        self.answers: list[Answer[int]] = []
        self.log: list[Event] = []
        self._events = events
        self._hook = hook

    @property
    def b(self) -> Ref[Any]:
        return self.root.ref("b")

    async def provoke(self, nursery: trio.Nursery) -> None:
        """Bring the middle one to where it misbehaves."""
        if self._hook in ("start", "up", "finally"):
            await self.b.tell(Crash())
        elif self._hook == "end":
            nursery.start_soon(self.root.stop_child, "b")
        else:
            self.answers.append(await self.b.request(Total))
        await settle()

    async def settle_asks(self) -> Counter[str]:
        """How the questions ended; each of them has."""
        fates: Counter[str] = Counter()
        for answer in self.answers:
            with trio.fail_after(0.001):
                try:
                    assert await answer.get() == 1
                    fates["answered"] += 1
                except ActorError as error:
                    fates[type(error).__name__] += 1
        return fates

    def restarts(self) -> dict[str, int]:
        """How often each was started again, as the events tell."""
        self.log += happened(self._events)
        started = Counter(event.path for event in self.log if isinstance(event, Started))
        return {name: started[name] - 1 for name in "abc"}

    def exits_of_b(self) -> list[type]:
        self.log += happened(self._events)
        return [type(event.exit) for event in self.log if isinstance(event, Exited) and event.path == "b"]

    async def check_that_all_work(self) -> None:
        for info in self.root.children():
            assert info.state == "up"
            assert await self.root.ref(info.name).ask(Total, timeout=1) == 1

    def check_that_it_is_consistent(self) -> None:
        self.log += happened(self._events)
        ended = Counter(event.path for event in self.log if isinstance(event, Exited))
        for info in self.root.children():
            assert info.sent == info.handled + info.depth + info.dropped + info.dead
            assert info.attempt == ended[info.path] + (info.state not in ("down", "waiting"))


@asynccontextmanager
async def world(hook: str, kind: str, restart: Restart, strategy: Strategy) -> AsyncIterator[World]:
    victim = Hooked(hook, kind)
    children = [
        Child("a", Hooked().run),
        Child("b", victim.run, restart=restart, shutdown=SHUTDOWN),
        Child("c", Hooked().run),
    ]
    async with tree(*children, strategy=strategy, intensity=Intensity(5, 60)) as (root, events):
        world = World(root, events, victim, hook)
        yield world
        world.check_that_it_is_consistent()
        before = trio.current_time()
        budget = root.shutdown_budget()
        await root.stop()
        assert trio.current_time() - before <= budget
    world.check_that_it_is_consistent()
    assert root.tree().state == "down"
    assert {info.state for info in root.children()} <= {"down"}
    assert {info.depth for info in root.children()} <= {0}
    started = Counter(event.path for event in world.log if isinstance(event, Started))
    assert started.total() <= sum(isinstance(event, Exited) for event in world.log)
    await world.settle_asks()


@policies
@strategies
@pytest.mark.parametrize("hook", HOOKS)
async def test_who_raises_is_restarted_by_policy(hook: str, restart: Restart, strategy: Strategy) -> None:
    """A start that fails again counts again; what is raised while it is being stopped is nobody's business."""
    async with world(hook, "raise", restart, strategy) as one:
        async with trio.open_nursery() as nursery:
            await one.provoke(nursery)
            await trio.sleep(1)
        temporary = restart is Restart.TEMPORARY
        assert one.victim.reached is not (temporary and hook in ("start", "up"))
        times = 0 if temporary or hook == "end" else 2 if hook in ("start", "up") else 1
        of_start = 1 if hook == "start" and times else 0  # that attempt never was up
        of_group = of_start if strategy is not Strategy.ONE_FOR_ONE else 0
        seen = one.restarts()
        assert seen["b"] == times - of_start
        assert seen["a"] == (times if strategy is Strategy.ONE_FOR_ALL else 0)
        assert seen["c"] == (times - of_group if strategy is not Strategy.ONE_FOR_ONE else 0)
        assert one.exits_of_b()[-1] is Crashed
        assert await one.settle_asks() == Counter({"ActorDied": len(one.answers)})
        if hook == "end" and not temporary:
            await one.root.restart_child("b")
        assert [info.name for info in one.root.children()] == (["a", "c"] if temporary else ["a", "b", "c"])
        await one.check_that_all_work()


@policies
@strategies
@pytest.mark.parametrize("hook", HOOKS)
async def test_who_is_slow_is_waited_for(hook: str, restart: Restart, strategy: Strategy) -> None:
    """Siblings that are not restarted with it serve meanwhile; one that is told to stop has its time, and no more."""
    async with world(hook, "slow", restart, strategy) as one:
        async with trio.open_nursery() as nursery:
            await one.provoke(nursery)
            if strategy is Strategy.ONE_FOR_ONE or hook in ("handle", "scope", "end", "finally"):
                assert await one.root.ref("a").ask(Total, timeout=0.001) == 1
                assert await one.root.ref("c").ask(Total, timeout=0.001) == 1
            await trio.sleep(LONG + 1)
        temporary = restart is Restart.TEMPORARY
        crashed = hook in ("start", "up", "finally")
        times = 1 if crashed and not temporary else 0
        assert one.restarts() == {
            "a": times if strategy is Strategy.ONE_FOR_ALL else 0,
            "b": times,
            "c": times if strategy is not Strategy.ONE_FOR_ONE else 0,
        }
        assert one.exits_of_b() == ([Killed] if hook == "end" else [Crashed] if crashed else [])
        assert await one.settle_asks() == Counter({"answered": len(one.answers)})
        if hook == "end" and not temporary:
            await one.root.restart_child("b")
        await one.check_that_all_work()


@policies
@strategies
@pytest.mark.parametrize("hook", HOOKS)
async def test_who_hangs_keeps_nobody_from_stopping_the_tree(hook: str, restart: Restart, strategy: Strategy) -> None:
    async with world(hook, "hang", restart, strategy) as one, trio.open_nursery() as nursery:
        await one.provoke(nursery)
        await trio.sleep(100)
        one.answers.append(await one.b.request(Total))
        if restart is Restart.TEMPORARY and hook in ("start", "up"):
            return
        before = trio.current_time()
        await one.root.stop()
        patience = 0 if hook in ("start", "up") or (hook == "end") else SHUTDOWN
        assert trio.current_time() - before == patience
        assert one.exits_of_b()[-1] is (Stopped if hook in ("start", "up") else Killed)
        assert await one.settle_asks() == Counter({"ActorDied": len(one.answers)})


@policies
@strategies
@pytest.mark.parametrize("hook", HOOKS[1:])
async def test_who_hangs_can_be_stopped_alone_and_started_again(
    hook: str, restart: Restart, strategy: Strategy
) -> None:
    """But not in a start, which the supervisor itself waits for, as in OTP."""
    async with world(hook, "hang", restart, strategy) as one:
        async with trio.open_nursery() as nursery:
            await one.provoke(nursery)
            await trio.sleep(100)
            gone = restart is Restart.TEMPORARY and hook in ("up", "end")
            before = trio.current_time()
            if not gone:
                await one.root.stop_child("b")
            assert trio.current_time() - before == (0 if gone or hook in ("up", "end") else SHUTDOWN)
        if restart is not Restart.TEMPORARY:
            assert one.exits_of_b()[-1] is (Stopped if hook == "up" else Killed)
            await one.root.restart_child("b")
        assert await one.settle_asks() == Counter({"ActorDied": len(one.answers)})
        await one.check_that_all_work()


@policies
@strategies
async def test_work_for_an_asker_that_leaves_ends_with_the_scope_and_the_actor_goes_on(
    restart: Restart, strategy: Strategy
) -> None:
    async with world("scope", "hang", restart, strategy) as one:
        with pytest.raises(AskTimeout):
            await one.b.ask(Total, timeout=3)
        await settle()
        await one.check_that_all_work()
        assert one.restarts() == {"a": 0, "b": 0, "c": 0}


# ------------------------------------------------------------ code of others that runs inside


@attrs.frozen
class Rude:
    """A message that cannot even be described."""

    reply: Reply[int]

    def __repr__(self) -> str:
        raise Boom("repr")


async def test_a_question_that_cannot_be_built_was_never_sent() -> None:
    def cannot(reply: Reply[int]) -> Total:
        raise Boom

    async with world("", "", Restart.PERMANENT, Strategy.ONE_FOR_ONE) as one:
        for send in (one.b.ask, one.b.request):
            with pytest.raises(Boom):
                await send(cannot)
        assert one.root.children()[1].sent == 0
        await one.check_that_all_work()


async def test_nothing_ever_looks_into_a_message() -> None:
    async with world("", "", Restart.PERMANENT, Strategy.ONE_FOR_ONE) as one:
        assert await one.b.ask(Rude) == 1
        await one.root.stop_child("b")
        with pytest.raises(ActorDied):
            await one.b.ask(Rude)


@policies
@strategies
async def test_who_ends_by_the_cancel_of_a_scope_of_its_own_has_returned(restart: Restart, strategy: Strategy) -> None:
    """What an actor does to itself is not what its supervisor does to it."""

    async def cancels_itself(inbox: Inbox[Any]) -> None:
        with trio.CancelScope() as scope:
            async for _ in inbox:
                scope.cancel()

    children = [Child("a", cancels_itself, restart=restart), Child("b", Hooked().run)]
    async with tree(*children, strategy=strategy, intensity=Intensity(5, 60)) as (root, events):
        await root.ref("a").tell("go")
        await settle()
        exits = [event for event in happened(events, Exited) if event.path == "a"]
        assert [event.exit for event in exits] == [Normal()]
        again = restart is Restart.PERMANENT
        states = {info.name: (info.state, info.restarts) for info in root.children()}
        assert (
            states.get("a")
            == {
                Restart.PERMANENT: ("up", 1),
                Restart.TRANSIENT: ("down", 0),
                Restart.TEMPORARY: None,
            }[restart]
        )
        assert states["b"] == ("up", 1 if again and strategy is not Strategy.ONE_FOR_ONE else 0)


@policies
@strategies
async def test_a_task_of_an_actor_that_fails_is_the_failure_of_the_actor(restart: Restart, strategy: Strategy) -> None:
    async def with_a_task(inbox: Inbox[Any]) -> None:
        async with trio.open_nursery() as nursery:
            async for _ in inbox:
                nursery.start_soon(fail)
            nursery.cancel_scope.cancel()

    async def fail() -> None:
        raise Boom

    children = [Child("a", with_a_task, restart=restart), Child("b", Hooked().run)]
    async with tree(*children, strategy=strategy, intensity=Intensity(5, 60)) as (root, events):
        await root.ref("a").tell("go")
        await settle()
        [exit] = [event.exit for event in happened(events, Exited) if event.path == "a"]
        assert isinstance(exit, Crashed)
        assert isinstance(exit.error, Boom)
        names = [(info.name, info.state) for info in root.children()]
        assert names == [("a", "up"), ("b", "up")][restart is Restart.TEMPORARY :]
