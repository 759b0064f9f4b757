"""Compaction: keeping the session within the model's window. Older turns become a summary; the whole stays readable in an archive."""

from pegasus.main_agent.compaction.compactor import CompactionLimits, Compactor, Conversation
from pegasus.main_agent.compaction.outlook import NO_OUTLOOK, OpenTask, Outlook
from pegasus.main_agent.compaction.task_outlook import OpenTaskFinder

__all__ = ["NO_OUTLOOK", "CompactionLimits", "Compactor", "Conversation", "OpenTask", "OpenTaskFinder", "Outlook"]
