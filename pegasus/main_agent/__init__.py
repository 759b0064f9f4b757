"""The Main Agent: takes queue items in order, calls a model about each, and sends text to people only through the reply tool.

The package holds the actor with its two lanes and its think loop, the session (log, repair at load, projection for providers,
compaction, archives), the commands, and the tools that only the Main Agent has: `reply`, delegation to tasks, and skills. Other
packages import from here only.

The way of a message through the files, from the queue to the reply:

    chats               with an agent for each chat: starts the actor of a chat that has an item
    actor               takes the item from the journal; /stop and /status run beside it
    turns               the work on an item and those that have joined it; what a /stop ends of it
    think_loop          decides about each next step of a turn; writes the answer and posts its replies
    asking              calls the model, in its way of speaking, until there is an answer to act on
    drafts              shows a reply while the model is still writing it
    tool_calls          carries out the calls of the answer
    owner_words         what an owner has typed, for the calls that come of it
    queue_items         the item as an entry of the session
    session             the durable log, and the progress of each item; its repair; archives, and lists and history for people
    compaction          makes the session shorter when it comes near the model's window
    chat_prompt         with an agent for each chat: the end of its prompt, with MEMORY.md
    agents              the actors as others talk to them: statuses and stops of all together
    consolidation       with an agent for each chat: makes notes of the older messages, which leave the session
    reply_decisions     the channel of each reply; asks the policy about one that leaves, and an owner where it says so
    sent_files          files that a reply sends: checked, and kept before it is posted
    replies             reply calls as posts for the outbox
    item_endings        endings of items that the model could not end, or never would; /new
    conversation_changes   the commands that change the session: /new, /compact, /resume, /retry

Beside this way stand `delegation` and `skill_invocation` (tools), `queue_items` (reports of tasks among them), `chat_commands`
(texts of /help, /skills and others), `context_view` (/context), `status` and `task_status` (/status, and tasks for people),
`task_commands` (/tasks, /pause), `toolset` (prompt, tools and way of speaking for each kind of model), and
`services` (what the composition root hands in).

The state that survives a crash is in the session and in the journal (queue and outbox) only. Every other object of the package can be
made anew from them, and is, at each start of the actor.

Example::

    services = AgentServices(model=client, toolset=InForce(toolset), clock=wall_clock, work=TaskDelegation(task_agent))
    run = partial(main_agent, journal=journal, services=services, announce=switchboard)
    child = Child("agent", run)         # below a supervisor, which starts it again after a crash
    status = await agent.ask(GetStatus)
    status.thinking_about               # "Book a table for …", or None
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegasus.late import late_names
from pegasus.main_agent.actor import main_agent
from pegasus.main_agent.agents import MainAgents, answer_idle
from pegasus.main_agent.chat_commands import (
    SKILLS,
    AgentStatus,
    EndedWork,
    MainAgentMessage,
    describe_commands,
    ended_json,
    interrupt_text,
    persona_answer,
    skills_answer,
)
from pegasus.main_agent.chat_prompt import ChatPrompts
from pegasus.main_agent.chats import chat_agents
from pegasus.main_agent.delegation import SPAWN_ALIAS, TaskDelegation, delegation_tools
from pegasus.main_agent.item_endings import model_failure
from pegasus.main_agent.queue_items import OWN_TURN, forward_notifications
from pegasus.main_agent.replies import QUESTION, item_of_key
from pegasus.main_agent.services import AgentServices, FileAccess, message_publisher, notes_disk
from pegasus.main_agent.session import (
    CURRENT,
    GLOBAL,
    NO_CHAT,
    SEND_FILE,
    ApartArchives,
    ArchivePage,
    ConversationNames,
    NameRefused,
    SessionArchives,
    SessionFiles,
    StoredArchives,
    archive_age,
    archive_prefix,
    archive_tool,
    is_archive,
    line_text,
    open_archive,
    page_of,
    remove_old_archives,
    says_apart,
    session_files_of,
    title_of,
)
from pegasus.main_agent.skill_invocation import SkillInvoker
from pegasus.main_agent.status import doing_text, gather_status, model_text, status_json
from pegasus.main_agent.task_commands import TaskCommands, continue_task, pause_task
from pegasus.main_agent.task_status import task_line, task_name
from pegasus.main_agent.toolset import AgentToolset, describe_speech

if TYPE_CHECKING:
    from pegasus.main_agent.compaction import Compactor, find_open_tasks
    from pegasus.main_agent.consolidation import Consolidator
    from pegasus.main_agent.reply_decisions import post_of_held
    from pegasus.main_agent.session import (
        MOST_ROWS,
        PAGE_ROWS,
        Place,
        SessionPlace,
        chat_of,
        conversation_json,
        conversation_name_key,
        find_message,
        find_session,
        has_session,
        history_json,
        list_conversations,
        list_sessions,
        read_conversation,
        read_history,
        session_json,
    )
else:
    __getattr__ = late_names(__name__)


def import_turn() -> None:
    """Import what works on a message. Blocking: called in a thread, behind the ready line."""
    from pegasus.main_agent import conversation_changes, think_loop  # noqa: F401


__all__ = [
    "CURRENT",
    "GLOBAL",
    "MOST_ROWS",
    "NO_CHAT",
    "OWN_TURN",
    "PAGE_ROWS",
    "QUESTION",
    "SEND_FILE",
    "SKILLS",
    "SPAWN_ALIAS",
    "AgentServices",
    "AgentStatus",
    "AgentToolset",
    "ApartArchives",
    "ArchivePage",
    "ChatPrompts",
    "Compactor",
    "Consolidator",
    "ConversationNames",
    "EndedWork",
    "FileAccess",
    "MainAgentMessage",
    "MainAgents",
    "NameRefused",
    "Place",
    "SessionArchives",
    "SessionFiles",
    "SessionPlace",
    "SkillInvoker",
    "StoredArchives",
    "TaskCommands",
    "TaskDelegation",
    "answer_idle",
    "archive_age",
    "archive_prefix",
    "archive_tool",
    "chat_agents",
    "chat_of",
    "continue_task",
    "conversation_json",
    "conversation_name_key",
    "delegation_tools",
    "describe_commands",
    "describe_speech",
    "doing_text",
    "ended_json",
    "find_message",
    "find_open_tasks",
    "find_session",
    "forward_notifications",
    "gather_status",
    "has_session",
    "history_json",
    "import_turn",
    "interrupt_text",
    "is_archive",
    "item_of_key",
    "line_text",
    "list_conversations",
    "list_sessions",
    "main_agent",
    "message_publisher",
    "model_failure",
    "model_text",
    "notes_disk",
    "open_archive",
    "page_of",
    "pause_task",
    "persona_answer",
    "post_of_held",
    "read_conversation",
    "read_history",
    "remove_old_archives",
    "says_apart",
    "session_files_of",
    "session_json",
    "skills_answer",
    "status_json",
    "task_line",
    "task_name",
    "title_of",
]
