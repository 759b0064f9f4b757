"""The inbox without a disk: accepting, recognising, taking, undoing, and coming back from its own file."""

from __future__ import annotations

import json
import math
from functools import partial

import attrs
import pytest

from pegasus.json_lines import Line
from pegasus.messages import APART, Address, ChannelInfo, InboundMessage
from pegasus.storage.directory import Directory
from pegasus.storage.inbox import InboxLog, message_in
from pegasus.storage.inbox_messages import Accepted, Discard, Overloaded

from .conftest import AT, LogFile


def message(id, text="hi", channel=("web", "c1")):
    return InboundMessage(text, ChannelInfo(*channel), id)


class File(LogFile):
    def __init__(self, data=b"", **options):
        self.directory = Directory()
        super().__init__(InboxLog(self.directory, **options), data)

    def accept(self, id, lane="main", priority=0, **more):
        result = self.log.accept(message(id, **more), lane, AT, priority)
        self.write()
        return result

    def texts(self, lane="main"):
        """What is waiting in the lane, read from the file."""
        return [self.read(pending) for pending in self.log.queue.of(lane)]

    def read(self, pending):
        return message_in(self.part(pending.span)).id


def state(file):
    """Everything that counts, comparable."""
    log = file.log
    return (
        log.last_n,
        list(log.ids.items()),
        {
            name: [(p.n, p.priority, p.span, p.turn) for p in items.values()]
            for name, items in log.queue._lanes.items()
            if items
        },
        dict(log.notes),
        list(file.directory),
    )


# ------------------------------------------------------------------ accepting


def test_items_are_numbered_and_taken_in_order():
    file = File()
    assert [file.accept(id) for id in "abc"] == [Accepted(n, duplicate=False) for n in (1, 2, 3)]
    assert file.log.queue.due("main").message == message("a")
    file.log.done(1)
    assert file.log.queue.due("main").message == message("b")
    assert file.log.queue.count_waiting() == 2


def test_the_same_id_again_is_the_same_message():
    file = File()
    assert file.accept("a") == Accepted(1, duplicate=False)
    assert file.accept("a") == Accepted(1, duplicate=True)
    file.log.done(1)
    assert file.accept("a", text="other words") == Accepted(1, duplicate=True)
    assert file.log.queue.count_waiting() == 0


def test_the_same_id_twice_in_one_batch_is_one_message():
    file = File()
    assert not file.log.accept(message("a"), "main", AT).duplicate
    assert file.log.accept(message("a"), "main", AT).duplicate
    file.write()
    assert file.log.queue.count_waiting() == 1


@pytest.mark.parametrize("other", [("web", "c2"), ("cli", "c1"), ("we", "bc1"), ("web1", "c")])
def test_an_id_counts_within_its_address(other):
    file = File()
    file.accept("1a")
    assert not file.accept("1a", channel=other).duplicate


def test_user_and_thread_do_not_matter_for_an_id():
    file = File()
    file.accept("a")
    again = InboundMessage("hi", ChannelInfo("web", "c1", "somebody", "thread"), "a")
    assert file.log.accept(again, "main", AT).duplicate


def test_lanes_are_apart():
    file = File()
    file.accept("a")
    file.accept("/stop", "control")
    assert file.log.queue.due("control").n == 2
    assert file.log.queue.due("main").n == 1
    assert file.log.queue.due("elsewhere") is None


def test_beyond_max_waiting_a_lane_is_overloaded_but_knows_what_it_has():
    file = File(max_waiting=2)
    file.accept("a")
    file.accept("b")
    assert file.accept("c") == Overloaded(2)
    assert file.accept("a") == Accepted(1, duplicate=True)
    assert file.accept("/stop", "control") == Accepted(3, duplicate=False)
    file.log.done(1)
    assert file.accept("c") == Accepted(4, duplicate=False)


@pytest.mark.parametrize("limits", [{"most": 2}, {"of_sender": 2}], ids=["of all", "of a sender"])
def test_messages_of_one_batch_count_before_they_are_written(limits):
    """Many that come at once pass no limit by coming at once; nor do more after they are on disk."""
    file = File(max_waiting=limits.get("most", 100))
    batch = [
        file.log.accept(message(f"m{n}"), "main", AT, 1, max_of_sender=limits.get("of_sender", 0)) for n in range(4)
    ]
    assert [isinstance(answer, Accepted) for answer in batch] == [True, True, False, False]
    assert {answer.waiting for answer in batch[2:]} == {2}
    file.write()
    assert file.texts() == ["m0", "m1"]
    assert isinstance(file.accept("late", priority=1), Accepted) is ("most" not in limits)


