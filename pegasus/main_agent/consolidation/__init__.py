"""Consolidation: what an agent of a chat has heard becomes notes, when its session has more messages than `session.memory_window`.

The older messages leave the session. A model says in an entry of the history what mattered of them, and what every chat should know
from now on (MEMORY.md). `Consolidator` is handed in once for the process; `WindowKeeper` watches one session. Both are
in `keeper`, with the cut and the excerpt without a model; the question to the model and its answer are in `question`.
docs/consolidation.md describes it.
"""

from pegasus.main_agent.consolidation.keeper import Consolidator, WindowKeeper, notes_disk

__all__ = ["Consolidator", "WindowKeeper", "notes_disk"]
