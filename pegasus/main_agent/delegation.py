"""Delegation: the tools by which the Main Agent gives work to tasks, and the work behind them as its actor sees it.

The Main Agent has no files, no shell and no web; tasks have. `spawn_subagent` returns at once, and the result of the task comes
later, by itself, as a notification (see `notifications`).

Each call carries a key made of queue item and call, and the task system derives the task's id from it. A crash may therefore lead to
the same call twice, of the Main Agent or of the task system, and still there is one task.

The task system may be down when it is asked: it is started a moment after the daemon, and again after a crash. Every function here
but `unfinished` waits for it for a bounded time (`wait_until_running`). If it is still down then, a tool call ends with an error that
the model reads, and /stop answers as if no task were running, because in that state none is.

The process may end while a task is being submitted. The task may have been begun then, without a result of the call in the session.
`TaskDelegation.result_of` closes this gap at the next start: it asks the task system for the key, and the call gets its true result
instead of "cancelled". A /stop at the same moment leaves no such gap: it cancels the call and the tasks of the chat as well.

The effects of the tools tell the caller of a tool what it may repeat. Spawning is idempotent thanks to the key. Resuming happens
once: the key is stored with the message that resumed the task, which lets a restart find out whether it happened.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import attrs
import trio

from actors import ActorError, Ref
from pegasus.access import ROLE, Role, is_group
from pegasus.conversation import OpenCall
from pegasus.main_agent.chat_commands import EndedWork
from pegasus.main_agent.session import USE_SKILL
from pegasus.messages import FOLDER, ChannelInfo, Json, Metadata
from pegasus.models import ToolSpec
from pegasus.outside import OUTSIDE, outside_metadata
from pegasus.policy import owner_metadata
from pegasus.retry import retry
from pegasus.storage import StorageError
from pegasus.tasks import (
    DEFAULT_TASK_TYPE,
    FOR_PERSON,
    REFLECTING,
    CancelAll,
    GetContext,
    GetTask,
    ListTasks,
    Resume,
    Submit,
    TaskAgentMessage,
    TaskError,
    is_visible,
    task_id_of,
    wait_until_running,
)
from pegasus.tools import Effect, LabelledResult, Reach, Tool, ToolContext, ToolError, as_tool_error, parameters
from pegasus.wire import encode_json, to_wire

if TYPE_CHECKING:
    from pegasus.tasks import TaskView

SPAWN: Final = "spawn_subagent"
"""Tool that begins a task. This name and the ones below stand in session files."""
SPAWN_ALIAS: Final = "spawn_task"
"""Another name of SPAWN, without its parameter `type`. It is accepted, and not shown to the model."""
RESUME: Final = "resume_task"
"""Tool that gives a task more information."""
RESULT_WITHIN: Final = 120.0
"""Seconds for which a task system is asked whether an interrupted call has begun a task."""
SUBMIT_ATTEMPTS: Final = 3
"""Number of times that a task is submitted to a task system that crashes over it, before the call fails."""


def delegation_tools(agent: Ref[TaskAgentMessage], types: Mapping[str, str]) -> tuple[Tool, ...]:
    """Return spawn_subagent, its alias spawn_task, task_status and resume_task.

    agent: actor of the task system. types: name and description of each type of task. The names are part of the schema, so that a
    model does not invent one. Every failure becomes a ToolError, whose text the model reads as the result of its call.
    """
    description = _text_parameter("What it is about, in a few words")
    task = _text_parameter(
        "The whole task, with everything the subagent must know, also paths of attached files (media/…): it sees nothing "
        "of this conversation"
    )
    task_id = _text_parameter("Its id")
    kind: Metadata = {
        "type": "string",
        "enum": list(types),
        "description": f"Kind of subagent; {DEFAULT_TASK_TYPE} if left out",
    }
    spawn = ToolSpec(
        SPAWN,
        "Delegate work to a background subagent. Returns at once; its result comes to you by itself.",
        parameters({"description": description, "input": task, "type": kind}, "description", "input"),
    )
    # Models that know this name from other programs, or from an old session, call it although it is not shown.
    alias = ToolSpec(
        SPAWN_ALIAS,
        f"The same as {SPAWN} with type {DEFAULT_TASK_TYPE}.",
        parameters({"description": description, "input": task}, "description", "input"),
    )
    status = ToolSpec(
        "task_status",
        "The state of one task: what it does now, or how it ended.",
        parameters({"taskId": task_id}, "taskId"),
    )
    resume = ToolSpec(
        RESUME,
        "Continue a task with more information: one that asked for it, a suspended one, or a finished one that is to go on.",
        parameters({"taskId": task_id, "input": _text_parameter("What it is to know or do now")}, "taskId", "input"),
    )
    return (
        Tool(spawn, partial(_spawn, agent), "task", Effect.IDEMPOTENT, reach=Reach.INSIDE),
        Tool(alias, partial(_spawn, agent), "task", Effect.IDEMPOTENT, reach=Reach.INSIDE),
        Tool(status, partial(_status, agent), "task", Effect.PURE, reach=Reach.INSIDE),
        Tool(resume, partial(_resume, agent), "task", Effect.ONCE, reach=Reach.INSIDE),
    )


def _text_parameter(description: str) -> Metadata:
    """Return the JSON Schema of a parameter that is a text."""
    return {"type": "string", "description": description}


async def _spawn(agent: Ref[TaskAgentMessage], arguments: Metadata, context: ToolContext) -> Json:
    """Begin a task and return the result of the call, which names the task's id. Raises ToolError."""
    task_type, description = str(arguments.get("type") or DEFAULT_TASK_TYPE), str(arguments["description"])
    task_id = await submit_task(agent, context, str(arguments["input"]), task_type, description)
    return _spawned(task_id, task_type, description, await number_of_begun(agent, task_id), context.folder)