def test_a_flood_of_others_does_not_shut_out_the_most_urgent():
    file = File(max_waiting=20)
    assert [type(file.accept(f"m{n}", priority=1)) for n in range(21)] == [Accepted] * 20 + [Overloaded]
    assert [type(file.accept(f"o{n}")) for n in range(21)] == [Accepted] * 20 + [Overloaded]
    assert file.accept("again", priority=1) == Overloaded(20)


@pytest.mark.parametrize("priority", [-1, 10])
def test_a_priority_that_does_not_exist_is_refused_and_leaves_no_trace(priority):
    file = File()
    before = state(file)
    with pytest.raises(ValueError, match="priority"):
        file.accept("a", priority=priority)
    assert state(file) == before


def test_the_priority_survives_a_reload_and_a_compaction():
    file = File()
    for id, priority in zip("abcd", (9, 2, 0, 1), strict=True):
        file.accept(id, priority=priority)
    file.log.done(3)
    file.write()
    for again in (file.reload(), (file.compact(), file.reload())[1]):
        order = []
        while pending := again.log.queue.due("main"):
            order.append((again.read(pending), pending.priority))
            again.log.done(pending.n)
        assert order == [("d", 1), ("b", 2), ("a", 9)]


def test_a_priority_of_another_version_is_brought_within_limits():
    data = b"".join(
        b'{"type":"message","n":%d,"at":1,"rank":%b,"message":{"text":"","id":"%d",'
        b'"channel":{"type":"web","channelId":"c"}}}\n' % (n, priority, n)
        for n, priority in ((1, b"-5"), (2, b"77"), (3, b"1e999"))
    )
    file = File(data)
    assert file.problems == []
    assert [file.log.queue.item(n).priority for n in (1, 2, 3)] == [0, 9, 9]


def test_only_so_many_ids_are_recognised():
    file = File(remembered=3)
    for id in "abcd":
        file.accept(id)
    assert [file.accept(id).duplicate for id in "dcb"] == [True] * 3
    assert not file.accept("a").duplicate


def test_what_is_no_json_is_refused_and_leaves_no_trace():
    file = File()
    before = state(file)
    with pytest.raises(ValueError, match="JSON"):
        file.log.accept(InboundMessage("", ChannelInfo("web", "c"), "x", {"a": float("nan")}), "main", AT)
    assert state(file) == before
    assert file.log.unwritten() == b""


def test_done_of_what_is_not_there_is_ignored():
    file = File()
    file.log.done(17)
    assert not file.log.notes


def test_large_messages_are_not_held_in_memory():
    file = File()
    for id, size in (("a", 3_000), ("b", 30_000), ("c", 3_000)):
        file.accept(id, text="x" * size)
    assert [file.log.queue.item(n).message is not None for n in (1, 2, 3)] == [True, False, True]
    assert file.texts() == list("abc")


# ------------------------------------------------------------------ staging


def test_what_is_dropped_never_happened():
    file = File()
    for id in "ab":
        file.accept(id)
    file.log.done(1)
    before, unwritten = state(file), file.log.unwritten()
    for id in "cdc":
        file.log.accept(message(id, channel=("web", id)), "main", AT)
    file.log.accept(message("e"), "control", AT)
    assert len(file.log.staged) == 3
    file.log.drop_staged()
    assert state(file) == before
    assert file.log.unwritten() == unwritten
    assert file.accept("c", channel=("web", "c")) == Accepted(3, duplicate=False)


def test_what_is_owed_is_written_before_what_is_staged():
    file = File()
    file.accept("a")
    file.log.done(1)
    file.log.accept(message("b"), "main", AT)
    file.write()
    assert [json.loads(line)["type"] for line in file.data.splitlines()] == ["message", "done", "message"]
    assert file.texts() == ["b"]


def test_the_record_is_as_documented():
    file = File()
    file.log.accept(InboundMessage("hällo", ChannelInfo("web", "c1", "u1"), "m-1", {"k": 1}), "control", AT, 2)
    file.log.connected("cli", "main")
    file.write()
    file.log.done(1)
    file.write()
    assert [json.loads(line) for line in file.data.splitlines()] == [
        {"type": "address", "channel": {"type": "cli", "channelId": "main"}},
        {
            "type": "message",
            "n": 1,
            "at": AT,
            "lane": "control",
            "rank": 2,
            "message": {
                "text": "hällo",
                "channel": {"type": "web", "channelId": "c1", "userId": "u1"},
                "id": "m-1",
                "metadata": {"k": 1},
            },
        },
        {"type": "done", "n": 1},
    ]


# ------------------------------------------------------------------ addresses


