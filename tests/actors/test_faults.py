"""A crash, and a cancel, at every checkpoint of every task of small trees, one run for each.

After each run, checked by the simulator: no task waits for ever, no message is lost, the tree is sound. Checked here: no
question is left open or takes long, and what was hit is back at work.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

import attrs
import pytest
import trio
from trio.lowlevel import Task

from actors import (
    ActorError,
    AutoShutdown,
    Backoff,
    Child,
    GaveUp,
    Inbox,
    Intensity,
    Mailbox,
    Overflow,
    Ref,
    Reply,
    Restart,
    Strategy,
    Supervisor,
    _ref,
    open_pool,
    open_supervisor,
    supervisor,
    watch,
)
from actors._reply import Exchange
from actors.testing import (
    Faults,
    Report,
    Simulation,
    actor_tasks,
    all_tasks,
    cancel_at_every_checkpoint,
    check_tree,
    crash_at_every_checkpoint,
    simulate,
)
from tests.actors.kit import Add, Total

FEW = Intensity(3, 60)
SOON = 30.0
"""Seconds within which whatever is asked here has an answer or an error."""
SEEDS = int(os.environ.get("ACTORS_SEEDS", "3"))
FEW_PLACES = int(os.environ.get("ACTORS_PLACES", "12"))


@attrs.frozen
class Get:
    reply: Reply[int]
    depth: int = 0


@attrs.frozen
class Run:
    reply: Reply[int]
    name: str


async def serve(inbox: Inbox[Any]) -> None:
    """Answers, with a checkpoint in between, and cleans up."""
    try:
        async for message in inbox:
            await trio.lowlevel.checkpoint()
            if isinstance(message, Get | Total):
                message.reply.send(1)
    finally:
        with trio.CancelScope(shield=True):
            await trio.sleep(0.1)


async def ask(ref: Ref[Any], make: Callable[..., Any] = Get, *args: Any, timeout: float | None = None) -> Any:
    """The answer, or the error. It never takes long."""
    with trio.fail_after(SOON):
        try:
            return await ref.ask(make, *args, timeout=timeout)
        except ActorError as error:
            return error


async def check_that_it_works(root: Supervisor, *paths: str) -> None:
    """Wherever a fault has struck, a little later all is as before; it may strike right here."""
    answers: list[Any] = []
    for _ in range(3):
        await trio.sleep(20)
        check_tree(root)
        answers = [await ask(root.ref(path)) for path in paths]
        if answers == [1] * len(paths):
            return
    pytest.fail(f"it does not work again: {answers}")


# ------------------------------------------------------------ the trees


async def one_actor() -> None:
    """Tells, asks, answers that are waited for later or never; a mailbox for one, so that senders stand in line."""
    async with open_supervisor([Child("a", serve, mailbox=Mailbox(1))], intensity=FEW) as root:
        ref: Ref[Any] = root.ref("a")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, ref)
            nursery.start_soon(partial(ask, ref, timeout=0.05))
            for n in range(3):
                nursery.start_soon(ref.tell, Add(n))
            answer = await ref.request(Get)
            await ref.request(Get)
            with suppress(ActorError), trio.fail_after(SOON):
                await answer.get()
        await check_that_it_works(root, "a")


async def nested(strategy: Strategy) -> None:
    """A subtree between siblings; one of its actors asks another one, which asks one above."""

    async def asks(inbox: Inbox[Get], path: str) -> None:
        async for message in inbox:
            answer = await ask(root.ref(path))
            message.reply.send(answer if answer == 1 else -1)

    children = [Child("b", asks, "a"), Child("c", asks, "s/b")]
    below = supervisor(children, strategy=strategy, intensity=FEW)
    siblings = [Child("a", serve), Child("s", below), Child("d", serve)]
    async with open_supervisor(strategy=strategy, intensity=FEW) as root:
        for child in siblings:
            await root.start_child(child)
        async with trio.open_nursery() as nursery:
            for path in ("s/c", "d"):
                nursery.start_soon(ask, root.ref(path))
        await check_that_it_works(root, "a", "s/b", "s/c", "d")


async def gives_up() -> None:
    """A subtree whose intensity is used up by one crash takes its supervisor's credit."""
    below = supervisor([Child("a", serve), Child("b", serve)], intensity=Intensity(0))
    async with open_supervisor([Child("s", below), Child("c", serve)], intensity=FEW) as root:
        async with trio.open_nursery() as nursery:
            for path in ("s/a", "s/b", "c"):
                nursery.start_soon(ask, root.ref(path))
        await check_that_it_works(root, "s/a", "s/b", "c")


