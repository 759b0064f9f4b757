"""A reply carries what its session has not synced: one sync for both, and a start that puts right what a crash has lost."""

from __future__ import annotations

import errno
import json
from contextlib import suppress

import pytest
import trio

from actors import ActorError, GaveUp
from pegasus.storage import compaction
from pegasus.storage.messages import Acknowledge, Archive, Commit, Post, Posted, ReadFile, ReplaceFile, StorageError
from pegasus.storage.redo import CARRIED_BYTES, SETTLED, Run, Tail, run_in, together, with_redo
from pegasus.testing.memory_disk import MemoryDisk

from .conftest import CLI, NOW, WEB

SESSION, OTHER = "main/current.jsonl", "tasks/t.jsonl"
OUTBOX = "outbox/outbox.jsonl"


@pytest.fixture
async def journal(start, disk):
    """A journal that has appended to the session before, as one has that runs for a while."""
    async with start(disk) as running:
        await running.post("k0", appends=((SESSION, b"0\n"),))
        yield running


def carried(disk):
    """What the lines of the outbox carry."""
    records = [json.loads(line) for line in disk.content(OUTBOX).splitlines()]
    return [(r["redo"]["path"], r["redo"]["offset"], r["redo"]["data"]) for r in records if "redo" in r]


async def after_a_crash(start, disk, **torn):
    """The session as the next process finds it, what it reports, and the outbox."""
    left = disk.survivor(**torn)
    async with start(left) as again:
        content = await again.ask(ReadFile, SESSION)
        assert (await again.ask(Posted, ("k1",)))[0] is not None
    return content, again.reports


# ------------------------------------------------------------------ one sync


async def test_a_reply_with_its_session_costs_one_sync_and_one_hop(journal, disk):
    before, runs = disk.fsyncs, disk.runs
    await journal.post("k1", appends=((SESSION, b"1\n"),))
    assert (disk.fsyncs - before, disk.runs - runs) == (1, 1)
    assert disk.content(SESSION) == b"0\n1\n"
    assert disk.survivor().content(SESSION) == b"0\n"
    assert carried(disk.survivor()) == [(SESSION, 2, "1\n")]


async def test_a_file_that_this_process_has_not_synced_yet_is_synced(start, disk):
    disk.put(SESSION, b"0\n")
    async with start(disk) as journal:
        await journal.post("k1", appends=((SESSION, b"1\n"),))
        assert disk.survivor().content(SESSION) == b"0\n1\n"
        assert carried(disk) == []


async def test_what_was_not_synced_before_is_carried_too(start, journal, disk, autojump_clock):
    """The user's line, which nobody waited for, written by a flush or with the reply."""
    await journal.append(SESSION, b"flushed\n", durable=False)
    await trio.sleep(1)
    assert disk.content(SESSION) == b"0\nflushed\n"
    await journal.append(SESSION, b"owed\n", durable=False)
    await journal.post("k1", appends=((SESSION, b"1\n"),))
    assert carried(disk) == [(SESSION, 2, "flushed\nowed\n1\n")]
    assert (await after_a_crash(start, disk))[0] == b"0\nflushed\nowed\n1\n"


async def test_one_after_another_carries_what_is_new_only(start, journal, disk):
    for n in (1, 2, 3):
        await journal.append(SESSION, b"result\n", durable=False)
        await journal.post(f"k{n}", appends=((SESSION, b"%d\n" % n),))
    assert [data for _, _, data in carried(disk)] == ["result\n1\n", "result\n2\n", "result\n3\n"]
    assert (await after_a_crash(start, disk))[0] == b"0\nresult\n1\nresult\n2\nresult\n3\n"


@pytest.mark.parametrize(
    ("appends", "posts"),
    [
        (((SESSION, b"1\n"),), 2),
        (((SESSION, b"1\n"), (OTHER, b"2\n")), 1),
        (((SESSION, b"\xff\n"),), 1),
        (((SESSION, b"x" * CARRIED_BYTES + b"\n"),), 1),
    ],
    ids=["several replies", "several files", "no text", "too much"],
)
async def test_what_one_line_cannot_carry_is_synced_first(journal, disk, appends, posts):
    await journal.append(OTHER, b"0\n")
    before = disk.fsyncs
    await journal.ask(Commit, appends, tuple(Post(f"k{n}", "hi", "main", CLI) for n in range(1, posts + 1)))
    assert disk.fsyncs - before == len(appends) + 1
    for path, data in appends:
        assert disk.survivor().content(path) == b"0\n" + data
    assert carried(disk) == []


async def test_an_append_without_a_reply_is_synced_itself(journal, disk):
    await journal.append(SESSION, b"1\n")
    assert disk.survivor().content(SESSION) == b"0\n1\n"


