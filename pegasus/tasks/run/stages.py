"""The stages of a task: thinking, acting, answering, reflecting.

A stage reads the task and does the work; it never changes the task. It returns the events that came of it as drafts, and the
actor of the task records and applies them. A stage that is cancelled therefore leaves nothing half done behind: its events were
not recorded, so for the task and for its log it has not happened.

All events of a stage are recorded together, in one durable step. For a group of calls that run side by side this means that no
result is recorded before the last call has ended; after a crash recovery has to treat the whole group as calls that may have been
running.

Slots for tool calls are taken here and not in the doer, so that the time in which a call waits for a slot is not counted as its
duration, and a call is announced to observers when it begins.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import attrs
import trio

from actors import ActorError
from pegasus.conversation import Entry
from pegasus.events import Emit, EventType
from pegasus.memory import MemoryRefused
from pegasus.messages import Json
from pegasus.models import ModelRequest, ModelResponse, ToolCall
from pegasus.observe import get_logger
from pegasus.storage import StorageError
from pegasus.tasks.core.context import (
    NeedMoreInfo,
    Payload,
    PlannedCall,
    ReasonDone,
    Reasoning,
    ReflectionDone,
    StepCompleted,
    TaskContext,
    TaskNotified,
    ToolCallDone,
    make_plan,
    messages_json,
    task_completed,
    to_payload,
)
from pegasus.tasks.core.fsm import TaskFSM
from pegasus.tasks.core.task_types import TaskType
from pegasus.tasks.run.call_origin import label_of, outside_sources
from pegasus.tasks.run.deps import TaskDeps
from pegasus.tasks.run.doer import CallResult, allowed_tools, next_steps
from pegasus.tasks.run.thinker import Thought
from pegasus.tools import REFLECTION_TOOLS, ToolContext, ToolOutcome

_log = get_logger("task")


@attrs.frozen
class EventDraft:
    """An event that a stage returns to be recorded; its id, time and cause are added then.

    Example: `EventDraft(EventType.TASK_FAILED, to_payload(TaskFailed("stopped by the owner")))`.
    """

    type: EventType
    """Type of the event."""
    payload: Payload
    """Its payload, complete."""
    follows: bool = False
    """The draft before it is its cause; otherwise the last recorded event of the task."""
    priority: int | None = None
    """Priority on the bus, where its type's own would put it before an earlier event of the task."""


