"""What recovery must know of a task that it will only fail, without replaying all that the task did.

That is most of what recovery costs when there are many: the logs are long, and all but their first line is about the task's work.
"""

from __future__ import annotations

import json
import re
from typing import Final

from pegasus.events import EventType
from pegasus.tasks.context import TaskState
from pegasus.tasks.fsm import InvalidTransition, TaskFSM
from pegasus.tasks.log import BadTaskLine, event_of
from pegasus.tasks.replay import Replayed

_BEGINNING: Final = re.compile(
    rb'^\{"ts":(\d{1,16}),"event":"(TASK_CREATED|REASON_DONE|TOOL_CALL_COMPLETED|TOOL_CALL_FAILED)",'
    rb'"taskId":"([A-Za-z0-9_-]{1,64})","data":\{',
    re.MULTILINE,
)
"""How a line begins that tells of a task at work. No text within JSON holds a line break, so it stands at beginnings alone."""


def glance(data: bytes, task_id: str) -> Replayed | None:
    """As `replay`, for a task that was at work and has told nobody anything; None for any other log.

    The task knows its input and how often it has thought, and nothing of what it did; that it is REASONING may be ACTING.
    """
    lines = _BEGINNING.findall(data)
    if not lines or len(lines) != data.count(b"\n") or not data.endswith(b"\n"):
        return None
    kinds = [kind for _, kind, _ in lines]
    if kinds[0] != b"TASK_CREATED" or b"TASK_CREATED" in kinds[1:] or {id for _, _, id in lines} != {task_id.encode()}:
        return None
    try:
        created = event_of(json.loads(data[: data.index(b"\n")]), 1)
        task = TaskFSM.from_event(created)
        task.transition(created)
    except (ValueError, RecursionError, BadTaskLine, InvalidTransition):
        return None
    last_at = int(lines[-1][0])
    task.skip(kinds.count(EventType.REASON_DONE.name.encode()), TaskState.REASONING, last_at)
    return Replayed(task, (), (), (), len(lines), last_at)
