"""The compactor: decides when a session is compacted, and puts a new session with a summary in its place.

Everything that takes long or may fail comes first: the plan, the summary, the questions to the task system and to memory. Then one
step changes the session (`Session.restart`), and that step is atomic on disk. A crash or a cancel before it leaves the session as it
was; after it, the new session is complete and the old one is an archive.

There are three moments to compact. When a person asks for it (`compact_asked`). Before a model call, by our own count: `fit` compacts
at the threshold. After a call that the provider refused as too long, whatever was counted: a forced `compact` makes the session
smaller, until the provider takes it.

A summary takes a model call of many seconds. It is therefore begun in the background a little before it is needed, so that nobody
waits for it, and describes the session up to some entry. It stays usable as long as that entry stands at the same place and no queue
item that is being worked on begins before it, however much the session has grown behind it. Otherwise it is dropped and a new one is
begun. At most one summary exists or is under way at any time.

A turn never fails because of compaction. A summary that does not come in time, or fails its checks twice, is made by code. A source
that does not answer is left out. What a provider still finds too long is made smaller again, about by half each time, until nothing
is left that can be shortened; only then does the caller see the provider's error.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeVar

import attrs
import trio

from pegasus.conversation import Entry, cut_middle, entry_tokens, shorten_entries
from pegasus.main_agent.compaction.open_items import (
    OpenItems,
    OpenTask,
    SessionSummary,
    bound_items,
    find_open_items,
    memory_index_entry,
    summary_entry,
)
from pegasus.main_agent.compaction.planning import CompactionPlan, first_running, is_opening, plan_compaction
from pegasus.main_agent.compaction.summary import NoSummary, summarise_by_code, summarise_by_model
from pegasus.main_agent.compaction.transcript import previous_summary, transcript_events, write_transcript
from pegasus.main_agent.session import Session
from pegasus.messages import Address, Json
from pegasus.models import Label, LanguageModel, ModelError, ModelRequest, PromptSize
from pegasus.observe import get_logger
from pegasus.settings import LiveValue, SessionSettings

_log = get_logger("compaction")
_T = TypeVar("_T")

KEPT_SHARE: Final = 0.15
"""Part of the window that stays word for word."""
ASKED_SHARE: Final = 0.25
"""Part of the session that stays word for word at most if a person asks for a compaction."""
SUMMARY_SHARE: Final = 0.05
"""Part of the window that a summary may have."""
LONGEST_SUMMARY: Final = 4_000
"""Tokens that a summary may have in any window."""
SHORTEST_SUMMARY: Final = 200
"""Tokens that a summary may have even in a tiny window."""
TRANSCRIPT_SHARE: Final = 0.6
"""Part of the summarising model's window that one part of the transcript may have."""
PREPARE_SHARE: Final = 0.9
"""Part of the threshold at which a summary is begun in the background."""
GROWTH_SHARE: Final = 0.1
"""Part of the window by which a session must grow after a compaction before it is compacted again."""
TOO_LONG: Final = 1.5
"""Windows that the kept entries must come to, as `entry_tokens` counts, for their texts to be cut without asking the provider."""
SHORTENED_SHARE: Final = 0.5
"""Part of the window that the kept entries have after that."""
SOURCE_TIMEOUT: Final = 5.0
"""Seconds that the task system, and memory, may take to answer."""
SHORTEST_CUT: Final = 400
"""Characters below which a summary is not cut any more."""
UNANSWERED: Final = frozenset({"auth", "network", "request"})
"""Kinds of ModelError of a model that has answered nothing: it is out of reach, its key is wrong, or its name."""


