"""The journal as its askers see it: order, durability, group commit, long polls, whole files."""

from __future__ import annotations

import errno
import json
import math
from contextlib import suppress
from functools import partial

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from actors import ActorDied, ActorError
from pegasus.messages import INTERNAL_ID_PREFIX, Address, ChannelInfo, InboundMessage, OutboundMessage
from pegasus.storage import UNDELIVERED_REPLY, FileDisk
from pegasus.storage.inbox_messages import Accept, Accepted, CompleteItem, NextItem, Overloaded, Waiting
from pegasus.storage.messages import (
    Acknowledge,
    Archive,
    ArchiveName,
    Commit,
    Connected,
    Disconnected,
    LastSeq,
    NextReplies,
    Post,
    Posted,
    ReadFile,
    ReadFiles,
    ReplaceFile,
    StorageError,
    Unacknowledged,
    Unroutable,
)
from pegasus.testing.memory_disk import MemoryDisk, MemoryFiles

from .conftest import CLI, NOW, WEB

INBOX, OUTBOX = "inbox/inbox.jsonl", "outbox/outbox.jsonl"
SESSION = "main/current.jsonl"
A = CLI.address


def lines(disk, path=SESSION):
    return disk.content(path).splitlines()


async def in_parallel(*calls):
    results = {}

    async def one(n, call):
        try:
            results[n] = await call
        except StorageError as error:
            results[n] = error

    async with trio.open_nursery() as nursery:
        for n, call in enumerate(calls):
            nursery.start_soon(one, n, call)
    return [results[n] for n in range(len(calls))]


# ------------------------------------------------------------------ durable before the answer


async def test_what_is_accepted_is_synced_before_the_answer(journal, disk):
    assert await journal.accept("a") == Accepted(1, duplicate=False)
    assert b'"id":"a"' in disk.survivor().content(INBOX)


async def test_appends_and_posts_are_synced_before_the_answer(journal, disk):
    message = await journal.post("k", appends=((SESSION, b"1\n"), ("tasks/t", b"2\n")))
    assert message == OutboundMessage("hi", CLI, 1)
    left = disk.survivor()
    assert (left.content(SESSION), left.content("tasks/t")) == (b"1\n", b"2\n")
    assert b'"key":"k"' in left.content(OUTBOX)


async def test_an_append_is_on_disk_before_any_post_of_the_same_commit(start):
    seen = set()
    for operation in range(1, 24):
        disk = MemoryDisk()
        async with start(disk) as journal:
            disk.lose_power(operation)
            with suppress(ActorDied):
                await journal.post("k", appends=((SESSION, b"1\n"),))
            left = disk.survivor()
            is_posted = b"\n" in left.content(OUTBOX)
            assert not is_posted or left.content(SESSION) == b"1\n"
            seen.add((left.content(SESSION), is_posted))
    assert seen == {(b"", False), (b"1\n", False), (b"1\n", True)}


async def test_appends_together_follow_those_in_order_and_precede_the_posts(start):
    seen = set()
    post = Post("k", "hi", CLI.channel_id, CLI)
    commit = partial(
        Commit, appends=((SESSION, b"1\n"),), posts=(post,), together=(("tasks/t", b"2\n"), ("tasks/u", b"3\n"))
    )
    for operation in range(1, 30):
        disk = MemoryDisk()
        async with start(disk) as journal:
            disk.lose_power(operation)
            with suppress(ActorDied):
                await journal.ask(commit)
            left = disk.survivor()
            done = [left.content(path) != b"" for path in (SESSION, "tasks/t", "tasks/u")]
            is_posted = b"\n" in left.content(OUTBOX)
            assert all(done) or not is_posted
            assert done[0] or not any(done)
            seen.add((*done, is_posted))
    assert {(False, False, False, False), (True, False, False, False), (True, True, True, False), (True,) * 4} <= seen


async def test_a_path_outside_of_data_is_refused_among_appends_together(journal):
    with pytest.raises(ValueError, match="no path below data/"):
        await journal.ask(partial(Commit, together=(("../x", b"1\n"),)))


# ------------------------------------------------------------------ group commit


async def test_a_hundred_waiting_accepts_cost_one_sync(start, autojump_clock):
    disk = MemoryDisk(delay=1)
    async with start(disk) as journal:
        await journal.accept("first")
        before = disk.fsyncs
        results = await in_parallel(*(journal.accept(f"m{n}") for n in range(100)))
        assert all(isinstance(result, Accepted) for result in results)
        assert disk.fsyncs - before <= 2
        assert len(lines(disk, INBOX)) == 101


async def test_what_arrives_during_a_write_is_the_next_batch(start, autojump_clock):
    disk = MemoryDisk()
    async with start(disk) as journal, trio.open_nursery() as nursery:
        disk.delay = 10
        nursery.start_soon(journal.append, SESSION, b"0\n")
        await trio.sleep(1)
        before = trio.current_time()
        for n in range(50):
            nursery.start_soon(journal.append, SESSION, b"%d\n" % n)
        await trio.sleep(0.5)
        assert disk.fsyncs == 0
        nursery.cancel_scope.deadline = math.inf
        await journal.append("other", b"x\n")
        assert trio.current_time() == before + 9 + 10
        assert disk.fsyncs == 3


async def test_a_batch_over_three_files_costs_three_syncs(start, autojump_clock):
    disk = MemoryDisk(delay=1)
    async with start(disk) as journal:
        await journal.accept("first")
        before, runs = disk.fsyncs, disk.runs
        calls = [
            journal.accept("a"),
            journal.append(SESSION, b"1\n"),
            journal.post("k"),
            journal.accept("b"),
            journal.post("l"),
        ]
        await in_parallel(*calls)
        assert disk.runs - runs <= 2
        assert disk.fsyncs - before <= 4


