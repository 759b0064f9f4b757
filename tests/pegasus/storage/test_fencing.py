"""Writers that are not the only ones: stale leases, commits that are made twice, and changes decided by what is not there any more."""

from __future__ import annotations

from contextlib import suppress

import pytest
import trio

from pegasus.messages import InboundMessage
from pegasus.storage import (
    Archive,
    Changed,
    Commit,
    CompleteItem,
    Discard,
    Lease,
    LeaseLost,
    LostChats,
    LostLease,
    NextChange,
    NextItem,
    Post,
    Posted,
    PutRows,
    ReadFile,
    ReadRows,
    ReplaceFile,
    ReturnItem,
    StorageError,
    TakeItem,
    TakeLease,
    Waiting,
    chat_owner,
    owner_of,
)
from pegasus.testing.memory_disk import MemoryDisk
from pegasus.wire import encode_json, encode_line

from .conftest import CLI, NOW, WEB, run_journal

SESSION = "sessions/web%3Ac1.jsonl"
OWNER = chat_owner(WEB.address)
ANSWER = Post("k", "Hi", WEB.channel_id, WEB)


async def stale_lease(journal):
    """A lease that somebody else has taken since."""
    await journal.ask(TakeLease, "x")
    old = await journal.ask(TakeLease, OWNER)
    await journal.ask(TakeLease, OWNER)
    return old


# ------------------------------------------------------------------ leases


REFUSED = {
    "lines": lambda reply, old: Commit(reply, ((SESSION, b"late\n"),), (), old),
    "an answer without lines": lambda reply, old: Commit(reply, (), (ANSWER,), old),
    "lines of several owners": lambda reply, old: Commit(reply, ((SESSION, b"late\n"),), leases=(Lease("x", 1), old)),
    "a file": lambda reply, old: ReplaceFile(reply, SESSION, b"late\n", old),
    "an archive": lambda reply, old: Archive(reply, SESSION, b"late\n", NOW, lease=old),
    "taking an item": lambda reply, old: TakeItem(reply, 1, lease=old),
    "discarding": lambda reply, old: Discard(reply, InboundMessage("r", WEB, "r"), 9, 9, 2, owner=True, lease=old),
}


@pytest.mark.parametrize("request_of", REFUSED.values(), ids=REFUSED)
async def test_a_request_with_a_lease_that_is_lost_has_no_effect(journal, request_of):
    await journal.accept("a", channel=WEB)
    await journal.append(SESSION, b"1\n")
    old = await stale_lease(journal)
    with pytest.raises(LeaseLost, match="chat/web%3Ac1"):
        await journal.ask(lambda reply: request_of(reply, old))
    assert await journal.ask(ReadFile, SESSION) == b"1\n"
    assert await journal.ask(Posted, ("k",)) == (None,)
    assert (await journal.ask(NextItem)).attempt == 1, "it was neither taken nor discarded"


async def test_a_note_with_a_lease_that_is_lost_has_no_effect(journal):
    await journal.accept("a", channel=WEB)
    old = await stale_lease(journal)
    item = await journal.ask(NextItem)
    await journal.tell(ReturnItem(item.n, old))
    await journal.tell(CompleteItem(item.n, old))
    assert await journal.ask(Waiting) == 1
    assert (await journal.ask(NextItem)).attempt == 2, "it was not given back"


async def test_the_newest_lease_lets_everything_through(journal):
    for id in ("a", "b", "c"):
        await journal.accept(id, channel=WEB)
    await stale_lease(journal)
    lease = await journal.ask(TakeLease, OWNER)
    for request_of in REFUSED.values():
        await journal.ask(lambda reply, make=request_of: make(reply, lease))
    await journal.tell(CompleteItem(1, lease))
    assert await journal.ask(Waiting) == 1, "a is done, and the report is there instead of b and c"