async def test_a_file_that_somebody_has_changed_under_us_is_synced(start, journal, disk):
    await journal.post("k1", appends=((SESSION, b"1\n"),))
    disk.put(SESSION, b"mine\n")
    await journal.post("k2", appends=((SESSION, b"2\n"),))
    assert disk.survivor().content(SESSION) == b"mine\n2\n"


async def test_a_reply_that_carries_is_read_back(start, journal, disk, autojump_clock):
    await journal.post("k1", text="words", appends=((SESSION, b"1\n"),))
    await trio.sleep(1)
    async with start(disk.survivor()) as again:
        [message] = await again.ask(Posted, ("k1",))
        assert (message.text, message.seq) == ("words", 2)


# ------------------------------------------------------------------ settling


async def test_it_is_settled_within_50_ms_and_then_nothing_is_scheduled(journal, disk, autojump_clock):
    await journal.post("k1", appends=((SESSION, b"1\n"),))
    await trio.sleep(0.06)
    assert disk.survivor().content(SESSION) == b"0\n1\n"
    assert disk.content(OUTBOX).endswith(SETTLED)
    before = disk.operations
    await trio.sleep(10)
    assert disk.operations == before


async def test_a_line_after_settling_begins_anew(start, journal, disk, autojump_clock):
    for n in (1, 2):
        await journal.post(f"k{n}", appends=((SESSION, b"%d\n" % n),))
        await trio.sleep(1)
    await journal.post("k3", appends=((SESSION, b"3\n"),))
    assert carried(disk) == [(SESSION, 2, "1\n"), (SESSION, 4, "2\n"), (SESSION, 6, "3\n")]
    content, reports = await after_a_crash(start, disk)
    assert content == b"0\n1\n2\n3\n"
    assert reports == [f"{SESSION}, from byte 6 on: 2 bytes were missing, and were written from the outbox"]


@pytest.mark.parametrize("pause", [0, 1])
@pytest.mark.parametrize("edited", [b"", b"0\n", b"mine\n", b"0\n1\nmine\n", b"0\n1 mine\n"])
async def test_a_file_that_was_edited_while_the_daemon_was_down_is_left_alone(
    start, disk, autojump_clock, edited, pause
):
    """Also if the power fails before it starts again: that all is settled was durable when it stopped."""
    async with start(disk) as journal:
        await journal.post("k0", appends=((SESSION, b"0\n"),))
        await journal.post("k1", appends=((SESSION, b"1\n"),))
        await trio.sleep(pause)
    disk = disk.survivor()
    assert disk.content(SESSION) == b"0\n1\n"
    disk.put(SESSION, edited)
    assert await after_a_crash(start, disk) == (edited, [])


@pytest.mark.parametrize("pause", [0, 1])
async def test_a_replaced_file_is_not_redone(start, journal, disk, autojump_clock, pause):
    await journal.post("k1", appends=((SESSION, b"1\n"),))
    await trio.sleep(pause)
    await journal.ask(ReplaceFile, SESSION, b"a\nb\n")
    assert await after_a_crash(start, disk) == (b"a\nb\n", [])


@pytest.mark.parametrize("pause", [0, 1])
async def test_an_archived_file_is_whole_and_the_new_one_is_not_redone(start, journal, disk, autojump_clock, pause):
    await journal.post("k1", appends=((SESSION, b"1\n"),))
    await trio.sleep(pause)
    name = await journal.ask(Archive, SESSION, b"fresh\n", NOW)
    assert disk.survivor().content(f"main/{name}") == b"0\n1\n"
    assert await after_a_crash(start, disk) == (b"fresh\n", [])


@pytest.mark.parametrize("operation", range(1, 12))
@pytest.mark.parametrize("what", ["replace", "archive"])
async def test_the_power_fails_in_a_replacement(start, disk, what, operation):
    """What was promised is in the old file, in its archive, or replaced by who knew it; never gone."""
    async with start(disk) as journal:
        await journal.post("k0", appends=((SESSION, b"0\n"),))
        await journal.post("k1", appends=((SESSION, b"1\n"),))
        disk.lose_power(operation)
        ask = (ReplaceFile, SESSION, b"0\n1\nnew\n") if what == "replace" else (Archive, SESSION, b"new\n", NOW)
        with suppress(ActorError):
            await journal.ask(*ask)
    left = disk.survivor()
    content, _ = await after_a_crash(start, left)
    archives = b"".join(left.content(path) for path in left.paths() if path.startswith("main/2"))
    assert archives + content in (b"0\n1\n", b"0\n1\nnew\n")


