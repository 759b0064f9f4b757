"""Usage of models: tokens and costs of calls, and the budgets that refuse calls.

tracker.py   the record of a call, sums by day, chat, task and model; `UsageTracker`, a middleware that counts every call and
             refuses those above a budget
keeper.py    the actor that reads and writes the files
report.py    the sums as JSON and as text for people
"""

from pegasus.models.usage.keeper import serve_usage
from pegasus.models.usage.report import amount_text, budget_text, daily_usage, usage_report, usage_text
from pegasus.models.usage.tracker import UsageTracker, format_dollars

__all__ = [
    "UsageTracker",
    "amount_text",
    "budget_text",
    "daily_usage",
    "format_dollars",
    "serve_usage",
    "usage_report",
    "usage_text",
]
