"""Consolidation: what an agent of a chat has heard becomes notes, when its session has more messages than `session.memory_window`.

The older messages leave the session. A model says in an entry of the history what mattered of them, and what every chat should know
from now on (MEMORY.md). `Consolidator` is handed in once for the process; `WindowConsolidator` watches one session. Both are
in `consolidator`, with the cut and the excerpt without a model; the question to the model and its answer are in `question`.
docs/consolidation.md describes it.
"""

from pegasus.main_agent.consolidation.consolidator import Consolidator, WindowConsolidator

__all__ = ["Consolidator", "WindowConsolidator"]
