"""Planning of a compaction: the part of a session that is summarised, and the part that stays word for word.

The session is cut in two. Everything before the cut becomes a summary, everything behind it stays. The cut is always made before
the user entry of a queue item. This has two consequences:

* A tool call and its result are never separated, since both stand behind the user entry that they belong to.
* The items that are being worked on stay whole. How far the work on an item has come (thoughts made, replies posted, calls open)
  is read from its entries and from nothing else, so none of them may be missing.

When even the items that are being worked on do not fit, there is no place for a cut. Then their long texts are shortened in place
(`pegasus.conversation.shortening`).

All functions here are pure.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import attrs

from pegasus.conversation import Entry, entry_tokens

COMPACT: Final = "compact"
"""`metadata.type` of the first entry of a compacted session."""
MEMORY_INDEX: Final = "memory_index"
"""`metadata.type` of the entry that lists the files of long-term memory."""


@attrs.frozen(eq=False, repr=False)
class CompactionPlan:
    """A session cut in two.

    Example: `plan_compaction(entries, running={12}, keep=2_000)` keeps item 12, everything behind it, and as many of the queue items
    before it as fit into 2,000 tokens.
    """

    summarised: Sequence[Entry]
    """Entries that the summary covers, the opening line of an earlier compaction included."""
    kept: Sequence[Entry]
    """Entries that stay word for word: all that stand behind the cut."""

    @property
    def is_worth_it(self) -> bool:
        """Return whether the summary would cover more than an earlier summary and the memory index."""
        return any(not is_opening(entry) and not is_memory_index(entry) for entry in self.summarised)

    def at_present(self, entries: Sequence[Entry]) -> CompactionPlan | None:
        """Return the plan with the same cut for a session that has grown since; None if the summarised part is not in it any more."""
        cut = len(self.summarised)
        is_there = len(entries) >= cut and entries[cut - 1] is self.summarised[-1]
        return CompactionPlan(entries[:cut], entries[cut:]) if is_there else None


def is_opening(entry: Entry) -> bool:
    """Return whether this is the opening line that an earlier compaction left."""
    return entry.role == "system" and entry.metadata.get("type") == COMPACT


def is_memory_index(entry: Entry) -> bool:
    """Return whether this is the list of long-term memory. It is not summarised, since every session gets a new one."""
    return entry.metadata.get("type") == MEMORY_INDEX


def plan_compaction(entries: Sequence[Entry], running: Collection[int], keep: int) -> CompactionPlan:
    """Return the plan that summarises as much as possible and leaves at most `keep` tokens.

    running: numbers of the queue items that are being worked on. If they alone need more than `keep` tokens, they stay nevertheless,
    and the cut is right before the first of them.
    """
    cut = first_running(entries, running)
    room = keep - sum(map(entry_tokens, entries[cut:]))
    for index in range(cut - 1, -1, -1):
        room -= entry_tokens(entries[index])
        if room < 0:
            break
        if entries[index].item is not None:
            cut = index
    return CompactionPlan(entries[:cut], entries[cut:])


def first_running(entries: Sequence[Entry], running: Collection[int]) -> int:
    """Return the index of the first user entry of an item in `running`, or the number of entries if there is none."""
    return next((index for index, entry in enumerate(entries) if entry.item in running), len(entries))
