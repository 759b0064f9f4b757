"""The outbox without a disk: seqs, keys, acknowledgements, undoing, and coming back from its own file."""

from __future__ import annotations

import json
import math

import pytest

from pegasus.json_lines import Line
from pegasus.messages import Address, ChannelInfo, OutboundMessage
from pegasus.storage.messages import Post
from pegasus.storage.outbox import GIVEN_UP_AFTER_MS, OutboxLog
from pegasus.storage.reply_queries import reply_in

from .conftest import AT, LogFile

WEB = ChannelInfo("web", "c1")
CLI = ChannelInfo("cli", "main", "me", "thread")
A = WEB.address


class File(LogFile):
    def __init__(self, data=b"", **options):
        super().__init__(OutboxLog(**options), data)

    def stage(self, key, channel=WEB, text="hi", at=AT, metadata=None):
        return self.log.post(Post(key, text, channel.channel_id, channel, metadata=metadata or {}), channel, at)

    def post(self, key, channel=WEB, **more):
        message = self.stage(key, channel, **more)
        self.write()
        return message

    def read(self, stored):
        return reply_in(self.part(stored.span))

    def waiting(self, type="web", channel_id="c1", limit=1000):
        """Unacknowledged replies, read from the file."""
        return [self.read(stored) for stored in self.log.unacknowledged(type, channel_id, limit)]

    def seqs(self, *where):
        return [message.seq for message in self.waiting(*where)]


class Unlistable(dict):
    """A dict for single lookups."""

    def __iter__(self):
        pytest.fail("all of them were looked through")

    items = values = keys = __iter__


def state(file):
    """Everything that counts, comparable."""
    log = file.log
    return (
        {
            a: (n.last, n.acked, [(s.key, s.seq, s.span, s.at) for s in n.unacknowledged])
            for a, n in log.sequences.items()
        },
        {key: (s.seq, s.channel) for key, s in log.keys.items()},
        [s.key for s in log._acked_keys],
        log._unacknowledged_bytes,
        dict(log.notes),
    )


# ------------------------------------------------------------------ posting


def test_seqs_count_per_address_from_1():
    file = File()
    assert [file.post(key).seq for key in "abc"] == [1, 2, 3]
    assert file.post("d", CLI).seq == 1
    assert file.log.last_seq(A) == 3
    assert file.log.last_seq(Address("web", "nobody")) == 0


def test_threads_and_users_of_a_space_share_one_numbering():
    file = File()
    file.post("a", ChannelInfo("slack", "#a", "u1", "t1"))
    assert file.post("b", ChannelInfo("slack", "#a", "u2")).seq == 2
    assert [message.channel.reply_to for message in file.waiting("slack", "#a")] == ["t1", None]


def test_the_same_key_is_posted_once():
    file = File()
    first = file.post("k")
    assert file.post("k") == first
    assert file.seqs() == [1]


def test_the_same_key_twice_in_one_batch_is_posted_once():
    file = File()
    assert file.stage("k") == file.stage("k")
    assert [stored.seq for stored in file.write()] == [1]


def test_the_same_key_after_a_restart_is_posted_once():
    file = File()
    first = file.post("k", CLI)
    file.post("other", CLI)
    assert file.reload().post("k", CLI) == first
    file.log.acknowledge(CLI.address, 2)
    file.write()
    assert file.reload().post("k", CLI) == first
    file.compact()
    assert file.reload().post("k", CLI) == first


def test_written_gives_the_replies_that_are_new():
    file = File()
    file.post("a")
    file.stage("a")
    file.stage("b")
    assert [(stored.key, stored.message.text) for stored in file.write()] == [("b", "hi")]


def test_the_record_is_as_documented():
    file = File()
    file.post("k", CLI, text="hällo", metadata={"a": 1})
    file.log.acknowledge(CLI.address, 1)
    file.write()
    assert [json.loads(line) for line in file.data.splitlines()] == [
        {
            "type": "reply",
            "key": "k",
            "at": AT,
            "message": {
                "text": "hällo",
                "channel": {"type": "cli", "channelId": "main", "userId": "me", "replyTo": "thread"},
                "seq": 1,
                "metadata": {"a": 1},
            },
        },
        {"type": "ack", "channel": {"type": "cli", "channelId": "main"}, "seq": 1},
    ]


def test_what_is_no_json_is_refused_and_leaves_no_trace():
    file = File()
    before = state(file)
    with pytest.raises(ValueError, match="JSON"):
        file.stage("k", metadata={"a": float("nan")})
    assert state(file) == before


# ------------------------------------------------------------------ staging


def test_what_is_dropped_never_happened_and_burns_no_seq():
    file = File()
    file.post("a")
    file.post("b")
    file.log.acknowledge(A, 1)
    before, unwritten = state(file), file.log.unwritten()
    for key in "cdc":
        file.stage(key)
    file.stage("e", CLI)
    file.stage("f", CLI)
    assert len(file.log.staged) == 4
    file.log.drop_staged()
    assert state(file) == before
    assert file.log.unwritten() == unwritten
    assert file.post("c").seq == 3
    assert file.post("e", CLI).seq == 1


