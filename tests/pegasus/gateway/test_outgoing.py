import trio
import trio.testing

from pegasus.gateway.outgoing import ANSWERS, Closing, Outgoing, Ping


async def later():
    return "later"


async def test_entries_come_out_in_order():
    queue = Outgoing()
    queue.push("a")
    queue.answer(later)
    queue.push("b")
    assert [await queue.take(), await queue.take(), await queue.take()] == ["a", later, "b"]


async def test_pushes_are_refused_beyond_the_number_of_frames():
    queue = Outgoing(frames=2)
    assert [queue.push(frame) for frame in "abc"] == [True, True, False]


async def test_pushes_are_refused_once_the_bytes_are_too_many_but_the_last_may_be_of_any_size():
    queue = Outgoing(size=10)
    assert queue.push("x" * 9)
    assert queue.push("x" * 1000)
    assert not queue.push("x")


async def test_text_beyond_ascii_is_counted_as_four_bytes_a_character():
    queue = Outgoing(size=8)
    assert queue.push("ää")
    assert not queue.push("a")


async def test_taking_makes_room_again():
    queue = Outgoing(frames=1)
    queue.push("a")
    await queue.take()
    assert queue.push("b")


async def test_answers_have_slots_and_the_next_waits_for_one(autojump_clock):
    queue = Outgoing()
    for _ in range(ANSWERS):
        await queue.slot()
        queue.answer("a")
    with trio.move_on_after(1) as scope:
        await queue.slot()
    assert scope.cancelled_caught
    queue.take_nowait()
    await queue.slot()


async def test_room_waits_until_the_queue_is_half_empty(autojump_clock):
    queue = Outgoing(frames=4)
    for frame in "abc":
        queue.push(frame)
    with trio.move_on_after(1) as scope:
        await queue.room()
    assert scope.cancelled_caught
    queue.take_nowait()
    await queue.room()


async def test_only_one_ping_waits_at_a_time():
    queue = Outgoing()
    queue.ping()
    queue.ping()
    assert isinstance(await queue.take(), Ping)
    assert len(queue) == 0
    queue.ping()
    assert len(queue) == 1


async def test_after_close_the_rest_is_taken_and_then_none():
    queue = Outgoing()
    queue.push("a")
    queue.close(1000, "bye")
    queue.push("b")
    assert [await queue.take(), await queue.take()] == ["a", None]
    assert queue.closing == Closing(1000, "bye")


async def test_close_without_flush_drops_the_rest():
    queue = Outgoing()
    queue.push("a")
    queue.close(1013, "full", flush=False)
    assert await queue.take() is None


async def test_the_first_close_counts():
    queue = Outgoing()
    queue.close(4401, "no")
    queue.close(1001, "gone")
    assert queue.closing == Closing(4401, "no")


async def test_close_wakes_whoever_waits(autojump_clock):
    queue = Outgoing(frames=1)
    queue.push("a")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(queue.room)
        await trio.testing.wait_all_tasks_blocked()
        queue.close(1000, "")
