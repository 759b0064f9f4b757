"""The Main Agent's tools for background work: spawn, look, resume (seed 000; decisions X2, X7, X8)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from actors import ActorError, Ref
from pegasus.conversation import OpenCall
from pegasus.main_agent.messages import EndedWork
from pegasus.messages import ChannelInfo, Json, Metadata
from pegasus.models import ToolSpec
from pegasus.storage import StorageError
from pegasus.tasks import (
    AgentMessage,
    CancelAll,
    GetContext,
    GetTask,
    Resume,
    Submit,
    TaskError,
    TaskView,
    task_id_of,
    wait_until_running,
)
from pegasus.tools import Effect, Tool, ToolContext, ToolError
from pegasus.wire import to_wire

SPAWN: Final = "spawn_subagent"
ALIAS: Final = "spawn_task"
RESUME: Final = "resume_task"
USE_SKILL: Final = "use_skill"
DEFAULT: Final = "general"
SUBMIT_TRIES: Final = 3
"""How often a task is submitted to a task system that crashes over it, before the model is told."""


def delegation_tools(agent: Ref[AgentMessage], types: Mapping[str, str]) -> tuple[Tool, ...]:
    """spawn_subagent, its alias spawn_task, task_status and resume_task. types: name and description of each kind of task."""
    return (_spawn(agent, tuple(types)), _spawn_alias(agent), _status(agent), _resume(agent))


def _spawn(agent: Ref[AgentMessage], types: Sequence[str]) -> Tool:
    spec = ToolSpec(
        SPAWN,
        "Delegate work to a background subagent. Returns at once; its result comes to you by itself.",
        _object(
            {
                "description": _string("What it is about, in a few words"),
                "input": _string(
                    "The whole task, with everything the subagent must know: it sees nothing of this conversation"
                ),
                "type": {
                    "type": "string",
                    "enum": list(types),
                    "description": f"Kind of subagent; {DEFAULT} if left out",
                },
            },
            "description",
            "input",
        ),
    )

    async def run(arguments: Metadata, context: ToolContext) -> Json:
        kind = str(arguments.get("type") or DEFAULT)
        return await _submit(agent, arguments, kind, context)

    return Tool(spec, run, "task", Effect.IDEMPOTENT)


def _spawn_alias(agent: Ref[AgentMessage]) -> Tool:
    spec = ToolSpec(
        ALIAS,
        f"The same as {SPAWN} with type {DEFAULT}.",
        _object(
            {"description": _string("What it is about"), "input": _string("The whole task")}, "description", "input"
        ),
    )

    async def run(arguments: Metadata, context: ToolContext) -> Json:
        return await _submit(agent, arguments, DEFAULT, context)

    return Tool(spec, run, "task", Effect.IDEMPOTENT)


async def _submit(agent: Ref[AgentMessage], arguments: Metadata, kind: str, context: ToolContext) -> Json:
    description = str(arguments["description"])
    return spawned(await submit_task(agent, context, str(arguments["input"]), kind, description), kind, description)


async def submit_task(
    agent: Ref[AgentMessage],
    context: ToolContext,
    text: str,
    kind: str,
    description: str,
    model: str = "",
    tools: tuple[str, ...] | None = None,
) -> str:
    """Begin a task for whoever the call is made for; its id. The same context.key gives the same task. Raises ToolError."""
    metadata: dict[str, Json] = {"channel": to_wire(context.origin)} if context.origin is not None else {}
    request = (text, "main-agent", kind, description, metadata, context.key or None, None, model, tools)
    for tries_left in reversed(range(SUBMIT_TRIES)):
        await wait_until_running(agent)
        try:
            return await agent.ask(Submit, *request)
        except (TaskError, StorageError) as error:
            raise ToolError(str(error)) from error
        except ActorError as error:  # it may have the task already; by its key it is the same one then
            if not tries_left or not context.key:
                raise ToolError(str(error)) from error
    raise AssertionError("the last try returns or raises")


def spawned(task_id: str, kind: str, description: str) -> dict[str, Json]:
    """The result of a spawn."""
    return {"taskId": task_id, "status": "spawned", "type": kind, "description": description}


def spawn_result(task: TaskView) -> dict[str, Json]:
    """The same, from the task itself, where a crash came between the task and its result (interfaces 8.5)."""
    return spawned(task.task_id, task.task_type, task.description)


def forked(task_id: str, skill: str) -> dict[str, Json]:
    """The result of a skill that runs as a task."""
    return {"taskId": task_id, "status": "spawned", "skill": skill}


def _status(agent: Ref[AgentMessage]) -> Tool:
    spec = ToolSpec(
        "task_status",
        "The state of one task: what it does now, or how it ended.",
        _object({"taskId": _string("Its id")}, "taskId"),
    )

    async def run(arguments: Metadata, context: ToolContext) -> Json:
        task = await _ask(agent, str(arguments["taskId"]))
        shown = to_wire(task)
        shown.pop("metadata", None)
        return shown

    return Tool(spec, run, "task", Effect.PURE)


def _resume(agent: Ref[AgentMessage]) -> Tool:
    spec = ToolSpec(
        RESUME,
        "Continue a task with more information: one that asked for it, one that is suspended, or a finished one that is to go on.",
        _object({"taskId": _string("Its id"), "input": _string("What it is to know or do now")}, "taskId", "input"),
    )

    async def run(arguments: Metadata, context: ToolContext) -> Json:
        task_id = str(arguments["taskId"])
        await wait_until_running(agent)
        try:
            await agent.ask(Resume, task_id, str(arguments["input"]), context.key)
        except (TaskError, ActorError, StorageError) as error:
            raise ToolError(str(error)) from error
        return _resumed(task_id)

    return Tool(spec, run, "task", Effect.ONCE)


def _resumed(task_id: str) -> dict[str, Json]:
    return {"taskId": task_id, "status": "resumed"}


async def _ask(agent: Ref[AgentMessage], task_id: str) -> TaskView:
    await wait_until_running(agent)
    try:
        task = await agent.ask(GetTask, task_id)
    except (ActorError, StorageError) as error:
        raise ToolError(str(error)) from error
    if task is None:
        raise ToolError(f"there is no task {task_id!r}; task_list shows the tasks of a day")
    return task


def _object(properties: Mapping[str, Json], *required: str) -> Metadata:
    return {"type": "object", "properties": properties, "required": list(required)}


def _string(description: str) -> Metadata:
    return {"type": "string", "description": description}


class TaskDelegation:
    """The background work behind these tools, for /stop and for the repair of a session (`BackgroundWork`)."""

    def __init__(self, agent: Ref[AgentMessage]) -> None:
        self._agent = agent

    async def stop(self, by: str, channel: ChannelInfo | None) -> tuple[EndedWork, ...]:
        """As BackgroundWork."""
        address = None if channel is None else (channel.type, channel.channel_id)
        await wait_until_running(self._agent)  # after a restart it is about to take up what is to be ended
        try:
            stopped = await self._agent.ask(CancelAll, by, address)
        except ActorError:  # it does not run, and so no task does
            return ()
        return tuple(EndedWork("task", one.what, one.seconds) for one in stopped)

    async def result_of(self, made: OpenCall, key: str) -> str | None:
        """As BackgroundWork."""
        if made.call.name not in (SPAWN, ALIAS, RESUME, USE_SKILL) or not await wait_until_running(self._agent):
            return None
        try:
            if made.call.name == RESUME:
                result = await self._resumed(str(made.call.arguments.get("taskId")), key)
            else:
                task = await self._agent.ask(GetTask, task_id_of(key))
                result = None if task is None else _begun(made, task)
        except (ActorError, StorageError):
            return None
        return None if result is None else json.dumps(result, ensure_ascii=False, separators=(",", ":"))

    async def _resumed(self, task_id: str, key: str) -> dict[str, Json] | None:
        context = await self._agent.ask(GetContext, task_id)
        happened = context is not None and any(entry.metadata.get("key") == key for entry in context.messages)
        return _resumed(task_id) if happened else None


def _begun(made: OpenCall, task: TaskView) -> dict[str, Json]:
    if made.call.name == USE_SKILL:
        return forked(task.task_id, str(made.call.arguments.get("skill")).removeprefix("/"))
    return spawn_result(task)
