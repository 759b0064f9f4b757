"""Compaction: keeps the session within the model's window. Older turns become a summary; the whole stays readable in an archive.

`Compactor` is what the think loop uses. Planning, transcript, checks and open items are pure functions below it, each in its file;
consolidation uses them, too.
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
from pegasus.main_agent.compaction.planning import CompactionPlan, cut_middle, first_running
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
    "cut_middle",
    "find_open_tasks",
    "first_running",
    "format_minute",
    "memory_index_entry",
    "previous_summary",
    "summary_entry",
    "transcript_events",
    "write_transcript",
]
