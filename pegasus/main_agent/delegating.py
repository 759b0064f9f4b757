"""The Main Agent's tools for background work: spawn, look, resume (seed 000; decisions X2, X7, X8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Final

from actors import ActorError, Ref
from pegasus.messages import Json, Metadata
from pegasus.models.base import ToolSpec
from pegasus.tasks import AgentMessage, GetTask, Resume, Submit, TaskError, TaskView
from pegasus.tools import Effect, Tool, ToolContext, ToolError
from pegasus.wire import to_wire

SPAWN: Final = "spawn_subagent"
ALIAS: Final = "spawn_task"
RESUME: Final = "resume_task"
DEFAULT: Final = "general"


def delegating_tools(agent: Ref[AgentMessage], types: Mapping[str, str]) -> tuple[Tool, ...]:
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
    metadata: dict[str, Json] = {"channel": to_wire(context.origin)} if context.origin is not None else {}
    try:
        task_id = await agent.ask(
            Submit, str(arguments["input"]), "main-agent", kind, description, metadata, context.key or None
        )
    except (TaskError, ActorError) as error:
        raise ToolError(str(error)) from error
    return spawned(task_id, kind, description)


def spawned(task_id: str, kind: str, description: str) -> dict[str, Json]:
    """The result of a spawn."""
    return {"taskId": task_id, "status": "spawned", "type": kind, "description": description}


def spawn_result(task: TaskView) -> dict[str, Json]:
    """The same, from the task itself, where a crash came between the task and its result (interfaces 8.5)."""
    return spawned(task.task_id, task.task_type, task.description)


def task_id_of(key: str) -> str:
    """The id of the task that is submitted with this key."""
    return blake2b(key.encode(), digest_size=8).hexdigest()


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
        try:
            await agent.ask(Resume, task_id, str(arguments["input"]))
        except (TaskError, ActorError) as error:
            raise ToolError(str(error)) from error
        return {"taskId": task_id, "status": "resumed"}

    return Tool(spec, run, "task", Effect.ONCE)


async def _ask(agent: Ref[AgentMessage], task_id: str) -> TaskView:
    try:
        task = await agent.ask(GetTask, task_id)
    except ActorError as error:
        raise ToolError(str(error)) from error
    if task is None:
        raise ToolError(f"there is no task {task_id!r}; task_list shows the tasks of a day")
    return task


def _object(properties: Mapping[str, Json], *required: str) -> Metadata:
    return {"type": "object", "properties": properties, "required": list(required)}


def _string(description: str) -> Metadata:
    return {"type": "string", "description": description}
