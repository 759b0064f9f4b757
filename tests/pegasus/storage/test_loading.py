"""Starting over damaged files: what is good is there, what is not is set aside and told."""

from __future__ import annotations

import errno

import pytest

from pegasus.messages import Address
from pegasus.storage.inbox_messages import CompleteItem, NextItem, Waiting
from pegasus.storage.messages import LastSeq, StorageError, Unacknowledged
from pegasus.testing.memory_disk import MemoryDisk
from pegasus.wire import encode_line

from .conftest import NOW, run_journal

INBOX, OUTBOX = "inbox/inbox.jsonl", "outbox/outbox.jsonl"


def message(n, id="", text="hi"):
    channel = {"type": "cli", "channelId": "main"}
    return encode_line(
        {"type": "message", "n": n, "at": NOW, "message": {"text": text, "channel": channel, "id": id or f"m{n}"}}
    )


def reply(seq, text="hi"):
    channel = {"type": "cli", "channelId": "main"}
    return encode_line(
        {"type": "reply", "key": f"k{seq}", "at": NOW, "message": {"text": text, "channel": channel, "seq": seq}}
    )


async def test_an_empty_home_is_fine_and_nothing_is_written(start):
    disk = MemoryDisk()
    async with start(disk) as journal:
        assert await journal.ask(Waiting) == 0
        assert await journal.ask(LastSeq, Address("cli", "main")) == 0
    assert disk.paths() == []
    assert disk.operations == 0
    assert journal.reports == []


async def test_what_was_accepted_and_posted_is_there_after_a_restart(start):
    disk = MemoryDisk()
    async with start(disk) as journal:
        await journal.accept("a", "first")
        await journal.post("k", text="answer")
    async with start(disk.survivor()) as journal:
        assert (await journal.ask(NextItem)).message.text == "first"
        [message] = await journal.ask(Unacknowledged, "cli", "main")
        assert (message.text, message.seq, message.channel.user_id) == ("answer", 1, "me")
        assert journal.reports == []


async def test_replies_before_the_first_message_are_no_sign_that_the_inbox_was_lost(start):
    """Somebody unknown is answered with a code, and what they wrote is not kept."""
    disk = MemoryDisk()
    async with start(disk) as journal:
        await journal.post("pairing/ABCDEFGH")
    async with start(disk.survivor()) as journal:
        assert (await journal.accept("a")).n == 1


async def test_numbers_of_an_inbox_that_was_lost_are_not_given_again(start):
    disk = MemoryDisk()
    disk.put(OUTBOX, reply(1))
    async with start(disk) as journal:
        await journal.post("k2")
    async with start(disk.survivor(), now=lambda: NOW - 1_000_000_000) as journal:
        assert (await journal.accept("a")).n == NOW // 1000 + 1


@pytest.mark.parametrize("torn", [b'{"type":"mess', b"\0" * 300, b'{"type":"message","n":2}', b"\xff\xfe\n"])
async def test_a_torn_tail_is_set_aside_and_told_and_the_next_record_is_whole(start, torn):
    disk = MemoryDisk()
    disk.put(INBOX, message(1) + torn)
    async with start(disk) as journal:
        [report] = journal.reports
        assert report.startswith(f"{INBOX}, line 2: ")
        assert f"{INBOX}.bad-1" in report
        await journal.accept("new")
    assert disk.content(f"{INBOX}.bad-1") == torn
    async with start(disk.survivor()) as journal:
        assert await journal.ask(Waiting) == 2
        assert journal.reports == []


async def test_bad_lines_hide_nothing_and_are_set_aside_once(start):
    disk = MemoryDisk()
    disk.put(
        INBOX,
        message(1) + b"garbage\n" + message(2) + b"\0\0\0" + message(3) + b'{"type":"from the future"}\n' + message(4),
    )
    disk.put(OUTBOX, reply(1) + b"\xff\n" + reply(2))
    async with start(disk) as journal:
        assert await journal.ask(Waiting) == 4
        assert len(await journal.ask(Unacknowledged, "cli", "main")) == 2
        inbox, outbox = journal.reports
        assert inbox.startswith(f"{INBOX}: 3 bad lines were set aside in {INBOX}.bad-1: line 2: not JSON")
        assert "unknown type of record" in inbox
        assert outbox.startswith(f"{OUTBOX}: 1 bad lines were set aside in {OUTBOX}.bad-1: line 2: not UTF-8")
    assert disk.content(f"{INBOX}.bad-1") == b'garbage\n\0\0\0{"type":"from the future"}\n'
    assert disk.content(f"{OUTBOX}.bad-1") == b"\xff\n"
    async with start(disk.survivor()) as journal:
        assert await journal.ask(Waiting) == 4
        assert [(await journal.ask(NextItem)).n, len(await journal.ask(Unacknowledged, "cli", "main"))] == [1, 2]
        assert journal.reports == []


