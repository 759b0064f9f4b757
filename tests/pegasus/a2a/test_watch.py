"""Who follows a task: woken by what tells something, and by one reading for all."""

from contextlib import ExitStack

import trio

from pegasus.a2a.watch import SHARED_FOR, TaskWatch
from pegasus.events import Event, EventType, RecentEvents
from tests.pegasus.a2a.test_record import ASKED, CREATED, DONE, record


async def test_a_follower_is_woken_by_what_tells_something_of_its_task(autojump_clock):
    recent = RecentEvents(1)
    watch = TaskWatch(recent, None)
    with watch.listen("t") as news, watch.listen("u") as other:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch.run)
            assert await news.wait(1), "what happened before it ran counts as news for all"
            assert await other.wait(1)
            for kind, wakes in (
                (EventType.TOOL_CALL_COMPLETED, False),
                (EventType.REASON_DONE, True),  # its first thought
                (EventType.REASON_DONE, False),
                (EventType.TASK_COMPLETED, True),
            ):
                recent.add(Event(kind, 0, "task", "t"))
                assert await news.wait(1) is wakes
            assert not await other.wait(1)
            nursery.cancel_scope.cancel()


async def test_hundreds_who_follow_a_task_share_one_reading_and_none_gets_an_old_one(autojump_clock):
    recent, log, readings = RecentEvents(1), [CREATED], 0

    async def read(task_id):
        nonlocal readings
        readings += 1
        events = [*log]
        await trio.sleep(0.1)
        return record(*events)

    watch = TaskWatch(recent, read)
    seen = {}

    async def follow(news):
        while True:
            seen[news] = (await watch.read("t")).state
            await news.wait()

    with ExitStack() as stack:
        news = [stack.enter_context(watch.listen("t")) for _ in range(400)]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch.run)
            for each in news:
                nursery.start_soon(follow, each)
            await trio.sleep(0.05)
            log.append(ASKED)  # while the log is being read
            recent.add(Event(EventType.NEED_MORE_INFO, 0, "task", "t"))
            await trio.sleep(1)
            assert [*seen.values()] == ["TASK_STATE_INPUT_REQUIRED"] * 400
            assert readings == 2
            log.append(DONE)  # nobody hears of it, as where a part of the agent has crashed
            await trio.sleep(SHARED_FOR)
            assert (await watch.read("t")).is_over
            nursery.cancel_scope.cancel()
