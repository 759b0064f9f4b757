"""The alternating turns of a conversation, as every provider accepts them.

Providers are strict. Turns must alternate and begin with the user's, every tool call must be followed by exactly one result, and no
text may be empty. The log is not like that: two people may write one after the other, a thought may be empty, a note may stand
anywhere. A `Projection` merges neighbours of one role and leaves out what is empty. It is kept up to date entry by entry, at a cost
that does not grow with the log.

Text from outside stands between fences, and a note of the program begins with `NOTE`, which is escaped in everything that people and
files say. `entry` explains both.

A tool result is part of the user's turn, as providers want it. Results come first in that turn, then the text of messages that were
written while the tools ran. A result whose call is not in the last assistant turn is left out: providers would refuse the request.

Turns that were shown once are shown the same way again, byte for byte, so that a provider finds them in its cache. The one exception
are pictures: when a conversation shows more than a request may hold, the older half of them is replaced by a line of text. Replacing
one at a time would change an old turn with every new picture, and each change makes the provider read everything behind it again.

A projection holds no state beside the turns that could not be computed again from the entries. It is made anew when the session is
loaded and after each compaction. The log must be repaired before (see `repair`); entries are never changed or removed.

`without_calls` makes turns without tool calls of them, for a model whose server refuses tools.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import attrs

from pegasus.conversation.entry import NOTE, Entry
from pegasus.conversation.media import MOST_BYTES, Pictures, refs_of
from pegasus.messages import Json
from pegasus.models import MOST_PICTURES, AssistantTurn, Image, ToolCall, ToolResult, Turn, UserTurn
from pegasus.outside import FENCE, Untrusted, fenced, parse_fence, parse_outside
from pegasus.wire import encode_json

_OPENING: Final = "(The conversation before this point is not available.)"
"""Text of the user turn that is put before a log which begins with the assistant's. Providers refuse such a conversation."""


class Projection:
    """Turns of a repaired log. `append` adds an entry to them.

    Example:
        projection = Projection(entries)
        projection.append(Entry(now, "user", "hello"))
        request = ModelRequest(prompt, tuple(projection.turns), tools)
    """

    def __init__(self, entries: Iterable[Entry] = (), pictures: Pictures | None = None) -> None:
        self.turns: list[Turn] = []
        """Alternating turns, the first one the user's."""
        self._pictures = pictures
        """Source of the pictures that entries name. A picture that is not there is shown as a line of text."""
        self._picture_turns: list[int] = []
        """Indexes of the turns that have pictures, oldest first."""
        self._open_calls: dict[str, ToolCall] = {}
        """Calls of the last assistant turn, by id: the results that follow belong to them."""
        for entry in entries:
            self.append(entry)

    def append(self, entry: Entry) -> None:
        """Add an entry. A tool entry must follow the assistant entry that called it (see `repair`), else it is left out."""
        if entry.role == "tool":
            call = self._open_calls.get(entry.call_id or "")
            if call is not None:
                result = ToolResult(call.id, call.name, shown_text(entry) or "(no output)", entry.failed)
                self._add_user(results=(result,))
                if "media" in entry.metadata:
                    self._add_pictures(entry, "")
        elif entry.role == "assistant":
            self._add_assistant(entry)
        elif "media" in entry.metadata:
            self._add_pictures(entry, _user_text(entry))
        else:
            self._add_user(text=_user_text(entry))

    def _add_user(
        self, *, text: str = "", results: tuple[ToolResult, ...] = (), images: tuple[Image, ...] = ()
    ) -> None:
        if text.strip() or results or images:
            _append_turn(self.turns, UserTurn(results, text, images))

    def _add_assistant(self, entry: Entry) -> None:
        text = entry.content if entry.content.strip() else ""
        if not text and not entry.calls:
            return
        if not self.turns:
            self.turns.append(UserTurn(text=_OPENING))
        thinking, thinking_of = entry.metadata.get("thinking"), entry.metadata.get("thinkingOf")
        blocks: tuple[Json, ...] = tuple(thinking) if isinstance(thinking, list) else ()
        if isinstance(self.turns[-1], UserTurn):
            self._open_calls = {}
        self._open_calls |= {call.id: call for call in entry.calls}
        turn = AssistantTurn(text, entry.calls, blocks, thinking_of if isinstance(thinking_of, str) else None)
        _append_turn(self.turns, turn)

    # ------------------------------------------------------------------ pictures

    def _add_pictures(self, entry: Entry, text: str) -> None:
        """Add the pictures that an entry names, and its text. One that is not in memory becomes a line of text."""
        images: list[Image] = []
        notes: list[str] = []
        for name, file, _ in refs_of(entry):
            image = self._pictures.get(file) if self._pictures is not None else None
            if image is None:
                notes.append(_gone_note(name))
            else:
                images.append(attrs.evolve(image, name=name))
        self._add_user(text="\n".join((text, *notes)), images=tuple(images))
        # Several messages in a row are one turn, which is to be listed once.
        if images and self._picture_turns[-1:] != [len(self.turns) - 1]:
            self._picture_turns.append(len(self.turns) - 1)
        self._bound_pictures()

    def _bound_pictures(self) -> None:
        """Replace the older half of the pictures by text, if there are more than a request may hold.

        Whole turns lose their pictures first, oldest turn first, until at most half of the bounds is used or one turn is left. If
        that turn alone exceeds the bounds, it keeps as many of its newest pictures as a request may hold.
        """
        shown = [turn.images for turn in map(self.turns.__getitem__, self._picture_turns) if isinstance(turn, UserTurn)]
        if not _exceed_bounds(shown, 1):
            return
        # Half and not just enough: each change of earlier turns costs the provider's cache, so changes should be rare.
        while len(shown) > 1 and _exceed_bounds(shown, 2):
            del shown[0]
            self._hide_pictures(self._picture_turns.pop(0), 0)
        if shown:  # many messages may be one turn, and then that turn alone may have too many
            images = shown[0]
            kept = next(n for n in range(len(images), -1, -1) if not _exceed_bounds([images[len(images) - n :]], 1))
            if kept < len(images):
                self._hide_pictures(self._picture_turns[0], kept)

    def _hide_pictures(self, index: int, kept: int) -> None:
        """Put text in place of a turn's pictures, except for the last `kept` of them.

        The pictures stay on disk, and `Pictures` may still hold them; only the turns change. A hidden picture is not shown again.
        """
        turn = self.turns[index]
        if isinstance(turn, UserTurn):
            first = len(turn.images) - kept
            notes = (_gone_note(image.name) for image in turn.images[:first])
            self.turns[index] = UserTurn(turn.results, "\n".join((turn.text, *notes)), turn.images[first:])


