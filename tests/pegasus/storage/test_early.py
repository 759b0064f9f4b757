"""The next item is handed out while it is being written, and taken back if the disk refuses it."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

import pytest
import trio

from actors import ActorError, Answer
from pegasus.messages import InboundMessage
from pegasus.storage.messages import (
    Accept,
    Accepted,
    Archive,
    Commit,
    Done,
    Item,
    NextItem,
    Post,
    Posted,
    ReadFile,
    Revoked,
    StorageError,
    Waiting,
)
from pegasus.testing.memory_disk import MemoryDisk

from .conftest import CLI, NOW

SESSION = "main/current.jsonl"
INBOX, OUTBOX = "inbox/inbox.jsonl", "outbox/outbox.jsonl"
A_REPLY = Post("k", "hi", "main", CLI)


@pytest.fixture
def disk():
    return MemoryDisk(delay=1)


class Early(NamedTuple):
    """An item whose taker waited before it came, and what its sender will be told."""

    item: Item
    accepting: Answer

    @property
    def n(self):
        return self.item.n


async def taken_early(journal, id="a"):
    waiting = await journal.ref.request(NextItem)
    accepting = await journal.ref.request(*accept(id))
    with trio.fail_after(100):
        return Early(await waiting.get(), accepting)


def accept(id, lane="main"):
    return Accept, InboundMessage("hi", CLI, id), lane


async def test_who_waits_for_the_main_lane_gets_the_item_while_it_is_written(journal, disk, autojump_clock):
    early = await taken_early(journal)
    assert (early.n, early.item.attempt, early.item.message.id) == (1, 1, "a")
    assert disk.content(INBOX) == b""
    assert await early.accepting.get() == Accepted(1, duplicate=False)


async def test_who_gets_it_early_works_on_it_before_the_disk_is_asked(journal, disk, autojump_clock):
    """For one turn of the event loop, in which a model can be asked; whichever of the two tasks comes first in it."""
    for n in range(1, 21):
        waiting = await journal.ref.request(NextItem)
        accepting = await journal.ref.request(*accept(f"m{n}"))
        before = disk.runs
        await waiting.get()
        assert disk.runs == before
        await accepting.get()
        assert disk.runs == before + 1
        await journal.tell(Done(n))
        await trio.sleep(1)


async def test_the_control_lane_waits_for_the_disk(journal, disk, autojump_clock):
    waiting = await journal.ref.request(NextItem, "control")
    accepting = await journal.ref.request(*accept("a", "control"))
    await waiting.get()
    await accepting.get()
    assert b'"id":"a"' in disk.survivor().content(INBOX)


async def test_who_comes_later_gets_the_same_item_once_it_is_written(journal, disk, autojump_clock):
    early = await taken_early(journal)
    again = await journal.ask(NextItem)
    assert (again.n, again.attempt) == (early.n, 2)
    assert b'"id":"a"' in disk.survivor().content(INBOX)


async def test_an_older_item_comes_first(journal, autojump_clock):
    await journal.accept("a")
    await journal.accept("b")
    assert (await journal.ask(NextItem)).n == 1
    await journal.tell(Done(1))
    assert (await journal.ask(NextItem)).n == 2


@pytest.mark.parametrize("operation", range(1, 16))
async def test_what_is_said_about_it_reaches_the_disk_after_it(start, autojump_clock, operation):
    disk = MemoryDisk(delay=1)
    async with start(disk) as journal:
        early = await taken_early(journal)
        commit = await journal.ref.request(Commit, ((SESSION, b"1\n"),), (A_REPLY,), True, early.n)
        disk.lose_power(operation)
        with suppress(ActorError):
            await commit.get()
        left = disk.survivor()
        assert b"\n" in left.content(INBOX) or not (left.content(SESSION) or left.content(OUTBOX))


async def test_an_item_that_the_disk_refuses_is_taken_back(journal, disk, autojump_clock):
    disk.fail(3, times=2)
    early = await taken_early(journal)
    commit = await journal.ref.request(Commit, ((SESSION, b"1\n"),), (A_REPLY,), True, early.n)
    with pytest.raises(StorageError):
        await early.accepting.get()
    with pytest.raises(Revoked):
        await commit.get()
    assert await journal.ask(Waiting) == 0
    assert await journal.ask(ReadFile, SESSION) == b""
    assert await journal.ask(Posted, ("k",)) == (None,)


async def test_all_that_is_said_about_it_is_refused_for_ever_and_done_is_ignored(journal, disk, autojump_clock):
    await journal.append(SESSION, b"0\n")
    disk.fail(3, times=2)
    early = await taken_early(journal)
    for _ in range(2):
        for durable in (True, False):
            with pytest.raises(Revoked):
                await journal.ask(Commit, ((SESSION, b"1\n"),), (), durable, early.n)
        with pytest.raises(Revoked):
            await journal.ask(Archive, SESSION, b"", NOW, early.n)
        await journal.tell(Done(early.n))
        await journal.accept("other")
    assert disk.content(SESSION) == b"0\n"


async def test_it_is_refused_also_while_the_disk_refuses(journal, disk, autojump_clock):
    await journal.append(SESSION, b"0\n")
    disk.files.capacity = 0
    early = await taken_early(journal)
    await journal.append("other", b"owed\n", durable=False)
    with pytest.raises(Revoked):
        await journal.ask(Commit, ((SESSION, b"1\n"),), (), True, early.n)


async def test_its_number_is_not_used_again_and_its_sender_may_try_again(journal, disk, autojump_clock):
    disk.fail(3, times=2)
    early = await taken_early(journal)
    with pytest.raises(StorageError):
        await early.accepting.get()
    assert await journal.accept("a") == Accepted(2, duplicate=False)
    assert (await journal.accept("a")).duplicate
    again = await journal.ask(NextItem)
    assert (early.n, again.n, again.attempt) == (1, 2, 1)
    await journal.ask(Commit, ((SESSION, b"1\n"),), (A_REPLY,), True, again.n)


async def test_one_of_several_that_is_refused_with_the_rest_and_then_written_has_another_number(
    journal, disk, autojump_clock
):
    """The batch is tried one by one when the disk refuses it."""
    waiting = await journal.ref.request(NextItem)
    disk.fail(3)
    answers = []

    async def request(id):
        answers.append(await journal.ref.request(*accept(id)))

    async with trio.open_nursery() as nursery:
        for id in "abc":
            nursery.start_soon(request, id)
    early = await waiting.get()
    assert sorted([(await answer.get()).n for answer in answers]) == [2, 3, 4]
    with pytest.raises(Revoked):
        await journal.ask(Commit, (), (A_REPLY,), True, early.n)
    assert ((await journal.ask(NextItem)).n, early.n) == (2, 1)


async def test_nothing_is_handed_out_early_after_a_refusal_until_a_write_succeeds(journal, disk, autojump_clock):
    disk.fail(3, times=2)
    early = await taken_early(journal)
    again = await taken_early(journal)
    assert b'"id":"a"' in disk.survivor().content(INBOX)
    await journal.tell(Done(again.n))
    early = await taken_early(journal, "b")
    assert early.item.attempt == 1
    assert b'"id":"b"' not in disk.content(INBOX)


async def test_who_has_left_gets_nothing_early(journal, autojump_clock):
    with trio.move_on_after(1):
        await journal.ask(NextItem)
    await journal.accept("a")
    assert (await journal.ask(NextItem)).attempt == 1
