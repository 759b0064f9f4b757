"""What model calls use and may use, put together: the books, the actor that keeps them, and who may ask about them.

None of it is needed before the first call; so the child `usage` is up at once, and what it needs is imported then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING, Final

import trio

from actors import Child, Inbox
from pegasus.app.commons import RETRY
from pegasus.gateway import Caller, Params
from pegasus.messages import ChannelInfo, Json
from pegasus.observe import get_logger

if TYPE_CHECKING:
    from actors import Ref
    from pegasus.models import Books, Prices
    from pegasus.settings import Settings
    from pegasus.storage import JournalMessage

READING: Final = 5.0
"""Seconds that a question waits for what was used before this start."""

_log = get_logger("usage")


class Economy:
    """The books of the process, which follow the settings. clock: wall clock, ms. rng: makes ids of records."""

    def __init__(self, settings: Settings, clock: Callable[[], int], rng: Random) -> None:
        self.opened = trio.Event()
        self._settings = settings
        self._clock = clock
        self._rng = rng
        self._books: Books | None = None

    def books(self) -> Books:
        """The books; made when first asked for. A `Meter` for models."""
        if self._books is None:
            from pegasus.models import Books

            self._books = Books(self._clock, self._rng, self._settings.budget, _prices(self._settings))
            self.opened.set()
        return self._books

    def apply(self, settings: Settings) -> None:
        """Other budgets and prices, from the next call on."""
        self._settings = settings
        if self._books is not None:
            self._books.budget, self._books.prices = settings.budget, _prices(settings)

    async def report(self, channel: ChannelInfo | None = None) -> dict[str, Json]:
        """What was used, as JSON. channel: whose chat is told about, too."""
        from pegasus.models import report

        books = self.books()
        books.wanted.set()
        with trio.move_on_after(READING):
            await books.loaded.wait()
        return report(books, channel)

    async def text(self, channel: ChannelInfo | None = None) -> str:
        """The answer to /usage from this channel."""
        from pegasus.models import usage_text

        return usage_text(await self.report(channel))

    async def call(self, caller: Caller, params: Params) -> Json:
        """The control call `usage`."""
        return await self.report()

    async def today(self) -> Mapping[str, Json]:
        """For `status`: what was used today, and how near the budgets are."""
        told = await self.report()
        return {"today": told["today"], "budgets": told["budgets"]}


def _prices(settings: Settings) -> Prices:
    from pegasus.models import Prices

    return Prices(settings.prices, {name: provider.type for name, provider in settings.providers.items()})


def usage_child(economy: Economy, journal: Ref[JournalMessage]) -> Child[object]:
    """The actor below `usage`: reads and writes data/usage."""

    async def run(inbox: Inbox[object]) -> None:
        inbox.started()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_keep, economy, journal)
            async for _ in inbox:
                pass
            nursery.cancel_scope.cancel()

    return Child("keeper", run, backoff=RETRY)


async def _keep(economy: Economy, journal: Ref[JournalMessage]) -> None:
    await economy.opened.wait()
    from pegasus.models import keep_books

    await keep_books(economy.books(), journal)
