"""Whose turn it is, as the Main Agent asks for it: by priority, the one it was at, and several at a time."""

from __future__ import annotations

import errno

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from pegasus.messages import Address, InboundMessage
from pegasus.storage.inbox_messages import (
    Accept,
    CompleteItem,
    LaneDone,
    NextItem,
    NextItemOfAddress,
    TakeItem,
    Waiting,
)
from pegasus.storage.messages import StorageError
from pegasus.storage.volume import Volume
from pegasus.testing.memory_disk import MemoryDisk

from .conftest import CLI, WEB

INBOX = "inbox/inbox.jsonl"


async def taken(journal):
    item = await journal.ask(NextItem)
    return item.message.id, item.attempt


async def newer(journal, channel=CLI, after=0):
    item = await journal.ask(NextItemOfAddress, channel.address, after)
    return item and item.message.id


# ------------------------------------------------------------------ priorities


async def test_items_are_handed_out_by_priority_and_age(journal):
    for id, priority in zip("abcde", (2, 0, 1, 0, 2), strict=True):
        await journal.accept(id, priority=priority)
    order = []
    while await journal.ask(Waiting):
        item = await journal.ask(NextItem)
        order.append((item.message.id, item.priority))
        await journal.tell(CompleteItem(item.n))
    assert order == [("b", 0), ("d", 0), ("c", 1), ("a", 2), ("e", 2)]


async def test_the_item_at_hand_stays_the_item_at_hand(journal):
    """More urgent ones do not push it aside while it is not done: its taker has crashed, and takes it up again."""
    await journal.accept("a", priority=2)
    assert await taken(journal) == ("a", 1)
    await journal.accept("b")
    assert await taken(journal) == ("a", 2)


async def test_what_is_no_priority_is_refused(journal):
    with pytest.raises(ValueError, match="priority"):
        await journal.accept("a", priority=10)
    assert await journal.ask(Waiting) == 0


# ------------------------------------------------------------------ several at a time


async def test_what_else_an_address_has_to_say_is_shown_oldest_first(journal):
    for id, channel in zip("abcd", (CLI, WEB, CLI, CLI), strict=True):
        await journal.accept(id, channel=channel)
    assert await taken(journal) == ("a", 1)
    assert [await newer(journal), await newer(journal), await newer(journal, after=3)] == ["c", "c", "d"]
    assert [await newer(journal, WEB), await newer(journal, after=4)] == ["b", None]


async def test_what_is_shown_stays_in_the_queue(journal):
    await journal.accept("a", priority=1)
    item = await journal.ask(NextItemOfAddress, CLI.address)
    assert (item.n, item.attempt, item.priority) == (1, 0, 1)
    assert await taken(journal) == ("a", 1)


async def test_commands_that_pass_the_queue_are_not_shown(journal):
    await journal.accept("/stop", lane="control")
    assert await newer(journal) is None
    assert await journal.ask(TakeItem, 1) is None


async def test_what_was_taken_is_not_shown_and_comes_again_until_it_is_done(journal):
    for id in "abc":
        await journal.accept(id)
    assert await taken(journal) == ("a", 1)
    taken_too = await journal.ask(TakeItem, 2)
    assert (taken_too.message.id, taken_too.attempt) == ("b", 1)
    assert await newer(journal) == "c"
    await journal.tell(CompleteItem(1))
    assert await taken(journal) == ("b", 2)
    await journal.tell(CompleteItem(2))
    assert await taken(journal) == ("c", 1)


async def test_an_item_can_be_taken_again(journal):
    """The answer may have been lost with whoever asked."""
    await journal.accept("a")
    assert [(await journal.ask(TakeItem, 1)).attempt for _ in range(2)] == [1, 2]


async def test_what_is_done_or_never_was_cannot_be_taken(journal):
    await journal.accept("a")
    await journal.tell(CompleteItem(1))
    assert [await journal.ask(TakeItem, n) for n in (1, 2)] == [None, None]


async def test_who_waits_for_an_address_is_told_when_something_comes_from_it(journal):
    answer = await journal.ref.request(NextItemOfAddress, CLI.address, 0, True)
    await journal.accept("a", channel=WEB)
    await wait_all_tasks_blocked()
    assert await newer(journal) is None
    await journal.accept("b")
    assert (await answer.get()).message.id == "b"


