"""Where a replay begins, and what it leaves out."""

from __future__ import annotations

from pegasus.update.beginning import choose_beginning, count_left_out
from pegasus.update.record import read_record
from pegasus.update.report import CheckReport, report_text
from pegasus.wire import encode_line

DAY = 86_400_000


def record_of(*items):
    """Return a record of messages, given as (time of acceptance, time at which it was done)."""
    lines = [{"type": "compacted", "lastN": 0}]
    for n, (at, done) in enumerate(items, start=1):
        message = {"text": "hi", "id": f"m-{n}", "channel": {"type": "cli", "channelId": "main"}}
        lines += [{"type": "message", "n": n, "at": at, "message": message}, {"type": "done", "n": n, "at": done}]
    return read_record({"inbox/inbox.jsonl": b"".join(map(encode_line, lines))}, {})


def test_a_replay_begins_where_nothing_was_being_worked_on_and_tells_what_it_leaves_out():
    now = 100 * DAY
    record = record_of(
        (now - 9 * DAY, now - 9 * DAY + 5), (now - 8 * DAY, now - DAY), (now - 3 * DAY, now - DAY), (now, now + 5)
    )
    since = choose_beginning(record, 7)
    assert (since, count_left_out(record, 7, since)) == (now, 1)
    lines = [*report_text(CheckReport(1, 3, since=since, left_out=1))]
    assert lines[1] == "Not replayed: 1 earlier message of these days, until which something was always being worked on"


def test_a_home_within_the_days_is_replayed_from_its_first_message():
    record = record_of((10 * DAY, 11 * DAY), (10 * DAY + 5, 10 * DAY + 6))
    assert (choose_beginning(record, 7), count_left_out(record, 7, 0)) == (0, 0)
