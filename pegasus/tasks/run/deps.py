"""Limits of the task system, and the objects that the agent and its tasks work with.

The composition root makes one `TaskDeps` for all tasks. Objects that settings may replace while tasks run are behind
`LiveValue`: a task reads `.now` whenever it needs one, so a change counts from its next use on, and no task has to be
told. Functions stand where the owner of the answer is a part that the task system does not know, such as the approvals.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Final

import attrs
import trio

from actors import Ref
from pegasus.conversation import new_fence
from pegasus.events import BusMessage
from pegasus.memory import Memory
from pegasus.models import LanguageModel, TraitStore
from pegasus.settings import LiveValue
from pegasus.storage import JournalMessage
from pegasus.tasks.core.task_types import TaskTypes
from pegasus.tasks.run.thinker import Reflector, Thinker
from pegasus.tools import ToolContext, ToolExecutor


@attrs.frozen(eq=False, repr=False)
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
    guest_active: int = 4
    """Tasks of guests that hold a slot at the same time, so that one is left for owners."""
    guest_tasks: int = 0
    """Tasks that one guest may have that have not ended; 0 = any number."""
    recovery: str = "resume"
    """Treatment of interrupted tasks at a start: "resume" or "fail"."""


REFLECT_AFTER: Final = 5.0
"""Seconds between the result of a task and the reflection on it. The Main Agent tells a person of the result first: with a server that
makes one call after the other, as local ones do, it would wait behind the reflection."""


async def _nothing_awaited() -> frozenset[str]:
    """Return no keys: nobody is asked for approvals."""
    return frozenset()


@attrs.frozen(eq=False, repr=False)
class TaskDeps:
    """Everything that the agent and its tasks work with. One object for all tasks, made by the composition root.

    The example is `open_desk` in `tests/pegasus/tasks/world.py`, which makes a whole task system.
    """

    bus: Ref[BusMessage]
    """Event bus; recorded events are published there after they are on disk."""
    new_task_id: Callable[[], str]
    """Makes the id of a task that has no key: 16 hexadecimal characters."""
    clock: Callable[[], int]
    """Wall clock, ms."""
    types: TaskTypes
    """Types of task."""
    thinker: Thinker
    """Makes the model calls."""
    reflector: Reflector
    """Makes the reflections; unused without memory."""
    toolbox: LiveValue[ToolExecutor]
    """All tools, and the one way to run them."""
    model_for: Callable[[str], LanguageModel]
    """Model of a name ("<provider>/<model>") or of a role ("subagent", "reflection"). Raises ValueError for unknown names.

    The models themselves bound how many calls run at the same time.
    """
    context_window: Callable[[str], int]
    """Tokens that fit into the model of a name or role. Raises ValueError for unknown names."""
    context: LiveValue[ToolContext]
    """The part of a tool call's context that is the same for all tasks."""
    journal: Ref[JournalMessage] | None = None
    """Keeps the pictures of results; None: no model is shown any."""
    is_shared: bool = False
    """True if other nodes may have tasks, too; then there is a journal."""
    owners: LiveValue[Collection[str]] = attrs.field(factory=lambda: LiveValue(()))
    """Entries of `agent.owners`: whose work has the rights of an owner."""
    traits: TraitStore = attrs.field(factory=TraitStore)
    """Facts about each model; here, whether its server refuses tools."""
    memory: Memory | None = None
    """Long-term memory; None = no index, no reflection. A task goes on without it if it cannot be read."""
    reflect_after: float = REFLECT_AFTER
    """Seconds between the result of a task and the reflection on it."""
    limits: LiveValue[TaskLimits] = attrs.field(factory=lambda: LiveValue(TaskLimits()))
    """Limits in force. After a change the agent is told (`LimitsChanged`), since tasks that wait may begin."""
    make_fence: Callable[[], str] = new_fence
    """Makes the id for the fences of a task's conversation. It must not be possible to guess it."""
    awaited: Callable[[], Awaitable[frozenset[str]]] = _nothing_awaited
    """Returns the keys of calls that wait for an owner's approval, so have not begun. It must not raise."""
    before_resuming: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
    """Awaited before recovered tasks go on: returns when a /stop of the last run has had its time to end them. It must not raise."""
