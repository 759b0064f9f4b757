"""Children that are started on demand and stopped all at once."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
import trio

from actors import (
    ActorDied,
    ActorError,
    AskCycle,
    Child,
    Exited,
    GaveUp,
    Inbox,
    Intensity,
    Reply,
    Restart,
    Stopped,
    open_pool,
    open_supervisor,
    watch,
)
from tests.actors.kit import Boom, Crash, Total, counter, fails_to_start, happened, idle, settle

TEMPORARY = Restart.TEMPORARY


async def cleans_up(inbox: Inbox[Any], seconds: float) -> None:
    await idle(inbox)
    await trio.sleep(seconds)


async def test_children_stop_together() -> None:
    async with open_pool() as pool:
        for n in range(5):
            await pool.start_child(Child(str(n), cleans_up, float(n)))
        begun = trio.current_time()
        assert pool.shutdown_budget() == 5 + 1
    assert trio.current_time() == begun + 4


async def test_each_has_its_own_time_to_stop_whichever_was_started_first() -> None:
    begun = trio.current_time()
    async with open_pool() as pool:
        events = pool.events()
        for name, shutdown in (("long", 10), ("short", 2), ("middle", 5)):
            await pool.start_child(Child(name, cleans_up, 60.0, shutdown=shutdown))
    exits = [(event.path, event.time - begun) for event in happened(events, Exited)]
    assert exits == [("short", 2), ("middle", 5), ("long", 10)]


async def test_a_slow_start_keeps_nobody_waiting() -> None:
    async def slow(inbox: Inbox[Any]) -> None:
        await trio.sleep(10)
        await idle(inbox)

    async with open_pool() as pool, trio.open_nursery() as nursery:
        nursery.start_soon(pool.start_child, Child("slow", slow))
        await settle()
        ref = await pool.start_child(Child("quick", counter, 1))
        assert await ref.ask(Total) == 1
        assert trio.current_time() == 0


async def test_a_child_that_is_done_is_forgotten_and_its_name_is_free() -> None:
    async def works(inbox: Inbox[Any]) -> None:
        inbox.started()
        await trio.sleep(1)

    async with open_pool() as pool:
        for _ in range(3):
            ref = await pool.start_child(Child("job", works, restart=TEMPORARY))
            await watch(ref)
            await settle()
            assert pool.children() == ()


async def test_a_child_that_cannot_start_is_not_there() -> None:
    async with open_pool() as pool:
        with pytest.raises(ActorDied, match="no start") as raised:
            await pool.start_child(Child("bad", fails_to_start))
        assert isinstance(raised.value.__cause__, Boom)
        assert pool.children() == ()


async def test_a_start_that_is_cancelled_leaves_no_child() -> None:
    async def slow(inbox: Inbox[Any]) -> None:
        await trio.sleep(10)

    async with open_pool() as pool:
        with trio.move_on_after(1):
            await pool.start_child(Child("slow", slow))
        await settle()
        assert pool.children() == ()


async def test_permanent_children_are_restarted_one_by_one() -> None:
    async with open_pool(intensity=Intensity(5)) as pool:
        for name in "ab":
            await pool.start_child(Child(name, counter))
        await pool.ref("a").tell(Crash())
        await settle()
        assert [(info.name, info.attempt) for info in pool.children()] == [("a", 2), ("b", 1)]


async def test_a_pool_gives_up_too() -> None:
    async def main() -> None:
        async with open_pool(intensity=Intensity(0)) as pool:
            ref = await pool.start_child(Child("a", counter))
            await ref.tell(Crash())
            await trio.sleep_forever()

    with pytest.raises(GaveUp):
        await main()


async def test_nothing_starts_once_it_stops() -> None:
    async def slow(inbox: Inbox[Any]) -> None:
        await trio.sleep(10)

    failed = []

    async def start(pool: Any) -> None:
        try:
            await pool.start_child(Child("slow", slow))
        except ActorError as error:
            failed.append(str(error))

    async with trio.open_nursery() as nursery:
        async with open_pool() as pool:
            nursery.start_soon(start, pool)
            await settle()
        with pytest.raises(ActorError, match="the supervisor is stopping"):
            await pool.start_child(Child("late", idle))
    assert "'slow': did not start, stopped" in failed[0]


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("end", ["returns", "crashes", "never starts", "is stopped", "answers"])
async def test_a_question_that_a_child_was_started_with_ends_with_it(end: str, wrapped: bool) -> None:
    """Not only when the garbage collector comes by: an error's traceback keeps everything alive."""

    async def job(inbox: Inbox[Any], given: Any) -> None:
        if end == "never starts":
            raise Boom
        inbox.started()
        await trio.sleep(1)
        if end == "crashes":
            raise Boom
        if end == "is stopped":
            await idle(inbox)
        if end == "answers":
            (given.reply if wrapped else given).send(7)

    async def foreman(inbox: Inbox[Total]) -> None:
        async with open_pool() as jobs:
            async for message in inbox:
                given = message if wrapped else message.reply
                with suppress(ActorDied):
                    await jobs.start_child(Child("job", job, given, restart=TEMPORARY))
                if end == "is stopped":
                    await jobs.stop_child("job")

    async with open_supervisor([Child("foreman", foreman)]) as root:
        with trio.fail_after(2):
            if end == "answers":
                assert await root.ref("foreman").ask(Total) == 7
            else:
                with pytest.raises(ActorDied, match="the actor ended before it answered"):
                    await root.ref("foreman").ask(Total)


async def test_a_child_that_asks_the_one_it_works_for_closes_a_circle() -> None:
    seen: list[str] = []

    async def job(inbox: Inbox[Any], reply: Reply[int]) -> None:
        try:
            await root.ref("client").ask(Total)
        except AskCycle as error:
            seen.extend(error.path)

    async def foreman(inbox: Inbox[Total]) -> None:
        async with open_pool() as jobs:
            async for message in inbox:
                with suppress(ActorDied):
                    await jobs.start_child(Child("job", job, message.reply, restart=TEMPORARY))

    async def client(inbox: Inbox[Any]) -> None:
        async for _ in inbox:
            with suppress(ActorDied):
                await root.ref("foreman").ask(Total)

    async with open_supervisor([Child("foreman", foreman), Child("client", client)]) as root:
        await root.ref("client").tell("go")
        await settle()
    assert seen == ["foreman/job", "client", "foreman/job"]


async def test_an_actor_may_have_a_pool_which_stands_below_it_in_the_tree() -> None:
    async def manager(inbox: Inbox[Any]) -> None:
        async with open_pool(name="jobs") as pool:
            async for name in inbox:
                await pool.start_child(Child(name, counter, 7))

    async with open_supervisor([Child("manager", manager)]) as root:
        await root.ref("manager").tell("first")
        await settle()
        assert await root.ref("manager/jobs/first").ask(Total) == 7
        [manager_info] = root.children()
        [jobs] = manager_info.children
        assert (jobs.name, jobs.path, [child.name for child in jobs.children]) == ("jobs", "manager/jobs", ["first"])
        first = root.ref("manager/jobs/first")
    assert (await watch(first)).exit == Stopped()
