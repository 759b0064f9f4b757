"""The transition table, each rule and each refusal; and what no sequence of events may break."""

import json
from copy import deepcopy
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pegasus.events import Event, EventType
from pegasus.messages import ChannelInfo
from pegasus.models import ToolCall
from pegasus.tasks.core.fsm import (
    DEFAULT_PRIORITY,
    RESTARTED,
    TRANSITIONS,
    InvalidTransition,
    TaskContext,
    TaskFSM,
    apply_event,
)
from pegasus.tasks.core.task_events import EVENT_DATA, PlanStep, ReasonDone, Reasoning, TaskPlan
from pegasus.tasks.core.task_states import FOR_APPROVAL, FOR_PERSON, TaskState
from pegasus.tasks.core.views import task_view
from pegasus.tasks.log.format import parse_payload
from pegasus.tasks.log.replay import replay
from pegasus.tasks.run.stages import make_plan
from pegasus.wire import from_wire, to_wire
from tests.pegasus.tasks.lives import (
    BEGAN,
    ID,
    E,
    Life,
    any_event,
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
    said,
    suspended,
    told,
    tool_done,
)

S = TaskState


def in_state(state, error="broken"):
    """A task that got there by itself."""
    life = Life() if state is not S.IDLE else None
    if life is None:
        return TaskFSM.from_event(created())
    task = life.live
    if state in (S.ACTING, S.COMPLETED):
        life.do(reasoned(("c1", "look", {})) if state is S.ACTING else reasoned())
    if state is S.COMPLETED:
        life.do(responded())
        life.do(finished(task))
    if state is S.SUSPENDED:
        life.do(suspended(task))
    if state is S.FAILED:
        life.do(failed(error))
    assert task.state is state
    return task


def whatever(type, task):
    """An event of this type that fits wherever its type is allowed."""
    made = {
        E.TASK_CREATED: created,
        E.REASON_DONE: reasoned,
        E.NEED_MORE_INFO: asked,
        E.TOOL_CALL_COMPLETED: lambda: tool_done("c1"),
        E.TOOL_CALL_FAILED: lambda: tool_done("c1", ok=False),
        E.STEP_COMPLETED: responded,
        E.TASK_NOTIFY: told,
        E.TASK_SUSPENDED: lambda: suspended(task),
        E.TASK_RESUMED: lambda: resumed(task),
        E.REFLECTION_COMPLETE: reflected,
        E.TASK_COMPLETED: lambda: finished(task),
        E.TASK_FAILED: failed,
    }.get(type)
    return made() if made else Event(type, BEGAN, "task", ID)


@pytest.mark.parametrize("type", EventType, ids=lambda type: type.name)
@pytest.mark.parametrize("state", TaskState)
def test_what_is_not_in_the_table_is_refused_and_changes_nothing(state, type):
    task = in_state(state)
    if (state, type) in TRANSITIONS and state is not S.FAILED:
        return
    before = deepcopy(task)
    assert not task.can_transition(type)
    with pytest.raises(InvalidTransition, match=type.name if state is not S.FAILED else "FAILED|failed"):
        task.transition(whatever(type, task))
    assert task == before


PLAIN = [
    (S.IDLE, E.TASK_CREATED, S.REASONING),
    (S.REASONING, E.REASON_DONE, S.ACTING),
    (S.REASONING, E.NEED_MORE_INFO, S.SUSPENDED),
    (S.REASONING, E.TASK_SUSPENDED, S.SUSPENDED),
    (S.ACTING, E.TASK_SUSPENDED, S.SUSPENDED),
    (S.ACTING, E.TOOL_CALL_COMPLETED, S.REASONING),
    (S.ACTING, E.TOOL_CALL_FAILED, S.REASONING),
    (S.SUSPENDED, E.TASK_RESUMED, S.REASONING),
    (S.SUSPENDED, E.REASON_DONE, S.SUSPENDED),
    (S.SUSPENDED, E.NEED_MORE_INFO, S.SUSPENDED),
    (S.COMPLETED, E.TASK_RESUMED, S.REASONING),
    (S.COMPLETED, E.REFLECTION_COMPLETE, S.COMPLETED),
    (S.IDLE, E.TASK_FAILED, S.FAILED),
    (S.REASONING, E.TASK_FAILED, S.FAILED),
    (S.ACTING, E.TASK_FAILED, S.FAILED),
    (S.SUSPENDED, E.TASK_FAILED, S.FAILED),
    (S.REASONING, E.TASK_NOTIFY, S.REASONING),
    (S.ACTING, E.TASK_NOTIFY, S.ACTING),
    (S.SUSPENDED, E.TASK_NOTIFY, S.SUSPENDED),
]


