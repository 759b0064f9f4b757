"""When a call is the same as the one before, and when it is enough."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegasus.conversation import NOT_REPEATED, Entry, RepetitionGuard
from pegasus.conversation.repetition import call_signature
from pegasus.models import ToolCall


class Talk:
    """A conversation of a task that makes one call after the other, as `Stages.act` does."""

    def __init__(self, repeating=()):
        self.entries = [Entry(1, "user", "do it")]
        self.repeating = repeating
        self.notes = 0
        self.made = 0

    def make(self, name, arguments, content, failed=False):
        call = ToolCall(f"c{len(self.entries)}", name, arguments)
        guard = RepetitionGuard(self.entries, self.repeating)
        is_refused = call.id in guard.surplus([call])
        self.made += not is_refused
        result = Entry(
            2,
            "tool",
            NOT_REPEATED if is_refused else content,
            call_id=call.id,
            failed=failed,
        )
        note = guard.note(call, result)
        self.notes += note is not None
        self.entries += [Entry(2, "assistant", "", (call,)), result, *([note] if note else [])]
        return "refused" if is_refused else "noted" if note else "made"

    @property
    def problem(self):
        return RepetitionGuard(self.entries, self.repeating).problem


def test_the_third_same_result_is_noted_and_a_fourth_call_is_refused():
    talk = Talk()
    assert [talk.make("look", {"x": 1}, '{"a":1}') for _ in range(4)] == ["made", "made", "noted", "refused"]
    assert talk.problem == ""
    assert talk.make("look", {"x": 1}, '{"a":1}') == "refused"
    assert "look was called 5 times in a row" in talk.problem


def test_another_call_between_begins_anew():
    talk = Talk()
    for _ in range(4):
        assert talk.make("look", {"x": 1}, "a") == "made"
        assert talk.make("look", {"x": 1}, "a") == "made"
        assert talk.make("look", {"x": 2}, "a") == "made"


def test_a_refused_call_may_be_made_again_after_another_one():
    talk = Talk()
    for _ in range(4):
        talk.make("look", {}, "a")
    talk.make("other", {}, "a")
    assert talk.make("look", {}, "a") == "made"


def test_a_result_that_changes_is_no_repetition():
    talk = Talk()
    assert {talk.make("look", {}, f"{n}") for n in range(20)} == {"made"}
    assert [talk.make("look", {}, "19") for _ in range(3)] == ["made", "noted", "refused"]


def test_durations_and_headers_do_not_count_as_a_change():
    talk = Talk()
    results = (json.dumps({"exitCode": 0, "durationMs": n, "headers": {"date": f"{n}"}}) for n in range(9))
    assert [talk.make("run", {}, next(results)) for _ in range(4)] == ["made", "made", "noted", "refused"]


def test_an_error_is_another_result_than_the_same_text():
    talk = Talk()
    talk.make("look", {}, "a")
    talk.make("look", {}, "a", failed=True)
    assert talk.make("look", {}, "a") == "made"


def test_tools_that_wait_may_be_called_again_and_again():
    talk = Talk({"sleep"})
    assert {talk.make("sleep", {"duration": 1}, "slept") for _ in range(20)} == {"made"}


def test_a_new_message_of_a_person_begins_anew():
    talk = Talk()
    for _ in range(4):
        talk.make("look", {}, "a")
    talk.entries.append(Entry(3, "user", "memory", metadata={"type": "memory_index"}))
    assert talk.make("look", {}, "a") == "refused"
    talk.entries.append(Entry(3, "user", "try again"))
    assert talk.make("look", {}, "a") == "made"


def test_calls_side_by_side_do_not_count_against_each_other():
    calls = [ToolCall(f"c{n}", "look", {}) for n in range(5)]
    assert RepetitionGuard([]).surplus(calls) == frozenset()
    talk = Talk()
    for _ in range(3):
        talk.make("look", {}, "a")
    guard = RepetitionGuard(talk.entries)
    assert guard.surplus(calls) == {call.id for call in calls}
    assert guard.surplus([calls[0], ToolCall("x", "other", {}), calls[1]]) == {"c0"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(max_size=3), JSON, max_size=4), st.dictionaries(st.text(max_size=3), JSON, max_size=4))
def test_signatures_are_the_same_for_equal_arguments_only(first, second):
    def signature(arguments):
        return call_signature(ToolCall("c", "look", arguments))

    assert signature(first) == signature(dict(reversed(first.items())))
    is_same = json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)
    assert (signature(first) == signature(second)) == is_same


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xy")), max_size=30))
def test_a_restart_at_any_place_changes_nothing(script):
    """The guard is made of the entries anew for each call here, as after a restart. Never are four same ones carried out in a row."""
    talk, row = Talk(), []
    for name, content in script:
        done = talk.make(name, {}, content)
        if done != "refused":
            row = [*row, (name, content)]
            assert len(row) < 4 or len(set(row[-4:])) > 1


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"a":', '{"durationMs": 1'])
def test_results_of_any_form_are_compared(content):
    talk = Talk()
    assert [talk.make("look", {}, content) for _ in range(4)] == ["made", "made", "noted", "refused"]
