"""Access to the task system for others: the tools `task_list` and `task_replay`, and waiting until the agent runs.

Both tools only read (`Effect.PURE`), so they may run side by side with others and again after a crash. A
failure of the agent or of the disk becomes a ToolError, which the model reads as the result of its call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from actors import ActorError, Ref
from pegasus.access import ROLE, Principal, Role
from pegasus.conversation import Entry
from pegasus.formatting import quote
from pegasus.messages import APART, ChannelInfo, Json, Metadata
from pegasus.models import ToolSpec
from pegasus.outside import join_outside, parse_outside
from pegasus.storage import StorageError
from pegasus.tasks.agent.messages import GetContext, ListTasks, TaskAgentMessage
from pegasus.tasks.core.task_states import TaskError, TaskState
from pegasus.tools import Effect, LabelledResult, Reach, Tool, ToolContext, ToolError, as_tool_error, parameters

if TYPE_CHECKING:
    from pegasus.tasks.core.fsm import TaskContext
    from pegasus.tasks.core.views import TaskView

RUNNING_WITHIN: Final = 10.0
"""Seconds that the task system may take to start before a call for it fails."""

_STATUS = {TaskState.COMPLETED: "completed", TaskState.FAILED: "failed"}
"""Status for the model of tasks that are over; all other states are "in_progress", and one that a person has ended is "stopped"."""


async def wait_until_running(agent: Ref[TaskAgentMessage]) -> bool:
    """Return whether the task system runs, now or within RUNNING_WITHIN seconds.

    It starts a moment after the daemon, and again after a crash of its own.
    """
    if not agent.alive:
        with trio.move_on_after(RUNNING_WITHIN):
            await agent.wait_alive()
    return agent.alive


def is_visible(channel: ChannelInfo | None, principal: Principal, recorded: Metadata) -> bool:
    """Return whether a person may know of a task: owners of all, guests of those of their own conversation.

    Where guests are heard an owner is shown the tasks of that conversation alone, since the guests read along. channel, recorded:
    that of the task, and its metadata.
    """
    if not principal.is_apart and principal.is_owner:
        return True
    if channel is None or principal.channel is None or channel.address != principal.channel.address:
        return False
    return not principal.is_apart or recorded.get(APART, recorded.get(ROLE) == Role.GUEST) is True


def task_tools(agent: Ref[TaskAgentMessage]) -> tuple[Tool, ...]:
    """Return task_list(date?) and task_replay(taskId). While the agent does not run, they fail with the reason."""
    return (_task_list(agent), _task_replay(agent))


def _task_list(agent: Ref[TaskAgentMessage]) -> Tool:
    """Return the tool that lists tasks as JSON objects."""
    spec = ToolSpec(
        "task_list",
        "List tasks: those that are not finished or finished lately, or all of a day.",
        parameters({"date": {"type": "string", "description": "YYYY-MM-DD (UTC); left out: the present ones"}}),
    )

    async def run(arguments: Metadata, context: ToolContext) -> LabelledResult:
        """Return the tasks that the caller may know of. A wrong date is refused before the agent is asked."""
        from pegasus.tasks.log.format import is_date

        date = arguments.get("date")
        if date is not None and not (isinstance(date, str) and is_date(date)):
            raise ToolError(f"date: found {quote(date)}, allowed: YYYY-MM-DD")
        with as_tool_error(ActorError, StorageError):
            found = await agent.ask(ListTasks, date)
        visible = [task for task in found if is_visible(task.channel, context.principal, task.metadata)]
        # A summary shows nothing but what the task was told to do.
        labels = join_outside(*(parse_outside(task.metadata) for task in visible))
        return LabelledResult([_summary(task) for task in visible], labels)

    return Tool(spec, run, "task", Effect.PURE, reach=Reach.INSIDE)


def _summary(task: TaskView) -> dict[str, Json]:
    """Return the item of a task in the result of task_list."""
    return {
        "taskId": task.task_id,
        "number": task.number,
        "description": task.description,
        "inputText": task.input_text,
        "status": task.reason or _STATUS.get(task.state, "in_progress"),
        "state": task.state.value,
        "createdAt": task.created_at,
    }


def _task_replay(agent: Ref[TaskAgentMessage]) -> Tool:
    """Return the tool that gives the conversation of a task, oldest message first."""
    spec = ToolSpec(
        "task_replay",
        "Read the whole conversation of a task: what it was told, did, found and answered.",
        parameters({"taskId": {"type": "string", "description": "Its id"}}, "taskId"),
    )

    async def run(arguments: Metadata, context: ToolContext) -> LabelledResult:
        """Return the messages of a task. A task that the caller may not know of is answered as if there were none."""
        task_id = str(arguments["taskId"])
        with as_tool_error(TaskError, ActorError, StorageError):
            found: TaskContext | None = await agent.ask(GetContext, task_id)
        if found is None or not is_visible(found.channel, context.principal, found.input_metadata):
            raise ToolError(f"there is no task {quote(task_id)}; task_list shows the tasks of a day")
        return LabelledResult([_message(entry) for entry in found.messages], found.outside)

    return Tool(spec, run, "task", Effect.PURE, more="There is no way to get only a part.", reach=Reach.INSIDE)


def _message(entry: Entry) -> dict[str, Json]:
    """Return a message for the result of task_replay. Metadata and ids of calls are left out: a model has no use for them."""
    message: dict[str, Json] = {"role": entry.role, "content": entry.content}
    if entry.calls:
        message["toolCalls"] = [{"name": call.name, "arguments": call.arguments} for call in entry.calls]
    return message
