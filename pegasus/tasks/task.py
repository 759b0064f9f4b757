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
from pegasus.events import Emit, Event, EventType
from pegasus.formatting import describe_error
from pegasus.messages import Json
from pegasus.models import ModelError
from pegasus.observe import get_logger
from pegasus.tasks import payloads
from pegasus.tasks.cognition.reflector import should_reflect
from pegasus.tasks.context import PlannedCall, TaskState
from pegasus.tasks.fsm import InvalidTransition, TaskFSM
from pegasus.tasks.permits import Permits
from pegasus.tasks.ports import TaskDeps
from pegasus.tasks.stages import Stages
from pegasus.tasks.task_messages import Begin, Doing, Drain, Halt, Handle, Hold, Moved, StageOver, TaskMessage
from pegasus.tasks.types import TaskType
from pegasus.tasks.views import task_view

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


async def task(inbox: Inbox[TaskMessage], fsm: TaskFSM, task_type: TaskType, deps: TaskDeps, permits: Permits) -> None:
    """Run one task until it is done, or suspended with nothing left to do. Cancelled: its stage ends, with all it has started."""
    async with trio.open_nursery() as nursery:
        one = _Task(fsm, task_type, deps, permits, inbox.ref)
        nursery.start_soon(one.work)
        one.prepare()
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


@attrs.define(eq=False)
class _Task:
    fsm: TaskFSM
    type: TaskType
    deps: TaskDeps
    permits: Permits
    me: Ref[TaskMessage]
    doing: str = ""
    halted: bool = False
    left: float = attrs.field(init=False)
    stages: Stages = attrs.field(init=False)
    cause: Event | None = None
    awaited: int = 0
    reflected: bool = False
    _stage: Callable[[], Awaitable[object]] | None = None
    _scope: trio.CancelScope | None = None
    _begin: trio.Event = attrs.field(factory=trio.Event, init=False)
    _quiet: trio.Event = attrs.field(factory=trio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        self.left = self.deps.limits.timeout
        self.stages = Stages(self.fsm, self.type, self.deps, self.permits, self._emit)
        self._quiet.set()

    # ------------------------------------------------------------------ events

    def prepare(self) -> None:
        """Think of the input of a task that is new while it is being written."""
        if self.fsm.state is TaskState.IDLE:
            self._start(partial(self.stages.think_ahead, ()), "thinking")

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
            self.left = self.deps.limits.timeout
        await self.go_on()
        if self._busy:  # what is to be done begins first; how the task stands is said behind it
            await trio.lowlevel.cancel_shielded_checkpoint()
        if self.fsm.state is not before:
            await self._emit(EventType.TASK_STATE_CHANGED, {"fromState": before.value, "toState": self.fsm.state.value})
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
            await self.permits.agent.tell(Doing(self.fsm.task_id, self.doing))

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
                if self.deps.memory is not None and should_reflect(self.fsm.context):
                    self._start(self.stages.look_back, "reflecting")
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
        make, cause = self.deps.events.create, cause or self.cause
        event = make(type, "task", payload, task_id=self.fsm.task_id, priority=priority, cause=cause)
        await self.deps.bus.tell(Emit(event))
        return event

    async def _moved(self, trigger: Event) -> None:
        await self.permits.agent.tell(Moved(task_view(self.fsm, self.doing), self.fsm.draft.notified, trigger))

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
                await self._fail(f"the task took longer than {self.deps.limits.timeout:g} s")
        except ModelError as error:
            await self._fail(str(error)) if not looking_back else _log.warning("no reflection", error=str(error))
        except Exception as error:
            _log.exception("a stage failed", error=error, task=self.fsm.task_id)
            if not looking_back:
                await self._fail(describe_error(error))
        finally:
            self.left -= trio.current_time() - begun
            self._scope, self.doing = None, ""
            quiet.set()
            if not self.awaited:  # else what it gave is on its way back to us, and we go on then
                with trio.CancelScope(shield=True):
                    await self.me.tell(StageOver())

    async def _fail(self, error: str) -> None:
        if not self.halted:
            self.halted = True
            await self._emit(EventType.TASK_FAILED, payloads.failed(error), priority=self._behind)

    @property
    def _behind(self) -> int | None:
        """The priority of what must not overtake anything that is on its way already."""
        if self.fsm.state is TaskState.IDLE:
            return max(EventType.TASK_FAILED, self.fsm.priority)
        return EventType.TOOL_CALL_FAILED if self.awaited else None

    async def _start_reasoning(self) -> None:
        limit = self.deps.limits.max_iterations
        if self.fsm.draft.iteration >= limit:  # trap T1: the failure is an event like any other, made in one place
            await self._fail(f"the task did not come to an end within {limit} rounds of thinking")
        else:
            self._start(self.stages.reason, "thinking")

    def _start_acting(self) -> None:
        group = self.stages.open_steps()
        calls = [step.call for step in group if step.call is not None]
        if calls:
            self._start(partial(self._act, calls), ", ".join(call.name for call in calls))
        elif group:
            self._start(partial(self.stages.respond, self.fsm.draft.reasoning), "")

    async def _act(self, calls: Sequence[PlannedCall]) -> None:
        done = await self.stages.act(calls)
        leads_on = self._leads_to_a_thought(len(calls))
        await self.stages.tell(calls, done)
        if leads_on:
            self.doing = "thinking"
            await self.stages.think_ahead([one.result for one in done])

    def _leads_to_a_thought(self, calls: int) -> bool:
        """Whether nothing is left to do but to think, once these last calls of the plan are done."""
        known = self.fsm.draft
        if self.halted or self.awaited or self.fsm.state is not TaskState.ACTING or known.plan is None:
            return False
        is_last = calls == sum(not step.completed for step in known.plan.steps)
        return is_last and known.iteration < self.deps.limits.max_iterations

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
