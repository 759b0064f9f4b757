"""The lines of a task's log."""

import json
import math

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegasus.conversation import Entry, to_json
from pegasus.formatting import format_day
from pegasus.models import ToolCall
from pegasus.tasks.core.task_events import (
    ReasonDone,
    Reasoning,
    TaskNotify,
    TaskPlan,
)
from pegasus.tasks.log.format import (
    BadTaskLine,
    is_task_id,
    parse_task_line,
    task_path,
)
from pegasus.tasks.run.stages import make_plan
from pegasus.wire import encode_line, to_wire, writable_object
from tests.pegasus.tasks.lives import (
    BEGAN,
    ID,
    E,
    Life,
    asked,
    created,
    failed,
    finished,
    reasoned,
    reflected,
    responded,
    resumed,
    said,
    suspended,
    task_lines,
    told,
    tool_done,
)


def one_of_each():
    life = Life()
    life.do(reasoned(("c1", "look", {"a": 1})))
    done = Life()
    done.do(reasoned())
    done.do(responded())
    made = [
        created(),
        reasoned(("c1", "look", {})),
        tool_done("c1"),
        tool_done("c1", ok=False),
        responded(),
        asked(),
        told(),
    ]
    made += [suspended(life.live), resumed(life.live), reflected(), finished(done.live), failed()]
    return {event.type: event for event in made}


LAW = {
    E.TASK_CREATED: "description, inputText, source, inputMetadata, taskType, cause",
    E.REASON_DONE: "reasoning, plan, newMessages",
    E.TOOL_CALL_COMPLETED: "toolName, durationMs, newMessages",
    E.TOOL_CALL_FAILED: "toolName, durationMs, newMessages",
    E.STEP_COMPLETED: "newMessages",
    E.NEED_MORE_INFO: "reasoning, question",
    E.TASK_NOTIFY: "message",
    E.TASK_SUSPENDED: "suspendedState, suspendReason, reasoning, plan, newMessages",
    E.TASK_RESUMED: "newInput, previousState, newMessages",
    E.REFLECTION_COMPLETE: "toolCallsCount, assessment",
    E.TASK_COMPLETED: "finalResult, iterations, newMessages",
    E.TASK_FAILED: "error",
}


@pytest.mark.parametrize("type", LAW, ids=lambda type: type.name)
def test_a_line_holds_what_the_interface_says(type):
    line = json.loads(task_lines(one_of_each()[type]))
    assert list(line) == ["ts", "event", "taskId", "data"]
    assert (line["ts"], line["event"], line["taskId"]) == (BEGAN, type.name, ID)
    assert list(line["data"]) == LAW[type].split(", ")


@pytest.mark.parametrize("type", LAW, ids=lambda type: type.name)
def test_an_event_is_the_same_from_its_line(type):
    made = one_of_each()[type]
    again = parse_task_line(json.loads(task_lines(made)), 7)
    assert (again.type, again.timestamp, again.task_id, again.payload) == (made.type, made.timestamp, ID, made.payload)
    assert again.data == made.data
    assert again.id == 7


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ({}, "unknown event"),
        ({"event": "TASK_TELEPORTED", "ts": 1, "taskId": "t", "data": {}}, "TASK_TELEPORTED"),
        ({"event": ["TASK_FAILED"]}, "unknown event"),
        ({"event": "TASK_FAILED", "ts": "now", "taskId": "t", "data": {}}, "ts"),
        ({"event": "TASK_FAILED", "ts": math.inf, "taskId": "t", "data": {}}, "ts"),
        ({"event": "TASK_FAILED", "ts": math.nan, "taskId": "t", "data": {}}, "ts"),
        ({"event": "TASK_FAILED", "ts": 1, "data": {}}, "taskId"),
        ({"event": "TASK_FAILED", "ts": 1, "taskId": "t", "data": []}, "data"),
    ],
)
def test_a_line_that_is_no_event_says_why(line, problem):
    with pytest.raises(BadTaskLine, match=problem):
        parse_task_line(line)


def test_what_a_newer_version_adds_is_ignored():
    line = {"event": "TASK_FAILED", "ts": 1, "taskId": "t", "data": {"error": "x", "cause": {}}, "span": "9"}
    assert parse_task_line(line).payload["error"] == "x"


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text() | st.binary() | st.just(object),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(), inner, max_size=3),
        max_leaves=8,
    )
)
def test_whatever_a_payload_holds_can_be_written_and_read_back(value):
    """A line that cannot be written would hold up the whole task system."""
    line = json.loads(task_lines(said(TaskNotify(value))).decode())
    assert line["data"]["message"] == json.loads(json.dumps(writable_object({"message": value})["message"]))


def test_endless_nesting_can_be_written():
    deep = []
    deep.append(deep)
    assert b"nested too deep" in task_lines(said(TaskNotify(deep)))


@pytest.mark.parametrize(("ms", "date"), [(-1, "1970-01-01"), (int(1e300), "9999-12-31")])
def test_a_time_without_a_date_has_the_nearest(ms, date):
    """A list of what is pending may hold such a one, and must not stop the start."""
    assert format_day(ms) == date


@pytest.mark.parametrize("bad", ["", "../x", "a/b", "x" * 65, "a.b", "ä", "a\n"])
def test_an_id_that_is_no_file_name_has_no_path(bad):
    assert not is_task_id(bad)
    with pytest.raises(ValueError, match="no task"):
        task_path(bad, "2026-02-25")
    with pytest.raises(ValueError, match="no task"):
        task_path("a", f"..{bad}")


def test_a_log_lies_in_the_folder_of_its_day():
    assert task_path(ID, format_day(BEGAN)) == f"tasks/2026-02-25/{ID}.jsonl"


VALUES = st.recursive(st.none() | st.booleans() | st.floats() | st.text(max_size=3), lambda v: st.lists(v, max_size=2))
CALLS = st.builds(
    ToolCall,
    st.text(max_size=2),
    st.text(max_size=2),
    st.dictionaries(st.text(max_size=2), VALUES, max_size=2),
    st.none() | st.text(),
)


@given(st.lists(CALLS, max_size=3), st.text(), st.booleans(), st.text(), st.booleans())
def test_a_thought_is_written_as_every_value_is(calls, text, unsure, goal, done):
    reasoning = Reasoning(text, "tool_use" if calls else "direct", unsure, tuple(calls))
    steps = make_plan(reasoning, goal).steps
    made = TaskPlan(goal, tuple(attrs.evolve(step, completed=done) for step in steps))
    turn = Entry(BEGAN, "assistant", text)
    payload = said(ReasonDone(reasoning, made, (turn,))).payload
    law = {"reasoning": to_wire(reasoning), "plan": to_wire(made), "newMessages": [to_json(turn)]}
    assert encode_line(payload) == encode_line(writable_object(law))
