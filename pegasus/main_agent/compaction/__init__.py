"""Keeping the session within the model's window: older turns become a summary, and the whole of it stays readable in an archive.

Planning, transcript, checks and what code carries over are pure; `compactor` puts them to work. Imported when it is needed.
"""

from pegasus.main_agent.compaction.compactor import Compactor, Conversation, Limits
from pegasus.main_agent.compaction.outlook import NO_OUTLOOK, OpenTask, Outlook

__all__ = ["NO_OUTLOOK", "Compactor", "Conversation", "Limits", "OpenTask", "Outlook"]
