"""The Main Agent: takes queue items in order, thinks about each with a model, and speaks only through the reply tool.

The package holds the actor with its two lanes and its think loop, the session (log, repair at load, projection for providers,
compaction, archives), the commands, and the tools that only the Main Agent has: `reply`, delegation to tasks, and skills. Other
packages import from here only.
"""

from pegasus.main_agent.actor import main_agent
from pegasus.main_agent.archives import (
    CURRENT,
    LONGEST,
    ArchivePage,
    FolderArchives,
    SessionArchives,
    archive_names,
    archive_tool,
    is_archive,
    line_text,
    open_archive,
    page_of,
)
from pegasus.main_agent.commands import persona_answer
from pegasus.main_agent.compaction import Compactor, OpenTaskFinder
from pegasus.main_agent.delegation import SPAWN_ALIAS, TaskDelegation, delegation_tools
from pegasus.main_agent.messages import AgentStatus, EndedWork, GetStatus, MainAgentMessage, Stop
from pegasus.main_agent.publishing import message_publisher
from pegasus.main_agent.reply_tool import REPLY
from pegasus.main_agent.services import AgentConfig, AgentServices, AgentToolset, BackgroundWork
from pegasus.main_agent.skill_invocation import SkillInvoker
from pegasus.main_agent.task_notifications import NOTIFICATION_BATCH, forward_notifications

__all__ = [
    "CURRENT",
    "LONGEST",
    "NOTIFICATION_BATCH",
    "REPLY",
    "SPAWN_ALIAS",
    "AgentConfig",
    "AgentServices",
    "AgentStatus",
    "AgentToolset",
    "ArchivePage",
    "BackgroundWork",
    "Compactor",
    "EndedWork",
    "FolderArchives",
    "GetStatus",
    "MainAgentMessage",
    "OpenTaskFinder",
    "SessionArchives",
    "SkillInvoker",
    "Stop",
    "TaskDelegation",
    "archive_names",
    "archive_tool",
    "delegation_tools",
    "forward_notifications",
    "is_archive",
    "line_text",
    "main_agent",
    "message_publisher",
    "open_archive",
    "page_of",
    "persona_answer",
]