async def _status(agent: Ref[TaskAgentMessage], arguments: Metadata, context: ToolContext) -> LabelledResult:
    """Return the view of a task. Metadata and channel are left out: they are for the program, and the model has no use for them."""
    await wait_until_running(agent)
    with as_tool_error(TaskError, ActorError, StorageError):
        task = await agent.ask(GetTask, str(arguments["taskId"]))
    if task is None or not is_visible(task.channel, context.principal, task.metadata):
        raise ToolError(f"there is no task {arguments['taskId']!r}; task_list shows the tasks of a day")
    view = {key: value for key, value in to_wire(task).items() if key not in ("metadata", "channel", OUTSIDE)}
    return LabelledResult(view, task.outside)


async def _resume(agent: Ref[TaskAgentMessage], arguments: Metadata, context: ToolContext) -> Json:
    """Continue a task. The key of the call is stored with the message to the task, for `TaskDelegation.result_of`."""
    task_id = str(arguments["taskId"])
    await wait_until_running(agent)
    with as_tool_error(TaskError, ActorError, StorageError):
        await _check_resume(agent, task_id, context)
        text = str(arguments["input"])
        await agent.ask(Resume, task_id, text, context.key, context.outside, context.owner_messages)
    return _resumed(task_id)


async def _check_resume(agent: Ref[TaskAgentMessage], task_id: str, context: ToolContext) -> None:
    """Raise ToolError if a task must not be continued by this call.

    What a guest says may not be done with the rights of an owner. And what a task is told comes back in its results, which are for
    whoever has asked for it: where text from outside was read, nothing goes to the task of somebody else.
    """
    task = await agent.ask(GetTask, task_id)
    if task is None:
        return
    if task.waits_for == FOR_PERSON:
        name = task.number or task_id
        raise ToolError(f"task {name} was paused by a person, who alone lets it go on: /continue {name}")
    principal = context.principal
    is_from_guest = task.metadata.get(ROLE) == Role.GUEST
    if not principal.is_owner and (not is_from_guest or not is_visible(task.channel, principal, task.metadata)):
        raise ToolError(f"task {task_id!r} belongs to somebody else; only they, or an owner, can continue it")
    is_here = task.channel is None or context.origin is None or task.channel.address == context.origin.address
    others_read = is_from_guest or (task.channel is not None and is_group(task.channel))
    if context.outside and not is_here and others_read:
        raise ToolError(
            f"others read the results of task {task_id!r}, and text from outside was read here; continue it where it was asked for, "
            "or the owner does it by `pegasus tasks resume`"
        )


