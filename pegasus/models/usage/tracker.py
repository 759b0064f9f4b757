"""Usage of models: every call is admitted by the budgets, recorded, and written to `data/usage/<YYYY-MM>.jsonl`.

`UsageTracker` is the middleware that does it. It never waits for the disk: records are counted in memory at once and gather in
`unsaved`; the actor `serve_usage` writes them together once a second, without a sync. A power failure may lose the last of them,
which is the price for counting without slowing down a turn.

Each budget of the settings is one of the `SCOPES`: all calls of a day or a month, the calls of one task or message, or those of
one chat or guest on one day. A call counts with the most that it can take: its prompt by an upper estimate, and as many tokens as
its answer may have. So a budget is reached a little early, never late. Calls at the same time reserve what they may use. A call
that fits only without the reservations waits until others have ended; one that does not fit even then is refused. With a budget,
the first call waits until the records of this month and the last have been read, so that a restart is no way around a budget.

Records have ids, and reading counts each id once: when a write was interrupted, it is repeated. `ledger.py` has the records and
their sums, `report.py` shows them.

The files are read and written in `keeper.py`, which also says what a crash leaves behind. The reservations are kept in memory only:
they belong to calls that the crash has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from datetime import date, timedelta
from functools import cache
from random import Random
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from actors import Signal
from pegasus.formatting import format_day
from pegasus.messages import Json
from pegasus.models.base import Label, ModelError, ModelResponse, Usage
from pegasus.models.catalog import PriceList
from pegasus.models.client import ModelCall, Next
from pegasus.models.usage.ledger import (
    NOTHING,
    UsageLedger,
    UsageRecord,
    UsageSum,
    format_dollars,
)
from pegasus.observe import get_logger

if TYPE_CHECKING:
    from pegasus.settings import BudgetSettings

MOST_UNSAVED: Final = 10_000
"""Records that are kept while the disk refuses them. Beyond that the oldest are counted, but not written any more."""

_log = get_logger("usage")


# ------------------------------------------------------------------ budgets


@attrs.frozen(eq=False, repr=False)
class Amount:
    """Amount of usage."""

    cost: float = 0.0
    """Dollars."""
    tokens: int = 0
    """Tokens in and out."""

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.cost + other.cost, self.tokens + other.tokens)


@attrs.frozen(eq=False, repr=False)
class BudgetScope:
    """Calls that a budget is about: each group of calls, such as the calls of one day, may use the whole budget."""

    name: str
    """Beginning of the keys in `[budget]`; each has `_cost` and `_tokens`."""
    what: str
    """For people."""
    group: Callable[[str, Label], Hashable]
    """Returns the group that a call of this day (YYYY-MM-DD) with this label is in; None if the budget is not about such a call."""
    sums: Callable[[UsageLedger], Mapping[Any, UsageSum]]
    """Returns the sums by group."""
    renewal: Callable[[date], date] | None = None
    """Returns the first day after this one that has a new budget; None for budgets that end with what they are about."""


def _next_day(day: date) -> date:
    return day + timedelta(days=1)


def _next_month(day: date) -> date:
    return (day.replace(day=1) + timedelta(days=32)).replace(day=1)


def _chat_of_day(day: str, label: Label) -> Hashable:
    """Return the chat that a call is for, on its day; None for a call without a chat."""
    return None if label.channel is None else (day, label.channel.address)


def _guest_of_day(day: str, label: Label) -> Hashable:
    """Return the guest that a call is for, on its day; None for an owner's work."""
    return (day, label.guest) if label.guest else None


SCOPES: Final = (
    BudgetScope("daily", "today", lambda day, label: day, lambda ledger: ledger.days, _next_day),
    BudgetScope("monthly", "this month", lambda day, label: day[:7], lambda ledger: ledger.months, _next_month),
    BudgetScope("task", "by one task", lambda day, label: label.task_id or None, lambda ledger: ledger.tasks),
    BudgetScope("message", "for one message", lambda day, label: label.item, lambda ledger: ledger.items),
    BudgetScope("guest_daily", "for one guest a day", _guest_of_day, lambda ledger: ledger.guests, _next_day),
    BudgetScope("channel_daily", "in one chat a day", _chat_of_day, lambda ledger: ledger.chats, _next_day),
)
"""In the order in which they are checked."""


