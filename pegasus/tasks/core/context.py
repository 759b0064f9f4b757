"""Knowledge of a task, and what its conversation tells of its background commands. All of it is serialisable.

A context changes by events alone (`pegasus.tasks.core.fsm`), in a running task and in a replay of its log alike. The two
are therefore equal by construction, which is what recovery after a crash rests on.

A context belongs to one `TaskFSM` and is changed in place: each event adds to the conversation, and copying that every time
would make the cost of a task, and of the replay of its log, quadratic in its length. Nobody is surprised by such a change: the actor
of a task applies events only between two stages, and others receive a view, or a context of their own that was read from the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import attrs

from pegasus.conversation import Entry
from pegasus.messages import ChannelInfo, Json, Metadata
from pegasus.outside import Untrusted, join_outside, outside_metadata, parse_outside
from pegasus.policy import MOST_MESSAGES, OWNER_MESSAGES, OwnerMessage, owner_metadata, parse_owner_messages
from pegasus.tasks.core.task_events import (
    Reasoning,
    ReflectionDone,
    TaskCompleted,
    TaskPlan,
    TaskResumed,
    TaskState,
    TaskSuspended,
)
from pegasus.tasks.core.task_types import DEFAULT_TASK_TYPE
from pegasus.wire import WireError, decode_json, from_wire


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


@attrs.define
class TaskContext:
    """Everything a task knows."""

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
    task_type: str = DEFAULT_TASK_TYPE
    """Name of a `TaskType`."""
    cause: str = ""
    """Message, job, hook or task that it comes of, as TASK_CREATED has it."""
    reasoning: Reasoning | None = None
    """Outcome of the last model call."""
    plan: TaskPlan | None = None
    """Steps that it led to."""
    actions_done: list[ActionResult] = attrs.field(factory=list)
    """All completed steps since the task was created, oldest first."""
    post_reflection: ReflectionDone | None = None
    """Outcome of the reflection, if there was one since the last resume."""
    iteration: int = 0
    """Model calls since the start or the last resume."""
    final_result: Mapping[str, Json] | None = None
    """{taskId, input, response, iterations} once TASK_COMPLETED is recorded."""
    error: str | None = None
    """Reason of a failure."""
    fail_reason: str = ""
    """STOPPED for a failed task that a person has ended, else ""."""
    suspended_state: TaskState | None = None
    """State in which a suspended task goes on."""
    suspend_reason: str | None = None
    """Reason of a suspension."""
    question: str | None = None
    """Question to the submitter that a suspended task waits for."""
    messages: list[Entry] = attrs.field(factory=list)
    """The conversation with the model. The input is its first message, so each call has it."""
    memory_injected: bool = False
    """True if the index of memory is among the messages; it is added once only."""
    notified: int = 0
    """Number of notifications for the submitter so far; the next one has this number plus 1."""
    outside: tuple[Untrusted, ...] = attrs.field(init=False, eq=False, repr=False)
    """Labels of the text from outside that the task has read, what its submitter had read included. They follow from the messages:
    the state machine joins those of each message that it adds."""

    @outside.default
    def _labels_of_messages(self) -> tuple[Untrusted, ...]:
        return join_outside(*[parse_outside(entry.metadata) for entry in self.messages])

    @property
    def owner_messages(self) -> tuple[OwnerMessage, ...]:
        """Messages of owners that the task comes of: those of its submitter, and those of later answers and orders."""
        told = [entry.metadata for entry in self.messages if OWNER_MESSAGES in entry.metadata and entry.role == "user"]
        found = [each for metadata in (self.input_metadata, *told) for each in parse_owner_messages(metadata)]
        return tuple(found[-MOST_MESSAGES:])

    @cached_property
    def channel(self) -> ChannelInfo | None:
        """Channel that the task was asked for on, None if its metadata names none that can be read."""
        try:
            return from_wire(self.input_metadata["channel"], ChannelInfo) if "channel" in self.input_metadata else None
        except WireError:
            return None


# ------------------------------------------------------------------ data of events that are made in several places


def task_suspended(context: TaskContext, state: TaskState, reason: str) -> TaskSuspended:
    """Return the data of TASK_SUSPENDED for a task that is in this state now."""
    return TaskSuspended(str(state), reason, context.reasoning, context.plan)


def task_resumed(
    new_input: str,
    previous_state: TaskState,
    at: int,
    key: str = "",
    outside: Sequence[Untrusted] = (),
    owner_messages: Sequence[OwnerMessage] = (),
) -> TaskResumed:
    """Return the data of TASK_RESUMED.

    at: wall clock, ms. key, outside, owner_messages: stand with the input in the messages, as in `Resume`.
    """
    metadata: dict[str, Json] = {**outside_metadata(outside), **owner_metadata(owner_messages)}
    if key:
        metadata["key"] = key
    entries = (Entry(at, "user", new_input, metadata=metadata),) if new_input else ()
    return TaskResumed(new_input, str(previous_state), entries)


def task_completed(context: TaskContext, response: str | None, iterations: int) -> TaskCompleted:
    """Return the data of TASK_COMPLETED. response: the last answer; raw tool outputs are in the log and may be large."""
    result: Metadata = {
        "taskId": context.id,
        "input": context.input_text,
        "response": response,
        "iterations": iterations,
    }
    return TaskCompleted(result, iterations)


def last_response(context: TaskContext) -> str | None:
    """Return the text of the last answer that the task has given, None if there is none."""
    return next((done.result for done in reversed(context.actions_done) if done.action_type == "respond"), None)


# ------------------------------------------------------------------ background commands
# The conversation tells of the background commands that the task has run. They end with the actor of their task
# (`pegasus.sandbox.background`), and nothing of them is stored but the results of the calls. When a task goes on with a new actor,
# after a restart or a suspension, the model would believe that its server still runs. So it is told once, by a message behind the
# conversation, which is recorded with the next thought.

LOST_COMMANDS: Final = "lost_commands"
"""Type, in the metadata of an entry, of the message that names lost commands. Its `ids` are theirs."""

_COMMAND_TOOLS: Final = ("command_start", "command_output", "command_input", "command_stop")
"""Tools whose results tell of background commands."""


def lost_commands(entries: Iterable[Entry]) -> dict[str, str]:
    """Return the command lines of the background commands that ran when the last of these results was given, by id.

    Those that a result showed as ended, and those that the model was told of already, are not among them.
    """
    found: dict[str, str] = {}
    for _, name, result in _command_results(entries):
        if result.get("running"):
            found[name] = str(result.get("command", ""))
        else:
            found.pop(name, None)
    return found


def all_commands(entries: Iterable[Entry]) -> dict[str, str]:
    """Return the command lines of all background commands that the conversation tells of, by id."""
    results = _command_results(entries)
    return {name: str(result.get("command", "")) for tool, name, result in results if tool == "command_start"}


def _command_results(entries: Iterable[Entry]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield what the model was told about each command, in order: the tool that told it, the command's id, and the result.

    Of a command that was lost, the tool is "" and the result {}.
    """
    tools: dict[str, str] = {}
    for entry in entries:
        tools.update((call.id, call.name) for call in entry.calls)
        tool = tools.get(entry.call_id or "", "")
        if entry.metadata.get("type") == LOST_COMMANDS:
            ids = entry.metadata.get("ids")
            yield from (("", str(name), {}) for name in (ids if isinstance(ids, list) else ()))
        elif entry.role == "tool" and tool in _COMMAND_TOOLS:
            result = _parse_result(entry.content)
            if isinstance(name := result.get("commandId"), str):
                yield tool, name, result


def lost_commands_message(lost: Mapping[str, str], at: int) -> Entry:
    """Return the message that tells the model of its lost commands. at: wall clock, ms."""
    lines = "".join(f"\n- {name}: {line}" for name, line in lost.items())
    text = f"[System] These background commands have ended, because this task was interrupted. Start again what you need:{lines}"
    return Entry(at, "user", text, metadata={"type": LOST_COMMANDS, "ids": list(lost)})


def _parse_result(content: str) -> Mapping[str, Any]:
    """Return the result of a call; {} if it is no object, such as an error or a result that was cut."""
    try:
        result = decode_json(content)
    except ValueError:
        return {}
    return result if isinstance(result, dict) else {}
