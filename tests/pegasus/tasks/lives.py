"""Whole lives of tasks, as a machine makes them that knows the rules: every event goes to the live task and into its log.

Beside events that are allowed it makes some that are not, or come too late: they stand in the log as well, for the log is
written before the task sees the event.
"""

from random import Random

import attrs

from pegasus.conversation import Entry
from pegasus.events import EventType
from pegasus.models.base import ToolCall
from pegasus.tasks.core.fsm import (
    MEMORY_INDEX,
    RESTARTED,
    InvalidTransition,
    TaskFSM,
    last_response,
    task_completed,
    task_resumed,
    task_suspended,
)
from pegasus.tasks.core.task_events import (
    NeedMoreInfo,
    ReasonDone,
    Reasoning,
    ReflectionDone,
    StepCompleted,
    TaskCreated,
    TaskFailed,
    TaskNotify,
    ToolCallDone,
    ToolCallFailed,
)
from pegasus.tasks.core.task_states import TaskState
from pegasus.tasks.core.views import notification_of
from pegasus.tasks.log.format import create_event, parse_payload
from pegasus.tasks.run.stages import make_plan

E = EventType
ID = "00112233aabbccdd"
BEGAN = 1_772_029_800_000


def event(type, payload, id="e", at=BEGAN, task_id=ID, priority=None):
    """An event as it is read from a log."""
    made = said(parse_payload(type, payload), at, task_id, priority)
    return attrs.evolve(made, payload=payload, id=id)


def said(data, at=BEGAN, task_id=ID, priority=None):
    """An event as the task system makes it."""
    return create_event(data, task_id, "task", at, priority=priority)


def task_lines(*events):
    """The lines of these events, as they stand in a log."""
    return b"".join(event.line for event in events)


def created(text="find papers", at=BEGAN, *, description="", source="user", metadata=None, task_type="general"):
    return said(TaskCreated(description, text, source, metadata or {}, task_type), at)


def thought(*calls, text="hm"):
    made = tuple(ToolCall(id, name, arguments) for id, name, arguments in calls)
    return Reasoning(text, "tool_use" if calls else "direct", tool_calls=made)


def reasoned(*calls, text="hm", index="", at=BEGAN):
    reasoning = thought(*calls, text=text)
    entries = [Entry(at, "user", index, metadata={"type": MEMORY_INDEX})] if index else []
    if calls:
        made = tuple(ToolCall(id, name, arguments) for id, name, arguments in calls)
        entries.append(Entry(at, "assistant", text, made, metadata={"thinking": ["…"], "thinkingOf": "x"}))
    return said(ReasonDone(reasoning, make_plan(reasoning, "goal"), tuple(entries)), at)


def tool_done(call_id, content="{}", ok=True, name="look", at=BEGAN):
    result = Entry(at, "tool", content, call_id=call_id, failed=not ok)
    return said((ToolCallDone if ok else ToolCallFailed)(name, 12, (result,)), at)


def responded(text="done", at=BEGAN):
    return said(StepCompleted((Entry(at, "assistant", text),)), at)


def asked(question="which one?"):
    return said(NeedMoreInfo(thought(text="unsure"), question))


def suspended(fsm, reason="hold on"):
    return said(task_suspended(fsm.context, fsm.state, reason))


def resumed(fsm, text="go on", at=BEGAN):
    return said(task_resumed(text, fsm.state, at), at)


def finished(fsm):
    return said(task_completed(fsm.context, last_response(fsm.context), fsm.context.iteration))


def failed(error="broken"):
    return said(TaskFailed(error))


def told(message="half way"):
    return said(TaskNotify(message))


def reflected():
    return said(ReflectionDone(2, "learned"))