async def test_when_the_outbox_is_rewritten_what_it_carried_is_on_disk(start, disk, monkeypatch):
    monkeypatch.setattr(compaction, "SMALL", 600)
    async with start(disk) as journal:
        for n in range(30):
            await journal.post(f"k{n}", appends=((SESSION, b"%d\n" % n),))
            await journal.tell(Acknowledge(CLI.address, n + 1))
            if n:
                assert (await after_a_crash(start, disk))[0] == disk.content(SESSION)
        assert len(disk.content(OUTBOX)) < 3_000


async def test_a_rewritten_outbox_asks_for_nothing_that_is_done(start, disk, monkeypatch):
    """A reply that nobody has acknowledged is copied with what it carried, which may be out of date by now."""
    async with start(disk) as journal:
        await journal.post("k0", appends=((SESSION, b"0\n"),))
        await journal.post("k1", appends=((SESSION, b"1\n"),))
        await journal.ask(ReplaceFile, SESSION, b"mine\n")
        for n in range(40):
            await journal.post(f"other{n}", WEB)
        await journal.tell(Acknowledge(WEB.address, 40))
        monkeypatch.setattr(compaction, "SMALL", 100)
        await journal.post("last")
        assert await journal.ask(Posted, ("none",)) == (None,)  # it is rewritten by then
        assert b'"key":"other1"' not in disk.content(OUTBOX)
        assert carried(disk) == [(SESSION, 2, "1\n")]
        assert await after_a_crash(start, disk) == (b"mine\n", [])


# ------------------------------------------------------------------ the next start


async def test_what_a_power_failure_took_from_the_session_is_written_anew_and_told(start, journal, disk):
    await journal.post("k1", appends=((SESSION, b"one\n"),))
    await journal.append(SESSION, b"result\n", durable=False)
    await journal.post("k2", appends=((SESSION, b"two\n"),))
    for torn in (0, 1, 6, 14):
        content, [report] = await after_a_crash(start, disk, torn_bytes=torn)
        assert content == b"0\none\nresult\ntwo\n"
        assert report == f"{SESSION}, from byte 2 on: 15 bytes were missing, and were written from the outbox"


async def test_garbage_in_its_place_is_replaced_and_a_copy_kept(start, disk):
    for garbage, copies in ((b"\0" * 40, 0), (b"on\0\0\0\0\0", 0), (b"garbage\n", 1)):
        disk = MemoryDisk()
        async with start(disk) as journal:
            await journal.post("k0", appends=((SESSION, b"0\n"),))
            await journal.post("k1", appends=((SESSION, b"one\n"),))
            left = disk.survivor()
        left.put(SESSION, b"0\n" + garbage)
        content, [report] = await after_a_crash(start, left)
        assert content == b"0\none\n"
        async with start(left):
            pass
        kept = [path for path in left.paths() if ".torn" in path]
        assert [left.content(path) for path in kept] == [garbage] * copies
        assert ("what was there instead is in main/current.jsonl.torn-1" in report) == bool(copies)


async def test_a_session_that_has_more_than_was_carried_keeps_it(start, journal, disk):
    await journal.post("k1", appends=((SESSION, b"1\n"),))
    await journal.append(SESSION, b"2\n")
    assert await after_a_crash(start, disk) == (b"0\n1\n2\n", [])


async def test_a_session_that_was_removed_after_a_crash_is_left_alone_and_told(start, journal, disk):
    await journal.post("k1", appends=((SESSION, b"1\n"),))
    left = disk.survivor()
    left.put(SESSION, b"")
    content, [report] = await after_a_crash(start, left)
    assert content == b""
    assert report == f"{SESSION} has 0 bytes, and had 2 when replies were kept; it is left as it is"


async def test_it_is_redone_once(start, journal, disk):
    """The next start but one knows that it is done, whatever has become of the file since."""
    await journal.post("k1", appends=((SESSION, b"1\n"),))
    left = disk.survivor()
    async with start(left) as again:
        assert len(again.reports) == 1
        await again.accept("a")
    left = left.survivor()
    assert left.content(SESSION) == b"0\n1\n"
    left.put(SESSION, b"mine\n")
    assert await after_a_crash(start, left) == (b"mine\n", [])


async def test_the_power_fails_again_while_it_is_redone(start, journal, disk):
    await journal.post("k1", appends=((SESSION, b"1\n"),))
    for operation in range(1, 8):
        left = disk.survivor()
        left.lose_power(operation)
        with suppress(ActorError):
            async with start(left) as again:
                await again.accept("a")
        left.crash()
        assert (await after_a_crash(start, left))[0] == b"0\n1\n"


async def test_a_start_on_a_full_disk_says_so_rather_than_to_go_on_without(start, journal, disk):
    await journal.post("k1", appends=((SESSION, b"1\n"),))
    left = disk.survivor()
    left.files.capacity = 0
    with pytest.raises(GaveUp):
        async with start(left):
            pass
    left.files.capacity = None
    assert (await after_a_crash(start, left))[0] == b"0\n1\n"


