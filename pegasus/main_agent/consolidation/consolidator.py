"""The keeper of a session's window: consolidates what has become too much, beside the turns.

The model is asked in the background, while turns go on, for at most `session.consolidation_timeout` seconds; then the call ends, and
an excerpt takes the place of its answer. What changes the session comes between two turns, under a lock that the main lane holds
during each: a few writes to disk. So nobody waits for a model. An answer whose part of the session is gone by then (/new, a
compaction) is dropped.

The steps, in this order, and what a crash between them leaves:

1. The model is asked. A crash leaves everything as it was; the next start asks again.
2. The session is replaced, in one step. Its first entry has the recap, and names what is still to be written (`pending_notes`).
3. The entry is appended to the history. Whoever does this again finds it by its id.
4. MEMORY.md is replaced, if nobody else has changed the same lines since the model saw it. Otherwise the other's text stays, and the
   lines that would have been added become a part of the history's entry; this is decided before step 3.
5. An entry without text says that the notes are written.

A disk that refuses in step 3 or 4 leaves the notes pending; they are tried again after the next turn, every RETRY seconds, and by the
next start, and until then nothing else is consolidated in this session.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from functools import partial
from hashlib import sha256
from typing import Final

import attrs
import trio

from actors import Signal
from pegasus.conversation import Entry, clean_text, cut_middle
from pegasus.identity import NOTES_FILE, WorkspaceFiles
from pegasus.main_agent.compaction import (
    CompactionPlan,
    Compactor,
    OpenItems,
    SessionSummary,
    first_running,
    format_minute,
    previous_summary,
    summary_entry,
    transcript_events,
)
from pegasus.main_agent.consolidation.question import ModelNotes, NoNotes, ask_for_notes
from pegasus.main_agent.session import (
    NextStep,
    PendingNotes,
    Session,
    done_entry,
    last_notes,
    pending_metadata,
    pending_notes,
)
from pegasus.memory import (
    NOTES,
    Author,
    HistoryEntry,
    Memory,
    add_to_history,
    added_lines,
    is_wrong_kind,
    may_rewrite,
    merged_notes,
    own_notes,
    rewritten_notes,
)
from pegasus.messages import Address, ChannelInfo
from pegasus.models import Label, LanguageModel, ModelError
from pegasus.observe import get_logger
from pegasus.outside import Untrusted, join_outside
from pegasus.redaction import KnownSecrets
from pegasus.settings import LiveValue, SessionSettings
from pegasus.storage import Disk, StorageError

_log = get_logger("consolidation")

RETRY: Final = 60.0
"""Seconds until notes that the disk has refused are written again."""
LONGEST_RECAP: Final = 6_000
"""Characters of the recap in the session; the newest part stays."""
TRANSCRIPT_SHARE: Final = 0.3
"""Part of the model's window that the transcript may have."""
LONGEST_TRANSCRIPT: Final = 24_000
"""Tokens of the transcript in any window: an answer is wanted within half a minute."""
MOST_LINES: Final = 40
"""Lines of an update that could not be written, which the history keeps."""

EXCERPT: Final = 300
"""Characters of a message in an excerpt."""
LONGEST_EXCERPT: Final = 4_000
"""Characters of an excerpt; the newest messages stay."""
_KINDS: Final = frozenset({"message", "reply", "task report"})
"""Kinds of events that are messages: what people and tasks said, and what was replied."""


