"""A summary that is made while turns go on, so that nobody waits for it when it is due.

It covers the session up to an entry; as long as that entry stands at its place, and no item that is being worked on begins before it,
it holds, however much the session has grown meanwhile.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence

import attrs
import trio

from pegasus.conversation import Entry
from pegasus.main_agent.compaction.opening import Summary
from pegasus.main_agent.compaction.planning import Plan, planned_again


@attrs.define(eq=False)
class _Job:
    """A summary that is being prepared. before: the last entry that it covers; summary: None until it is there, or if it failed."""

    plan: Plan
    item: int | None
    before: Entry
    summary: Summary | None = None
    done: trio.Event = attrs.field(factory=trio.Event)
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)

    @property
    def cut(self) -> int:
        return len(self.plan.summarised)

    def fits(self, entries: Sequence[Entry], running: Collection[int]) -> bool:
        same = len(entries) >= self.cut and entries[self.cut - 1] is self.before
        return same and planned_again(entries, running, self.cut) is not None


@attrs.define(eq=False)
class Preparation:
    """plan: of a session, and the items in it that are being worked on. summarise: of a plan, for a queue item; takes only so long."""

    plan: Callable[[Sequence[Entry], Collection[int]], Plan]
    summarise: Callable[[Plan, int | None], Awaitable[Summary]]
    _job: _Job | None = None
    _bell: trio.Event | None = None

    async def run(self) -> None:
        """Make the summaries that are wanted, one at a time, until cancelled."""
        try:
            while True:
                job = self._job
                if job is None or job.done.is_set():
                    self._bell = trio.Event()
                    await self._bell.wait()
                    continue
                with job.scope:
                    job.summary = await self.summarise(job.plan, job.item)
                job.done.set()
        finally:
            self._bell = None
            if self._job is not None:
                self._job.done.set()

    def begin(self, entries: Sequence[Entry], running: Collection[int], item: int | None) -> None:
        """Want a summary, if none is there or under way that fits. Does nothing where `run` does not run."""
        if self._bell is None or (self._job is not None and self._job.fits(entries, running)):
            return
        self.drop()
        wanted = self.plan(entries, running)
        if wanted.is_worth_it:
            self._job = _Job(wanted, item, entries[len(wanted.summarised) - 1])
            self._bell.set()

    async def ready(self, entries: Sequence[Entry], running: Collection[int]) -> tuple[Plan, Summary] | None:
        """The summary that was prepared, and the plan with it, of the session as it is now; None if there is none that fits."""
        job = self._job
        if job is None or not job.fits(entries, running):
            return None
        await job.done.wait()  # not for ever: a summary has its time
        wanted, summary = planned_again(entries, running, job.cut), job.summary
        if wanted is None or summary is None:
            return None
        made_in_haste = summary.mechanical and not summary.late  # the model may be back by now
        return None if made_in_haste else (wanted, summary)

    def drop(self) -> None:
        """Forget it; one that is under way ends."""
        if self._job is not None:
            self._job.scope.cancel()
            self._job = None
