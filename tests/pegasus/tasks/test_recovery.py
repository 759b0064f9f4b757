"""What a restart does with each pending task; and whole lives with crashes at any moment, in which nothing is told or done twice."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pegasus.conversation import repair_log
from pegasus.tasks.agent.recovery import UNKNOWN, Continue, DropTask, NotifyAgain, RecordEvent, plan_recovery
from pegasus.tasks.core.context import TaskState
from pegasus.tasks.core.fsm import RESTARTED
from pegasus.tasks.log.format import task_line
from pegasus.tasks.log.replay import replay
from pegasus.tasks.run.stages import next_steps
from pegasus.tools import Effect
from tests.pegasus.tasks.lives import (
    ID,
    E,
    Life,
    asked,
    created_payload,
    event,
    failed,
    finished,
    reasoned,
    responded,
    resumed,
    suspended,
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


def numbers(actions):
    return [action.notification.n for action in actions if isinstance(action, NotifyAgain)]


@pytest.mark.parametrize("mode", ["fail", "resume"])
def test_a_task_that_is_over_is_told_again_and_let_go(mode):
    life = life_of(told("early"), reasoned(), responded("42"))
    life.do(finished(life.live))
    first, last = plan_of(life.log, mode)
    assert (first.notification.type, first.last) == ("notify", False)
    assert (last.notification.type, last.notification.text, last.notification.n, last.last) == (
        "completed",
        "42",
        2,
        True,
    )


@pytest.mark.parametrize("mode", ["fail", "resume"])
def test_an_answer_that_was_given_is_not_lost(mode):
    life = life_of(reasoned(), responded("42"))
    [write] = plan_of(life.log, mode)
    assert write.type is E.TASK_COMPLETED
    assert write.payload["finalResult"]["response"] == "42"


def test_an_unfinished_task_is_failed_once():
    """Trap T26: after a crash in the middle of the recovery its line is there, and is not written again."""
    life = life_of(told("early"), reasoned(("c1", "strike", {})))
    early, write = plan_of(life.log, "fail")
    assert early.notification.n == 1
    assert (write.type, write.payload) == (E.TASK_FAILED, {"error": RESTARTED})
    life.do(event(write.type, write.payload))
    again = plan_of(life.log, "fail")
    assert numbers(again) == [1, 2]
    assert again[-1].last
    assert not any(isinstance(action, RecordEvent) for action in again)


@pytest.mark.parametrize("mode", ["fail", "resume"])
def test_a_task_without_a_log_was_never_accepted(mode):
    [drop] = plan_of(b"", mode)
    assert isinstance(drop, DropTask)


def test_a_task_that_had_not_begun_waits_for_its_place():
    assert plan_of(Life().log) == (Continue(TaskState.IDLE),)


def test_a_task_that_was_thinking_thinks_again():
    life = life_of(reasoned(("c1", "look", {})), tool_done("c1"))
    assert plan_of(life.log) == (Continue(TaskState.REASONING),)


def test_a_look_is_taken_again():
    life = life_of(reasoned(("c1", "look", {}), ("c2", "look", {}), ("c3", "keyed", {})), tool_done("c1"))
    [go_on] = plan_of(life.log)
    assert (go_on.state, [call.id for call in go_on.again]) == (TaskState.ACTING, ["c2"])


def test_an_idempotent_call_is_made_again():
    life = life_of(reasoned(("c1", "keyed", {}), ("c2", "strike", {})))
    [go_on] = plan_of(life.log)
    assert [call.id for call in go_on.again] == ["c1"]


def test_of_a_call_that_must_not_be_repeated_the_model_is_told_that_nobody_knows():
    life = life_of(reasoned(("c1", "strike", {}), ("c2", "strike", {})))
    write, go_on = plan_of(life.log)
    assert write.type is E.TOOL_CALL_FAILED
    assert write.payload["newMessages"][0]["toolCallId"] == "c1"  # c2 was not begun
    assert UNKNOWN in write.payload["newMessages"][0]["content"]
    assert go_on.again == ()
    life.do(event(write.type, write.payload))
    assert [step.completed for step in life.live.context.plan.steps] == [True, False]


def test_a_tool_that_is_gone_may_have_done_something():
    life = life_of(reasoned(("c1", "removed", {})))
    write, _ = plan_of(life.log)
    assert write.type is E.TOOL_CALL_FAILED


@pytest.mark.parametrize("said", [True, False])
def test_a_notification_is_not_said_twice(said):
    life = life_of(reasoned(("c1", "notify", {"message": "half way"})))
    if said:
        life.do(told("half way"))
        tell, write, _ = plan_of(life.log)
        assert tell.notification.text == "half way"
        assert write.type is E.TOOL_CALL_COMPLETED
    else:
        [go_on] = plan_of(life.log)
        assert go_on.again[0].id == "c1"


def test_a_suspended_task_stays_so():
    life = life_of(asked("which one?"))
    tell, go_on = plan_of(life.log)
    assert (tell.notification.type, tell.notification.text) == ("needs_info", "which one?")
    assert go_on == Continue(TaskState.SUSPENDED)
    assert plan_of(life.log, "fail")[-1].type is E.TASK_FAILED


def test_what_a_suspended_task_had_under_way_is_settled():
    life = life_of(reasoned(("c1", "strike", {})))
    life.do(suspended(life.live))
    write, go_on = plan_of(life.log)
    assert life.do(event(write.type, write.payload))
    assert (life.live.state, life.live.context.suspended_state) == (TaskState.SUSPENDED, TaskState.REASONING)
    assert go_on.state is TaskState.SUSPENDED


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
        self.write(event(E.TASK_CREATED, created_payload()), None)

    def may_crash(self):
        if self.crashes and self.random.random() < 0.15:
            self.crashes -= 1
            raise Crash

    def write(self, made, fsm):
        """Durable, then the transition, then the submitter hears of it; a crash may come between any two."""
        if fsm is not None:
            self.may_crash()
        self.log += task_line(made)
        if made.type in (E.TOOL_CALL_COMPLETED, E.TOOL_CALL_FAILED):
            self.finished_calls.add(made.payload["newMessages"][0]["toolCallId"])
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
        for action in plan_recovery(found, self.mode, EFFECTS.get, NOW):
            self.may_crash()
            match action:
                case NotifyAgain(note, last):
                    self.hear(note)
                    if last:
                        self.may_crash()
                        self.pending = False
                case RecordEvent(type, payload):
                    self.write(event(type, payload), fsm)
                case DropTask():
                    self.pending = False
                case Continue():
                    return fsm
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
    assert isinstance(plan_of(lines[0] + b"broken\n")[-1], Continue)
    assert plan_of(lines[0] + lines[1])[-1].last
