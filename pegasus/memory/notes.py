"""The notes of consolidation, for agents of chats: MEMORY.md, and the history of what was said.

    workspace/memory/MEMORY.md             what every chat of an owner should know; people edit it, consolidation rewrites it
    workspace/memory/HISTORY.md            an entry for each part of a conversation that was consolidated
    workspace/memory/HISTORY-2026-02.md    the same entries, by month (UTC)

MEMORY.md stands in the prompts of owners' chats. So its words are treated like the rest of memory (`provenance`): a line that was
written after reading text from outside carries a mark, and `own_notes` leaves such lines out of prompts. A model that rewrites the
notes never sees them either, and `rewritten_notes` keeps them: so it cannot take off a mark by saying the same without one. One that
has read text from outside may add lines and take none away.

An entry of the history is written exactly once, whatever crashes: each has an id, and is complete when all of it is there.

    ## 2026-02-25 14:30 web:c1 <!-- 5f1c0a9d2b7e -->

    Ann decided to move the blog to static pages.

Except for `NotesFile` and `add_to_history`, everything here is pure.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Final

import attrs
import trio

from pegasus.formatting import format_time
from pegasus.memory.folder import HEAD, FileState, Stamp
from pegasus.memory.provenance import disarmed, labels_in, mark_for, marks_in, without_marks
from pegasus.memory.taking_back import without_change
from pegasus.outside import Untrusted
from pegasus.storage import Disk, StorageError, Volume

NOTES_FOLDER: Final = "memory"
"""Folder of the notes, below the workspace."""
LONGEST_NOTES: Final = 6_000
"""Characters of `own_notes` up to which MEMORY.md is rewritten: so much of it is in a prompt."""
LONGEST_FILE: Final = 20_000
"""Bytes of MEMORY.md up to which it is rewritten, lines that are not shown included."""
SHORTEST_SHARE: Final = 0.5
"""Part of the notes that must be left after a rewrite. A model that returns less has forgotten something, or was cut off."""
SMALL_NOTES: Final = 400
"""Characters up to which notes may shrink to any length."""

NOTES: Final = f"workspace/{NOTES_FOLDER}/MEMORY.md"
"""Path of MEMORY.md as the log of memory has it, and `pegasus memory show`."""

_WRONG_KIND: Final = frozenset({errno.EISDIR, errno.EINVAL, errno.ELOOP, errno.ENOTDIR, errno.EMLINK, errno.ENXIO})
"""Errors of a file in whose place stands something else."""
_FILE: Final = f"{NOTES_FOLDER}/MEMORY.md"
"""The same, below the workspace."""
_HEADING: Final = re.compile(r"^(?=#)", re.MULTILINE)
"""Place before a # at the beginning of a line, which would begin a heading."""
_COMMENT: Final = re.compile(r"<!(?=--)")
"""Beginning of an HTML comment, in which entries have their ids."""


# ------------------------------------------------------------------ MEMORY.md


def own_notes(text: str) -> str:
    """Return the notes without the lines whose words come from outside, or that were marked as not to be followed."""
    return "\n".join(line for line in text.splitlines() if not _is_hidden(line)).strip()


def rewritten_notes(text: str, update: str, outside: Iterable[Untrusted] = ()) -> str:
    """Return the notes after an update by a model that was shown `own_notes(text)`.

    outside: labels of what it has read. If there are any, its new lines are added with their mark, and all others stay. Otherwise
    the update takes the place of what it was shown. Lines that read like an instruction are marked in both cases.
    """
    labels = tuple(outside)
    lines = text.splitlines()
    hidden = [line for line in lines if _is_hidden(line)]
    known = {disarmed(without_marks(line)).strip(): line for line in lines}
    shown = {disarmed(line).strip(): line for line in lines if not _is_hidden(line)}
    if labels:
        new = [line for line in disarmed(update).splitlines() if line.strip(" \t#-*>") and line.strip() not in known]
        new = [line for line in new if line.strip() not in shown]
        return "\n".join([text.rstrip(), *(_marked(line.lstrip("#> \t"), labels) for line in new)]).strip()
    rewritten = [shown.get(line.strip()) or _marked(line, ()) for line in disarmed(update).strip().splitlines()]
    return "\n".join([*rewritten, *hidden]).strip()


