"""Reports of usage: JSON for the control call `usage`, text for `/usage` and `pegasus status`.

The text is made from the JSON, not from the sums: `pegasus status` is another process and only has the JSON. A report looks like this:

    {"day": "2026-11-22", "today": {SUM}, "month": "2026-11", "thisMonth": {SUM},
     "models": [{"model": "anthropic/claude-sonnet-5-5", SUM}, …], "channels": […], "tasks": […], "messages": […],
     "budgets": [{"key": "budget.daily", "what": "today", "cost": 5.0, "tokens": 0, "costUsed": 0.12, "tokensUsed": 3100}],
     "chat": {SUM}, "counting": "counted by the provider"}

with SUM as in `UsageSum.report`. "chat" is only there for the answer in a chat.

All sums are those in memory, so a report reads no file and includes calls that are not written yet. Days and months are those of UTC.
Until the files have been read after a start, the sums contain only the calls since that start.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pegasus.formatting import format_day, plural
from pegasus.messages import ChannelInfo, Json
from pegasus.models.base import Label
from pegasus.models.usage.tracker import NOTHING, UsageSum, format_dollars

if TYPE_CHECKING:
    from pegasus.models.usage.tracker import BudgetLimit, UsageTracker

MOST: Final = 10
"""Models, chats, tasks and messages that a report names, of each. The answer in a chat must fit on a phone."""


def usage_report(tracker: UsageTracker, channel: ChannelInfo | None = None) -> dict[str, Json]:
    """Return everything that is known about usage as JSON.

    channel: adds the sum of this chat for today, and the budget for one chat a day if it is set; None for the report to a program.
    Never waits and never raises.
    """
    day = format_day(tracker.clock())
    ledger, month = tracker.ledger, day[:7]
    models = {model: total for (when, model), total in ledger.models.items() if when == month}
    chats = {str(chat): total for (when, chat), total in ledger.chats.items() if when == day}
    report: dict[str, Json] = {
        "day": day,
        "today": ledger.days.get(day, NOTHING).report(),
        "month": month,
        "thisMonth": ledger.months.get(month, NOTHING).report(),
        "models": _most_expensive("model", models),
        "channels": _most_expensive("channel", chats),
        "tasks": _latest("taskId", ledger.tasks),
        "messages": _latest("item", ledger.items),
        "budgets": [_budget(limit) for limit in tracker.limits(Label(channel=channel))],
    }
    if channel is not None:
        report["chat"] = ledger.chats.get((day, channel.address), NOTHING).report()
    return report


def daily_usage(tracker: UsageTracker) -> list[Json]:
    """Return the usage of each day that is in memory, oldest first: {"day", SUM, "models": […], "channels": […]}.

    It reaches back to the first of last month, since older records are not read at a start.
    """
    ledger = tracker.ledger
    models: dict[str, dict[str, UsageSum]] = {}
    chats: dict[str, dict[str, UsageSum]] = {}
    for (when, model), total in ledger.models.items():
        models.setdefault(when, {})[model] = total
    for (when, chat), total in ledger.chats.items():
        chats.setdefault(when, {})[str(chat)] = total
    return [
        {
            "day": day,
            **total.report(),
            "models": _most_expensive("model", models.get(day, {})),
            "channels": _most_expensive("channel", chats.get(day, {})),
        }
        for day, total in sorted(ledger.days.items())
    ]


def _most_expensive(name: str, sums: Mapping[str, UsageSum]) -> list[Json]:
    """Return the largest sums, by cost and then by tokens, MOST of them. name: key of the sums' own key.

    Tokens decide between models without a price, whose cost is 0.
    """
    ranked = sorted(sums.items(), key=lambda item: (-item[1].cost, -item[1].tokens))
    return [{name: key, **total.report()} for key, total in ranked[:MOST]]


def _latest(name: str, sums: Mapping[Any, UsageSum]) -> list[Json]:
    """Return the most recently used sums, newest first. name: key of the sums' own key.

    The ledger keeps its sums in the order of their last use, so the last ones are the newest.
    """
    return [{name: key, **sums[key].report()} for key in list(sums)[: -MOST - 1 : -1]]


def _budget(limit: BudgetLimit) -> dict[str, Json]:
    return {
        "key": f"budget.{limit.scope.name}",
        "what": limit.scope.what,
        "cost": limit.cost,
        "tokens": limit.tokens,
        "costUsed": round(limit.spent.cost, 6),
        "tokensUsed": limit.spent.tokens,
    }


# ------------------------------------------------------------------ text


def usage_text(report: Mapping[str, Any]) -> str:
    """Return the answer to `/usage` for a report.

        The last message: 1 call, 2,000 tokens in, 50 out, $0.0025
        Today: 2 calls, 3,000 tokens in (800 from the cache), 150 out, $0.0041
        This month: 3 calls, 503,000 tokens in (400,800 from the cache), 160 out, $0.25
        Budget today: $0.0041 of $1.00 used

    Models are listed only if there are several. Models without a price are named, with the settings key that would give them one.
    """
    lines = [f"Today: {amount_text(report['today'])}", f"This month: {amount_text(report['thisMonth'])}"]
    if report.get("chat", {}).get("calls"):
        lines.insert(1, f"This chat today: {amount_text(report['chat'])}")
    if report["messages"]:
        lines.insert(0, f"The last message: {amount_text(report['messages'][0])}")
    lines += [f"Budget {budget_text(budget)}" for budget in report["budgets"]]
    if len(report["models"]) > 1:
        lines.append("By model this month:")
        lines += [f"- {entry['model']}: {amount_text(entry)}" for entry in report["models"]]
    unpriced = [entry["model"] for entry in report["models"] if entry["unpricedCalls"]]
    if unpriced:
        lines.append(
            f"No price is known for {', '.join(unpriced)}: counted in tokens only "
            f'(whoever runs me can set [prices."{unpriced[0]}"]).'
        )
    if report.get("counting"):
        lines.append(f"The tokens of a conversation are {report['counting']}.")
    return "\n".join(lines)


def amount_text(used: Mapping[str, Any]) -> str:
    """Return a sum as `3 calls, 12,345 tokens in (10,000 from the cache), 678 out, $0.12`."""
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
    return f"{text}, {about}{format_dollars(used['cost'])}{more}"


def budget_text(budget: Mapping[str, Any]) -> str:
    """Return a budget as `today: $0.12 of $1.00 used`."""
    parts = []
    if budget["cost"]:
        parts.append(f"{format_dollars(budget['costUsed'])} of {format_dollars(budget['cost'])}")
    if budget["tokens"]:
        parts.append(f"{budget['tokensUsed']:,} of {plural(budget['tokens'], 'token')}")
    return f"{budget['what']}: {', '.join(parts)} used"
