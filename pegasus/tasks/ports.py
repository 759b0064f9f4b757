"""What the task system works with: limits, models, tools, memory, the bus and the clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import attrs

from actors import Ref
from pegasus.events import BusMessage, EventMaker
from pegasus.models import LanguageModel
from pegasus.tasks.cognition.doer import Doer, Toolbox
from pegasus.tasks.cognition.reflector import Reflector
from pegasus.tasks.cognition.thinker import Thinker
from pegasus.tasks.types import TaskTypes
from pegasus.tools import ToolContext


@attrs.frozen
class TaskLimits:
    """max_active, max_queued: tasks; max_calls, max_tools: at the same time, all tasks together; timeout: seconds at work."""

    max_active: int = 5
    max_queued: int = 100
    max_calls: int = 3
    max_tools: int = 3
    max_iterations: int = 10
    timeout: float = 300.0
    recovery: str = "fail"


class TaskMemory(Protocol):
    """Long-term memory as tasks use it. Each method may raise; a task then goes on without memory."""

    async def index_message(self) -> str:
        """Return the text for the first iteration of a task, "" if there is nothing to say."""

    async def for_reflection(self) -> str:
        """Return all facts in full and the summaries of the episodes."""


@attrs.frozen(eq=False)
class TaskDeps:
    """Everything that the agent and its tasks work with; one object for all tasks, made by the composition root.

    clock: wall clock, ms. model_for: the model of a name ("<provider>/<model>") or of a role ("subagent", "reflection");
    raises ValueError for a name that there is not. context: what every tool call may know and touch.
    """

    bus: Ref[BusMessage]
    events: EventMaker
    clock: Callable[[], int]
    types: TaskTypes
    thinker: Thinker
    doer: Doer
    reflector: Reflector
    toolbox: Toolbox
    model_for: Callable[[str], LanguageModel]
    context: ToolContext
    memory: TaskMemory | None = None
    limits: TaskLimits = attrs.field(factory=TaskLimits)