def shown_text(entry: Entry) -> str:
    """Return the text of an entry as a model is shown it: what comes from outside stands between fences."""
    if FENCE not in entry.metadata:
        return entry.content
    fence, start = parse_fence(entry.metadata, len(entry.content))
    if not fence:
        return entry.content
    own, text = entry.content[:start], entry.content[start:]
    return own + fenced(text, parse_outside(entry.metadata) or (Untrusted.OTHER,), fence) if text.strip() else own


def _user_text(entry: Entry) -> str:
    """Return the text of an entry that is nobody's thought. A note of the program begins with a mark that nobody can type."""
    text = shown_text(entry)
    return f"{NOTE} {text}" if entry.role == "system" and text.strip() else text


def _gone_note(name: str) -> str:
    return f"(The picture {name} is no longer shown.)"


def _exceed_bounds(shown: list[tuple[Image, ...]], divisor: int) -> bool:
    """Return whether these are more pictures, or more bytes of pictures, than the bounds divided by `divisor`."""
    count = sum(map(len, shown))
    size = sum(len(image.data) for images in shown for image in images) * 3 // 4
    return count * divisor > MOST_PICTURES or size * divisor > MOST_BYTES


# ------------------------------------------------------------------ without tool calls


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
            _append_turn(merged, plain)
    # Providers want the last turn to be the user's. It is missing when the newest entry was a result that is left out.
    if not merged or isinstance(merged[-1], AssistantTurn):
        merged.append(UserTurn(text="(Go on.)"))
    return tuple(merged)


def _append_turn(turns: list[Turn], turn: Turn) -> None:
    """Append a turn, joined with the last one if both are of the same author."""
    last = turns[-1] if turns else None
    if isinstance(last, AssistantTurn) and isinstance(turn, AssistantTurn):
        # Two thoughts meet only if everything between them was empty. The thinking blocks of the first are left out, because a
        # provider accepts them at their own place only.
        turns[-1] = AssistantTurn(_joined(last, turn), last.calls + turn.calls, turn.thinking, turn.thinking_of)
    elif isinstance(last, UserTurn) and isinstance(turn, UserTurn):
        turns[-1] = UserTurn(last.results + turn.results, _joined(last, turn), last.images + turn.images)
    else:
        turns.append(turn)


def _joined(*turns: Turn) -> str:
    return "\n\n".join(turn.text for turn in turns if turn.text.strip())


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
