"""Thinking: one model call over everything the task knows.

The prompt of a type is the same text in every call, so that providers can cache it; anything that changes (the index of memory, the
results of tools) is part of the conversation. Two tools belong to every task whatever its type, `notify` and `ask_user`: they are
messages to the submitter, not actions.

A thinker does not run anything and does not change the task. It returns a `Thought`; the stage makes events of it. A call that is
cancelled or fails therefore leaves the task exactly as it was, and can simply be made again.

A question takes precedence over everything else in a response: other calls that came with it are not made. The model chose them
without knowing the answer, and makes them again afterwards if they are still wanted.

Ids of calls are made unique within the task, since a provider may use the same ids in several responses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import attrs

from pegasus.conversation import Entry, Projection, repair_log, unique_ids
from pegasus.identity import Persona, task_prompt
from pegasus.messages import Json
from pegasus.models import LanguageModel, ModelRequest, ModelResponse, ToolCall, ToolSpec, Turn
from pegasus.tasks.core.context import PlannedCall, Reasoning, TaskContext
from pegasus.tasks.core.fsm import MEMORY_INDEX
from pegasus.tasks.core.task_types import TaskType
from pegasus.tasks.run.call_origin import label_of

# The descriptions are read by models; a change of their words may change the behaviour of tasks.
ASK_USER: Final = ToolSpec(
    "ask_user",
    "Ask whoever gave you this task one question that you cannot go on without. The task waits for the answer, which may take long.",
    {
        "type": "object",
        "properties": {
            "question": {"type": "string", "description": "One clear question, understandable without your work"}
        },
        "required": ["question"],
    },
)
NOTIFY: Final = ToolSpec(
    "notify",
    "Tell whoever gave you this task something before it is done: a milestone, an early finding, a warning. The task goes on.",
    {
        "type": "object",
        "properties": {"message": {"type": "string", "description": "What they should know now"}},
        "required": ["message"],
    },
)
OWN_TOOLS: Final = (NOTIFY, ASK_USER)
"""Tools that every type of task has."""
_NOT_DONE: Final = '{"cancelled":true,"reason":"not carried out"}'
"""Result of a call that was never run; a provider refuses a conversation with a call that has no result."""


@attrs.frozen
class Thought:
    """The outcome of one model call."""

    reasoning: Reasoning
    """Text and calls."""
    entries: tuple[Entry, ...]
    """Messages that it adds. A direct answer is not among them: its step adds it."""
    question: str = ""
    """Question to the submitter without whose answer the task cannot go on, "" if there is none."""


class Thinker:
    """Makes the model calls of tasks. One instance serves all tasks at once; it only remembers the prompts of types.

    Example: `thought = await Thinker(persona, clock).think(task.context, model, task_type, tools)`.
    """

    def __init__(self, persona: Persona, clock: Callable[[], int]) -> None:
        """Prepare. clock: wall clock, ms."""
        self._persona = persona
        self._clock = clock
        self._prompts: dict[str, str] = {}
        """System prompts by the body of the type; there are as many as there are types."""

    async def think(
        self,
        context: TaskContext,
        model: LanguageModel,
        task_type: TaskType,
        tools: Sequence[ToolSpec],
        memory_index: str = "",
    ) -> Thought:
        """Make exactly one model call and return its outcome. Raises ModelError.

        context: the task; its messages are the conversation. tools: as the model is shown them, without OWN_TOOLS. memory_index: a
        user message to put behind the conversation so far, "" = none. Cancelled: the request is given up.
        """
        index = (Entry(self._clock(), "user", memory_index, metadata={"type": MEMORY_INDEX}),) if memory_index else ()
        turns = _turns_of((*context.messages, *index), self._clock())
        request = ModelRequest(self.prompt(task_type), turns, (*tools, *OWN_TOOLS), label=label_of(context))
        response = await model.generate(request)
        return self._thought(context, index, response)

    def prompt(self, task_type: TaskType) -> str:
        """Return the system prompt: identity, safety, the body of the type. The same object for every call of a type."""
        body = task_type.prompt
        if body not in self._prompts:
            self._prompts[body] = task_prompt(self._persona, body)
        return self._prompts[body]

    def _thought(self, context: TaskContext, index: tuple[Entry, ...], response: ModelResponse) -> Thought:
        """Return what a response means for the task: a question, calls to make, or an answer."""
        calls = _with_own_ids(context, response.calls)
        question = next((_question(call) for call in calls if call.name == ASK_USER.name and not call.error), "")
        planned = tuple(PlannedCall(call.id, call.name, call.arguments, call.error) for call in calls)
        approach = "tool_use" if calls else "direct"
        reasoning = Reasoning(response.text, approach, bool(question), planned)
        if question or not calls:
            return Thought(reasoning, index, question)
        turn = Entry(self._clock(), "assistant", response.text, calls, metadata=_metadata(response))
        return Thought(reasoning, (*index, turn))


def _turns_of(entries: Sequence[Entry], now: int) -> tuple[Turn, ...]:
    """Return the conversation as a provider is shown it. Calls without a result get one. now: wall clock, ms."""
    repaired = repair_log(entries, lambda made: _NOT_DONE, now).entries
    return tuple(Projection(repaired).turns)


def _question(call: ToolCall) -> str:
    """Return the question of an `ask_user` call, "" if it has none; such a call is then answered with an error."""
    question = call.arguments.get("question")
    return question.strip() if isinstance(question, str) else ""


def _with_own_ids(context: TaskContext, calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    """Return the calls with ids that are unique within the task: a result is matched to its step by them."""
    used = {call.id for entry in context.messages for call in entry.calls}
    ids = unique_ids([call.id for call in calls], used)
    return tuple(call if call.id == own else attrs.evolve(call, id=own) for call, own in zip(calls, ids, strict=True))


def _metadata(response: ModelResponse) -> dict[str, Json]:
    """Return the metadata of the assistant's turn. Thinking blocks are kept: their provider requires them in later requests."""
    if not response.thinking:
        return {}
    return {"thinking": list(response.thinking), "thinkingOf": response.thinking_of}
