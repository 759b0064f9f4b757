"""Methods of the control plane about tasks, memory and the persona.

The gateway passes a `call` frame to the method of that name, with the caller and the frame's params, and sends what it
returns (JSON) as the `result` frame. A method raises `BadParams` for params that make no sense, which becomes an `error`
frame; the message says what was found and what is allowed.

Each class holds the object that it gives access to, and nothing else. `pegasus.app.control` puts them together.
"""

from __future__ import annotations

import attrs

from actors import Ref
from pegasus.conversation import to_json
from pegasus.gateway import BadParams, Caller, Params
from pegasus.identity import Evolution, Persona, PersonaError, ProposalRefused, persona_view, proposal_view
from pegasus.intake import is_owner
from pegasus.memory import Author, Memory, MemoryRefused, files_view
from pegasus.memory import view_of as change_view
from pegasus.messages import ChannelInfo, Json
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
from pegasus.tools import found_json
from pegasus.wire import to_wire

DEFAULT_CHANGES = 50
"""Changes that `memory.log` returns when the caller names no limit."""
MAX_CHANGES = 200
"""Changes that `memory.log` returns at most. Each shows up to 4,000 characters, and an answer must fit into
a frame."""
DEFAULT_HITS = 8
"""Passages that `memory.search` returns when the caller names no limit."""


# ------------------------------------------------------------------ reading params


def require_text(params: Params, key: str, allowed: str = "a text") -> str:
    """Return a text that is not empty. `allowed` completes the message of the BadParams that is raised otherwise."""
    value = params.get(key)
    if not isinstance(value, str) or not value:
        raise BadParams(f"{key}: found {value!r}, allowed: {allowed}")
    return value


def read_number(params: Params, key: str, default: int) -> int:
    """Return a whole number from 0, or `default` where the key is missing. Raises BadParams."""
    value = params.get(key)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise BadParams(f"{key}: found {value!r}, allowed: a whole number from 0")
    return value


# ------------------------------------------------------------------ tasks


@attrs.frozen(eq=False)
class TaskMethods:
    """Tasks: `tasks.list`, `tasks.show`, `tasks.replay`, `tasks.cancel`, `tasks.resume`.

    The task system starts behind the ready line, so each method waits until it runs (the gateway's deadline for calls
    bounds that wait).

        tasks = TaskMethods(root.ref(TASK_AGENT))
        await tasks.cancel(caller, {"taskId": "t-42"})
    """

    agent: Ref[AgentMessage]
    """The orchestrator of the task system."""

    async def list(self, caller: Caller, params: Params) -> Json:
        """Return the tasks in memory or, with `date` (YYYY-MM-DD, UTC), those that were created on that day.

        Tasks of an earlier day are read from the task log, so this takes as long as reading that day's file.
        """
        date = params.get("date")
        if date is not None and not (isinstance(date, str) and is_date(date)):
            raise BadParams(f"date: found {date!r}, allowed: YYYY-MM-DD")
        await wait_until_running(self.agent)
        found = await self.agent.ask(ListTasks, date)
        return {"tasks": [task_json(task) for task in found]}

    async def show(self, caller: Caller, params: Params) -> Json:
        """Return the state and result of the task `taskId`.

        Tasks that have ended are found too, as long as their log is kept.
        """
        task_id = _task_id(params)
        await wait_until_running(self.agent)
        task = await self.agent.ask(GetTask, task_id)
        if task is None:
            raise BadParams(f"taskId: there is no task {task_id!r}")
        return task_json(task)

    async def replay(self, caller: Caller, params: Params) -> Json:
        """Return the whole conversation of the task `taskId`."""
        task_id = _task_id(params)
        await wait_until_running(self.agent)
        context = await self.agent.ask(GetContext, task_id)
        if context is None:
            raise BadParams(f"taskId: there is no task {task_id!r}")
        return {"taskId": task_id, "messages": [to_json(entry) for entry in context.messages]}

    async def cancel(self, caller: Caller, params: Params) -> Json:
        """Cancel the task `taskId`, and return what was ended once nothing of it runs.

        A task that does not exist or has ended already is a BadParams. Cancelling this call does not save the
        task.
        """
        task_id = _task_id(params)
        await wait_until_running(self.agent)
        try:
            stopped = await self.agent.ask(Cancel, task_id, f"a control call ({caller.type})")
        except TaskError as error:
            raise BadParams(str(error)) from None
        return to_wire(stopped)

    async def resume(self, caller: Caller, params: Params) -> Json:
        """Resume a suspended, completed or interrupted task, with `input` as a new message if there is one.

        It returns as soon as the task is queued or running; the result comes to the Main Agent as a
        notification.
        """
        task_id, text = _task_id(params), params.get("input", "")
        if not isinstance(text, str):
            raise BadParams("input: must be a text")
        await wait_until_running(self.agent)
        try:
            await self.agent.ask(Resume, task_id, text)
        except TaskError as error:
            raise BadParams(str(error)) from None
        return {"taskId": task_id, "status": "resumed"}