class Stages:
    """The stages of one task. They read its state machine and never move it. Raise ModelError, and whatever a defect raises.

    Example: `drafts = await Stages(fsm, task_type, deps, tool_slots).reason()`.
    """

    def __init__(self, fsm: TaskFSM, task_type: TaskType, deps: TaskDeps, tool_slots: trio.Semaphore) -> None:
        self._fsm = fsm
        self._type = task_type
        self._deps = deps
        self._tool_slots = tool_slots
        """Slots for tool calls of all tasks together."""
        self._env: dict[str, str] = {}
        """Environment that the tool calls of this task share; it lives as long as the actor of the task."""

    # ------------------------------------------------------------------ thinking

    async def reason(self) -> list[EventDraft]:
        """Make one model call. Returns the thought and, if it calls no tool, the answer that it is.

        Raises ModelError, and ValueError for a model that is not configured. Cancelled: the request is given up; nothing is recorded.
        """
        thought = await self._think(self._fsm.context)
        if thought.question:
            payload = to_payload(NeedMoreInfo(thought.reasoning, thought.question))
            return [EventDraft(EventType.NEED_MORE_INFO, payload)]
        plan = make_plan(thought.reasoning, self._fsm.context.input_text)
        payload = to_payload(ReasonDone(thought.reasoning, plan, messages_json(thought.entries)))
        draft = EventDraft(EventType.REASON_DONE, payload)
        return [draft] if thought.reasoning.tool_calls else [draft, *self._answer(thought.reasoning)]

    def _answer(self, reasoning: Reasoning) -> list[EventDraft]:
        """Return the events behind a thought that answers. Recorded together with it, an answer costs one sync."""
        context = self._fsm.context
        [step] = self.respond(reasoning)
        payload = task_completed(context, reasoning.response, context.iteration + 1)
        end = EventDraft(EventType.TASK_COMPLETED, payload, follows=True, priority=EventType.STEP_COMPLETED)
        return [attrs.evolve(step, follows=True), end]

    async def _think(self, context: TaskContext) -> Thought:
        """Make a model call. The index of memory is given to the first one only; later ones have it in the conversation."""
        deps, index = self._deps, ""
        if deps.memory is not None and not context.iteration and not context.memory_injected:
            index = await _read_or_nothing(deps.memory.index_message)
        model = deps.model_for(self._type.model_name)
        return await deps.thinker.think(context, model, self._type, allowed_tools(deps.toolbox, self._type), index)

    # ------------------------------------------------------------------ acting

    def next_calls(self) -> tuple[PlannedCall, ...]:
        """Return the calls to make now, () if there is none."""
        plan = self._fsm.context.plan
        steps = next_steps(plan.steps, self._deps.doer.effect_of) if plan is not None else ()
        return tuple(step.call for step in steps if step.call is not None)

    async def act(self, calls: Sequence[PlannedCall]) -> list[EventDraft]:
        """Make these calls side by side. Returns their results in the order of the calls.

        calls: as `next_calls` has returned them. Raises nothing for a call that fails: its error is its result. Cancelled:
        returns when every call has ended with all that it has started; the results are not recorded.
        """
        results: dict[str, CallResult] = {}

        async def make(call: PlannedCall) -> None:
            context = self._tool_context(call.id, call.name)
            async with self._tool_slots:
                await self._announce(call)
                results[call.id] = await self._deps.doer.do(call, self._type, context)

        async with trio.open_nursery() as nursery:
            for call in calls:
                nursery.start_soon(make, call)
        return [draft for call in calls for draft in _result_drafts(results[call.id])]

    async def _announce(self, call: PlannedCall) -> None:
        """Publish TOOL_CALL_REQUESTED. It is not recorded: a call without a result says the same in the log."""
        payload: dict[str, Json] = {"toolName": call.name, "params": call.arguments}
        task_id = self._fsm.task_id
        event = self._deps.events.create(EventType.TOOL_CALL_REQUESTED, "task", payload, task_id=task_id)
        await self._deps.bus.tell(Emit(event))

    def _tool_context(self, call_id: str, name: str, role: str = "") -> ToolContext:
        """Return the context of a call. Its key is the same when the call is run again after a crash."""
        deps, task = self._deps, self._fsm.context
        key = f"{task.id}/{call_id}"
        context = attrs.evolve(deps.context, task_id=task.id, key=key, env=self._env, role=role)
        if not name.startswith("memory_"):
            return context
        outside = outside_sources(task.messages, deps.toolbox.get)
        return attrs.evolve(context, origin=label_of(task).channel, outside=outside)

    def respond(self, reasoning: Reasoning | None) -> list[EventDraft]:
        """Return the answer that a thought without calls is."""
        answer = Entry(self._deps.clock(), "assistant", reasoning.response if reasoning is not None else "")
        return [EventDraft(EventType.STEP_COMPLETED, to_payload(StepCompleted(messages_json((answer,)))))]

    # ------------------------------------------------------------------ reflecting

    async def reflect(self) -> list[EventDraft]:
        """Reflect on the completed task. Returns its outcome as an event for the log only."""
        deps = self._deps
        if deps.memory is None:
            return []
        tools = {name: tool for name in REFLECTION_TOOLS if (tool := deps.toolbox.get(name)) is not None}

        async def ask(request: ModelRequest) -> ModelResponse:
            return await deps.model_for("reflection").generate(request)

        async def run(call: ToolCall) -> ToolOutcome:
            tool = tools.get(call.name)
            if tool is None:
                return ToolOutcome(f"Error: there are only {', '.join(tools)}", failed=True)
            context = self._tool_context(call.id, call.name, "reflection")
            async with self._tool_slots:
                return await deps.toolbox.run(tool, call.arguments, context)

        memory = await _read_or_nothing(deps.memory.for_reflection)
        specs = tuple(tool.spec for tool in tools.values())
        found = await deps.reflector.reflect(self._fsm.context, memory, specs, ask, run)
        payload = to_payload(ReflectionDone(found.tool_calls_count, found.assessment))
        return [EventDraft(EventType.REFLECTION_COMPLETE, payload)]


def _result_drafts(done: CallResult) -> list[EventDraft]:
    """Return the events of a call. A notification comes before the result: recovery can then tell that it was made."""
    drafts = []
    if done.notification:
        drafts.append(EventDraft(EventType.TASK_NOTIFY, to_payload(TaskNotified(done.notification))))
    kind = EventType.TOOL_CALL_COMPLETED if done.success else EventType.TOOL_CALL_FAILED
    payload = to_payload(ToolCallDone(done.call.name, done.duration_ms, messages_json((done.result,))))
    # One priority for both types, so that subscribers see results in the order of the calls.
    return [*drafts, EventDraft(kind, payload, priority=EventType.TOOL_CALL_COMPLETED)]


async def _read_or_nothing(read: Callable[[], Awaitable[str]]) -> str:
    """Return the text that `read` gives; "" if memory cannot be read, since that must not fail a task."""
    try:
        return await read()
    except (MemoryRefused, OSError, StorageError, ActorError) as error:
        _log.warning("memory cannot be read", error=str(error))
        return ""
