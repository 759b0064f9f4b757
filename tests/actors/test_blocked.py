"""An actor that is down comes back when its supervisor gets to it. Who holds the supervisor up must not wait for that."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from actors import ActorDied, Backoff, Child, Inbox, Intensity, Mailbox, Ref, Strategy, open_supervisor, supervisor
from actors._cell import UNREACHABLE
from actors.testing import check_tree
from tests.actors.kit import Add, Crash, Total, Work, counter, settle, tree


class Asker:
    """Actor that asks the counter in its start, or when it is asked to stop, and records the answers.

    how: "ask", or "request" for a request that is waited for afterwards.
    """

    def __init__(self, ref: Ref[Any], how: str = "ask") -> None:
        self.ref = ref
        self.how = how
        self.answers: list[Any] = []

    async def question(self) -> None:
        try:
            if self.how == "ask":
                self.answers.append(await self.ref.ask(Total))
            else:
                answer = await self.ref.request(Total)
                self.answers.append(await answer.get())
        except ActorDied as error:
            self.answers.append(error.why)

    async def in_start(self, inbox: Inbox[Any]) -> None:
        await self.question()
        async for _ in inbox:
            pass

    async def shielded(self, inbox: Inbox[Any], wait: float = 0) -> None:
        inbox.started()
        if not self.answers:
            with trio.CancelScope(shield=True):
                await trio.sleep(wait)
                await self.question()
        async for _ in inbox:
            pass


@pytest.mark.parametrize("how", ["ask", "request"])
async def test_a_child_that_starts_hears_at_once_that_its_sibling_is_down(how: str) -> None:
    async with tree(Child("counter", counter), Child("other", counter)) as (supervisor, _):
        asker = Asker(supervisor.ref("counter"), how)
        supervisor.ref("counter").tell_nowait(Crash())
        await supervisor.start_child(Child("asker", asker.in_start))
        assert asker.answers == [UNREACHABLE]
        assert await supervisor.ref("counter").ask(Total) == 0
        check_tree(supervisor)


@pytest.mark.parametrize("how", ["ask", "request"])
async def test_a_child_that_starts_hears_when_the_sibling_that_it_asks_goes_down(how: str) -> None:
    async with tree(Child("counter", counter), strategy=Strategy.ONE_FOR_ONE) as (supervisor, _):
        asker = Asker(ref := supervisor.ref("counter"), how)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: ref.ask(Work, 1))
            await settle()
            ref.tell_nowait(Crash())
            await supervisor.start_child(Child("asker", asker.in_start))
        assert asker.answers == [UNREACHABLE]
        assert await ref.ask(Total) == 0
        check_tree(supervisor)


async def test_a_grandchild_that_starts_hears_it_too() -> None:
    async with tree(Child("counter", counter)) as (root, _):
        asker = Asker(root.ref("counter"))
        root.ref("counter").tell_nowait(Crash())
        await root.start_child(Child("sub", supervisor([Child("idle", counter), Child("asker", asker.in_start)])))
        assert asker.answers == [UNREACHABLE]


@pytest.mark.parametrize("wait", [1, 3])
async def test_a_child_that_is_stopped_since_its_group_does_not_start_hears_it_too(wait: float) -> None:
    """The group waits for its end, and the supervisor, which would restart the sibling, for the start of the group."""
    async with tree(Child("counter", counter)) as (root, _):
        asker = Asker(root.ref("counter"))

        async def fails(inbox: Inbox[Any]) -> None:
            root.ref("counter").tell_nowait(Crash())
            await trio.sleep(2)
            raise RuntimeError("does not start")

        below = supervisor([Child("asker", asker.shielded, wait), Child("fails", fails)], intensity=Intensity(0, 1))
        with trio.fail_after(60), pytest.raises(ActorDied, match="does not start"):
            await root.start_child(Child("sub", below))
        assert asker.answers == [UNREACHABLE]
        assert await root.ref("counter").ask(Total) == 0
        check_tree(root)


async def test_a_child_that_has_started_may_wait_for_a_restart_while_another_one_starts() -> None:
    """Only who is waited for holds the supervisor up."""
    answers = []

    async def asks(inbox: Inbox[Add], ref: Ref[Any]) -> None:
        async for _ in inbox:
            total = await ref.ask(Total)
            answers.append(total)

    async def slow(inbox: Inbox[Any]) -> None:
        await trio.sleep(1)
        async for _ in inbox:
            pass

    async with tree(Child("counter", counter)) as (root, _):
        below = supervisor([Child("asks", asks, root.ref("counter")), Child("slow", slow)])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(root.start_child, Child("sub", below))
            await settle()
            root.ref("counter").tell_nowait(Crash())
            await settle()
            root.ref("sub/asks").tell_nowait(Add(1))
        await settle()
        assert answers == [0]


async def test_a_task_beside_the_start_may_wait_for_a_restart() -> None:
    answers = []

    async def asks_beside(inbox: Inbox[Any], ref: Ref[Any]) -> None:
        async def ask() -> None:
            answers.append(await ref.ask(Total))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.sleep(1)
            async for _ in inbox:
                pass

    async with tree(Child("counter", counter)) as (supervisor, _):
        supervisor.ref("counter").tell_nowait(Crash())
        await supervisor.start_child(Child("beside", asks_beside, supervisor.ref("counter")))
        await settle()
        assert answers == [0]


@pytest.mark.parametrize("how", ["ask", "request"])
@pytest.mark.parametrize("wait", [0, 1])
async def test_a_child_that_is_stopped_with_one_that_crashed_does_not_wait_for_its_answer(
    wait: float, how: str
) -> None:
    """Else a restart of both would wait for ever for a question behind a shield."""
    async with open_supervisor([Child("counter", counter)], strategy=Strategy.REST_FOR_ONE) as root:
        asker = Asker(ref := root.ref("counter"), how)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: ref.ask(Work, 0.5))
            await settle()
            ref.tell_nowait(Crash())
            await root.start_child(Child("asker", asker.shielded, wait))
        await trio.sleep(3)
        assert asker.answers == [UNREACHABLE]
        assert await ref.ask(Total) == 0
        check_tree(root)


async def test_a_child_that_is_stopped_while_its_sibling_waits_for_its_restart_hears_so() -> None:
    backoff = Backoff(first=10, limit=10, jitter=0)
    async with tree(Child("counter", counter, backoff=backoff), intensity=Intensity(1, 60)) as (root, _):
        ref = root.ref("counter")
        asker = Asker(ref)
        await root.start_child(Child("asker", asker.shielded, 0.5))
        ref.tell_nowait(Crash())
        await trio.sleep(1)
        assert asker.answers == []
        await root.stop_child("asker")
        assert asker.answers == [UNREACHABLE]
        check_tree(root)


@pytest.mark.parametrize("ask", [False, True])
@pytest.mark.parametrize("late", [False, True])
async def test_nor_does_it_wait_for_room(late: bool, ask: bool) -> None:
    """What it was about to send becomes a dead letter."""
    done = []

    async def sends(inbox: Inbox[Any], ref: Ref[Any]) -> None:
        inbox.started()
        if not done:
            with trio.CancelScope(shield=True):
                await trio.sleep(2 * late)
                if ask:
                    with pytest.raises(ActorDied):
                        await ref.ask(Total)
                else:
                    await ref.tell(Add(3))
                done.append(trio.current_time())
        async for _ in inbox:
            pass

    counts = Child("counter", counter, mailbox=Mailbox(2))
    async with open_supervisor([counts], strategy=Strategy.REST_FOR_ONE) as root:
        ref = root.ref("counter")
        begun = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: ref.ask(Work, 1))
            await settle()
            ref.tell_nowait(Crash())
            ref.tell_nowait(Add(1))
            nursery.start_soon(ref.tell, Add(1))
            await settle()
            await root.start_child(Child("sends", sends, ref))
        await trio.sleep(3)
        assert [moment - begun for moment in done] == [2 if late else 1]
        assert await ref.ask(Total) == 2
        check_tree(root)