@attrs.define(eq=False, repr=False)
class Consolidator:
    """Everything that consolidation works with. There is one for the process, since its lock keeps writers of the notes apart.

    Example:
        disk = notes_disk(workspace)
        consolidator = Consolidator(models.client("compact"), models.context_window, clock, disk, memory, session_settings)
        keeper = WindowConsolidator(consolidator, session, chat, compactor)
    """

    model: LanguageModel
    """Model of role "compact"."""
    context_window: Callable[[str], int]
    """Returns the window in tokens of the model of a role."""
    clock: Callable[[], int]
    """Returns the wall-clock time in ms."""
    disk: Disk
    """The disk of the workspace, for the history."""
    memory: Memory
    """Writes MEMORY.md, and logs it."""
    settings: LiveValue[SessionSettings]
    """The settings [session]."""
    files: WorkspaceFiles | None = None
    """Holds MEMORY.md as it counts; None: there is none, and only the history is written."""
    secrets: KnownSecrets = attrs.field(factory=KnownSecrets)
    """The texts that no file may show."""
    _writing: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    """Held while notes are written."""

    async def notes(self) -> str:
        """Return MEMORY.md as it counts now."""
        if self.files is None:
            return ""
        await self.files.refresh()
        return self.files.text(NOTES_FILE)

    def clean(self, text: str) -> str:
        """Return a text of the model, or of people, as it may be kept: without secrets, and without what imitates the program."""
        return clean_text(self.secrets.redact(text)).strip()

    async def write(self, notes: PendingNotes, chat: str, *, again: bool) -> None:
        """Write notes to MEMORY.md and to the history. Raises StorageError; then it may be called again, with `again`.

        One that is called again does nothing twice. What could not be written to MEMORY.md is in the history's entry.
        """
        async with self._writing:
            left = await self._write_memory(notes, chat) if notes.wanted is not None else ""
            text = f"{notes.text}\n\n{left}" if left else notes.text
            entry = HistoryEntry(notes.id, notes.at, chat, text, notes.outside)
            await add_to_history(self.disk, entry, again=again)

    async def _write_memory(self, notes: PendingNotes, chat: str) -> str:
        """Bring an update into MEMORY.md. Return what the history says if that is not possible, "" otherwise."""
        wanted = notes.wanted or ""

        def change(now: str) -> str | None:
            """Return the new text of MEMORY.md, given the one that it has now; None if both cannot be brought together.

            A text that is wanted already was written before a crash, and is left as it is.
            """
            if now == wanted:
                return now
            merged = merged_notes(notes.seen, wanted, now)
            return merged if merged is not None and may_rewrite(merged) else None

        write = partial(self.memory.write_as_it_is, NOTES, by=Author("consolidation", channel=chat))
        problem = "somebody has changed it meanwhile, or it cannot be rewritten"
        if self.files is not None:
            try:
                if await self.files.rewrite(NOTES_FILE, change, write):
                    return ""
            except StorageError as error:
                if not is_wrong_kind(error):
                    raise  # the disk: full, read-only
                problem = str(error)
            except OSError as error:  # the folder of memory cannot be read
                raise StorageError(str(error)) from error
        _log.warning("MEMORY.md stays as it is", chat=chat, problem=problem)
        lines = added_lines(notes.seen, wanted)[:MOST_LINES]
        return "\n".join(["Not written to MEMORY.md, which stays as it is:", *lines]) if lines else ""


