"""What a database in memory does to the calls of nodes, in virtual time."""

from __future__ import annotations

import pytest
import trio

from pegasus.storage.database import DatabaseDown, DurableStep, NodeFacts, Notice
from pegasus.testing.memory_database import Fate, MemoryDatabase

PATIENCE = 2.0


@pytest.fixture
def database():
    return MemoryDatabase(patience=PATIENCE)


def append(link, text):
    return link.commit(DurableStep(text, 1, lines=(("x.jsonl", (text,)),)))


async def fails(call):
    """Seconds until a call fails."""
    began = trio.current_time()
    with pytest.raises(DatabaseDown):
        await call
    return trio.current_time() - began


async def test_what_becomes_of_a_call_is_known_to_nobody_who_gets_no_answer(autojump_clock, database):
    a, b = database.link("a"), database.link("b")
    database.plan("a", Fate.LOST, Fate.UNANSWERED, Fate.LATE, Fate.DONE)
    assert [await fails(append(a, text)) for text in ("lost", "unanswered", "late")] == [PATIENCE] * 3
    await append(a, "done")
    assert await b.read("x.jsonl") == b"unanswered\ndone\n"
    await trio.sleep(3 * PATIENCE)
    assert await b.read("x.jsonl") == b"unanswered\ndone\nlate\n"


async def test_a_link_that_is_cut_lets_calls_wait_and_others_go_on(autojump_clock, database):
    a, b = database.link("a"), database.link("b")
    database.cut("a")
    assert await fails(append(a, "1")) == PATIENCE
    await append(b, "2")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(append, a, "3")
        await trio.sleep(PATIENCE / 2)
        database.mend("a")
    assert await b.read("x.jsonl") == b"2\n3\n"


async def test_a_transaction_is_done_at_one_moment_although_its_caller_is_cancelled_or_killed(autojump_clock):
    seconds = iter([1.0, 0.0, 3.0, 1.0, 0.0, 0.0, 0.0, 0.0])
    database = MemoryDatabase(latency=lambda: next(seconds))
    a, b = database.link("a"), database.link("b")
    with trio.move_on_after(0.5):
        await append(a, "cancelled")
    with trio.move_on_after(0.5):
        await append(a, "killed")
    database.kill("a")
    assert await fails(append(a, "of a dead process")) == 0
    assert await b.read("x.jsonl") == b"cancelled\n"
    await trio.sleep(3)
    assert await b.read("x.jsonl") == b"cancelled\nkilled\n"


async def test_a_server_that_is_stopped_keeps_what_was_committed(autojump_clock, database):
    a = database.link("a")
    await append(a, "1")
    database.plan("a", Fate.LATE)
    assert await fails(append(a, "late")) == PATIENCE
    database.stop()
    assert await fails(append(a, "2")) == 0
    database.start()
    await trio.sleep(4 * PATIENCE)
    assert await a.read("x.jsonl") == b"1\n"


async def test_a_full_database_is_read(autojump_clock, database):
    a = database.link("a")
    database.refusal = "the disk is full"
    assert await fails(append(a, "1")) == 0
    assert await a.read("x.jsonl") == b""


async def test_leases_end_by_the_clock_of_the_database(autojump_clock, database):
    a = database.link("a")
    node = await a.register(NodeFacts("a"), 5)
    await trio.sleep(4)
    assert await a.renew(node, 5)
    await trio.sleep(5)
    assert await a.renew(node, 5) is None


async def test_notices_are_heard_unless_a_link_is_cut(autojump_clock, database):
    a, b = database.link("a"), database.link("b")
    await a.notify(Notice("say", "1"))
    assert await b.next_notices() == (Notice("say", "1"),)
    database.cut("b")
    await a.notify(Notice("say", "2"))
    assert await fails(b.next_notices()) == PATIENCE
    database.mend("b")
    assert await fails(b.next_notices()) == 0
    assert await b.next_notices() == ()
    with trio.move_on_after(10) as scope:
        await b.next_notices()
    assert scope.cancelled_caught
