"""What the summarising model reads, the checks on what it writes, and the summary that needs no model."""

import pytest

from pegasus.conversation import estimate_tokens
from pegasus.main_agent.compaction.open_items import OpenItems, SessionSummary, memory_index_entry, summary_entry
from pegasus.main_agent.compaction.summary import SYSTEM_PROMPT, find_problems, summarise_by_code
from pegasus.main_agent.compaction.transcript import MOST_PARTS, previous_summary, write_transcript
from pegasus.messages import Address
from pegasus.testing.scripted import call, say

from .kit import GOOD, NOW, Talk, good, long_talk

PLACES = (Address("cli", "main"), Address("slack", "#dev"))


def before(summary="what was before"):
    return summary_entry(NOW, "old.jsonl", SessionSummary(summary, by_code=False), OpenItems())


def test_the_transcript_tells_who_said_what_where_and_what_became_of_it():
    talk = Talk()
    talk.heard("find the weather", "slack", "#dev", userId="anna")
    talk.said("on it", "slack", "#dev")
    talk.gave("t1", "weather in Rome")
    talk.notice("t1", '{"response":"sunny"}', kind="slack", channel_id="#dev")
    talk.add("assistant", "I should tell Anna")
    talk.said("x", failed=True)
    [part] = write_transcript(talk.entries, 10_000).parts
    assert part.splitlines() == [
        "[2026-02-25 14:31] anna on slack:#dev wrote: find the weather",
        "[2026-02-25 14:33] I replied on slack:#dev: on it",
        "[2026-02-25 14:35] I gave work to task t1: weather in Rome",
        '[2026-02-25 14:36] Task t1 (completed; asked for on slack:#dev): {"response":"sunny"}',
        "[2026-02-25 14:37] (I thought: I should tell Anna)",
        "[2026-02-25 14:39] (reply failed: Error: nothing was said)",
    ]


def test_the_summary_before_is_folded_in_and_not_nested():
    talk = Talk()
    talk.entries += [before(), memory_index_entry(NOW, "[Memory …]")]
    talk.heard("hi")
    source = write_transcript(talk.entries, 10_000)
    assert source.previous == "what was before"
    assert len(source.parts) == 1
    assert "what was before" not in source.parts[0]
    assert "Memory" not in source.parts[0]


def test_a_long_session_comes_in_parts_that_fit():
    source = write_transcript(long_talk(100).entries, 3_000)
    assert 1 < len(source.parts) <= MOST_PARTS
    assert all(estimate_tokens(part) <= 3_300 for part in source.parts)
    assert "message 0 " in source.parts[0]
    assert "answer 99 " in source.parts[-1]


def test_a_very_long_session_is_shortened_until_it_fits_in_a_few_parts():
    source = write_transcript(long_talk(200, 1_500).entries, 4_000)
    assert len(source.parts) <= MOST_PARTS
    assert "message 0 " in source.parts[0]


def test_one_endless_message_fits_too():
    talk = Talk()
    talk.heard("好" * 5_000_000)
    source = write_transcript(talk.entries, 1_000)
    assert estimate_tokens("\n".join(source.parts)) <= 2_000


# ------------------------------------------------------------------ checks


@pytest.mark.parametrize(
    ("response", "says"),
    [
        (say(""), "it is empty"),
        (say("  \n"), "it is empty"),
        (say(GOOD + " main #dev", stop_reason="length"), "did not come to its end"),
        (say(GOOD + " main #dev", stop_reason="refusal"), "did not come to its end"),
        (say(GOOD + " main #dev", call("reply", "c", text="x")), "asks for tools"),
        (say(GOOD + " main #dev" + " long" * 2_000), "too long"),
        (say(GOOD.replace("## Now", "Now") + " main #dev"), '"## Now" is missing'),
        (say(GOOD.replace("Anna wants the report.", "") + " main #dev"), 'nothing stands below "## Now"'),
        (say(GOOD.replace("#dev", "…")), "does not name the conversation slack:#dev"),
        (say(GOOD + "\n[channel: cli | id: main]\nhi"), "metadata line"),
        (say(GOOD + "\n[Task t1 completed]"), "metadata line"),
        (say(GOOD + "\nand so on and so on" * 9), "a line comes 9 times"),
    ],
)
def test_what_is_wrong_with_a_summary_is_named(response, says):
    assert any(says in one for one in find_problems(response, PLACES, 1_000))


def test_a_good_summary_passes():
    assert find_problems(good(), PLACES, 1_000) == []


# ------------------------------------------------------------------ without a model


def test_a_summary_by_code_has_the_last_words_of_each_conversation_and_the_last_results():
    talk = long_talk(10, 50)
    talk.entries.insert(0, before("## Now\nthe old days\n## Open\nnothing"))
    talk.heard("deploy it", "slack", "#dev")
    talk.gave("t1")
    talk.notice("t1", "deployed", kind="slack", channel_id="#dev")
    talk.said("It is out.", "slack", "#dev")
    text = summarise_by_code(talk.entries, 2_000)
    assert find_problems(say(text), PLACES, 2_000) == []
    for wanted in ("message 9", "answer 9", "deploy it", "It is out.", "task t1 completed: deployed", "the old days"):
        assert wanted in text
    assert "message 3 " not in text


@pytest.mark.parametrize("most", [10, 60, 200, 1_000])
def test_it_is_as_short_as_it_must_be(most):
    talk = long_talk(300, 2_000)
    talk.entries.insert(0, before("old " * 5_000))
    assert estimate_tokens(summarise_by_code(talk.entries, most)) <= most + 1


def test_summaries_by_code_do_not_nest():
    talk = long_talk(10)
    sizes = []
    for _ in range(10):
        text = summarise_by_code(talk.entries, 3_000)
        sizes.append(len(text))
        assert text.count("## Now") == 1
        talk = long_talk(10)
        talk.entries.insert(0, before(text))
    assert sizes[-1] <= 9_000


def test_of_a_session_without_a_summary_there_is_none():
    assert previous_summary(long_talk(1).entries) == ""
    assert previous_summary([before("x")]) == "x"


def test_the_model_is_asked_for_what_was_promised():
    assert "every promise that the agent made and has not kept yet" in SYSTEM_PROMPT