def test_addresses_of_messages_and_of_connections_are_known_afterwards():
    file = File()
    file.accept("a", channel=("web", "c1"))
    file.log.connected("cli", "main")
    file.log.connected("cli", "main")
    file.log.connected("sms", None)
    file.write()
    again = file.reload()
    assert list(again.directory) == [Address("web", "c1"), Address("cli", "main")]
    assert not again.directory.has_bridge("sms")


def test_a_guest_is_heard_once_their_message_is_written():
    file = File(max_waiting=1)
    guest, report = message("g", channel=("sms", "1")), message("\x1fr", channel=("sms", "1"))
    accept = partial(file.log.accept, lane="main", at=AT)
    assert isinstance(accept(message("z", channel=("sms", "2")), priority=1), Accepted)
    assert isinstance(accept(attrs.evolve(guest, metadata={APART: True}), priority=1), Overloaded)
    assert file.directory.heard == {}, "it was refused"
    file.log.drop_staged()
    accept(attrs.evolve(guest, metadata={APART: True}), priority=1)
    accept(report, priority=0)
    assert [item.is_apart for item, _ in file.log.staged.values()] == [True, True], (
        "what is staged counts for what follows"
    )
    file.log.drop_staged()
    accept(report, priority=0)
    assert [item.is_apart for item, _ in file.log.staged.values()] == [False]
    file.write()
    accept(attrs.evolve(guest, metadata={APART: True}), priority=1)
    file.write()
    assert file.directory.heard == file.reload().directory.heard == {Address("sms", "1"): guest.account}


# ------------------------------------------------------------------ loading


def test_a_reload_gives_the_same_state():
    file = File()
    for id in "abcd":
        file.accept(id, "control" if id == "b" else "main")
    file.log.done(3)
    file.write()
    again = file.reload()
    assert state(again)[:3] == state(file)[:3]
    assert again.texts() == ["a", "d"]
    assert again.texts("control") == ["b"]
    assert again.accept("c").duplicate
    assert again.accept("e") == Accepted(5, duplicate=False)


def test_items_done_but_not_written_as_done_come_again():
    file = File()
    file.accept("a")
    file.log.done(1)
    assert file.reload().texts() == ["a"]


def test_attempts_begin_anew_in_a_new_process():
    file = File()
    file.accept("a")
    for _ in range(2):
        file.log.queue.hand_out(file.log.queue.due("main"))
    assert file.reload().log.queue.due("main").attempts == 0


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"type": "from the future"},
        {"type": ["message"]},
        {"type": "message"},
        {"type": "message", "n": "x", "message": {}},
        {"type": "message", "n": 1, "message": []},
        {"type": "message", "n": 1, "message": {"text": "", "id": "1", "channel": {"type": 5, "channelId": "x"}}},
        {"type": "message", "n": 1, "message": {"text": 5, "id": "1", "channel": {"type": "a", "channelId": "x"}}},
        {
            "type": "message",
            "n": 1,
            "lane": 5,
            "message": {"text": "", "id": "1", "channel": {"type": "a", "channelId": "x"}},
        },
        {
            "type": "message",
            "n": 1,
            "rank": "urgent",
            "message": {"text": "", "id": "1", "channel": {"type": "a", "channelId": "x"}},
        },
        {
            "type": "message",
            "n": -4,
            "message": {"text": "", "id": "1", "channel": {"type": "a", "channelId": "x"}},
        },
        {
            "type": "message",
            "n": 1 << 64,
            "message": {"text": "", "id": "1", "channel": {"type": "a", "channelId": "x"}},
        },
        {"type": "done", "n": None},
        {"type": "done", "n": math.inf},
        {"type": "ids", "packed": "!"},
        {"type": "ids", "packed": "AAAA"},
        {"type": "address", "channel": None},
        {"type": "addresses", "known": [["a"]]},
        {"type": "compacted"},
        {"type": "compacted", "lastN": math.inf},
    ],
    ids=range(20),
)
def test_a_record_of_another_kind_is_told_and_changes_nothing(record):
    file = File()
    file.accept("a")
    before = state(file)
    assert file.log.replay(Line(2, 100, 10, record))
    assert state(file) == before


def test_the_number_of_an_item_whose_line_is_damaged_is_not_given_again():
    file = File(b'{"type":"done","n":41}\n')
    assert file.accept("a") == Accepted(42, duplicate=False)


# ------------------------------------------------------------------ compaction


def test_a_compaction_keeps_what_counts():
    file = File()
    for n in range(50):
        file.accept(f"m{n}", channel=("web", f"c{n}"))
    file.log.connected("cli", "main")
    for n in range(1, 51):
        if n not in (7, 8, 30):
            file.log.done(n)
    file.write()
    before, size = state(file), len(file.data)
    file.compact()
    assert len(file.data) < size
    assert file.texts() == ["m6", "m7", "m29"]
    again = file.reload()
    assert again.problems == []
    for one in (file, again):
        assert one.texts() == ["m6", "m7", "m29"]
        assert list(one.directory) == before[-1]
        assert all(one.accept(f"m{n}", channel=("web", f"c{n}")).duplicate for n in range(50))
        assert one.accept("new") == Accepted(51, duplicate=False)