async def test_any_number_may_wait(journal):
    answers = [await journal.ref.request(NextItemOfAddress, CLI.address, 0, True) for _ in range(3)]
    answers.append(await journal.ref.request(NextItemOfAddress, WEB.address, 0, True))
    await journal.accept("a")
    await journal.accept("b", channel=WEB)
    assert [(await answer.get()).message.id for answer in answers] == ["a", "a", "a", "b"]


async def test_who_waits_for_a_lane_is_told_when_nothing_of_it_is_left_to_do(journal, autojump_clock):
    await journal.ask(LaneDone, "control")
    await journal.accept("a", lane="control")
    await journal.accept("b", lane="control")
    await journal.accept("c")
    answers = [await journal.ref.request(LaneDone, "control") for _ in range(2)]
    assert (await journal.ask(NextItem, "control")).message.id == "a"
    await journal.tell(CompleteItem(1))
    with trio.move_on_after(1) as waiting:
        await answers[0].get()
    assert waiting.cancelled_caught  # "b" waits
    await journal.tell(CompleteItem(2))
    with trio.fail_after(1):
        assert [await answer.get() for answer in answers] == [None, None]


async def test_who_has_left_is_forgotten(journal, autojump_clock):
    for _ in range(3):
        with trio.move_on_after(1):
            await journal.ask(NextItemOfAddress, CLI.address, 0, True)
    await journal.accept("a")
    assert await newer(journal) == "a"


async def test_what_is_shown_is_on_disk(start, autojump_clock):
    disk = MemoryDisk(delay=1)
    async with start(disk) as journal:
        answer = await journal.ref.request(NextItemOfAddress, CLI.address, 0, True)
        await journal.accept("a")
        assert (await answer.get()).n == 1
        assert b'"id":"a"' in disk.survivor().content(INBOX)


async def test_what_the_disk_refuses_is_not_shown(journal, disk):
    answer = await journal.ref.request(NextItemOfAddress, CLI.address, 0, True)
    disk.fail(1, errno.ENOSPC, 1)
    with pytest.raises(StorageError):
        await journal.accept("a")
    await journal.accept("b")
    assert (await answer.get()).message.id == "b"


@pytest.mark.parametrize("lane", ["main", "control"])
async def test_an_item_is_handed_out_only_when_it_is_on_disk(start, autojump_clock, lane):
    disk = MemoryDisk(delay=1)
    async with start(disk) as journal:
        waiting = await journal.ref.request(NextItem, lane)
        accepting = await journal.ref.request(Accept, InboundMessage("hi", CLI, "a"), lane)
        assert (await waiting.get()).attempt == 1
        assert b'"id":"a"' in disk.survivor().content(INBOX)
        await accepting.get()


async def test_an_item_that_the_disk_refuses_is_not_handed_out(journal, disk):
    waiting = await journal.ref.request(NextItem)
    disk.fail(1, errno.ENOSPC, 1)
    with pytest.raises(StorageError):
        await journal.accept("a")
    await journal.accept("b")
    assert (await waiting.get()).message.id == "b"


# ------------------------------------------------------------------ read back


async def test_items_from_before_are_shown_and_taken_from_the_file(start, disk):
    async with start(disk) as journal:
        await journal.accept("a", priority=1)
    async with start(disk) as journal:
        assert await newer(journal) == "a"
        item = await journal.ask(TakeItem, 1)
        assert (item.message.id, item.priority) == ("a", 1)


async def test_an_item_that_cannot_be_read_back_is_passed_over(start, disk):
    async with start(disk) as journal:
        for id in "abc":
            await journal.accept(id)
    async with start(disk) as journal:
        content = disk.content(INBOX)
        length = len(content) // 3
        disk.put(INBOX, b"x" * length + content[length : 2 * length] + b"x" * length)
        assert await newer(journal) == "b"
        assert [await journal.ask(TakeItem, n) for n in (1, 3)] == [None, None]
        assert await taken(journal) == ("b", 1)
        assert len(journal.reports) == 2


@pytest.mark.parametrize("question", [(NextItemOfAddress, Address("cli", "main")), (TakeItem, 1), (NextItem,)])
async def test_a_disk_that_cannot_be_read_fails_the_asker_and_nothing_else(start, disk, question, monkeypatch):
    async with start(disk) as journal:
        await journal.accept("a")
    async with start(disk) as journal:
        with monkeypatch.context() as patched:
            patched.setattr(Volume, "read_spans", _fails)
            with pytest.raises(StorageError):
                await journal.ask(*question)
        assert await taken(journal) == ("a", 1)


def _fails(*_):
    raise StorageError("the disk cannot be read")