@pytest.mark.parametrize(("state", "type", "to"), PLAIN, ids=lambda it: getattr(it, "name", it))
def test_the_table(state, type, to):
    task = in_state(state)
    assert task.can_transition(type)
    trigger = whatever(type, task)
    assert task.transition(trigger) is to is task.state
    last = task.history[-1]
    assert (last.from_state, last.to_state, last.trigger_type, last.trigger_id) == (state, to, type, trigger.id)


def test_there_are_six_states():
    assert {state.value for state in TaskState} == {"idle", "reasoning", "acting", "suspended", "completed", "failed"}


def test_every_event_that_changes_a_task_is_a_line_of_its_log():
    assert {type for _, type in TRANSITIONS} == set(EVENT_DATA)


def test_a_new_task_is_idle_and_knows_its_input():
    task = TaskFSM.from_event(created("hello", description="greet", metadata={"a": 1}, source="hook", task_type="plan"))
    context = task.context
    assert (task.state, task.task_id, task.created_at, task.priority) == (S.IDLE, ID, BEGAN, DEFAULT_PRIORITY)
    assert (context.description, context.input_text, context.source) == ("greet", "hello", "hook")
    assert (context.task_type, context.input_metadata) == ("plan", {"a": 1})


@pytest.mark.parametrize("metadata", [{}, {"channel": 7}, {"channel": {"type": "web"}}])
def test_a_task_without_a_channel_that_can_be_read_has_none(metadata):
    view = task_view(TaskFSM.from_event(created(metadata=metadata)))
    assert (view.channel, view.metadata) == (None, metadata)


def test_the_channel_of_a_task_is_that_of_its_metadata():
    task = TaskFSM.from_event(created(metadata={"channel": {"type": "web", "channelId": "c1", "since": 3}}))
    assert task_view(task).channel == ChannelInfo("web", "c1")


def test_a_task_is_made_by_task_created_only():
    with pytest.raises(InvalidTransition, match="TASK_CREATED"):
        TaskFSM.from_event(failed())
    with pytest.raises(InvalidTransition, match="TASK_CREATED"):
        TaskFSM.from_event(Event(E.TASK_CREATED, 1, "x"))


def test_the_input_is_a_message_of_the_conversation():
    """It was only in the first prompt."""
    task = in_state(S.REASONING)
    assert [(m.role, m.content) for m in task.context.messages] == [("user", "find papers")]


def test_the_memory_index_stays_in_the_conversation():
    life = Life()
    life.do(reasoned(("c1", "look", {}), index="facts.md (12B)"))
    context = life.live.context
    assert context.memory_injected
    assert [m.role for m in context.messages] == ["user", "user", "assistant"]
    assert context.messages[1].content == "facts.md (12B)"


def test_a_direct_answer_is_the_last_message():
    life = Life()
    life.do(reasoned(text="42"))
    life.do(responded("42"))
    assert life.live.state is S.COMPLETED
    assert life.live.context.messages[-1].content == "42"
    life.do(finished(life.live))
    assert life.live.context.final_result == {"taskId": ID, "input": "find papers", "response": "42", "iterations": 1}


