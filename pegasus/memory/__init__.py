"""What the agent remembers beyond a conversation: facts and episodes, as Markdown files that people may edit too.

They are read from the folder and written by the journal. Every change is logged and can be taken back; all of it can be searched.
"""

from pegasus.memory.changes import Author, Change
from pegasus.memory.history import LOG, changes_in
from pegasus.memory.index import MemoryFile, listed
from pegasus.memory.memory import Memory, Written, memory_in, whole
from pegasus.memory.names import FOLDER, MemoryRefused
from pegasus.memory.provenance import SOURCES, marks_in, warning_for
from pegasus.memory.search import Found, Hit, Searcher
from pegasus.memory.shelf import HEAD, FolderShelf, Shelf, Stamp, Standing
from pegasus.memory.view import files_view, view_of

__all__ = [
    "FOLDER",
    "HEAD",
    "LOG",
    "SOURCES",
    "Author",
    "Change",
    "FolderShelf",
    "Found",
    "Hit",
    "Memory",
    "MemoryFile",
    "MemoryRefused",
    "Searcher",
    "Shelf",
    "Stamp",
    "Standing",
    "Written",
    "changes_in",
    "files_view",
    "listed",
    "marks_in",
    "memory_in",
    "view_of",
    "warning_for",
    "whole",
]
