"""States of a task, the words for why it rests or ended, and the error of a request that it refuses.

Others need these at a start, and no event, context or view.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from pegasus.messages import ChannelInfo


class TaskState(StrEnum):
    """The six states of a task.

    Example: `task.state is TaskState.SUSPENDED`. The values stand in logs, so they do not change.
    """

    IDLE = "idle"
    """Created and on disk, waiting for a slot."""
    REASONING = "reasoning"
    """A model call is due or running."""
    ACTING = "acting"
    """The steps of the plan are carried out."""
    SUSPENDED = "suspended"
    """Waiting for an answer or for a resume; holds no slot."""
    COMPLETED = "completed"
    """The answer was given. A resume starts it again with all it knows."""
    FAILED = "failed"
    """Final, except for a task that only a restart of the process interrupted."""


FOR_APPROVAL: Final = "approval"
"""Reason of the suspension of a task that waits for an owner's approval of a call. Stored, so it must not change."""
FOR_PERSON: Final = "person"
"""Reason of the suspension of a task that a person has paused, and alone lets go on. Stored, so it must not change."""
STOPPED: Final = "stopped"
"""Reason of the end of a task that a person has ended. Its state is FAILED; people read "stopped". Stored: it must not change."""
DEFAULT_CHANNEL: Final = ChannelInfo("cli", "main")
"""Channel of a task that nobody on a channel has asked for: the terminal's main one, which is known without a bridge."""
REFLECTING: Final = "reflecting"
"""Activity of a task that is over and reflects on its result, for views and for what a cancel has ended."""


class TaskError(Exception):
    """A request cannot be carried out for this task; the text says why, and what would work.

    Example::

        try:
            await agent.ask(Resume, task_id, "The blue one.")
        except TaskError as error:   # "there is no task 12; the newest is 7"
            raise ToolError(str(error)) from error
    """