@attrs.define(eq=False, repr=False)
class _SummaryJob:
    """A summary that is wanted, under way, or ready."""

    plan: CompactionPlan
    """Cut that the summary is made for."""
    item: int | None
    """Queue item that the summary is made for."""
    summary: SessionSummary | None = None
    """Result; None until it is ready, and for ever if the job was ended."""
    done: trio.Event = attrs.field(factory=trio.Event)
    """Set when the job is over, with or without a summary."""
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    """Cancelled when the summary is not wanted any more."""

    def plan_for(self, entries: Sequence[Entry], running: Sequence[int]) -> CompactionPlan | None:
        """Return the plan with the same cut for the session as it is now; None if the job does not fit it any more."""
        plan = self.plan.at_present(entries)
        return plan if plan is not None and len(plan.summarised) <= first_running(entries, running) else None


@attrs.frozen
class AskedCompaction:
    """Result of a compaction that a person has asked for: `AskedCompaction("2026-02-25-143000.jsonl", 84_000, 3_100)`.

    Example: `(await compactor.compact_asked(session, item.n, "the invoice")).archive`.
    """

    archive: str = ""
    """Name of the archive that holds all of it; "" if the session stays as it is."""
    before: int = 0
    """Tokens of the session before, estimated."""
    after: int = 0
    """Tokens of the session that took its place."""
    is_empty: bool = False
    """There was nothing that a summary could take the place of."""


