"""Full-text search over facts, episodes and archived sessions, best match first.

The index is derived from the files. It may be deleted at any time and is made again.
"""

from pegasus.memory.search.index import Found, Hit
from pegasus.memory.search.searcher import Searcher

__all__ = ["Found", "Hit", "Searcher"]
