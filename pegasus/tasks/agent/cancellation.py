"""Ending tasks for certain: one, those of a channel, all; and letting stages finish when the process stops.

"For certain" means that the answer comes when nothing of the task runs: model call, tool, and every process that a tool has
started. The order of the steps in `cancel` keeps a task from slipping through: it is marked as ending before anything is
awaited, so it gets no slot from now on; if its actor is just being started, that is awaited; then the actor ends its stage.
That the task has failed is recorded afterwards, by its actor if there is one, else by the agent.

The answer does not wait for the disk. A disk that refuses would otherwise keep a person from stopping a task that does harm. If the
process dies before the failure is recorded, the task is still pending, and recovery treats it as an interrupted one.

A stage ends only when everything that it has started has ended: Trio leaves a nursery when its last task is done, and tools end
their processes before they return. So a cancel may take as long as the slowest tool needs to end; there is no time limit,
since an answer that comes too early would be false.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import trio

from actors import ActorError
from pegasus.messages import Metadata
from pegasus.tasks.agent.messages import StoppedTask
from pegasus.tasks.agent.scheduler import TaskScheduler
from pegasus.tasks.agent.state import AgentState, TaskEntry
from pegasus.tasks.core.views import TaskError
from pegasus.tasks.run.task import CancelStage, FinishStage

DRAIN: Final = 5.0
"""Seconds that running stages have to finish when the process stops. Those that need longer are cancelled."""


class Cancellation:
    """Carries out `Cancel`, `CancelAll` and the stop of the process.

    Example: `stopped = await cancellation.cancel(task_id, "the owner")`.
    """

    def __init__(self, state: AgentState, scheduler: TaskScheduler, nursery: trio.Nursery) -> None:
        self._state = state
        self._scheduler = scheduler
        self._nursery = nursery

    async def cancel(self, task_id: str, by: str) -> StoppedTask:
        """End a task. Returns when nothing of it runs; that it was stopped is recorded behind that.

        by: name for the error of the task. Raises TaskError if the task is not running, or is being cancelled already. For a task
        that is over and still reflects, the reflection is ended and the task stays completed.
        """
        entry = self._state.registry.get_or_none(task_id)
        if entry is None or entry.is_ending or (entry.is_over and entry.ref is None):
            raise TaskError(f"task {task_id!r} is not running")
        what = entry.view.description or entry.view.input_text
        seconds = trio.current_time() - entry.since if entry.holds_slot else 0.0
        was_over, was_waiting, error = entry.is_over, not entry.holds_slot, f"stopped by {by}"
        entry.is_ending = not was_over
        self._state.registry.withdraw(entry)
        if entry.starting is not None:
            await entry.starting.wait()
        doing = await self._cancel_stage(entry, error)
        if was_over and not doing:
            raise TaskError(f"task {task_id!r} is not running")
        if doing is None:  # no actor, or one that has ended without having taken the request
            self._nursery.start_soon(self._scheduler.fail, entry, error)
        return StoppedTask(task_id, what, "waiting" if was_waiting and not was_over else doing or "", seconds)

    async def _cancel_stage(self, entry: TaskEntry, error: str) -> str | None:
        """Return the activity that was ended, None if the task has no actor that could record its end."""
        if entry.ref is None:
            return None
        try:
            return await entry.ref.ask(CancelStage, error)
        except ActorError:
            return None

    async def cancel_all(self, by: str, channel: tuple[str, str] | None) -> tuple[StoppedTask, ...]:
        """End all tasks, or those of a channel (type, channelId), at the same time."""
        stopped: list[StoppedTask] = []

        async def cancel(task_id: str) -> None:
            with suppress(TaskError):
                stopped.append(await self.cancel(task_id, by))

        async with trio.open_nursery() as nursery:
            for entry in self._state.registry:
                if not entry.is_over and (channel is None or _channel_of(entry.view.metadata) == channel):
                    nursery.start_soon(cancel, entry.task_id)
        return tuple(sorted(stopped, key=lambda each: each.task_id))

    async def drain(self) -> None:
        """Let running stages finish and what was requested be recorded, for at most DRAIN seconds.

        Whatever is left is still pending and is taken up at the next start.
        """

        async def finish(entry: TaskEntry) -> None:
            if entry.ref is not None:
                with suppress(ActorError):
                    await entry.ref.ask(FinishStage)
            async with entry.lock:  # the agent may be recording an event of it
                pass

        with trio.move_on_after(DRAIN):
            async with trio.open_nursery() as nursery:
                for entry in self._state.registry:
                    nursery.start_soon(finish, entry)


def _channel_of(metadata: Metadata) -> tuple[str, str] | None:
    """Return (type, channelId) of the channel in the metadata of a task, None if there is none."""
    channel = metadata.get("channel")
    if not isinstance(channel, dict):
        return None
    return str(channel.get("type")), str(channel.get("channelId"))
