"""Sessions: the conversations of the Main Agent, as they are on disk and in memory, and what people and models see of them later.

    session         the running session: an append-only log, the progress of each item, the turns for the next request
    loading         reads a session at the start, and repairs it after a crash
    going_back      a message is answered once more, or another one is said in its place
    media_queue     files that the tool `send_file` has gathered and no entry has sent yet
    pending_notes   notes of a consolidation that are not written yet, as the session names them
    files           names of the files of a session
    names           names that an owner has given to conversations
    archives        earlier sessions, a page at a time; the tool `session_archive_read`
    listing         all sessions, for people
    history         what was said with one address, or in a whole conversation, for a chat window
    conversations   the list of conversations, with titles and a search

Only the first two, and `going_back` by their means, write, through the journal. The last four read files from disk, and ask nothing
of a running agent.

What `main_agent` does with it::

    session = await load_session(journal, clock, chat_files(Address("web", "c1")))
    await session.add(user_entry)                     # a fact: it stays even if the write is cancelled
    [reply] = await session.commit((thought,), (post,))  # a decision: both are on disk, or neither
    session.progress(item.n).next                     # NextStep.THINK, or NextStep.NOTHING when the item is done
    archive = await session.restart(begin, clock())   # /new, compaction, consolidation
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegasus.late import late_names
from pegasus.main_agent.session.archives import (
    ApartArchives,
    ArchivePage,
    SessionArchives,
    StoredArchives,
    archive_age,
    archive_tool,
    is_archive,
    line_text,
    open_archive,
    page_of,
    remove_old_archives,
    says_apart,
    title_of,
)
from pegasus.main_agent.session.files import (
    CURRENT,
    GLOBAL,
    NO_CHAT,
    SessionFiles,
    archive_prefix,
    chat_files,
    chat_key,
    session_files_of,
)
from pegasus.main_agent.session.loading import load_session, read_archive
from pegasus.main_agent.session.media_queue import SEND_FILE, SENT, files_sent_by, gathered, send_file_path, sent
from pegasus.main_agent.session.names import (
    CONVERSATION,
    ConversationNames,
    NameRefused,
    conversation_id,
    name_key,
)
from pegasus.main_agent.session.pending_notes import (
    PendingNotes,
    done_entry,
    last_notes,
    pending_metadata,
    pending_notes,
)
from pegasus.main_agent.session.session import (
    CUT,
    REPLACED,
    REPLY_NAME,
    TASK_RESULT,
    UNFINISHED,
    USE_SKILL,
    ItemProgress,
    NextStep,
    Session,
    is_begun_by,
    note_of,
    opening_entry,
    text_of_end_note,
    until_written,
)

if TYPE_CHECKING:
    from pegasus.main_agent.session.conversations import conversation_json, conversation_name_key, list_conversations
    from pegasus.main_agent.session.going_back import cut_back, edit, retry
    from pegasus.main_agent.session.history import (
        Place,
        find_message,
        history_json,
        is_message,
        read_conversation,
        read_history,
        said_in,
    )
    from pegasus.main_agent.session.listing import (
        MOST_ROWS,
        PAGE_ROWS,
        SessionPlace,
        chat_of,
        find_session,
        has_session,
        list_sessions,
        session_json,
    )
else:
    __getattr__ = late_names(__name__)

__all__ = [
    "CONVERSATION",
    "CURRENT",
    "CUT",
    "GLOBAL",
    "MOST_ROWS",
    "NO_CHAT",
    "PAGE_ROWS",
    "REPLACED",
    "REPLY_NAME",
    "SEND_FILE",
    "SENT",
    "TASK_RESULT",
    "UNFINISHED",
    "USE_SKILL",
    "ApartArchives",
    "ArchivePage",
    "ConversationNames",
    "ItemProgress",
    "NameRefused",
    "NextStep",
    "PendingNotes",
    "Place",
    "Session",
    "SessionArchives",
    "SessionFiles",
    "SessionPlace",
    "StoredArchives",
    "archive_age",
    "archive_prefix",
    "archive_tool",
    "chat_files",
    "chat_key",
    "chat_of",
    "conversation_id",
    "conversation_json",
    "conversation_name_key",
    "cut_back",
    "done_entry",
    "edit",
    "files_sent_by",
    "find_message",
    "find_session",
    "gathered",
    "has_session",
    "history_json",
    "is_archive",
    "is_begun_by",
    "is_message",
    "last_notes",
    "line_text",
    "list_conversations",
    "list_sessions",
    "load_session",
    "name_key",
    "note_of",
    "open_archive",
    "opening_entry",
    "page_of",
    "pending_metadata",
    "pending_notes",
    "read_archive",
    "read_conversation",
    "read_history",
    "remove_old_archives",
    "retry",
    "said_in",
    "says_apart",
    "send_file_path",
    "sent",
    "session_files_of",
    "session_json",
    "text_of_end_note",
    "title_of",
    "until_written",
]
