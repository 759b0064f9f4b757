"""Taking back a change of a file that a tool has made (`pegasus.tools.kept_changes`). All functions block."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from secrets import token_hex

from pegasus.tools.files.changing import remove, rename, replace_file
from pegasus.tools.files.keeping import identity_of
from pegasus.tools.files.paths import LocatedPath, folder_of, refusing
from pegasus.tools.kept_changes import FileChange, KeptChanges
from pegasus.tools.path_snapshots import PathSnapshot, put_back, take_snapshot


class UndoRefused(Exception):
    """A change that is not taken back. The text says why; `before` and `there` are what the file would hold, and what it holds."""

    def __init__(self, text: str, before: bytes = b"", there: bytes = b"") -> None:
        super().__init__(text)
        self.before = before
        self.there = there


def take_back(
    kept: KeptChanges,
    change: FileChange,
    key: str,
    will_hold: Callable[[str, bytes], None] = lambda path, data: None,
) -> bool:
    """Take a change back for the command with this key, and return whether there was something to do: a crash may have prevented it.

    will_hold: told the path and the content before a file gets it. Raises UndoRefused, and ToolError for what the system refuses.
    """
    if change.before is None:
        raise UndoRefused(f"{change.path} was more than is kept, so the change stays")
    before = kept.content(change)
    if before is None:
        raise UndoRefused(f"what {change.path} held before is damaged or gone, so the change stays")
    located = LocatedPath(change.root, change.steps, change.path)
    with refusing(change.path):
        try:
            if change.how == "move":
                was_made = _move_back(kept, change, located, before, key)
            else:
                was_made = _put_back(kept, change, located, before, key, will_hold)
        except FileNotFoundError:
            raise UndoRefused(f"the folder of {change.path} is gone, so the change stays") from None
    _remove_empty(located, change.made)
    return was_made


def _put_back(
    kept: KeptChanges,
    change: FileChange,
    located: LocatedPath,
    before: PathSnapshot,
    key: str,
    will_hold: Callable[[str, bytes], None],
) -> bool:
    """Make a path hold again what it held before a change."""
    with folder_of(located, make=not change.after) as folder:
        there = identity_of(folder, located.name)
        if there == change.digest != change.after:
            return change.undone == key  # never made, or taken back before a crash
        if there != change.after:
            raise _changed_since(change, before, folder)
        with kept.taking_back(change, key):
            if before.is_file:
                will_hold(change.path, before.data)
            if before.is_file and change.after:
                status = os.stat(located.name, dir_fd=folder, follow_symlinks=False)
                replace_file(folder, located.name, before.data, change.path, status)
                return True
            if change.after:
                remove(folder, located.name, change.path)
            _restore(before, folder, located.name)
    return True


def _move_back(kept: KeptChanges, change: FileChange, located: LocatedPath, before: PathSnapshot, key: str) -> bool:
    """Give what was moved its former name, and what it has replaced the place that it had."""
    source = LocatedPath(change.from_root, change.from_steps, change.former_path)
    with folder_of(located) as folder, folder_of(source, make=True) as home:
        there, former = identity_of(folder, located.name), identity_of(home, source.name)
        if former == change.after and there == change.digest:
            return change.undone == key  # never made, or taken back before a crash
        if former == change.after and not there:
            _restore(before, folder, located.name)  # a crash or a full disk came between the two
            return True
        if there != change.after:
            raise _changed_since(change, before, folder)
        if former:
            raise UndoRefused(f"there is something else at {change.former_path} by now, so {change.path} stays")
        with kept.taking_back(change, key):
            rename(folder, located.name, home, source.name, change.path, change.former_path)
            _restore(before, folder, located.name)
    return True


def _restore(before: PathSnapshot, folder: int, name: str) -> None:
    """Make what a snapshot holds at a name where nothing is: all of it, or nothing if the disk refuses."""
    if not before.entries:
        return
    aside = f".{name[:32]}.{token_hex(8)}.tmp"
    try:
        put_back(before, folder, aside)
        os.rename(aside, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with suppress(OSError):
            remove(folder, aside, name)
        raise


def _changed_since(change: FileChange, before: PathSnapshot, folder: int) -> UndoRefused:
    """Return the refusal for a path that holds something else than the change has left there."""
    there = take_snapshot(folder, change.steps[-1])
    text = f"{change.path} was changed since"
    if there is not None and not there.entries:
        text = f"{change.path} is gone by now"
    shown = there.data if there is not None and there.is_file else b""
    return UndoRefused(f"{text}, so it stays as it is", before.data if before.is_file else b"", shown)


def _remove_empty(located: LocatedPath, levels: int) -> None:
    """Remove the folders that a change has made above a path, deepest first, as far as nothing is in them."""
    steps = located.steps[:-1]
    with suppress(OSError):
        for _ in range(min(levels, len(steps))):
            with folder_of(LocatedPath(located.root, steps, located.shown)) as folder:
                os.rmdir(steps[-1], dir_fd=folder)
            steps = steps[:-1]
