"""What may wait for one client: pushes until it is full, answers in their places, a backlog while there is room."""

from types import SimpleNamespace

import pytest
import trio
import trio.testing

from pegasus.gateway import send_queue
from pegasus.gateway.send_queue import ANSWERS, MAX_DRAFTS, SendQueue
from pegasus.protocol import TRY_LATER
from tests.pegasus.gateway.world import take


async def later():
    return "later"


def is_closed_as_full(queue):
    return queue.closing is not None and queue.closing[0] == TRY_LATER


async def test_entries_come_out_in_order():
    queue = SendQueue()
    queue.push("a")
    queue.push("b")
    await queue.answer(later)
    queue.push("c")
    assert [await take(queue), await take(queue)] == [["a", "b"], ["later", "c"]]


async def test_a_client_is_disconnected_when_too_many_frames_wait():
    queue = SendQueue(max_frames=2)
    queue.push("a")
    queue.push("b")
    assert queue.closing is None
    queue.push("c")
    assert is_closed_as_full(queue)
    assert await take(queue) == []


async def test_a_client_is_disconnected_when_too_many_bytes_wait_but_the_last_frame_may_be_of_any_size():
    queue = SendQueue(max_bytes=10)
    queue.push("x" * 9)
    queue.push("x" * 1000)
    assert queue.closing is None
    queue.push("x")
    assert is_closed_as_full(queue)


async def test_text_beyond_ascii_is_counted_as_four_bytes_a_character():
    queue = SendQueue(max_bytes=8)
    queue.push("ää")
    assert queue.closing is None
    queue.push("a")
    assert is_closed_as_full(queue)


@pytest.mark.parametrize("limit", [{"max_frames": 1}, {"max_bytes": 1}], ids=["frames", "bytes"])
async def test_a_client_that_does_not_read_is_reported_once_however_many_replies_follow(monkeypatch, limit):
    warnings = []
    monkeypatch.setattr(send_queue, "_log", SimpleNamespace(warning=lambda event, **_: warnings.append(event)))
    queue = SendQueue(**limit)
    for _ in range(100):
        queue.push("x")
    assert is_closed_as_full(queue)
    assert len(queue) == 0
    assert warnings == ["a client does not read; it is disconnected"]


async def test_taking_makes_room_again():
    queue = SendQueue(max_frames=1)
    queue.push("a")
    await take(queue)
    queue.push("b")
    assert queue.closing is None


async def test_only_the_newest_draft_of_a_conversation_waits_and_it_waits_behind_the_replies_before_it():
    queue = SendQueue()
    queue.push_draft("c1", "draft 1")
    queue.push_draft("c2", "of another")
    queue.push("reply 1")
    queue.push_draft("c1", "draft 2")
    queue.push_draft("c1", "draft 3")
    assert await take(queue) == ["of another", "reply 1", "draft 3"]
    queue.push_draft("c1", "draft 4")
    assert await take(queue) == ["draft 4"]


async def test_a_draft_is_left_out_while_the_client_is_behind_but_a_withdrawal_is_not():
    queue = SendQueue(max_frames=2)
    queue.push("a")
    queue.push_draft("c1", "draft")
    queue.push("b")
    queue.push_draft("c1", "another")
    queue.push_draft("c2", "left out")
    assert await take(queue) == ["a", "draft", "b"]
    queue.push("a")
    queue.push("b")
    queue.push_draft("c1", "withdrawn", is_last=True)
    queue.push_draft("c1", "left out")
    assert await take(queue) == ["a", "b", "withdrawn"]


async def test_drafts_do_not_count_for_the_bound_of_replies():
    queue = SendQueue(max_frames=2, max_bytes=100)
    for number in range(100):
        queue.push_draft(f"c{number}", "x" * 1000)
    queue.push("a")
    queue.push("b")
    assert queue.closing is None
    assert len(await take(queue)) == MAX_DRAFTS + 2


async def test_drafts_are_dropped_with_the_rest():
    queue = SendQueue()
    queue.push_draft("c1", "draft")
    queue.close(1013, "full", flush=False)
    queue.push_draft("c1", "another")
    assert await take(queue) == []


async def test_so_many_answers_may_be_outstanding_and_then_their_sender_waits(autojump_clock):
    queue = SendQueue()
    for _ in range(ANSWERS - 1):
        await queue.answer("a")
    with trio.move_on_after(1) as scope:
        await queue.answer("last")
    assert scope.cancelled_caught
    assert await take(queue) == ["a"] * (ANSWERS - 1) + ["last"]
    await queue.answer("a")


async def test_room_waits_until_the_queue_is_half_empty(autojump_clock):
    queue = SendQueue(max_frames=4)
    for frame in "abc":
        queue.push(frame)
    with trio.move_on_after(1) as scope:
        await queue.wait_for_room()
    assert scope.cancelled_caught
    await take(queue)
    await queue.wait_for_room()


async def test_after_close_the_rest_is_taken_and_then_none():
    queue = SendQueue()
    queue.push("a")
    queue.close(1000, "bye")
    queue.push("b")
    assert [await take(queue), await take(queue)] == [["a"], []]
    assert queue.closing == (1000, "bye")


async def test_close_without_flush_drops_the_rest():
    queue = SendQueue()
    queue.push("a")
    queue.close(1013, "full", flush=False)
    assert await take(queue) == []


async def test_the_first_close_counts():
    queue = SendQueue()
    queue.close(4401, "no")
    queue.close(1001, "gone")
    assert queue.closing == (4401, "no")


async def test_close_wakes_waiting_tasks(autojump_clock):
    queue = SendQueue(max_frames=1)
    queue.push("a")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(queue.wait_for_room)
        await trio.testing.wait_all_tasks_blocked()
        queue.close(1000, "")
