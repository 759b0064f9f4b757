"""Data files of earlier versions, whose replies carry lines of the session: a start puts right what a crash has lost.

Those versions synced only the outbox when a reply was posted together with lines of the session. The line of the reply
held a copy of them ("redo"), and a "settled" line followed once the session was synced too. After a crash in between,
the copy may be the only one.
"""

from __future__ import annotations

import json
from contextlib import suppress

import pytest

from actors import ActorError, GaveUp
from pegasus.storage import record_log
from pegasus.storage.messages import Acknowledge, Post, Posted, ReadFile, ReplaceFile
from pegasus.testing.memory_disk import MemoryDisk

from .conftest import CLI, NOW, WEB

SESSION, OUTBOX = "main/current.jsonl", "outbox/outbox.jsonl"
SETTLED = b'{"type":"settled"}\n'


def reply(seq, redo=None, text="hi"):
    """A line of the outbox as earlier versions wrote it. redo: offset in the session, and the bytes that belong there."""
    channel = {"type": "cli", "channelId": "main"}
    line = {"type": "reply", "key": f"k{seq}", "at": NOW, "message": {"text": text, "channel": channel, "seq": seq}}
    if redo is not None:
        offset, data = redo
        line["redo"] = {"path": SESSION, "offset": offset, "data": data.decode()}
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def old_disk(outbox, session=b"0\n"):
    """A disk as an earlier version left it. session: the bytes of it that were synced."""
    disk = MemoryDisk()
    disk.put(OUTBOX, outbox)
    disk.put(SESSION, session)
    return disk


async def after_a_start(start, disk):
    """The session as the next process finds it, and the reports of its start."""
    async with start(disk) as journal:
        content = await journal.ask(ReadFile, SESSION)
        assert (await journal.ask(Posted, ("k1",)))[0] is not None
    return content, journal.reports


CARRYING = reply(1) + reply(2, (2, b"1\n"))


async def test_lines_that_a_power_failure_took_from_the_session_are_written_again_and_reported(start):
    outbox = reply(1) + reply(2, (2, b"one\n")) + reply(3, (6, b"result\ntwo\n"))
    for torn in (b"", b"o", b"one\nre", b"one\nresult\ntw"):
        content, [report] = await after_a_start(start, old_disk(outbox, b"0\n" + torn))
        assert content == b"0\none\nresult\ntwo\n"
        assert report == f"{SESSION}, from byte 2 on: 15 bytes were missing, and were written from the outbox"


async def test_they_are_durable_and_settled_before_anything_else_is_written(start):
    disk = old_disk(CARRYING)
    async with start(disk) as journal:
        await journal.accept("a")
        left = disk.survivor()
    assert left.content(SESSION) == b"0\n1\n"
    assert left.content(OUTBOX) == CARRYING + SETTLED


async def test_they_are_written_once(start):
    """The start after the next does not undo an edit of the file."""
    disk = old_disk(CARRYING)
    assert len((await after_a_start(start, disk))[1]) == 1
    disk = disk.survivor()
    disk.put(SESSION, b"mine\n")
    assert await after_a_start(start, disk) == (b"mine\n", [])


async def test_settled_lines_are_not_written_again(start):
    disk = old_disk(CARRYING + SETTLED, b"mine\n")
    assert await after_a_start(start, disk) == (b"mine\n", [])
    assert disk.content(OUTBOX) == CARRYING + SETTLED


async def test_only_what_follows_the_last_settled_line_counts(start):
    disk = old_disk(CARRYING + SETTLED + reply(3, (4, b"2\n")), b"0\n1\n")
    content, reports = await after_a_start(start, disk)
    assert content == b"0\n1\n2\n"
    assert reports == [f"{SESSION}, from byte 4 on: 2 bytes were missing, and were written from the outbox"]


async def test_a_line_that_does_not_continue_the_one_before_begins_anew(start):
    """The session was synced in between, so that everything before it is there."""
    disk = old_disk(CARRYING + reply(3, (9, b"2\n")), b"0\n1\nmore\n")
    assert (await after_a_start(start, disk))[0] == b"0\n1\nmore\n2\n"


async def test_a_session_that_has_all_of_it_and_more_stays_as_it_is(start):
    assert await after_a_start(start, old_disk(CARRYING, b"0\n1\n2\n")) == (b"0\n1\n2\n", [])


async def test_lines_that_were_readable_but_not_synced_are_made_durable(start):
    """The process was killed, so that readers see them although the disk does not have them yet."""
    disk = old_disk(CARRYING)
    disk.files.prepare(SESSION)
    disk.files.write(SESSION, b"1\n")
    async with start(disk):
        pass
    assert disk.survivor().content(SESSION) == b"0\n1\n"


