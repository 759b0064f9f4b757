"""The session as the turns that every provider accepts; kept up to date entry by entry, at constant cost.

Rules (interfaces 8.6, checklist 73): turns alternate and begin with the user's; every tool call is followed by exactly one result;
neighbouring messages of one role are merged; nothing is empty.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from pegasus.conversation.entry import Entry
from pegasus.conversation.media import MOST_BYTES, MOST_SHOWN, Pictures, refs_of
from pegasus.messages import Json
from pegasus.models import AssistantTurn, Image, ToolResult, Turn, UserTurn

_OPENING = "(The conversation before this point is not available.)"


class Projection:
    """Turns of a repaired list of entries; `append` takes the next one.

    pictures: where the pictures that entries name are found; what is not there is a line of text. When more are shown than
    a request may hold, the older half of them becomes text too: seldom, since it costs the provider's cache.
    """

    def __init__(self, entries: Iterable[Entry] = (), pictures: Pictures | None = None) -> None:
        self.turns: list[Turn] = []
        self._pictures = pictures
        self._showing: list[int] = []  # indexes of turns with pictures
        for entry in entries:
            self.append(entry)

    def append(self, entry: Entry) -> None:
        """Take up one more entry. A tool entry must follow the assistant entry that called it (see repair)."""
        role = entry.role
        if role == "tool":
            self._add_result(entry)
        elif role == "assistant":
            self._add_assistant(entry)
        elif "media" in entry.metadata:
            self._add_with_pictures(entry)
        else:
            self._add_user(text=entry.content)

    def _add_with_pictures(self, entry: Entry) -> None:
        images: list[Image] = []
        lost: list[str] = []
        for name, file, _ in refs_of(entry):
            image = self._pictures.get(file) if self._pictures is not None else None
            if image is None:
                lost.append(_lost(name))
            else:
                images.append(attrs.evolve(image, name=name))
        self._add_user(text="\n".join((entry.content, *lost)), images=tuple(images))
        if images and self._showing[-1:] != [len(self.turns) - 1]:
            self._showing.append(len(self.turns) - 1)
        self._bound()

    def _bound(self) -> None:
        """Put words in place of the older pictures where there are too many."""
        shown = [turn.images for turn in self._shown_turns()]
        if not _too_many(shown, 1):
            return
        while len(shown) > 1 and _too_many(shown, 2):
            del shown[0]
            self._hide(self._showing.pop(0), 0)
        if shown:  # many messages may be one turn
            keep = next(n for n in range(len(shown[0]), -1, -1) if not _too_many([shown[0][-n:] if n else ()], 1))
            if keep < len(shown[0]):
                self._hide(self._showing[0], keep)

    def _hide(self, index: int, keep: int) -> None:
        """Words in place of a turn's pictures, but for the last few."""
        turn = self.turns[index]
        if isinstance(turn, UserTurn):
            first = len(turn.images) - keep
            notes = (_lost(image.name) for image in turn.images[:first])
            self.turns[index] = UserTurn(turn.results, "\n".join((turn.text, *notes)), turn.images[first:])

    def _shown_turns(self) -> Iterable[UserTurn]:
        turns = (self.turns[index] for index in self._showing)
        return (turn for turn in turns if isinstance(turn, UserTurn))

    def _add_user(
        self, *, text: str = "", results: tuple[ToolResult, ...] = (), images: tuple[Image, ...] = ()
    ) -> None:
        if not text.strip() and not results and not images:
            return
        last = self.turns[-1] if self.turns else None
        if isinstance(last, UserTurn):
            merged = "\n\n".join(part for part in (last.text, text) if part.strip())
            self.turns[-1] = UserTurn(last.results + results, merged, last.images + images)
        else:
            self.turns.append(UserTurn(results, text, images))

    def _add_result(self, entry: Entry) -> None:
        for turn in self.turns[:-3:-1]:  # turns alternate: it is the last one, or the one before
            if isinstance(turn, AssistantTurn):
                for call in turn.calls:
                    if call.id == entry.call_id:
                        result = ToolResult(call.id, call.name, entry.content or "(no output)", entry.failed)
                        self._add_user(results=(result,))
                        return

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


def _lost(name: str) -> str:
    return f"(The picture {name} is no longer shown.)"


def _too_many(shown: list[tuple[Image, ...]], divisor: int) -> bool:
    """Whether these are more pictures, or more bytes, than the bounds divided by so much."""
    count = sum(map(len, shown))
    size = sum(len(image.data) for images in shown for image in images) * 3 // 4
    return count * divisor > MOST_SHOWN or size * divisor > MOST_BYTES
