"""Usage of models: every call is admitted by the budgets, recorded, and written to `data/usage/<YYYY-MM>.jsonl`.

`UsageTracker` is the middleware that does it. It never waits for the disk: records are counted in memory at once and gather in
`unsaved`; the actor `serve_usage` writes them together once a second, without a sync. A power failure may lose the last of them,
which is the price for counting without slowing down a turn.

Each budget of the settings is one of the `SCOPES`: all calls of a day or a month, the calls of one task or message, or those of
one chat or guest on one day. A call counts with the most that it can take: its prompt by an upper estimate, and as many tokens as
its answer may have. So a budget is reached a little early, never late. Calls at the same time reserve what they may use. A call
that fits only without the reservations waits until others have ended; one that does not fit even then is refused. With a budget,
the first call waits until the records of this month and the last have been read, so that a restart is no way around a budget.

Records have ids, and reading counts each id once: when a write was interrupted, it is repeated. `report.py` shows the sums.

A record is one line of `data/usage/<YYYY-MM>.jsonl`. The sums are only in memory: they are what the lines add up to, and are computed
from them at a start. Days and months are those of UTC, at the moment when a call began.

    {"id":"5e1b9c02aa-7","ts":1795348800000,"model":"anthropic/claude-sonnet-5-5","role":"subagent",
     "channel":{"type":"slack","channelId":"C1"},"item":12,"taskId":"t-1","promptTokens":18200,"completionTokens":240,
     "cacheReadTokens":17900,"cost":0.00479}

The cost is part of the record, so that a change of prices does not change the past.

What a crash leaves behind: the records of the last second are lost, everything before is in the file. A torn last line is
set aside when the file is read. The reservations are kept in memory only: they belong to calls that the crash has ended.

Only this month and the last are read, because the budgets by day and month look back no further and the report shows no more. The
last month is read for tasks that began before this one: their budget has no calendar.

    Child("keeper", usage_keeper, tracker, journal)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, timedelta
from functools import cache, partial
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs
import trio

from actors import ActorError, Ref, Signal
from pegasus.formatting import format_day
from pegasus.messages import Address, Json, Metadata
from pegasus.models.base import Label, ModelError, ModelRequest, ModelResponse, Usage, UserTurn
from pegasus.models.catalog import PriceList
from pegasus.models.client import ModelCall, Next
from pegasus.observe import Activity, ModelCallEnded, get_logger
from pegasus.storage import JournalMessage, ReserveBudget, SettleBudget
from pegasus.wire import WireError, encode_json, from_wire, to_wire

if TYPE_CHECKING:
    from pegasus.settings import BudgetSettings


DAYS, CHATS, TASKS, ITEMS, MODELS = 70, 5000, 2000, 1000, 500
"""Number of sums of each kind that are kept. The least recently used are forgotten first: memory is bounded."""

_Key = TypeVar("_Key")
_LATEST: Final = 253_402_300_800_000
"""The year 10000 in ms, which no calendar has."""
_MOST_TOKENS: Final = 1 << 53
"""Numbers of tokens from which on a line is damaged: beyond them sums would not be exact."""
_HIGHEST_COST: Final = 1e9
"""Dollars of one call from which on a line is damaged."""


def format_dollars(cost: float) -> str:
    """Return `$0.12`, with more digits below ten cents."""
    if cost >= 0.1 or cost == 0:
        return f"${cost:,.2f}"
    return f"${cost:.4f}" if cost >= 0.0001 else "less than $0.0001"


# ------------------------------------------------------------------ records


@attrs.frozen(kw_only=True)
class UsageRecord:
    """Usage of one call. Its fields, in camelCase, are the keys of a line; fields that hold their default are absent."""

    id: str
    """Unique: a line that was written twice counts once."""
    ts: int
    """Beginning of the call: wall clock, ms."""
    model: str
    """`<provider>/<model>`."""
    role: str
    """Role of the call, as in `Label.role`."""
    channel: Address | None = None
    """Chat that the call was for."""
    item: int | None = None
    """Message that the call was for: its number in the queue."""
    task_id: str = ""
    """Task that the call was for; "" for none."""
    guest: str = ""
    """Person that the call was for, if they were no owner."""
    prompt_tokens: int
    """Tokens of the whole prompt, the cached ones included."""
    completion_tokens: int
    """Tokens of the answer, thinking included."""
    cache_read_tokens: int = 0
    """Part of the prompt that came from the provider's cache."""
    cache_write_tokens: int = 0
    """Part of the prompt that went into the provider's cache."""
    cost: float | None = None
    """Dollars, None if no price is known."""
    estimated: bool = False
    """True if the provider did not count: the answer broke off, or its server never counts."""
    failed: str = ""
    """Kind of the error, "cancelled", "defect", or "" if the call was answered."""