@attrs.frozen(eq=False, repr=False)
class BudgetLimit:
    """A budget that a call falls under.

    Example: `BudgetLimit(SCOPES[0], 5.0, 0, Amount(4.99), Amount(), "2026-11-22").refusal(Amount(4.99),
    Amount(0.1))` says why.
    """

    scope: BudgetScope
    """Calls that it is about."""
    cost: float
    """Dollars that may be used, 0: any amount."""
    tokens: int
    """Tokens that may be used, 0: any number."""
    spent: Amount
    """Amount that calls which have ended have used."""
    reserved: Amount
    """Amount that calls under way may still use."""
    day: str
    """Day of the call, YYYY-MM-DD."""

    def refusal(self, used: Amount, wanted: Amount) -> str:
        """Return why a call that may use `wanted` must not begin, as one sentence for people; "" if it may.

        used: `spent`, with or without `reserved`. Free calls are never refused because of money.
        """
        what, key = self.scope.what, f"budget.{self.scope.name}"
        if self.cost and wanted.cost and used.cost + wanted.cost > self.cost:
            amounts = f"limit {format_dollars(self.cost)} {what}, used {format_dollars(used.cost)}"
            amount, key = format_dollars(wanted.cost), f"{key}_cost"
        elif self.tokens and used.tokens + wanted.tokens > self.tokens:
            amounts = f"limit {self.tokens:,} tokens {what}, used {used.tokens:,}"
            amount, key = f"{wanted.tokens:,}", f"{key}_tokens"
        else:
            return ""
        renewal = self.scope.renewal
        when = f"it is fresh from {renewal(date.fromisoformat(self.day))} 00:00 UTC; " if renewal else ""
        return (
            f"the budget does not allow this call: {amounts}, this call up to {amount} "
            f"({when}whoever runs me can raise {key})"
        )


# ------------------------------------------------------------------ calls


@attrs.frozen(eq=False, repr=False)
class _OpenCall:
    """A call under way. It is kept until it ends, because its reservation counts towards the budgets."""

    label: Label
    """Purpose of the call, by which it falls under budgets."""
    ts: int
    """Its beginning: wall clock, ms."""
    reserved: Amount
    """Amount that it may use; nothing where no budget is set."""