async def test_a_line_that_was_cut_short_carries_nothing(start, disk):
    """The reply and what it carries are one line: there is neither, and nobody was told of either."""
    async with start(disk) as journal:
        await journal.post("k0", appends=((SESSION, b"0\n"),))
        before = len(disk.content(OUTBOX))
        await journal.post("k1", appends=((SESSION, b"1\n"),))
        survivor, line = disk.survivor(), disk.content(OUTBOX)[before:]
    for size in range(1, len(line)):
        for tail in (line[:size], line[:size] + bytes(len(line) - size), bytes(size) + line[size:]):
            left = survivor.survivor()
            left.put(OUTBOX, survivor.content(OUTBOX)[:before] + tail)
            async with start(left) as again:
                assert await again.ask(Posted, ("k1",)) == (None,)
                assert await again.ask(ReadFile, SESSION) == b"0\n"


# ------------------------------------------------------------------ a disk that refuses


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("times", [1, 2, 3, 6])
async def test_a_refusal_anywhere_keeps_nothing_of_the_commit_and_all_that_was_before(start, times, error):
    for operation in range(1, 30):
        disk = MemoryDisk()
        async with start(disk) as journal:
            await journal.post("k0", appends=((SESSION, b"0\n"),))
            await journal.append(SESSION, b"owed\n", durable=False)
            await journal.post("k1", appends=((SESSION, b"1\n"),))
            disk.fail(operation, error, times)
            lines = b"0\nowed\n1\n"
            for n in range(2, 9):
                try:
                    await journal.post(f"k{n}", appends=((SESSION, b"%d\n" % n),))
                    lines += b"%d\n" % n
                    await journal.ask(ReplaceFile, "other", b"")  # settles
                    break
                except StorageError:
                    assert (await after_a_crash(start, disk))[0] == lines
                    assert await journal.ask(ReadFile, SESSION) == lines
            assert (await after_a_crash(start, disk))[0] == lines
        assert (await after_a_crash(start, disk))[0] == lines


async def test_a_sync_that_fails_when_it_is_settled_loses_nothing(start, journal, disk, autojump_clock):
    await journal.post("k1", appends=((SESSION, b"1\n"),))
    disk.fail(1, errno.EIO)
    await trio.sleep(0.06)
    [report] = journal.reports
    assert "Input/output error" in report
    assert (await after_a_crash(start, disk))[0] == b"0\n1\n"
    await trio.sleep(2)
    assert disk.survivor().content(SESSION) == b"0\n1\n"
    assert disk.survivor().content(OUTBOX).count(b"settled") == 0
    assert disk.content(OUTBOX).endswith(SETTLED)


async def test_what_nobody_waited_for_survives_a_sync_that_failed(journal, disk, autojump_clock):
    """The kernel may have dropped it with the rest; then the line behind it would be glued to garbage."""
    await journal.append(OTHER, b"note\n", durable=False)
    await trio.sleep(1)
    disk.fail(2, errno.EIO)
    with pytest.raises(StorageError):
        await journal.append(OTHER, b"refused\n")
    await journal.append(OTHER, b"2\n")
    assert disk.survivor().content(OTHER) == b"note\n2\n"


# ------------------------------------------------------------------ the parts


def test_a_run_goes_on_where_the_one_before_ends_or_begins_anew():
    first = Run("p", 10, b"ab")
    assert together(None, first) == first
    assert together(first, Run("p", 12, b"c")) == Run("p", 10, b"abc")
    for offset in (0, 11, 13):
        assert together(first, Run("p", offset, b"c")) == Run("p", offset, b"c")


@pytest.mark.parametrize("data", [b"a\n", "hällo \U0001f600\n".encode(), b'"\\\0\x1f\x7f\r\n', "\u2028\n".encode()])
def test_what_a_line_carries_comes_back(data):
    tail = Tail(7, b"before\n" + data, carried=7)
    line = with_redo(b'{"type":"reply"}\n', tail.redo("p"))
    assert line.endswith(b"}\n")
    assert run_in(json.loads(line)["redo"]) == Run("p", 14, data)


@pytest.mark.parametrize("redo", [None, [], {}, {"path": "p", "offset": "1", "data": ""}, {"path": 1, "offset": 1}])
async def test_a_line_that_carries_nonsense_is_set_aside(start, disk, redo):
    line = {"type": "reply", "key": "k", "at": 1, "redo": redo}
    line["message"] = {"text": "hi", "channel": {"type": "cli", "channelId": "main"}, "seq": 1}
    disk.put(OUTBOX, json.dumps(line).encode() + b"\n")
    async with start(disk) as journal:
        assert "1 bad lines were set aside" in journal.reports[0]