@pytest.mark.parametrize(
    ("path", "owner"),
    [
        ("main/current.jsonl", "main"),
        ("main/2026-02-25-143000.jsonl", "main"),
        ("main/names.json", "rows/conversation-names"),
        (SESSION, "chat/web%3Ac1"),
        ("sessions/web%3Ac1.2026-02-25-143000-2.jsonl", "chat/web%3Ac1"),
        ("tasks/index.jsonl", "tasks"),
        ("tasks/2026-02-25/20260225-abc.jsonl", "task/20260225-abc"),
        ("usage/2026-02.jsonl", "rows/usage/2026-02"),
        ("approvals.jsonl", "rows/approvals"),
        ("channels/telegram.jsonl", "channel/telegram"),
        ("memory/changes.jsonl", "memory"),
        ("guests/telegram%3A7/memory/changes.jsonl", "memory/telegram%3A7"),
        ("guests/telegram%3A7/sent.json", "rows/guest-files/telegram%3A7"),
        ("media/ab.png", "file/media/ab.png"),
    ],
)
def test_each_file_has_an_owner(path, owner):
    assert owner_of(path) == owner


# ------------------------------------------------------------------ commits that name the lines they were decided by


async def test_a_commit_that_is_repeated_appends_and_posts_once(journal):
    commit = (Commit, ((SESSION, b"1\n2\n"), ("other.jsonl", b"x\n")), (ANSWER,), None, (), 0)
    first = await journal.ask(*commit)
    assert await journal.ask(*commit) == first
    assert await journal.ask(ReadFile, SESSION) == b"1\n2\n"
    assert await journal.ask(ReadFile, "other.jsonl") == b"x\n"
    await journal.ask(Commit, ((SESSION, b"3\n"),), (), None, (), 2)
    assert await journal.ask(*commit) == first, "others may stand behind it"


async def test_repeated_commits_of_one_batch_append_once(journal):
    results = []

    async def commit():
        results.append(await journal.ask(Commit, ((SESSION, b"1\n"),), (ANSWER,), None, (), 0))

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(commit)
    assert {reply.seq for [reply] in results} == {1}
    assert await journal.ask(ReadFile, SESSION) == b"1\n"


@pytest.mark.parametrize("after", [0, 1, 3])
async def test_a_commit_that_was_decided_by_other_lines_fails(journal, after):
    await journal.append(SESSION, b"1\n2\n")
    with pytest.raises(Changed, match="2 lines"):
        await journal.ask(Commit, ((SESSION, b"new\n"),), (ANSWER,), None, (), after)
    assert await journal.ask(ReadFile, SESSION) == b"1\n2\n"
    assert await journal.ask(Posted, ("k",)) == (None,)
    await journal.ask(Commit, ((SESSION, b"3\n"),), (), None, (), 2)


async def test_lines_are_counted_again_when_the_file_was_replaced(journal):
    await journal.ask(Commit, ((SESSION, b"1\n2\n"),), (), None, (), 0)
    await journal.append(SESSION, b"3\n")
    await journal.ask(Commit, ((SESSION, b"4\n"),), (), None, (), 3)
    await journal.ask(ReplaceFile, SESSION, b"1\n")
    await journal.ask(Commit, ((SESSION, b"2\n"),), (), None, (), 1)
    await journal.ask(Archive, SESSION, b"", NOW)
    await journal.ask(Commit, ((SESSION, b"1\n"),), (), None, (), 0)


async def test_a_number_of_lines_is_kept_for_the_batch_that_needs_it(monkeypatch):
    monkeypatch.setattr("pegasus.storage.journal.KEPT_COUNTS", 1)
    other = "sessions/web%3Ac2.jsonl"
    async with run_journal(MemoryDisk()) as journal:
        await journal.ask(Commit, ((SESSION, b"1\n"),), (), None, (), 0)
        async with trio.open_nursery() as nursery:
            for path, after in ((other, 0), (SESSION, 1)):
                nursery.start_soon(journal.ask, Commit, ((path, b"2\n"),), (), None, (), after)