def test_a_part_of_what_is_staged_can_be_dropped():
    file = File()
    file.stage("a")
    file.stage("b")
    file.stage("c", CLI)
    file.log.drop_staged(keep=1)
    assert [stored.key for stored in file.write()] == ["a"]
    assert file.post("c", CLI).seq == 1


def test_a_staged_reply_is_not_there_yet():
    file = File()
    file.post("a")
    file.stage("b")
    assert file.log.last_seq(A) == 1
    assert file.seqs() == [1]


# ------------------------------------------------------------------ acknowledging


def test_an_acknowledgement_covers_all_up_to_it():
    file = File()
    for key in "abcd":
        file.post(key)
    file.log.acknowledge(A, 2)
    assert file.seqs() == [3, 4]
    file.log.acknowledge(A, 1)
    assert file.seqs() == [3, 4]
    file.log.acknowledge(A, 4)
    assert file.seqs() == []


def test_an_acknowledgement_beyond_what_was_assigned_is_ignored():
    file = File()
    file.post("a")
    file.stage("b")
    for seq in (2, 3, 10**9):
        file.log.acknowledge(A, seq)
    assert file.seqs() == [1]
    assert not file.log.notes


@pytest.mark.parametrize("seq", [0, -1, -(10**9)])
def test_an_acknowledgement_of_nothing_is_ignored(seq):
    file = File()
    file.post("a")
    file.log.acknowledge(A, seq)
    file.log.acknowledge(Address("web", "nobody"), 1)
    assert file.seqs() == [1]
    assert not file.log.notes


def test_many_acknowledgements_are_one_line():
    file = File()
    for n in range(10):
        file.post(f"{n}")
    for seq in range(1, 11):
        file.log.acknowledge(A, seq)
    size = len(file.data)
    file.write()
    assert file.data[size:].count(b"\n") == 1
    assert file.reload().seqs() == []


def test_acknowledgements_are_read_back():
    file = File()
    for key in "abc":
        file.post(key)
    file.log.acknowledge(A, 2)
    file.write()
    assert state(file.reload()) == state(file)


def test_replies_of_a_whole_type_are_in_order_per_address_and_limited():
    file = File()
    for n in range(6):
        file.post(f"{n}", ChannelInfo("web", f"c{n % 2}"))
    file.post("cli", CLI)
    found = [(m.channel.channel_id, m.seq) for m in file.waiting("web", None)]
    assert found == [("c0", 1), ("c0", 2), ("c0", 3), ("c1", 1), ("c1", 2), ("c1", 3)]
    assert len(file.waiting("web", None, 4)) == 4
    assert len(file.waiting("web", "c0", 2)) == 2
    assert file.waiting("sms", None) == []


def test_what_waits_for_an_address_is_found_without_looking_through_all():
    """Thousands of clients may connect at once after a restart, and the event loop waits."""

    file = File()
    file.post("a")
    file.log.sequences = Unlistable(file.log.sequences)
    assert file.seqs() == [1]


# ------------------------------------------------------------------ memory


def test_an_acknowledged_reply_frees_its_memory():
    file = File()
    for n in range(100):
        file.post(f"{n}", text="x" * 1_000)
        file.log.acknowledge(A, n + 1)
    assert all(stored.message is None for stored in file.log.keys.values())


def test_nothing_is_held_in_memory_after_a_restart():
    file = File()
    file.post("a")
    assert file.reload().log.find("a").message is None
    assert file.reload().waiting() == [OutboundMessage("hi", WEB, 1)]


def test_keys_of_acknowledged_replies_are_remembered_up_to_a_limit_and_of_others_always():
    file = File(remembered=2)
    for n in range(5):
        file.post(f"a{n}")
    file.log.acknowledge(A, 5)
    for n in range(5):
        file.post(f"b{n}")
    assert [file.log.find(f"a{n}") is not None for n in range(5)] == [False, False, False, True, True]
    assert all(file.log.find(f"b{n}") for n in range(5))
    file.write()
    file.compact()
    assert state(file.reload(remembered=2))[1] == state(file)[1]


