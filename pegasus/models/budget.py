"""Limits on what may be spent: whether a call may begin. Pure: the books (pegasus.models.books) say what was spent."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from pegasus.settings import BudgetSettings

SCOPES: Final = ("daily", "monthly", "task", "channel_daily")


def is_limited(budget: BudgetSettings) -> bool:
    """Whether any budget is set."""
    return any(getattr(budget, f"{scope}_cost") or getattr(budget, f"{scope}_tokens") for scope in SCOPES)


class Amount(NamedTuple):
    """What was used, or may be. cost: dollars."""

    cost: float = 0.0
    tokens: int = 0

    def plus(self, other: Amount) -> Amount:
        """Both together."""
        return Amount(self.cost + other.cost, self.tokens + other.tokens)


class Limit(NamedTuple):
    """One budget a call falls under. what: "today", "by one task" …; key: of the settings; day: of the call, YYYY-MM-DD.

    cost, tokens: what may be used, 0 = any amount. spent: what has been; reserved: what calls under way may still use.
    """

    what: str
    key: str
    cost: float
    tokens: int
    spent: Amount
    reserved: Amount = Amount()
    day: str = ""


def refusal(limits: Sequence[Limit], wanted: Amount, *, count_reserved: bool) -> str:
    """Why a call that may use `wanted` must not begin: one sentence for people; "" = it may.

    count_reserved: whether what calls under way may still use counts as used.
    """
    for limit in limits:
        used = limit.spent.plus(limit.reserved) if count_reserved else limit.spent
        if limit.cost and wanted.cost and used.cost + wanted.cost > limit.cost:  # what is free may always begin
            amounts = f"{dollars(limit.cost)} may be spent {limit.what}, {dollars(used.cost)} are"
            return _sentence(limit, f"{limit.key}_cost", amounts, dollars(wanted.cost))
        if limit.tokens and used.tokens + wanted.tokens > limit.tokens:
            amounts = f"{limit.tokens:,} tokens may be used {limit.what}, {used.tokens:,} are"
            return _sentence(limit, f"{limit.key}_tokens", amounts, f"{wanted.tokens:,}")
    return ""


def _sentence(limit: Limit, key: str, amounts: str, wanted: str) -> str:
    again = _fresh(limit)
    when = f"it is fresh {again}; whoever runs me" if again else "whoever runs me"
    return f"the budget does not allow this call: {amounts}, and it may take up to {wanted} ({when} can raise {key})"


def dollars(cost: float) -> str:
    """`$0.12`, with more digits where it is less than ten cents."""
    if cost >= 0.1 or cost == 0:
        return f"${cost:,.2f}"
    return f"${cost:.4f}" if cost >= 0.0001 else "less than $0.0001"


def _fresh(limit: Limit) -> str:
    """When there is a new budget; "" = never."""
    if not limit.day or limit.what == "by one task":
        return ""
    if limit.what == "this month":
        return f"from {_date(limit.day[:7] + '-01') + timedelta(days=32):%Y-%m}-01 00:00 UTC"
    return f"from {_date(limit.day) + timedelta(days=1):%Y-%m-%d} 00:00 UTC"


def _date(day: str) -> datetime:
    return datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC)
