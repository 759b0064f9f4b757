"""Long-term memory: facts and episodes, in Markdown files that people may edit too, and search over them.

    memory = memory_in(home.data, journal, clock)
    await memory.append("facts/user.md", "- Likes: tea", by=Author(source="user"))
    found = await memory.search("tea")

The files are read from their folder and written by the journal. Every change is in a log and can be taken back
(docs/memory-system.md). Inside:

    memory          reading, changing, undo; the lock that keeps changes apart
    logged_files    files and log, kept in step through the journal
    working_copy    the files in the home of a node, where nodes share a database
    changes         the log of changes, and undo
    taking_back     differences between two texts, and taking one back
    pages           names, texts and index of files; `provenance`: marks of origin
    folder          reading the folder
    apart           what of it conversations see in which guests are heard
    notes           MEMORY.md and the history of conversations, for agents of chats
    search          full-text search over memory and archived sessions, imported at the first search; `search_index`: words in SQLite
    vectors         vectors of passages, in the same file
    function_words  what a search leaves out of a question
"""

from pegasus.memory.apart import ApartMemory, check_shared, seen_by
from pegasus.memory.changes import LOG, Author, Change, read_log, view_of
from pegasus.memory.folder import HEAD, FileState, FolderReader, Stamp
from pegasus.memory.memory import Memory, Written, check_logged, memory_in, open_searcher, read_or_nothing, read_whole
from pegasus.memory.notes import (
    LONGEST_NOTES,
    NOTES,
    NOTES_FOLDER,
    HistoryEntry,
    NotesFile,
    add_to_history,
    added_lines,
    is_wrong_kind,
    may_rewrite,
    merged_notes,
    own_notes,
    problem_of_update,
    rewritten_notes,
)
from pegasus.memory.pages import FOLDER, Found, Hit, MemoryFile, MemoryRefused, describe_file, files_view
from pegasus.memory.provenance import SOURCES, labels_in, marks_in, warning_for
from pegasus.memory.taking_back import difference, split_lines

__all__ = [
    "FOLDER",
    "HEAD",
    "LOG",
    "LONGEST_NOTES",
    "NOTES",
    "NOTES_FOLDER",
    "SOURCES",
    "ApartMemory",
    "Author",
    "Change",
    "FileState",
    "FolderReader",
    "Found",
    "HistoryEntry",
    "Hit",
    "Memory",
    "MemoryFile",
    "MemoryRefused",
    "NotesFile",
    "Stamp",
    "Written",
    "add_to_history",
    "added_lines",
    "check_logged",
    "check_shared",
    "describe_file",
    "difference",
    "files_view",
    "is_wrong_kind",
    "labels_in",
    "marks_in",
    "may_rewrite",
    "memory_in",
    "merged_notes",
    "open_searcher",
    "own_notes",
    "problem_of_update",
    "read_log",
    "read_or_nothing",
    "read_whole",
    "rewritten_notes",
    "seen_by",
    "split_lines",
    "view_of",
    "warning_for",
]
