"""Files of the writable folders that programs run by themselves (`pegasus.autorun_files`), as they are at one moment.

Each task looks once, before its first command. What was there then is somebody else's: later commands of the task see it read-only, or
what they have changed of it is named. What the task makes anew (`git init`, `python -m venv`) is its own.

The search is bounded, so that a huge tree costs no more than a large one: folders near the top come first, and folders of packages
(`node_modules`) are left out, since nobody opens those. Within a repository only the places are looked at that git obeys. Files beyond
the bounds are neither closed nor named.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from stat import S_ISDIR
from typing import Final

import attrs

from pegasus.autorun_files import is_autorun_file, is_autorun_folder, may_be_autorun
from pegasus.sandbox.folders import is_within

MOST_FOLDERS: Final = 2_000
"""Folders that are looked at: some hundredths of a second."""
MOST_ENTRIES: Final = 10_000
"""Names that are looked at in all of them."""
MOST_FOUND: Final = 200
"""Files and folders that are found, those near the top first. Each that is closed costs some microseconds at each command."""
MOST_COMPARED: Final = 100
"""Files and folders within each that are compared afterwards: more than git has hooks, fewer than a `.venv` has modules."""
_PACKAGES: Final = ("node_modules", "__pycache__", "bower_components")
"""Names of folders that are not looked into."""
_GIT_FOLDER: Final = ".git"
"""End of the name of a repository's folder."""
_OBEYED: Final = ("config", "config.worktree", "commondir", "hooks", "modules", "worktrees")
"""Names in a repository's folder that matter."""
_SHAPE: Final = frozenset(("HEAD", "config", "objects", "refs"))
"""Names by which git knows a repository."""
_STORED: Final = ("objects", "refs", "logs", "lfs")
"""Names of folders in the repository of a module, in which there are many files and none that matters."""
_Stamp = tuple[int, int, int, int]
"""Change time in nanoseconds, which nobody can set, size, inode and mode."""


@attrs.frozen(eq=False, repr=False)
class AutorunSnapshot:
    """Files that programs run by themselves, as they were when a search found them.

    Example::

        before = AutorunSnapshot.take(["/home/me/.pegasus/workspace"])
        before.closed     # (".../project/.git/config", ".../project/.git/hooks")
        before.changes().former  # ("project/.git/hooks/pre-commit",) after a command has written it
    """

    roots: tuple[str, ...]
    """Folders that were searched, as real paths."""
    closed: tuple[str, ...]
    """Files, and folders of which all below is meant, those near the top first."""
    stamps: Mapping[str, _Stamp]
    """Each file that was found, also in such folders; empty if nobody will ask for changes."""
    made: frozenset[str] = frozenset()
    """Files that were made since the first snapshot, which are of no interest any more."""

    @classmethod
    def take(cls, roots: Iterable[str], *, is_compared: bool = True) -> AutorunSnapshot:
        """Search the folders, which share the bounds. Blocks for some hundredths of a second; what cannot be read is left out.

        is_compared: `changes` will be called.
        """
        roots = tuple(roots)
        found = tuple(path for root in roots for path in _search(root, len(roots)))
        return cls(roots, found, dict(_stamps(found)) if is_compared else {})

    def changes(self) -> AutorunChanges:
        """Return the files that are new, different or gone since. Blocks as `take` does."""
        now = AutorunSnapshot.take(self.roots)
        new = [path for path in now.stamps if path not in self.stamps]
        different = [path for path, stamp in now.stamps.items() if self.stamps.get(path, stamp) != stamp]
        gone = [path for path in self.stamps if path not in now.stamps and not os.path.lexists(path)]
        former = [path for path in (*different, *gone) if path not in self.made]
        made = self.made.union(new)
        return AutorunChanges(self._named(former), self._named(set(new) - self.made), attrs.evolve(now, made=made))

    def _named(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Return paths as people are told them: those of the first folder first, relative to it."""
        inner = f"{self.roots[0]}/"
        ordered = sorted(paths, key=lambda path: (not path.startswith(inner), path))
        return tuple(path.removeprefix(inner) for path in ordered)


@attrs.frozen(eq=False, repr=False)
class AutorunChanges:
    """Changes since a snapshot. Example: `AutorunChanges((".npmrc",), ("new/.git/config",), now)`."""

    former: tuple[str, ...]
    """Files that were there and are different or gone."""
    made: tuple[str, ...]
    """Files that were not there."""
    now: AutorunSnapshot
    """All of them as they are now."""


def _search(root: str, share: int) -> Iterator[str]:
    """Yield what is found in a folder, near the top first, within the bounds. share: folders that share them."""
    waiting = [root]
    entries = found = 0
    for number, folder in enumerate(waiting):  # grows meanwhile
        if number >= MOST_FOLDERS // share or entries >= MOST_ENTRIES // share:
            return
        listed = _listed(folder, MOST_ENTRIES // share - entries)
        entries += len(listed)
        below = folder[len(root) :]
        # A repository without such a name is one by what is in it; git obeys its settings all the same.
        is_repository = below.endswith(_GIT_FOLDER) or {entry.name for entry in listed} >= _SHAPE
        left_out = _STORED if f"{_GIT_FOLDER}/" in below else _PACKAGES
        for entry in listed:
            if found >= MOST_FOUND // share:
                return
            if is_repository and entry.name not in _OBEYED:
                continue
            is_folder = entry.is_dir(follow_symlinks=False)
            name = f"{_GIT_FOLDER}/{entry.name}" if is_repository else entry.path[len(root) + 1 :]
            if may_be_autorun(entry.name) and _is_autorun(name, is_folder):
                found += 1
                yield entry.path
                if entry.is_symlink():
                    yield from _target(entry.path, name, root)
            elif is_folder and entry.name.endswith(_GIT_FOLDER):
                waiting.insert(number + 1, entry.path)  # before the other folders, however many there are
            elif is_folder and entry.name not in left_out:
                waiting.append(entry.path)


def _listed(folder: str, most: int) -> list[os.DirEntry[str]]:
    """Return what is in a folder, at most so many; [] if it cannot be read."""
    with suppress(OSError), os.scandir(folder) as names:
        return list(islice(names, max(most, 0)))
    return []


def _is_autorun(path: str, is_folder: bool) -> bool:
    """Return whether programs run or obey a file, or all of a folder, by themselves."""
    return is_autorun_folder(path) if is_folder else is_autorun_file(path)


def _target(link: str, name: str, root: str) -> Iterator[str]:
    """Yield where a link leads to if that is below the folder, and closed as a whole: not the repository that `.git` is a link to."""
    real = os.path.realpath(link)
    is_closed = os.path.isfile(real) or (os.path.isdir(real) and is_autorun_folder(name))
    if is_closed and real != root and is_within(real, root):
        yield real


def _stamps(found: Iterable[str]) -> Iterator[tuple[str, _Stamp]]:
    """Yield each file with its stamp, those in folders too, within the bounds."""
    for path in found:
        waiting = [path]
        for each in islice(waiting, MOST_COMPARED):
            with suppress(OSError):
                state = os.lstat(each)
                if S_ISDIR(state.st_mode):
                    waiting += [os.path.join(each, name) for name in os.listdir(each)]
                else:
                    yield each, (state.st_ctime_ns, state.st_size, state.st_ino, state.st_mode)
