"""The task of a log is the task that lived, whatever became of the file."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pegasus.conversation import repair_log
from pegasus.tasks.core.fsm import RESTARTED
from pegasus.tasks.core.task_states import TaskState
from pegasus.tasks.log.replay import MAX_PROBLEMS, replay
from tests.pegasus.tasks.lives import (
    ID,
    E,
    Life,
    asked,
    created,
    event,
    failed,
    finished,
    lifetime,
    reasoned,
    reflected,
    responded,
    resumed,
    suspended,
    task_lines,
    told,
    tool_done,
)

lives = st.randoms(use_true_random=False)


def told_by(found):
    return [(note.type, note.text, note.result) for note in found.notifications]


@settings(max_examples=150, deadline=None)
@given(lives, st.floats(0, 1))
def test_a_replay_is_the_task_that_lived(random, wild):
    life = lifetime(random, wild=wild)
    found = replay(life.log, ID)
    assert found.task.context == life.live.context
    assert found.task.state is life.live.state
    assert len(found.problems) == min(life.refused, MAX_PROBLEMS)
    assert told_by(found) == life.notes
    assert [note.n for note in found.notifications] == list(range(1, life.live.context.notified + 1))
    assert [(t.from_state, t.to_state, t.trigger_type, t.timestamp) for t in found.task.history] == [
        (t.from_state, t.to_state, t.trigger_type, t.timestamp) for t in life.live.history
    ]


@settings(max_examples=60, deadline=None)
@given(lives, st.data())
def test_a_torn_last_line_takes_nothing_else_away(random, data):
    life = lifetime(random)
    lines = life.log.splitlines(keepends=True)
    cut = data.draw(st.integers(1, len(lines[-1]) - 1))
    found = replay(life.log[:-cut], ID)
    whole = replay(b"".join(lines[:-1]), ID)
    if whole.task is None:
        assert found.task is None
    else:
        assert found.task == whole.task
    assert found.problems[len(whole.problems) :][:1] or len(whole.problems) >= MAX_PROBLEMS


@settings(max_examples=100, deadline=None)
@given(lives, st.data())
def test_a_bad_line_hides_nothing_that_ended_the_task(random, data):
    life = lifetime(random, wild=0)
    lines = life.log.splitlines(keepends=True)
    if not replay(life.log, ID).is_over or len(lines) < 2:
        return
    last = next(
        n for n in reversed(range(len(lines))) if b'"TASK_COMPLETED"' in lines[n] or b'"TASK_FAILED"' in lines[n]
    )
    bad = data.draw(st.integers(0, last - 1)) if last else 0
    if last == 0 or any(b'"TASK_RESUMED"' in line for line in lines[last:]):
        return
    lines[bad] = data.draw(st.sampled_from([b"\0\0\0\n", b"{broken\n", b"[1]\n"]))
    found = replay(b"".join(lines), ID)
    assert found.is_over
    assert found.problems


@given(st.binary(max_size=200))
def test_any_bytes_are_a_log_without_a_task_or_with_one(data):
    replay(data, ID)


@settings(max_examples=50, deadline=None)
@given(lives)
def test_messages_stay_fit_for_a_model(random):
    """Every call of a task that went its way has its result, behind it, before anything else is said to it."""
    life = lifetime(random, wild=0)
    if life.live.state in (TaskState.REASONING, TaskState.COMPLETED):
        mended = repair_log(life.live.context.messages, lambda call: "missing", 0)
        assert "marked as cancelled" not in " ".join(mended.notes)
        assert "result without a call" not in " ".join(mended.notes)


def test_a_completed_task_that_was_resumed_has_its_messages_once():
    life = Life()
    for made in (reasoned(("c1", "look", {})), tool_done("c1"), reasoned(text="a"), responded("a")):
        life.do(made)
    life.do(finished(life.live))
    life.do(reflected())
    life.do(resumed(life.live, "more"))
    life.do(reasoned(text="b"))
    life.do(responded("b"))
    life.do(finished(life.live))
    context = replay(life.log, ID).task.context
    assert [(m.role, m.content) for m in context.messages] == [
        ("user", "find papers"),
        ("assistant", "hm"),
        ("tool", "{}"),
        ("assistant", "a"),
        ("user", "more"),
        ("assistant", "b"),
    ]
    assert context == life.live.context


def test_the_state_before_a_resume_is_recorded_as_it_was():
    life = Life()
    life.do(suspended(life.live))
    life.do(resumed(life.live))
    line = json.loads(life.log.splitlines()[-1])
    assert line["data"]["previousState"] == "suspended"


def test_a_call_that_ended_while_suspended_is_in_the_replay():
    life = Life()
    life.do(reasoned(("c1", "look", {})))
    life.do(suspended(life.live))
    life.do(tool_done("c1"))
    found = replay(life.log, ID).task
    assert found.context.suspended_state is TaskState.REASONING
    assert len(found.context.actions_done) == 1


def test_a_second_failure_line_changes_and_tells_nothing():
    """A crash in the middle of a recovery wrote it twice."""
    life = Life()
    life.do(failed(RESTARTED))
    life.do(failed(RESTARTED))
    found = replay(life.log, ID)
    assert told_by(found) == [("failed", RESTARTED, None)]
    assert found.is_over


def test_a_newer_event_is_reported_and_the_rest_is_read():
    life = Life()
    life.log += json.dumps({"ts": 1, "event": "TASK_CLONED", "taskId": ID, "data": {}}).encode() + b"\n"
    life.do(reasoned())
    found = replay(life.log, ID)
    assert len(found.problems) == 1
    assert "TASK_CLONED" in found.problems[0]
    assert found.task.context == life.live.context


def test_a_log_of_the_first_version_has_no_type():
    line = {"ts": 5, "event": "TASK_CREATED", "taskId": ID, "data": {"inputText": "x", "inputMetadata": {}}}
    context = replay(json.dumps(line).encode() + b"\n", ID).task.context
    assert (context.task_type, context.source, context.input_text) == ("general", "user", "x")


def test_a_log_without_its_first_line_gives_what_the_others_say():
    life = Life()
    life.do(reasoned(("c1", "look", {})))
    life.do(tool_done("c1"))
    found = replay(b"".join(life.log.splitlines(keepends=True)[1:]), ID)
    assert found.task.state is TaskState.REASONING
    assert len(found.task.context.actions_done) == 1
    assert "TASK_CREATED" in found.problems[0]


NUMBERS = ["1e400", "-1e400", "NaN", "1" * 400, "-" + "1" * 400]
"""Numbers that Python reads, and that no clock shows."""


@pytest.mark.parametrize("number", NUMBERS)
def test_a_time_that_no_clock_shows_is_damage(number):
    whole = task_lines(created(), reasoned(("c1", "look", {})))
    done = tool_done("c1").line
    for key in (b"ts", b"durationMs"):
        damaged = re.sub(b'"%s":[0-9]+' % key, b'"%s":%s' % (key, number.encode()), done, count=1)
        assert damaged != done
        found = replay(whole + damaged, ID)
        assert found.task.context.plan is not None


def test_lines_of_another_task_are_left_out():
    life = Life()
    life.log += task_lines(event(E.TASK_FAILED, {"error": "x"}, task_id="other"))
    found = replay(life.log, ID)
    assert found.task.state is TaskState.REASONING
    assert "other" in found.problems[0]


def test_what_a_task_said_since_its_last_step_is_known():
    life = Life()
    life.do(reasoned(("c1", "notify", {"message": "half way"})))
    life.do(told("half way"))
    assert replay(life.log, ID).unanswered == ("half way",)
    life.do(tool_done("c1"))
    assert replay(life.log, ID).unanswered == ()


def test_a_question_is_among_what_is_told():
    life = Life()
    life.do(asked("which one?"))
    assert told_by(replay(life.log, ID)) == [("needs_info", "which one?", None)]


@pytest.mark.parametrize("done", [True, False])
def test_a_log_that_ends_before_the_result_is_not_over(done):
    life = Life()
    life.do(reasoned())
    life.do(responded())
    if done:
        life.do(finished(life.live))
    found = replay(life.log, ID)
    assert found.task.state is TaskState.COMPLETED
    assert found.is_over is done


def test_an_empty_log_tells_of_no_task():
    found = replay(b"", ID)
    assert (found.task, found.lines, found.is_over) == (None, 0, False)