async def test_many_bad_lines_are_one_report(start):
    disk = MemoryDisk()
    disk.put(INBOX, b"x\n" * 1_000 + message(1))
    async with start(disk) as journal:
        [report] = journal.reports
        assert "1000 bad lines" in report
        assert len(report) < 1_000


async def test_a_full_disk_at_the_start_loses_nothing_that_was_promised(start):
    disk = MemoryDisk(capacity=0)
    disk.put(INBOX, message(1) + b"garbage\n" + message(2) + b'{"torn')
    async with start(disk) as journal:
        assert await journal.ask(Waiting) == 2
        assert any("cut off: b'{\"torn'" in report for report in journal.reports)
        assert any("left where they are" in report for report in journal.reports)
        with pytest.raises(StorageError, match="No space left"):
            await journal.accept("new")
        disk.files.capacity = None
        await journal.accept("new")
    async with start(disk.survivor()) as journal:
        assert await journal.ask(Waiting) == 3


async def test_a_file_that_cannot_be_read_is_named_and_the_journal_does_not_start():
    class Unreadable(MemoryDisk):
        def __init__(self):
            super().__init__()
            self.files.read = self.read

        def read(self, path, offset=0, length=None):
            raise PermissionError(errno.EACCES, "Permission denied")

    with pytest.raises(Exception) as caught:  # noqa: PT011
        async with run_journal(Unreadable()):
            pass
    error = caught.value
    while not isinstance(error, StorageError):
        error = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error.__cause__
    assert str(error) == f"cannot read memory/{INBOX}: Permission denied; it must belong to the user who runs pegasus"


async def test_a_large_dead_log_is_compacted_at_the_start(start):
    disk = MemoryDisk()
    lines = [message(n, text="x" * 1_000) + b'{"type":"done","n":%d}\n' % n for n in range(1, 1_200)]
    disk.put(INBOX, b"".join(lines) + message(1_200))
    async with start(disk) as journal:
        assert (await journal.ask(NextItem)).n == 1_200
        assert (await journal.accept("m5")).duplicate
        assert (await journal.accept("new")).n == 1_201
    assert len(disk.content(INBOX)) < 100_000


async def test_thousands_of_waiting_replies_are_not_read_into_memory(start):
    disk = MemoryDisk()
    disk.put(OUTBOX, b"".join(reply(seq, text="x" * 500) for seq in range(1, 3_000)))
    async with start(disk) as journal:
        messages = await journal.ask(Unacknowledged, "cli", "main", (("main", 2_500),), 100)
        assert [message.seq for message in messages] == list(range(2_501, 2_601))
        assert all(message.text == "x" * 500 for message in messages)


async def test_what_waits_of_a_version_without_conversations_of_guests_has_its_conversation(start):
    """That of a guest is apart, with reports that belong there and what an owner writes where guests are heard; others are not."""

    def waiting(n, channel_id, user, rank, id="", **metadata):
        channel = {"type": "slack", "channelId": channel_id, "userId": user}
        record = {"text": f"t{n}", "channel": channel, "id": id or f"m{n}", "metadata": metadata}
        return encode_line({"type": "message", "n": n, "at": NOW, "rank": rank, "message": record})

    lines = [
        waiting(1, "D-eve", "eve", 1),
        waiting(2, "D-eve", "eve", 2, "\x1ftask/t1/1", role="guest"),
        waiting(3, "D-ann", "ann", 0),
        waiting(4, "D-ann", "ann", 2, "\x1ftask/t2/1", role="owner"),
        waiting(5, "D-ann", "hook ci", 1, role="guest"),
        waiting(6, "C-group", "mal", 1),
        waiting(7, "C-group", "ann", 0),
        waiting(8, "D-ann", "eve", 1, apart=False, account="eve"),
    ]
    disk = MemoryDisk()
    disk.put(INBOX, b"".join(lines))
    found = {}
    async with start(disk) as journal:
        for _ in lines:
            item = await journal.ask(NextItem)
            found[item.n] = item.message.metadata.get("apart") is True
            await journal.tell(CompleteItem(item.n))
        assert journal.reports == []
    assert found == {1: True, 2: True, 3: False, 4: False, 5: False, 6: True, 7: True, 8: False}
