"""The folder of an owner's own that the tasks of a chat work in, in place of the workspace (`pegasus chat --folder`).

The chat's client names it with each message, and the intake lets only an owner's own client do so. It is kept with the
task, never among the arguments of a call. Relative paths and commands start there, commands may write there, and it is
guarded like the workspace, which the work can still reach by whole paths.

Projects have a file with rules for agents that work in them. Its words are text from outside, as those of every other file there: a
folder of one's own may be a clone of somebody else's.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs

from pegasus.guarded_open import open_folder, open_regular
from pegasus.identity import MAX_TEXT, parse_owner_file
from pegasus.sandbox import Folders, is_within
from pegasus.tools.base import ToolContext

RULE_FILES: Final = ("AGENTS.md", "CLAUDE.md")
"""Files with rules for those who work in a folder. The first that says something counts."""


def in_folder(context: ToolContext, folder: str) -> ToolContext:
    """Return the context of a call that works in this folder; "" changes nothing."""
    if not folder:
        return context
    place = Path(folder)
    allowed = (*context.allowed_paths, place)
    return attrs.evolve(context, folder=folder, workspace=place, desk=context.workspace, allowed_paths=allowed)


def read_rules(folder: str) -> tuple[str, str]:
    """Return name and text of the file with the rules of a folder, both "" if it has none. Blocks. No link is followed."""
    with suppress(OSError), open_folder(folder) as descriptor:
        for name in RULE_FILES:
            with suppress(OSError), open_regular(name, descriptor) as file:
                if text := parse_owner_file(file.read(4 * MAX_TEXT), (0, 0, 0)).text:
                    return name, text
    return "", ""


def opened(folders: Folders, folder: str) -> Folders:
    """Return the folders of a command that may write to this one as well."""
    if any(is_within(folder, path) for path in folders.writable):
        return folders
    return attrs.evolve(folders, writable=(*folders.writable, folder))
