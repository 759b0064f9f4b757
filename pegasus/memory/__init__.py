"""What the agent remembers beyond a conversation: facts and episodes, as Markdown files that people may edit too.

They are read from the folder and written by the journal.
"""

from pegasus.memory.memory import Memory, MemoryFile, MemoryRefused
from pegasus.memory.shelf import FolderShelf, Shelf, Standing

__all__ = ["FolderShelf", "Memory", "MemoryFile", "MemoryRefused", "Shelf", "Standing"]
