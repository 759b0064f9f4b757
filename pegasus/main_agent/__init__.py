"""The Main Agent: takes queue items in order, thinks about each with a model, and speaks only through the reply tool.

The package holds the actor with its two lanes and its think loop, the session (log, repair at load, projection for providers,
compaction, archives), the commands, and the tools that only the Main Agent has: `reply`, delegation to tasks, and skills. Other
packages import from here only.

The daemon imports this package before it is ready. Names that need the task system (`pegasus.tasks`) are therefore loaded when
they are first used: importing the task system costs about as much as everything else here together, and nothing of it is needed
before the first message. `__getattr__` below is the only place where that happens.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

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
from pegasus.main_agent.messages import AgentStatus, EndedWork, GetStatus, MainAgentMessage, Stop
from pegasus.main_agent.publishing import message_publisher
from pegasus.main_agent.reply_tool import REPLY
from pegasus.main_agent.services import AgentConfig, AgentServices, AgentToolset, BackgroundWork
from pegasus.main_agent.task_notifications import NOTIFICATION_BATCH, forward_notifications

if TYPE_CHECKING:
    from pegasus.main_agent.compaction import Compactor, OpenTaskFinder
    from pegasus.main_agent.delegation import SPAWN_ALIAS, TaskDelegation, delegation_tools
    from pegasus.main_agent.skill_invocation import SkillInvoker

_NEEDS_TASKS: Final = {
    "Compactor": "compaction",
    "OpenTaskFinder": "compaction",
    "SPAWN_ALIAS": "delegation",
    "SkillInvoker": "skill_invocation",
    "TaskDelegation": "delegation",
    "delegation_tools": "delegation",
}
"""Exported names that need the task system, and the submodule that defines each of them."""


def __getattr__(name: str) -> object:
    """Load an exported name that needs the task system, when it is first used."""
    if name not in _NEEDS_TASKS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_NEEDS_TASKS[name]}"), name)


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
