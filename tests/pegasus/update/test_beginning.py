"""Where a replay begins, and what it leaves out."""

from __future__ import annotations

from base64 import b64encode

from pegasus.update.beginning import choose_beginning, count_left_out
from pegasus.update.record import read_record
from pegasus.update.report import CheckReport, report_text
from pegasus.wire import encode_line

DAY = 86_400_000
CHANNEL = {"type": "cli", "channelId": "main"}


def record_of(*items):
    """Return a record of messages, given as (time of acceptance, time at which it was done)."""
    lines = [{"type": "compacted", "lastN": 0}]
    for n, (at, done) in enumerate(items, start=1):
        lines += [message(n, at), {"type": "done", "n": n, "at": done}]
    return read_record({"inbox/inbox.jsonl": b"".join(map(encode_line, lines))}, {})


def message(n, at):
    return {"type": "message", "n": n, "at": at, "message": {"text": "hi", "id": f"m-{n}", "channel": CHANNEL}}


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


def test_what_a_database_has_is_replayed_from_the_first_message_that_is_whole():
    """A file that was made of it begins with the last number, too, and has behind it what is done."""
    whole = [message(1, 10 * DAY), message(3, 11 * DAY), {"type": "done", "n": 1, "at": 10 * DAY}]
    replies = [{"type": "reply", "message": {"channel": CHANNEL, "seq": seq}} for seq in (1, 2)]

    def read(inbox, outbox):
        files = {"inbox/inbox.jsonl": inbox, "outbox/outbox.jsonl": outbox}
        return read_record({path: b"".join(map(encode_line, lines)) for path, lines in files.items()}, {})

    numbering = {"type": "address", "channel": CHANNEL, "seq": 2, "acked": 2}
    record = read([{"type": "compacted", "lastN": 3}, *whole], [numbering, *replies])
    assert (choose_beginning(record, 7), record.has_all_replies) == (0, True)
    gone = {"type": "ids", "packed": b64encode((7).to_bytes(8, "big") + (2).to_bytes(8, "big")).decode()}
    record = read([{"type": "compacted", "lastN": 3}, gone, *whole], [numbering, *replies[1:]])
    assert (choose_beginning(record, 7), record.has_all_replies) == (11 * DAY, False)
    record = read([{"type": "compacted", "lastN": 3}, gone, {"type": "ids", "packed": "?"}], [])
    assert record.first == 3