class UsageTracker:
    """Middleware that counts calls and enforces budgets. Calls of the stand-in are neither counted nor refused.

    It lives outside the actor that writes the files, so a crash of that actor loses no record.

    clock: wall clock, ms since the epoch. rng: makes the ids of records unique among processes.

    Example::

        tracker = UsageTracker(clock, Random(), settings.budget, PriceList(settings.prices, settings.providers))
        service = ModelService(…, usage=tracker)
        Child("keeper", usage_keeper, tracker, journal)
    """

    def __init__(self, clock: Callable[[], int], rng: Random, budget: BudgetSettings, prices: PriceList) -> None:
        self.clock = clock
        """Returns the wall clock, ms since the epoch. Its UTC day is the day of the budgets."""
        self.ledger = UsageLedger()
        """Sums of all calls so far; before `loaded`, only of those since the start."""
        self.loaded = trio.Event()
        """Set when `ledger` contains the calls before this start."""
        self.wanted = trio.Event()
        """Set when somebody needs the calls before this start: the keeper then reads them."""
        self.news = trio.Event()
        """Set while `unsaved` is not empty."""
        self.unsaved: list[UsageRecord] = []
        """Records that are not written yet, oldest first."""
        self._open: set[_OpenCall] = set()
        """Calls under way, with their reservations."""
        self._call_ended = Signal()
        """Given whenever a call ends."""
        self._process_id, self._records = f"{rng.getrandbits(40):010x}", 0
        """The two parts of a record's id: one for this process, and a number."""
        self._unpriced: set[str] = set()
        """Models without a price that were logged."""
        self.configure(budget, prices)

    def configure(self, budget: BudgetSettings, prices: PriceList) -> None:
        """Use other budgets and prices from the next call on. Records keep the cost by the prices at their time."""
        self._price_of = cache(prices.find)
        """Returns the price of a model, which is looked up once; None if it is unknown."""
        amounts = (
            (scope, getattr(budget, f"{scope.name}_cost"), getattr(budget, f"{scope.name}_tokens")) for scope in SCOPES
        )
        self._budgets = [(scope, cost, tokens) for scope, cost, tokens in amounts if cost or tokens]

    async def __call__(self, call: ModelCall, next: Next) -> ModelResponse:
        """Make the call if no budget forbids it, and record what it used.

        Raises ModelError of kind "budget" if a budget forbids it. A call that fails or is cancelled is recorded with an estimate if it
        had begun to answer; one that never began is taken to have cost nothing.
        """
        if call.target.is_offline:
            return await next(call)
        self.wanted.set()
        reserved = await self._admit(call) if self._budgets else Amount()
        opened = _OpenCall(call.request.label, self.clock(), reserved)
        self._open.add(opened)
        before = call.stream.relay.characters
        try:
            response = await next(call)
        except BaseException as error:
            if streamed := call.stream.relay.characters - before:
                usage = call.target.counter.estimate_usage(call.request, "x" * streamed)
                failed = getattr(error, "kind", "cancelled")
                self._record(call.target.name, call.request.label, opened.ts, usage, estimated=True, failed=failed)
            raise
        finally:
            self._open.discard(opened)
            self._call_ended.notify()
        is_counted = bool(response.usage.prompt_tokens or response.usage.completion_tokens)
        usage = response.usage
        if not is_counted:
            usage = call.target.counter.estimate_usage(call.request, response.text)
        self._record(call.target.name, call.request.label, opened.ts, usage, estimated=not is_counted)
        return response

    async def admit_other(self, name: str, label: Label, tokens: int) -> None:
        """Raise ModelError of kind "budget" if a budget forbids a call that is no conversation (speech in or out).

        name: `<provider>/<model>`. tokens: about what it will use.
        """
        self.wanted.set()
        if not self._budgets:
            return
        await self.loaded.wait()
        price = self._price_of(name)
        wanted = Amount(price.at_most(tokens, tokens) if price else 0.0, tokens)
        for limit in self.limits(label):
            if reason := limit.refusal(limit.spent + limit.reserved, wanted):
                raise ModelError(f"{name}: {reason}", kind="budget")

    def count_other(self, name: str, label: Label, usage: Usage, *, estimated: bool) -> None:
        """Count a call that is no conversation, when it was answered."""
        self._record(name, label, self.clock(), usage, estimated=estimated)

    async def _admit(self, call: ModelCall) -> Amount:
        """Return what the call may use at most, when it may begin. Raises ModelError of kind "budget" if a budget forbids it.

        The most is an upper estimate of the prompt, and an answer of full length. A call without a price has tokens only: budgets in
        dollars cannot bound it.

        There are two checks. Without the reservations, a refusal is final: other calls can only use more. With them, it may pass:
        the other calls usually need less than they reserved, so this one waits until any call has ended and then checks again.
        Cancelled while waiting: nothing is reserved.
        """
        await self.loaded.wait()
        prompt, completion = call.target.counter.at_most(call.request), call.max_tokens
        price = self._price_of(call.target.name)
        wanted = Amount(price.at_most(prompt, completion) if price else 0.0, prompt + completion)
        while True:
            limits = self.limits(call.request.label)
            for limit in limits:
                if reason := limit.refusal(limit.spent, wanted):
                    raise ModelError(f"{call.target.name}: {reason}", kind="budget")
            if not any(limit.refusal(limit.spent + limit.reserved, wanted) for limit in limits):
                return wanted
            await self._call_ended.wait()

    def item_usage(self, n: int) -> Usage:
        """Return the tokens of all calls for a message so far, those of its tasks included. n: its number in the queue."""
        used = self.ledger.items.get(n, NOTHING)
        return Usage(used.prompt, used.completion, used.cache_read, used.cache_write)

    def item_cost(self, n: int) -> float | None:
        """Return the dollars of those calls so far; None if the price of one is not known."""
        used = self.ledger.items.get(n, NOTHING)
        return None if used.unpriced else used.cost

    def item_view(self, n: int) -> dict[str, Json]:
        """Return the usage of a message so far as JSON. It has no cost (dollars) if that is not known."""
        used, cost = self.item_usage(n), self.item_cost(n)
        tokens: dict[str, Json] = {
            "inputTokens": used.prompt_tokens,
            "outputTokens": used.completion_tokens,
            "cachedTokens": used.cache_read_tokens,
        }
        return tokens if cost is None else {**tokens, "cost": cost}

    def limits(self, label: Label) -> list[BudgetLimit]:
        """Return the budgets that are set and that a call with this label falls under."""
        day = format_day(self.clock())
        limits: list[BudgetLimit] = []
        for scope, cost, tokens in self._budgets:
            group = scope.group(day, label)
            if group is not None:
                spent = scope.sums(self.ledger).get(group, NOTHING)
                calls = (opened for opened in self._open if scope.group(format_day(opened.ts), opened.label) == group)
                reserved = sum((opened.reserved for opened in calls), Amount())
                limits.append(BudgetLimit(scope, cost, tokens, Amount(spent.cost, spent.tokens), reserved, day))
        return limits

    def _record(self, name: str, label: Label, ts: int, usage: Usage, *, estimated: bool, failed: str = "") -> None:
        """Count a call, and keep its record until it is written.

        ts: when it began. estimated: the provider did not count. failed: kind of the error, "" if the call was answered. A model
        without a price is logged once.
        """
        price = self._price_of(name)
        if price is None and name not in self._unpriced:
            self._unpriced.add(name)
            _log.warning("no price is known for a model: its calls count in tokens only", model=name)
        self._records += 1
        record = UsageRecord(
            id=f"{self._process_id}-{self._records}",
            ts=ts,
            model=name,
            role=label.role,
            channel=None if label.channel is None else label.channel.address,
            item=label.item,
            task_id=label.task_id,
            guest=label.guest,
            cost=None if price is None else round(price.cost(usage), 9),
            estimated=estimated,
            failed=failed,
            # What is kept for an hour matters to the cost only.
            **attrs.asdict(usage, filter=lambda field, _: field.name != "cache_hour_tokens"),
        )
        self.add_unsaved(newer=[record])
        self.ledger.add(record)

    # ------------------------------------------------------------ records and files

    def load(self, records: Iterable[UsageRecord]) -> None:
        """Take the records of the files, each id once. Only the first time: a keeper that was restarted must not count them again.

        Records that are not written yet are counted again with them, so that nothing is lost that happened while the files were read.
        """
        if not self.loaded.is_set():
            self.ledger = UsageLedger({record.id: record for record in (*records, *self.unsaved)}.values())
            self.loaded.set()

    def take_unsaved(self, limit: int) -> tuple[UsageRecord, ...]:
        """Remove and return the oldest records that are not written."""
        taken, self.unsaved = tuple(self.unsaved[:limit]), self.unsaved[limit:]
        if not self.unsaved:
            self.news = trio.Event()
        return taken

    def add_unsaved(self, *, older: Iterable[UsageRecord] = (), newer: Iterable[UsageRecord] = ()) -> None:
        """Keep records until they are written. older: those that could not be written stand before all others.

        The oldest ones beyond the limit are dropped. They stay counted in memory.
        """
        self.unsaved = [*older, *self.unsaved, *newer][-MOST_UNSAVED:]
        if self.unsaved:
            self.news.set()