@attrs.define(eq=False, repr=False)
class Compactor:
    """Keeps a session within the window of the model that talks.

    Example:
        compactor = Compactor(models.client("compact"), models.context_window, clock, models.measure)
        nursery.start_soon(compactor.run)
        ...
        if await compactor.fit(session, request, [item.n]):
            request = make_request_again()

    `running` is everywhere: the numbers of the queue items that are being worked on, all of whose entries stay. The model calls of a
    summary are counted for the last one.
    """

    model: LanguageModel
    """Model of role "compact", which writes the summaries."""
    context_window: Callable[[str], int]
    """Returns the window in tokens of the model of a role. It is asked each time, since settings may change while we run."""
    clock: Callable[[], int]
    """Returns the wall-clock time in ms."""
    measure: Callable[[ModelRequest, float], Awaitable[PromptSize]]
    """Returns the size of a request beside the window of the default model; exact only near this share of the window, since counting
    may take a network call."""
    settings: LiveValue[SessionSettings] = attrs.field(factory=lambda: LiveValue(SessionSettings()))
    """The settings [session]: the part of the window at which a session is compacted."""
    timeout: float = 1_800.0
    """Seconds that a summary may take, all calls of it together.

    A slow local model may write for minutes, and a long session is several calls. So a call that hangs is ended by the limits of
    the model call itself, for the first token and for silence; this one ends only a summary that goes on without end.
    """
    open_tasks: Callable[[], Awaitable[Sequence[OpenTask] | None]] | None = None
    """Returns the tasks that are not done, None if not known; may raise, and may take long. None: the session itself has to tell."""
    memory_index: Callable[[bool], Awaitable[str]] | None = None
    """Returns the text of the message that lists long-term memory, "" for none."""
    _tokens_after: int | None = None
    """Tokens of the first request after the last compaction."""
    _was_compacted: bool = False
    """True until the first request after a compaction was measured."""
    _job: _SummaryJob | None = None
    """The only summary in the background; one that is over stays here until it is used or dropped."""
    _nursery: trio.Nursery | None = None
    """Runs the job; None while `run` does not run."""

    async def fit(self, session: Session, request: ModelRequest, running: Sequence[int]) -> bool:
        """Compact the session if this request is too long for it. Return whether it was compacted: the request must be made anew.

        To be called before every model call. A little below the threshold a summary is begun in the background.

        A request that is still large after a compaction (prompt, tools, the message at hand) does not trigger another one until
        the conversation has grown by GROWTH_SHARE of the window. Otherwise every thought would begin with a compaction.

        A summary that is being written in the background is waited for only when half of the room above the threshold is used up:
        a slow model may need many minutes, and until then people are answered as ever.

        Nothing is compacted for an assumed window before the model has answered: it may be out of reach, or a name with a typing
        error. A request that is too long for it is refused, and `compact` follows. Nor is a summary made by code, as long as the
        request fits into the window, because the model of the summaries cannot be reached: it may be back soon.

        Cancelled: the session is as it was, or compacted.
        """
        share = self.settings.now.compact_threshold
        size = await self.measure(request, share)
        if size.is_assumed:
            return False
        tokens, window = size.tokens, size.window
        threshold = round(share * window)
        if self._was_compacted:
            self._tokens_after, self._was_compacted = tokens, False
        has_grown = self._tokens_after is None or tokens >= self._tokens_after + GROWTH_SHARE * window
        if has_grown and tokens >= threshold:
            if tokens < (threshold + window) // 2 and self._is_under_way(session.entries, running):
                return False
            is_compacted = await self.compact(session, running, needs_answer=tokens < window) is not None
            if not is_compacted:  # not to be tried at every thought
                self._tokens_after, self._was_compacted = tokens, False
            return is_compacted
        if tokens >= round(PREPARE_SHARE * threshold):
            self.prepare(session.entries, running)
        return False

    # ------------------------------------------------------------------ in the background

    async def run(self) -> None:
        """Write the summaries that are prepared, until cancelled. One that a cancel interrupts has no result."""
        try:
            async with trio.open_nursery() as self._nursery:
                await trio.sleep_forever()
        finally:
            self._nursery = None

    async def _write(self, job: _SummaryJob) -> None:
        """Write a summary in the background."""
        try:
            with job.scope:
                job.summary = await self._summarise(job.plan, job.item)
        finally:
            job.done.set()

    def prepare(self, entries: Sequence[Entry], running: Sequence[int]) -> None:
        """Begin a summary in the background, unless one that fits is there or under way.

        Does nothing while `run` does not run: then the summary is written when it is needed.
        """
        if self._nursery is None or (self._job is not None and self._job.plan_for(entries, running) is not None):
            return
        self._drop_job()
        plan = self._plan(entries, running)
        if plan.is_worth_it:
            self._job = _SummaryJob(plan, _last(running))
            self._nursery.start_soon(self._write, self._job)

    def _is_under_way(self, entries: Sequence[Entry], running: Sequence[int]) -> bool:
        """Return whether a summary that fits is being written in the background."""
        job = self._job
        return job is not None and not job.done.is_set() and job.plan_for(entries, running) is not None

    async def _take_prepared(
        self, entries: Sequence[Entry], running: Sequence[int]
    ) -> tuple[CompactionPlan, SessionSummary] | None:
        """Return the summary that was begun, and its plan for the session as it is now; None if there is none that fits.

        Waits for one that is under way. A summary by code that was not caused by a timeout is not returned either: the model was
        down when it was made, and may be back by now.
        """
        job = self._job
        if job is None or job.plan_for(entries, running) is None:
            return None
        await job.done.wait()
        plan, summary = job.plan_for(entries, running), job.summary
        if plan is None or summary is None or (summary.by_code and not summary.timed_out):
            return None
        return plan, summary

    def _drop_job(self) -> None:
        """Forget the summary. If it is under way, its model call ends."""
        if self._job is not None:
            self._job.scope.cancel()
            self._job = None

    # ------------------------------------------------------------------ now

    async def compact(
        self, session: Session, running: Sequence[int], *, forced: bool = False, needs_answer: bool = False
    ) -> str | None:
        """Compact the session. Return the archive's name, or None if it stays as it is.

        forced: the provider has said that the session is too long. Each such call leaves, word for word, about half of what the one
        before has left; None: no more can be done. needs_answer: do nothing if the model of the summaries cannot be reached.

        While the disk refuses to write, `session.restart` waits. Cancelled: either nothing has happened, or all of it.
        """
        made = await (self._halve if forced else self._make)(session.entries, running)
        self._was_compacted = True
        if made is None or (needs_answer and made[1].unanswered):
            return None
        return await self._replace(session, *made)

    async def compact_asked(
        self, session: Session, item: int, about: str = "", marks: Mapping[str, Json] = MappingProxyType({})
    ) -> AskedCompaction:
        """Compact the session because a person wants it, however short it is.

        item: the command, for which the model calls are counted. about: their words about what matters. marks: further metadata of the
        opening line.

        More is summarised than at the threshold: a quarter stays word for word. A summary without a model is worse than the
        conversation, so without one nothing changes. While the disk refuses to write, waits. Cancelled: as `compact`.
        """
        entries, before = session.entries, sum(map(entry_tokens, session.entries))
        size = sum(entry_tokens(entry) for entry in entries if not is_opening(entry))
        keep = min(int(ASKED_SHARE * size), int(KEPT_SHARE * self.context_window("default")))
        plan = plan_compaction(entries, (), keep)
        if not plan.is_worth_it:
            return AskedCompaction(is_empty=True)
        summary = await self._summarise(plan, item, about)
        if summary.by_code:
            return AskedCompaction(before=before)
        self._was_compacted = True
        archive = await self._replace(session, plan, summary, marks)
        return AskedCompaction(archive, before, sum(map(entry_tokens, session.entries)))

    async def _replace(
        self,
        session: Session,
        plan: CompactionPlan,
        summary: SessionSummary,
        marks: Mapping[str, Json] = MappingProxyType({}),
    ) -> str:
        """Put the summary in the place of what it covers. Return the archive's name. marks: metadata of the opening line."""
        now, before, outside = self.clock(), len(session.entries), session.outside
        items, memory = await self.carry_over(session.entries, plan.kept, now, is_apart=session.is_apart)

        def begin(archive: str) -> Sequence[Entry]:
            """Return the entries of the new session. archive: name under which the old one is kept."""
            opening = summary_entry(now, archive, summary, items, outside)
            opening = attrs.evolve(opening, metadata={**opening.metadata, **marks})
            return (opening, *memory, *plan.kept)

        archive = await session.restart(begin, now)
        self._drop_job()
        after = len(session.entries)
        _log.info("compacted the session", archive=archive, before=before, after=after, by_code=summary.by_code)
        return archive

    async def _make(
        self, entries: Sequence[Entry], running: Sequence[int]
    ) -> tuple[CompactionPlan, SessionSummary] | None:
        """Return plan and summary of a compaction at the threshold; None if there is nothing to summarise or to shorten.

        Kept entries that no provider could take are shortened at once. Some providers do not report an overflow but leave
        out whatever they like (Ollama), and all of them would want the whole of it first.
        """
        made = await self._take_prepared(entries, running)
        if made is None:
            plan = self._plan(entries, running)
            made = plan, await self._summarise_if_worth_it(plan, entries, running)
        plan, summary = made
        window = self.context_window("default")
        shortened = None
        if sum(map(entry_tokens, plan.kept)) > TOO_LONG * window:
            shortened = shorten_entries(plan.kept, int(SHORTENED_SHARE * window))
        if shortened is not None:
            return attrs.evolve(plan, kept=shortened), summary
        return made if plan.is_worth_it else None

    async def _halve(
        self, entries: Sequence[Entry], running: Sequence[int]
    ) -> tuple[CompactionPlan, SessionSummary] | None:
        """Return plan and summary that leave about half of the session; None if nothing can be made smaller.

        The means, in this order: summarise more; shorten what must stay; cut the summary itself.
        """
        size = sum(entry_tokens(entry) for entry in entries if not is_opening(entry))
        keep = min(size // 2, int(KEPT_SHARE * self.context_window("default")))
        plan = plan_compaction(entries, running, keep)
        shortened = shorten_entries(plan.kept, keep) if sum(map(entry_tokens, plan.kept)) > keep else None
        if shortened is not None:
            plan = attrs.evolve(plan, kept=shortened)
        if plan.is_worth_it or shortened is not None:
            return plan, await self._summarise_if_worth_it(plan, entries, running)
        before = previous_summary(entries)
        if len(before) <= SHORTEST_CUT:
            return None
        return plan, SessionSummary(cut_middle(before, len(before) // 2), by_code=True)

    # ------------------------------------------------------------------ pieces

    def _plan(self, entries: Sequence[Entry], running: Sequence[int]) -> CompactionPlan:
        return plan_compaction(entries, running, int(KEPT_SHARE * self.context_window("default")))

    async def _summarise_if_worth_it(
        self, plan: CompactionPlan, entries: Sequence[Entry], running: Sequence[int]
    ) -> SessionSummary:
        """Return the summary of a plan; the one that is there already if the plan adds nothing to it."""
        if plan.is_worth_it:
            return await self._summarise(plan, _last(running))
        return SessionSummary(previous_summary(entries), by_code=False)

    async def _summarise(self, plan: CompactionPlan, item: int | None, about: str = "") -> SessionSummary:
        """Return the summary of a plan within `timeout` seconds, by the model if it gives one, else by code.

        If the model's window turns out to be smaller than we thought, it is asked once more with parts of a fourth of the size.
        item: the queue item that the model calls are counted for. about: what a person wants to be kept above all.
        """
        limit = min(LONGEST_SUMMARY, max(SHORTEST_SUMMARY, int(SUMMARY_SHARE * self.context_window("default"))))
        part_tokens = max(1_000, int(TRANSCRIPT_SHARE * self.context_window("compact")) - 3 * limit)
        places, label = _conversations(plan.summarised), Label("compact", None, item)
        problem, kind = "it took too long", ""
        with trio.move_on_after(self.timeout) as scope:
            for divisor in (1, 4):
                transcript = write_transcript(plan.summarised, part_tokens // divisor)
                try:
                    text = await summarise_by_model(self.model, transcript, places, limit, label, about)
                    return SessionSummary(text, by_code=False)
                except (ModelError, NoSummary) as error:
                    problem, kind = str(error), error.kind if isinstance(error, ModelError) else ""
                    if not (isinstance(error, ModelError) and (kind == "overflow" or error.may_be_length)):
                        break
        _log.warning("the model gave no summary of the session, one was made by code", problem=problem)
        text = summarise_by_code(plan.summarised, limit)
        timed_out = kind == "timeout" or scope.cancelled_caught
        return SessionSummary(text, by_code=True, timed_out=timed_out, unanswered=kind in UNANSWERED)

    async def carry_over(
        self, entries: Sequence[Entry], kept: Sequence[Entry], now: int, *, is_apart: bool
    ) -> tuple[OpenItems, tuple[Entry, ...]]:
        """Return what code carries into a new session: open items, and the entry that lists long-term memory, if there is one.

        is_apart: guests are heard in the session.
        """
        items = await self._open_items(entries, kept, now)
        read = self.memory_index
        index = await self._ask(None if read is None else lambda: read(is_apart), "", "memory")
        return items, (memory_index_entry(now, index),) if index.strip() else ()

    async def _open_items(self, entries: Sequence[Entry], kept: Sequence[Entry], now: int) -> OpenItems:
        """Return what is carried over; the tasks as the task system knows them, if it answers."""
        items = find_open_items(entries, kept)
        tasks = await self._ask(self.open_tasks, None, "tasks")
        if tasks is not None:
            items = attrs.evolve(items, tasks=tuple(tasks))
        return bound_items(items, now, self.context_window("default"))

    async def _ask(self, ask: Callable[[], Awaitable[_T]] | None, default: _T, source: str) -> _T:
        """Return the answer of a source; the default if there is none, if it fails, or does not answer within SOURCE_TIMEOUT."""
        if ask is None:
            return default
        try:
            with trio.move_on_after(SOURCE_TIMEOUT):
                return await ask()
            _log.warning("left out of the new session: no answer in time", source=source)
        except Exception as error:
            _log.warning("left out of the new session", source=source, error=str(error))
        return default


def _last(running: Sequence[int]) -> int | None:
    return running[-1] if running else None


def _conversations(entries: Sequence[Entry]) -> list[Address]:
    """Return the conversations that people wrote in, the one with the newest message last."""
    newest: dict[Address, None] = {}
    for _, event in transcript_events(entries):
        if event.kind == "message":
            newest.pop(event.address, None)
            newest[event.address] = None
    return list(newest)