@attrs.define(eq=False, repr=False)
class WindowConsolidator:
    """Keeps the messages of one session within the window.

    Example:
        keeper = WindowConsolidator(consolidator, session, chat, compactor)
        nursery.start_soon(keeper.run)
        async with keeper.session_lock:  # around each turn
            ...
        keeper.look()
    """

    _shared: Consolidator
    """Model, disk and lock that all chats share."""
    _session: Session
    """The session of the chat."""
    _chat: Address
    """The chat that the session belongs to."""
    _compactor: Compactor | None
    """Knows what is open; None: nobody does."""
    session_lock: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    """To be held by whoever writes to the session."""
    _wakeup: Signal = attrs.field(factory=Signal, init=False)
    """Given when there may be something to do."""
    _plan: CompactionPlan | None = attrs.field(default=None, init=False)
    """The part that a model is asked about now."""
    _asking: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    """Around that call."""

    def look(self) -> None:
        """Look whether there is something to do, to be called after each turn. A call about what is gone by now ends at once."""
        self._wakeup.notify()
        if self._plan is not None and self._plan.at_present(self._session.entries) is None:
            self._asking.cancel()

    async def run(self) -> None:
        """Consolidate whenever there is too much, until cancelled. Cancelled: what was begun is done by the next start."""
        seen = 0
        while True:
            with trio.move_on_after(RETRY if pending_notes(self._session.entries) else math.inf):
                await self._wakeup.wait(seen)
            seen = self._wakeup.count
            # Notes that were left pending come first: their part of the session is gone, and only they still have it.
            if not await self._write_pending(again=True):
                continue
            plan = self._plan_now()
            if plan is not None:
                await self._consolidate(plan)
                self._wakeup.notify()  # a long session may need another one

    # ------------------------------------------------------------------ what leaves the window

    def _plan_now(self) -> CompactionPlan | None:
        """Return the part that is to leave the window, None if the session is short enough. Entries of unfinished items stay."""
        session, window = self._session, self._shared.settings.now.memory_window
        if not window or len(session.entries) <= window:
            return None
        unfinished = [n for n in session.item_numbers() if session.progress(n).next is not NextStep.NOTHING]
        return plan_window(session.entries, unfinished, window)

    async def _consolidate(self, plan: CompactionPlan) -> None:
        """Do all steps for one part of the session."""
        session, shared = self._session, self._shared
        # The text that the model is shown is kept: an update is a change of exactly this text.
        seen = await shared.notes()
        outside = join_outside(*(entry.outside for entry in plan.summarised))
        # What is said where guests are heard must not get into the notes that all of the owner's chats read, nor do they read these.
        is_private = not session.is_apart and Untrusted.GUEST not in outside
        may_change = shared.files is not None and is_private and may_rewrite(seen)
        self._plan = plan
        try:
            with trio.CancelScope() as self._asking:
                answer = await self._ask(plan, seen if may_change else None)
        finally:
            self._plan = None
        # `look` has found that the part is gone.
        if self._asking.cancelled_caught:
            return
        text = shared.clean(answer.history)
        wanted = None
        if may_change and answer.memory is not None:
            wanted = rewritten_notes(seen, shared.clean(answer.memory), outside)
        async with self.session_lock:
            # Looked at again under the lock, since a turn, a /new or a compaction may have come during the call.
            fitting = plan.at_present(session.entries)
            if fitting is None or pending_notes(session.entries) is not None:
                return
            before = last_notes(session.entries)
            count = (before.messages if before is not None else 0) + count_messages(plan.summarised)
            await self._replace_session(fitting, PendingNotes("", shared.clock(), text, outside, seen, wanted, count))
        await self._write_pending(again=False)

    async def _ask(self, plan: CompactionPlan, notes: str | None) -> ModelNotes:
        """Return what the model says, within the time limit; an excerpt if it gives no answer that can be used."""
        shared = self._shared
        window = shared.context_window("compact")
        room = max(1_000, min(LONGEST_TRANSCRIPT, int(TRANSCRIPT_SHARE * window)))
        if notes is not None and len(own_notes(notes)) > room:  # a window so small has no room for them
            notes = None
        guest = str(self._chat) if any(Untrusted.GUEST in entry.outside for entry in plan.summarised) else ""
        label = Label("compact", ChannelInfo(self._chat.type, self._chat.channel_id), guest=guest)
        problem = "it took too long"
        with trio.move_on_after(shared.settings.now.consolidation_timeout):
            # The size of the transcript is an estimate. One that the model refuses as too long is shortened once.
            for divisor in (1, 4):
                try:
                    return await ask_for_notes(shared.model, plan.summarised, notes, room // divisor, label)
                except Exception as error:  # a chat must not end because an answer cannot be read
                    problem = str(error) if isinstance(error, (ModelError, NoNotes)) else repr(error)
                    if not (isinstance(error, ModelError) and (error.kind == "overflow" or error.may_be_length)):
                        break
        _log.warning("the model gave no notes, the history gets an excerpt", chat=str(self._chat), problem=problem)
        return ModelNotes(excerpt_of(plan.summarised))

    async def _replace_session(self, plan: CompactionPlan, notes: PendingNotes) -> None:
        """Put the part that stays in place of the session, behind an entry with the recap and the notes that are to be written."""
        session, now, outside = self._session, notes.at, self._session.outside
        recap = _recap(previous_summary(plan.summarised), notes.text)
        items, memory = OpenItems(), tuple[Entry, ...]()
        if self._compactor is not None:
            items, memory = await self._compactor.carry_over(session.entries, plan.kept, now, is_apart=session.is_apart)

        def begin(archive: str) -> Sequence[Entry]:
            """Return the entries of the new session. archive: name of the old one, of which the id of the notes is made."""
            opening = summary_entry(now, archive, SessionSummary(recap, by_code=False), items, outside)
            # No two archives of a session have the same name, so no two consolidations have the same id.
            id = sha256(f"{session.files.path}\0{archive}".encode()).hexdigest()[:12]
            metadata = {**opening.metadata, **pending_metadata(attrs.evolve(notes, id=id))}
            return (attrs.evolve(opening, metadata=metadata), *memory, *plan.kept)

        archive = await session.restart(begin, now)
        _log.info("consolidated a conversation", chat=session.files.chat, archive=archive, messages=notes.messages)

    # ------------------------------------------------------------------ the notes

    async def _write_pending(self, *, again: bool) -> bool:
        """Write what is pending, beside the turns, and note it in the session. Return whether nothing is pending any more."""
        session, notes = self._session, pending_notes(self._session.entries)
        if notes is None:
            return True
        try:
            await self._shared.write(notes, session.files.chat, again=again)
        except StorageError as error:
            _log.error("the notes of a conversation cannot be written, trying again", error=str(error), seconds=RETRY)
            return False
        async with self.session_lock:
            await session.add(done_entry(notes, self._shared.clock()))
        return True


def _recap(before: str, text: str) -> str:
    """Return the recap of the conversation so far; of a long one the newest part."""
    recap = f"{before}\n\n{text}".strip()
    return recap if len(recap) <= LONGEST_RECAP else f"…{recap[1 - LONGEST_RECAP :]}"


# ------------------------------------------------------------------ the window: which messages leave it, and what code says of them


def count_messages(entries: Sequence[Entry]) -> int:
    """Return how many messages these entries hold: what people and tasks said, and what was replied."""
    return sum(event.kind in _KINDS for _, event in transcript_events(entries))


def plan_window(entries: Sequence[Entry], unfinished: Collection[int], window: int) -> CompactionPlan | None:
    """Return the plan that leaves at most half of the window, but at least the newest item; None if nothing is to be done.

    unfinished: numbers of queue items whose entries stay, with all behind them. Half of the window leaves, so that the next
    consolidation comes only after as many messages again. The cut is before the user entry of an item.
    """
    if not window or count_messages(entries) <= window:
        return None
    limit, cut, kept = first_running(entries, unfinished), 0, 0
    starts = [index for index, entry in enumerate(entries) if entry.item is not None and index <= limit]
    for start, end in zip(reversed(starts), [len(entries), *reversed(starts)], strict=False):
        kept += count_messages(entries[start:end])
        # The newest item stays in any case, however long it is.
        if cut and kept > max(1, window // 2):
            break
        cut = start
    plan = CompactionPlan(entries[:cut], entries[cut:])
    return plan if count_messages(plan.summarised) else None


def excerpt_of(entries: Sequence[Entry]) -> str:
    """Return the beginnings of the messages, the newest ones if there is no room for all. It is what stays without a model."""
    lines: list[str] = []
    room = LONGEST_EXCERPT
    events = [event for _, event in transcript_events(entries) if event.kind in _KINDS]
    for event in reversed(events):
        who = {"reply": "the agent", "task report": f"task {event.task_id}"}.get(event.kind) or event.label or "they"
        line = f"- [{format_minute(event.ts)}] {who}: {cut_middle(' '.join(event.text.split()), EXCERPT)}"
        room -= len(line) + 1
        if room < 0:
            lines.append(f"- ({len(events) - len(lines)} earlier messages are in the archive only)")
            break
        lines.append(line)
    return "\n".join(reversed(lines))
