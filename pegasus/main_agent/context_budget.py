"""Room in the model's window: before every call the session is looked at, and compacted where it has become too long."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Protocol

import attrs

from pegasus.main_agent.session import Session
from pegasus.models import ModelRequest

if TYPE_CHECKING:
    from pegasus.main_agent.compaction import Compactor
    from pegasus.storage import Item


class _Work(Protocol):
    @property
    def items(self) -> Collection[Item]: ...
    @property
    def item(self) -> Item: ...


@attrs.frozen(eq=False)
class Room:
    """tokens: about how many a request has, most exactly near the given limit; None: nobody can say."""

    session: Session
    compactor: Compactor
    tokens: Callable[[ModelRequest, int], Awaitable[int]] | None

    async def run(self) -> None:
        """Prepare summaries beside the thoughts, until cancelled."""
        await self.compactor.run()

    async def before_call(self, request: ModelRequest, work: _Work) -> bool:
        """Compact the session if this request is too long for it: True; begin to prepare that if it soon will be."""
        if self.tokens is None:
            return False
        tokens = await self.tokens(request, self.compactor.threshold)
        if self.compactor.is_due(tokens):
            return await self.compactor.compact(self.session, _running(work), item=work.item.n) is not None
        if self.compactor.is_near(tokens):
            self.compactor.prepare(self.session.entries, _running(work), work.item.n)
        return False

    async def too_long(self, work: _Work) -> bool:
        """The provider says that the session is too long: make it smaller. Whether that could be done."""
        return await self.compactor.compact(self.session, _running(work), item=work.item.n, forced=True) is not None


def _running(work: _Work) -> Collection[int]:
    return [item.n for item in work.items]
