"""What a task knows: values only, all of it serialisable (`to_wire`, `from_wire`), equal after a round trip.

A context changes by events alone (`pegasus.tasks.fsm`), live and in a replay alike, so both are the same by construction.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import attrs

from pegasus.conversation import Entry
from pegasus.messages import Json, Metadata


class TaskState(StrEnum):
    """The six states (seed 003)."""

    IDLE = "idle"
    REASONING = "reasoning"
    ACTING = "acting"
    SUSPENDED = "suspended"
    COMPLETED = "completed"
    FAILED = "failed"


@attrs.frozen
class PlannedCall:
    """A tool call the model asked for, as it stands in `Reasoning` and in `PlanStep`."""

    id: str
    name: str
    arguments: Metadata = attrs.field(factory=dict)
    error: str | None = None


@attrs.frozen
class Reasoning:
    """What one model call gave. approach: "tool_use" or "direct"."""

    response: str
    approach: str
    needs_clarification: bool = False
    tool_calls: tuple[PlannedCall, ...] = ()


@attrs.frozen
class PlanStep:
    """One thing to do. action_type: "tool_call" (with `call`) or "respond"."""

    index: int
    description: str
    action_type: str
    call: PlannedCall | None = None
    completed: bool = False


@attrs.frozen
class Plan:
    """What one model call leads to."""

    goal: str
    steps: tuple[PlanStep, ...]
    reasoning: str = ""


@attrs.frozen
class ActionResult:
    """A step that was done. started_at, completed_at: wall clock, ms. result: what the model sees."""

    step_index: int
    action_type: str
    tool_name: str | None
    result: str
    success: bool
    started_at: int
    completed_at: int


@attrs.frozen
class PostReflection:
    """What came of looking back on a finished task."""

    assessment: str
    tool_calls_count: int


@attrs.frozen
class TaskContext:
    """Everything a task knows. messages: the conversation with the model, the input first (trap T2).

    input_metadata: where it came from, e.g. {"channel": {…}}, by which its outcome finds its way back (trap T21).
    iteration: model calls since the start or the last resume. memory_injected: the index stands in messages (trap T3).
    """

    id: str
    description: str = ""
    input_text: str = ""
    input_metadata: Metadata = attrs.field(factory=dict)
    source: str = "user"
    task_type: str = "general"
    reasoning: Reasoning | None = None
    plan: Plan | None = None
    actions_done: tuple[ActionResult, ...] = ()
    post_reflection: PostReflection | None = None
    iteration: int = 0
    final_result: Mapping[str, Json] | None = None
    error: str | None = None
    suspended_state: TaskState | None = None
    suspend_reason: str | None = None
    question: str | None = None
    messages: tuple[Entry, ...] = ()
    memory_injected: bool = False
    notified: int = 0