class Life:
    """live: the task. log: its lines. events: those that were accepted, notes: what its submitter is to be told."""

    def __init__(self, first=None):
        self.log = b""
        self.lines = 0
        self.notes = []
        self.refused = 0
        self._count = 0
        first = first or created()
        self.live = TaskFSM.from_event(first)
        self.do(first)

    def do(self, event):
        self.log += task_lines(event)
        self.lines += 1
        notified = self.live.context.notified
        try:
            self.live.transition(event)
        except InvalidTransition:
            self.refused += 1
            return False
        if self.live.context.notified > notified:
            note = notification_of(self.live, event)
            self.notes.append((note.type, note.text, note.result))
        return True

    def fresh_id(self):
        self._count += 1
        return f"c{self._count}"

    def open_calls(self):
        steps = self.live.context.plan.steps if self.live.context.plan else ()
        return [step.call for step in steps if step.call and not step.completed]


TOOLS = ("look", "keyed", "strike", "notify")
ARGUMENTS = ({}, {"path": "a/b"}, {"deep": [{"x": 1.5}, None, True]}, {"text": "ü\n\u2028 💡"}, {"message": "half way"})


def any_event(life, random: Random):
    """An event of a kind that the task system makes, whether it is allowed now or not."""
    fsm = life.live
    at = BEGAN + life.lines * 1000
    calls = life.open_calls()
    choices = [
        lambda: reasoned(index="files: none" if not fsm.context.memory_injected else "", text="well", at=at),
        lambda: reasoned(
            *[
                (life.fresh_id(), random.choice(TOOLS), random.choice(ARGUMENTS))
                for _ in range(random.choice([1, 1, 2, 4]))
            ],
            at=at,
        ),
        lambda: tool_done(random.choice(calls).id if calls else "nobody", '{"x":1}', random.random() < 0.8, at=at),
        lambda: tool_done("nobody", at=at),
        lambda: responded(random.choice(["", "the answer is 42"]), at),
        asked,
        told,
        lambda: suspended(fsm),
        lambda: resumed(fsm, random.choice(["", "and now?"]), at),
        lambda: finished(fsm),
        lambda: failed(random.choice(["broken", RESTARTED, "stopped by user"])),
        reflected,
        created,
    ]
    return random.choice(choices)()


def fitting_event(life, random: Random):
    """An event that a well-behaved task system makes now, or None if there is none."""
    fsm = life.live
    at = BEGAN + life.lines * 1000
    calls = life.open_calls()
    match fsm.state:
        case TaskState.REASONING:
            names = [
                (life.fresh_id(), random.choice(TOOLS), random.choice(ARGUMENTS)) for _ in range(random.randint(0, 3))
            ]
            index = "" if fsm.context.memory_injected else "files: none"
            return random.choice(
                [reasoned(*names, index=index, at=at)] * 6 + [asked(), suspended(fsm), failed(RESTARTED)]
            )
        case TaskState.ACTING:
            nxt = (
                tool_done(calls[0].id, '{"x":1}', random.random() < 0.8, calls[0].name, at)
                if calls
                else responded(at=at)
            )
            return random.choice([nxt] * 6 + [told(), suspended(fsm), failed()])
        case TaskState.SUSPENDED:
            late = tool_done(calls[0].id, '{"x":1}', random.random() < 0.6, at=at) if calls else responded(at=at)
            return random.choice([resumed(fsm, random.choice(["", "more"]), at), late, reasoned(), told()])
        case TaskState.COMPLETED if fsm.context.final_result is None:
            return random.choice([finished(fsm)] * 5 + [failed("stopped by user")])
        case TaskState.COMPLETED:
            return random.choice([resumed(fsm, "once more", at), reflected(), None])
        case TaskState.FAILED if fsm.context.error == RESTARTED:
            return random.choice([resumed(fsm, "again", at), None])
        case _:
            return None


def lifetime(random: Random, length=40, wild=0.15):
    """A life of at most so many events; `wild` of them are anything."""
    life = Life(
        created(
            metadata={"channel": {"type": "web", "channelId": "c1"}}, task_type=random.choice(["general", "explore"])
        )
    )
    for _ in range(length):
        made = any_event(life, random) if random.random() < wild else fitting_event(life, random)
        if made is None:
            break
        life.do(made)
    return life
