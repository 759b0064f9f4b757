"""The objects that the agent and its tasks work with: limits, models, tools, memory, the bus and the clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import attrs

from actors import Ref
from pegasus.events import BusMessage, EventMaker
from pegasus.models import LanguageModel
from pegasus.tasks.core.task_types import TaskTypes
from pegasus.tasks.run.doer import Doer, Toolbox
from pegasus.tasks.run.reflector import Reflector
from pegasus.tasks.run.thinker import Thinker
from pegasus.tools import ToolContext


@attrs.frozen
class TaskLimits:
    """Limits of the task system; docs/agent.md describes the settings. Example: `TaskLimits(max_active=2, timeout=60)`."""

    max_active: int = 5
    """Tasks that hold a slot at the same time."""
    max_queued: int = 100
    """Tasks that wait for their first slot; a further Submit is refused."""
    max_tools: int = 3
    """Tool calls at the same time, of all tasks together."""
    max_iterations: int = 10
    """Model calls of a task between its start or resume and its answer."""
    timeout: float = 300.0
    """Seconds that the stages of a task may take together; time in the queue or suspended does not count."""
    recovery: str = "resume"
    """Treatment of interrupted tasks at a start: "resume" or "fail"."""


class TaskMemory(Protocol):
    """Long-term memory as tasks use it. Each method may raise; a task then goes on without memory."""

    async def index_message(self) -> str:
        """Return the text for the first iteration of a task, "" if there is nothing to say."""

    async def for_reflection(self) -> str:
        """Return all facts in full and the summaries of the episodes."""


@attrs.frozen(eq=False)
class TaskDeps:
    """Everything that the agent and its tasks work with. One object for all tasks, made by the composition root.

    The example is `open_desk` in `tests/pegasus/tasks/world.py`, which makes a whole task system.
    """

    bus: Ref[BusMessage]
    """Event bus; recorded events are published there after they are on disk."""
    events: EventMaker
    """Maker of event ids and times."""
    clock: Callable[[], int]
    """Wall clock, ms."""
    types: TaskTypes
    """Types of task."""
    thinker: Thinker
    """Makes the model calls."""
    doer: Doer
    """Makes the tool calls."""
    reflector: Reflector
    """Makes the reflections; unused without memory."""
    toolbox: Toolbox
    """All tools, and the one way to run them."""
    model_for: Callable[[str], LanguageModel]
    """Model of a name ("<provider>/<model>") or of a role ("subagent", "reflection"). Raises ValueError for unknown names.

    The models themselves bound how many calls run at the same time.
    """
    context: ToolContext
    """The part of a tool call's context that is the same for all tasks."""
    memory: TaskMemory | None = None
    """Long-term memory; None = no index, no reflection."""
    limits: TaskLimits = attrs.field(factory=TaskLimits)
