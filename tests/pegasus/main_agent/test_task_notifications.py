"""What tasks have to say, on its way into the queue."""

from __future__ import annotations

from functools import partial

import pytest
import trio

from actors import Child, open_supervisor
from pegasus.main_agent.queue_items import forward_notifications
from pegasus.storage import CompleteItem, NextItem, run_journal
from pegasus.tasks import Notification, Notify
from pegasus.testing.memory_disk import MemoryDisk


@pytest.fixture
async def told(nursery):
    """The journal, and notifications under way to it: ref, asks for `Notify`, disk."""
    disk = MemoryDisk(delay=0.1)
    async with open_supervisor() as root:
        book = await root.start_child(Child("journal", partial(run_journal, clock=lambda: 0, max_waiting=40), disk))
        ear = await root.start_child(Child("notifications", forward_notifications, book))

        async def tell(numbers):
            notifications = (Notification(f"{n:016x}", 1, "completed", f"word {n}", {}) for n in numbers)
            return await ear.request(Notify, tuple(notifications))

        yield book, tell, disk


async def test_what_waits_together_is_written_together_and_in_its_order(told, autojump_clock):
    book, tell, disk = told
    before = disk.fsyncs
    answer = await tell(range(30))
    await answer.get()
    assert disk.fsyncs - before <= 5
    for n in range(30):
        item = await book.ask(NextItem)
        assert item.message.text == f"word {n}"
        await book.tell(CompleteItem(item.n))


async def test_what_the_disk_refuses_or_has_no_room_is_offered_again_and_stands_there_once(told, autojump_clock):
    book, tell, disk = told
    disk.fail(1, times=3)
    answer = await tell(range(60))  # of which 40 have room
    seen = set()
    with trio.fail_after(300):
        while len(seen) < 60:
            item = await book.ask(NextItem)
            seen.add(item.message.text)
            await book.tell(CompleteItem(item.n))
        await answer.get()
    assert seen == {f"word {n}" for n in range(60)}
    content = disk.content("inbox/inbox.jsonl")
    assert [content.count(b'"word %d"' % n) for n in range(60)] == [1] * 60


async def test_it_is_answered_only_when_it_is_written(told, autojump_clock):
    _, tell, disk = told
    answer = await tell([1])
    with trio.move_on_after(0.09):
        await answer.get()
        raise AssertionError("nothing is written yet")
    await answer.get()
    assert b"word 1" in disk.survivor().content("inbox/inbox.jsonl")
