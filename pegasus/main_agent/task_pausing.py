"""The commands /pause and /continue: a person lets a task rest, and go on where it was.

    /pause 3       task 3 rests before its next step; what runs is not cut
    /continue 3    it goes on
    /pause         all tasks of this conversation that work or wait for their turn
    /continue      all of them that are paused

A paused task waits without a limit of time, over restarts. `/stop` ends it. Its background commands end when it pauses, since nobody
watches over them. A task that waits for an answer or for a yes does nothing anyway, and is left alone. Guests pause their own only.

The control lane waits for the answer, so everything here is bounded. A step that takes longer goes on behind the answer, which says
so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import attrs
import trio

from actors import ActorError, Ref
from pegasus.access import ROLE, Principal, Role
from pegasus.formatting import truncate
from pegasus.main_agent.task_status import NO_ANSWER, ended_word, find_own_task, sentence, task_name
from pegasus.messages import InboundMessage
from pegasus.tasks import (
    FOR_PERSON,
    Continue,
    ListTasks,
    Suspend,
    TaskAgentMessage,
    TaskError,
    TaskState,
    TaskView,
    is_visible,
)

PAUSE: Final = "/pause"
"""Command that lets tasks rest."""
CONTINUE: Final = "/continue"
"""Command that lets paused tasks go on."""
PATIENCE: Final = 2.0
"""Seconds that an answer waits for the step of a task to end."""
_USAGE: Final = "Write {0} for all tasks of this conversation, or {0} N, where N is the number of a task."
"""Answer to a command with other words."""


async def pause_task(agent: Ref[TaskAgentMessage], task: TaskView, patience: float = PATIENCE) -> tuple[bool, str]:
    """Pause a task. Return whether it is paused by now, and a sentence about it. Raises TaskError, StorageError, ActorError.

    patience: seconds to wait for its step. Cancelled: it pauses all the same.
    """
    name, title = task_name(task.number, task.task_id), _title(task)
    view: TaskView | None = None
    with trio.move_on_after(patience):
        view = await agent.ask(Suspend, task.task_id)
    if view is None:
        step = f"{task.doing} has" if task.doing and task.state is TaskState.ACTING else "its step has"
        return False, f"{title} pauses when {step} ended; {CONTINUE} {name} takes that back."
    if view.waits_for == FOR_PERSON:
        ended = f" Its background commands have ended: {'; '.join(task.commands)}." if task.commands else ""
        return True, f"Paused {title[:1].lower()}{title[1:]}; {CONTINUE} {name} lets it go on.{ended}"
    if view.is_over:
        return False, f"{title} {ended_word(view)} meanwhile."
    if view.state is TaskState.SUSPENDED:
        return False, f"{title} waits for somebody now, and pauses behind that."
    return False, f"{title} goes on."


async def continue_task(agent: Ref[TaskAgentMessage], task: TaskView) -> str:
    """Let a paused task go on, and return a sentence about it. Raises TaskError, StorageError, ActorError."""
    await agent.ask(Continue, task.task_id)
    return f"{_title(task)} goes on."


def _title(task: TaskView) -> str:
    """Return number and description of a task, as the beginning of a sentence."""
    return f"Task {task_name(task.number, task.task_id)} ({truncate(task.description or task.input_text, 60)})"


@attrs.frozen(eq=False, repr=False)
class PauseCommands:
    """Answers /pause and /continue.

    Example::

        commands = PauseCommands(task_agent)
        text = await commands.pause(message, person)
    """

    agent: Ref[TaskAgentMessage]
    """Actor of the task system."""

    async def pause(self, message: InboundMessage, person: Principal) -> str:
        """Pause a task, or all of the conversation, and say what became of each. Raises StorageError."""

        async def pause(task: TaskView) -> str:
            """Pause one task."""
            return (await pause_task(self.agent, task))[1]

        return await self._answer(
            message, person, PAUSE, "pause", pause, _may_pause, "No task of this conversation is at work."
        )

    async def continue_(self, message: InboundMessage, person: Principal) -> str:
        """Let a task go on, or all of the conversation, and say so. Raises StorageError."""
        go_on = partial(continue_task, self.agent)
        return await self._answer(
            message, person, CONTINUE, "continue", go_on, lambda task: True, "No task of this conversation is paused."
        )

    async def _answer(
        self,
        message: InboundMessage,
        person: Principal,
        command: str,
        verb: str,
        act: Callable[[TaskView], Awaitable[str]],
        may: Callable[[TaskView], bool],
        nothing: str,
    ) -> str:
        """Do something with the task that is named, or with all of this conversation that may have it done; return what was done."""
        try:
            with trio.move_on_after(2 * PATIENCE):
                match message.text.split()[1:]:
                    case []:
                        tasks = [task for task in await self._tasks_here(message, person) if may(task)]
                        return "\n".join(await _for_each(tasks, act)) or nothing
                    case [name]:
                        return await act(await find_own_task(self.agent, name, person, verb))
                return _USAGE.format(command)
        except TaskError as error:
            return sentence(error)
        except ActorError:
            pass
        return NO_ANSWER

    async def _tasks_here(self, message: InboundMessage, person: Principal) -> Sequence[TaskView]:
        """Return the unfinished tasks of the conversation that this person may pause, oldest first."""
        found = [
            task
            for task in await self.agent.ask(ListTasks, None)
            if not task.is_over
            and task.channel is not None
            and task.channel.address == message.channel.address
            and is_visible(task.channel, person, task.metadata)
            and (person.is_owner or task.metadata.get(ROLE) == Role.GUEST)
        ]
        return sorted(found, key=lambda task: (task.created_at, task.number))


def _may_pause(task: TaskView) -> bool:
    """Return whether a task works, or waits for its turn."""
    return task.state in (TaskState.IDLE, TaskState.REASONING, TaskState.ACTING)


async def _for_each(tasks: Sequence[TaskView], act: Callable[[TaskView], Awaitable[str]]) -> list[str]:
    """Do something with several tasks at the same time. Return the sentences in their order, without those that refuse it."""
    sentences: dict[str, str] = {}

    async def run(task: TaskView) -> None:
        """Do it with one task. Of one that has ended or paused meanwhile nothing is said."""
        with suppress(TaskError):
            sentences[task.task_id] = await act(task)

    async with trio.open_nursery() as nursery:
        for task in tasks:
            nursery.start_soon(run, task)
    return [sentences[task.task_id] for task in tasks if task.task_id in sentences]
