"""What is summarised and what stays."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegasus.conversation import cut_middle, entry_tokens, shorten_entries
from pegasus.conversation.entry import Entry
from pegasus.conversation.shortening import SHORTEST
from pegasus.main_agent.compaction.open_items import OpenItems, SessionSummary, summary_entry
from pegasus.main_agent.compaction.planning import (
    plan_compaction,
)

from .kit import NOW, Talk, is_well_formed, long_talk


def weights(entries):
    return sum(map(entry_tokens, entries))


def test_the_newest_messages_stay_within_the_room_there_is():
    entries = long_talk().entries
    made = plan_compaction(entries, (), 2_000)
    assert [*made.summarised, *made.kept] == entries
    assert 1_000 < weights(made.kept) <= 2_000


def test_the_cut_is_before_a_message_and_never_inside_a_thought():
    entries = long_talk().entries
    for keep in range(0, 6_000, 37):
        made = plan_compaction(entries, (), keep)
        assert not made.kept or made.kept[0].item is not None
        assert is_well_formed(made.kept)
        assert is_well_formed(made.summarised)


def test_a_running_item_stays_whole_however_long_it_is():
    talk = long_talk(3)
    start = talk.heard("now")
    for n in range(50):
        talk.called("memory_read", "z" * 1_000, path=str(n))
    made = plan_compaction(talk.entries, {talk.last_item}, 10)
    assert made.kept[0] is start
    assert len(made.kept) == 101


def test_of_several_running_items_the_first_one_counts():
    talk = long_talk(3)
    first = talk.heard("first")
    talk.heard("second")
    made = plan_compaction(talk.entries, {talk.last_item, talk.last_item - 1}, 10)
    assert made.kept[0] is first


def test_with_nothing_running_all_may_go():
    assert plan_compaction(long_talk(3).entries, (), 10).kept == []


def test_a_summary_alone_is_not_summarised_again():
    talk = Talk()
    talk.entries.append(summary_entry(NOW, "a.jsonl", SessionSummary("s", by_code=False), OpenItems()))
    talk.heard("hi")
    assert not plan_compaction(talk.entries, {talk.last_item}, 10).is_worth_it
    assert plan_compaction(talk.entries, (), 0).is_worth_it


def test_attached_pictures_count():
    plain = Entry(NOW, "user", "look", item=1)
    picture = Entry(NOW, "user", "look", item=1, metadata={"media": [{"name": "a.png", "mime": "image/png"}]})
    assert entry_tokens(picture) > entry_tokens(plain) + 1_000


# ------------------------------------------------------------------ shortening


def running(size=5_000, thoughts=5):
    talk = Talk()
    talk.heard("q" * size)
    for _ in range(thoughts):
        talk.called(
            "memory_write",
            "r" * size,
            text="t" * size,
            path="facts/x.md",
            content="c" * size,
            more=[{"deep": "d" * size}],
        )
    return talk.entries


def test_shortened_entries_are_the_same_thoughts_with_the_same_calls():
    entries = running()
    fewer = shorten_entries(entries, 2_000)
    assert weights(fewer) <= 2_000
    assert is_well_formed(fewer)
    assert [(e.role, e.item, [c.id for c in e.calls], e.call_id) for e in fewer] == [
        (e.role, e.item, [c.id for c in e.calls], e.call_id) for e in entries
    ]
    assert fewer[1].calls[0].arguments["path"] == "facts/x.md"
    assert "left out" in fewer[1].calls[0].arguments["more"][0]["deep"]


def test_shortening_ends_where_nothing_is_long():
    entries = running()
    fewer = shorten_entries(entries, 10)
    assert shorten_entries(fewer, 10) is None
    assert max(len(e.content) for e in fewer) <= SHORTEST


def test_pictures_are_the_last_thing_that_is_left_out():
    media = [{"name": "a.png", "mime": "image/png"}]
    entries = [Entry(NOW, "user", "x" * 10_000, item=1, metadata={"media": media})]
    assert shorten_entries(entries, 4_000)[0].metadata["media"] == media
    bare = shorten_entries(entries, 100)
    assert "media" not in bare[0].metadata
    assert "attached" in bare[0].content
    assert bare[0].item == 1


def test_thinking_stays_with_the_last_turn_only():
    talk = Talk()
    talk.heard("x" * 9_000)
    for _ in range(2):
        talk.add("assistant", "thought", metadata={"thinking": [{"type": "thinking"}], "thinkingOf": "anthropic"})
    fewer = shorten_entries(talk.entries, 500)
    assert "thinking" not in fewer[1].metadata
    assert fewer[2].metadata["thinkingOf"] == "anthropic"


@given(st.text(max_size=400), st.integers(1, 300))
def test_a_clipped_text_is_whole_or_as_long_as_it_may_be(text, most):
    found = cut_middle(text, most)
    assert len(found) <= most
    if len(text) <= most:
        assert found == text
    elif most > 100:
        assert "left out" in found
        assert found[0] == text[0]
        assert found[-1] == text[-1]


@pytest.mark.parametrize("keep", [0, 1, 10**9])
def test_an_empty_session(keep):
    made = plan_compaction([], (), keep)
    assert not made.is_worth_it
    assert shorten_entries([], 1) is None
