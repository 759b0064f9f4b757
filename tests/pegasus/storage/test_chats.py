"""Items by their address, for one taker per chat; and leases, which keep a session from having two writers."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from pegasus.storage.inbox_messages import CompleteItem, NextChat, NextItem, Waiting
from pegasus.storage.leases import Lease, LeaseLost, TakeLease
from pegasus.storage.messages import (
    Archive,
    ArchiveName,
    Commit,
    Post,
    ReadFile,
    ReplaceFile,
    StorageError,
)

from .conftest import CLI, NOW, WEB

SESSION = "sessions/web%3Ac1.jsonl"
OWNER = "chat/web%3Ac1"


async def taken(journal, channel, lane="main"):
    item = await journal.ask(NextItem, lane, channel.address)
    return item.message.id, item.attempt


# ------------------------------------------------------------------ items of one chat


async def test_each_chat_takes_its_own_items_side_by_side(journal):
    for id, channel in zip("abcd", (CLI, WEB, CLI, WEB), strict=True):
        await journal.accept(id, channel=channel)
    assert [await taken(journal, WEB), await taken(journal, CLI)] == [("b", 1), ("a", 1)]
    await journal.tell(CompleteItem(2))
    assert [await taken(journal, WEB), await taken(journal, CLI)] == [("d", 1), ("a", 2)]


async def test_a_taker_of_one_chat_waits_for_its_own_items_only(journal):
    found = []

    async def wait_for(channel):
        found.append(await taken(journal, channel))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait_for, WEB)
        nursery.start_soon(wait_for, CLI)
        await journal.accept("a", channel=CLI)
        await wait_all_tasks_blocked()
        assert found == [("a", 1)]
        await journal.accept("b", channel=WEB)
    assert found == [("a", 1), ("b", 1)]


async def test_within_a_chat_the_order_of_the_lane_applies(journal):
    for id, priority in zip("abc", (2, 0, 1), strict=True):
        await journal.accept(id, priority=priority)
    await journal.accept("x", channel=WEB)
    order = []
    while await journal.ask(Waiting, CLI.address):
        item = await journal.ask(NextItem, "main", CLI.address)
        order.append(item.message.id)
        await journal.tell(CompleteItem(item.n))
    assert order == ["b", "c", "a"]


async def test_a_second_taker_of_a_chat_takes_over_and_disturbs_no_other_chat(journal):
    async with trio.open_nursery() as nursery:

        async def take(channel, expected):
            assert await taken(journal, channel) == expected

        async def replaced():
            with pytest.raises(StorageError, match="another NextItem"):
                await taken(journal, CLI)

        nursery.start_soon(replaced)
        nursery.start_soon(take, WEB, ("b", 1))
        await wait_all_tasks_blocked()
        nursery.start_soon(take, CLI, ("a", 1))
        await wait_all_tasks_blocked()
        await journal.accept("a", channel=CLI)
        await journal.accept("b", channel=WEB)


# ------------------------------------------------------------------ which chat is next


async def test_the_chat_that_waits_longest_is_next_and_commands_go_first(journal):
    await journal.accept("a", channel=CLI)
    await journal.accept("b", channel=WEB)
    assert await journal.ask(NextChat) == CLI.address
    assert await journal.ask(NextChat, frozenset({CLI.address})) == WEB.address
    await journal.accept("c", "/stop", channel=WEB, lane="control")
    assert await journal.ask(NextChat) == WEB.address
    assert await journal.ask(NextChat, frozenset(), ("main",)) == CLI.address


async def test_who_asks_for_the_next_chat_waits_until_there_is_one(journal):
    await journal.accept("a", channel=CLI)
    found = []

    async def wait():
        found.append(await journal.ask(NextChat, frozenset({CLI.address})))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await journal.accept("b", channel=CLI)
        await wait_all_tasks_blocked()
        assert found == []
        await journal.accept("c", channel=WEB)
    assert found == [WEB.address]


async def test_asking_for_the_next_chat_hands_out_nothing(journal):
    await journal.accept("a", channel=CLI)
    assert await journal.ask(NextChat) == CLI.address
    assert await taken(journal, CLI) == ("a", 1)


# ------------------------------------------------------------------ leases


async def test_who_has_lost_the_lease_of_a_session_writes_nothing_more(journal):
    old = await journal.ask(TakeLease, OWNER)
    await journal.ask(Commit, ((SESSION, b"1\n"),), (), old)
    new = await journal.ask(TakeLease, OWNER)
    assert new.token > old.token
    for change in (
        lambda reply: Commit(reply, ((SESSION, b"2\n"),), (Post("k", "late", WEB.channel_id, WEB),), old),
        lambda reply: ReplaceFile(reply, SESSION, b"2\n", old),
        lambda reply: Archive(reply, SESSION, b"2\n", NOW, lease=old),
    ):
        with pytest.raises(LeaseLost, match="chat/web%3Ac1"):
            await journal.ask(change)
    await journal.ask(Commit, ((SESSION, b"3\n"),), (), new)
    assert await journal.ask(ReadFile, SESSION) == b"1\n3\n"
    assert (await journal.post("k", WEB)).seq == 1, "the late reply was not posted"


async def test_a_lost_lease_fails_nobody_else_of_the_batch(journal):
    old = await journal.ask(TakeLease, OWNER)
    await journal.ask(TakeLease, OWNER)
    failures = []

    async def late():
        try:
            await journal.ask(Commit, ((SESSION, b"late\n"),), (), old)
        except LeaseLost as error:
            failures.append(error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(late)
        nursery.start_soon(journal.append, "other.jsonl", b"fine\n")
    assert len(failures) == 1
    assert await journal.ask(ReadFile, "other.jsonl") == b"fine\n"


async def test_leases_of_different_owners_are_independent(journal):
    one, two = await journal.ask(TakeLease, "chat/web:a"), await journal.ask(TakeLease, "chat/web:b")
    assert (one, two) == (Lease("chat/web:a", 1), Lease("chat/web:b", 1))
    await journal.ask(Commit, (("a.jsonl", b"1\n"),), (), one)


# ------------------------------------------------------------------ archives in a folder of many sessions


async def test_the_archives_of_one_folder_are_told_apart_by_a_prefix(journal, disk):
    for path in (SESSION, "sessions/web%3Ac2.jsonl"):
        prefix = path.split("/")[1].removesuffix("jsonl")
        await journal.append(path, path.encode() + b"\n")
        assert (
            await journal.ask(lambda reply, p=path, x=prefix: ArchiveName(reply, p, NOW, x))
            == "2026-02-25-143000.jsonl"
        )
        name = await journal.ask(
            lambda reply, p=path, x=prefix: Archive(reply, p, b"new\n", NOW, "2026-02-25-143000.jsonl", x)
        )
        assert name == "2026-02-25-143000.jsonl"
        assert disk.content(f"sessions/{prefix}{name}") == path.encode() + b"\n"
        assert await journal.ask(ReadFile, path) == b"new\n"
