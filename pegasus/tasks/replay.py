"""From the lines of a log to the task: the same state machine takes the same events as it did live.

Line by line, so that a long log costs little more than parsing it. What is damaged, newer or not allowed is reported and left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from pegasus.events import Event, EventType
from pegasus.messages import Json
from pegasus.tasks.context import TaskContext, TaskState
from pegasus.tasks.fsm import InvalidTransition, TaskFSM
from pegasus.tasks.log import OLD_NAMES, BadTaskLine, event_of
from pegasus.tasks.messages import Notification
from pegasus.wire import Line, scan_lines

MAX_PROBLEMS: Final = 20
"""Reports that are kept of one log; a file that is no log at all would give as many as it has lines."""

_E = EventType
_TELLING: Final = frozenset({_E.TASK_NOTIFY, _E.NEED_MORE_INFO, _E.TASK_COMPLETED, _E.TASK_FAILED})
_PRESUPPOSED: Final[Mapping[EventType, TaskState]] = {
    _E.REASON_DONE: TaskState.REASONING,
    _E.NEED_MORE_INFO: TaskState.REASONING,
    _E.TOOL_CALL_COMPLETED: TaskState.ACTING,
    _E.TOOL_CALL_FAILED: TaskState.ACTING,
    _E.STEP_COMPLETED: TaskState.ACTING,
    _E.TASK_SUSPENDED: TaskState.REASONING,
    _E.TASK_RESUMED: TaskState.SUSPENDED,
    _E.TASK_COMPLETED: TaskState.COMPLETED,
}
"""Of a log that lost a line: the state in which an event makes sense."""


@attrs.frozen
class ReplayedTask:
    """What a log tells.

    task: None if the log tells of none. notifications: everything the submitter is to know, n = 1, 2, …. unanswered: what the
    task notified since its last step was completed. problems: in words, at most MAX_PROBLEMS. last_at: of the last line, ms.
    """

    task: TaskFSM | None
    notifications: tuple[Notification, ...]
    unanswered: tuple[str, ...]
    problems: tuple[str, ...]
    lines: int
    last_at: int

    @property
    def is_over(self) -> bool:
        """The log ends in TASK_COMPLETED or TASK_FAILED: nothing is left to do but to tell."""
        task = self.task
        if task is None:
            return False
        return task.state is TaskState.FAILED or (
            task.state is TaskState.COMPLETED and task.draft.final_result is not None
        )


def replay(data: bytes, task_id: str) -> ReplayedTask:
    """The task of a log, as it was when the last good line was written. Raises nothing, whatever the bytes are."""
    replayer = Replayer(task_id)
    for line in scan_lines(data):
        if isinstance(line, Line):
            replayer.take(line.value, line.number)
        else:
            replayer.lost(str(line))
    return replayer.result()


class Replayer:
    """Takes the lines of a log, oldest first."""

    def __init__(self, task_id: str) -> None:
        self._task_id = task_id
        self._task: TaskFSM | None = None
        self._damaged = False
        self._notes: list[tuple[str, str, Json]] = []
        self._unanswered: list[str] = []
        self._problems: list[str] = []
        self._lines = 0
        self._last_at = 0

    def take(self, line: Mapping[str, Any], number: int) -> None:
        """One parsed line."""
        if line.get("event") in OLD_NAMES:
            return
        try:
            event = event_of(line, number)
        except BadTaskLine as error:
            self._report(f"line {number}: {error}")
            return
        if event.task_id != self._task_id:
            self._report(f"line {number}: is of task {event.task_id!r}")
            return
        self._lines += 1
        self._last_at = event.timestamp
        try:
            self._apply(event)
        except InvalidTransition as error:
            self._report(f"line {number}: {error}")

    def lost(self, problem: str) -> None:
        """A line that cannot be read. What follows is taken as it comes."""
        self._damaged = True
        self._report(problem)

    def result(self) -> ReplayedTask:
        """What the lines so far tell."""
        metadata = self._task.draft.base.input_metadata if self._task else {}
        notes = tuple(
            Notification(self._task_id, n, type, text, metadata, result)
            for n, (type, text, result) in enumerate(self._notes, 1)
        )
        return ReplayedTask(
            self._task, notes, tuple(self._unanswered), tuple(self._problems), self._lines, self._last_at
        )

    def _report(self, problem: str) -> None:
        if len(self._problems) < MAX_PROBLEMS:
            self._problems.append(problem)

    def _apply(self, event: Event) -> None:
        task = self._task
        if task is None:
            task = self._task = self._begin(event)
        try:
            task.transition(event)
        except InvalidTransition:
            if not self._damaged or event.type not in _PRESUPPOSED:
                raise
            before = task.state
            task.assume(_PRESUPPOSED[event.type])
            try:
                task.transition(event)
            except InvalidTransition:
                task.assume(before)
                raise
        self._note(event)

    def _begin(self, event: Event) -> TaskFSM:
        if event.type is _E.TASK_CREATED:
            return TaskFSM.from_event(event)
        self.lost("the log does not begin with TASK_CREATED")
        return TaskFSM.hydrate(self._task_id, TaskContext(self._task_id), TaskState.REASONING)

    def _note(self, event: Event) -> None:
        type = event.type
        if type in _TELLING and (note := notification_of(event)) is not None:
            self._notes.append(note)
        if type is _E.TASK_NOTIFY:
            self._unanswered.append(str(event.payload.get("message")))
        elif self._unanswered:
            self._unanswered.clear()


def notification_of(event: Event) -> tuple[str, str, Json] | None:
    """Type, text and result of the Notification that this event makes; None for events that notify nobody."""
    data = event.payload
    match event.type:
        case EventType.TASK_NOTIFY:
            return "notify", str(data.get("message") or ""), None
        case EventType.NEED_MORE_INFO:
            return "needs_info", str(data.get("question") or ""), None
        case EventType.TASK_FAILED:
            return "failed", str(data.get("error") or ""), None
        case EventType.TASK_COMPLETED:
            result = data.get("finalResult")
            response = result.get("response") if isinstance(result, Mapping) else None
            return "completed", "" if response is None else str(response), result
        case _:
            return None
