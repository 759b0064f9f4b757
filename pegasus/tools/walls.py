"""The walls of one command of a task, and what the model and the owner are told about them afterwards.

Files that programs run by themselves (`pegasus.autorun_files`) and that were there at the first command of a task are read-only for
its commands. They are not while the work is an owner's and has read nothing from outside: then nobody else can have asked for the
change. A command in the background goes on when that is over, and takes input, so they are always read-only for it. Walls that cannot
close files (Landlock) let the command change them, and each changed file is named in the result and in the log; an owner gets a
message about those that were there before.

What cannot be closed, because it is not there, is looked for after each command in both kinds of walls: what git would obey in a
repository that was there is set aside, and a new repository within the folders of another is named. An owner gets a message about
both. Where the search for all that has reached its bounds, the walls count as partial (`unsearched`).

A program that walls refuse something says "Permission denied" and the like, which sounds like a mistake of the program. So a result
that ends badly with such words says that there are walls, and which setting is about them. It is a guess from the words, and says so.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import partial
from typing import Final

import attrs
import trio

from pegasus.formatting import cut_text, plural
from pegasus.observe import get_logger
from pegasus.sandbox import MOST_ENTRIES, MOST_FOLDERS, MOST_FOUND, AutorunSnapshot, Sandbox
from pegasus.tools.base import ToolContext
from pegasus.tools.places import has_own_place, opened

_log = get_logger("sandbox")
_NAMED: Final = 5
"""Files that a note names; of the others it gives the number."""
_LOOKED_AT: Final = 20
"""Paths in an output, the last ones, that are compared with what the walls hide."""
_REFUSED: Final = re.compile(
    r"permission denied|operation not permitted|read-only file system|\bE(?:ACCES|PERM|ROFS)\b|(?P<mount>resource busy|\bEBUSY\b)",
    re.IGNORECASE,
)
"""Words of programs for what walls refuse, as the C library and Node have them; the last of what cannot be removed or renamed."""
_PATH: Final = re.compile(r"/[^\s'\":;,]+")
"""Paths in the output of a program."""
_MISSING: Final = re.compile(r"no such file|not found|cannot find|can't open", re.IGNORECASE)
"""Words of programs for what is not there."""
_UNREACHABLE: Final = re.compile(
    r"could not resolve|name resolution|network is unreachable|temporary failure|getaddrinfo|\bEAI_AGAIN\b|\bENETUNREACH\b|"
    r"failed to connect|connection refused|\bECONNREFUSED\b|\bENOTFOUND\b|unable to access 'https?:|\b403 forbidden\b",
    re.IGNORECASE,
)
"""Words of programs that reach nobody."""


async def enclose(sandbox: Sandbox, context: ToolContext, *, lasts: bool = False) -> Sandbox:
    """Return the walls of a command of this task. At its first command the files are searched, in a thread.

    A guest's command sees the folder of the guest, and nothing of the workspace. lasts: it goes on in the background.
    """
    if sandbox.kind == "none":
        return sandbox
    sandbox = await _of_work(sandbox, context)
    found = await _search(sandbox, context)
    return attrs.evolve(sandbox, closed=() if is_free(context) and not lasts else found.closed)


async def _of_work(sandbox: Sandbox, context: ToolContext) -> Sandbox:
    """Return the walls with the folders that the work may see."""
    if context.folder:
        # A command of other work may have put a link in its place, which walls would follow.
        if await trio.to_thread.run_sync(os.path.realpath, context.folder) != context.folder:
            return sandbox
        return attrs.evolve(sandbox, folders=opened(sandbox.folders, context.folder))
    if not has_own_place(context.principal):
        return sandbox
    return attrs.evolve(sandbox, folders=await trio.to_thread.run_sync(sandbox.folders.only, str(context.workspace)))


async def unsearched(sandbox: Sandbox, context: ToolContext) -> str:
    """Return why the walls do not keep all files as they are that programs run by themselves, "" if they do as far as they can."""
    if sandbox.kind == "none" or (await _search(await _of_work(sandbox, context), context)).is_complete:
        return ""
    return (
        "its folders hold more than is searched for files that other programs run by themselves "
        f"({MOST_ENTRIES:,} names, {MOST_FOLDERS:,} folders, {MOST_FOUND} such files), so walls do not keep all of them"
    )


async def _search(sandbox: Sandbox, context: ToolContext) -> AutorunSnapshot:
    """Return what was found in these folders before the first command of the task, now if there was none yet."""
    commands, folders = context.commands, sandbox.folders.writable
    if commands is not None and commands.autorun is not None and commands.autorun.roots == folders:
        return commands.autorun
    look = partial(AutorunSnapshot.take, folders, is_compared=not sandbox.can_close)
    found = await trio.to_thread.run_sync(look)
    if commands is not None:
        commands.autorun = found
    return found


async def changed_files(sandbox: Sandbox, context: ToolContext, *, lasts: bool = False) -> list[str]:
    """Return such files that commands have changed since the last time, as of `look_for_changes`."""
    await look_for_changes(sandbox, context, lasts=lasts)
    if context.commands is None:
        return []
    found, context.commands.changed_files = context.commands.changed_files, []
    return found


async def look_for_changes(sandbox: Sandbox, context: ToolContext, *, lasts: bool = False) -> None:
    """Look which files that programs run by themselves commands have changed, and keep them for the model.

    Of walls that can close files these are only the ones that could not be closed. An owner is told of them, and of changed files
    that were there before, unless the work is an owner's and has read nothing from outside. Looking is done in a thread.

    lasts: the command is one in the background, which goes on when that is over.
    """
    commands = context.commands
    if commands is None or commands.autorun is None:  # none was run within walls
        return
    is_owners = is_free(context) and not lasts
    async with commands.looking:
        was_complete = commands.autorun.is_complete
        changes = await trio.to_thread.run_sync(partial(commands.autorun.changes, sets_aside=not is_owners))
        commands.autorun = changes.now
    told = [*changes.former, *changes.set_aside, *changes.nested]
    if was_complete and not changes.now.is_complete:
        told.append("files beyond those that are searched: there are too many by now")
    if is_owners and sandbox.can_close:
        return
    if told or changes.made:
        files = ", ".join([*told, *changes.made])
        log = _log.warning if told else _log.info
        log(
            "a command changed files that programs run by themselves", task=context.task_id, files=cut_text(files, 1000)
        )
    if told and not is_owners:
        sandbox.tell_owner(context.task_id, context.principal.channel, told)
    commands.changed_files += [*told, *changes.made]


def is_free(context: ToolContext) -> bool:
    """Return whether nobody but an owner can have asked for what the work does."""
    return context.principal.is_owner and not context.outside


def note_of_changes(changed: Sequence[str]) -> list[str]:
    """Return a note about such files, [] for none."""
    if not changed:
        return []
    more = f" and {plural(len(changed) - _NAMED, 'other file')}" if len(changed) > _NAMED else ""
    names = ", ".join(cut_text(name, 200) for name in changed[:_NAMED])
    return [f"changed what other programs run or obey by themselves: {names}{more}"]


def hidden_path(output: str, sandbox: Sandbox) -> str:
    """Return a path that a program could not open and that the walls hide; "" if there is none. output: what it has written."""
    if not (_REFUSED.search(output) or _MISSING.search(output)):
        return ""
    paths = _PATH.findall(output)[-_LOOKED_AT:]
    return next((path for path in paths if sandbox.folders.kind_of(path) in ("hide", "home")), "")


def may_be_walls(output: str) -> bool:
    """Return whether a program has written words that programs use for what walls refuse."""
    return bool(_REFUSED.search(output) or _UNREACHABLE.search(output))


def note_of_walls(exit_code: int, output: str, sandbox: Sandbox) -> list[str]:
    """Return a note if the walls may be the reason why a command has failed, [] otherwise. output: what it has written."""
    if exit_code == 0 or sandbox.kind == "none":
        return []
    refused = _REFUSED.search(output)
    is_refused = refused is not None and (refused["mount"] is None or bool(sandbox.closed))
    if path := hidden_path(output, sandbox):
        return [f"the walls around commands hide {path}: sandbox.writable or tools.allowed_paths open a folder"]
    if is_refused and sandbox.can_close and any(os.path.basename(path) in output for path in sandbox.closed):
        inner = f"{sandbox.folders.workspace}/"
        names = ", ".join(path.removeprefix(inner) for path in sandbox.closed[:_NAMED])
        return [
            f"the walls around commands keep what other programs run by themselves as it is ({names}), because this work is "
            "not an owner's or has read text from outside; the file tools change it with an owner's yes"
        ]
    if is_refused:
        return [
            "this may be the walls around commands: they write to the workspace only (sandbox.writable and tools.allowed_paths open "
            "other folders), and neither homes nor other processes are there"
        ]
    if _UNREACHABLE.search(output):
        if not sandbox.has_network:
            return [
                'this may be the walls around commands, which have no network: sandbox.network = "all" gives them one, and '
                "sandbox.hosts limits it to some hosts"
            ]
        return [
            "this may be the walls around commands, whose network is a proxy to public addresses: sandbox.allowed_hosts, sandbox.hosts"
        ]
    return []
