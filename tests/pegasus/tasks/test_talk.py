"""The turns of a task, kept up to date: the same as if they were made anew each time."""

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st

from pegasus.conversation import Entry
from pegasus.models.base import ToolCall
from pegasus.tasks.cognition.talk import Talk, turns_of

IDS = st.sampled_from(["a", "b", "c", ""])
ENTRIES = st.one_of(
    st.builds(Entry, ts=st.just(1), role=st.sampled_from(["user", "system"]), content=st.sampled_from(["", "hi", "x"])),
    st.builds(
        Entry,
        ts=st.just(1),
        role=st.just("assistant"),
        content=st.sampled_from(["", "well"]),
        calls=st.lists(st.builds(ToolCall, IDS, st.just("look"), st.just({})), max_size=3).map(tuple),
    ),
    st.builds(Entry, ts=st.just(1), role=st.just("tool"), content=st.just("done"), call_id=IDS),
)


def plain(turns):
    return [attrs.asdict(turn, filter=lambda field, value: field.name != "fragments") for turn in turns]


def asked(*ids):
    return Entry(1, "assistant", "", tuple(ToolCall(id, "look", {}) for id in ids))


def done(id):
    return Entry(1, "tool", "done", call_id=id)


@settings(max_examples=300, deadline=None)
@given(st.lists(ENTRIES, max_size=12), st.lists(st.integers(0, 12), max_size=6))
def test_whatever_it_is_told_piece_by_piece_it_says_what_is_made_at_once(entries, stops):
    talk = Talk()
    for stop in [*sorted(stops), len(entries)]:
        assert plain(talk.turns(entries[:stop], 1)) == plain(turns_of(entries[:stop], 1))


def test_turns_come_again_as_the_same_objects():
    talk = Talk()
    entries = [Entry(1, "user", "go"), asked("a", "b"), done("a"), done("b")]
    first = talk.turns(entries, 1)
    second = talk.turns([*entries, asked("c"), done("c")], 1)
    assert [id(turn) for turn in second[: len(first)]] == [id(turn) for turn in first]


def test_a_call_without_a_result_is_mended_and_its_result_taken_up_later():
    talk = Talk()
    entries = [Entry(1, "user", "go"), asked("a", "b"), done("a")]
    assert plain(talk.turns(entries, 1)) == plain(turns_of(entries, 1))
    entries.append(done("b"))
    assert plain(talk.turns(entries, 1)) == plain(turns_of(entries, 1))


def test_it_notices_another_conversation():
    talk = Talk()
    talk.turns([Entry(1, "user", "one"), asked("a"), done("a")], 1)
    other = [Entry(1, "user", "two"), asked("b"), done("b")]
    assert plain(talk.turns(other, 1)) == plain(turns_of(other, 1))
