"""What calls have used: one record for each, and the sums of them by day, month, channel, task, message and model.

A record is one line of `data/usage/<YYYY-MM>.jsonl`; the sums are what the lines say, and are made of them at a start.
Days and months are those of UTC, and of the moment when the call began.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, NamedTuple, TypeVar

import attrs

from pegasus.messages import Address, Json
from pegasus.models.base import Usage

DAYS, CHATS, TASKS, ITEMS, MODELS = 70, 5000, 2000, 1000, 500
"""How many of each are remembered, those least lately used forgotten first: memory is bounded."""

K = TypeVar("K")
_CHANNEL: Final = "channel"
_LATEST: Final = 253_402_300_800_000  # the year 10000, which no calendar has


def day_of(ts: int) -> str:
    """YYYY-MM-DD in UTC. ts: ms since the epoch."""
    return _day(ts // 86_400_000)


@lru_cache(maxsize=128)
def _day(days: int) -> str:
    return datetime.fromtimestamp(days * 86_400, UTC).strftime("%Y-%m-%d")


class Record(NamedTuple):
    """One call. ts: when it began, wall clock, ms. cost: dollars, None where no price is known.

    estimated: the provider did not count it (it broke off, or its server never counts). failed: why, "" if it was answered.
    id: no other record has it.
    """

    id: str
    ts: int
    model: str
    usage: Usage
    cost: float | None
    role: str = "default"
    channel: Address | None = None
    item: int | None = None
    task_id: str = ""
    estimated: bool = False
    failed: str = ""

    def line(self) -> bytes:
        """As it stands in the file; what is empty is left out."""
        usage = self.usage
        fields: dict[str, Json] = {
            "id": self.id,
            "ts": self.ts,
            "model": self.model,
            "role": self.role,
            _CHANNEL: {"type": self.channel.type, "channelId": self.channel.channel_id} if self.channel else None,
            "item": self.item,
            "taskId": self.task_id or None,
            "promptTokens": usage.prompt_tokens,
            "completionTokens": usage.completion_tokens,
            "cacheReadTokens": usage.cache_read_tokens or None,
            "cacheWriteTokens": usage.cache_write_tokens or None,
            "cost": None if self.cost is None else round(self.cost, 9),
            "estimated": self.estimated or None,
            "failed": self.failed or None,
        }
        told = {key: value for key, value in fields.items() if value is not None}
        return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"


def read_record(line: bytes) -> Record:
    """A record from its line. Raises ValueError for anything else."""
    fields = json.loads(line)
    if not isinstance(fields, dict):
        raise ValueError("no object")
    channel, item, cost = fields.get(_CHANNEL), fields.get("item"), fields.get("cost")
    if cost is not None and (isinstance(cost, bool) or not isinstance(cost, int | float) or not 0 <= cost < 1e9):
        raise ValueError("cost")
    counts = ("promptTokens", "completionTokens", "cacheReadTokens", "cacheWriteTokens")
    return Record(
        id=_text(fields, "id"),
        ts=_amount(fields, "ts", _LATEST),
        model=_text(fields, "model"),
        usage=Usage(*(_amount(fields, key) for key in counts)),
        cost=cost,
        role=_text(fields, "role"),
        channel=Address(_text(channel, "type"), _text(channel, "channelId")) if isinstance(channel, dict) else None,
        item=item if isinstance(item, int) else None,
        task_id=_text(fields, "taskId"),
        estimated=bool(fields.get("estimated")),
        failed=_text(fields, "failed"),
    )


def _amount(fields: Mapping[str, object], key: str, most: int = 1 << 53) -> int:
    value = fields.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < most:
        raise ValueError(key)
    return value


def _text(fields: Mapping[str, object], key: str) -> str:
    value = fields.get(key, "")
    if not isinstance(value, str):
        raise ValueError(key)
    return value


@attrs.define(eq=False)
class Sum:
    """What some calls have used together. unpriced, estimated: how many of the calls have no price, or were not counted."""

    calls: int = 0
    prompt: int = 0
    completion: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost: float = 0.0
    unpriced: int = 0
    estimated: int = 0

    @property
    def tokens(self) -> int:
        """In and out."""
        return self.prompt + self.completion

    def add(self, record: Record) -> None:
        """One more."""
        usage = record.usage
        self.calls += 1
        self.prompt += usage.prompt_tokens
        self.completion += usage.completion_tokens
        self.cache_read += usage.cache_read_tokens
        self.cache_write += usage.cache_write_tokens
        self.cost += record.cost or 0.0
        self.unpriced += record.cost is None
        self.estimated += record.estimated

    def report(self) -> dict[str, Json]:
        """For programs."""
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


NOTHING: Final = Sum()
"""For whoever has used nothing. Not to be added to."""


class Ledger:
    """All sums. chats: by day and address; models: by day or month and model; tasks, items: by their id and number."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self.days: dict[str, Sum] = {}
        self.months: dict[str, Sum] = {}
        self.chats: dict[tuple[str, Address], Sum] = {}
        self.models: dict[tuple[str, str], Sum] = {}
        self.tasks: dict[str, Sum] = {}
        self.items: dict[int, Sum] = {}
        for record in records:
            self.add(record)

    def add(self, record: Record) -> None:
        """One more call."""
        day = day_of(record.ts)
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


def _add(sums: dict[K, Sum], key: K, record: Record, most: int) -> None:
    """The one used last stands last."""
    found = sums.pop(key, None)
    if found is None:
        found = Sum()
        if len(sums) >= most:
            del sums[next(iter(sums))]
    sums[key] = found
    found.add(record)