@pytest.mark.parametrize("operation", range(1, 6))
async def test_a_commit_that_the_disk_refused_may_be_made_again(operation):
    disk = MemoryDisk()
    async with run_journal(disk) as journal:
        await journal.ask(Commit, ((SESSION, b"1\n"),), (), None, (), 0)
        commit = (Commit, ((SESSION, b"2\n"),), (ANSWER,), None, (), 1)
        disk.fail(operation)
        with pytest.raises(StorageError):
            await journal.ask(*commit)
        [reply] = await journal.ask(*commit)
        assert reply.seq == 1
    assert disk.content(SESSION) == b"1\n2\n"


async def test_the_lines_of_a_journal_before_count():
    disk = MemoryDisk()
    commit = (Commit, ((SESSION, b"1\n"),), (ANSWER,), None, (), 0)
    async with run_journal(disk) as journal:
        [first] = await journal.ask(*commit)
    async with run_journal(disk) as journal:
        [again] = await journal.ask(*commit)
        assert again.seq == first.seq
        await journal.ask(Commit, ((SESSION, b"2\n"),), (), None, (), 1)
    assert disk.content(SESSION) == b"1\n2\n"


async def test_a_commit_whose_asker_was_cancelled_is_made_once(autojump_clock):
    disk = MemoryDisk(delay=1.0)
    commit = (Commit, ((SESSION, b"1\n"),), (ANSWER,), None, (), 0)
    async with run_journal(disk) as journal:
        with trio.move_on_after(1.5):
            await journal.ask(*commit)
        [reply] = await journal.ask(*commit)
        assert reply.seq == 1
        assert (await journal.post("next", WEB)).seq == 2
    assert disk.content(SESSION) == b"1\n"


async def test_a_commit_that_a_power_failure_has_cut_off_is_made_once():
    """At each operation: the next journal answers the same commit as done, or makes what is missing of it."""
    commit = (Commit, ((SESSION, b"2\n"),), (ANSWER,), None, (), 1)
    for operation in range(1, 12):
        disk = MemoryDisk()
        async with run_journal(disk) as journal:
            await journal.append(SESSION, b"1\n")
        disk.lose_power(operation)
        with suppress(Exception):
            async with run_journal(disk) as journal:
                await journal.ask(*commit)
        left = disk.survivor()
        async with run_journal(left) as journal:
            [reply] = await journal.ask(*commit)
            assert reply.seq == 1
            assert (await journal.post("next", WEB)).seq == 2
        assert left.content(SESSION) == b"1\n2\n"


# ------------------------------------------------------------------ collections


async def test_rows_that_somebody_else_has_changed_are_not_overwritten(journal):
    stored = await journal.ask(ReadRows, "model-choices")
    assert stored.content == b""

    async def put(rows, version):
        content = encode_line(rows)
        texts = {key: encode_json(row) for key, row in rows.items()}
        return await journal.ask(PutRows, "model-choices", "", texts, frozenset(), lambda: content, version)

    newer = await put({"a": "x"}, stored.version)
    assert newer > stored.version
    with pytest.raises(Changed, match=r"models/chats\.json"):
        await put({"b": "y"}, stored.version)
    read = await journal.ask(ReadRows, "model-choices")
    assert (read.content, read.version) == (b'{"a":"x"}\n', newer)


async def test_a_collection_that_does_not_exist_is_refused(journal):
    with pytest.raises(ValueError, match="no collection"):
        await journal.ask(ReadRows, "nothing")
    with pytest.raises(ValueError, match="no path"):
        await journal.ask(ReadRows, "guest-files", "../..")


async def test_with_files_questions_about_others_wait_for_ever(journal, disk, autojump_clock):
    lost = LostLease, await journal.ask(TakeLease, OWNER)
    for question in ((LostChats, {CLI.address: Lease("chat/cli%3Amain", 1)}), lost, (NextChange, "tokens", "", 0)):
        with trio.move_on_after(86_400) as scope:
            await journal.ask(*question)
        assert scope.cancelled_caught