def test_steps_that_are_open_keep_the_task_acting():
    life = Life()
    life.do(reasoned(("c1", "look", {}), ("c2", "look", {})))
    life.do(tool_done("c1"))
    assert life.live.state is S.ACTING
    life.do(tool_done("c2", ok=False))
    assert life.live.state is S.REASONING  # a call that failed does not fail the task
    first, second = life.live.context.actions_done
    assert (first.success, second.success) == (True, False)
    assert (first.completed_at - first.started_at, first.tool_name, first.step_index) == (12, "look", 0)


def test_results_may_come_in_any_order():
    life = Life()
    life.do(reasoned(("c1", "look", {}), ("c2", "look", {})))
    life.do(tool_done("c2"))
    assert [step.completed for step in life.live.context.plan.steps] == [False, True]


def test_a_result_that_nobody_waits_for_is_refused():
    life = Life()
    life.do(reasoned(("c1", "look", {}), ("c2", "look", {})))
    life.do(tool_done("c1"))
    assert not life.do(tool_done("c1"))
    assert not life.do(tool_done("c9"))
    assert not life.do(responded())
    assert len(life.live.context.actions_done) == 1


def test_a_result_that_comes_while_suspended_is_kept_and_not_asked_for_again():
    life = Life()
    life.do(reasoned(("c1", "look", {})))
    life.do(suspended(life.live))
    assert life.live.context.suspended_state is S.ACTING
    life.do(tool_done("c1"))
    assert (life.live.state, life.live.context.suspended_state) == (S.SUSPENDED, S.REASONING)
    life.do(resumed(life.live, ""))
    assert life.live.state is S.REASONING
    assert life.live.context.actions_done


def test_a_task_knows_for_ever_whether_it_has_asked_an_owner():
    life = Life()
    life.do(reasoned(("c1", "look", {})))
    for reason, has_asked in ((FOR_PERSON, False), (FOR_APPROVAL, True), (FOR_PERSON, True)):
        life.do(suspended(life.live, reason))
        life.do(resumed(life.live, ""))
        assert life.live.context.has_asked_owner is has_asked


def test_a_thought_that_ends_while_suspended_is_kept():
    life = Life()
    life.do(suspended(life.live))
    life.do(reasoned(("c1", "look", {})))
    assert life.live.context.suspended_state is S.ACTING
    assert not life.do(reasoned())
    life.do(resumed(life.live, ""))
    assert life.live.state is S.ACTING


def test_a_suspended_task_goes_on_with_its_plan():
    """Only a finished task begins anew."""
    life = Life()
    life.do(reasoned(("c1", "look", {}), ("c2", "look", {})))
    life.do(tool_done("c1"))
    life.do(suspended(life.live))
    life.do(resumed(life.live, "hurry"))
    context = life.live.context
    assert life.live.state is S.ACTING
    assert [step.completed for step in context.plan.steps] == [True, False]
    assert (context.suspended_state, context.suspend_reason, context.iteration) == (None, None, 0)
    assert (context.messages[-1].content, context.input_text) == ("hurry", "find papers")


@pytest.mark.parametrize("given_late", [False, True])
def test_new_information_is_thought_about_before_an_answer_is_given(given_late):
    life = Life()
    life.do(reasoned(text="42"))
    life.do(suspended(life.live))
    if given_late:
        life.do(responded("42"))
        assert life.live.context.suspended_state is S.COMPLETED
    life.do(resumed(life.live, "wait, I meant 43"))
    assert life.live.state is S.REASONING


def test_an_answer_that_came_while_suspended_completes_the_task_when_nothing_is_new():
    life = Life()
    life.do(reasoned(text="42"))
    life.do(suspended(life.live))
    life.do(responded("42"))
    life.do(resumed(life.live, ""))
    assert life.live.state is S.COMPLETED


def test_a_question_suspends_and_its_answer_goes_on():
    life = Life()
    life.do(asked("which one?"))
    context = life.live.context
    assert (context.question, context.suspended_state, context.iteration) == ("which one?", S.REASONING, 1)
    assert context.messages[-1].role == "assistant"
    assert "which one?" in context.messages[-1].content
    life.do(resumed(life.live, "the red one"))
    assert life.live.state is S.REASONING
    assert life.live.context.question is None
    assert [m.role for m in life.live.context.messages] == ["user", "assistant", "user"]


