"""What recovery must know of a task that it will only fail, without replaying all that the task did.

That is most of what recovery costs when there are many: the logs are long, and all but their first line is about the task's work.
"""

from __future__ import annotations

import json
import re
from typing import Final

from pegasus.tasks.context import TaskState
from pegasus.tasks.fsm import InvalidTransition, TaskFSM
from pegasus.tasks.log import BadTaskLine, event_of
from pegasus.tasks.replay import ReplayedTask

_BEGINNING: Final = re.compile(
    rb'\{"ts":(\d{1,16}),"event":"(?:(TASK_CREATED)|(REASON_DONE)|TOOL_CALL_COMPLETED|TOOL_CALL_FAILED)",'
    rb'"taskId":"([A-Za-z0-9_-]{1,64})","data":\{'
)
"""How a line begins that tells of a task at work. No text within JSON holds a line break, so it stands at beginnings alone."""


def glance(data: bytes, task_id: str) -> ReplayedTask | None:
    """As `replay`, for a task that was at work and has told nobody anything; None for any other log.

    The task knows its input and how often it has thought, and nothing of what it did; that it is REASONING may be ACTING.
    """
    lines = data.split(b"\n")
    if lines.pop() or not lines:
        return None
    id, thoughts, last = task_id.encode(), 0, b""
    for n, line in enumerate(lines):
        found = _BEGINNING.match(line)
        if found is None:
            return None
        last, created, thought, of = found.groups()
        if of != id or (created is not None) is not (n == 0):
            return None
        thoughts += thought is not None
    try:
        task = TaskFSM.from_event(event_of(json.loads(lines[0].decode()), 1))
    except (ValueError, RecursionError, BadTaskLine, InvalidTransition):
        return None
    task.skip(thoughts, TaskState.REASONING, int(last))
    return ReplayedTask(task, (), (), (), len(lines), int(last))