def lines_by_month(records: Iterable[UsageRecord]) -> dict[str, list[dict[str, Json]]]:
    """Return the lines of records by YYYY-MM, in their order."""
    months: defaultdict[str, list[UsageRecord]] = defaultdict(list)
    for record in records:
        months[format_day(record.ts)[:7]].append(record)
    return {month: [to_wire(record) for record in written] for month, written in months.items()}


def parse_record(line: Metadata) -> UsageRecord:
    """Return the record of a line of the file. Raises WireError for anything else.

    Numbers are checked as well as types: a wrong one would make every sum, and with it the budgets, wrong.
    """
    record = from_wire(line, UsageRecord)
    tokens = (record.prompt_tokens, record.completion_tokens, record.cache_read_tokens, record.cache_write_tokens)
    if not 0 <= record.ts < _LATEST:
        raise WireError("ts", "not a time")
    if any(not 0 <= count < _MOST_TOKENS for count in tokens):
        raise WireError("promptTokens", "not a number of tokens")
    if record.cost is not None and not 0 <= record.cost < _HIGHEST_COST:
        raise WireError("cost", "not an amount of money")
    return record


# ------------------------------------------------------------------ sums


@attrs.define(eq=False, repr=False)
class UsageSum:
    """Usage of several calls together."""

    calls: int = 0
    """Number of calls, those that failed included."""
    prompt: int = 0
    """Tokens of all prompts."""
    completion: int = 0
    """Tokens of all answers."""
    cache_read: int = 0
    """Tokens of the prompts that came from a cache."""
    cache_write: int = 0
    """Tokens of the prompts that went into a cache."""
    cost: float = 0.0
    """Dollars, of the calls that have a price."""
    unpriced: int = 0
    """Calls without a price."""
    estimated: int = 0
    """Calls that the provider did not count."""

    @property
    def tokens(self) -> int:
        """Tokens in and out."""
        return self.prompt + self.completion

    def add(self, record: UsageRecord) -> None:
        """Add the tokens and the cost of a call to the sums."""
        self.calls += 1
        self.prompt += record.prompt_tokens
        self.completion += record.completion_tokens
        self.cache_read += record.cache_read_tokens
        self.cache_write += record.cache_write_tokens
        self.cost += record.cost or 0.0
        self.unpriced += record.cost is None
        self.estimated += record.estimated

    def report(self) -> dict[str, Json]:
        """Return the sum as JSON, for the control call `usage`."""
        return {
            "calls": self.calls,
            "promptTokens": self.prompt,
            "completionTokens": self.completion,
            "cacheReadTokens": self.cache_read,
            "cacheWriteTokens": self.cache_write,
            "cost": round(self.cost, 6),
            "unpricedCalls": self.unpriced,
            "estimatedCalls": self.estimated,
        }


NOTHING: Final = UsageSum()
"""Sum of no calls. Not to be added to."""


