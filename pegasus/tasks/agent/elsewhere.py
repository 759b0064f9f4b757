"""Tasks of other nodes: what is asked of them here, and is carried out where they are.

Each pending task belongs to one node, whose agent has it in memory and moves it. Any node is asked for any task: a page is served by
one node and shows what another one does, and a chat may have moved away from the node that works on its tasks. Questions are answered
from the list of pending tasks and the logs, which all nodes read. A request to do something is a row that all nodes see. The node of
the task carries it out and puts the answer into the row; the node that has asked takes it out.

    task-requests   {"<id>": {"taskId": …, "action": "cancel", "by": …, "answer": {"error": ""}}}

A node that dies before it has answered leaves the row, and whoever takes its tasks carries it out. Perhaps for the second time, which
is why an answer such as "it is not running" may come of a request that was carried out. If the task is over meanwhile, and so is
nobody's, the node that has asked carries the request out itself, as it does without other nodes.

Nothing here runs where there is one node.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import attrs
import trio

from actors import ActorError, Ref, Signal
from pegasus.messages import Json
from pegasus.retry import retry
from pegasus.storage import JournalMessage, KeyedStore, StorageError
from pegasus.tasks.agent.messages import StoppedTask
from pegasus.tasks.agent.recovery import recover_tasks
from pegasus.tasks.agent.scheduler import TaskScheduler
from pegasus.tasks.agent.state import TaskAgentState
from pegasus.tasks.core.task_states import TaskError
from pegasus.tasks.core.views import TaskView
from pegasus.tasks.log.format import PendingTask
from pegasus.tasks.run.task import ResumeOrder
from pegasus.wire import from_wire

LOOK: Final = 0.5
"""Seconds between two looks at where a task is."""
LEAVE: Final = 1.0
"""Seconds for taking a request out that nobody waits for any more; else it is dropped when it is old."""
KEPT_MS: Final = 3_600_000
"""Age of a row whose asker has gone, at which it is dropped."""


@attrs.frozen
class RequestAnswer:
    """Answer of the node of a task."""

    error: str = ""
    """Reason for which it was not done, for people; "" if it was."""
    stopped: StoppedTask | None = None
    """Result of a "cancel"."""


@attrs.frozen
class TaskRequest:
    """Something that is to be done with a task: `TaskRequest("t1", "cancel", by="the owner")`."""

    task_id: str
    """Id of the task."""
    action: str
    """"cancel", "suspend", "continue" or "resume"."""
    by: str = ""
    """As in `Cancel`."""
    order: ResumeOrder | None = None
    """Content of a "resume"."""
    at: int = 0
    """Wall clock of the asker, ms."""
    answer: RequestAnswer | None = None
    """Answer, once there is one."""


class TasksElsewhere:
    """The way to tasks of other nodes, and to this node's for them."""

    def __init__(self, state: TaskAgentState, scheduler: TaskScheduler, journal: Ref[JournalMessage]) -> None:
        self._state = state
        self._scheduler = scheduler
        self._changed = Signal()
        """Given when rows have changed."""
        self._store = KeyedStore("task-requests", _read_request, after_read=self._changed.notify)
        self._store.use(journal)
        self._doing: set[str] = set()
        """Requests of other nodes that are being carried out."""
        self._asked: set[str] = set()
        """Requests of this node that wait for their answer."""

    # ------------------------------------------------------------------ the node's own side

    async def run(self, nursery: trio.Nursery) -> None:
        """Take over the tasks of nodes that live no more, and carry out what other nodes ask, until cancelled.

        Raises LeaseLost when this node's tasks are another's.
        """
        nursery.start_soon(self._serve, nursery)
        nursery.start_soon(self._store.follow)
        while True:
            taken = await self._state.logs.next_taken()
            self._drop({entry.task_id for entry in taken})
            await recover_tasks(self._state, self._scheduler, nursery, taken)
            self._changed.notify()

    async def _serve(self, nursery: trio.Nursery) -> None:
        """Carry out requests for tasks of this node."""
        await retry(self._store.ensure_read, (StorageError, ActorError))
        while True:
            seen = self._changed.count
            now = self._state.deps.clock()
            for id, request in self._store.rows.items():
                is_old = now - request.at > KEPT_MS and id not in self._asked
                is_mine = request.answer is None and self._is_here(request.task_id)
                if (is_old or is_mine) and id not in self._doing:
                    self._doing.add(id)
                    nursery.start_soon(self._do, id, None if is_old else request)
            await self._changed.wait(seen)

    def _is_here(self, task_id: str) -> bool:
        """Return whether the task is one of this node."""
        entry = self._state.registry.tasks.get(task_id)
        return entry is not None and not entry.is_idle

    async def _do(self, id: str, request: TaskRequest | None) -> None:
        """Carry out a request and answer it; None: its asker has gone, and it is dropped."""
        if request is None:
            await self._put({}, [id])
        else:
            try:
                answer = await self._carry_out(request)
            except (TaskError, StorageError, ActorError) as error:
                answer = RequestAnswer(str(error))
            await self._put({id: attrs.evolve(request, answer=answer)})
        self._doing.discard(id)

    async def _carry_out(self, request: TaskRequest) -> RequestAnswer:
        """Do what is asked of a task of this node. Raises TaskError, StorageError, ActorError."""
        match request.action:
            case "cancel":
                return RequestAnswer(stopped=await self._scheduler.cancel(request.task_id, request.by))
            case "suspend":
                await self._scheduler.suspend(request.task_id)
            case "continue":
                await self._scheduler.continue_paused(request.task_id)
            case _ if request.order is not None:
                await self._scheduler.resume(request.task_id, request.order)
        return RequestAnswer()

    async def _put(self, put: dict[str, TaskRequest], delete: Collection[str] = ()) -> None:
        """Write rows, again for as long as the database refuses or another node is first."""

        async def write() -> None:
            async with self._store.change():
                # An asker that has gone has taken its row away; an answer must not bring it back.
                known = {id: row for id, row in put.items() if row.answer is None or id in self._store.rows}
                await self._store.save(known, delete)

        await retry(write, (StorageError, ActorError))

    # ------------------------------------------------------------------ asking other nodes

    async def pending(self) -> dict[str, PendingTask]:
        """Return the pending tasks of other nodes by id. What memory holds of them, and of tasks that are over, is dropped.

        A task that is over may be resumed by any node, so that a view in memory would be old.
        """
        pending = {entry.task_id: entry for entry in await self._state.logs.elsewhere()}
        self._drop({*pending, *(entry.task_id for entry in self._state.registry if entry.is_over)})
        return pending

    def _drop(self, ids: Collection[str]) -> None:
        for id in ids:
            entry = self._state.registry.tasks.get(id)
            if entry is not None and entry.is_idle:
                self._state.registry.drop(entry)

    async def views(self) -> Sequence[TaskView]:
        """Return the pending tasks of other nodes, as their logs show them. One whose log cannot be read is left out."""
        return await self._state.logs.views(await self.pending())

    async def ask(self, task_id: str, action: str, by: str = "", order: ResumeOrder | None = None) -> RequestAnswer:
        """Let the node of a task do what is asked, or do it here if it is no other node's. The arguments are as in `TaskRequest`.

        Raises TaskError, StorageError, ActorError. Cancelled, the request may be carried out.
        """
        request = TaskRequest(task_id, action, by, order, self._state.deps.clock())
        if task_id not in await self.pending():
            return await self._carry_out(request)
        id = self._state.deps.new_task_id()
        self._asked.add(id)
        try:
            await self._put({id: request})
            while True:
                seen = self._changed.count
                if (row := self._store.rows.get(id)) is None:
                    raise TaskError("the node of the task has not answered")
                if row.answer is not None:
                    break
                if task_id not in await self.pending() and not self._is_here(task_id):
                    return await self._carry_out(request)  # it is over, and so it is nobody's
                with trio.move_on_after(LOOK):
                    await self._changed.wait(seen)
        finally:
            self._asked.discard(id)
            with trio.move_on_after(LEAVE) as scope:
                scope.shield = True
                await self._put({}, [id])
        if row.answer.error:
            raise TaskError(row.answer.error)
        return row.answer

    async def until_here(self, task_id: str) -> None:
        """Return when a task is over, or one of this node."""
        while task_id in await self.pending():
            with trio.move_on_after(LOOK):
                await self._changed.wait()


def _read_request(id: str, value: Json) -> tuple[str, TaskRequest]:
    """Return id and request of a row. Raises WireError."""
    return id, from_wire(value, TaskRequest)