async def backoff() -> None:
    """Restarts wait, and what is sent meanwhile waits for them."""
    child = Child("a", serve, backoff=Backoff(1, 1))
    async with open_supervisor([child, Child("b", serve)], strategy=Strategy.REST_FOR_ONE, intensity=FEW) as root:
        for _ in range(3):
            await ask(root.ref("a"))
            await ask(root.ref("b"), timeout=0.5)
            await root.ref("a").tell(Add(1))
        await check_that_it_works(root, "a", "b")


async def pool() -> None:
    """An actor that has each job done by a child of a pool of its own, and answers when the job does."""

    async def job(inbox: Inbox[Any], reply: Reply[int]) -> None:
        await trio.sleep(1)
        reply.send(1)

    async def foreman(inbox: Inbox[Get | Run]) -> None:
        async with open_pool(intensity=FEW) as jobs:
            async for message in inbox:
                if isinstance(message, Get):
                    message.reply.send(1)
                else:
                    child = Child(message.name, job, message.reply, restart=Restart.TEMPORARY)
                    with suppress(ActorError):
                        await jobs.start_child(child)
                    del message, child  # or they would keep the reply

    async with open_supervisor([Child("foreman", foreman)], intensity=FEW) as root:
        async with trio.open_nursery() as nursery:
            for name in "xyz":
                nursery.start_soon(ask, root.ref("foreman"), Run, name)
            nursery.start_soon(partial(ask, root.ref("foreman"), Run, "late", timeout=0.5))
        await check_that_it_works(root, "foreman")


async def forwarding() -> None:
    """A question goes through two mailboxes to the one who answers; deadlines go with it, and with what it asks."""

    async def hands_on(inbox: Inbox[Get], to: str) -> None:
        async for message in inbox:
            if message.depth == 0:
                message.reply.send(1)
            else:
                await root.ref(to).tell(Get(message.reply, message.depth - 1))
            del message

    async def asks_on(inbox: Inbox[Get], to: str) -> None:
        async for message in inbox:
            answer = 1
            if message.depth:
                answer = await ask(root.ref(to), Get, message.depth - 1)
            message.reply.send(answer if answer == 1 else -1)

    children = [
        Child("front", hands_on, "middle"),
        Child("middle", hands_on, "asker", mailbox=Mailbox(1)),
        Child("asker", asks_on, "back"),
        Child("back", hands_on, "nobody"),
    ]
    async with open_supervisor(intensity=FEW) as root:
        for child in children:
            await root.start_child(child)
        async with trio.open_nursery() as nursery:
            for depth in (0, 1, 2, 3):
                nursery.start_soon(ask, root.ref("front"), Get, depth)
            for timeout in (0.0, 1.0):
                nursery.start_soon(partial(ask, root.ref("front"), Get, 2, timeout=timeout))
            assert isinstance(await ask(root.ref("back"), Get, 1), ActorError)  # a dead letter
        await check_that_it_works(root, "front", "middle", "asker", "back")