@pytest.mark.parametrize(("garbage", "copies"), [(b"\0" * 40, 0), (b"on\0\0\0\0\0", 0), (b"garbage\n", 1)])
async def test_garbage_in_their_place_is_replaced_and_a_copy_kept(start, garbage, copies):
    disk = old_disk(reply(1) + reply(2, (2, b"one\n")), b"0\n" + garbage)
    content, [report] = await after_a_start(start, disk)
    assert content == b"0\none\n"
    kept = [path for path in disk.paths() if ".torn" in path]
    assert [disk.content(path) for path in kept] == [garbage] * copies
    assert ("what was there instead is in main/current.jsonl.torn-1" in report) == bool(copies)


async def test_a_session_that_is_shorter_than_their_place_is_left_alone_and_reported(start):
    """Somebody has deleted or emptied it after the crash."""
    content, [report] = await after_a_start(start, old_disk(CARRYING, b""))
    assert content == b""
    assert report == f"{SESSION} has 0 bytes, and had 2 when replies were kept; it is left as it is"


async def test_a_reply_that_carries_lines_is_read_back(start):
    async with start(old_disk(reply(1) + reply(2, (2, b"1\n"), text="words"))) as journal:
        [message] = await journal.ask(Posted, ("k2",))
        assert (message.text, message.seq) == ("words", 2)


async def test_a_power_failure_while_they_are_written_loses_nothing(start):
    for operation in range(1, 8):
        disk = old_disk(CARRYING)
        disk.lose_power(operation)
        with suppress(ActorError):
            async with start(disk) as journal:
                await journal.accept("a")
        disk.crash()
        assert (await after_a_start(start, disk))[0] == b"0\n1\n"


async def test_a_disk_that_refuses_them_ends_the_start(start):
    """To go on without them would be to forget what was promised."""
    disk = old_disk(CARRYING)
    disk.files.capacity = 0
    with pytest.raises(GaveUp):
        async with start(disk):
            pass
    disk.files.capacity = None
    assert (await after_a_start(start, disk))[0] == b"0\n1\n"


async def test_a_reply_that_was_cut_short_carries_nothing(start):
    """Reply and carried lines are one line of the outbox: there is neither, and nobody was promised either."""
    line = reply(2, (2, b"1\n"))
    for size in range(1, len(line), 7):
        for tail in (line[:size], line[:size] + bytes(len(line) - size), bytes(size) + line[size:]):
            async with start(old_disk(reply(1) + tail)) as journal:
                assert await journal.ask(Posted, ("k2",)) == (None,)
                assert await journal.ask(ReadFile, SESSION) == b"0\n"


async def test_a_rewritten_outbox_does_not_carry_them_again(start, monkeypatch):
    """A reply that nobody has acknowledged is copied with what it carried, which may be out of date by then."""
    monkeypatch.setattr(record_log, "SMALL", 100)
    disk = old_disk(CARRYING)
    async with start(disk) as journal:
        await journal.ask(ReplaceFile, SESSION, b"mine\n")
        for n in range(40):
            await journal.post(f"other{n}", WEB)
        await journal.tell(Acknowledge(WEB.address, 40))
        await journal.post("last")
        assert await journal.ask(Posted, ("none",)) == (None,)  # it is rewritten by then
        assert b'"key":"other1"' not in disk.content(OUTBOX)
        assert b'"redo"' in disk.content(OUTBOX)
    assert await after_a_start(start, disk.survivor()) == (b"mine\n", [])


@pytest.mark.parametrize("redo", [None, [], {}, {"path": "p", "offset": "1", "data": ""}, {"path": 1, "offset": 1}])
async def test_a_reply_that_carries_nonsense_is_set_aside(start, disk, redo):
    line = {"type": "reply", "key": "k", "at": 1, "redo": redo}
    line["message"] = {"text": "hi", "channel": {"type": "cli", "channelId": "main"}, "seq": 1}
    disk.put(OUTBOX, json.dumps(line).encode() + b"\n")
    async with start(disk) as journal:
        assert "1 bad lines were set aside" in journal.reports[0]


async def test_new_replies_carry_nothing(start, disk):
    async with start(disk) as journal:
        await journal.append(SESSION, b"0\n")
        await journal.post("k1", appends=((SESSION, b"1\n"),))
        assert Post("k1", "hi", "main", CLI).key.encode() in disk.content(OUTBOX)
        assert b"redo" not in disk.content(OUTBOX)
        assert disk.survivor().content(SESSION) == b"0\n1\n"
