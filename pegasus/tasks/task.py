"""A task as an actor: a state machine, and the one stage it is in (seed 003, "Task = State Machine").

It is handed events that are on disk already, makes the transition, and starts the next stage in its own nursery; what the
stage gives is the next event. It never changes by anything but events, so its log replays to the same.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import attrs
import trio

from actors import Inbox, Ref, Reply
from pegasus.conversation import Entry
from pegasus.events import Emit, Event, EventType
from pegasus.messages import Json
from pegasus.models.base import LanguageModel, ModelError, ModelRequest, ModelResponse, ToolCall, ToolSpec
from pegasus.observe import get_logger
from pegasus.tasks import payloads
from pegasus.tasks.cognition.doer import Done, next_steps, visible
from pegasus.tasks.cognition.reflector import should_reflect
from pegasus.tasks.cognition.talk import Talk
from pegasus.tasks.context import PlannedCall, PlanStep, Reasoning, TaskState
from pegasus.tasks.fsm import InvalidTransition, TaskFSM
from pegasus.tasks.labels import label_of
from pegasus.tasks.planner import call_key, plan
from pegasus.tasks.ports import Ports
from pegasus.tasks.sources import outside_of
from pegasus.tasks.task_messages import Begin, Doing, Drain, Halt, Handle, Hold, Moved, StageOver, TaskMessage
from pegasus.tasks.types import TaskType
from pegasus.tasks.views import view_of
from pegasus.tools import Tool, ToolContext, ToolOutcome

_log = get_logger("task")


_OWN = frozenset(
    {
        EventType.REASON_DONE,
        EventType.NEED_MORE_INFO,
        EventType.STEP_COMPLETED,
        EventType.TOOL_CALL_COMPLETED,
        EventType.TOOL_CALL_FAILED,
        EventType.TASK_SUSPENDED,
        EventType.TASK_COMPLETED,
        EventType.TASK_FAILED,
    }
)
"""What a task says of itself and waits to hear again, when it is on disk, before it begins anything else."""


async def task(inbox: Inbox[TaskMessage], fsm: TaskFSM, task_type: TaskType, ports: Ports, permits: Permits) -> None:
    """Run one task until it is done, or suspended with nothing left to do. Cancelled: its stage ends, with all it has started."""
    async with trio.open_nursery() as nursery:
        one = _Task(fsm, task_type, ports, permits, inbox.ref)
        nursery.start_soon(one.work)
        async for message in inbox:
            match message:
                case Handle(event):
                    await one.handle(event)
                case Begin(event, awaited):
                    await one.begin(event, awaited)
                case Halt(reply):
                    nursery.start_soon(one.halt, reply)
                case Hold(reason):
                    await one.hold(reason)
                case Drain(reply):
                    nursery.start_soon(one.drain, reply)
                case StageOver():
                    await one.next_stage()
            if one.over:
                break
        nursery.cancel_scope.cancel()


@attrs.frozen(eq=False)
class Permits:
    """What all tasks share: calls of models and of tools, waiting in order; held for one call, never longer (trap T33).

    agent: who is told how tasks stand.
    """

    calls: trio.Semaphore
    tools: trio.Semaphore
    agent: Ref[Moved | Doing]


class permit:
    """Hold one of the semaphore's permits: without giving others a turn where one is free, else waiting in order."""

    def __init__(self, semaphore: trio.Semaphore) -> None:
        self._semaphore = semaphore

    async def __aenter__(self) -> None:
        try:
            self._semaphore.acquire_nowait()
        except trio.WouldBlock:
            await self._semaphore.acquire()

    async def __aexit__(self, *_: object) -> None:
        self._semaphore.release()


