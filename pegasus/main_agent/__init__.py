"""The Main Agent: takes queue items in order, calls a model about each, and sends text to people only through the reply tool.

The package holds the actor with its two lanes and its think loop, the session (log, repair at load, projection for providers,
compaction, archives), the commands, and the tools that only the Main Agent has: `reply`, delegation to tasks, and skills. Other
packages import from here only.

The way of a message through the files, from the queue to the reply:

    actor               takes the item from the journal; /stop and /status run beside it
    think_loop          decides about each next step; reads from `progress` what was done before a restart
    user_entries        the item as an entry of the session
    session             the durable log; loaded and repaired by `session_loading`
    compaction          makes the session shorter when it comes near the model's window
    tool_calls          records the answer of the model, then carries out its calls
    reply_tool          turns a reply call into a post for the outbox
    apologies           ends an item that the model could not end

Beside this way stand `delegation`, `skill_invocation` and `archives` (tools), `commands` (texts of /help and others), `publishing`
(events for observers) and `task_notifications` (the actor that puts reports of tasks into the queue).

The state that survives a crash is in the session and in the journal (queue and outbox) only. Every other object of the package can be
made anew from them, and is, at each start of the actor.
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
