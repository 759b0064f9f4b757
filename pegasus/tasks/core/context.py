"""The state and the knowledge of a task: frozen values only, all of them serialisable (`to_wire`, `from_wire`).

A context changes by events alone (`pegasus.tasks.core.changes`), in a running task and in a replay of its log alike. The two
are therefore equal by construction, which is what recovery after a crash rests on.

Frozen values have a second use: a stage that runs can read the context that it began with while requests come in, and a view that
was handed out never changes behind its reader.

The two sequences that grow with the length of a task, `messages` and `actions_done`, are `AppendOnly`. Each event adds to them, and
copying a tuple every time would make the cost of a task quadratic in its length. All other fields have a bounded size or are replaced.

The field names are part of the wire format of `Snapshot`; an added field needs a default.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

import attrs

from pegasus.append_only import AppendOnly
from pegasus.conversation import Entry
from pegasus.messages import Json, Metadata


class TaskState(StrEnum):
    """The six states of a task."""

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


@attrs.frozen
class PlannedCall:
    """A tool call that the model asked for, as it is kept in `Reasoning` and in `PlanStep`.

    Example: `PlannedCall("call_1", "read_file", {"path": "notes.md"})`.
    """

    id: str
    """Unique within the task: the result of the call is matched to its step by it."""
    name: str
    """Name of the tool."""
    arguments: Metadata = attrs.field(factory=dict)
    """Arguments as the model gave them."""
    error: str | None = None
    """Reason why the call cannot be run (arguments that are no JSON), or None."""


@attrs.frozen
class Reasoning:
    """The outcome of one model call: text, and the calls that become the steps of the plan."""

    response: str
    """Text of the answer; may be empty if there are tool calls."""
    approach: str
    """"tool_use" or "direct"."""
    needs_clarification: bool = False
    """Whether the model asks its submitter a question."""
    tool_calls: tuple[PlannedCall, ...] = ()
    """Calls in the order in which the model made them."""


@attrs.frozen
class PlanStep:
    """One step of a plan."""

    index: int
    """Position in the plan, from 0."""
    description: str
    """Short text for people."""
    action_type: str
    """"tool_call" (then `call` is set) or "respond"."""
    call: PlannedCall | None = None
    """Tool call of this step."""
    completed: bool = False
    """Whether the result is known; a call that failed is completed too."""


@attrs.frozen
class TaskPlan:
    """The steps that one model call leads to.

    A plan is replaced as a whole by the next model call. Completed steps stay in it, so that a replay knows how far the task is.
    """

    goal: str
    """Input of the task."""
    steps: tuple[PlanStep, ...]
    """One step for each tool call, or a single one that responds."""
    reasoning: str = ""
    """Unused today; kept because older logs have it."""

    @property
    def open_steps(self) -> tuple[PlanStep, ...]:
        """The steps that are not completed, in order."""
        return tuple(step for step in self.steps if not step.completed)

    @property
    def has_calls(self) -> bool:
        """True if any step is a tool call."""
        return any(step.call is not None for step in self.steps)


@attrs.frozen
class ActionResult:
    """A completed step."""

    step_index: int
    """`PlanStep.index`."""
    action_type: str
    """`PlanStep.action_type`."""
    tool_name: str | None
    """Tool of a call, None for an answer."""
    result: str
    """Text that the model sees."""
    success: bool
    """False for a call that failed."""
    started_at: int
    """Wall clock, ms."""
    completed_at: int
    """Wall clock, ms."""


@attrs.frozen
class PostReflection:
    """The outcome of the reflection on a completed task."""

    assessment: str
    """One sentence on what was kept in memory, and why."""
    tool_calls_count: int
    """Calls of memory tools that were made."""


def _actions(items: Iterable[ActionResult]) -> AppendOnly[ActionResult]:
    """Convert `TaskContext.actions_done`; a sequence that is AppendOnly already is shared and not copied."""
    return items if isinstance(items, AppendOnly) else AppendOnly(items)


def _entries(items: Iterable[Entry]) -> AppendOnly[Entry]:
    """Convert `TaskContext.messages`; a sequence that is AppendOnly already is shared and not copied."""
    return items if isinstance(items, AppendOnly) else AppendOnly(items)


@attrs.frozen
class TaskContext:
    """Everything a task knows.

    Example: `TaskContext("t1", input_text="find papers", messages=(Entry(0, "user", "find papers"),))`.
    """

    id: str
    """Id of the task."""
    description: str = ""
    """A few words for people."""
    input_text: str = ""
    """The work to do; after a resume of a finished task, the new input."""
    input_metadata: Metadata = attrs.field(factory=dict)
    """Metadata of the submitter, e.g. {"channel": {…}}; given back with every notification, so that results find their way."""
    source: str = "user"
    """Submitter, e.g. "main-agent", "cli:main"."""
    task_type: str = "general"
    """Name of a `TaskType`."""
    reasoning: Reasoning | None = None
    """Outcome of the last model call."""
    plan: TaskPlan | None = None
    """Steps that it led to."""
    actions_done: AppendOnly[ActionResult] = attrs.field(default=(), converter=_actions)
    """All completed steps since the task was created, oldest first."""
    post_reflection: PostReflection | None = None
    """Outcome of the reflection, if there was one since the last resume."""
    iteration: int = 0
    """Model calls since the start or the last resume."""
    final_result: Mapping[str, Json] | None = None
    """{taskId, input, response, iterations} once TASK_COMPLETED is recorded."""
    error: str | None = None
    """Reason of a failure."""
    suspended_state: TaskState | None = None
    """State in which a suspended task goes on."""
    suspend_reason: str | None = None
    """Reason of a suspension."""
    question: str | None = None
    """Question to the submitter that a suspended task waits for."""
    messages: AppendOnly[Entry] = attrs.field(default=(), converter=_entries)
    """The conversation with the model. The input is its first message, so no later call forgets it."""
    memory_injected: bool = False
    """Whether the index of memory is among the messages; it is added once only."""
    notified: int = 0
    """Notifications that the submitter is owed so far; the next one has this number plus 1."""
