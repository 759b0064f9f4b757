"""Context budget: before every model call the request is measured, and the session compacted if it has become too long.

There are two moments. Before the call, by our own count: at the threshold the session is compacted, and a little earlier a summary is
begun in the background. After the call, when the provider refused the request as too long: then our count was wrong, and the session
is made smaller whatever was counted, again and again until the provider takes it or nothing can be shortened any more.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from pegasus.main_agent.compaction import Compactor
from pegasus.main_agent.services import TokenCount
from pegasus.main_agent.session import Session
from pegasus.models import ModelRequest


@attrs.frozen(eq=False)
class ContextBudget:
    """Keeps the requests of one session within the model's window."""

    session: Session
    compactor: Compactor
    count_tokens: TokenCount | None
    """Counts the tokens of a request; None: only the provider can say that it is too long."""

    async def check(self, request: ModelRequest, running: Sequence[int]) -> bool:
        """Compact the session if the request is too long. Return whether it was compacted: then the request must be made anew.

        running: numbers of the queue items being worked on; the last one is what the model calls are counted for. Cancelled: the
        session is as it was, or compacted.
        """
        if self.count_tokens is None:
            return False
        tokens = await self.count_tokens(request, self.compactor.threshold)
        item = running[-1]
        if self.compactor.is_due(tokens):
            return await self.compactor.compact(self.session, running, item=item) is not None
        if self.compactor.is_near(tokens):
            self.compactor.prepare(self.session.entries, running, item)
        return False

    async def shrink(self, running: Sequence[int]) -> bool:
        """Make the session smaller, since the provider has refused it as too long. Return whether that could be done."""
        item = running[-1]
        return await self.compactor.compact(self.session, running, item=item, forced=True) is not None
