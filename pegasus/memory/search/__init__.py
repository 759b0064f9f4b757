"""Search by words over facts, episodes and archived sessions, best first.

Its index is derived: it may be deleted at any time, and is made again from the files.
"""

from pegasus.memory.search.index import Found, Hit
from pegasus.memory.search.searcher import Searcher

__all__ = ["Found", "Hit", "Searcher"]
