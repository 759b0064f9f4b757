"""States of tasks for the people who watch: from the view of the task system to the value that the channels carry.

The agent of the task system calls `TaskSigns.observe` with the view of a task whenever it may have changed. A change is sent to the
switchboard, which brings it to the clients of the conversation. Nothing here waits or is stored: a task is never slowed down by those
who watch it, and a state that finds no room is lost. The next one, or the next welcome, shows the task as it is then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import attrs
import trio

from actors import ActorError, Ref
from pegasus.main_agent import TaskDelegation, task_progress
from pegasus.messages import TaskProgress
from pegasus.tasks import AgentMessage, TaskState, TaskView

ANSWER_TIMEOUT: Final = 5.0
"""Seconds that the task system may take to list its tasks."""


class TaskSigns:
    """Sends the changes of tasks to the switchboard, each once.

    Example: `TaskDeps(observe=TaskSigns(switchboard, clock).observe, …)`.
    """

    def __init__(self, switchboard: Ref[TaskProgress], clock: Callable[[], int]) -> None:
        """Prepare. clock: wall clock, ms."""
        self._switchboard = switchboard
        self._clock = clock
        self._last: dict[str, TaskProgress] = {}
        """The last state of each unfinished task, without the time that had passed."""

    def observe(self, task: TaskView) -> None:
        """Send the state of a task if it differs from the last one. Never waits, never fails."""
        is_over = task.is_over
        if task.state is TaskState.COMPLETED and not is_over:
            return  # its result is not on disk yet
        sign = task_progress(task, self._clock())
        present = attrs.evolve(sign, elapsed_ms=0)
        is_known = task.task_id in self._last
        if self._last.get(task.task_id) == present:
            return
        if is_over:
            self._last.pop(task.task_id, None)
        else:
            self._last[task.task_id] = present
        if is_over and not is_known:
            return  # e.g. a reflection on a task that has ended, or one that was found ended at a start
        with suppress(ActorError):
            self._switchboard.tell_nowait(sign)


async def open_tasks(agent: Ref[AgentMessage], clock: Callable[[], int]) -> Sequence[TaskProgress]:
    """Return the present state of all unfinished tasks; () while the task system does not run or answer."""
    with trio.move_on_after(ANSWER_TIMEOUT):
        tasks = await TaskDelegation(agent).unfinished()
        return [task_progress(task, clock()) for task in tasks or ()]
    return ()
