"""The folder that work is at home in, in place of the workspace: that of an owner's chat, and that of a guest.

**A folder of an owner's own** (`pegasus chat --folder`). The chat's client names it with each message, and the intake lets only an
owner's own client do so. It is kept with the task, never among the arguments of a call. Relative paths and commands start there,
commands may write there, and it is guarded like the workspace, which the work can still reach by whole paths.

Projects have a file with rules for agents that work in them. Its words are text from outside, as those of every other file there: a
folder of one's own may be a clone of somebody else's.

**The folder of a guest**, `<home>/guests/<key>/`: all files that work for them can reach. It lies outside of the workspace, and of the
folders that commands may write in. For the file tools of a guest's work it is the workspace, and there is nothing else: the owner's
files do not exist there. Work for an owner may read the folders of guests, as text from outside, and write nothing there. Where a rule
of the owner lets guests run commands, those run there, too, and walls hide the workspace from them.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs

from pegasus.access import Principal
from pegasus.formatting import file_key
from pegasus.guarded_open import open_folder, open_regular
from pegasus.identity import MAX_TEXT, parse_owner_file
from pegasus.messages import Metadata
from pegasus.sandbox import Folders, is_within
from pegasus.tools.base import Effect, Tool, ToolContext

# ------------------------------------------------------------------ a folder of an owner's own

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


# ------------------------------------------------------------------ the folder of a guest

BLOCK: Final = 4096
"""Bytes that the smallest file counts as: many empty ones fill a disk, too."""
_KEEPS: Final = frozenset({"file", "network", "media", "code"})
"""Categories of tools that may put something there."""
_FREES: Final = frozenset({"delete_file", "move_file", "command_output", "command_stop"})
"""Tools that take no room."""


def has_own_place(person: Principal) -> bool:
    """Return whether work for this person has no files but those of a guest's folder."""
    return person.is_apart and not person.is_owner


def own_place(context: ToolContext) -> ToolContext:
    """Return the context with the files that the person of a call can reach. Makes the folder of a guest; blocks briefly."""
    person = context.principal
    if not has_own_place(person):
        return context
    if context.guests is None or not person.guest:
        return attrs.evolve(context, allowed_paths=())
    folder = context.guests / file_key(person.guest)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return attrs.evolve(context, workspace=folder, allowed_paths=(folder,))


def with_folders_of_guests(context: ToolContext) -> ToolContext:
    """Return the context of an owner's call that only reads, which may look into the folders of guests."""
    person, guests = context.principal, context.guests
    if guests is None or not person.is_owner or person.is_apart:
        return context
    return attrs.evolve(context, allowed_paths=(*context.allowed_paths, guests), open_paths=(guests,))


def quota_refusal(tool: Tool, arguments: Metadata, context: ToolContext) -> str:
    """Return why a call of a guest's work would take too much of the disk, "" if it would not. Blocks: it looks at the folder."""
    most = context.guest_bytes
    if not most or not has_own_place(context.principal) or tool.category not in _KEEPS:
        return ""
    if tool.effect is Effect.PURE or tool.name in _FREES:
        return ""
    wanted = sum(len(text.encode("utf-8", "replace")) for text in arguments.values() if isinstance(text, str))
    found = size_of(context.workspace) + wanted
    if found <= most:
        return ""
    return f"your folder would hold {found:,} bytes; allowed: {most:,} (limits.guest_disk_mb). Delete something first"


def size_of(folder: Path) -> int:
    """Return the bytes of all files below a folder; each counts as one block at least. Blocks."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += max(BLOCK, os.lstat(os.path.join(place, name)).st_size)
            except OSError:  # it is gone meanwhile
                continue
    return total
