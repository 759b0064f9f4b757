"""The control plane's methods about work: tasks, events as they happen, one conversation, and scheduled jobs.

Tasks belong to the task system, jobs to their keeper, messages to the journal. A method asks the actor that has the
thing and formats the answer, with the same functions (`task_json`, `job_view`) by which the command line shows files
while no daemon runs. So a program gets the same object either way.

The task system starts after the daemon has announced that it is ready, and again after a crash of its own. Methods that
ask it therefore wait for it. The bound of that wait is the gateway's deadline for a call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from secrets import token_hex
from typing import TypeVar, TypeVarTuple

import attrs

from actors import Ref, Reply
from pegasus.access import Principal, Role
from pegasus.app.approvals import ANSWER_TIMEOUT
from pegasus.app.control_plane.access import address_of
from pegasus.conversation import to_json
from pegasus.events import EventReader, EventType, EventWindow, event_json
from pegasus.formatting import quote
from pegasus.gateway import (
    BadParams,
    Caller,
    EventStream,
    Method,
    NotFound,
    Params,
    PushEvent,
    bad_params_for,
    read_number,
    require_owner,
    require_text,
)
from pegasus.host import command_name, wall_clock
from pegasus.main_agent import continue_task, pause_task
from pegasus.messages import ChannelInfo, Json
from pegasus.policy import OwnerMessage
from pegasus.schedule import (
    AddJob,
    EnableJob,
    ListJobs,
    RemoveJob,
    RunJob,
    ScheduleError,
    ScheduleMessage,
    draft_job,
    job_view,
    jobs_view,
)
from pegasus.settings import LiveValue
from pegasus.storage import JournalMessage, LastSeq, Waiting
from pegasus.tasks import (
    LATELY,
    Cancel,
    GetContext,
    GetEvents,
    GetTask,
    LatestTasks,
    ListPending,
    ListTasks,
    Resume,
    TaskAgentMessage,
    TaskError,
    TaskView,
    is_date,
    task_json,
    wait_until_running,
)
from pegasus.wire import to_wire

R = TypeVar("R")
Args = TypeVarTuple("Args")

LISTED = 50
"""Newest tasks that `tasks.list` looks at for those that are not in memory."""
JOB_TIMEOUT = 10.0
"""Seconds that the keeper of jobs may take to answer."""
MAX_EVENTS = 1000
"""Events that `tasks.log` returns at most."""


# ------------------------------------------------------------------ tasks


@attrs.frozen(eq=False, repr=False)
class TaskMethods:
    """Tasks: `tasks.list`, `.show`, `.replay`, `.log`, and what changes one: `tasks.cancel`, `.resume`, `.suspend`, `.continue`.

    `taskId` is the id of a task or its number, as a text or a whole number.

    The task system starts behind the ready line, so each method waits until it runs (the gateway's deadline for calls
    bounds that wait).

    Example::

        tasks = TaskMethods(root.ref(TASK_AGENT))
        await tasks.show(caller, {"taskId": 42})  # the task as `task_json` has it
        await tasks.cancel(caller, {"taskId": "42"})
    """

    agent: Ref[TaskAgentMessage]
    """The orchestrator of the task system."""
    clock: Callable[[], int] = wall_clock
    """Wall clock, ms."""
    owners: LiveValue[Collection[str]] = attrs.field(factory=lambda: LiveValue(()))
    """The setting `agent.owners`."""

    def methods(self) -> dict[str, Method]:
        """Return the methods by the names that they have on the wire."""
        return {
            "tasks.list": self.list,
            "tasks.show": self.show,
            "tasks.replay": self.replay,
            "tasks.log": self.log,
            "tasks.cancel": self.cancel,
            "tasks.resume": self.resume,
            "tasks.suspend": self.suspend,
            "tasks.continue": self.continue_,
        }

    async def list(self, caller: Caller, params: Params) -> Json:
        """Return the unfinished tasks and those of the last 24 hours or, with `date` (YYYY-MM-DD, UTC), those created on that day.

        Without a date at most LISTED that are not in memory are read, as after a restart.

        Tasks of an earlier day are read from the task log, so this takes as long as reading that day's file.
        """
        date = params.get("date")
        if date is not None and not (isinstance(date, str) and is_date(date)):
            raise BadParams(f"date: found {quote(date)}, allowed: YYYY-MM-DD")
        tasks = {task.task_id: task for task in await self._ask(ListTasks, date)}
        if date is None:
            latest = await self._ask(LatestTasks, LISTED, self.clock() - LATELY)
            tasks |= {task.task_id: task for task in latest}
        return {"tasks": [task_json(task) for task in tasks.values()]}

    async def show(self, caller: Caller, params: Params) -> Json:
        """Return the state and result of the task `taskId`.

        Tasks that have ended are found too, as long as their log is kept.
        """
        return task_json(await self.find(params))

    async def find(self, params: Params) -> TaskView:
        """Return the task `taskId`. Raises BadParams if there is none."""
        name = _task_id(params)
        task = await self._ask(GetTask, name)
        if task is None:
            raise NotFound(f"taskId: there is no task {quote(name)}")
        return task

    async def replay(self, caller: Caller, params: Params) -> Json:
        """Return the whole conversation of the task `taskId`.

        The conversation is what the model of the task has seen: its messages, calls and results. Raises NotFound if there is
        no such task.
        """
        task_id = _task_id(params)
        context = await self._ask(GetContext, task_id)
        if context is None:
            raise NotFound(f"taskId: there is no task {quote(task_id)}")
        return {"taskId": context.id, "messages": [to_json(entry) for entry in context.messages]}

    async def log(self, caller: Caller, params: Params) -> Json:
        """Return the last MAX_EVENTS events in the log of the task `taskId`, in the form that `events.subscribe` sends them."""
        task = await self.find(params)
        events = await self._ask(GetEvents, task.task_id)
        return {"task": task_json(task), "events": [event_json(event) for event in events[-MAX_EVENTS:]]}

    async def cancel(self, caller: Caller, params: Params) -> Json:
        """Cancel the task `taskId`, and return what was ended once nothing of it runs.

        A task that does not exist or has ended already is a BadParams. Cancelling this call does not save the
        task.
        """
        return to_wire(await self._ask(Cancel, _task_id(params), f"a control call ({caller.type})"))

    async def resume(self, caller: Caller, params: Params) -> Json:
        """Resume a suspended, completed or interrupted task, with `input` as a new message if there is one.

        It returns as soon as the task is queued or running; the result comes to the Main Agent as a
        notification.
        """
        task_id, text = _task_id(params), params.get("input", "")
        if not isinstance(text, str):
            raise BadParams("input: must be a text")
        words: tuple[OwnerMessage, ...] = ()
        if text and caller.is_owner(self.owners.now):
            words = (OwnerMessage(f"{caller.type}:{caller.channel_id}/answer-{token_hex(8)}", text),)
        await self._ask(Resume, task_id, text, "", (), words)
        return {"taskId": task_id, "status": "resumed"}

    async def suspend(self, caller: Caller, params: Params) -> Json:
        """Pause the task `taskId` before its next step. `status` is "suspended", or "suspending" while the step takes longer.

        Cancelling the call does not take it back; `tasks.continue` does.
        """
        task = await self.find(params)
        with bad_params_for(TaskError):
            is_paused, text = await pause_task(self.agent, task)
        return {"taskId": task.task_id, "status": "suspended" if is_paused else "suspending", "text": text}

    async def continue_(self, caller: Caller, params: Params) -> Json:
        """Let the task `taskId` go on that was paused. It returns when that is on disk; the task may still wait for its turn."""
        task = await self.find(params)
        with bad_params_for(TaskError):
            text = await continue_task(self.agent, task)
        return {"taskId": task.task_id, "status": "continued", "text": text}

    async def _ask(self, make: Callable[[Reply[R], *Args], TaskAgentMessage], *args: *Args) -> R:
        """Return the answer of the task system, once it runs. Raises BadParams for what it refuses."""
        await wait_until_running(self.agent)
        with bad_params_for(TaskError):
            return await self.agent.ask(make, *args)


def _task_id(params: Params) -> str:
    """Return the param `taskId` as a text. Raises BadParams if it is missing or of another type.

    A bool is no number, though Python counts it as one.
    """
    value = params.get("taskId")
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return require_text(params, "taskId", "the number or the id of a task")


# ------------------------------------------------------------------ events


@attrs.frozen(eq=False, repr=False)
class EventMethods:
    """Events as they happen: `events.subscribe`.

    Example::

        events = EventMethods(recent, tasks)
        stream = await events.subscribe(caller, {"taskId": 3, "types": ["TASK_COMPLETED"]})
        await stream.run(push)  # until cancelled; `push` sends a number and an event
    """

    recent: EventWindow
    """The last events, with their numbers."""
    tasks: TaskMethods
    """Finds a task by its number."""

    def methods(self) -> dict[str, Method]:
        """Return the methods by the names that they have on the wire."""
        return {"events.subscribe": self.subscribe}

    async def subscribe(self, caller: Caller, params: Params) -> EventStream:
        """Stream the events with numbers above `after` (left out: those from now on), of the task `taskId` and of `types` only.

        Where events were missed, because they are not kept any more, an event of type "gap" comes first.
        """
        task_id = (await self.tasks.find(params)).task_id if params.get("taskId") is not None else None
        types = _event_types(params)
        after = read_number(params, "after", self.recent.newest)

        async def run(push: PushEvent) -> None:
            """Push events until cancelled. A client that reads slowly holds up this stream alone; what it misses becomes a gap."""
            async for events, is_gap in EventReader(self.recent, after):
                if is_gap:
                    await push(self.recent.oldest - 1, {"type": "gap"})
                for each in events:
                    is_of_task = task_id is None or each.event.get("taskId") == task_id
                    if is_of_task and (types is None or each.event["type"] in types):
                        await push(each.n, each.event)

        return EventStream({"n": self.recent.newest, "oldest": self.recent.oldest}, run)


def _event_types(params: Params) -> frozenset[str] | None:
    """Return the names of types in `types`, None if it is left out. Raises BadParams for an unknown one."""
    types = params.get("types")
    if types is None:
        return None
    if not isinstance(types, list) or not all(name in EventType.__members__ for name in map(str, types)):
        raise BadParams(f"types: found {quote(types, 200)}, allowed: a list of {', '.join(EventType.__members__)}")
    return frozenset(map(str, types))


# ------------------------------------------------------------------ a conversation


@attrs.frozen(eq=False, repr=False)
class ConversationMethod:
    """The work that is under way for one conversation: `conversation`.

    The order of the questions matters: a task's end becomes an item of the queue, and an item becomes replies. Whoever asks
    in this order misses nothing that moves on meanwhile.

    Example::

        method = ConversationMethod(root.ref(TASK_AGENT), journal, wall_clock)
        work = await method.call(caller, {"type": "cli", "channelId": "send"})
        is_done = not work["tasks"] and not work["waiting"]  # and the reply `work["seq"]` has arrived
    """

    agent: Ref[TaskAgentMessage]
    """Actor of the task system."""
    journal: Ref[JournalMessage]
    """Knows the items and the replies."""
    clock: Callable[[], int]
    """Wall clock, ms."""

    def methods(self) -> dict[str, Method]:
        """Return the methods by the names that they have on the wire."""
        return {"conversation": self.call}

    async def call(self, caller: Caller, params: Params) -> Json:
        """Return `tasks` (unfinished, or ended and not reported yet), `waiting` (messages that are not done) and `seq` (last reply).

        `type` and `channelId` name the conversation; left out: that of the caller. `pegasus send --until-done` waits with it.
        """
        address = address_of(caller, params)
        await wait_until_running(self.agent)
        with bad_params_for(TaskError):
            pending = await self.agent.ask(ListPending, timeout=ANSWER_TIMEOUT)
        tasks = [task.progress(self.clock()) for task in pending]
        return {
            "tasks": [to_wire(task) for task in tasks if task.channel.address == address],
            "waiting": await self.journal.ask(Waiting, address, timeout=ANSWER_TIMEOUT),
            "seq": await self.journal.ask(LastSeq, address, timeout=ANSWER_TIMEOUT),
        }


# ------------------------------------------------------------------ scheduled jobs


@attrs.frozen(eq=False, repr=False)
class CronMethods:
    """Scheduled jobs: `cron.list`, `cron.add`, `cron.remove`, `cron.pause`, `cron.resume`, `cron.run`.

    Everybody with a token for it may list jobs; only owners change them.

    Example::

        cron = CronMethods(keeper, wall_clock, owners=InForce(("cli:*",)))
        schedule = {"cron": "0 9 * * 1-5"}
        job = await cron.add(caller, {"schedule": schedule, "prompt": "What is new?", "channel": "cli:main"})
        await cron.pause(caller, {"id": job["id"]})
    """

    keeper: Ref[ScheduleMessage]
    """The actor that keeps the jobs."""
    clock: Callable[[], int]
    """Wall clock, ms."""
    owners: LiveValue[Collection[str]]
    """The setting `agent.owners`."""

    def methods(self) -> dict[str, Method]:
        """Return the methods by the names that they have on the wire."""
        return {
            "cron.list": self.list,
            "cron.add": self.add,
            "cron.remove": self.remove,
            "cron.pause": self.pause,
            "cron.resume": self.resume,
            "cron.run": self.run,
        }

    async def list(self, caller: Caller, params: Params) -> Json:
        """Return all jobs, oldest first."""
        return jobs_view(await self.keeper.ask(ListJobs, timeout=JOB_TIMEOUT), self.clock())

    async def add(self, caller: Caller, params: Params) -> Json:
        """Make a job and return it. The params are a job as in `draft_job`; the caller's own channel counts if none is named."""
        require_owner(caller, self.owners.now, "schedules jobs")
        origin = ChannelInfo(caller.type, caller.channel_id, caller.user_id) if caller.channel_id else None
        # The job runs later with the rights of an owner, who was checked a line above.
        principal = Principal(Role.OWNER, origin or ChannelInfo(caller.type, ""))
        with bad_params_for(ScheduleError):
            draft = draft_job(params, self.clock(), principal, origin)
            return job_view(await self.keeper.ask(AddJob, draft, timeout=JOB_TIMEOUT), self.clock())

    async def remove(self, caller: Caller, params: Params) -> Json:
        """Delete the job `id`; return it."""
        return await self._change(caller, params, RemoveJob)

    async def pause(self, caller: Caller, params: Params) -> Json:
        """Let the job `id` rest; return it."""
        return await self._change(caller, params, EnableJob, False)

    async def resume(self, caller: Caller, params: Params) -> Json:
        """Let the job `id` go on with its next time; return it."""
        return await self._change(caller, params, EnableJob, True)

    async def run(self, caller: Caller, params: Params) -> Json:
        """Run the job `id` now; return it when the run is on disk."""
        return await self._change(caller, params, RunJob)

    async def _change(self, caller: Caller, params: Params, make: Callable[..., ScheduleMessage], *args: bool) -> Json:
        """Let the keeper change the job `id`, and return it. make: makes the message that asks for the change."""
        require_owner(caller, self.owners.now, "schedules jobs")
        id = require_text(params, "id", f"the id of a job, as `{command_name()} cron list` shows it")
        with bad_params_for(ScheduleError, key="id"):
            return job_view(await self.keeper.ask(make, id, *args, timeout=JOB_TIMEOUT), self.clock())