# ------------------------------------------------------------------ loading


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"type": "from the future"},
        {"type": "reply"},
        {"type": "reply", "key": "x", "at": AT, "message": {"text": "", "seq": 2, "channel": {"type": "web"}}},
        {
            "type": "reply",
            "key": 5,
            "at": AT,
            "message": {"text": "", "seq": 2, "channel": {"type": "web", "channelId": "c1"}},
        },
        {
            "type": "reply",
            "key": "x",
            "at": AT,
            "message": {"text": None, "seq": 2, "channel": {"type": "web", "channelId": "c1"}},
        },
        {
            "type": "reply",
            "key": "x",
            "at": AT,
            "message": {"text": "", "seq": 1, "channel": {"type": "web", "channelId": "c1"}},
        },
        {
            "type": "reply",
            "key": "x",
            "at": AT,
            "message": {"text": "", "seq": "x", "channel": {"type": "web", "channelId": "c1"}},
        },
        {
            "type": "reply",
            "key": "x",
            "at": math.inf,
            "message": {"text": "", "seq": 2, "channel": {"type": "web", "channelId": "c1"}},
        },
        {
            "type": "reply",
            "key": "x",
            "at": AT,
            "message": {"text": "", "seq": 2, "channel": {"type": "web", "channelId": "c1", "userId": []}},
        },
        {"type": "ack", "channel": {"type": "web", "channelId": "c1"}},
        {"type": "ack", "channel": {"type": "web", "channelId": "c1"}, "seq": math.inf},
        {"type": "ack", "seq": 1},
        {"type": "address", "channel": {"type": "web", "channelId": "c1"}, "seq": 5},
        {"type": "keys", "channels": [], "replies": [["a"]]},
        {"type": "keys", "channels": [], "replies": [["a", 1, 0]]},
        {"type": "keys", "channels": [{"type": "web"}], "replies": []},
        {"type": "keys", "channels": [], "replies": 5},
        {"type": "keys", "channels": [{"type": "web", "channelId": "c1"}], "replies": [["a", math.inf, 0]]},
    ],
    ids=range(19),
)
def test_a_record_of_another_kind_is_told_and_changes_nothing(record):
    file = File()
    file.post("a")
    before = state(file)
    assert file.log.replay(Line(2, 100, 10, record))
    assert state(file) == before


def test_a_seq_whose_line_is_damaged_but_was_acknowledged_is_not_given_again():
    file = File(b'{"type":"ack","channel":{"type":"web","channelId":"c1"},"seq":7}\n')
    assert file.post("a").seq == 8


# ------------------------------------------------------------------ compaction


def test_a_compaction_keeps_what_counts():
    file = File()
    for n in range(100):
        file.post(f"{n}", ChannelInfo("web", f"c{n % 3}", f"u{n}"), text=f"text {n}")
    file.log.acknowledge(Address("web", "c0"), 30)
    file.log.acknowledge(Address("web", "c1"), 33)
    waiting, size = file.waiting("web", None), len(file.data)
    before = state(file)
    file.compact()
    assert len(file.data) < size
    assert not file.log.notes
    assert file.waiting("web", None) == waiting
    again = file.reload()
    assert again.problems == []
    for one in (file, again):
        assert one.waiting("web", None) == waiting
        assert state(one)[1] == before[1]
        assert one.post("new", ChannelInfo("web", "c1")).seq == 34
        assert one.post("new2", ChannelInfo("web", "c2")).seq == 34


def test_seqs_survive_even_if_nothing_is_left():
    file = File()
    for n in range(5):
        file.post(f"{n}")
    file.log.acknowledge(A, 5)
    file.compact()
    file = file.reload(remembered=0)
    file.compact()
    assert file.reload().post("new").seq == 6


def test_compacting_twice_changes_nothing():
    file = File()
    for key in "abc":
        file.post(key)
    file.log.acknowledge(A, 1)
    file.compact()
    once = bytes(file.data)
    file.compact()
    assert bytes(file.data) == once


def test_after_a_compaction_the_file_goes_on():
    file = File()
    for key in "abc":
        file.post(key)
    file.log.acknowledge(A, 1)
    file.compact()
    file.post("d")
    file.log.acknowledge(A, 2)
    file.write()
    assert file.seqs() == file.reload().seqs() == [3, 4]


def test_the_text_of_an_acknowledged_reply_goes_with_a_compaction():
    file = File()
    file.post("a", text="secret")
    file.log.acknowledge(A, 1)
    file.write()
    assert file.read(file.log.find("a")).text == "secret"
    file.compact()
    assert file.log.find("a").span.length == 0
    assert b"secret" not in file.data


def test_replies_that_nobody_acknowledged_for_30_days_are_given_up():
    file = File()
    file.post("old", at=AT)
    file.post("old too", at=AT + 1)
    file.post("young", at=AT + 1000)
    file.post("elsewhere", CLI, at=AT + 1000)
    assert [[stored.seq for stored in replies] for replies in file.log.given_up(AT + 100 + GIVEN_UP_AFTER_MS)] == [
        [1, 2]
    ]
    assert file.log.given_up(AT + GIVEN_UP_AFTER_MS) == []


def test_the_estimate_is_made_without_looking_through_the_replies():
    """It is made at each write once the file is large, and a client that acknowledges nothing leaves very many."""
    file = File()
    file.post("a")
    file.log.sequences = Unlistable(file.log.sequences)
    assert file.log.live_bytes == len(file.data) + 80


def test_the_estimate_of_what_a_compaction_leaves_is_near():
    file = File()
    for n in range(2_000):
        file.post(f"global/call_{n}", ChannelInfo("web", f"client-{n % 50}"), text="x" * 100)
    for n in range(50):
        file.log.acknowledge(Address("web", f"client-{n}"), 38)
    estimate = file.log.live_bytes
    file.compact()
    assert 0.5 < estimate / len(file.data) < 1.5
