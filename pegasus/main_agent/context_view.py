"""The answer to /context: what fills the window of the model, as a bar and as numbers.

All numbers are estimates, by the same counting of characters for each part, so that they can be compared. What a provider really
counted stands in /usage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pegasus.conversation import Entry, entry_tokens, estimate_tokens
from pegasus.identity import SMALL_WINDOW
from pegasus.main_agent.compaction import is_memory_index, is_opening
from pegasus.main_agent.services import AgentServices
from pegasus.main_agent.toolset import choose_speech_mode
from pegasus.models import ToolSpec
from pegasus.wire import encode_json

_CELLS: Final = 30
"""Cells of the bar: a line of it fits on a phone."""
_MARKS: Final = {
    "instructions": "I",
    "tools": "T",
    "summary": "S",
    "memory": "M",
    "messages": "m",
    "answers": "a",
    "results of tools": "r",
}
"""By part, its letter in the bar, in the order in which the parts stand in a request."""
_FREE: Final = "·"
"""Cell of the bar that nothing fills."""


def context_text(entries: Sequence[Entry], services: AgentServices) -> str:
    """Return the answer to /context. entries: of the session. Never waits."""
    model, window = services.model.name, services.context_window("default")
    parts = {**_before_session(services, window), **_in_session(entries)}
    threshold = 0
    if (compactor := services.compactor()) is not None:
        threshold = round(compactor.settings.now.compact_threshold * window)
    return describe_context(model, parts, window, threshold)


def describe_context(model: str, parts: dict[str, int], window: int, threshold: int) -> str:
    """Return the text for these parts, in tokens. window: 0 if it is not known. threshold: where it is compacted, 0: nowhere.

    Example::

        Context of openai/gpt: about 12,400 of 200,000 tokens (6 %)
        [ITTmr·························]
        I instructions: 2,100
        · free: 187,600
        At 160,000 tokens I compact it myself; /compact does it now, /new begins afresh.
    """
    used = sum(parts.values())
    share = f" of {window:,} tokens ({100 * used / window:.0f} %)" if window else " tokens; its window is not known"
    lines = [f"Context of {model}: about {used:,}{share}", f"[{_bar(parts, max(window, used))}]"]
    lines += [f"{mark} {name}: {parts[name]:,}" for name, mark in _MARKS.items() if parts.get(name)]
    if window:
        lines.append(f"{_FREE} free: {max(0, window - used):,}")
    by_itself = f"At {threshold:,} tokens I compact it myself; " if threshold else ""
    lines.append(f"{by_itself}/compact does it now, /new begins afresh.")
    return "\n".join(lines)


def _bar(parts: dict[str, int], whole: int) -> str:
    """Return the bar. Each part that is there has a cell at least, as long as there are cells."""
    cells = ""
    for name, mark in _MARKS.items():
        if tokens := parts.get(name, 0):
            cells += mark * max(1, round(_CELLS * tokens / max(1, whole)))
    return cells[:_CELLS].ljust(_CELLS, _FREE)


def _before_session(services: AgentServices, window: int) -> dict[str, int]:
    """Return the tokens of the prompt and of the tools, as the next request would have them."""
    manner = choose_speech_mode(services.config.now.speech, services.traits.get(services.model.name))
    is_lean = 0 < window < SMALL_WINDOW
    text, specs = services.toolset.now.profile(manner.is_direct, is_lean, manner.has_tools)
    return {"instructions": estimate_tokens(text), "tools": sum(map(_spec_tokens, specs))}


def _spec_tokens(spec: ToolSpec) -> int:
    return estimate_tokens(f"{spec.name} {spec.description} {encode_json(spec.parameters)}")


def _in_session(entries: Sequence[Entry]) -> dict[str, int]:
    """Return the tokens of each kind of entry."""
    sizes: dict[str, int] = {}
    for entry in entries:
        if not (entry.content or entry.calls):  # a mark that no model sees
            continue
        name = "results of tools" if entry.role == "tool" else "answers" if entry.role == "assistant" else "messages"
        if is_opening(entry):
            name = "summary"
        elif is_memory_index(entry):
            name = "memory"
        sizes[name] = sizes.get(name, 0) + entry_tokens(entry)
    return sizes
