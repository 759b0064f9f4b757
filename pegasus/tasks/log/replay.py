"""Replaying a log: its lines become events, and the state machine takes them as it took them when they happened.

A replay never raises, whatever the bytes are. Damaged lines, lines of newer versions and events that the machine refuses are
reported and left out. A log that lost a line is continued as well as possible: the state that the next event presupposes
is assumed, because a task that can still be finished or failed is worth more than a refused one.

States are assumed only behind a line that could not be read. In an undamaged log an event that the machine refuses was refused
when it happened, too, and the replay must do the same.

The garbage collector is paused meanwhile. A replay creates many objects and no cycles, and collections would go through all of
them again and again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from pegasus.collector import collector_paused
from pegasus.events import Event, EventType
from pegasus.json_lines import Line, scan_lines
from pegasus.tasks.core.fsm import InvalidTransition, TaskContext, TaskFSM
from pegasus.tasks.core.task_states import TaskState
from pegasus.tasks.core.views import Notification, notification_of
from pegasus.tasks.log.format import BadTaskLine, parse_task_line

MAX_PROBLEMS: Final = 20
"""Problems that are reported of one log; a file that is no log at all would give as many as it has lines."""

_E = EventType
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
"""For a log that lost a line: the state in which an event makes sense."""


@attrs.frozen(eq=False, repr=False)
class ReplayedTask:
    """The outcome of a replay. Example: `replay(data, "t1").is_over`."""

    task: TaskFSM | None
    """The task after the last good line; None if no line of the log belongs to it."""
    notifications: tuple[Notification, ...]
    """Every notification for the submitter, n = 1, 2, …."""
    unanswered: tuple[str, ...]
    """Messages of `notify` calls since the last completed step: calls that were made and whose result is not recorded."""
    problems: tuple[str, ...]
    """Problems in words, at most MAX_PROBLEMS."""
    lines: int
    """Lines with an event of this task, accepted or not."""
    last_at: int
    """Wall clock of the last line, ms."""
    number: int = 0
    """Number of the task; 0 where it is not known, since a log does not name it."""

    @property
    def is_over(self) -> bool:
        """True if the log ends in TASK_COMPLETED or TASK_FAILED: nothing is left to do but to notify."""
        return self.task is not None and self.task.is_over


def replay(data: bytes, task_id: str, number: int = 0) -> ReplayedTask:
    """Return the task of a log as it was when the last good line was written.

    data: the whole content of the file; b"" gives a ReplayedTask without a task. Lines of another task are reported and left out.
    number: the task's, where it is known.

    Example: `replay(path.read_bytes(), path.stem).task.context.messages`.
    """
    replayer = _Replayer(task_id)
    with collector_paused():
        for line in scan_lines(data):
            if isinstance(line, Line):
                replayer.take(line.value, line.number)
            else:
                replayer.take_damaged(str(line))
    return replayer.result(number)


class _Replayer:
    """Takes the lines of a log, oldest first."""

    def __init__(self, task_id: str) -> None:
        self._task_id = task_id
        self._task: TaskFSM | None = None
        """The task so far; None before its first good line."""
        self._damaged = False
        """True if a line was lost, so that the state may be behind the next event."""
        self._notifications: list[Notification] = []
        self._unanswered: list[str] = []
        self._problems: list[str] = []
        self._lines = 0
        self._last_at = 0

    def take(self, line: Mapping[str, Any], number: int) -> None:
        """Apply one parsed line of the log to the state machine. One that does not fit in is kept as a problem."""
        try:
            event = parse_task_line(line, number)
            if event.task_id != self._task_id:
                raise BadTaskLine(f"is of task {event.task_id!r}")
            self._lines += 1
            self._last_at = event.timestamp
            self._apply(event)
        except (BadTaskLine, InvalidTransition) as error:
            self._report(f"line {number}: {error}")

    def take_damaged(self, problem: str) -> None:
        """Note a line that cannot be read. Events behind it may presuppose what it said."""
        self._damaged = True
        self._report(problem)

    def result(self, number: int) -> ReplayedTask:
        """Return the outcome of the lines so far, of the task with this number."""
        return ReplayedTask(
            self._task,
            tuple(self._notifications),
            tuple(self._unanswered),
            tuple(self._problems),
            self._lines,
            self._last_at,
            number,
        )

    def _report(self, problem: str) -> None:
        """Add a problem, unless there are MAX_PROBLEMS already."""
        if len(self._problems) < MAX_PROBLEMS:
            self._problems.append(problem)

    def _apply(self, event: Event) -> None:
        """Let the task take an event. If a line was lost before it and it is refused, assume the state that it presupposes."""
        task = self._task
        if task is None:
            task = self._task = self._first_task(event)
        try:
            task.transition(event)
        except InvalidTransition:
            if not self._damaged or event.type not in _PRESUPPOSED:
                raise
            # The state is assumed for this one event. If it is refused all the same, the task is as it was.
            before = task.state
            task.state = _PRESUPPOSED[event.type]
            try:
                task.transition(event)
            except InvalidTransition:
                task.state = before
                raise
        self._note(task, event)

    def _first_task(self, event: Event) -> TaskFSM:
        """Return the task that the first good line makes; an empty one if TASK_CREATED is lost."""
        if event.type is _E.TASK_CREATED:
            return TaskFSM.from_event(event)
        self.take_damaged("the log does not begin with TASK_CREATED")
        return TaskFSM(self._task_id, TaskState.REASONING, TaskContext(self._task_id))

    def _note(self, task: TaskFSM, event: Event) -> None:
        """Note the notification that an accepted event makes, and which `notify` calls have no result yet."""
        if task.context.notified > len(self._notifications):
            notification = notification_of(task, event)
            self._notifications.append(notification)
            if event.type is _E.TASK_NOTIFY:
                self._unanswered.append(notification.text)
                return
        # Any other event ends the step, so the calls before it have their results.
        self._unanswered.clear()
