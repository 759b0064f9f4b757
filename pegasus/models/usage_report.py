"""What was used, for programs (the control call `usage`) and for people (`/usage`, `pegasus status`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pegasus.formatting import plural
from pegasus.messages import ChannelInfo, Json
from pegasus.models.base import Label
from pegasus.models.books import Books
from pegasus.models.budget import Limit, dollars
from pegasus.models.ledger import NOTHING, Sum, day_of

MOST: Final = 10
"""Models, channels, tasks and messages that a report names."""


def report(books: Books, channel: ChannelInfo | None = None) -> dict[str, Json]:
    """Everything as JSON. channel: whose chat is told about, too."""
    day = day_of(books.clock())
    ledger, month = books.ledger, day[:7]
    models = {model: used for (when, model), used in ledger.models.items() if when == month}
    chats = {f"{a.type}:{a.channel_id}": used for (when, a), used in ledger.chats.items() if when == day}
    told: dict[str, Json] = {
        "day": day,
        "today": ledger.days.get(day, NOTHING).report(),
        "month": month,
        "thisMonth": ledger.months.get(month, NOTHING).report(),
        "models": _ranked("model", models),
        "channels": _ranked("channel", chats),
        "tasks": _latest("taskId", ledger.tasks),
        "messages": _latest("item", ledger.items),
        "budgets": [_budget(limit) for limit in books.limits(Label(channel=channel))],
    }
    if channel is not None:
        told["chat"] = ledger.chats.get((day, channel.address), NOTHING).report()
    return told


def _ranked(name: str, sums: Mapping[str, Sum]) -> list[Json]:
    """The dearest first."""
    dearest = sorted(sums.items(), key=lambda each: (-each[1].cost, -each[1].tokens))
    return [{name: key, **used.report()} for key, used in dearest[:MOST]]


def _latest(name: str, sums: Mapping[Any, Sum]) -> list[Json]:
    """The latest first."""
    return [{name: key, **sums[key].report()} for key in list(sums)[: -MOST - 1 : -1]]


def _budget(limit: Limit) -> dict[str, Json]:
    return {
        "key": limit.key,
        "what": limit.what,
        "cost": limit.cost,
        "tokens": limit.tokens,
        "costUsed": round(limit.spent.cost, 6),
        "tokensUsed": limit.spent.tokens,
    }


# ------------------------------------------------------------------ for people


def usage_text(told: Mapping[str, Any]) -> str:
    """The answer to /usage, from a report."""
    lines = [f"Today: {amount_text(told['today'])}", f"This month: {amount_text(told['thisMonth'])}"]
    if told.get("chat", {}).get("calls"):
        lines.insert(1, f"This chat today: {amount_text(told['chat'])}")
    if told["messages"]:
        lines.insert(0, f"The last message: {amount_text(told['messages'][0])}")
    lines += [f"Budget {budget_text(budget)}" for budget in told["budgets"]]
    if len(told["models"]) > 1:
        lines.append("By model this month:")
        lines += [f"- {each['model']}: {amount_text(each)}" for each in told["models"]]
    unpriced = [each["model"] for each in told["models"] if each["unpricedCalls"]]
    if unpriced:
        lines.append(
            f"No price is known for {', '.join(unpriced)}: counted in tokens only "
            f'(whoever runs me can set [prices."{unpriced[0]}"]).'
        )
    return "\n".join(lines)


def amount_text(used: Mapping[str, Any]) -> str:
    """`3 calls, 12,345 tokens in (10,000 from the cache), 678 out, $0.12`."""
    if not used["calls"]:
        return "nothing"
    cached = f" ({used['cacheReadTokens']:,} from the cache)" if used["cacheReadTokens"] else ""
    text = (
        f"{plural(used['calls'], 'call')}, {used['promptTokens']:,} tokens in{cached}, {used['completionTokens']:,} out"
    )
    if used["unpricedCalls"] == used["calls"]:
        return f"{text}, price unknown"
    more = f" and {plural(used['unpricedCalls'], 'call')} of unknown price" if used["unpricedCalls"] else ""
    about = "about " if used["estimatedCalls"] else ""
    return f"{text}, {about}{dollars(used['cost'])}{more}"


def budget_text(budget: Mapping[str, Any]) -> str:
    """`today: $0.12 of $1.00 used`."""
    parts = []
    if budget["cost"]:
        parts.append(f"{dollars(budget['costUsed'])} of {dollars(budget['cost'])}")
    if budget["tokens"]:
        parts.append(f"{budget['tokensUsed']:,} of {plural(budget['tokens'], 'token')}")
    return f"{budget['what']}: {', '.join(parts)} used"