def test_a_completed_task_begins_anew_with_all_it_knows():
    life = Life()
    for made in (reasoned(("c1", "look", {})), tool_done("c1"), reasoned(), responded("first")):
        life.do(made)
    life.do(finished(life.live))
    life.do(reflected())
    assert life.live.context.post_reflection
    life.do(resumed(life.live, "and then?"))
    context = life.live.context
    assert context.input_text == "and then?"
    assert (context.plan, context.reasoning, context.final_result, context.error) == (None, None, None, None)
    assert (context.post_reflection, context.iteration, context.suspended_state) == (None, 0, None)
    assert len(context.actions_done) == 2
    assert [m.role for m in context.messages] == ["user", "assistant", "tool", "assistant", "user"]


def test_what_a_restart_interrupted_may_be_resumed_and_nothing_else_that_failed():
    """X8; and every call has a result before something new is said."""
    life = Life()
    life.do(reasoned(("c1", "look", {}), ("c2", "look", {})))
    life.do(tool_done("c1"))
    life.do(failed(RESTARTED))
    assert life.live.can_transition(E.TASK_RESUMED)
    life.do(resumed(life.live, "go on"))
    assert life.live.state is S.REASONING
    assert [(m.role, m.call_id) for m in life.live.context.messages[2:]] == [
        ("tool", "c1"),
        ("tool", "c2"),
        ("user", None),
    ]
    other = in_state(S.FAILED, "out of money")
    assert other.is_over
    assert not other.can_transition(E.TASK_RESUMED)


def test_a_task_has_one_result():
    task = in_state(S.COMPLETED)
    with pytest.raises(InvalidTransition, match="already"):
        task.transition(finished(task))


def test_a_task_whose_result_is_not_written_yet_can_still_be_stopped():
    life = Life()
    life.do(reasoned())
    life.do(responded())
    late = finished(life.live)
    assert life.do(failed("stopped by user"))
    assert life.live.state is S.FAILED
    assert not life.do(late)


def test_suspension_is_marked_in_the_history():
    task = in_state(S.SUSPENDED)
    assert task.history[-1].metadata == {"suspendedFrom": "reasoning"}


@pytest.mark.parametrize(
    ("state", "active", "over"),
    [
        (S.IDLE, False, False),
        (S.REASONING, True, False),
        (S.ACTING, True, False),
        (S.SUSPENDED, False, False),
        (S.COMPLETED, False, True),
        (S.FAILED, False, True),
    ],
)
def test_what_a_state_means(state, active, over):
    task = in_state(state)
    assert (task.is_active, task.is_over) == (active, over)


@pytest.mark.parametrize(
    "data",
    [
        {"reasoning": 7, "plan": {"steps": [{}]}},
        {"reasoning": {}, "plan": {"steps": []}},
        {"reasoning": {"response": "", "approach": "direct"}, "plan": {"goal": "", "steps": []}},
        {"reasoning": {}, "plan": {"steps": [3]}},
        {"reasoning": {"toolCalls": "x"}, "plan": {"steps": [{}]}},
        {"reasoning": {}, "plan": {"steps": [{}]}, "newMessages": [{"role": "nobody"}]},
        {"reasoning": {}, "plan": {"steps": [{}]}, "newMessages": 5},
        {},
    ],
)
def test_a_payload_of_the_wrong_shape_is_refused(data):
    log = Life().log
    line = {"ts": BEGAN, "event": "REASON_DONE", "taskId": ID, "data": data}
    found = replay(log + json.dumps(line).encode() + b"\n", ID)
    assert len(found.problems) == 1
    assert found.task == replay(log, ID).task


