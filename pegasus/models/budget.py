"""Budgets: whether a call may begin. Pure functions; `UsageTracker` knows what was used.

A call counts with the most that it can take: its prompt by an upper estimate, and as many tokens as its answer may have. So a
budget is reached a little early, never late.

Each budget of the settings becomes a `BudgetLimit` for the calls that it covers: all calls of a day or a month, the calls of one
task, or those of one chat on one day. A call must fit into all of its limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from pegasus.settings import BudgetSettings

SCOPES: Final = ("daily", "monthly", "task", "channel_daily")
"""Beginnings of the keys in `[budget]`; each has `_cost` and `_tokens`."""


def is_limited(budget: BudgetSettings) -> bool:
    """Return True if any budget is set."""
    return any(getattr(budget, f"{scope}_cost") or getattr(budget, f"{scope}_tokens") for scope in SCOPES)


@attrs.frozen
class Amount:
    """Amount of usage."""

    cost: float = 0.0
    """Dollars."""
    tokens: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.cost + other.cost, self.tokens + other.tokens)


@attrs.frozen
class BudgetLimit:
    """A budget that a call falls under."""

    what: str
    """For people: "today", "this month", "by one task", "in one chat a day"."""
    key: str
    """Key of the settings without `_cost` or `_tokens`."""
    cost: float
    """Dollars that may be used, 0: any amount."""
    tokens: int
    """Tokens that may be used, 0: any number."""
    spent: Amount
    reserved: Amount = Amount()
    """Amount that calls under way may still use."""
    day: str = ""
    """Day of the call, YYYY-MM-DD."""


def refusal(limits: Sequence[BudgetLimit], wanted: Amount, *, count_reserved: bool) -> str:
    """Return why a call that may use `wanted` must not begin, as one sentence for people; "" if it may.

    count_reserved: count what calls under way may still use as used. Free calls are never refused because of money. The first limit
    that does not fit is reported; the order of the limits is that of the settings.
    """
    for limit in limits:
        used = limit.spent + limit.reserved if count_reserved else limit.spent
        if limit.cost and wanted.cost and used.cost + wanted.cost > limit.cost:
            amounts = f"{format_dollars(limit.cost)} may be spent {limit.what}, {format_dollars(used.cost)} are"
            return _sentence(limit, f"{limit.key}_cost", amounts, format_dollars(wanted.cost))
        if limit.tokens and used.tokens + wanted.tokens > limit.tokens:
            amounts = f"{limit.tokens:,} tokens may be used {limit.what}, {used.tokens:,} are"
            return _sentence(limit, f"{limit.key}_tokens", amounts, f"{wanted.tokens:,}")
    return ""


def _sentence(limit: BudgetLimit, key: str, amounts: str, wanted: str) -> str:
    """Return the sentence of a refusal. key: settings key that raises the budget."""
    renewal = _renewal(limit)
    when = f"it is fresh {renewal}; whoever runs me" if renewal else "whoever runs me"
    return f"the budget does not allow this call: {amounts}, and it may take up to {wanted} ({when} can raise {key})"


def _renewal(limit: BudgetLimit) -> str:
    """Return when there is a new budget; "" if never."""
    if not limit.day or limit.what == "by one task":
        return ""
    if limit.what == "this month":
        return f"from {_date(limit.day[:7] + '-01') + timedelta(days=32):%Y-%m}-01 00:00 UTC"
    return f"from {_date(limit.day) + timedelta(days=1):%Y-%m-%d} 00:00 UTC"


def _date(day: str) -> datetime:
    """Parse YYYY-MM-DD."""
    return datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC)


def format_dollars(cost: float) -> str:
    """Return `$0.12`, with more digits below ten cents."""
    if cost >= 0.1 or cost == 0:
        return f"${cost:,.2f}"
    return f"${cost:.4f}" if cost >= 0.0001 else "less than $0.0001"
