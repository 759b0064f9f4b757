"""The owner's files in the workspace: IDENTITY.md, SOUL.md, USER.md and AGENTS.md become part of the prompt.

They hold what a person wants to tell the agent once and for all, in plain Markdown: who it is, what it is like, whom it works for,
how work is done here. A file that is missing or blank leaves nothing in the prompt. Only `pegasus init` makes one: USER.md, with the
person's own words.

They are looked at before each message is worked on. That is one `stat` for each file; a file is read only when it has changed. So an
edit counts from the next message on, without a restart, and the prompt changes exactly when a file does: a provider then reads the
conversation anew once and finds it in its cache again afterwards. Within the work on a message the prompt stays the same.

The files are bounded, because they are part of every model call. They are read as a task may have left them: only regular files, no
links (one could lead to a secret outside of the workspace), opening one never waits as it would for a pipe, and invalid bytes and
control characters are taken out. Their place is behind the safety section, which says nothing less because of them.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Final, NamedTuple

import attrs
import trio

from pegasus.formatting import cut_text
from pegasus.observe import get_logger

WORKSPACE_FILES: Final = ("IDENTITY.md", "SOUL.md", "USER.md", "AGENTS.md")
"""Names of the files, in their order in the prompt: who the agent is, its character, its user, its rules of work."""
TASK_FILES: Final = ("AGENTS.md",)
"""Files that are part of the prompt of tasks, too. A task speaks to nobody, so character and user do not matter to it."""
MAX_TEXT: Final = 6_000
"""Characters of a file that are used: about 1,500 tokens."""
MAX_LEAN_TEXT: Final = 600
"""Characters of a file in a lean prompt: about 150 tokens."""

_HEADING: Final = """\
## Notes of Your Owner

The owner of this installation wrote these files for you. Follow them in everything that the sections above leave open."""
_NOT_TEXT: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""Control characters except newline and tab, and lone surrogates."""

_log = get_logger("identity")


class _File(NamedTuple):
    """A file as it was read."""

    stamp: tuple[int, int, int]
    """Time of change, size and inode; while they are the same, the file is not read again."""
    text: str
    """Content without characters that are no text, longer than MAX_TEXT if the file is."""


@attrs.define(eq=False)
class WorkspaceFiles:
    """The owner's files in one folder, as they were when they were last looked at.

        files = WorkspaceFiles(home.workspace)
        files.load()
        files.section(WORKSPACE_FILES)  # "## Notes of Your Owner …", "" if there is none

    One object serves the Main Agent, which refreshes it, and all tasks.
    """

    folder: Path
    in_thread: bool = True
    """Whether files are looked at in a thread. Tests in virtual time look directly."""
    version: int = 0
    """Grows by 1 with each change that was noticed."""
    _files: dict[str, _File] = attrs.field(factory=dict)
    """What there is, by name, in the order of WORKSPACE_FILES."""

    def load(self) -> None:
        """Read what has changed. Blocks; for the start."""
        self._store(_read_folder(self.folder, self._files))

    async def refresh(self) -> None:
        """Read what has changed. Never raises; a file that cannot be read counts as missing. Cancelled: nothing has changed."""
        if self.in_thread:
            found = await trio.to_thread.run_sync(_read_folder, self.folder, self._files, abandon_on_cancel=True)
        else:
            await trio.lowlevel.checkpoint()
            found = _read_folder(self.folder, self._files)
        self._store(found)

    def section(self, names: tuple[str, ...], *, lean: bool = False) -> str:
        """Return the section of the prompt about these files, "" if none of them says anything."""
        limit = MAX_LEAN_TEXT if lean else MAX_TEXT
        parts = [f"### {name}\n\n{cut_text(self._files[name].text, limit)}" for name in names if name in self._files]
        return "\n\n".join([_HEADING, *parts]) if parts else ""

    def _store(self, found: dict[str, _File]) -> None:
        """Keep what was found. The log names the files whose text is new, and those that are too long."""
        changed = [name for name in WORKSPACE_FILES if _text(found, name) != _text(self._files, name)]
        self._files = found
        if not changed:
            return
        self.version += 1
        _log.info("files of the workspace are in the prompt", changed=changed, files=list(found))
        for name in changed:
            if (length := len(_text(found, name))) > MAX_TEXT:
                _log.warning("only the beginning of a file is in the prompt", file=name, length=length, used=MAX_TEXT)


def _text(files: dict[str, _File], name: str) -> str:
    return files[name].text if name in files else ""


def _read_folder(folder: Path, known: dict[str, _File]) -> dict[str, _File]:
    """Return the files that say something, by name. Unchanged ones are not read."""
    found = {}
    for name in WORKSPACE_FILES:
        if (file := _read_file(folder / name, known.get(name))) is not None:
            found[name] = file
    return found


def _read_file(path: Path, known: _File | None) -> _File | None:
    """Return the content of a file; None if there is none, it is blank, or it is not a regular file that can be read."""
    try:
        status = path.lstat()
        stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        if known is not None and known.stamp == stamp:
            return known
        if not stat.S_ISREG(status.st_mode):
            return None
        # O_NOFOLLOW and O_NONBLOCK: the file may have been exchanged for a link or a pipe since.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as stream:
            content = stream.read(4 * MAX_TEXT + 4)  # a character has at most four bytes
    except OSError:
        return None
    text = _NOT_TEXT.sub("", content.decode("utf-8", "replace")).strip()
    return _File(stamp, text) if text else None