async def test_a_duplicate_costs_nothing(journal, disk):
    await journal.accept("a")
    await journal.post("k")
    before = disk.operations
    assert await journal.accept("a") == Accepted(1, duplicate=True)
    assert (await journal.post("k")).seq == 1
    assert disk.operations == before


async def test_a_duplicate_in_the_same_batch_is_answered_after_the_write(start, autojump_clock):
    disk = MemoryDisk(delay=1)
    async with start(disk) as journal:
        await journal.accept("first")
        results = await in_parallel(journal.accept("a"), journal.accept("a"))
        assert sorted(results, key=str) == [Accepted(2, duplicate=False), Accepted(2, duplicate=True)]


# ------------------------------------------------------------------ what need not be durable


async def test_done_and_acknowledged_go_along_with_the_next_write_of_their_file_only(start, disk, autojump_clock):
    async with start(disk) as journal:
        item = await journal.accept("a")
        await journal.post("k")
        await journal.tell(CompleteItem(item.n))
        await journal.tell(Acknowledge(A, 1))
        before = disk.fsyncs
        await journal.append(SESSION, b"1\n")
        assert disk.fsyncs == before + 1
        await journal.accept("b")
        assert b'"done"' in disk.survivor().content(INBOX)
        assert b'"ack"' not in disk.content(OUTBOX)
        await trio.sleep(0.06)
        assert b'"ack"' in disk.content(OUTBOX)


async def test_nothing_is_scheduled_while_nothing_is_owed(start, disk, autojump_clock):
    async with start(disk) as journal:
        await journal.accept("a")
        await wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().seconds_to_next_deadline == math.inf
        await journal.tell(CompleteItem(1))
        await wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().seconds_to_next_deadline == pytest.approx(0.05)
        await trio.sleep(0.1)
        await wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().seconds_to_next_deadline == math.inf


async def test_under_steady_load_on_other_files_the_flush_is_not_put_off(start, disk, autojump_clock):
    async with start(disk) as journal:
        await journal.accept("a")
        await journal.tell(CompleteItem(1))
        for _ in range(6):
            await journal.append(SESSION, b"x\n")
            await trio.sleep(0.01)
        assert b'"done"' in disk.content(INBOX)


async def test_a_message_that_comes_just_as_a_flush_is_due_is_worked_on(start, mock_clock):
    """It is taken from the mailbox, and the wait is over for both reasons at once."""

    class Touchy(MemoryDisk):
        async def run(self, work, *args):
            await trio.lowlevel.checkpoint()  # where a cancellation would be felt
            return await super().run(work, *args)

    disk = Touchy()
    async with start(disk) as journal:
        await journal.accept("a")
        await journal.tell(CompleteItem(1))
        await wait_all_tasks_blocked()
        answer = await journal.ref.request(Commit, ((SESSION, b"1\n"),))
        mock_clock.jump(0.06)
        await answer.get()
        await wait_all_tasks_blocked()
        assert disk.survivor().content(SESSION) == b"1\n"
        assert b'"done"' in disk.content(INBOX)


async def request_soon(journal, line, after=None):
    """Send a commit that may be made a moment later; return its answer."""
    return await journal.ref.request(Commit, ((SESSION, line),), (), None, (), after, (), True)


async def test_a_commit_that_nobody_waits_for_is_made_a_moment_later(start, disk, autojump_clock):
    async with start(disk) as journal:
        answer = await request_soon(journal, b"1\n")
        await trio.sleep(0.04)
        assert disk.content(SESSION) == b""
        await trio.sleep(0.02)
        assert disk.survivor().content(SESSION) == b"1\n"
        assert await answer.get() == ()


async def test_a_commit_that_nobody_waits_for_goes_along_with_the_next_in_its_place(start, disk, autojump_clock):
    async with start(disk) as journal:
        _answer = await request_soon(journal, b"1\n", 0)
        before = disk.operations
        await journal.ask(Commit, ((SESSION, b"2\n"),), (), None, (), 1)
        assert disk.survivor().content(SESSION) == b"1\n2\n"
        alone = disk.operations
        await journal.ask(Commit, ((SESSION, b"3\n"),), (), None, (), 2)
        assert alone - before <= (disk.operations - alone) + 2, "one write, and what a new file takes"


async def test_whoever_reads_a_file_sees_a_commit_that_nobody_waits_for(start, disk):
    async with start(disk) as journal:
        _answer = await request_soon(journal, b"1\n")
        assert await journal.ask(ReadFile, SESSION) == b"1\n"


async def test_a_commit_that_nobody_waits_for_and_that_is_refused_fails_nobody_else(start, disk, autojump_clock):
    async with start(disk) as journal:
        disk.files.capacity = 1_000
        answer = await request_soon(journal, b"x" * 2_000 + b"\n")
        assert await journal.ask(Commit, ((SESSION, b"2\n"),)) == ()
        with pytest.raises(StorageError):
            await answer.get()
        assert disk.survivor().content(SESSION) == b"2\n"


async def test_a_commit_that_nobody_waits_for_is_tried_again_while_the_disk_refuses(start, disk, autojump_clock):
    async with start(disk) as journal:
        await journal.accept("a")
        await journal.append(SESSION, b"1\n")
        disk.files.capacity = 0
        answer = await request_soon(journal, b"2\n")
        await trio.sleep(5)
        disk.files.capacity = None
        await trio.sleep(2)
        assert disk.survivor().content(SESSION) == b"1\n2\n"
        assert await answer.get() == ()


