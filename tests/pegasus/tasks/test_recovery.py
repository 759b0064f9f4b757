"""What a restart does with each pending task; and whole lives with crashes at any moment, in which nothing is told or done twice."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pegasus.conversation import repair_log
from pegasus.tasks.agent.recovery import UNKNOWN, RecoveryPlan, plan_recovery
from pegasus.tasks.core.fsm import RESTARTED
from pegasus.tasks.core.task_events import TaskCompleted, TaskFailed, ToolCallDone, ToolCallFailed
from pegasus.tasks.core.task_states import FOR_APPROVAL, TaskState
from pegasus.tasks.log.replay import replay
from pegasus.tasks.run.stages import next_steps
from pegasus.tools import Effect
from tests.pegasus.tasks.lives import (
    ID,
    E,
    Life,
    asked,
    created,
    failed,
    finished,
    reasoned,
    responded,
    resumed,
    said,
    suspended,
    task_lines,
    told,
    tool_done,
)

EFFECTS = {"look": Effect.PURE, "keyed": Effect.IDEMPOTENT, "strike": Effect.ONCE}
NOW = 1_772_030_000_000


def plan_of(log, mode="resume"):
    return plan_recovery(replay(log, ID), mode, EFFECTS.get, NOW)


def life_of(*events):
    life = Life()
    for made in events:
        assert life.do(made)
    return life


def calls_after(life, plan):
    """The calls that the task makes first when it goes on behind this plan."""
    for data in plan.events:
        assert life.do(said(data))
    return [step.call.id for step in next_steps(life.live.context.plan.steps, EFFECTS.get)]


@pytest.mark.parametrize("mode", ["fail", "resume"])
def test_a_task_that_is_over_is_told_again_and_let_go(mode):
    life = life_of(told("early"), reasoned(), responded("42"))
    life.do(finished(life.live))
    assert plan_of(life.log, mode) == RecoveryPlan()
    found = replay(life.log, ID)
    assert [(note.n, note.type, note.text) for note in found.notifications] == [
        (1, "notify", "early"),
        (2, "completed", "42"),
    ]
    assert found.is_over


@pytest.mark.parametrize("mode", ["fail", "resume"])
def test_an_answer_that_was_given_is_not_lost(mode):
    life = life_of(reasoned(), responded("42"))
    [data] = plan_of(life.log, mode).events
    assert isinstance(data, TaskCompleted)
    assert data.final_result["response"] == "42"


def test_an_unfinished_task_is_failed_once():
    """After a crash in the middle of the recovery its line is there, and is not written again."""
    life = life_of(told("early"), reasoned(("c1", "strike", {})))
    plan = plan_of(life.log, "fail")
    assert plan == RecoveryPlan((TaskFailed(RESTARTED),))
    life.do(said(*plan.events))
    assert plan_of(life.log, "fail") == RecoveryPlan()
    found = replay(life.log, ID)
    assert [note.n for note in found.notifications] == [1, 2]
    assert found.is_over


@pytest.mark.parametrize("mode", ["fail", "resume"])
def test_a_task_that_waits_for_an_owner_waits_on(mode):
    """It is not unfinished work: its question is still there to be answered, and the call is made then."""
    life = life_of(reasoned(("c1", "strike", {})))
    life.do(suspended(life.live, FOR_APPROVAL))
    assert plan_of(life.log, mode) == RecoveryPlan()
    assert replay(life.log, ID).task.state is TaskState.SUSPENDED


@pytest.mark.parametrize("mode", ["fail", "resume"])
def test_a_task_without_a_log_was_never_accepted(mode):
    assert plan_of(b"", mode) == RecoveryPlan(dropped="there is no log of it")


def test_a_task_that_had_not_begun_waits_for_its_place():
    assert plan_of(Life().log) == RecoveryPlan(goes_on=True)


def test_a_task_that_was_thinking_thinks_again():
    life = life_of(reasoned(("c1", "look", {})), tool_done("c1"))
    assert plan_of(life.log) == RecoveryPlan(goes_on=True)


def test_a_look_is_taken_again():
    life = life_of(reasoned(("c1", "look", {}), ("c2", "look", {}), ("c3", "keyed", {})), tool_done("c1"))
    plan = plan_of(life.log)
    assert plan == RecoveryPlan(goes_on=True)
    assert calls_after(life, plan) == ["c2"]


def test_an_idempotent_call_is_made_again():
    life = life_of(reasoned(("c1", "keyed", {}), ("c2", "strike", {})))
    plan = plan_of(life.log)
    assert plan == RecoveryPlan(goes_on=True)
    assert calls_after(life, plan) == ["c1"]


def test_of_a_call_that_must_not_be_repeated_the_model_is_told_that_nobody_knows():
    life = life_of(reasoned(("c1", "strike", {}), ("c2", "strike", {})))
    plan = plan_of(life.log)
    [data] = plan.events
    assert isinstance(data, ToolCallFailed)
    assert data.new_messages[0].call_id == "c1"  # c2 was not begun
    assert UNKNOWN in data.new_messages[0].content
    assert plan.goes_on
    assert calls_after(life, plan) == ["c2"]
    assert [step.completed for step in life.live.context.plan.steps] == [True, False]


def test_a_tool_that_is_gone_may_have_done_something():
    life = life_of(reasoned(("c1", "removed", {})))
    [data] = plan_of(life.log).events
    assert isinstance(data, ToolCallFailed)


@pytest.mark.parametrize("said", [True, False])
def test_a_notification_is_not_said_twice(said):
    life = life_of(reasoned(("c1", "notify", {"message": "half way"})))
    if said:
        life.do(told("half way"))
        assert [note.text for note in replay(life.log, ID).notifications] == ["half way"]
        [data] = plan_of(life.log).events
        assert type(data) is ToolCallDone
    else:
        plan = plan_of(life.log)
        assert plan == RecoveryPlan(goes_on=True)
        assert calls_after(life, plan) == ["c1"]


def test_a_suspended_task_stays_so():
    life = life_of(asked("which one?"))
    [note] = replay(life.log, ID).notifications
    assert (note.type, note.text) == ("needs_info", "which one?")
    assert plan_of(life.log) == RecoveryPlan()
    assert isinstance(plan_of(life.log, "fail").events[-1], TaskFailed)


def test_what_a_suspended_task_had_under_way_is_settled():
    life = life_of(reasoned(("c1", "strike", {})))
    life.do(suspended(life.live))
    plan = plan_of(life.log)
    assert life.do(said(plan.events[0]))
    assert (life.live.state, life.live.context.suspended_state) == (TaskState.SUSPENDED, TaskState.REASONING)
    assert not plan.goes_on


# ------------------------------------------------------------------ whole lives with crashes


class Crash(Exception):
    pass


class World:
    """A task system in which every step may be the last of its process. What survives: the log, the effects, what was told."""

    def __init__(self, random: Random, mode):
        self.random = random
        self.mode = mode
        self.log = b""
        self.told = {}
        self.effects = Counter()
        self.finished_calls = set()
        self.pending = True
        self.calls = 0
        self.crashes = random.randint(0, 6)
        self.thoughts = 0
        self.write(created("x"), None)

    def may_crash(self):
        if self.crashes and self.random.random() < 0.15:
            self.crashes -= 1
            raise Crash

    def write(self, made, fsm):
        """Durable, then the transition, then the submitter hears of it; a crash may come between any two."""
        if fsm is not None:
            self.may_crash()
        self.log += task_lines(made)
        if made.type in (E.TOOL_CALL_COMPLETED, E.TOOL_CALL_FAILED):
            self.finished_calls.add(made.data.new_messages[0].call_id)
        if fsm is None:
            return
        self.may_crash()
        before = fsm.context.notified
        fsm.transition(made)
        if fsm.context.notified > before:
            self.may_crash()
            self.hear(replay(self.log, ID).notifications[-1])
            if fsm.state is TaskState.FAILED or fsm.context.final_result is not None:
                self.may_crash()
                self.pending = False

    def hear(self, note):
        """The listener dedupes by number; the same number must be the same notification."""
        assert self.told.setdefault(note.n, note) == note

    def act(self, call):
        """The effect, and then the end of the call, which is what the log knows."""
        assert call.id not in self.finished_calls
        self.may_crash()
        if call.name == "strike" or (call.name == "keyed" and not self.effects[call.id]):
            self.effects[call.id] += 1
        self.may_crash()

    def step(self, fsm):
        match fsm.state:
            case TaskState.REASONING:
                self.thoughts += 1
                made = self.random.random()
                if made < 0.15:
                    return self.write(asked(f"q{self.thoughts}"), fsm)
                if made < 0.35 or self.thoughts > 8:
                    return self.write(reasoned(), fsm)
                calls = []
                for _ in range(self.random.randint(1, 3)):
                    self.calls += 1
                    arguments = {"message": f"m{self.calls}"}
                    calls.append(
                        (f"c{self.calls}", self.random.choice(["look", "keyed", "strike", "notify"]), arguments)
                    )
                return self.write(reasoned(*calls), fsm)
            case TaskState.ACTING:
                group = next_steps(fsm.context.plan.steps, EFFECTS.get)
                if group[0].call is None:
                    return self.write(responded(), fsm)
                if self.random.random() < 0.1:
                    self.write(suspended(fsm), fsm)
                for step in group:
                    self.act(step.call)
                for step in group:
                    if step.call.name == "notify":
                        self.write(told(step.call.arguments["message"]), fsm)
                    self.write(tool_done(step.call.id, name=step.call.name), fsm)
                return None
            case TaskState.SUSPENDED:
                return self.write(resumed(fsm, "answer"), fsm)
            case TaskState.COMPLETED:
                return self.write(finished(fsm), fsm)

    def restart(self):
        """Carry out the plan; a crash in the middle leaves the rest to the next restart."""
        found = replay(self.log, ID)
        assert found.problems == ()
        fsm = found.task
        plan = plan_recovery(found, self.mode, EFFECTS.get, NOW)
        for note in found.notifications:
            self.may_crash()
            self.hear(note)
        for data in plan.events:
            self.may_crash()
            self.write(said(data), fsm)
        self.may_crash()
        if found.is_over or plan.dropped:
            self.pending = False
        return fsm

    def live(self):
        fsm = None
        while self.pending:
            try:
                if fsm is None:
                    fsm = self.restart()
                else:
                    self.step(fsm)
            except Crash:
                fsm = None


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(["resume", "fail"]))
def test_nothing_is_told_or_done_twice(seed, mode):
    """However often it crashes: each number once, each message of the task once, no call that must not be repeated twice."""
    world = World(Random(seed), mode)
    world.live()
    found = replay(world.log, ID)
    assert found.is_over
    assert found.problems == ()
    assert sorted(world.told) == list(range(1, found.task.context.notified + 1))
    assert [world.told[n] for n in sorted(world.told)] == list(found.notifications)
    messages = [note.text for note in world.told.values() if note.type == "notify"]
    assert len(messages) == len(set(messages))
    assert [note.type for note in world.told.values()].count("failed") <= 1
    assert all(count == 1 for count in world.effects.values())


def test_the_crashes_happen():
    ends = Counter()
    for seed in range(100):
        world = World(Random(seed), "resume")
        world.live()
        ends[UNKNOWN.encode() in world.log] += 1
    assert ends[True] > 10
    assert ends[False] > 10


def test_messages_of_a_resumed_task_are_well_formed():
    for seed in range(50):
        world = World(Random(seed), "resume")
        world.live()
        messages = replay(world.log, ID).task.context.messages
        notes = " ".join(repair_log(messages, lambda call: None, 0).notes)
        assert "cancelled" not in notes
        assert "result" not in notes.replace("moved results behind their calls", "")


def test_a_damaged_log_that_is_over_and_tells_nothing_is_let_go():
    life = life_of(failed())
    lines = life.log.splitlines(keepends=True)
    assert plan_of(lines[0] + b"broken\n").goes_on
    assert plan_of(lines[0] + lines[1]) == RecoveryPlan()
    assert [note.type for note in replay(lines[0] + lines[1], ID).notifications] == ["failed"]