class UsageLedger:
    """All sums."""

    def __init__(self, records: Iterable[UsageRecord] = ()) -> None:
        self.days: dict[str, UsageSum] = {}
        """By YYYY-MM-DD."""
        self.months: dict[str, UsageSum] = {}
        """By YYYY-MM."""
        self.chats: dict[tuple[str, Address], UsageSum] = {}
        """By day and chat."""
        self.models: dict[tuple[str, str], UsageSum] = {}
        """By day or month, and model."""
        self.tasks: dict[str, UsageSum] = {}
        """By task id."""
        self.items: dict[int, UsageSum] = {}
        """By the message's number in the queue."""
        self.guests: dict[tuple[str, str], UsageSum] = {}
        """By day and guest."""
        for record in records:
            self.add(record)

    def add(self, record: UsageRecord) -> None:
        """Add a call to every sum that it belongs to."""
        day = format_day(record.ts)
        _add(self.days, day, record, DAYS)
        _add(self.months, day[:7], record, DAYS)
        _add(self.models, (day, record.model), record, MODELS)
        _add(self.models, (day[:7], record.model), record, MODELS)
        if record.channel is not None:
            _add(self.chats, (day, record.channel), record, CHATS)
        if record.task_id:
            _add(self.tasks, record.task_id, record, TASKS)
        if record.item is not None:
            _add(self.items, record.item, record, ITEMS)
        if record.guest:
            _add(self.guests, (day, record.guest), record, CHATS)


def _add(sums: dict[_Key, UsageSum], key: _Key, record: UsageRecord, max_sums: int) -> None:
    """Add to the sum of a key. The most recently used sum stands last, and the first one goes when there are too many."""
    total = sums.pop(key, None)
    if total is None:
        total = UsageSum()
        if len(sums) >= max_sums:
            del sums[next(iter(sums))]
    sums[key] = total
    total.add(record)


LOOK: Final = 1.0
"""Seconds until a call is tried again for which other nodes have reserved what it needs."""
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
    """A budget that a call falls under."""

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
    group: Hashable = None
    """Group that the call is in, as the scope has named it."""

    def parts(self, wanted: Amount) -> Iterator[tuple[str, float, float]]:
        """Yield name, limit and wanted amount of what it limits: dollars, tokens or both, as nodes name it to each other."""
        group = "/".join(map(str, self.group if isinstance(self.group, tuple) else (self.group,)))
        for kind, limit, amount in (("cost", self.cost, wanted.cost), ("tokens", self.tokens, wanted.tokens)):
            if limit:
                yield f"{self.scope.name}_{kind}/{group}", limit, amount

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
    shared: tuple[str, ...] = ()
    """Names of the budgets at which it is reserved for all nodes together, under `id`."""
    id: str = ""
    """Name of these reservations."""


