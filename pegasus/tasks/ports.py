"""What the agent and its tasks work with; one set for all tasks, made by the composition root."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import attrs

from actors import Ref
from pegasus.events import BusMessage, EventMaker
from pegasus.models import LanguageModel
from pegasus.tasks.cognition.doer import Doer, Toolbox
from pegasus.tasks.cognition.reflector import Reflector
from pegasus.tasks.cognition.thinker import Thinker
from pegasus.tasks.types import TaskType, TaskTypes
from pegasus.tools import REFLECTION, ToolContext


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
    grace: float = 5.0


@attrs.frozen(eq=False)
class TaskMemory:
    """Long-term memory as a task meets it. index: the text for the first iteration, "" if there is nothing to tell.

    digest: the facts in full and the summaries of episodes, for looking back. tools: names of the tools of a reflection.
    expect: called when a task comes to be, for its first thought will want the index.
    """

    index: Callable[[], Awaitable[str]]
    digest: Callable[[], Awaitable[str]]
    tools: tuple[str, ...] = REFLECTION
    expect: Callable[[], Awaitable[object]] | None = None


@attrs.frozen(eq=False)
class Kit:
    """What tasks think and act with. model_for: who thinks for a type. context: what every call may know and touch."""

    types: TaskTypes
    thinker: Thinker
    doer: Doer
    reflector: Reflector
    toolbox: Toolbox
    model_for: Callable[[TaskType], LanguageModel]
    reflection_model: LanguageModel
    context: ToolContext
    memory: TaskMemory | None = None


@attrs.frozen(eq=False)
class Ports:
    """clock: wall clock, ms. kit: made when it is first needed, for that takes a while; the same one every time."""

    bus: Ref[BusMessage]
    events: EventMaker
    clock: Callable[[], int]
    make_kit: Callable[[], Kit]
    limits: TaskLimits = attrs.field(factory=TaskLimits)

    @property
    def kit(self) -> Kit:
        """What tasks think and act with."""
        return self.make_kit()
