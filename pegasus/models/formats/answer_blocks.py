"""Answers that are a list of blocks: texts, calls and thinking, in an order that counts. Anthropic's and OpenAI's Responses are such.

These services sign or encrypt their thinking and want it back unchanged and in its place. `AssistantTurn.thinking` holds it. Where
text or calls stood between the blocks of thinking, it also records their places:

    ({"type": "thinking", …}, {"type": "text", "text": "Let me see"}, {"type": "tool_use", "id": "toolu_1"}, {"type": "thinking", …})

A record that does not fit the turn any more (a turn that was joined with another one) is reduced to the thinking alone.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import attrs

from pegasus.messages import Json
from pegasus.models.base import ModelResponse, ToolCall
from pegasus.models.formats.wire_format import AnswerAssembler, StreamedCall, WireAnswer
from pegasus.models.json_text import join_surrogates


@attrs.frozen
class BlockTypes:
    """Names that a service gives to its blocks."""

    text: str
    """Type of a text."""
    call: str
    """Type of a tool call."""
    thinking: tuple[str, ...]
    """Types of thinking."""

    def restore(
        self, turn: WireAnswer, calls: Mapping[str, Json], make_text: Callable[[Mapping[str, Json]], Json]
    ) -> list[Json]:
        """Return the blocks of an earlier answer, in the model's own order if that was recorded and fits the turn.

        Neither service takes an empty answer, or one that ends in thinking, so a note stands where nothing else does.

        calls: by id, the calls as the service takes them. make_text: returns a text as the service takes it.
        """
        recorded = self._recorded(turn)
        rest: dict[Any, Json] = {**calls}
        blocks: list[Json] = []
        for block in recorded:
            kind = block.get("type")
            blocks.append(
                rest.pop(block["id"]) if kind == self.call else make_text(block) if kind == self.text else dict(block)
            )
        if turn.text.strip() and not any(block.get("type") == self.text for block in recorded):
            blocks.append(make_text({"type": self.text, "text": turn.text}))
        # Calls that the record does not name come last.
        blocks += rest.values()
        last = blocks[-1] if blocks else None
        if last is None or (isinstance(last, Mapping) and last.get("type") in self.thinking):
            blocks.append(make_text({"type": self.text, "text": "(silence)"}))
        return blocks

    def _recorded(self, turn: WireAnswer) -> Sequence[Mapping[str, Any]]:
        """Return the blocks that were recorded of an answer; of one that was changed since, those of thinking."""
        texts = "".join(str(block.get("text")) for block in turn.thinking if block.get("type") == self.text)
        ids = [block.get("id") for block in turn.thinking if block.get("type") == self.call]
        fits = texts in ("", turn.text) and len(ids) == len({called.id for called in turn.calls}.intersection(ids))
        return turn.thinking if fits else [block for block in turn.thinking if block.get("type") in self.thinking]


@attrs.define(eq=False, repr=False)
class AnswerBlock:
    """A block of the answer while its pieces arrive."""

    kind: str
    """The service's type of it."""
    fields: dict[str, Any]
    """The block as the service has opened it, later as it has closed it."""
    pieces: list[str] = attrs.field(factory=list)
    """Pieces of its text or thinking, which are joined at the end."""
    call: StreamedCall | None = None
    """The call that it is."""
    is_streamed: bool = False
    """True once something of it was streamed."""


@attrs.define(eq=False, repr=False, slots=False)
class BlockAssembler(AnswerAssembler):
    """`AnswerAssembler` for answers that are lists of blocks."""

    types: ClassVar[BlockTypes]
    """Names of the service."""
    blocks: dict[int, AnswerBlock] = attrs.field(factory=dict, init=False)
    """Blocks by their place in the answer."""

    @abstractmethod
    def content(self, block: AnswerBlock) -> str:
        """Return the whole text of a block, or its thinking."""

    @abstractmethod
    def record(self, block: AnswerBlock) -> dict[str, Json] | None:
        """Return a text or thinking as it is recorded; None to leave it out."""

    def response(self) -> ModelResponse:
        """Return the answer. Only valid when `complete`.

        The texts of all blocks are joined. The order of the blocks is kept where `restore` would not make the same one anyway: where
        not all thinking came first, or a text has more than its words.
        """
        types, blocks = self.types, [block for _, block in sorted(self.blocks.items())]
        self.calls = [block.call for block in blocks if block.call is not None]
        calls, reason = self.finish_calls(blocks[-1].call if blocks else None)
        layout = self._layout(blocks, calls)
        thinking = [block for block in layout if block["type"] in types.thinking]
        is_usual = layout[: len(thinking)] == thinking and not any("phase" in block for block in layout)
        text = "".join(str(block["text"]) for block in layout if block["type"] == types.text)
        reasoning = "\n\n".join(filter(None, (self.content(each) for each in blocks if each.kind in types.thinking)))
        kept: list[Json] = [*(thinking if is_usual else layout)]
        return self.make_response(text, calls, reason, kept, join_surrogates(reasoning))

    def _layout(self, blocks: Sequence[AnswerBlock], calls: Sequence[ToolCall]) -> list[dict[str, Json]]:
        """Return the blocks as they are recorded, calls by their ids."""
        ids = iter(calls)
        layout: list[dict[str, Json]] = []
        for block in blocks:
            if block.call is not None:
                layout.append({"type": self.types.call, "id": next(ids).id})
            elif block.kind in (self.types.text, *self.types.thinking) and (recorded := self.record(block)) is not None:
                layout.append(recorded)
        return layout
