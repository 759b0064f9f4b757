"""When a session is compacted, and how: the plan, a summary, and a new session in its place.

Everything that may fail or take long comes before the one step that changes something (`Conversation.restart`); a crash or a cancel
until then leaves the session as it was. A summary that cannot be had in time, or is not good enough twice, is made by code
instead: a turn never fails because of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final, Protocol, TypeVar

import attrs
import trio

from pegasus.conversation import Entry
from pegasus.main_agent.compaction.carried import bounded, carry
from pegasus.main_agent.compaction.mechanical import mechanical_summary
from pegasus.main_agent.compaction.opening import Rest, Summary, memory_entry, opening
from pegasus.main_agent.compaction.outlook import NO_OUTLOOK, Outlook
from pegasus.main_agent.compaction.planning import (
    Plan,
    Weigh,
    clip,
    is_opening,
    plan,
    shortened,
    weigh,
    weight,
)
from pegasus.main_agent.compaction.preparing import Preparation
from pegasus.main_agent.compaction.source import source_of, summary_in
from pegasus.main_agent.compaction.summarising import NoSummary, Task, summarise
from pegasus.models import Label, LanguageModel, ModelError
from pegasus.observe import get_logger

_log = get_logger("compaction")
_T = TypeVar("_T")

KEEP: Final = 0.15
"""Part of the window that stays word for word."""
SUMMARY: Final = 0.05
LONGEST: Final = 4_000
"""Tokens a summary may have: that part of the window, at most."""
EARLY: Final = 0.9
"""Part of the threshold from which on a summary is prepared while turns go on."""
AGAIN: Final = 0.1
"""Part of the window by which a session must have grown since the last compaction, before the next one."""
HOPELESS: Final = 1.5
"""Windows that the messages at hand must come to, as `weigh` counts, which is too many, for their texts to be cut at once."""
AT_HAND: Final = 0.5
"""Part of the window that is then left of them."""
ASKING: Final = 5.0
"""Seconds that tasks, timers and memory may take to say how they stand."""


class Conversation(Protocol):
    """The session that is compacted."""

    @property
    def entries(self) -> Sequence[Entry]:
        """All of it, repaired."""

    async def restart(self, begin: Callable[[str], Sequence[Entry]], at: int) -> str:
        """Put it aside and go on with `begin(archive's name)`, as one durable step; gives that name. at: wall clock, ms."""


@attrs.frozen(eq=False)
class CompactionLimits:
    """window: tokens of the model that thinks; compact_window: of the one that summarises. timeout: seconds for a summary.

    threshold: part of the window at which a session is compacted (`session.compact_threshold`).
    """

    window: Callable[[], int]
    compact_window: Callable[[], int]
    threshold: float = 0.8
    timeout: float = 120.0


@attrs.define(eq=False)
class Compactor:
    """model: gives the model of role "compact". memory_index: text of the message that lists long-term memory, "" for none.

    `run` wants to be running for summaries to be prepared; without it they are made when they are due.
    """

    model: Callable[[], LanguageModel]
    limits: CompactionLimits
    clock: Callable[[], int]
    outlook: Outlook = NO_OUTLOOK
    memory_index: Callable[[], Awaitable[str]] | None = None
    weigh: Weigh = weigh
    _after: int | None = None
    _compacted: bool = False
    _early: Preparation = attrs.field(
        init=False, default=attrs.Factory(lambda self: Preparation(self._plan, self._summary), takes_self=True)
    )

    # ------------------------------------------------------------------ when

    @property
    def threshold(self) -> int:
        """Tokens of a call at which the session is compacted."""
        return round(self.limits.threshold * self.limits.window())

    def is_due(self, tokens: int) -> bool:
        """Whether to compact before the next call, which will have about so many tokens. Ask before every call.

        What is still large after a compaction (prompt, tools, the message at hand) does not make it due again at once.
        """
        if self._compacted:
            self._after, self._compacted = tokens, False
        grown = self._after is None or tokens >= self._after + AGAIN * self.limits.window()
        return grown and tokens >= self.threshold

    def is_near(self, tokens: int) -> bool:
        """Whether to `prepare`."""
        return tokens >= round(EARLY * self.threshold)

    # ------------------------------------------------------------------ early

    async def run(self) -> None:
        """Make the summaries that are prepared, one at a time, until cancelled."""
        await self._early.run()

    def prepare(self, entries: Sequence[Entry], running: Collection[int], item: int | None = None) -> None:
        """Begin a summary in the background, if none is there already. Does nothing where `run` does not run."""
        self._early.begin(entries, running, item)

    # ------------------------------------------------------------------ now

    async def compact(
        self, session: Conversation, running: Collection[int], *, item: int | None = None, forced: bool = False
    ) -> str | None:
        """Compact the session; gives the archive's name, or None if there is nothing to be made smaller.

        running: numbers of the queue items that are being worked on; all of their entries stay. item: the one it is done for.
        forced: the provider has said that the session is too long. Each such call leaves about half of what the one before has left,
        word for word; None: no more can be done.

        Raises StorageError as `session.restart` does, and nothing else. Cancelled: either nothing has happened or all of it.
        """
        made = await (self._forced(session, running, item) if forced else self._planned(session, running, item))
        self._compacted = True
        if made is None:
            return None
        wanted, summary = made
        now, window = self.clock(), self.limits.window()
        rest = await self._rest(session.entries, wanted.kept, now, window)
        memory = await self._remembered(now)
        before = len(session.entries)

        def begin(archived: str) -> Sequence[Entry]:
            return (opening(now, archived, summary, rest), *memory, *wanted.kept)

        archived = await session.restart(begin, now)
        self._early.drop()
        _log.info(
            "compacted the session",
            archive=archived,
            before=before,
            after=len(session.entries),
            by_code=summary.mechanical,
        )
        return archived

    async def _planned(
        self, session: Conversation, running: Collection[int], item: int | None
    ) -> tuple[Plan, Summary] | None:
        ready = await self._early.ready(session.entries, running)
        if ready is None:
            wanted = self._plan(session.entries, running)
            summary = await self._summary(wanted, item) if wanted.is_worth_it else None
        else:
            wanted, summary = ready
        fewer = self._too_much(wanted.kept)
        if fewer is not None:
            wanted = attrs.evolve(wanted, kept=fewer)
        elif summary is None:
            return None
        return wanted, summary or Summary(summary_in(session.entries), mechanical=False)

    def _too_much(self, kept: Sequence[Entry]) -> Sequence[Entry] | None:
        """What stays, with its texts cut, where no provider could take it as it is; else None.

        Some do not say so, but leave out what they like (Ollama), and all of them want the whole of it first.
        """
        window = self.limits.window()
        if sum(weight(entry, self.weigh) for entry in kept) <= HOPELESS * window:
            return None
        return shortened(kept, int(AT_HAND * window), self.weigh)

    async def _forced(
        self, session: Conversation, running: Collection[int], item: int | None
    ) -> tuple[Plan, Summary] | None:
        entries = session.entries
        talk = [entry for entry in entries if not is_opening(entry)]
        keep = min(sum(weight(entry, self.weigh) for entry in talk) // 2, int(KEEP * self.limits.window()))
        wanted = plan(entries, running, keep, self.weigh)
        if sum(weight(entry, self.weigh) for entry in wanted.kept) > keep:
            fewer = shortened(wanted.kept, keep, self.weigh)
            if fewer is None and not wanted.is_worth_it:
                return self._less_summary(wanted)
            wanted = attrs.evolve(wanted, kept=wanted.kept if fewer is None else fewer)
        elif not wanted.is_worth_it:
            return self._less_summary(wanted)
        if wanted.is_worth_it:
            return wanted, await self._summary(wanted, item)
        return wanted, Summary(summary_in(entries), mechanical=False)

    def _less_summary(self, wanted: Plan) -> tuple[Plan, Summary] | None:
        """The last thing that can be made smaller."""
        before = summary_in(wanted.summarised)
        if len(before) <= 400:
            return None
        return wanted, Summary(clip(before, len(before) // 2), mechanical=True)

    # ------------------------------------------------------------------ the pieces

    def _plan(self, entries: Sequence[Entry], running: Collection[int]) -> Plan:
        return plan(entries, running, int(KEEP * self.limits.window()), self.weigh)

    async def _summary(self, wanted: Plan, item: int | None) -> Summary:
        window = self.limits.window()
        most = min(LONGEST, max(200, int(SUMMARY * window)))
        places = [place.address for place in carry(wanted.summarised).places if _since(place.last, wanted)]
        room = max(1_000, int(0.6 * self.limits.compact_window()) - 3 * most)
        problem = "it took too long"
        with trio.move_on_after(self.limits.timeout) as scope:
            for smaller in (1, 4):
                task = Task(
                    source_of(wanted.summarised, room // smaller, self.weigh),
                    places,
                    most,
                    Label("compact", None, item),
                )
                try:
                    return Summary(await summarise(self.model(), task, self.weigh), mechanical=False)
                except (ModelError, NoSummary) as error:
                    problem = str(error)
                    if not (isinstance(error, ModelError) and error.kind == "overflow"):
                        break
        _log.warning("no summary of the session could be had, so one was made by code", problem=problem)
        text = mechanical_summary(wanted.summarised, most, self.weigh)
        return Summary(text, mechanical=True, late=scope.cancelled_caught)

    async def _rest(self, entries: Sequence[Entry], kept: Sequence[Entry], now: int, window: int) -> Rest:
        tasks = await self._asked(self.outlook.tasks, None, "tasks")
        timers: Sequence[str] = await self._asked(self.outlook.timers, [], "timers")
        carried = carry(entries, kept)
        known = None if tasks is None else {task.task_id for task in tasks}
        return Rest(bounded(carried, now, window, known), tasks, timers, window)

    async def _remembered(self, now: int) -> tuple[Entry, ...]:
        index = await self._asked(self.memory_index, "", "memory") if self.memory_index is not None else ""
        return (memory_entry(now, index),) if index.strip() else ()

    async def _asked(self, ask: Callable[[], Awaitable[_T]], otherwise: _T, what: str) -> _T:
        """The answer; one that does not come, or fails, must not cost a turn."""
        try:
            with trio.move_on_after(ASKING):
                return await ask()
            _log.warning("took too long to be carried over", what=what)
        except Exception as error:
            _log.warning("cannot be carried over", what=what, error=str(error))
        return otherwise


def _since(ts: int, wanted: Plan) -> bool:
    """Whether it was said in what is summarised now, and not before."""
    first = next((entry.ts for entry in wanted.summarised if not is_opening(entry)), 0)
    return ts >= first