def test_an_event_without_data_is_refused():
    task = in_state(S.REASONING)
    before = deepcopy(task)
    with pytest.raises(InvalidTransition, match="REASON_DONE"):
        task.transition(Event(E.REASON_DONE, BEGAN, "task", ID))
    assert task == before


def test_a_task_taken_up_again_goes_on():
    task = TaskFSM("t", S.COMPLETED, TaskContext("t", final_result={}))
    assert task.transition(event(E.TASK_RESUMED, {"newInput": "more"}, task_id="t")) is S.REASONING


# ------------------------------------------------------------------ any sequence of events

lives = st.randoms(use_true_random=False)


@settings(max_examples=60, deadline=None)
@given(lives)
def test_any_sequence_of_events_keeps_the_rules(random):
    life = Life()
    for _ in range(60):
        before = deepcopy(life.live)
        made = any_event(life, random)
        accepted = life.do(made)
        task, context = life.live, life.live.context
        if not accepted:
            assert task == before
            continue
        assert len(task.history) == len(before.history) + 1
        assert task.history[-1].from_state is before.state
        assert task.history[-1].to_state is task.state
        assert (task.state is S.SUSPENDED) == (context.suspended_state is not None)
        assert task.state is not S.ACTING or not all(step.completed for step in context.plan.steps)
        assert (context.final_result is None) or task.state is S.COMPLETED
        assert (context.error is None) or task.state is S.FAILED
        assert context.notified == len(life.notes)
        assert context.messages[: len(before.context.messages)] == before.context.messages
        assert len(context.actions_done) - len(before.context.actions_done) in (0, 1)


@settings(max_examples=60, deadline=None)
@given(lives)
def test_apply_is_what_the_machine_does(random):
    """`apply` of a context and a transition of its task are the same function."""
    life = Life()
    for _ in range(30):
        before = deepcopy(life.live)
        made = any_event(life, random)
        if life.do(made) and made.type is not E.TASK_CREATED:
            apply_event(before.context, made, before.state)
            assert before.context == life.live.context


@settings(max_examples=60, deadline=None)
@given(lives)
def test_a_task_is_the_same_after_a_round_trip(random):
    task = lifetime(random).live
    wire = json.loads(json.dumps(to_wire(task)))
    assert from_wire(wire, TaskFSM) == task


names = st.text(max_size=8)
arguments = st.dictionaries(names, st.none() | st.integers() | names, max_size=3)
calls = st.builds(ToolCall, names, names, arguments, st.none() | names.filter(bool))
reasonings = st.builds(
    Reasoning, names, st.sampled_from(["tool_use", "direct"]), st.booleans(), st.lists(calls, max_size=3).map(tuple)
)
steps = st.builds(PlanStep, st.integers(0, 99), names, names.filter(bool), st.none() | calls, st.booleans())
plans = st.builds(TaskPlan, names, st.lists(steps, min_size=1, max_size=3).map(tuple))


@given(reasonings, plans)
def test_reading_is_the_way_back_from_the_wire(reasoning, made):
    data = parse_payload(E.REASON_DONE, said(ReasonDone(reasoning, made)).payload)
    assert (data.reasoning, data.plan) == (reasoning, made)


# ------------------------------------------------------------------ the planner


@given(reasonings)
def test_a_plan_is_the_calls_in_order_or_one_answer(reasoning):
    made = make_plan(reasoning, "goal")
    assert [step.index for step in made.steps] == list(range(len(made.steps)))
    assert not any(step.completed for step in made.steps)
    if reasoning.tool_calls:
        assert tuple(step.call for step in made.steps) == reasoning.tool_calls
        assert {step.action_type for step in made.steps} == {"tool_call"}
    else:
        assert [(step.action_type, step.call) for step in made.steps] == [("respond", None)]


def test_lives_reach_every_state():
    """The machine that makes lives is worth something."""
    taken = {(it.from_state, it.trigger_type) for seed in range(150) for it in lifetime(Random(seed)).live.history}
    assert taken == set(TRANSITIONS) - {(S.IDLE, E.TASK_FAILED)}
