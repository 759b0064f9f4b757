"""How tasks come to be: submitted, or by an event from outside (seed 001, "External Input Processing")."""

from __future__ import annotations

from actors import ActorError
from pegasus.events import Event, EventType
from pegasus.messages import Json, Metadata
from pegasus.observe import get_logger
from pegasus.storage import StorageError
from pegasus.tasks import payloads
from pegasus.tasks.fsm import TaskFSM
from pegasus.tasks.messages import Submit, TaskError, task_id_of
from pegasus.tasks.office import Office
from pegasus.tasks.overrides import overridden, with_overrides, without_overrides
from pegasus.tasks.registry import TaskEntry
from pegasus.tasks.seats import Seats
from pegasus.tasks.types import DEFAULT
from pegasus.tasks.views import task_view

_log = get_logger("agent")


def is_handled(event: Event) -> bool:
    """Whether somebody else does what this event from outside asks for, so that it makes no task and goes to none."""
    return event.task_id is None and "handledBy" in event.payload


class Intake:
    """Makes tasks; what it makes thinks of its input at once, and does nothing before its TASK_CREATED comes back from the bus."""

    def __init__(self, office: Office, seats: Seats) -> None:
        self._office = office
        self._seats = seats

    async def submit(self, request: Submit) -> str:
        """Answered when TASK_CREATED has come back from the bus, for then it is on disk."""
        if not request.text.strip():
            raise TaskError("input is empty: say what is to be done")
        metadata = with_overrides(request.metadata, request.model, request.tools)
        self._check_type(request, metadata)
        task_id = task_id_of(request.key) if request.key else self._office.deps.events.new_id()
        entry = self._office.registry.get_or_none(task_id)
        if entry is None and request.key and await self._office.archive.exists(task_id):
            return task_id
        if request.reply.abandoned:  # /stop has ended who wanted it, and would not find what comes to be behind it
            raise TaskError("nobody waits for this task any more")
        entry = self._office.registry.get_or_none(task_id)  # another one with this key may have come meanwhile
        if entry is None:
            received = self._office.deps.events.create(
                EventType.MESSAGE_RECEIVED, request.source, {"text": request.text, "handledBy": "agent"}
            )
            payload = payloads.created(
                request.text,
                description=request.description,
                source=request.source,
                metadata=metadata,
                task_type=request.task_type,
            )
            entry = await self._create(received, payload, task_id, request.priority, announce=True)
        if not entry.created:
            await entry.known.wait()
        return task_id

    def _check_type(self, request: Submit, metadata: Metadata) -> None:
        deps = self._office.deps
        task_type = deps.types.get(request.task_type)
        if task_type is None:
            known = ", ".join(deps.types.names())
            raise TaskError(f"there is no type {request.task_type!r} of task; there are: {known}")
        if request.model:
            try:
                deps.model_for(overridden(task_type, metadata).model_name)
            except ValueError as error:
                raise TaskError(str(error)) from error

    async def _create(
        self, parent: Event, payload: dict[str, Json], task_id: str, priority: int | None, *, announce: bool = False
    ) -> TaskEntry:
        """A task of this event, which is emitted first if it is to be announced. It is known before anything is awaited."""
        registry, limits = self._office.registry, self._office.limits
        if registry.waiting >= limits.max_queued + max(0, limits.max_active - registry.active):
            raise TaskError(
                f"{limits.max_queued} tasks are waiting already, which is the most there may be (tasks.max_queued)"
            )
        event = self._office.deps.events.derive(
            parent, EventType.TASK_CREATED, payload, source="agent", task_id=task_id, priority=priority
        )
        fsm = TaskFSM.from_event(event)
        entry = registry.register(TaskEntry(task_view(fsm), fsm))
        if announce:
            await self._office.emit(parent)
        await self._office.emit(event)
        await self._seats.prepare(entry)
        return entry

    async def external(self, event: Event) -> None:
        """A message, webhook or schedule that nobody has handled: for a task that waits, or a new task (X16)."""
        text = event.payload.get("text")
        if event.task_id is not None:
            try:
                await self._seats.resume(event.task_id, text if isinstance(text, str) else "", cause=event)
            except (TaskError, StorageError, ActorError) as error:
                _log.warning("dropped a message for a task", task=event.task_id, problem=str(error))
            return
        if not isinstance(text, str) or not text.strip():
            _log.warning("dropped an event without a text", type=event.type.name, source=event.source)
            return
        kind, metadata = event.payload.get("taskType"), event.payload.get("metadata")
        payload = payloads.created(
            text,
            description=str(event.payload.get("description") or ""),
            source=event.source,
            metadata=without_overrides(metadata) if isinstance(metadata, dict) else None,
            task_type=kind if isinstance(kind, str) and self._office.deps.types.get(kind) else DEFAULT,
        )
        try:
            await self._create(event, payload, self._office.deps.events.new_id(), None)
        except TaskError as error:
            _log.warning("refused a task", source=event.source, problem=str(error))
