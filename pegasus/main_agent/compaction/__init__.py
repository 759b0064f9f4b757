"""Compaction: keeps the session within the model's window. Older turns become a summary; the whole stays readable in an archive.

`Compactor` is what the think loop uses. Planning, transcript, checks and open items are pure functions below it, each in its file;
consolidation uses them, too.

The think loop calls `fit` before each model call::

    compactor = Compactor(models.client("compact"), models.context_window, clock, models.measure)
    nursery.start_soon(compactor.run)   # writes summaries in the background
    if await compactor.fit(session, request, [item.n]):
        request = make_request_again()  # the session has become shorter
"""

from pegasus.main_agent.compaction.compactor import Compactor
from pegasus.main_agent.compaction.open_items import (
    OpenItems,
    OpenTask,
    SessionSummary,
    find_open_tasks,
    memory_index_entry,
    summary_entry,
)
from pegasus.main_agent.compaction.planning import CompactionPlan, first_running, is_memory_index, is_opening
from pegasus.main_agent.compaction.transcript import (
    format_minute,
    previous_summary,
    transcript_events,
    write_transcript,
)

__all__ = [
    "CompactionPlan",
    "Compactor",
    "OpenItems",
    "OpenTask",
    "SessionSummary",
    "find_open_tasks",
    "first_running",
    "format_minute",
    "is_memory_index",
    "is_opening",
    "memory_index_entry",
    "previous_summary",
    "summary_entry",
    "transcript_events",
    "write_transcript",
]
