"""The stand-in: fixed rules instead of a model, so that a fresh installation answers, and says what is missing.

It needs no network and is deterministic: the same conversation gives the same answer. It keeps nothing between calls;
what it must know (has it introduced itself, did its reply fail) it reads in the conversation, as a model does.
"""

from __future__ import annotations

import zlib
from contextlib import suppress

import trio

from pegasus.models.base import AssistantTurn, ModelRequest, ModelResponse, ToolCall, Usage


class StandIn:
    """A LanguageModel without a model."""

    def __init__(self, name: str = "offline/stand-in") -> None:
        self._name = name

    @property
    def name(self) -> str:
        """`offline/stand-in`."""
        return self._name

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Answer by the rules. Never raises, never waits."""
        from pegasus.models.offline_rules import decide  # patterns to compile, not before somebody speaks

        await trio.lowlevel.checkpoint()
        plan = decide(request)
        offered = {tool.name for tool in request.tools} if request.tool_choice != "none" else set()
        mark = _mark(request)
        calls = tuple(
            ToolCall(f"standin_{mark}_{index}", tool, arguments)
            for index, (tool, arguments) in enumerate(plan.calls)
            if tool in offered
        )
        text = plan.thought
        if plan.calls and not calls:  # nothing to speak with: the text is all there is
            text = "\n\n".join(str(arguments.get("text", "")) for _, arguments in plan.calls) or text
        if text and request.on_text is not None:
            with suppress(Exception):  # as with every model, who listens cannot harm the call
                request.on_text(text)
        return ModelResponse(text, calls, Usage(), "tool_calls" if calls else "end")


def _mark(request: ModelRequest) -> str:
    """Names this point of the conversation: its length, its last words and what was called before them."""
    check = 0
    for turn in request.turns[-3:]:
        parts = (turn.text, *(call.id for call in turn.calls)) if isinstance(turn, AssistantTurn) else (turn.text,)
        for part in parts:
            check = zlib.crc32(part.encode("utf-8", "replace"), check)
    return f"{len(request.turns):x}_{check:08x}"