async def kept_replies() -> None:
    """Questions that are answered together, and those of whom nobody knows any more when a run has ended."""

    async def collects(inbox: Inbox[Get]) -> None:
        kept: list[Reply[int]] = []
        async for message in inbox:
            if message.depth == 0:
                message.reply.send(1)
                continue
            kept.append(message.reply)
            if message.depth == 2:
                for reply in kept:
                    with reply.scope():
                        await trio.sleep(0.5)
                    reply.send(len(kept))
                kept.clear()

    async with open_supervisor([Child("a", collects)], intensity=FEW) as root:
        async with trio.open_nursery() as nursery:
            for depth in (1, 1, 2):
                nursery.start_soon(ask, root.ref("a"), Get, depth)
                await trio.sleep(0.1)
            nursery.start_soon(partial(ask, root.ref("a"), Get, 1, timeout=1))
            await trio.sleep(3)
            nursery.start_soon(ask, root.ref("a"), Get, 2)
        await check_that_it_works(root, "a")


async def watching() -> None:
    """Somebody hears of each end, and somebody waits for the last one."""

    async def guard(inbox: Inbox[Any]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch_again_and_again)
            await serve(inbox)
            nursery.cancel_scope.cancel()

    async def watch_again_and_again() -> None:
        while root.ref("a").alive:
            await watch(root.ref("a"))
            await trio.sleep(0.5)

    async def wait_for_the_end() -> None:
        with trio.fail_after(100):
            await root.ref("a").wait_stopped()
        assert not root.ref("a").alive

    async with open_supervisor(intensity=FEW) as root:
        for child in (Child("a", serve), Child("guard", guard)):
            await root.start_child(child)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_for_the_end)
            await ask(root.ref("a"))
            await ask(root.ref("guard"))
            await check_that_it_works(root, "a", "guard")
            await root.stop_child("a")
            assert (await watch(root.ref("a"))).exit is not None


async def supervisor_in_an_actor() -> None:
    """An actor that opens a supervisor below itself and serves beside it."""

    async def boss(inbox: Inbox[Get]) -> None:
        async with open_supervisor([Child("x", serve), Child("y", serve)], name="staff", intensity=FEW) as staff:
            async for message in inbox:
                answer = await ask(staff.ref("x"))
                message.reply.send(answer if answer == 1 else -1)

    async with open_supervisor([Child("boss", boss)], intensity=FEW) as root:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, root.ref("boss"))
            nursery.start_soon(ask, root.ref("boss/staff/y"))
        await check_that_it_works(root, "boss", "boss/staff/x", "boss/staff/y")


async def slow_to_start(inbox: Inbox[Any]) -> None:
    await trio.sleep(1)
    inbox.started()
    await serve(inbox)


async def stop_during_start() -> None:
    """Starts that nobody waits for any more, and one in the middle of which all is stopped."""
    async with open_supervisor([Child("a", serve)], intensity=FEW) as root:
        with trio.move_on_after(0.5):
            await changes(root.start_child, Child("b", slow_to_start))
        await trio.sleep(5)
        assert [info.name for info in root.children()] == ["a"]
        with suppress(ActorError):
            await root.start_child(Child("b", slow_to_start, restart=Restart.TRANSIENT))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(changes, root.start_child, Child("c", supervisor([Child("d", slow_to_start)])))
            nursery.start_soon(ask, root.ref("c/d"))
            await trio.sleep(0.5)
            await ask(root.ref("a"))
            await root.stop()
    check_tree(root)


async def changes(change: Callable[..., Awaitable[object]], *args: Any) -> None:
    """What is asked of a supervisor is done or refused, and either is said soon."""
    with trio.fail_after(SOON), suppress(ActorError):
        await change(*args)


async def changing() -> None:
    """Children come, stop, come back and go, while others crash."""
    async with open_supervisor([Child("a", serve)], strategy=Strategy.ONE_FOR_ALL, intensity=FEW) as root:
        async with trio.open_nursery() as nursery:
            for name in "bc":
                nursery.start_soon(changes, root.start_child, Child(name, serve))
            nursery.start_soon(ask, root.ref("b"))
            await trio.sleep(0.5)
            nursery.start_soon(changes, root.stop_child, "b")
            nursery.start_soon(changes, root.start_child, Child("d", serve, restart=Restart.TEMPORARY))
            nursery.start_soon(ask, root.ref("a"))
            await trio.sleep(0.5)
            nursery.start_soon(changes, root.restart_child, "b")
            nursery.start_soon(changes, root.stop_child, "d")
            nursery.start_soon(changes, root.stop_child, "c")
            nursery.start_soon(ask, root.ref("b"))
            await trio.sleep(0.5)
            nursery.start_soon(changes, root.delete_child, "c")
            nursery.start_soon(ask, root.ref("c"))
        await check_that_it_works(root, "a")


