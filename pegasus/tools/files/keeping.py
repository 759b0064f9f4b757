"""Keeping what a file tool is about to change (`pegasus.tools.kept_changes`)."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from pegasus.messages import FileEdit
from pegasus.observe import get_logger
from pegasus.tools.base import ToolContext
from pegasus.tools.diffs import diff_block
from pegasus.tools.files.paths import LocatedPath
from pegasus.tools.kept_changes import FileChange, content_hash
from pegasus.tools.path_snapshots import PathSnapshot, of_file, take_snapshot

_log = get_logger("tools")


def identity_of(folder: int, name: str) -> str:
    """Return what stands at a name: the digest of its content, for a folder and what is too large its inode, "" for nothing."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return ""
    there = None if stat.S_ISDIR(status.st_mode) else take_snapshot(folder, name)
    return f"{status.st_dev}:{status.st_ino}" if there is None else there.digest


def missing_above(located: LocatedPath) -> int:
    """Return how many folders above a path are not there."""
    steps = located.steps[:-1]
    return sum(not os.path.lexists(os.path.join(located.root, *steps[:end])) for end in range(1, len(steps) + 1))


@contextmanager
def kept(
    context: ToolContext,
    how: str,
    located: LocatedPath,
    folder: int,
    *,
    made: int = 0,
    content: bytes | None = None,
    after: str = "",
    source: LocatedPath | None = None,
    source_folder: int = -1,
) -> Iterator[None]:
    """Keep what is at a path while the block changes it; forget it again if the block fails and nothing has changed.

    folder: that of the path. made: folders above it that the call makes. content: what the file will hold. after: identity of
    what will be there, where the content is not at hand. source: for a move.
    """
    if context.changes is None:
        yield
        return
    keeper, name = context.changes, located.name
    before, identity = take_snapshot(folder, name), identity_of(folder, name)
    if source is not None:
        after = identity_of(source_folder, source.name)
    if content is not None:
        after = of_file(content).digest
    person = context.principal
    change = FileChange(
        keeper.now(),
        context.task_id,
        "" if person.is_owner else person.guest,
        how,
        located.root,
        located.steps,
        source.root if source is not None else "",
        source.steps if source is not None else (),
        made,
        after,
        None if before is None else before.entries,
        identity,
        content_hash(b"" if before is None else before.data),
    )
    try:
        number = keeper.begin(change, before or PathSnapshot())
    except OSError as error:  # the change itself may fit on the disk
        _log.warning("a change of a file is not kept, so it cannot be taken back", error=str(error))
        yield
        return
    try:
        yield
    except BaseException:
        with suppress(OSError):
            if identity_of(folder, name) == identity:
                keeper.drop(number)
        raise
    if before is not None and (content is not None or how == "delete") and not (before.entries and not before.is_file):
        _show(context, located.real, before.data if before.entries else None, content)


def _show(context: ToolContext, path: str, before: bytes | None, after: bytes | None) -> None:
    """Show people of a chat with a folder of its own what was changed in a file; None: there was none, or is none."""
    channel = context.principal.channel
    if context.folder and context.show_edit is not None and channel is not None:
        context.show_edit(FileEdit(channel, context.task_id, path, diff_block(before, after)))