@attrs.define(eq=False)
class _Task:
    fsm: TaskFSM
    type: TaskType
    ports: Ports
    permits: Permits
    me: Ref[TaskMessage]
    doing: str = ""
    halted: bool = False
    left: float = attrs.field(init=False)
    cause: Event | None = None
    awaited: int = 0
    reflected: bool = False
    env: dict[str, str] = attrs.field(factory=dict)
    talk: Talk = attrs.field(factory=Talk)
    _shown: tuple[tuple[Tool, ...], tuple[ToolSpec, ...]] = ((), ())
    _stage: Callable[[], Awaitable[object]] | None = None
    _scope: trio.CancelScope | None = None
    _begin: trio.Event = attrs.field(factory=trio.Event, init=False)
    _quiet: trio.Event = attrs.field(factory=trio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        self.left = self.ports.limits.timeout
        self._quiet.set()

    # ------------------------------------------------------------------ events

    async def handle(self, event: Event) -> None:
        """Make the transition and begin what follows from it."""
        before = self.fsm.state
        if event.type in _OWN:
            self.awaited = max(0, self.awaited - 1)
        try:
            self.fsm.transition(event)
        except InvalidTransition as error:
            _log.warning("dropped an event", task=self.fsm.task_id, problem=str(error))
            return
        self.cause = event
        if event.type is EventType.TASK_RESUMED:
            self.halted = self.reflected = False
            self.left = self.ports.limits.timeout
        if self.fsm.state is not before:
            await self._emit(EventType.TASK_STATE_CHANGED, {"fromState": before.value, "toState": self.fsm.state.value})
        await self.go_on()
        await self._moved(event)

    async def begin(self, event: Event, awaited: int) -> None:
        """Go on from where the log ends, once what is awaited has come."""
        self.cause, self.awaited = event, awaited
        await self.go_on()
        await self._moved(event)

    async def next_stage(self) -> None:
        """Go on after a stage that nothing has come of."""
        await self.go_on()
        if self.doing:
            await self.permits.agent.send(Doing(self.fsm.task_id, self.doing))

    async def go_on(self) -> None:
        """Start the stage that the state asks for, unless one runs, or has given something that is not on disk yet."""
        if self._busy or self.halted or self.awaited or self.cause is None:
            return
        match self.fsm.state:
            case TaskState.REASONING:
                await self._start_reasoning()
            case TaskState.ACTING:
                self._start_acting()
            case TaskState.COMPLETED if self.fsm.draft.final_result is None:
                await self._emit(EventType.TASK_COMPLETED, payloads.completed(self.fsm.context))
            case TaskState.COMPLETED if not self.reflected:
                self.reflected = True
                if self.ports.kit.memory is not None and should_reflect(self.fsm.context):
                    self._start(self._look_back, "reflecting")
            case _:
                pass

    @property
    def _busy(self) -> bool:
        return self._scope is not None

    @property
    def over(self) -> bool:
        """Nothing runs, and nothing will without an event that starts it anew."""
        if self._busy or self.awaited:
            return False
        if self.fsm.state is TaskState.COMPLETED:
            return self.reflected
        return self.fsm.state in (TaskState.FAILED, TaskState.SUSPENDED)

    async def _emit(
        self, type: EventType, payload: dict[str, Json], *, priority: int | None = None, cause: Event | None = None
    ) -> Event:
        """Make it known. cause: if it is not what moved the task last."""
        if type in _OWN:
            self.awaited += 1
        make, cause = self.ports.events, cause or self.cause
        if cause is None:
            event = make.create(type, "task", payload, task_id=self.fsm.task_id, priority=priority)
        else:
            event = make.derive(cause, type, payload, source="task", task_id=self.fsm.task_id, priority=priority)
        await self.ports.bus.send(Emit(event))
        return event

    async def _moved(self, trigger: Event) -> None:
        await self.permits.agent.send(Moved(view_of(self.fsm, self.doing), self.fsm.draft.notified, trigger))

    # ------------------------------------------------------------------ stages

    def _start(self, stage: Callable[[], Awaitable[object]], doing: str) -> None:
        looking_back = self.fsm.state is TaskState.COMPLETED
        self.doing, self._stage = doing, stage
        self._scope = trio.CancelScope(deadline=math.inf if looking_back else trio.current_time() + self.left)
        self._quiet = trio.Event()
        self._begin.set()

    async def work(self) -> None:
        """Run the stages that are started, one after another, for ever: to wake a task costs less than to begin one."""
        while True:
            await self._begin.wait()
            self._begin = trio.Event()
            if self._stage is not None and self._scope is not None:
                await self._run(self._stage, self._scope, self._quiet)

    async def _run(self, stage: Callable[[], Awaitable[object]], scope: trio.CancelScope, quiet: trio.Event) -> None:
        """One stage, under the time that is left for the task. An error in it fails the task, and nobody else."""
        begun = trio.current_time()
        looking_back = self.fsm.state is TaskState.COMPLETED
        try:
            with scope:
                await stage()
            if scope.cancelled_caught:  # or it was halted, and then nothing follows
                await self._fail(f"the task took longer than {self.ports.limits.timeout:g} s")
        except ModelError as error:
            await self._fail(str(error)) if not looking_back else _log.warning("no reflection", error=str(error))
        except Exception as error:
            _log.exception("a stage failed", error=error, task=self.fsm.task_id)
            if not looking_back:
                await self._fail(f"{type(error).__name__}: {error}")
        finally:
            self.left -= trio.current_time() - begun
            self._scope, self.doing = None, ""
            quiet.set()
            if not self.awaited:  # else what it gave is on its way back to us, and we go on then
                with trio.CancelScope(shield=True):
                    await self.me.send(StageOver())

    async def _fail(self, error: str) -> None:
        if not self.halted:
            self.halted = True
            await self._emit(EventType.TASK_FAILED, payloads.failed(error))

    async def _start_reasoning(self) -> None:
        limit = self.ports.limits.max_iterations
        if self.fsm.draft.iteration >= limit:  # trap T1: the failure is an event like any other, made in one place
            await self._fail(f"the task did not come to an end within {limit} rounds of thinking")
        else:
            self._start(self._reason, "thinking")

    async def _reason(self) -> None:
        ports, context = self.ports, self.fsm.context
        index = ""
        if ports.kit.memory is not None and not context.iteration and not context.memory_injected:
            index = await ports.kit.memory.index()
        model = ports.kit.model_for(self.type)
        async with permit(self.permits.calls):
            thought = await ports.kit.thinker.think(context, model, self.type, self._visible(), index, self.talk)
        if thought.question:
            await self._emit(EventType.NEED_MORE_INFO, payloads.need_more_info(thought.reasoning, thought.question))
            return
        steps = plan(thought.reasoning, context.input_text)
        payload = payloads.reason_done(thought.reasoning, steps, thought.entries)
        thought_out = await self._emit(EventType.REASON_DONE, payload)
        if steps.steps[0].call is None:  # to answer is no work: said along with the thought, it costs no sync
            answer = await self._respond(thought.reasoning, thought_out)
            result = payloads.answered(context, thought.reasoning.response)
            # Behind the answer; a task that is suspended meanwhile does not take it, and completes when it goes on.
            await self._emit(EventType.TASK_COMPLETED, result, priority=EventType.STEP_COMPLETED, cause=answer)

    def _visible(self) -> tuple[ToolSpec, ...]:
        tools = tuple(self.ports.kit.toolbox.all())
        if tools != self._shown[0]:  # they seldom change
            self._shown = tools, visible(self.ports.kit.toolbox, self.type)
        return self._shown[1]

    def _open_steps(self) -> tuple[PlanStep, ...]:
        made = self.fsm.draft.plan
        return next_steps(made.steps, self.ports.kit.doer.effect_of) if made is not None else ()

    def _start_acting(self) -> None:
        group = self._open_steps()
        calls = [step.call for step in group if step.call is not None]
        if calls:
            self._start(partial(self._act, calls), ", ".join(call.name for call in calls))
        elif group:
            self._start(partial(self._respond, self.fsm.draft.reasoning), "")

    async def _act(self, calls: Sequence[PlannedCall]) -> None:
        done: dict[str, Done] = {}
        if len(calls) == 1:
            await self._do(calls[0], done)
        else:
            async with trio.open_nursery() as nursery:
                for call in calls:
                    nursery.start_soon(self._do, call, done)
        for call in calls:
            await self._emit_done(call, done[call.id])

    async def _do(self, call: PlannedCall, done: dict[str, Done]) -> None:
        context = self._context_of(call_key(self.fsm.task_id, call.id), call.name)
        async with permit(self.permits.tools):
            await self._emit(EventType.TOOL_CALL_REQUESTED, {"toolName": call.name, "params": call.arguments})
            done[call.id] = await self.ports.kit.doer.do(call, self.type, context)

    def _context_of(self, key: str, name: str, role: str = "") -> ToolContext:
        kit, about = self.ports.kit, self.fsm.context
        context = attrs.evolve(kit.context, task_id=self.fsm.task_id, key=key, env=self.env, role=role)
        if not name.startswith("memory_"):
            return context
        return attrs.evolve(
            context, origin=label_of(about).channel, outside=outside_of(about.messages, kit.toolbox.get)
        )

    async def _emit_done(self, call: PlannedCall, done: Done) -> None:
        if done.told:
            await self._emit(EventType.TASK_NOTIFY, payloads.notify(done.told))
        kind = EventType.TOOL_CALL_COMPLETED if done.success else EventType.TOOL_CALL_FAILED
        payload = payloads.tool_done(call.name, done.duration, done.result)
        # One priority for both, so that results reach the conversation in the order of the calls (trap T31).
        await self._emit(kind, payload, priority=EventType.TOOL_CALL_COMPLETED)

    async def _respond(self, reasoning: Reasoning | None, cause: Event | None = None) -> Event:
        answer = Entry(self.ports.clock(), "assistant", reasoning.response if reasoning is not None else "")
        return await self._emit(EventType.STEP_COMPLETED, payloads.step_completed(answer), cause=cause)

    # ------------------------------------------------------------------ looking back

    async def _look_back(self) -> None:
        ports = self.ports
        if ports.kit.memory is None:
            return
        tools = {name: tool for name in ports.kit.memory.tools if (tool := ports.kit.toolbox.get(name)) is not None}
        specs = tuple(tool.spec for tool in tools.values())

        async def ask(request: ModelRequest) -> ModelResponse:
            return await self._ask(ports.kit.reflection_model, request)

        async def run(call: ToolCall) -> ToolOutcome:
            tool = tools.get(call.name)
            if tool is None:
                return ToolOutcome(f"Error: there are only {', '.join(tools)}", failed=True)
            context = self._context_of(call_key(self.fsm.task_id, call.id), call.name, "reflection")
            async with permit(self.permits.tools):
                return await ports.kit.toolbox.run(tool, call.arguments, context)

        found = await ports.kit.reflector.reflect(self.fsm.context, await ports.kit.memory.digest(), specs, ask, run)
        await self._emit(EventType.REFLECTION_COMPLETE, payloads.reflected(found))

    async def _ask(self, model: LanguageModel, request: ModelRequest) -> ModelResponse:
        async with permit(self.permits.calls):
            return await model.generate(request)

    # ------------------------------------------------------------------ being stopped

    async def halt(self, reply: Reply[str]) -> None:
        """End the stage and whatever it has started; nothing follows."""
        doing, self.halted = self.doing, True
        if self._scope is not None:
            self._scope.cancel()
        await self._quiet.wait()
        reply.send(doing)

    async def hold(self, reason: str) -> None:
        """Be suspended, as of now; a stage that runs may finish, and its event is kept (trap T7)."""
        if self.fsm.state not in (TaskState.REASONING, TaskState.ACTING) or self.halted:
            return
        await self._emit(EventType.TASK_SUSPENDED, payloads.suspended(self.fsm.context, self.fsm.state, reason))

    async def drain(self, reply: Reply[None]) -> None:
        """Finish the stage, begin nothing."""
        self.halted = True
        await self._quiet.wait()
        reply.send(None)
