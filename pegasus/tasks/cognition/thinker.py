"""Thinking: one model call over everything the task knows (seed 001, "_runReason")."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import attrs

from pegasus.conversation import Entry, unique_ids
from pegasus.identity import Persona, task_prompt
from pegasus.messages import Json
from pegasus.models import LanguageModel, ModelRequest, ModelResponse, ToolCall, ToolSpec
from pegasus.tasks.applying import MEMORY_INDEX
from pegasus.tasks.cognition.talk import Talk, turns_of
from pegasus.tasks.context import PlannedCall, Reasoning, TaskContext
from pegasus.tasks.labels import label_of
from pegasus.tasks.types import TaskType

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
"""Tools that every type of task has: they are words to whoever submitted the task, not actions."""


@attrs.frozen
class Thought:
    """reasoning: what the call gave. entries: what it adds to the messages, but for a direct answer, which its step adds.

    question: what the task must know to go on, "" if nothing.
    """

    reasoning: Reasoning
    entries: tuple[Entry, ...]
    question: str = ""


class Thinker:
    """Stateless: one serves all tasks at once. clock: wall clock, ms."""

    def __init__(self, persona: Persona, clock: Callable[[], int]) -> None:
        self._persona = persona
        self._clock = clock
        self._prompts: dict[str, str] = {}

    async def think(
        self,
        context: TaskContext,
        model: LanguageModel,
        task_type: TaskType,
        tools: Sequence[ToolSpec],
        memory_index: str = "",
        talk: Talk | None = None,
    ) -> Thought:
        """Exactly one model call. Raises ModelError.

        memory_index: a user message to stand behind the input, "" = none. talk: the task's, so that not all is done again.
        """
        index = (Entry(self._clock(), "user", memory_index, metadata={"type": MEMORY_INDEX}),) if memory_index else ()
        if talk is None or index:
            turns = turns_of((*context.messages, *index), self._clock())
        else:
            turns = talk.turns(context.messages, self._clock())
        request = ModelRequest(self.prompt(task_type), turns, (*tools, *OWN_TOOLS), label=label_of(context))
        response = await model.generate(request)
        return self._thought(context, index, response)

    def prompt(self, task_type: TaskType) -> str:
        """The system prompt in task mode: the same text for every call of a type, so that providers can cache it."""
        body = task_type.prompt
        if body not in self._prompts:
            self._prompts[body] = task_prompt(self._persona, body)
        return self._prompts[body]

    def _thought(self, context: TaskContext, index: tuple[Entry, ...], response: ModelResponse) -> Thought:
        calls = _with_own_ids(context, response.calls)
        question = next((_question(call) for call in calls if call.name == ASK_USER.name and not call.error), "")
        planned = tuple(PlannedCall(call.id, call.name, call.arguments, call.error) for call in calls)
        approach = "tool_use" if calls else "direct"
        reasoning = Reasoning(response.text, approach, bool(question), planned)
        if question or not calls:
            return Thought(reasoning, index, question)
        turn = Entry(self._clock(), "assistant", response.text, calls, metadata=_metadata(response))
        return Thought(reasoning, (*index, turn))


def _question(call: ToolCall) -> str:
    question = call.arguments.get("question")
    return question.strip() if isinstance(question, str) else ""


def _with_own_ids(context: TaskContext, calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    """Ids that are unique within the task: a completion is matched to its step by them."""
    used = {call.id for entry in context.messages for call in entry.calls}
    ids = unique_ids([call.id for call in calls], used)
    return tuple(call if call.id == own else attrs.evolve(call, id=own) for call, own in zip(calls, ids, strict=True))


def _metadata(response: ModelResponse) -> dict[str, Json]:
    if not response.thinking:
        return {}
    return {"thinking": list(response.thinking), "thinkingOf": response.thinking_of}
