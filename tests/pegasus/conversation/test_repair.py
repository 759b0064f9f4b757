import json
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegasus.conversation.entry import (
    CANCELLED,
    Entry,
    is_well_formed,
    open_calls,
    rebuild_log,
    repair_log,
    with_unique_ids,
)
from pegasus.models.base import ToolCall
from tests.pegasus.conversation.logs import logs


def call(call_id, name="reply"):
    return ToolCall(call_id, name, {})


def result(call_id, content="ok"):
    return Entry(1, "tool", content, call_id=call_id)


def user(n):
    return Entry(1, "user", f"message {n}", item=n)


def nothing(_):
    return None


def shape(entries):
    return [(e.role, e.call_id or tuple(c.id for c in e.calls)) for e in entries]


def test_a_whole_session_is_left_as_it_is():
    entries = [user(1), Entry(1, "assistant", "hm", (call("a"),)), result("a")]
    repaired = repair_log(entries, nothing, 9)
    assert repaired.entries == tuple(entries)
    assert repaired.notes == ()


def test_an_open_call_is_marked_as_cancelled():
    repaired = repair_log([user(1), Entry(1, "assistant", "", (call("a"), call("b")))], nothing, 9)
    assert [json.loads(e.content) for e in repaired.entries[2:]] == [
        {"cancelled": True, "reason": "process restarted"}
    ] * 2
    assert all(e.failed for e in repaired.entries[2:])


def test_an_open_call_whose_effect_is_recorded_elsewhere_gets_its_true_result():
    def recorded(made):
        return '{"queued":true}' if (made.call.id, made.item) == ("a", 7) else None

    repaired = repair_log([user(7), Entry(1, "assistant", "", (call("a"), call("b")))], recorded, 9)
    assert [(e.content, e.failed) for e in repaired.entries[2:]] == [('{"queued":true}', False), (CANCELLED, True)]


def test_all_open_calls_are_closed_not_only_the_last_turns():
    entries = [user(1), Entry(1, "assistant", "", (call("a"),)), user(2), Entry(1, "assistant", "", (call("b"),))]
    assert shape(repair_log(entries, nothing, 9).entries) == [
        ("user", ()),
        ("assistant", ("a",)),
        ("tool", "a"),
        ("user", ()),
        ("assistant", ("b",)),
        ("tool", "b"),
    ]


def test_a_result_that_stands_too_late_is_moved_behind_its_call():
    entries = [user(1), Entry(1, "assistant", "", (call("a"),)), user(2), result("a")]
    repaired = repair_log(entries, nothing, 9)
    assert shape(repaired.entries) == [("user", ()), ("assistant", ("a",)), ("tool", "a"), ("user", ())]
    assert repaired.notes


def test_orphans_and_second_results_are_dropped():
    entries = [result("ghost"), user(1), Entry(1, "assistant", "", (call("a"),)), result("a", "1"), result("a", "2")]
    repaired = repair_log(entries, nothing, 9)
    assert [e.content for e in repaired.entries if e.role == "tool"] == ["1"]
    assert len(repaired.notes) == 2


def test_ids_that_come_again_are_made_unique_and_keep_their_own_results():
    entries = [
        user(1),
        Entry(1, "assistant", "", (call("call_0"),)),
        result("call_0", "first"),
        Entry(1, "assistant", "", (call("call_0"),)),
        result("call_0", "second"),
    ]
    repaired = repair_log(entries, nothing, 9).entries
    assert [(e.call_id, e.content) for e in repaired if e.role == "tool"] == [
        ("call_0", "first"),
        ("call_0-2", "second"),
    ]
    assert repaired[3].calls[0].id == "call_0-2"


def test_ids_that_are_missing_or_used_are_made_unique_always_in_the_same_way():
    def ids(*given_ids):
        return [made.id for made in with_unique_ids([call(id) for id in given_ids], {"call_0"})]

    found = ids("call_9", "call_0", "call_9", "", "")
    assert found[0] == "call_9"
    assert len({"call_0", *found}) == 6
    assert ids("call_9", "call_0", "call_9", "", "") == found


@pytest.mark.parametrize("id", ["", "call_0"])
def test_a_thousand_calls_with_one_id_do_not_hold_up_the_program(id):
    """A model that runs in circles makes them, and nothing else runs while their ids are made unique."""
    used = {f"call_0-{number}" for number in range(20_000)}
    begun = process_time()
    calls = with_unique_ids([call(id)] * 1000, used)
    assert process_time() - begun < 0.1
    assert len({made.id for made in calls}) == 1000


@given(logs(), st.data())
def test_after_repair_of_any_prefix_every_call_has_exactly_one_result_behind_it(entries, data):
    cut = entries[: data.draw(st.integers(0, len(entries)))]
    repaired = repair_log(cut, nothing, 9).entries
    assert open_calls(repaired) == ()
    waiting = []
    for entry in repaired:
        if entry.role == "tool":
            assert entry.call_id == waiting.pop(0)
        else:
            assert waiting == []
            waiting = [c.id for c in entry.calls]
    ids = [c.id for e in repaired for c in e.calls]
    assert len(ids) == len(set(ids))


@given(logs(), st.data())
def test_repair_is_idempotent(entries, data):
    cut = entries[: data.draw(st.integers(0, len(entries)))]
    once = repair_log(cut, nothing, 9).entries
    again = repair_log(once, nothing, 10)
    assert again.notes == ()
    assert again.entries == once


@given(logs(), st.data())
def test_what_is_said_to_be_well_formed_is_just_what_needs_no_repair(entries, data):
    """Also with some entries left out, or out of their places."""
    some = data.draw(st.lists(st.sampled_from(entries), max_size=12)) if entries else []
    cut = entries[: data.draw(st.integers(0, len(entries)))]
    for part in (entries, cut, some, list(repair_log(some, nothing, 0).entries)):
        rebuilt = rebuild_log(part, nothing, 0)
        assert is_well_formed(part) == (not rebuilt.notes)
        assert repair_log(part, nothing, 0).entries == rebuilt.entries


def test_a_call_without_an_id_is_not_well_formed():
    entries = [Entry(0, "assistant", calls=(call(""),)), Entry(0, "tool", "ok", call_id="")]
    assert not is_well_formed(entries)
    assert repair_log(entries, nothing, 0).notes
