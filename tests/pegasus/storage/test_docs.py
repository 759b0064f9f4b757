"""The records that docs/storage.md shows are the ones that are read and written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pegasus.json_lines import Line, scan_lines
from pegasus.messages import Address, ChannelInfo
from pegasus.storage.directory import Directory
from pegasus.storage.inbox import InboxLog
from pegasus.storage.outbox import OutboxLog
from pegasus.wire import encode_line

PAGE = Path(__file__).parents[3] / "docs" / "storage.md"


def block(name):
    [text] = re.findall(rf"```jsonl {name}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return text.encode()


def replayed(log, data):
    for line in scan_lines(data):
        assert isinstance(line, Line), line
        assert log.replay(line) is None, line
    log.loaded(len(data))
    return log


def test_the_inbox_as_shown():
    directory = Directory()
    log = replayed(InboxLog(directory), block("inbox"))
    assert log.queue.due("control").n == 43
    assert (log.queue.due("main").n, log.queue.due("main").priority) == (44, 2)
    assert list(directory) == [Address("slack", "#general"), Address("cli", "main"), Address("web", "c1")]
    assert log.ids[1] == 41


def test_the_outbox_as_shown():
    log = replayed(OutboxLog(), block("outbox"))
    assert log.last_seq(Address("cli", "main")) == 14
    assert [stored.seq for stored in log.unacknowledged("cli", "main", 10)] == [13, 14]
    assert log.find("global/call_1").channel == ChannelInfo("cli", "main")


@pytest.mark.parametrize("name", ["inbox", "outbox"])
def test_the_lines_are_written_as_shown(name):
    for line in scan_lines(block(name)):
        assert encode_line(line.value) == block(name)[line.offset : line.offset + line.length]