@pytest.mark.parametrize("operation", range(1, 8))
async def test_what_is_done_is_on_disk_only_behind_the_lines_that_show_it(start, disk, autojump_clock, operation):
    async with start(disk) as journal:
        await journal.accept("a")
        await journal.append(SESSION, b"1\n")
        disk.lose_power(operation)
        with suppress(ActorError):
            _answer = await request_soon(journal, b"2\n")
            await journal.tell(CompleteItem(1))
            await trio.sleep(1)
        after = disk.survivor()
    assert b'"done"' not in after.content(INBOX) or after.content(SESSION) == b"1\n2\n"


async def test_stopping_flushes_durably(start, disk):
    async with start(disk) as journal:
        await journal.accept("a")
        await journal.post("k")
        await journal.tell(CompleteItem(1))
        await journal.tell(Acknowledge(A, 1))
        await journal.append(SESSION, b"1\n")
        _answer = await request_soon(journal, b"2\n")
    async with start(disk.survivor()) as journal:
        assert await journal.ask(Waiting) == 0
        assert await journal.ask(Unacknowledged, "cli", "main") == ()
        assert await journal.ask(ReadFile, SESSION) == b"1\n2\n"


# ------------------------------------------------------------------ a disk that refuses


async def test_a_full_disk_keeps_nothing_and_the_next_request_works_once_there_is_space(journal, disk):
    await journal.accept("a")
    await journal.post("k1")
    disk.files.capacity = 0
    with pytest.raises(StorageError, match=rf"cannot write memory/{INBOX}: No space left on device; free some space"):
        await journal.accept("b")
    with pytest.raises(StorageError):
        await journal.post("k2", appends=((SESSION, b"1\n"),))
    assert await journal.ask(Waiting) == 1
    assert await journal.ask(LastSeq, A) == 1
    assert await journal.ask(Posted, ("k2",)) == (None,)
    disk.files.capacity = None
    assert await journal.accept("b") == Accepted(2, duplicate=False)
    assert (await journal.post("k2", appends=((SESSION, b"1\n"),))).seq == 2
    assert lines(disk) == [b"1"]


async def test_an_error_at_any_operation_keeps_nothing_of_the_commit_and_burns_no_seq(start):
    for operation in range(1, 20):
        disk = MemoryDisk()
        async with start(disk) as journal:
            await journal.post("before")
            disk.fail(operation)
            try:
                await journal.post("k", appends=((SESSION, b"1\n"), ("other", b"2\n")))
            except StorageError:
                left = disk.survivor()
                assert left.content(SESSION) == left.content("other") == b""
                assert len(lines(left, OUTBOX)) == 1
                assert await journal.ask(LastSeq, A) == 1
                assert (await journal.post("k", appends=((SESSION, b"1\n"), ("other", b"2\n")))).seq == 2
            else:
                assert operation > 9
                return
            assert lines(disk) == [b"1"]
    pytest.fail("no end of operations")


async def test_one_that_cannot_be_written_fails_nobody_else(start, autojump_clock):
    disk = MemoryDisk(delay=1)
    async with start(disk) as journal:
        await journal.append(SESSION, b"0\n")
        disk.files.capacity = 1_000
        calls = [
            journal.accept("a"),
            journal.append(SESSION, b"x" * 2_000 + b"\n"),
            journal.post("k", appends=((SESSION, b"1\n"),)),
            journal.accept("a"),
            journal.append(SESSION, b"2\n"),
        ]
        accepted, huge, posted, again, owed = await in_parallel(*calls)
        assert isinstance(huge, StorageError)
        assert (accepted.n, again.n, accepted.duplicate + again.duplicate) == (1, 1, 1)
        assert posted.seq == 1
        assert owed == ()
        await trio.sleep(5)
        assert sorted(lines(disk)) == [b"0", b"1", b"2"]


async def test_a_refused_batch_is_tried_singly_in_order(start, autojump_clock):
    disk = MemoryDisk(delay=1)
    async with start(disk) as journal:
        await journal.append(SESSION, b"0\n")
        disk.fail(1)
        await in_parallel(*(journal.append(SESSION, b"%d\n" % n) for n in range(1, 6)))
        assert sorted(lines(disk)) == [b"%d" % n for n in range(6)]
        assert journal.reports == []


async def test_what_is_owed_waits_for_a_disk_that_refuses_and_is_told_once(start, disk, autojump_clock):
    async with start(disk) as journal:
        await journal.accept("a")
        disk.files.capacity = 0
        await journal.tell(CompleteItem(1))
        await trio.sleep(10)
        [report] = journal.reports
        assert "No space left" in report
        assert "waits in memory" in report
        disk.files.capacity = None
        await trio.sleep(2)
        assert b'"done"' in disk.content(INBOX)
        await wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().seconds_to_next_deadline == math.inf


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "a/../../x", INBOX, OUTBOX, "a\0b"])
async def test_a_path_outside_of_data_is_refused(journal, disk, path):
    with pytest.raises(ValueError, match="no path below data/"):
        await journal.append(path, b"1\n")
    with pytest.raises(ValueError, match="no path below data/"):
        await journal.ask(ReadFile, path)
    with pytest.raises(ValueError, match="no path below data/"):
        await journal.post("k", appends=((path, b"1\n"),))
    assert disk.paths() == []
    assert await journal.ask(LastSeq, A) == 0


