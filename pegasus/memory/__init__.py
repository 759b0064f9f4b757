"""What the agent remembers beyond a conversation: facts and episodes, as Markdown files that people may edit too.

They are read from the folder and written by the journal. Every change is logged and can be taken back; all of it can be searched.
"""

from pegasus.memory.changes import Author, Change
from pegasus.memory.index import MemoryFile
from pegasus.memory.memory import Memory, Written, memory_in
from pegasus.memory.names import MemoryRefused
from pegasus.memory.shelf import FolderShelf, Shelf, Standing

__all__ = [
    "Author",
    "Change",
    "FolderShelf",
    "Memory",
    "MemoryFile",
    "MemoryRefused",
    "Shelf",
    "Standing",
    "Written",
    "memory_in",
]