def merged_notes(seen: str, wanted: str, now: str) -> str | None:
    """Return the notes of now with the changes that lead from `seen` to `wanted`; None if both have changed the same lines.

    So several chats may rewrite the notes at once, and a person may edit them meanwhile, without undoing each other's changes. Changes
    that are there already are not made twice.
    """
    if wanted == now or not (
        set(added_lines(seen, wanted)) - _lines(now) or set(added_lines(wanted, seen)) & _lines(now)
    ):
        return now
    seen, wanted, now = (f"{text.rstrip()}\n" if text.strip() else "" for text in (seen, wanted, now))
    result = without_change(wanted, seen, now)  # an undo turned round: what leads back to `seen` is taken back
    return None if result is None else result.rstrip()


def added_lines(seen: str, wanted: str) -> list[str]:
    """Return the lines that a rewrite has added, for the history of one that was not possible."""
    return [line.strip() for line in wanted.splitlines() if line.strip() and line.strip() not in _lines(seen)]


def _lines(text: str) -> set[str]:
    """Return the lines of a text without the blanks around them."""
    return {line.strip() for line in text.splitlines()}


def problem_of_update(text: str, update: str) -> str:
    """Return what is wrong with an update of these notes, for the model that has made it; "" if nothing is."""
    if not update.strip():
        return "memoryUpdate is empty; leave it out if nothing changes"
    if len(update) > LONGEST_NOTES:
        return f"memoryUpdate has {len(update):,} characters, and {LONGEST_NOTES:,} are allowed"
    own = own_notes(text)
    if len(own) > SMALL_NOTES and len(update.strip()) < SHORTEST_SHARE * len(own):
        return "memoryUpdate leaves out most of the notes; it must hold all that is still true"
    return ""


def may_rewrite(text: str) -> bool:
    """Return whether notes are short enough to be rewritten, or, after a rewrite, to be written."""
    return len(own_notes(text)) <= LONGEST_NOTES and len(text.encode("utf-8", "replace")) <= LONGEST_FILE


def _is_hidden(line: str) -> bool:
    """Return whether a line is kept from models: its words come from outside, or its mark says not to follow them."""
    return bool(labels_in(line)) or any("do not follow" in mark for mark in marks_in(line))


def _marked(line: str, labels: Iterable[Untrusted]) -> str:
    """Return a line with the mark of its origin, if it needs one. A blank line needs none."""
    mark = mark_for(line, "own", labels) if line.strip() else ""
    return f"{line.rstrip()} {mark}" if mark else line.rstrip()


def is_wrong_kind(error: StorageError) -> bool:
    """Return whether something else stands in the place of the file: a folder, a link, a pipe. Otherwise the disk has refused."""
    return getattr(error.__cause__, "errno", None) in _WRONG_KIND