async def test_a_text_that_cannot_be_written_is_refused_alone(start, autojump_clock):
    disk = MemoryDisk(delay=1)
    async with start(disk) as journal:
        await journal.accept("first")
        bad = {"a": float("nan")}

        async def refused(call):
            with pytest.raises(ValueError, match="cannot be written"):
                await call

        results = await in_parallel(
            refused(journal.ask(Accept, InboundMessage("", CLI, "b", bad))),
            refused(
                journal.ask(
                    Commit, ((SESSION, b"1\n"),), (Post("k", "", "main", CLI), Post("l", "", "main", CLI, metadata=bad))
                )
            ),
            journal.accept("c"),
            journal.post("m"),
        )
        assert results[2].n == 2
        assert results[3].seq == 1
        assert lines(disk) == []


async def test_a_lone_surrogate_is_kept(start, disk):
    async with start(disk) as journal:
        await journal.accept("a\udc80", "x\ud800y")
        await journal.post("k", text="\ud800")
    async with start(disk.survivor()) as journal:
        assert (await journal.ask(NextItem)).message.text == "x\ud800y"
        assert [message.text for message in await journal.ask(Unacknowledged, "cli", "main")] == ["\ud800"]


# ------------------------------------------------------------------ items


async def test_an_item_comes_when_there_is_one(journal):
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def taker():
            item = await journal.ask(NextItem)
            assert (item.n, item.attempt, item.message) == (1, 1, InboundMessage("hello", CLI, "a"))

        await wait_all_tasks_blocked()
        await journal.accept("a", "hello")


async def test_items_of_a_lane_come_in_order_each_until_it_is_done(journal):
    for id in "abc":
        await journal.accept(id)
    await journal.accept("/stop", lane="control")
    assert [(await journal.ask(NextItem)).attempt for _ in range(3)] == [1, 2, 3]
    await journal.tell(CompleteItem(1))
    assert (await journal.ask(NextItem)).message.id == "b"
    assert (await journal.ask(NextItem, "control")).message.id == "/stop"
    assert await journal.ask(Waiting) == 3


async def test_what_waits_is_counted_by_how_urgent_it_is(journal):
    """So that /stop does not call the reports of tasks messages that wait."""
    for id, priority in (("owner", 0), ("person", 1), ("report", 2), ("job", 3)):
        await journal.accept(id, priority=priority)
    assert await journal.ask(Waiting, None, "main", 1) == 2
    assert await journal.ask(Waiting, A, None, 2) == 3
    assert await journal.ask(Waiting) == 4


async def test_a_new_taker_takes_the_place_of_the_old_one(journal):
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def first():
            with pytest.raises(StorageError, match="taken the place"):
                await journal.ask(NextItem)

        await wait_all_tasks_blocked()
        nursery.start_soon(journal.ask, NextItem)
        await wait_all_tasks_blocked()
        await journal.accept("a")


async def test_a_taker_that_left_costs_no_attempt(journal, autojump_clock):
    with trio.move_on_after(1):
        await journal.ask(NextItem)
    await journal.accept("a")
    await wait_all_tasks_blocked()
    assert (await journal.ask(NextItem)).attempt == 1


async def test_the_queue_is_bounded_and_control_passes_it(start, disk):
    async with start(disk, max_waiting=3) as journal:
        for id in "abc":
            await journal.accept(id)
        assert await journal.accept("d") == Overloaded(3)
        assert await journal.accept("b") == Accepted(2, duplicate=True)
        assert isinstance(await journal.accept("/stop", lane="control"), Accepted)
        await journal.tell(CompleteItem(1))
        assert isinstance(await journal.accept("d"), Accepted)


async def test_large_waiting_messages_are_read_back_when_their_turn_comes(start, disk):
    async with start(disk) as journal:
        for n in range(12):
            await journal.accept(f"m{n}", f"{n}" + "x" * 1_000_000)
        for n in range(12):
            item = await journal.ask(NextItem)
            assert (item.n, item.message.text[: len(str(n))], len(item.message.text)) == (
                n + 1,
                str(n),
                1_000_000 + len(str(n)),
            )
            await journal.tell(CompleteItem(item.n))


async def test_an_item_that_vanished_from_the_file_is_told_and_passed_over(start, disk):
    async with start(disk) as journal:
        for id in "abc":
            await journal.accept(id)
    disk = disk.survivor()
    async with start(disk) as journal:
        content = disk.content(INBOX)
        disk.put(INBOX, b" " * content.index(b"\n") + content[content.index(b"\n") :])
        assert (await journal.ask(NextItem)).message.id == "b"
        [report] = journal.reports
        assert "item 1 was accepted but is not in the file any more" in report


# ------------------------------------------------------------------ replies


async def test_replies_come_when_there_are_some_and_are_confirmed_by_the_next_question(journal):
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def courier():
            assert [(out.position, out.message.text) for out in await journal.ask(NextReplies)] == [(1, "one")]
            await journal.post("k2", text="two")
            await journal.post("k3", WEB, text="three")
            assert [out.message.text for out in await journal.ask(NextReplies, 0)] == ["one", "two", "three"]
            assert [out.position for out in await journal.ask(NextReplies, 2)] == [3]

        await wait_all_tasks_blocked()
        await journal.post("k1", text="one")


async def test_a_restarted_courier_gets_what_was_not_confirmed(journal):
    for n in range(3):
        await journal.post(f"k{n}")
    assert len(await journal.ask(NextReplies, 0)) == 3
    assert len(await journal.ask(NextReplies, 0)) == 3
    assert [out.position for out in await journal.ask(NextReplies, 1)] == [2, 3]


