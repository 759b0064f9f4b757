"""Notes that a consolidation has decided to write, as they stand in the session until they are written.

A consolidation changes three things: the session, the history and MEMORY.md. No disk changes three files at once. So the session is
changed first, in one step, and its first entry says what is still to be written:

    {"type":"compact", …, "consolidation":{"id":"5f1c…","at":1772029800000,"text":"…","outside":[],"seen":"…","wanted":"…"}}

When that is done, an entry without text says so (`{"type":"consolidated","consolidation":"5f1c…"}`). What a crash has cut off is
written by whoever loads the session next. Another new session that begins meanwhile (compaction, /new) takes it over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import attrs

from pegasus.conversation import Entry
from pegasus.messages import Json
from pegasus.outside import Untrusted, outside_metadata, parse_outside

CONSOLIDATION: Final = "consolidation"
"""Key in the metadata of both entries."""
CONSOLIDATED: Final = "consolidated"
"""`metadata.type` of the entry that says that the notes are written."""


@attrs.frozen(eq=False, repr=False)
class PendingNotes:
    """Notes that are to be written: `PendingNotes("5f1c0a9d2b7e", now, "Ann decided …")`.

    Example::

        notes = PendingNotes("5f1c0a9d2b7e", now, "Ann decided …")
        first = attrs.evolve(first, metadata={**first.metadata, **pending_metadata(notes)})
        pending_notes((first,))                          # the notes
        pending_notes((first, done_entry(notes, now)))   # None
    """

    id: str
    """Identifies the consolidation."""
    at: int
    """Wall clock, ms."""
    text: str
    """Entry of the history."""
    outside: tuple[Untrusted, ...] = ()
    """Labels of what was consolidated."""
    seen: str = ""
    """MEMORY.md as it was when the model was asked."""
    wanted: str | None = None
    """MEMORY.md as it is to be; None if it stays as it is."""
    messages: int = 0
    """Messages of this chat that were consolidated so far, over all consolidations."""


def pending_metadata(notes: PendingNotes) -> dict[str, Json]:
    """Return the metadata for the first entry of the session."""
    facts: dict[str, Json] = {"id": notes.id, "at": notes.at, "text": notes.text, "messages": notes.messages}
    if notes.wanted is not None:
        facts |= {"seen": notes.seen, "wanted": notes.wanted}
    return {CONSOLIDATION: {**facts, **outside_metadata(notes.outside)}}


def last_notes(entries: Sequence[Entry]) -> PendingNotes | None:
    """Return the notes that the first entry of a session names, written or not; None if there are none that can be read."""
    facts: Any = entries[0].metadata.get(CONSOLIDATION) if entries else None
    match facts:
        case {"id": str(id), "at": int(at), "text": str(text)}:
            seen, wanted, messages = facts.get("seen"), facts.get("wanted"), facts.get("messages")
            return PendingNotes(
                id,
                at,
                text,
                parse_outside(facts),
                seen if isinstance(seen, str) else "",
                wanted if isinstance(wanted, str) else None,
                messages if type(messages) is int else 0,
            )
    return None


def pending_notes(entries: Sequence[Entry]) -> PendingNotes | None:
    """Return the notes that are not written yet, as far as the session knows."""
    notes = last_notes(entries)
    if notes is None or any(_is_done(entry, notes.id) for entry in entries):
        return None
    return notes


def done_entry(notes: PendingNotes, now: int) -> Entry:
    """Return the entry that says that the notes are written. It has no text, so no model sees it."""
    return Entry(now, "system", metadata={"type": CONSOLIDATED, CONSOLIDATION: notes.id})


def carried_over(entries: Sequence[Entry], first: Entry) -> Entry:
    """Return the first entry of a session that follows these entries, with the notes that they have not written yet."""
    notes = pending_notes(entries)
    if notes is None or CONSOLIDATION in first.metadata:
        return first
    return attrs.evolve(first, metadata={**first.metadata, **pending_metadata(notes)})


def _is_done(entry: Entry, id: str) -> bool:
    """Return whether an entry says that the notes with this id are written."""
    return entry.metadata.get("type") == CONSOLIDATED and entry.metadata.get(CONSOLIDATION) == id