async def submit_task(
    agent: Ref[TaskAgentMessage],
    context: ToolContext,
    text: str,
    task_type: str,
    description: str,
    model: str = "",
    tools: tuple[str, ...] | None = None,
) -> str:
    """Begin a task on behalf of a tool call and return its id.

    The task system makes the id of `context.key`, so the same key gives the same task: a call that is repeated after a crash does
    not begin a second one. Without a key a crash is reported, because nobody could say whether the task was begun.

    context: key of the call, what its caller has read of texts from outside, and the channel to which the task's notifications are
    addressed. text: the whole work. task_type: name of a type. description: a few words about it, for people. model: name of a model,
    "" for that of the type. tools: patterns of the tools that it may use, None for those of its type.

    Raises ToolError if the task is refused, if it cannot be stored, or if the task system crashes SUBMIT_ATTEMPTS times. Cancelled:
    the task may have been begun; calling again with the same key returns its id.
    """
    metadata: dict[str, Json] = {**context.principal.recorded, **outside_metadata(context.outside)}
    metadata |= owner_metadata(context.owner_messages)
    if context.origin is not None:
        metadata["channel"] = to_wire(context.origin)
    if context.folder:
        metadata[FOLDER] = context.folder
        text += f"\n\n(The work is done in the folder {context.folder}: relative paths and commands start there.)"
    request = partial(
        Submit,
        text=text,
        source="main-agent",
        task_type=task_type,
        description=description,
        metadata=metadata,
        key=context.key or None,
        model=model,
        tools=tools,
        cause=context.cause or (f"task {context.task_id}" if context.task_id else ""),
    )
    for attempts_left in reversed(range(SUBMIT_ATTEMPTS)):
        await wait_until_running(agent)
        try:
            return await agent.ask(request)
        # The task system has answered, with a refusal or with an error of the disk. Only after a crash it is asked again.
        except (TaskError, StorageError) as error:
            raise ToolError(str(error)) from error
        except ActorError as error:
            # The task system crashed, perhaps with the task on disk already. With a key, asking again gives that task.
            if not attempts_left or not context.key:
                raise ToolError(str(error)) from error
    raise AssertionError("the last attempt returns or raises")


async def number_of_begun(agent: Ref[TaskAgentMessage], task_id: str) -> int:
    """Return the number of a task that has just begun; 0 if the task system does not say, which must not fail the call."""
    task = None
    with suppress(TaskError, ActorError, StorageError):
        task = await agent.ask(GetTask, task_id)
    return task.number if task is not None else 0


# ------------------------------------------------------------------ results


def skill_task_result(task_id: str, skill: str) -> dict[str, Json]:
    """Return the result of a skill that runs as a task.

    `taskId` must be the first key: `session.TASK_RESULT` recognises by it that the call needs no further thought.
    """
    return {"taskId": task_id, "status": "spawned", "skill": skill}


def _spawned(task_id: str, task_type: str, description: str, number: int, folder: str) -> dict[str, Json]:
    """Return the result of a call that has begun a task, the same for the call itself and for its repair after a crash.

    number: the one by which people name the task, so that the agent can tell it to them; 0 if it is not known. folder: that of the
    chat, in which the task works; "" for none.
    """
    known: dict[str, Json] = {"number": number} if number else {}
    known |= {"folder": folder} if folder else {}
    return {"taskId": task_id, "status": "spawned", "type": task_type, "description": description, **known}


