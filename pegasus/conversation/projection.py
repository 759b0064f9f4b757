"""The session as the turns that every provider accepts; kept up to date entry by entry, at constant cost.

Rules (interfaces 8.6, checklist 73): turns alternate and begin with the user's; every tool call is followed by exactly one result;
neighbouring messages of one role are merged; nothing is empty.
"""

from __future__ import annotations

from collections.abc import Iterable

from pegasus.conversation.entry import Entry
from pegasus.messages import Json
from pegasus.models.base import AssistantTurn, ToolResult, Turn, UserTurn

_OPENING = "(The conversation before this point is not available.)"


class Projection:
    """Turns of a repaired list of entries; `append` takes the next one."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.turns: list[Turn] = []
        for entry in entries:
            self.append(entry)

    def append(self, entry: Entry) -> None:
        """Take up one more entry. A tool entry must follow the assistant entry that called it (see repair)."""
        match entry.role:
            case "user" | "system":
                self._add_user(text=entry.content)
            case "tool":
                self._add_result(entry)
            case "assistant":
                self._add_assistant(entry)

    def _add_user(self, *, text: str = "", results: tuple[ToolResult, ...] = ()) -> None:
        if not text.strip() and not results:
            return
        last = self.turns[-1] if self.turns else None
        if isinstance(last, UserTurn):
            merged = "\n\n".join(part for part in (last.text, text) if part.strip())
            self.turns[-1] = UserTurn(last.results + results, merged)
        else:
            self.turns.append(UserTurn(results, text))

    def _add_result(self, entry: Entry) -> None:
        caller = next((turn for turn in reversed(self.turns) if isinstance(turn, AssistantTurn)), None)
        call = next((c for c in caller.calls if c.id == entry.call_id), None) if caller else None
        if call is not None:
            result = ToolResult(call.id, call.name, entry.content or "(no output)", is_error=entry.failed)
            self._add_user(results=(result,))

    def _add_assistant(self, entry: Entry) -> None:
        text = entry.content if entry.content.strip() else ""
        if not text and not entry.calls:
            return
        if not self.turns:
            self.turns.append(UserTurn(text=_OPENING))
        thinking = entry.metadata.get("thinking")
        thinking_of = entry.metadata.get("thinkingOf")
        blocks: tuple[Json, ...] = tuple(thinking) if isinstance(thinking, list) else ()
        turn = AssistantTurn(text, entry.calls, blocks, thinking_of if isinstance(thinking_of, str) else None)
        last = self.turns[-1]
        if isinstance(last, AssistantTurn):
            # Only possible where what stood between was empty. The thinking of the first is left out: it is bound to its place.
            joined = "\n\n".join(part for part in (last.text, turn.text) if part)
            self.turns[-1] = AssistantTurn(joined, last.calls + turn.calls, turn.thinking, turn.thinking_of)
        else:
            self.turns.append(turn)