def test_compacting_twice_changes_nothing():
    file = File()
    for id in "abc":
        file.accept(id)
    file.log.done(2)
    file.compact()
    once = bytes(file.data)
    file.compact()
    assert bytes(file.data) == once


def test_what_is_owed_is_in_the_compaction():
    file = File()
    file.accept("a")
    file.log.done(1)
    file.compact()
    assert not file.log.notes
    assert file.reload().texts() == []


def test_after_a_compaction_the_file_goes_on():
    file = File()
    for id in "abc":
        file.accept(id)
    file.log.done(1)
    file.compact()
    file.accept("d")
    file.log.done(3)
    file.write()
    assert file.texts() == file.reload().texts() == ["b", "d"]


def test_all_remembered_ids_survive_a_compaction_in_order():
    file = File(remembered=2_500)
    for n in range(3_000):
        file.log.accept(message(f"{n}"), "main", AT)
        file.write()
        file.log.done(n + 1)
    file.compact()
    again = file.reload(remembered=2_500)
    assert list(again.log.ids.items()) == list(file.log.ids.items())
    assert 2_500 <= len(again.log.ids) <= 2_550


def test_the_estimate_of_what_a_compaction_leaves_is_near():
    file = File()
    for n in range(2_000):
        file.accept(f"m{n}", text="x" * 100, channel=("web", f"client-{n}"), lane="control" if n % 2 else "main")
        if n % 10:
            file.log.done(n + 1)
    estimate = file.log.live_bytes
    file.compact()
    assert 0.8 < estimate / len(file.data) < 1.2


def test_a_mostly_done_inbox_is_small():
    """50,000 ids to recognise are about a megabyte, not the messages they came with."""
    file = File(max_waiting=10)
    for n in range(5_000):
        file.log.accept(message(f"{n}", text="x" * 200), "main", AT)
        file.write()
        file.log.done(n + 1)
    file.compact()
    assert len(file.data) < 5_000 * 25


# ------------------------------------------------------------------ discarding


def discard(file, before, *, id="report", channel=("web", "c1"), owner=True):
    report = InboundMessage("gone", ChannelInfo(*channel), id, metadata={"type": "discarded"})
    return file.log.discard(Discard(None, report, before, 1, 2, owner), AT)


def test_discarded_messages_are_replaced_by_the_report_also_after_a_reload():
    file = File()
    for id in "abc":
        file.accept(id)
    file.accept("other", channel=("web", "c2"))
    file.accept("/stop all", lane="control")
    file.accept("later")
    file.log.queue.hand_out(file.log.queue.due("main"))  # "a" is at work
    assert discard(file, before=5) == 2
    assert file.log.queue.count_waiting(lane="main") == 5, "nothing is dropped before it is on disk"
    file.write()
    for found in (file, file.reload()):
        texts = found.texts()
        assert sorted(texts) == ["a", "later", "other", "report"]
        report = next(item for item in found.log.queue.of("main") if found.read(item) == "report")
        assert message_in(found.part(report.span)).metadata == {"type": "discarded", "discarded": 2}
        assert found.accept("b") == Accepted(2, duplicate=True)
    file.compact()
    assert sorted(file.reload().texts()) == ["a", "later", "other", "report"]


def test_the_same_discard_again_drops_nothing_more():
    file = File()
    file.accept("a")
    assert discard(file, before=2) == 1
    file.write()
    file.accept("b")
    assert discard(file, before=9) is None
    file.write()
    assert sorted(file.reload().texts()) == ["b", "report"]


def test_a_discard_that_finds_nothing_or_is_dropped_leaves_no_trace():
    file = File()
    assert discard(file, before=9) == 0
    assert not file.log.staged
    file.accept("a")
    assert discard(file, before=9) == 1
    file.log.drop_staged()
    file.write()
    assert file.texts() == ["a"]


def test_somebody_else_than_an_owner_discards_their_own_messages_only():
    file = File()
    group = ("slack", "#all")
    for id, user, priority in (("mine", "bob", 1), ("ann's", "ann", 1), ("owner's", "bob", 0), ("report's", "bob", 2)):
        file.log.accept(InboundMessage("x", ChannelInfo(*group, user), id), "main", AT, priority)
        file.write()
    assert discard(file, before=9, channel=(*group, "bob"), owner=False) == 1
    file.write()
    assert sorted(file.reload().texts()) == ["ann's", "owner's", "report", "report's"]