async def test_at_most_a_hundred_replies_at_once(journal):
    await journal.ask(Commit, (), tuple(Post(f"k{n}", "hi", "main", CLI) for n in range(250)))
    handed, sizes = 0, []
    while handed < 250:
        some = await journal.ask(NextReplies, handed)
        sizes.append(len(some))
        handed = some[-1].position
    assert sizes == [100, 100, 50]


async def test_a_reply_that_was_acknowledged_meanwhile_is_not_handed_out(journal):
    for n in range(3):
        await journal.post(f"k{n}")
    await journal.tell(Acknowledge(A, 2))
    assert [out.message.seq for out in await journal.ask(NextReplies, 0)] == [3]


async def test_replies_of_an_earlier_process_are_for_those_who_ask_for_them(start, disk, autojump_clock):
    async with start(disk) as journal:
        await journal.post("k1")
    async with start(disk.survivor()) as journal:
        with trio.move_on_after(1):
            pytest.fail(str(await journal.ask(NextReplies)))
        await journal.post("k2")
        assert [(out.position, out.message.seq) for out in await journal.ask(NextReplies)] == [(1, 2)]
        assert [message.seq for message in await journal.ask(Unacknowledged, "cli", "main")] == [1, 2]


async def test_a_second_courier_takes_the_place_of_the_first(journal):
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def first():
            with pytest.raises(StorageError, match="taken the place"):
                await journal.ask(NextReplies)

        await wait_all_tasks_blocked()
        nursery.start_soon(journal.ask, NextReplies)
        await wait_all_tasks_blocked()
        await journal.post("k")


async def test_old_replies_are_read_back_when_they_are_wanted(journal):
    for n in range(10):
        await journal.post(f"k{n}", text=f"{n}" * 1_000_000)
    assert [out.message.text[0] for out in await journal.ask(NextReplies)] == list("0123456789")
    found = await journal.ask(Unacknowledged, "cli", "main")
    assert [(message.seq, message.text[0], len(message.text)) for message in found] == [
        (n + 1, str(n), 1_000_000) for n in range(10)
    ]
    assert [message.text[0] for message in await journal.ask(Posted, ("k0", "k9"))] == ["0", "9"]


async def test_what_a_client_says_it_has_is_acknowledged(journal, disk):
    for n in range(5):
        await journal.post(f"k{n}")
    assert [m.seq for m in await journal.ask(Unacknowledged, "cli", "main", (("main", 3),))] == [4, 5]
    assert [m.seq for m in await journal.ask(Unacknowledged, "cli", "main")] == [4, 5]
    found = await journal.ask(Unacknowledged, "cli", "main", (("main", 2),), 200, True)
    assert [m.seq for m in found] == [3, 4, 5]
    assert [m.seq for m in await journal.ask(Unacknowledged, "cli", "main", (("main", 2),), 2, True)] == [3, 4]
    assert all(m.text for m in found)


async def test_a_client_that_claims_more_than_there_is_gets_everything(journal):
    """A client that outlived the data of its daemon must not miss what is new."""
    await journal.post("k")
    assert [m.seq for m in await journal.ask(Unacknowledged, "cli", "main", (("main", 1_000),))] == [1]


async def test_a_bridge_gets_its_whole_type_and_says_what_it_has_of_each(journal):
    for n in range(4):
        await journal.post(f"a{n}", ChannelInfo("slack", f"#{n % 2}"))
    await journal.post("b", WEB)
    found = await journal.ask(Unacknowledged, "slack", None, (("#1", 1),))
    assert [(m.channel.channel_id, m.seq) for m in found] == [("#0", 1), ("#0", 2), ("#1", 2)]
    assert len(await journal.ask(Unacknowledged, "slack", None, (), 2)) == 2


async def test_what_became_of_keys(start, disk):
    async with start(disk) as journal:
        await journal.post("k", text="words", metadata={"a": 1})
        expected = OutboundMessage("words", CLI, 1, {"a": 1})
        assert await journal.ask(Posted, ("x", "k", "k")) == (None, expected, expected)
        await journal.tell(Acknowledge(A, 1))
        assert await journal.ask(Posted, ("k",)) == (expected,)
    async with start(disk.survivor()) as journal:
        assert await journal.ask(Posted, ("k", "x")) == (expected, None)
        assert await journal.post("k", text="words", metadata={"a": 1}) == expected
        assert await journal.ask(LastSeq, A) == 1


# ------------------------------------------------------------------ addresses


async def test_a_reply_goes_where_the_directory_says(journal):
    await journal.accept("a", channel=CLI)
    await journal.accept("b", channel=ChannelInfo("slack", "#general", "u"))
    [result] = await journal.ask(Commit, (), (Post("k", "hi", "#general", CLI),))
    assert result.channel == ChannelInfo("slack", "#general")


async def test_a_reply_to_nowhere_is_told_and_the_rest_of_the_commit_happens(journal, disk):
    posts = (Post("k1", "hi", "nowhere", CLI), Post("k2", "hi", "main", CLI))
    nowhere, somewhere = await journal.ask(Commit, ((SESSION, b"1\n"),), posts)
    assert isinstance(nowhere, Unroutable)
    assert somewhere.seq == 1
    assert lines(disk) == [b"1"]


