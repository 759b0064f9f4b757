"""What a task does in its stages: it thinks, acts, answers, looks back (seed 001). What comes of it is said by events alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import attrs
import trio

from actors import ActorError
from pegasus.conversation import Entry
from pegasus.events import Event, EventType
from pegasus.memory import MemoryRefused
from pegasus.messages import Json
from pegasus.models import LanguageModel, ModelRequest, ModelResponse, ToolCall, ToolSpec
from pegasus.observe import get_logger
from pegasus.storage import StorageError
from pegasus.tasks import payloads
from pegasus.tasks.cognition.doer import Done, next_steps, visible
from pegasus.tasks.cognition.talk import Talk
from pegasus.tasks.cognition.thinker import Thought
from pegasus.tasks.context import PlannedCall, PlanStep, Reasoning, TaskContext, TaskState
from pegasus.tasks.fsm import TaskFSM
from pegasus.tasks.labels import label_of
from pegasus.tasks.permits import Permits, permit
from pegasus.tasks.planner import call_key, plan
from pegasus.tasks.ports import TaskDeps
from pegasus.tasks.sources import outside_of
from pegasus.tasks.types import TaskType
from pegasus.tools import REFLECTION_TOOLS, Tool, ToolContext, ToolOutcome

_log = get_logger("task")


async def _read_or_nothing(read: Callable[[], Awaitable[str]]) -> str:
    """Return what memory says; "" where it cannot be read, for that must not fail a task."""
    try:
        return await read()
    except (MemoryRefused, OSError, StorageError, ActorError) as error:
        _log.warning("memory cannot be read", error=str(error))
        return ""


class Emitter(Protocol):
    """Makes something known of the task; it comes back when it is on disk."""

    async def __call__(
        self, type: EventType, payload: dict[str, Json], *, priority: int | None = None, cause: Event | None = None
    ) -> Event:
        """cause: if it is not what moved the task last."""


@attrs.frozen(eq=False)
class _Ahead:
    """A thought about these messages, while they were not all written."""

    messages: Sequence[Entry]
    thought: Thought


def _is_about(considered: Sequence[Entry], messages: Sequence[Entry]) -> bool:
    """Whether these messages, which only become more, are those that were considered."""
    return len(considered) == len(messages) and considered[-1] == messages[-1]


class Stages:
    """Those of one task. It reads the task's state machine and never moves it. Raises ModelError, and what is broken."""

    def __init__(self, fsm: TaskFSM, task_type: TaskType, deps: TaskDeps, permits: Permits, emit: Emitter) -> None:
        self._fsm = fsm
        self._type = task_type
        self._deps = deps
        self._permits = permits
        self._emit = emit
        self._env: dict[str, str] = {}
        self._talk = Talk()
        self._shown: tuple[tuple[Tool, ...], tuple[ToolSpec, ...]] = ((), ())
        self._ahead: _Ahead | None = None

    # ------------------------------------------------------------------ thinking

    async def reason(self) -> None:
        """Think, and say what comes of it."""
        context = self._fsm.context
        ahead, self._ahead = self._ahead, None
        if ahead is not None and _is_about(ahead.messages, context.messages):
            await self._say(ahead.thought)
        else:
            await self._say(await self._think(context))

    async def _think(self, context: TaskContext) -> Thought:
        """One model call."""
        deps, index = self._deps, ""
        if deps.memory is not None and not context.iteration and not context.memory_injected:
            index = await _read_or_nothing(deps.memory.index_message)
        model = deps.model_for(self._type.model_name)
        async with permit(self._permits.calls):
            return await deps.thinker.think(context, model, self._type, self._visible(), index, self._talk)

    async def _say(self, thought: Thought) -> None:
        """What a thought comes to."""
        if thought.question:
            await self._emit(EventType.NEED_MORE_INFO, payloads.need_more_info(thought.reasoning, thought.question))
            return
        steps = plan(thought.reasoning, self._fsm.draft.input_text)
        payload = payloads.reason_done(thought.reasoning, steps, thought.entries)
        thought_out = await self._emit(EventType.REASON_DONE, payload)
        if steps.steps[0].call is None:  # to answer is no work: said along with the thought, it costs no sync
            answer = await self.respond(thought.reasoning, thought_out)
            result = payloads.answered(self._fsm.context, thought.reasoning.response)
            # Behind the answer; a task that is suspended meanwhile does not take it, and completes when it goes on.
            await self._emit(EventType.TASK_COMPLETED, result, priority=EventType.STEP_COMPLETED, cause=answer)

    async def think_ahead(self, results: Sequence[Entry]) -> None:
        """Have the next thought while what it is about is still being written, a new task or results; say it when that is done.

        To think changes nothing, so a crash that loses the results loses nothing with the thought but its cost.
        """
        context = self._fsm.draft.context(results)
        thought = await self._think(context)
        if self._fsm.state is not TaskState.IDLE and _is_about(context.messages, self._fsm.draft.messages):
            await self._say(thought)
        else:  # not written yet, or no longer all there is to think about
            self._ahead = _Ahead(context.messages, thought)

    def _visible(self) -> tuple[ToolSpec, ...]:
        tools = tuple(self._deps.toolbox.all())
        if tools != self._shown[0]:  # they seldom change
            self._shown = tools, visible(self._deps.toolbox, self._type)
        return self._shown[1]

    # ------------------------------------------------------------------ acting

    def open_steps(self) -> tuple[PlanStep, ...]:
        """What is to be done now."""
        made = self._fsm.draft.plan
        return next_steps(made.steps, self._deps.doer.effect_of) if made is not None else ()

    async def act(self, calls: Sequence[PlannedCall]) -> list[Done]:
        """What came of each call. Several are made side by side."""
        done: dict[str, Done] = {}
        if len(calls) == 1:
            await self._do(calls[0], done)
        else:
            async with trio.open_nursery() as nursery:
                for call in calls:
                    nursery.start_soon(self._do, call, done)
        return [done[call.id] for call in calls]

    async def _do(self, call: PlannedCall, done: dict[str, Done]) -> None:
        context = self._context_of(call_key(self._fsm.task_id, call.id), call.name)
        async with permit(self._permits.tools):
            await self._emit(EventType.TOOL_CALL_REQUESTED, {"toolName": call.name, "params": call.arguments})
            done[call.id] = await self._deps.doer.do(call, self._type, context)

    def _context_of(self, key: str, name: str, role: str = "") -> ToolContext:
        deps, about = self._deps, self._fsm.context
        context = attrs.evolve(deps.context, task_id=self._fsm.task_id, key=key, env=self._env, role=role)
        if not name.startswith("memory_"):
            return context
        return attrs.evolve(
            context, origin=label_of(about).channel, outside=outside_of(about.messages, deps.toolbox.get)
        )

    async def tell(self, calls: Sequence[PlannedCall], done: Sequence[Done]) -> None:
        """Say what came of these calls, in their order."""
        for call, one in zip(calls, done, strict=True):
            if one.told:
                await self._emit(EventType.TASK_NOTIFY, payloads.notify(one.told))
            kind = EventType.TOOL_CALL_COMPLETED if one.success else EventType.TOOL_CALL_FAILED
            payload = payloads.tool_done(call.name, one.duration, one.result)
            # One priority for both, so that results reach the conversation in the order of the calls (trap T31).
            await self._emit(kind, payload, priority=EventType.TOOL_CALL_COMPLETED)

    async def respond(self, reasoning: Reasoning | None, cause: Event | None = None) -> Event:
        """Say what a thought without calls comes to."""
        answer = Entry(self._deps.clock(), "assistant", reasoning.response if reasoning is not None else "")
        return await self._emit(EventType.STEP_COMPLETED, payloads.step_completed(answer), cause=cause)

    # ------------------------------------------------------------------ looking back

    async def look_back(self) -> None:
        """Reflect on a finished task, which changes nothing of it."""
        deps = self._deps
        if deps.memory is None:
            return
        tools = {name: tool for name in REFLECTION_TOOLS if (tool := deps.toolbox.get(name)) is not None}
        specs = tuple(tool.spec for tool in tools.values())

        async def ask(request: ModelRequest) -> ModelResponse:
            return await self._ask(deps.model_for("reflection"), request)

        async def run(call: ToolCall) -> ToolOutcome:
            tool = tools.get(call.name)
            if tool is None:
                return ToolOutcome(f"Error: there are only {', '.join(tools)}", failed=True)
            context = self._context_of(call_key(self._fsm.task_id, call.id), call.name, "reflection")
            async with permit(self._permits.tools):
                return await deps.toolbox.run(tool, call.arguments, context)

        memory = await _read_or_nothing(deps.memory.for_reflection)
        found = await deps.reflector.reflect(self._fsm.context, memory, specs, ask, run)
        await self._emit(EventType.REFLECTION_COMPLETE, payloads.reflected(found))

    async def _ask(self, model: LanguageModel, request: ModelRequest) -> ModelResponse:
        async with permit(self._permits.calls):
            return await model.generate(request)
