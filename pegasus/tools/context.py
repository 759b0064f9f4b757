"""What every tool call of this installation may know and touch, made from the settings in this one place (traps T10, T12)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pegasus.tools.base import ToolContext
from pegasus.tools.paths import real_folders

RESULT_SHARE: Final = 0.05
"""Of the model's context window, at most, for one tool result: twenty of them fill it."""
CHARACTERS_PER_TOKEN: Final = 4
SMALLEST_RESULT: Final = 4_000
"""Characters that a result may have however small the window is."""


def base_context(workspace: Path, allowed_paths: Sequence[str], context_window: int) -> ToolContext:
    """The context that each call's own is made from, by `attrs.evolve(base, task_id=…, key=…, env=…)`.

    allowed_paths: as in the settings: [] = the workspace only, ["/"] = everything; relative ones start at the workspace.
    context_window: tokens. Reads the file system, briefly.
    """
    most = max(SMALLEST_RESULT, int(context_window * RESULT_SHARE * CHARACTERS_PER_TOKEN))
    [real_workspace] = real_folders((str(workspace),), workspace)
    allowed = real_folders(allowed_paths, workspace) if allowed_paths else (real_workspace,)
    return ToolContext(workspace=real_workspace, allowed_paths=allowed, max_result=most)