async def test_connected_clients_and_bridges_can_be_reached(journal):
    async def reach(channel_id, type=None):
        [result] = await journal.ask(Commit, (), (Post(f"{channel_id}{type}", "hi", channel_id, CLI, type),))
        return isinstance(result, OutboundMessage)

    assert not await reach("c1")
    await journal.tell(Connected("web", "c1"))
    assert await reach("c1")
    assert not await reach("+49", "sms")
    await journal.tell(Connected("sms", None))
    assert await reach("+49", "sms")
    await journal.tell(Disconnected("sms", None))
    assert not await reach("+50", "sms")


async def test_who_was_connected_once_is_known_after_a_restart(start, disk):
    async with start(disk) as journal:
        await journal.tell(Connected("web", "c1"))
        await journal.tell(Disconnected("web", "c1"))
    async with start(disk.survivor()) as journal:
        [result] = await journal.ask(Commit, (), (Post("k", "hi", "c1", CLI),))
        assert result.channel == ChannelInfo("web", "c1")


async def test_the_same_key_gets_the_same_reply_even_if_its_address_is_gone(journal):
    await journal.tell(Connected("sms", None))
    await journal.ask(Commit, (), (Post("k", "hi", "+49", CLI, "sms"),))
    await journal.tell(Disconnected("sms", None))
    [result] = await journal.ask(Commit, (), (Post("k", "hi", "+49", CLI, "sms"),))
    assert result.seq == 1


# ------------------------------------------------------------------ whole files


async def test_a_file_is_read_with_everything_said_before_in_it(journal):
    assert await journal.ask(ReadFile, SESSION) == b""
    await journal.append(SESSION, b"1\n")
    await journal.append(SESSION, b"2\n")
    assert await journal.ask(ReadFile, SESSION) == b"1\n2\n"


async def test_a_file_is_replaced_durably_and_goes_on(journal, disk):
    await journal.append(SESSION, b"1\n")
    await journal.append(SESSION, b"2\n")
    await journal.ask(ReplaceFile, SESSION, b"new\n")
    assert disk.survivor().content(SESSION) == b"new\n"
    await journal.append(SESSION, b"3\n")
    assert disk.survivor().content(SESSION) == b"new\n3\n"


async def test_what_is_done_is_durable_before_a_session_that_tells_it_is_put_aside(journal, disk):
    item = await journal.accept("a")
    await journal.append(SESSION, b"1\n")
    await journal.tell(CompleteItem(item.n))
    await journal.ask(Archive, SESSION, b"", NOW)
    assert b'"done"' in disk.survivor().content(INBOX)


async def test_a_session_is_archived_with_everything_said_before_in_it(journal, disk):
    for n in range(3):
        await journal.append(SESSION, b"%d\n" % n)
        await journal.append(SESSION, b"more\n")
        await journal.ask(Archive, SESSION, b"head\n", NOW)
    left = disk.survivor()
    assert left.content("main/2026-02-25-143000.jsonl") == b"0\nmore\n"
    assert left.content("main/2026-02-25-143000-2.jsonl") == b"head\n1\nmore\n"
    assert left.content("main/2026-02-25-143000-3.jsonl") == b"head\n2\nmore\n"
    assert left.content(SESSION) == b"head\n"


async def test_the_name_of_an_archive_is_told_before_it_is_made(journal, disk):
    """So that the file that takes its place can name it. What is owed counts: without it there might be no file yet."""
    assert await journal.ask(ArchiveName, SESSION, NOW) == ""
    await journal.append(SESSION, b"1\n")
    name = await journal.ask(ArchiveName, SESSION, NOW)
    assert await journal.ask(Archive, SESSION, name.encode(), NOW, name) == name == "2026-02-25-143000.jsonl"
    assert disk.survivor().content(SESSION) == name.encode()
    with pytest.raises(StorageError, match=r"-2\.jsonl"):
        await journal.ask(Archive, SESSION, b"", NOW, name)


async def test_requests_around_a_replacement_keep_their_order(start, autojump_clock):
    disk = MemoryDisk(delay=1)
    async with start(disk) as journal:
        answers = [
            await journal.ref.request(Commit, ((SESSION, b"1\n"),)),
            await journal.ref.request(ReplaceFile, SESSION, b"new\n"),
            await journal.ref.request(Commit, ((SESSION, b"2\n"),)),
            await journal.ref.request(ReadFile, SESSION),
        ]
        results = [await answer.get() for answer in answers]
        assert results[3] == b"new\n2\n"


async def test_a_file_that_cannot_be_read_fails_nobody_else(journal, disk):
    await journal.append(SESSION, b"1\n")
    names = (SESSION, "../x", "", "main/new.jsonl", SESSION)
    answers = [await journal.ref.request(ReadFile, name) for name in names]
    for answer in (answers[1], answers[2]):
        with pytest.raises(ValueError, match="path"):
            await answer.get()
    assert [await answers[n].get() for n in (0, 3, 4)] == [b"1\n", b"", b"1\n"]


async def test_several_files_are_asked_for_with_one_question(start, autojump_clock):
    disk = MemoryDisk(delay=1)
    async with start(disk) as journal:
        for name in "abc":
            await journal.append(f"{name}.jsonl", name.encode())
        runs = disk.runs
        several = await journal.ref.request(ReadFiles, ("c.jsonl", "new.jsonl", "a.jsonl", "c.jsonl"))
        assert await several.get() == (b"c", b"", b"a", b"c")
        assert disk.runs - runs == 1
        assert await journal.ask(ReadFiles, ()) == ()


