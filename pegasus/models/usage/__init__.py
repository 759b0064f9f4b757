"""Usage of models: tokens and costs of calls, and the budgets that refuse calls.

ledger.py    sums by day, chat, task and model; the record of a call
tracker.py   `UsageTracker`, a middleware: counts every call and refuses those above a budget
usage_store.py  actor that reads and writes the files
report.py    the sums as JSON and as text for people
"""

from pegasus.models.usage.report import amount_text, budget_text, daily_usage, usage_report, usage_text
from pegasus.models.usage.tracker import UsageTracker
from pegasus.models.usage.usage_store import serve_usage

__all__ = ["UsageTracker", "amount_text", "budget_text", "daily_usage", "serve_usage", "usage_report", "usage_text"]