def task_json(task: TaskView) -> Json:
    """Return a task as it appears on the wire, where its state is a word.

    Keys are the camelCase names of TaskView's fields; those with a default value are left out.
    """
    return {**to_wire(task), "state": task.state.value}


def _task_id(params: Params) -> str:
    return require_text(params, "taskId", "a task's id")


# ------------------------------------------------------------------ memory


@attrs.frozen(eq=False)
class MemoryMethods:
    """Memory: `memory.list`, `memory.show`, `memory.log`, `memory.undo`, `memory.search`.

    For example:

        memory = MemoryMethods(services.memory)
        await memory.log(caller, {"path": "facts/user.md", "limit": 10})
    """

    memory: Memory
    """The agent's memory."""

    async def list(self, caller: Caller, params: Params) -> Json:
        """Return every file with path, summary, size, and whether it holds text from outside."""
        return files_view(await self.memory.list())

    async def show(self, caller: Caller, params: Params) -> Json:
        """Return the whole of the file `path`."""
        path = require_text(params, "path")
        try:
            return {"path": path, "content": await self.memory.read(path)}
        except MemoryRefused as error:
            raise BadParams(f"path: {error}") from None

    async def log(self, caller: Caller, params: Params) -> Json:
        """Return the latest changes, newest first: of the file `path` only, at most `limit`, with numbers below `before`."""
        path = require_text(params, "path") if params.get("path") is not None else None
        limit, before = read_number(params, "limit", DEFAULT_CHANGES), read_number(params, "before", 0)
        changes = await self.memory.log(path, min(limit or DEFAULT_CHANGES, MAX_CHANGES), before or None)
        return {"changes": [change_view(change) for change in changes]}

    async def undo(self, caller: Caller, params: Params) -> Json:
        """Undo the change `n`, and return the change that does it."""
        n = read_number(params, "n", 0)
        if not n:
            raise BadParams(f"n: found {params.get('n')!r}, allowed: the number of a change, see memory.log")
        author = Author("user", user=caller.user_id or "", channel=f"{caller.type}:{caller.channel_id or '*'}")
        try:
            return {"change": change_view(await self.memory.undo(n, author))}
        except MemoryRefused as error:
            raise BadParams(f"n: {error}") from None

    async def search(self, caller: Caller, params: Params) -> Json:
        """Return passages that fit `query`, at most `limit`, `in` memory or archives, as the tool memory_search does."""
        query, where = require_text(params, "query"), params.get("in") or ""
        limit = read_number(params, "limit", DEFAULT_HITS) or DEFAULT_HITS
        try:
            return found_json(await self.memory.search(query, limit, str(where)))
        except MemoryRefused as error:
            raise BadParams(str(error)) from None


# ------------------------------------------------------------------ persona


@attrs.frozen(eq=False)
class PersonaMethods:
    """The persona: `persona.list`, `persona.accept`, `persona.reject`.

    Only owners may call them. The command line of this machine (type `cli`) counts as an owner, since whoever runs it
    holds the home itself.

        persona = PersonaMethods(evolution, in_force, owners=("telegram:42",))
        await persona.accept(caller, {"n": 3})
    """

    evolution: Evolution
    """Proposals and decisions."""
    in_force: Persona
    """The persona of this run; accepted changes count from the next start on."""
    owners: tuple[str, ...]
    """The setting `agent.owners`."""

    async def list(self, caller: Caller, params: Params) -> Json:
        """Return the persona and all proposals."""
        self._check_owner(caller)
        try:
            return persona_view(await self.evolution.read_state(), self.in_force)
        except PersonaError as error:
            raise BadParams(str(error)) from None

    async def accept(self, caller: Caller, params: Params) -> Json:
        """Accept the proposal `n`."""
        return await self._decide(caller, params, accept=True)

    async def reject(self, caller: Caller, params: Params) -> Json:
        """Reject the proposal `n`, or revert it if it was accepted."""
        return await self._decide(caller, params, accept=False)

    async def _decide(self, caller: Caller, params: Params, *, accept: bool) -> Json:
        self._check_owner(caller)
        n = params.get("n")
        if not isinstance(n, int) or isinstance(n, bool):
            raise BadParams(f"n: found {n!r:.40}, allowed: the number of a proposal")
        try:
            proposal = await self.evolution.decide(n, accept=accept, by=f"{caller.type}:{caller.channel_id or ''}")
            return proposal_view(proposal, (await self.evolution.read_state()).persona)
        except (ProposalRefused, PersonaError) as error:
            raise BadParams(str(error)) from None

    def _check_owner(self, caller: Caller) -> None:
        channel = ChannelInfo(caller.type, caller.channel_id or "", caller.user_id)
        if caller.type != "cli" and not is_owner(channel, self.owners):
            raise BadParams("only an owner may see and decide about the persona (agent.owners of the settings)")
