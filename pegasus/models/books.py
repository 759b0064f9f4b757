"""The books of this process: who may call, what was used, and what of it is not written yet.

Nothing here waits for the disk: records gather in `unsaved`, and `pegasus.models.bookkeeper` writes them. Where a budget is
set, the first call waits until what was used before is read, so that a restart is no way around it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from random import Random
from typing import TYPE_CHECKING, Final

import trio

from pegasus.messages import Address
from pegasus.models.base import Label, ModelError, ModelRequest, Usage
from pegasus.models.budget import Amount, Limit, is_limited, refusal
from pegasus.models.ledger import NOTHING, Ledger, Record, Sum, day_of
from pegasus.models.prices import Prices
from pegasus.models.sizing import Sizer, text_size
from pegasus.observe import get_logger

if TYPE_CHECKING:
    from pegasus.settings import BudgetSettings

MOST_UNSAVED: Final = 10_000
"""Records that are kept while the disk refuses them; then the oldest are counted, but not written any more."""

_log = get_logger("usage")


class Books:
    """A Meter. clock: wall clock, ms. rng: makes the ids of records. loaded: set when `ledger` knows what was used before."""

    def __init__(self, clock: Callable[[], int], rng: Random, budget: BudgetSettings, prices: Prices) -> None:
        self._ledger = Ledger()
        self._uncounted: list[Record] = []
        self.sizer = Sizer()
        self.loaded = trio.Event()
        self.wanted = trio.Event()
        self.news = trio.Event()
        self.unsaved: list[Record] = []
        self.clock = clock
        self.budget = budget
        self.prices = prices
        self._open: set[_Ticket] = set()
        self._settled = trio.Event()
        self._name, self._count = f"{rng.getrandbits(40):010x}", 0
        self._unpriced: set[str] = set()

    def load(self, records: Iterable[Record]) -> None:
        """What was used before, from the files; a record that stands there twice counts once. Only the first time."""
        if not self.loaded.is_set():
            self._ledger = Ledger(_each_once(chain(records, self.unsaved)))
            self._uncounted.clear()
            self.loaded.set()

    @property
    def ledger(self) -> Ledger:
        """What was used until now. Calls are counted when somebody looks, or when they are written: not while a reply waits for it."""
        self._count_up()
        return self._ledger

    def _count_up(self) -> None:
        uncounted, self._uncounted = self._uncounted, []
        for record in uncounted:
            self._ledger.add(record)

    def take_unsaved(self, most: int) -> tuple[Record, ...]:
        """The oldest that are not written; they are not here any more (see `put_back`), and counted."""
        self._count_up()
        taken, self.unsaved = tuple(self.unsaved[:most]), self.unsaved[most:]
        if not self.unsaved:
            self.news = trio.Event()
        return taken

    def put_back(self, records: Iterable[Record]) -> None:
        """They could not be written."""
        self.unsaved = [*records, *self.unsaved]
        self._trim()
        self.news.set()

    # ------------------------------------------------------------ admission

    async def admit(self, model: str, request: ModelRequest) -> _Ticket:
        """Let a call begin. Waits while only what other calls have set aside is in its way. Raises ModelError ("budget")."""
        self.wanted.set()
        if not is_limited(self.budget):
            return self._ticket(model, request, 0, Amount())
        await self.loaded.wait()
        size = self.sizer.size(request)
        wanted = self._at_most(model, size, request.max_tokens)
        while True:
            limits = self.limits(request.label)
            if why := refusal(limits, wanted, count_reserved=False):
                raise ModelError(f"{model}: {why}", kind="budget")
            if not refusal(limits, wanted, count_reserved=True):
                return self._ticket(model, request, size, wanted)
            await self._settled.wait()

    def _at_most(self, model: str, size: int, completion: int) -> Amount:
        prompt = self.sizer.at_most(model, size)
        price = self.prices.of(model)
        return Amount(price.at_most(prompt, completion) if price else 0.0, prompt + completion)

    def limits(self, label: Label) -> list[Limit]:
        """The budgets that a call with this label falls under, those that are set."""
        day, task, address = day_of(self.clock()), label.task_id, address_of(label)
        month, ledger = day[:7], self.ledger
        found = [
            self._limit("today", "daily", day, ledger.days.get(day), lambda t: t.day == day),
            self._limit("this month", "monthly", day, ledger.months.get(month), lambda t: t.day[:7] == month),
        ]
        if task:
            spent = ledger.tasks.get(task)
            found.append(self._limit("by one task", "task", day, spent, lambda t: t.label.task_id == task))
        if address is not None:
            spent = ledger.chats.get((day, address))
            ours = lambda t: t.day == day and address_of(t.label) == address  # noqa: E731
            found.append(self._limit("in one chat a day", "channel_daily", day, spent, ours))
        return [limit for limit in found if limit.cost or limit.tokens]

    def _limit(self, what: str, scope: str, day: str, spent: Sum | None, counts: Callable[[_Ticket], bool]) -> Limit:
        cost, tokens = getattr(self.budget, f"{scope}_cost"), getattr(self.budget, f"{scope}_tokens")
        reserved = Amount()
        for ticket in self._open if cost or tokens else ():
            if counts(ticket):
                reserved = reserved.plus(ticket.wanted)
        used = spent or NOTHING
        return Limit(what, f"budget.{scope}", cost, tokens, Amount(used.cost, used.tokens), reserved, day)

    # ------------------------------------------------------------ what came of it

    def _ticket(self, model: str, request: ModelRequest, size: int, wanted: Amount) -> _Ticket:
        ticket = _Ticket(self, model, request, self.clock(), size, wanted)
        self._open.add(ticket)
        return ticket

    def close(self, ticket: _Ticket, usage: Usage | None, *, estimated: bool, failed: str) -> None:
        """The call is over. usage None: nothing was used."""
        self._open.discard(ticket)
        self._settled.set()
        self._settled = trio.Event()
        if usage is None:
            return
        label = ticket.label
        record = Record(
            self._next_id(),
            ticket.ts,
            ticket.model,
            usage,
            self._cost(ticket.model, usage),
            label.role,
            address_of(label),
            label.item,
            label.task_id,
            estimated,
            failed,
        )
        self._uncounted.append(record)
        self.unsaved.append(record)
        self._trim()
        self.news.set()

    def _next_id(self) -> str:
        self._count += 1
        return f"{self._name}-{self._count}"

    def _cost(self, model: str, usage: Usage) -> float | None:
        price = self.prices.of(model)
        if price is None and model not in self._unpriced:
            self._unpriced.add(model)
            _log.warning("no price is known for a model: its calls count in tokens only", model=model)
        return None if price is None else price.cost(usage)

    def _trim(self) -> None:
        if len(self.unsaved) > MOST_UNSAVED:
            self._count_up()
            del self.unsaved[: len(self.unsaved) - MOST_UNSAVED]


class _Ticket:
    """A call under way."""

    def __init__(self, books: Books, model: str, request: ModelRequest, ts: int, size: int, wanted: Amount) -> None:
        self.model = model
        self.label = request.label
        self.ts = ts
        self.wanted = wanted
        self._books = books
        self._request = request
        self._size = size

    @property
    def day(self) -> str:
        """When it began, YYYY-MM-DD."""
        return day_of(self.ts)

    def used(self, usage: Usage, text: str) -> None:
        """As in Ticket."""
        if not (usage.prompt_tokens or usage.completion_tokens):
            self._books.close(self, Usage(self._prompt(), text_size(text)), estimated=True, failed="")
            return
        self._books.sizer.learn(self.model, self._size, usage.prompt_tokens)
        self._books.close(self, usage, estimated=False, failed="")

    def broke_off(self, said: int, why: str) -> None:
        """As in Ticket. What never began to answer is taken to have cost nothing."""
        usage = Usage(self._prompt(), text_size("x" * said)) if said else None
        self._books.close(self, usage, estimated=True, failed=why)

    def _prompt(self) -> int:
        return self._size or self._books.sizer.size(self._request)


def address_of(label: Label) -> Address | None:
    """The chat that a call is for."""
    return None if label.channel is None else label.channel.address


def _each_once(records: Iterable[Record]) -> Iterator[Record]:
    seen: set[str] = set()
    for record in records:
        if not record.id or record.id not in seen:
            seen.add(record.id)
            yield record
