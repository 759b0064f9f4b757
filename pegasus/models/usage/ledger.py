"""Records of model calls, and their sums by day, month, chat, task, message and model.

A record is one line of `data/usage/<YYYY-MM>.jsonl`. The sums are only in memory: they are what the lines add up to, and are computed
from them at a start. Days and months are those of UTC, at the moment when a call began.

    {"id":"5e1b9c02aa-7","ts":1795348800000,"model":"anthropic/claude-sonnet-5-5","role":"subagent",
     "channel":{"type":"slack","channelId":"C1"},"item":12,"taskId":"t-1","promptTokens":18200,"completionTokens":240,
     "cacheReadTokens":17900,"cost":0.00479}

The cost is part of the record, so that a change of prices does not change the past.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final, TypeVar

import attrs

from pegasus.formatting import format_day
from pegasus.messages import Address, Json, Metadata
from pegasus.models.base import Usage
from pegasus.wire import WireError, from_wire, to_wire

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
    """Kind of the error, "cancelled", or "" if the call was answered."""

    @property
    def usage(self) -> Usage:
        """Tokens of the call."""
        return Usage(self.prompt_tokens, self.completion_tokens, self.cache_read_tokens, self.cache_write_tokens)


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
    """Usage of several calls together.

    Example: `ledger.days["2026-11-22"].tokens`.
    """

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
    """All sums.

    Example::

        ledger = UsageLedger(records)
        ledger.add(record)
        ledger.items[12].cost           # dollars for the message with this number
    """

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
