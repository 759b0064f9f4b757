"""The control plane's methods about tasks (interfaces section 3): tasks.list, tasks.show, tasks.replay, tasks.cancel, tasks.resume."""

from __future__ import annotations

import attrs

from actors import Ref
from pegasus.app.params import text_of
from pegasus.conversation import to_json
from pegasus.gateway import BadParams, Caller, Params
from pegasus.messages import Json
from pegasus.tasks import (
    AgentMessage,
    Cancel,
    GetContext,
    GetTask,
    ListTasks,
    Resume,
    TaskError,
    TaskView,
    is_date,
    wait_until_running,
)
from pegasus.wire import to_wire


@attrs.frozen(eq=False)
class TaskControl:
    """What a program may ask of the task system."""

    agent: Ref[AgentMessage]

    async def list(self, caller: Caller, params: Params) -> Json:
        """The tasks in memory or, with date (YYYY-MM-DD, UTC), those of that day."""
        date = params.get("date")
        if date is not None and not (isinstance(date, str) and is_date(date)):
            raise BadParams(f"date: found {date!r}, allowed: YYYY-MM-DD")
        await wait_until_running(self.agent)
        found = await self.agent.ask(ListTasks, date)
        return {"tasks": [view_json(task) for task in found]}

    async def show(self, caller: Caller, params: Params) -> Json:
        """One task."""
        task_id = _id_in(params)
        await wait_until_running(self.agent)
        task = await self.agent.ask(GetTask, task_id)
        if task is None:
            raise BadParams(f"taskId: there is no task {task_id!r}")
        return view_json(task)

    async def replay(self, caller: Caller, params: Params) -> Json:
        """The whole conversation of one task."""
        task_id = _id_in(params)
        await wait_until_running(self.agent)
        context = await self.agent.ask(GetContext, task_id)
        if context is None:
            raise BadParams(f"taskId: there is no task {task_id!r}")
        return {"taskId": task_id, "messages": [to_json(entry) for entry in context.messages]}

    async def cancel(self, caller: Caller, params: Params) -> Json:
        """End one task; answers with what was ended, once it has ended."""
        task_id = _id_in(params)
        await wait_until_running(self.agent)
        try:
            stopped = await self.agent.ask(Cancel, task_id, f"a control call ({caller.type})")
        except TaskError as error:
            raise BadParams(str(error)) from None
        return to_wire(stopped)

    async def resume(self, caller: Caller, params: Params) -> Json:
        """Let a suspended, completed or restart-interrupted task go on."""
        task_id, text = _id_in(params), params.get("input", "")
        if not isinstance(text, str):
            raise BadParams("input: must be a text")
        await wait_until_running(self.agent)
        try:
            await self.agent.ask(Resume, task_id, text)
        except TaskError as error:
            raise BadParams(str(error)) from None
        return {"taskId": task_id, "status": "resumed"}


def view_json(task: TaskView) -> Json:
    """A task on the wire; states are words."""
    return {**to_wire(task), "state": task.state.value}


def _id_in(params: Params) -> str:
    return text_of(params, "taskId", "a task's id")