class UsageTracker:
    """Middleware that counts calls and enforces budgets. Calls of the stand-in are neither counted nor refused.

    It lives outside the actor that writes the files, so a crash of that actor loses no record.

    clock: wall clock, ms since the epoch. rng: makes the ids of records unique among processes. activity: is told of every call, also
    of those that failed and of the stand-in's.

    Example::

        tracker = UsageTracker(clock, Random(), settings.budget, PriceList(settings.prices, settings.providers))
        service = ModelService(…, usage=tracker)
        Child("keeper", usage_keeper, tracker, journal)
    """

    def __init__(
        self,
        clock: Callable[[], int],
        rng: Random,
        budget: BudgetSettings,
        prices: PriceList,
        activity: Activity | None = None,
    ) -> None:
        self._activity = activity or Activity(clock)
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
        self.journal: Ref[JournalMessage] | None = None
        """Reserves budgets for all nodes together; None: there is one node, and the sums here are all there is."""
        self._open: set[_OpenCall] = set()
        """Calls under way, with their reservations."""
        self._call_ended = Signal()
        """Given whenever a call ends."""
        process = f"{rng.getrandbits(40):010x}"
        self._ids = (f"{process}-{number}" for number in count(1))
        """Ids of records and reservations, unique among processes."""
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
        """Make the call if no budget forbids it, record what it used, and report it to the activity. Raises as `_make` does."""
        began, start = self.clock(), trio.current_time()
        response: ModelResponse | None = None
        failed = ""
        try:
            response = await self._make(call, next)
        except BaseException as error:
            failed = _kind_of(error)
            raise
        finally:
            self._report(call, response, failed, began, trio.current_time() - start)
        return response

    def _report(self, call: ModelCall, response: ModelResponse | None, failed: str, began: int, seconds: float) -> None:
        """Report a call that has ended. Tokens are those that the provider has counted, so a failed call has none."""
        request, name = call.request, call.target.name
        used = response.usage if response is not None else Usage()
        price = None if call.target.is_offline else self._price_of(name)
        self._activity.model_called(
            ModelCallEnded(
                model=name,
                role=request.label.role,
                address=None if request.label.channel is None else request.label.channel.address,
                item=request.label.item,
                task_id=request.label.task_id,
                began=began,
                seconds=seconds,
                prompt_tokens=used.prompt_tokens,
                completion_tokens=used.completion_tokens,
                cache_read_tokens=used.cache_read_tokens,
                cache_write_tokens=used.cache_write_tokens,
                cost=None if price is None else price.cost(used),
                failed=failed,
                stop_reason=response.stop_reason if response is not None else "",
                content=partial(_texts_of, request, response),
            )
        )

    async def _make(self, call: ModelCall, next: Next) -> ModelResponse:
        """Make the call if no budget forbids it, and record what it used.

        Raises ModelError of kind "budget" if a budget forbids it. A call that fails or is cancelled is recorded with an estimate if it
        had begun to answer; one that never began is taken to have cost nothing.
        """
        if call.target.is_offline:
            return await next(call)
        self.wanted.set()
        opened = await self._admit(call) if self._budgets else _OpenCall(call.request.label, self.clock(), Amount())
        self._open.add(opened)
        before = call.stream.relay.characters
        try:
            response = await next(call)
        except BaseException as error:
            if streamed := call.stream.relay.characters - before:
                usage = call.target.counter.estimate_usage(call.request, "x" * streamed)
                self._record(call.target.name, opened, usage, estimated=True, failed=_kind_of(error))
            else:
                self._settle(opened, Amount())
            raise
        finally:
            self._open.discard(opened)
            self._call_ended.notify()
        usage = response.usage
        is_counted = bool(usage.prompt_tokens or usage.completion_tokens)
        if not is_counted:
            usage = call.target.counter.estimate_usage(call.request, response.text)
        self._record(call.target.name, opened, usage, estimated=not is_counted)
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
        nothing = Amount()
        shared = tuple(part[0] for limit in self.limits(label) for part in limit.parts(nothing))
        opened = _OpenCall(label, self.clock(), nothing, shared, next(self._ids))
        self._record(name, opened, usage, estimated=estimated)

    async def _admit(self, call: ModelCall) -> _OpenCall:
        """Return the call with what it may use at most, when it may begin. Raises ModelError of kind "budget" if a budget forbids it.

        The most is an upper estimate of the prompt, and an answer of full length. A call without a price has tokens only: budgets in
        dollars cannot bound it.

        There are two checks. Without the reservations, a refusal is final: other calls can only use more. With them, it may pass:
        the other calls usually need less than they reserved, so this one waits until any call has ended and then checks again.
        Cancelled while waiting: nothing is reserved. Other nodes are asked last. Where they have reserved what the call needs, it is
        tried again after a moment.
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
                opened = _OpenCall(call.request.label, self.clock(), wanted)
                if self.journal is None:
                    return opened
                if shared := await self._reserve(self.journal, call, opened, limits):
                    return shared
                # No call that ends cuts this short: those that are refused would wake each other without a pause.
                await trio.sleep(LOOK)
            else:
                await self._call_ended.wait()

    async def _reserve(
        self, journal: Ref[JournalMessage], call: ModelCall, opened: _OpenCall, limits: Sequence[BudgetLimit]
    ) -> _OpenCall | None:
        """Reserve a call for all nodes together; None if other nodes have reserved what it needs.

        Raises ModelError of kind "budget" if all have spent too much. While the database is down, no call begins.
        """
        opened = attrs.evolve(opened, id=next(self._ids))
        self._open.add(opened)  # other calls of this node must not take the same room meanwhile
        try:
            for limit in limits:
                for name, most, amount in limit.parts(opened.reserved):
                    spent = await journal.ask(ReserveBudget, name, opened.id, amount, most)
                    if spent is not None:
                        self._settle(opened, Amount())
                        used = (
                            Amount(spent, 0)
                            if name.startswith(f"{limit.scope.name}_cost/")
                            else Amount(0.0, int(spent))
                        )
                        if reason := limit.refusal(used, opened.reserved):
                            raise ModelError(f"{call.target.name}: {reason}", kind="budget")
                        return None
                    self._open.discard(opened)
                    opened = attrs.evolve(opened, shared=(*opened.shared, name))
                    self._open.add(opened)
        except trio.Cancelled:
            self._settle(opened, Amount())
            raise
        finally:
            self._open.discard(opened)
            self._call_ended.notify()
        return opened

    def _settle(self, opened: _OpenCall, used: Amount) -> None:
        """End the reservations of a call at all nodes."""
        if self.journal is None:
            return
        for name in opened.shared:
            spent = used.cost if "_cost/" in name else used.tokens
            with suppress(ActorError):
                self.journal.tell_nowait(SettleBudget(name, opened.id, spent))

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
                limits.append(BudgetLimit(scope, cost, tokens, Amount(spent.cost, spent.tokens), reserved, day, group))
        return limits

    def _record(self, name: str, opened: _OpenCall, usage: Usage, *, estimated: bool, failed: str = "") -> None:
        """Count a call, and keep its record until it is written.

        estimated: the provider did not count. failed: as `_kind_of`, "" if the call was answered. A model without a price is logged
        once.
        """
        price = self._price_of(name)
        if price is None and name not in self._unpriced:
            self._unpriced.add(name)
            _log.warning("no price is known for a model: its calls count in tokens only", model=name)
        label = opened.label
        record = UsageRecord(
            id=next(self._ids),
            ts=opened.ts,
            model=name,
            role=label.role,
            channel=None if label.channel is None else label.channel.address,
            item=label.item,
            task_id=label.task_id,
            guest=label.guest,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            cache_read_tokens=usage.cache_read_tokens,
            cache_write_tokens=usage.cache_write_tokens,
            cost=None if price is None else round(price.cost(usage), 9),
            estimated=estimated,
            failed=failed,
        )
        self.add_unsaved(newer=[record])
        self.ledger.add(record)
        self._settle(opened, Amount(record.cost or 0.0, usage.prompt_tokens + usage.completion_tokens))

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


def _kind_of(error: BaseException) -> str:
    """Return the kind of a ModelError, "cancelled" for what ended the call from outside, else "defect"."""
    if isinstance(error, ModelError):
        return error.kind
    return "defect" if isinstance(error, Exception) else "cancelled"


def _texts_of(request: ModelRequest, response: ModelResponse | None) -> Mapping[str, Json]:
    """Return the texts of a call, as traces have them: the newest turn, and the answer with its calls.

    Earlier turns are in the traces of earlier calls. Pictures are named only.
    """
    answer: list[Json] = []
    if response is not None:
        answer = [{"type": "text", "content": response.text}] if response.text else []
        answer += [
            {"type": "tool_call", "id": call.id, "name": call.name, "arguments": dict(call.arguments)}
            for call in response.calls
        ]
    turn = request.turns[-1] if request.turns else None
    if isinstance(turn, UserTurn):
        turn = attrs.evolve(turn, images=tuple(attrs.evolve(image, data="") for image in turn.images))
    asked: Json = "" if turn is None else encode_json(to_wire(turn))
    return {
        "gen_ai.input.messages": [{"role": "user", "parts": [{"type": "text", "content": asked}]}],
        "gen_ai.output.messages": [{"role": "assistant", "parts": answer}],
    }
