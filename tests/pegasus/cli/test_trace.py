"""`pegasus trace` on files that a person may have: rewritten, damaged, with equal names."""

import json

import pytest

from pegasus.cli.trace import trace_message

CHANNEL = {"type": "cli", "channelId": "main"}


def write(path, *records):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(
        b"".join(json.dumps(r, separators=(",", ":")).encode() + b"\n" if isinstance(r, dict) else r for r in records)
    )


def accepted(n, id, channel=CHANNEL, text="Hello"):
    return {"type": "message", "n": n, "at": 1_000 * n, "message": {"text": text, "channel": channel, "id": id}}


def test_a_message_whose_inbox_was_rewritten_is_found_in_its_session(tmp_path):
    write(tmp_path / "inbox/inbox.jsonl", {"type": "compacted", "lastN": 9})
    write(
        tmp_path / "main/current.jsonl",
        {"ts": 7_100, "role": "user", "content": "[cli]\nHello", "metadata": {"item": 7, "messageId": "m-7"}},
        {"ts": 7_200, "role": "assistant", "toolCalls": [{"id": "c", "name": "reply", "arguments": {"text": "Hi"}}]},
        {"ts": 7_300, "role": "tool", "toolCallId": "c", "content": "{}"},
        {"ts": 8_100, "role": "user", "content": "[cli]\nNext", "metadata": {"item": 8, "messageId": "m-8"}},
    )
    write(tmp_path / "outbox/outbox.jsonl", {"type": "keys", "channels": [CHANNEL], "replies": [["main/7/c", 3, 0]]})
    found = trace_message(tmp_path, "m-7")
    assert [step["what"] for step in found["steps"]] == ["taken up", "thought", "called", "acknowledged"]
    assert found["steps"][-1] == {"at": 0, "what": "acknowledged", "channel": "cli:main", "seq": 3}
    assert found["state"] == "done"


def test_one_id_in_two_chats_is_refused_with_the_numbers(tmp_path):
    other = {"type": "telegram", "channelId": "42"}
    write(tmp_path / "inbox/inbox.jsonl", accepted(1, "17"), accepted(2, "17", other))
    with pytest.raises(ValueError, match=r"#1.*#2"):
        trace_message(tmp_path, "17")
    assert trace_message(tmp_path, "telegram:42 17")["n"] == 2
    assert trace_message(tmp_path, "#1")["n"] == 1


def test_an_id_that_the_inbox_knows_wins_over_a_number_of_long_ago(tmp_path):
    write(tmp_path / "inbox/inbox.jsonl", accepted(90, "17"))
    old = {"ts": 1, "role": "user", "content": "[cli]\nOld", "metadata": {"item": 17, "messageId": "m-17"}}
    write(tmp_path / "main/current.jsonl", old)
    assert trace_message(tmp_path, "17")["n"] == 90
    assert trace_message(tmp_path, "#17")["n"] == 17


def test_damaged_lines_and_a_torn_end_hide_nothing_else(tmp_path):
    torn = b'{"type":"done","n":1,"at":2'
    write(tmp_path / "inbox/inbox.jsonl", b"\0\0\0\n", b"[1]\n", accepted(1, "m-1"), {"type": "message"}, torn)
    write(
        tmp_path / "outbox/outbox.jsonl", {"type": "ack"}, {"type": "reply", "key": 5}, {"type": "keys", "replies": 3}
    )
    found = trace_message(tmp_path, "m-1")
    assert [step["what"] for step in found["steps"]] == ["accepted"]
    assert found["state"] == "waiting"


def test_an_acknowledgement_covers_everything_up_to_it_and_counts_once(tmp_path):
    write(tmp_path / "inbox/inbox.jsonl", accepted(1, "m-1"), {"type": "done", "n": 1, "at": 5_000})
    replies = [
        {
            "type": "reply",
            "key": f"main/1/c{seq}",
            "at": 1_000 + seq,
            "message": {"text": "Hi", "channel": CHANNEL, "seq": seq},
        }
        for seq in (1, 2)
    ]
    acks = [
        {"type": "ack", "channel": CHANNEL, "seq": 2, "at": 4_000},
        {"type": "ack", "channel": CHANNEL, "seq": 2, "at": 4_500},
    ]
    write(tmp_path / "outbox/outbox.jsonl", *replies, *acks)
    found = trace_message(tmp_path, "main/1/c1")
    assert [(step["what"], step["at"]) for step in found["steps"]] == [
        ("accepted", 1_000),
        ("replied", 1_001),
        ("replied", 1_002),
        ("acknowledged", 4_000),
        ("acknowledged", 4_000),
        ("done", 5_000),
    ]
