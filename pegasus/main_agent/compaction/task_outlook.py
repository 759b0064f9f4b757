"""The outlook on the task system."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import attrs

from actors import ActorError, Ref
from pegasus.main_agent.compaction.outlook import OpenTask
from pegasus.messages import Address, Metadata
from pegasus.tasks import AgentMessage, ListTasks, TaskState, TaskView


@attrs.frozen(eq=False)
class OpenTaskFinder:
    """An `Outlook`. list_timers: gives scheduled jobs and reminders, a line for each; None: there are none."""

    agent: Ref[AgentMessage]
    list_timers: Callable[[], Awaitable[Sequence[str]]] | None = None

    async def tasks(self) -> Sequence[OpenTask] | None:
        """See `Outlook`; None while the task system does not run."""
        if not self.agent.alive:
            return None
        try:
            found = await self.agent.ask(ListTasks, None)
        except ActorError:
            return None
        still = [task for task in found if task.state not in (TaskState.COMPLETED, TaskState.FAILED)]
        return [_open(task) for task in sorted(still, key=lambda task: task.created_at)]

    async def timers(self) -> Sequence[str]:
        """See `Outlook`."""
        return () if self.list_timers is None else await self.list_timers()


def _open(task: TaskView) -> OpenTask:
    state = "waiting" if task.state is TaskState.IDLE else task.state.value
    about = task.description or task.input_text
    return OpenTask(task.task_id, task.task_type, state, about, _address(task.metadata), task.question or "")


def _address(metadata: Metadata) -> Address | None:
    channel = metadata.get("channel")
    if not isinstance(channel, dict):
        return None
    return Address(str(channel.get("type", "")), str(channel.get("channelId", "")))
