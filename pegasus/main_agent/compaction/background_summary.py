"""A summary that is written while the agent works, so that nobody waits for it when the session must be compacted.

A summary takes a model call of many seconds. It is therefore begun a little before it is needed, and describes the session up to
some entry. It stays usable as long as that entry stands at the same place and no queue item that is being worked on begins before
it, however much the session has grown behind it. Otherwise it is dropped and a new one is begun.

At most one summary exists or is under way at any time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence

import attrs
import trio

from pegasus.conversation import Entry
from pegasus.main_agent.compaction.opening import SessionSummary
from pegasus.main_agent.compaction.planning import CompactionPlan, first_running


@attrs.define(eq=False)
class _SummaryJob:
    """A summary that is wanted, under way, or ready."""

    plan: CompactionPlan
    """Cut that the summary is made for."""
    item: int | None
    """Queue item that the summary is made for."""
    last_covered: Entry
    """Last entry that the summary covers."""
    summary: SessionSummary | None = None
    """Result; None until it is ready, and for ever if the job was ended."""
    done: trio.Event = attrs.field(factory=trio.Event)
    """Set when the job is over, with or without a summary."""
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    """Cancelled when the summary is not wanted any more."""

    def plan_for(self, entries: Sequence[Entry], running: Collection[int]) -> CompactionPlan | None:
        """Return the plan with the same cut for the session as it is now; None if the job does not fit it any more."""
        cut = len(self.plan.summarised)
        is_same = len(entries) >= cut and entries[cut - 1] is self.last_covered
        return (
            CompactionPlan(entries[:cut], entries[cut:]) if is_same and cut <= first_running(entries, running) else None
        )


@attrs.define(eq=False)
class BackgroundSummary:
    """Writes one summary at a time, in the task that runs `run`.

    Example:
        background.begin(session.entries, [item.n], item.n)
        ...
        made = await background.take(session.entries, [item.n])
    """

    plan: Callable[[Sequence[Entry], Collection[int]], CompactionPlan]
    """Plans the compaction of a session in which these queue items are being worked on."""
    summarise: Callable[[CompactionPlan, int | None], Awaitable[SessionSummary]]
    """Writes the summary of a plan for a queue item. It must end within a bounded time."""
    _job: _SummaryJob | None = None
    """The only job; one that is over stays here until it is taken or dropped."""
    _wakeup: trio.Event | None = None
    """Set when a job is wanted; None while `run` does not run."""

    async def run(self) -> None:
        """Write the summaries that are wanted, until cancelled. A job that a cancel interrupts is over without a result."""
        try:
            while True:
                job = self._job
                if job is None or job.done.is_set():
                    self._wakeup = trio.Event()
                    await self._wakeup.wait()
                    continue
                with job.scope:
                    job.summary = await self.summarise(job.plan, job.item)
                job.done.set()
        finally:
            self._wakeup = None
            if self._job is not None:
                self._job.done.set()

    def begin(self, entries: Sequence[Entry], running: Collection[int], item: int | None) -> None:
        """Begin a summary of the session, unless one that fits is there or under way.

        Does nothing while `run` does not run: then the summary is written when it is needed.
        """
        if self._wakeup is None or (self._job is not None and self._job.plan_for(entries, running) is not None):
            return
        self.drop()
        plan = self.plan(entries, running)
        if plan.is_worth_it:
            self._job = _SummaryJob(plan, item, plan.summarised[-1])
            self._wakeup.set()

    async def take(
        self, entries: Sequence[Entry], running: Collection[int]
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

    def drop(self) -> None:
        """Forget the summary. If it is under way, its model call ends."""
        if self._job is not None:
            self._job.scope.cancel()
            self._job = None