async def significant() -> None:
    """A tree that ends by itself when what it was for is done, however that was."""

    async def once(inbox: Inbox[Get]) -> None:
        message = await inbox.receive()
        await trio.sleep(1)
        message.reply.send(1)

    children = [Child("a", serve), Child("once", once, restart=Restart.TEMPORARY, significant=True)]
    async with open_supervisor(children, auto_shutdown=AutoShutdown.ANY_SIGNIFICANT) as root:
        await ask(root.ref("a"))
        await ask(root.ref("once"))
        await trio.sleep(SOON)
        pytest.fail("it has not ended")


async def overflowing(overflow: Overflow) -> None:
    """More than the mailbox holds; who hears of a full mailbox goes on."""

    async def pour(ref: Ref[Any]) -> None:
        for n in range(4):
            with suppress(ActorError), trio.fail_after(SOON):
                await ref.tell(Add(n))
            await ask(ref, timeout=5 * (n % 2) or None)

    async with open_supervisor([Child("a", serve, mailbox=Mailbox(1, overflow))], intensity=FEW) as root:
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(pour, root.ref("a"))
        await check_that_it_works(root, "a")


Tree: TypeAlias = Callable[[], Awaitable[None]]
Fault: TypeAlias = Callable[..., Report]
TREES: dict[str, Tree] = {
    main.__name__: main
    for main in (
        one_actor,
        gives_up,
        backoff,
        pool,
        forwarding,
        kept_replies,
        watching,
        supervisor_in_an_actor,
        stop_during_start,
        changing,
        significant,
    )
}
TREES |= {f"nested {strategy.value}": partial(nested, strategy) for strategy in Strategy}
TREES |= {f"overflow {overflow.value}": partial(overflowing, overflow) for overflow in Overflow}


# ------------------------------------------------------------ every place


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> list[Exchange]:
    """All that are asked, for those who want to know what became of them."""
    found: list[Exchange] = []

    class Recorded(Exchange):
        __slots__ = ()

        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            found.append(self)

    monkeypatch.setattr(_ref, "Exchange", Recorded)
    return found


every_tree = pytest.mark.parametrize("main", TREES.values(), ids=TREES)
every_fault = pytest.mark.parametrize(
    "fault", [crash_at_every_checkpoint, cancel_at_every_checkpoint], ids=["crash", "cancel"]
)


@every_tree
@every_fault
def test_any_task_may_fail_anywhere(main: Tree, fault: Fault) -> None:
    """Those of actors, of askers, and the one that has opened the tree."""
    assert fault(main, hits=all_tasks, allowed=(GaveUp,)).places >= 8


@every_tree
@every_fault
def test_when_an_actor_fails_every_question_ends(main: Tree, fault: Fault, questions: list[Exchange]) -> None:
    """At some of the places only, unless ACTORS_PLACES says at how many."""

    async def run() -> None:
        questions.clear()
        await main()

    def check(_: Simulation) -> None:
        assert not [question for question in questions if question.open], "a question is left open"

    assert fault(run, check=check, allowed=(GaveUp,), max_places=FEW_PLACES).places >= 4


@every_tree
@pytest.mark.parametrize("hits", [actor_tasks, all_tasks], ids=["actors", "all"])
def test_several_fail_in_any_order(main: Tree, hits: Callable[[Task], bool]) -> None:
    """Seeds choose who lags, is delayed, crashes and is cancelled. ACTORS_SEEDS says how many."""
    faults = Faults(crash=40, cancel=40, delay=100, longest=2.0, max_strikes=2, hits=hits)
    simulate(main, seeds=range(SEEDS), faults=faults, allowed=(GaveUp,))
