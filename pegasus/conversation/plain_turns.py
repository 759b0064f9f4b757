"""A conversation without tool calls, for a model whose server refuses tools."""

from __future__ import annotations

from collections.abc import Sequence

from pegasus.models import AssistantTurn, ToolResult, Turn, UserTurn
from pegasus.wire import encode_json


def without_calls(turns: Sequence[Turn]) -> tuple[Turn, ...]:
    """Return a conversation without tool calls, for a model whose server refuses tools.

    What was said with `reply` becomes the text of the assistant. Other calls and their results become lines of text, so the model
    still knows what has happened. Turns alternate as before.
    """
    merged: list[Turn] = []
    for turn in turns:
        plain: Turn
        if isinstance(turn, AssistantTurn):
            plain = AssistantTurn(_spoken_text(turn)) if turn.calls else turn
            is_empty = isinstance(plain, AssistantTurn) and not plain.text.strip()
        else:
            lines = [_result_line(result) for result in turn.results if result.name != "reply" or result.is_error]
            plain = UserTurn((), "\n\n".join((*lines, turn.text)).strip(), turn.images) if turn.results else turn
            is_empty = not plain.text.strip() and not plain.images
        if not is_empty:
            _append(merged, plain)
    if not merged or isinstance(merged[-1], AssistantTurn):
        merged.append(UserTurn(text="(Go on.)"))
    return tuple(merged)


def _append(turns: list[Turn], turn: Turn) -> None:
    """Append a turn, joined with the last one if both are of the same author."""
    last = turns[-1] if turns else None
    if isinstance(last, AssistantTurn) and isinstance(turn, AssistantTurn):
        turns[-1] = AssistantTurn(f"{last.text}\n\n{turn.text}")
    elif isinstance(last, UserTurn) and isinstance(turn, UserTurn):
        text = "\n\n".join(part for part in (last.text, turn.text) if part)
        turns[-1] = UserTurn((), text, last.images + turn.images)
    else:
        turns.append(turn)


def _spoken_text(turn: AssistantTurn) -> str:
    """Return the texts of an assistant turn's replies, and a line for each other call. Its monologue is left out."""
    parts = [
        str(call.arguments.get("text", ""))
        if call.name == "reply"
        else f"(called {call.name} with {encode_json(call.arguments)})"
        for call in turn.calls
    ]
    return "\n\n".join(part for part in parts if part.strip())


def _result_line(result: ToolResult) -> str:
    return f"(Result of {result.name}: {result.content})"