def _resumed(task_id: str) -> dict[str, Json]:
    """Return the result of a call that has resumed a task, the same for the call itself and for its repair after a crash."""
    return {"taskId": task_id, "status": "resumed"}


@attrs.frozen(eq=False, repr=False)
class TaskDelegation:
    """The tasks behind the delegating tools, as the actor of the Main Agent sees them.

    The tasks are not children of the Main Agent's actor. They run below the task system and survive a crash of the Main Agent, which
    then asks here for the results of the calls that its session does not have.

    Example:
        work = TaskDelegation(task_agent)
        ended = await work.stop("the user (telegram)", channel)
    """

    agent: Ref[TaskAgentMessage]
    """Actor of the task system."""

    async def stop(self, by: str, channel: ChannelInfo | None, *, guests_only: bool = False) -> tuple[EndedWork, ...]:
        """Cancel the tasks of a channel (None: all) and the reflections on them; return them when none of them runs any more.

        by: author of the /stop, for the history of each task. guests_only: spare what an owner has asked for.

        A task system that is about to start is waited for, since it would resume the tasks that are to be ended. Cancelled: the task
        system goes on ending the tasks.
        """
        await wait_until_running(self.agent)
        try:
            place = None if channel is None else (channel.type, channel.channel_id)
            stopped = await self.agent.ask(CancelAll, by, place, guests_only)
        except ActorError:  # it does not run, and so no task does
            return ()
        return tuple(
            EndedWork("reflection" if task.doing == REFLECTING else "task", task.what, task.seconds, number=task.number)
            for task in stopped
        )

    async def unfinished(self) -> tuple[TaskView, ...] | None:
        """Return the tasks that are at work, wait or are suspended, oldest first; None while the task system does not run.

        It does not wait for the task system to start, unlike the other methods: it only serves /status.
        """
        if not self.agent.alive:
            return None
        try:
            tasks = await self.agent.ask(ListTasks, None)
        except (ActorError, StorageError):
            return None
        return tuple(sorted((task for task in tasks if not task.is_over), key=lambda task: task.created_at))

    async def result_of(self, open_call: OpenCall, key: str) -> str | None:
        """Return the true result (JSON) of a call that a crash interrupted; None if no task was begun or resumed by it.

        A task that was begun is found by the key. One that was resumed has the key in the message that resumed it. A task system that
        does not answer is asked again for RESULT_WITHIN seconds. None also after that: the call then counts as cancelled, and if the
        model repeats it, a second task may be begun.
        """
        if open_call.call.name not in (SPAWN, SPAWN_ALIAS, RESUME, USE_SKILL):
            return None
        # On one of several nodes the tasks of a lost one come a lease later than its chats, and a database may be down meanwhile.
        with trio.move_on_after(RESULT_WITHIN):
            return await retry(partial(self._recorded_result, open_call, key), (ActorError, StorageError))
        return None

    async def _recorded_result(self, open_call: OpenCall, key: str) -> str | None:
        """Return what `result_of` does. Raises ActorError and StorageError."""
        await self.agent.wait_alive()
        if open_call.call.name == RESUME:
            task_id = str(open_call.call.arguments.get("taskId"))
            context = await self.agent.ask(GetContext, task_id)
            messages = context.messages if context is not None else ()
            is_resumed = any(entry.metadata.get("key") == key for entry in messages)
            return encode_json(_resumed(task_id)) if is_resumed else None
        task = await self.agent.ask(GetTask, task_id_of(key))
        return None if task is None else encode_json(_begun_result(open_call, task))


def _begun_result(open_call: OpenCall, task: TaskView) -> dict[str, Json]:
    """Return the result that a call which has begun this task would have had without the crash: each tool has its own form."""
    if open_call.call.name == USE_SKILL:
        return skill_task_result(task.task_id, str(open_call.call.arguments.get("skill")).removeprefix("/"))
    folder = str(task.metadata.get(FOLDER, ""))
    return _spawned(task.task_id, task.task_type, task.description, task.number, folder)