async def test_of_several_files_one_that_cannot_be_read_is_an_error_among_the_others(journal, disk, monkeypatch):
    await journal.append(SESSION, b"1\n")

    def refuse(files, path, *span):
        if path == "main/locked.jsonl":
            raise PermissionError(errno.EACCES, "Permission denied")
        return read(files, path, *span)

    read = MemoryFiles.read
    monkeypatch.setattr(MemoryFiles, "read", refuse)
    locked, content = await journal.ask(ReadFiles, ("main/locked.jsonl", SESSION))
    assert isinstance(locked, StorageError)
    assert content == b"1\n"
    with pytest.raises(ValueError, match="path"):
        await journal.ask(ReadFiles, (SESSION, "../x"))


async def test_what_is_asked_for_between_reads_keeps_its_place(start, autojump_clock):
    disk = MemoryDisk(delay=1)
    async with start(disk) as journal:
        asked = [
            (ReadFile, SESSION),
            (Commit, ((SESSION, b"1\n"),)),
            (ReadFile, SESSION),
            (Commit, ((SESSION, b"2\n"),)),
            (ReadFile, SESSION),
            (ReplaceFile, SESSION, b"new\n"),
            (ReadFile, SESSION),
        ]
        answers = [await journal.ref.request(*one) for one in asked]
        results = [await answer.get() for answer in answers]
        assert results[::2] == [b"", b"1\n", b"1\n2\n", b"new\n"]


async def test_a_disk_that_refuses_a_whole_file_says_so(journal, disk):
    await journal.append(SESSION, b"1\n")
    for ask in ((ReplaceFile, SESSION, b"new\n"), (Archive, SESSION, b"new\n", NOW)):
        disk.fail(1)
        with pytest.raises(StorageError, match="No space left"):
            await journal.ask(*ask)
        assert lines(disk) == [b"1"]


# ------------------------------------------------------------------ compaction


async def fill(journal, rounds, size):
    for n in range(rounds):
        item = await journal.accept(f"m{n}", "x" * size)
        await journal.post(f"k{n}", text="y" * size)
        await journal.tell(CompleteItem(item.n))
        await journal.tell(Acknowledge(A, n + 1))


async def test_the_logs_stay_small(start, disk):
    async with start(disk) as journal:
        await journal.accept("keep me")
        await journal.post("keep me", WEB)
        await fill(journal, 60, 50_000)
        for path in (INBOX, OUTBOX):
            assert len(disk.content(path)) < 1_500_000
        assert not any(path.endswith(".tmp") for path in disk.paths())
    async with start(disk.survivor()) as journal:
        assert (await journal.ask(NextItem)).message.id == "keep me"
        assert [m.seq for m in await journal.ask(Unacknowledged, "web", "c1")] == [1]
        assert all([(await journal.accept(f"m{n}")).duplicate for n in range(60)])
        assert [(await journal.post(f"k{n}")).seq for n in range(60)] == list(range(1, 61))
        assert (await journal.accept("new")).n == 62
        assert (await journal.post("new")).seq == 61


async def test_a_compaction_that_the_disk_refuses_changes_nothing(start, disk):
    async with start(disk) as journal:
        disk.files.rename = lambda old, new: (_ for _ in ()).throw(OSError(28, "No space left on device"))
        await fill(journal, 40, 50_000)
        assert len(disk.content(INBOX)) > 2_000_000
        assert all("the file stays as it is" in report for report in journal.reports)
        assert len(journal.reports) <= 4
        assert not any(path.endswith(".tmp") for path in disk.paths())
        assert (await journal.accept("m0")).duplicate
    async with start(disk.survivor()) as journal:
        assert await journal.ask(Waiting) == 0


async def test_replies_given_up_by_a_compaction_are_told(start, disk):
    time = [NOW]
    async with start(disk, now=lambda: time[0]) as journal:
        await journal.post("old", WEB)
        time[0] += 31 * 24 * 3600 * 1000
        await fill(journal, 30, 50_000)
        assert "1 replies to web:c1 were dropped: nobody acknowledged them for 30 days" in journal.reports


MONTH = 31 * 24 * 3600 * 1000


async def undelivered_items(journal):
    """What the Main Agent gets."""
    found = []
    while await journal.ask(Waiting):
        item = await journal.ask(NextItem)
        found.append((item.message, item.priority))
        await journal.tell(CompleteItem(item.n))
    return found


async def test_replies_given_up_by_a_compaction_are_reported_to_the_main_agent(start, disk):
    time = [NOW]
    async with start(disk, now=lambda: time[0]) as journal:
        for n in range(3):
            await journal.post(f"old{n}", WEB, text=f"words {n}")
        await journal.post("alone", ChannelInfo("sms", "+1"), text="single words")
        time[0] += MONTH
        await journal.post("young", WEB)
        await fill(journal, 30, 50_000)
        (several, priority), (single, _) = await undelivered_items(journal)
        assert (several.channel, several.metadata, priority) == (WEB, {"type": UNDELIVERED_REPLY, "seq": 3}, 2)
        assert several.text == (
            "Nobody has fetched it for 30 days. This and 2 before it will not be kept any longer.\nIt began: words 2"
        )
        assert single.channel == ChannelInfo("sms", "+1")
        assert (
            single.text == "Nobody has fetched it for 30 days. It will not be kept any longer.\nIt began: single words"
        )
        assert {message.id[0] for message in (several, single)} == {INTERNAL_ID_PREFIX}
        assert [reply.seq for reply in await journal.ask(Unacknowledged, "web", "c1")] == [4]
        assert (await journal.post("old1", WEB)).seq == 2  # its key is still recognised
    async with start(disk.survivor(), now=lambda: time[0]) as journal:
        assert await journal.ask(Waiting) == 0
        assert [reply.seq for reply in await journal.ask(Unacknowledged, "web", "c1")] == [4]
        assert (await journal.post("next", WEB)).seq == 5


