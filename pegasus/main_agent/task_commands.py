"""The commands about background tasks: /tasks shows and ends them, /pause lets them rest, /continue lets them go on.

    /tasks              unfinished tasks, and those that ended within the last day
    /tasks show 3       state, work and result of task 3
    /tasks cancel 3     ends task 3 with every process that it has started
    /pause 3            task 3 rests before its next step; what runs is not cut
    /continue 3         it goes on
    /pause              all tasks of this conversation that work or wait for their turn
    /continue           all of them that are paused

Owners see all tasks. Anybody else sees the tasks of the conversation that the command comes from: what others have asked for is not
their business. Nobody but an owner ends or pauses what an owner has asked for, although a guest may see it in a shared conversation.

A paused task waits without a limit of time, over restarts. `/stop` ends it. Its background commands end when it pauses, since nobody
watches over them. A task that waits for an answer or for a yes does nothing anyway, and is left alone.

The control lane waits for the answer, so everything here is bounded. A step, or a cancel, that takes longer goes on behind the answer,
which says so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import attrs
import trio

from actors import ActorError, Ref
from pegasus.access import ROLE, Principal, Role
from pegasus.formatting import format_duration, quote, truncate
from pegasus.main_agent.task_status import ended_word, task_name, task_text, tasks_text
from pegasus.messages import ChannelInfo, InboundMessage
from pegasus.tasks import (
    FOR_PERSON,
    LATELY,
    Cancel,
    Continue,
    GetTask,
    LatestTasks,
    ListTasks,
    Suspend,
    TaskAgentMessage,
    TaskError,
    TaskState,
    is_visible,
)

if TYPE_CHECKING:
    from pegasus.tasks import TaskView

TASKS, PAUSE, CONTINUE = "/tasks", "/pause", "/continue"
"""The commands."""
PATIENCE: Final = 5.0
"""Seconds that /tasks waits for the task system, and for a task to end. Other commands wait behind it meanwhile."""
PAUSE_PATIENCE: Final = 2.0
"""Seconds that the answer to /pause waits for the step of a task to end."""
LISTED: Final = 10
"""Newest tasks that are looked at for those that have ended; more are in `pegasus tasks list`."""
_TASKS_USAGE: Final = f"Write {TASKS}, {TASKS} show N, or {TASKS} cancel N, where N is the number of a task."
_PAUSE_USAGE: Final = "Write {0} for all tasks of this conversation, or {0} N, where N is the number of a task."
"""Answers to commands that say something else, or name no task."""
NO_ANSWER: Final = "The task system does not answer at the moment. Send it again in a few seconds."
"""Answer while the task system does not run, or takes too long."""


async def pause_task(
    agent: Ref[TaskAgentMessage], task: TaskView, patience: float = PAUSE_PATIENCE
) -> tuple[bool, str]:
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
        return True, f"Paused {_small(title)}; {CONTINUE} {name} lets it go on.{ended}"
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
class TaskCommands:
    """Answers /tasks, /pause and /continue."""

    _agent: Ref[TaskAgentMessage]
    """Actor of the task system."""
    _clock: Callable[[], int]
    """Wall clock, ms."""

    def answers(self) -> Mapping[str, Callable[[InboundMessage, Principal], Awaitable[str]]]:
        """Return the function that answers each command. Each raises StorageError if a log cannot be read.

        Cancelled: what was asked for goes on.
        """
        return {
            TASKS: partial(self._answer, self._tasks, PATIENCE),
            PAUSE: partial(self._answer, self._pause, 2 * PAUSE_PATIENCE),
            CONTINUE: partial(self._answer, self._continue, 2 * PAUSE_PATIENCE),
        }

    async def _answer(
        self,
        command: Callable[[Sequence[str], InboundMessage, Principal], Awaitable[str]],
        patience: float,
        message: InboundMessage,
        person: Principal,
    ) -> str:
        """Return the answer of a command. patience: seconds that it may take."""
        try:
            with trio.move_on_after(patience):
                return await command(message.text.split()[1:], message, person)
        except TaskError as error:
            return _sentence(error)
        except ActorError:
            pass
        return NO_ANSWER

    async def _tasks(self, words: Sequence[str], message: InboundMessage, person: Principal) -> str:
        """Answer /tasks. words: those behind it."""
        match words:
            case [] | ["list"]:
                latest = await self._agent.ask(LatestTasks, LISTED, self._clock() - LATELY)
                ended = [task for task in latest if task.is_over and is_visible(task.channel, person, task.metadata)]
                return tasks_text(_by_age([*ended, *await self._unfinished(person)]), self._clock())
            # "/tasks 3" is short for "/tasks show 3".
            case ["show", name] | [name] if name not in ("show", "cancel", "stop"):
                return task_text(await self._find(name, person), self._clock())
            case ["cancel" | "stop", name]:
                return await self._cancel(name, person, message.channel)
        return _TASKS_USAGE

    async def _pause(self, words: Sequence[str], message: InboundMessage, person: Principal) -> str:
        """Answer /pause: pause a task, or all of the conversation that work or wait for their turn."""

        async def pause(task: TaskView) -> str:
            """Pause one task."""
            return (await pause_task(self._agent, task))[1]

        states = (TaskState.IDLE, TaskState.REASONING, TaskState.ACTING)
        nothing = "No task of this conversation is at work."
        return await self._for_tasks(PAUSE, words, message, person, pause, states, nothing)

    async def _continue(self, words: Sequence[str], message: InboundMessage, person: Principal) -> str:
        """Answer /continue: let a task go on, or all of the conversation that are paused."""
        go_on, nothing = partial(continue_task, self._agent), "No task of this conversation is paused."
        return await self._for_tasks(CONTINUE, words, message, person, go_on, tuple(TaskState), nothing)

    async def _for_tasks(
        self,
        command: str,
        words: Sequence[str],
        message: InboundMessage,
        person: Principal,
        act: Callable[[TaskView], Awaitable[str]],
        states: Collection[TaskState],
        nothing: str,
    ) -> str:
        """Do something with the task that is named, or with all of this conversation in these states; return what was done."""
        match words:
            case []:
                tasks = [
                    task
                    for task in await self._unfinished(person)
                    if task.state in states
                    and task.channel is not None
                    and task.channel.address == message.channel.address
                    and _is_own(task, person)
                ]
                return "\n".join(await _for_each(_by_age(tasks), act)) or nothing
            case [name]:
                return await act(await self._find_own(name, person, command.removeprefix("/")))
        return _PAUSE_USAGE.format(command)

    async def _unfinished(self, person: Principal) -> list[TaskView]:
        """Return the unfinished tasks that this person may see."""
        tasks = await self._agent.ask(ListTasks, None)
        return [task for task in tasks if not task.is_over and is_visible(task.channel, person, task.metadata)]

    async def _find(self, name: str, person: Principal) -> TaskView:
        """Return the task of this number or id. Raises TaskError if there is none, or if it is none of this person's."""
        task = await self._agent.ask(GetTask, name)
        if task is None:
            raise TaskError(f"there is no task {quote(name, 40)}; {TASKS} lists them")
        if not is_visible(task.channel, person, task.metadata):
            raise TaskError(f"task {truncate(name, 40)} belongs to another conversation")
        return task

    async def _find_own(self, name: str, person: Principal, verb: str) -> TaskView:
        """Return a task that this person may end, pause and continue. Raises TaskError, which names the verb."""
        task = await self._find(name, person)
        if not _is_own(task, person):
            raise TaskError(f"task {truncate(name, 40)} works for my owner, who alone can {verb} it")
        return task

    async def _cancel(self, name: str, person: Principal, channel: ChannelInfo) -> str:
        """End a task, and say what was ended when nothing of it runs any more, or that it is still ending."""
        task = await self._find_own(name, person, "end")
        title = _title(task)
        if task.is_over:
            return f"{title} {ended_word(task)} already."
        # The task system goes on with a cancel that nobody waits for any more.
        with trio.move_on_after(PATIENCE - 1):  # the rest is for the answer
            try:
                stopped = await self._agent.ask(Cancel, task.task_id, f"the user ({channel.type})")
            # It has ended between the look and the request.
            except TaskError:
                return f"{title} has ended already, or is being ended."
            doing = f"; it was at {stopped.doing}" if stopped.doing not in ("", "waiting") else ""
            ran = f" (ran {format_duration(stopped.seconds)})" if stopped.seconds else ""
            return f"Stopped {_small(title)}{ran}{doing}."
        return f"Still ending: {_small(title)}, at {task.doing or 'its last step'}. {TASKS} tells when it has ended."


def _is_own(task: TaskView, person: Principal) -> bool:
    """Return whether this person may end, pause and continue a task that they see."""
    return person.is_owner or task.metadata.get(ROLE) == Role.GUEST


def _by_age(tasks: Iterable[TaskView]) -> list[TaskView]:
    """Return the tasks, each once, oldest first."""
    found = {task.task_id: task for task in tasks}
    return sorted(found.values(), key=lambda task: (task.created_at, task.number))


def _small(title: str) -> str:
    """Return the beginning of a sentence as its middle has it."""
    return f"{title[:1].lower()}{title[1:]}"


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


def _sentence(error: TaskError) -> str:
    """Return an error as a sentence."""
    text = str(error)
    return f"{text[:1].upper()}{text[1:]}."
