"""Compaction: keeps the session within the model's window. Older turns become a summary; the whole stays readable in an archive.

`Compactor` is what the think loop uses. Planning, transcript, checks and open items are pure functions below it, each in its file.
"""

from pegasus.main_agent.compaction.compactor import Compactor
from pegasus.main_agent.compaction.open_items import OpenTask, find_open_tasks, memory_index_entry

__all__ = ["Compactor", "OpenTask", "find_open_tasks", "memory_index_entry"]