async def test_a_report_of_given_up_replies_wakes_the_main_agent(start, disk):
    time = [NOW]
    async with start(disk, now=lambda: time[0]) as journal:
        await journal.post("old", WEB)
        time[0] += MONTH
        waiting = await journal.ref.request(NextItem)
        await journal.ask(Commit, (), (Post("large", "x" * 2_100_000, CLI.channel_id, CLI),))
        await journal.tell(Acknowledge(A, 1))
        await journal.post("next")
        assert (await waiting.get()).message.metadata == {"type": UNDELIVERED_REPLY, "seq": 1}


async def test_while_the_inbox_has_no_room_for_the_report_the_reply_is_kept(start, disk):
    time = [NOW]
    async with start(disk, now=lambda: time[0], max_waiting=1) as journal:
        await journal.post("old", WEB)
        await journal.accept("waiting", priority=1)
        time[0] += MONTH
        for n in range(2):
            await journal.ask(Commit, (), (Post(f"large{n}", "x" * 2_100_000, CLI.channel_id, CLI),))
            await journal.tell(Acknowledge(A, n + 1))
            await journal.post(f"small{n}", ChannelInfo("cli", "other"))
            assert len(await journal.ask(Unacknowledged, "web", "c1")) == 1 - n
            assert len(await undelivered_items(journal)) == 1


async def test_replies_to_many_addresses_are_given_up_with_one_sync(start, disk):
    """Everybody else waits meanwhile."""
    time = [NOW]
    async with start(disk, now=lambda: time[0]) as journal:
        for n in range(100):
            await journal.post(f"old{n}", ChannelInfo("web", f"c{n}"))
        await journal.ask(Commit, (), (Post("large", "x" * 2_100_000, CLI.channel_id, CLI),))
        await journal.tell(Acknowledge(A, 1))
        time[0] += MONTH
        before = disk.fsyncs
        await journal.post("next")
        assert await journal.ask(Waiting) == 100
        assert await journal.ask(Unacknowledged, "web", None) == ()
        assert disk.fsyncs - before <= 5


async def test_a_power_failure_while_replies_are_given_up_loses_neither_them_nor_the_report(start):
    time = [NOW]
    for operation in range(1, 16):
        disk = MemoryDisk()
        with suppress(ActorError):
            async with start(disk, now=lambda: time[0]) as journal:
                await journal.post("old", WEB)
                await journal.ask(Commit, (), (Post("large", "x" * 2_100_000, CLI.channel_id, CLI),))
                await journal.tell(Acknowledge(A, 1))
                time[0] += MONTH
                disk.lose_power(operation)
                await journal.post("next")
        disk.crash()
        async with start(disk, now=lambda: time[0]) as journal:
            reported = [message.metadata["seq"] for message, _ in await undelivered_items(journal)]
            kept = [reply.seq for reply in await journal.ask(Unacknowledged, "web", "c1")]
            assert (reported, kept) in (([], [1]), ([1], [1]), ([1], []))


# ------------------------------------------------------------------ askers that leave, and the real disk


async def test_an_asker_that_leaves_during_the_write_leaves_a_whole_batch(start, autojump_clock):
    disk = MemoryDisk(delay=1)
    async with start(disk) as journal:
        await journal.accept("first")
        with trio.move_on_after(0.5):
            await journal.post("k", appends=((SESSION, b"1\n"), ("other", b"2\n")))
        await trio.sleep(5)
        assert lines(disk) == [b"1"]
        assert lines(disk, "other") == [b"2"]
        [message] = await journal.ask(Posted, ("k",))
        assert message.seq == 1


async def test_an_asker_that_leaves_before_its_turn_leaves_nothing(start, autojump_clock):
    disk = MemoryDisk()
    async with start(disk) as journal, trio.open_nursery() as nursery:
        disk.delay = 1
        nursery.start_soon(journal.append, SESSION, b"1\n")
        await trio.sleep(0.1)
        with trio.move_on_after(0.1):
            await journal.post("k", appends=((SESSION, b"2\n"),))
        await trio.sleep(5)
        assert lines(disk) == [b"1"]
        assert await journal.ask(Posted, ("k",)) == (None,)


async def test_on_real_files(start, tmp_path):
    disk = FileDisk(tmp_path)
    async with start(disk) as journal:
        await journal.accept("a", "hällo")
        await journal.accept("a")
        assert (await journal.post("k", appends=((SESSION, b"1\n"),))).seq == 1
        item = await journal.ask(NextItem)
        await journal.tell(CompleteItem(item.n))
        await journal.ask(Archive, SESSION, b"", NOW)
        async with trio.open_nursery() as nursery:
            for n in range(50):
                nursery.start_soon(journal.append, SESSION, b"%d\n" % n)
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {INBOX, OUTBOX, SESSION, "main/2026-02-25-143000.jsonl"}
    assert [json.loads(line)["type"] for line in (tmp_path / INBOX).read_text().splitlines()] == ["message", "done"]
    assert sorted(map(int, (tmp_path / SESSION).read_text().split())) == list(range(50))
    async with start(disk) as journal:
        assert await journal.ask(Waiting) == 0
        assert (await journal.accept("a")).duplicate
        assert await journal.ask(LastSeq, Address("cli", "main")) == 1