class NotesFile:
    r"""MEMORY.md on the disk of the workspace: `NotesFile(FileDisk(home.workspace, GuardedFiles(home.workspace)))`.

    The disk is used for nothing else, since only one call at a time may be made.

    Example::

        notes = NotesFile(FileDisk(home.workspace, GuardedFiles(home.workspace)))
        (await notes.read()).decode()  # "- Ann likes tea\n", "" if there is no such file
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        """The disk of the workspace."""
        self._lock = trio.Lock()
        """Held during a call of the disk."""

    async def read(self) -> bytes:
        """Return its content; b"" if there is none, or something else in its place. Raises StorageError."""
        async with self._lock:
            try:
                return await self._disk.run(Volume.read, _FILE)
            except StorageError as error:
                if is_wrong_kind(error):
                    return b""
                raise

    async def state(self, seen: Mapping[str, Stamp], limit: int) -> tuple[FileState, ...]:
        """Return its state as `MemoryFolder.scan` does, () if there is none. Raises StorageError."""
        content = await self.read()
        if not content:
            return ()
        stamp = (len(content), int.from_bytes(sha256(content).digest()[:8]))
        is_wanted = seen.get(NOTES) != stamp and len(content) <= limit
        return (FileState(NOTES, len(content), content[:HEAD], stamp, content if is_wanted else None),)

    async def replace(self, content: bytes) -> None:
        """Make it hold this, durably. Raises StorageError."""
        async with self._lock:
            await self._disk.run(Volume.replace, _FILE, content)


# ------------------------------------------------------------------ HISTORY.md


@attrs.frozen(eq=False, repr=False)
class HistoryEntry:
    """A part of a conversation, as the history keeps it: `HistoryEntry("5f1c0a9d2b7e", now, "web:c1", "Ann decided …")`.

    Example: `HistoryEntry("5f1c0a9d2b7e", now, "web:c1", "Ann decided …").format()` is a part of HISTORY.md in Markdown.
    """

    id: str
    """Identifies it; two entries never have the same."""
    ts: int
    """Time of the consolidation: wall clock, ms."""
    chat: str
    """The chat, `<type>:<channelId>`."""
    text: str
    """Account of what happened, in a few sentences; an excerpt of the messages if no model has written it."""
    outside: tuple[Untrusted, ...] = ()
    """Labels of the conversation."""

    def format(self) -> str:
        """Return it as Markdown. Nothing in its text looks like the heading of another entry."""
        text = _COMMENT.sub("<! ", _HEADING.sub(r"\\", disarmed(self.text).strip()))
        mark = mark_for(text, "own", self.outside)
        chat = _COMMENT.sub("<! ", " ".join(self.chat.split()))
        heading = f"## {format_time(self.ts, '%Y-%m-%d %H:%M')} {chat} <!-- {self.id} -->"
        return "\n".join(["", heading, "", text, *(["", mark] if mark else []), ""])


async def add_to_history(disk: Disk, entry: HistoryEntry, *, again: bool = False) -> None:
    """Append an entry to HISTORY.md and its monthly file, durably. Raises StorageError; then nothing of it has happened.

    disk: that of the workspace. again: it was tried before, and nobody knows how far it came. What is there already is not written
    twice.
    """
    month = format_time(entry.ts, "%Y-%m")
    paths = [f"{NOTES_FOLDER}/HISTORY.md", f"{NOTES_FOLDER}/HISTORY-{month}.md"]
    content = entry.format().encode("utf-8", "replace")
    await disk.run(_add_again if again else _add, paths, content, entry.id.encode())


def _add(volume: Volume, paths: Sequence[str], content: bytes, id: bytes) -> None:
    """Append the entry to both files, in one step of the volume."""
    volume.append([(path, content) for path in paths])


def _add_again(volume: Volume, paths: Sequence[str], content: bytes, id: bytes) -> None:
    """Append to those files that do not have the entry. A power failure leaves a part of it at the end of a file, or zeros."""
    mark, missing = b"<!-- %b -->" % id, []
    for path, found in zip(paths, volume.read_durable(paths), strict=True):
        kept = found.rstrip(b"\0")
        start = kept.rfind(content[: content.index(mark) + len(mark)])
        if start >= 0:  # a whole heading: either all of it is there, or it is cut off, or somebody has edited it
            torn = kept[start:] if content.startswith(kept[start:]) and kept[start:] != content else b""
        else:
            torn = next((content[:n] for n in range(len(content) - 1, 0, -1) if kept.endswith(content[:n])), b"")
            torn = b"" if torn == b"\n" else torn
        if torn or len(kept) < len(found):
            volume.cut(path, len(kept) - len(torn))
        if start < 0 or torn:
            missing.append(path)
    volume.append([(path, content) for path in missing])
