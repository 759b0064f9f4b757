"""Files of the writable folders that programs run by themselves (`pegasus.autorun_files`), as they are at one moment.

Each task looks once, before its first command. What was there then is somebody else's: later commands of the task see it read-only, or
what they have changed of it is named. What the task makes anew (`git init`, `python -m venv`) is its own.

What is not there cannot be closed, and git obeys some of it as soon as it is made: `commondir`, `config.worktree`, or hooks, in a
repository that had none. Such a file is set aside after the command that made it. A new repository within the folders of another
one, which git may enter by itself, is named.

The search is bounded, so that a huge tree costs no more than a large one: folders near the top come first, and folders of packages
(`node_modules`) are left out, since nobody opens those. Within a repository only the places are looked at that git obeys. A search
that has reached its bounds says so (`AutorunSnapshot.is_complete`): files beyond them are neither closed nor named.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from stat import S_ISDIR
from typing import Final

import attrs

from pegasus.autorun_files import is_autorun_file, is_autorun_folder, may_be_autorun
from pegasus.sandbox.folders import is_within
from pegasus.storage import GuardedFiles

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
_SHAPE_OF_WORKTREE: Final = frozenset(("HEAD", "commondir"))
"""Names by which git knows the folder of a further working tree, or any other that leads to a repository."""
_STORED: Final = ("objects", "refs", "logs", "lfs")
"""Names of folders in the repository of a module, in which there are many files and none that matters."""
_BY_ITSELF: Final = ("config", "config.worktree", "commondir", "hooks")
"""Names in a repository's folder that git obeys without being led there by another file."""
_SET_ASIDE: Final = ".set-aside-"
"""Behind the name of what was set aside."""
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
    repositories: frozenset[str]
    """Folders of repositories, and files `.git`."""
    missing: Mapping[str, tuple[str, ...]]
    """Names that git would obey in each of the repositories, and that are not there; of the first search alone."""
    is_complete: bool
    """False if the search has reached its bounds."""
    is_compared: bool
    """True if files are compared."""
    stamps: Mapping[str, _Stamp]
    """Each file that was found, also in such folders; empty if files are not compared."""
    made: frozenset[str] = frozenset()
    """Files that were made since the first snapshot, which are of no interest any more."""

    @classmethod
    def take(cls, roots: Iterable[str], *, is_compared: bool = True) -> AutorunSnapshot:
        """Search the folders, which share the bounds. Blocks for some hundredths of a second; what cannot be read is left out.

        is_compared: files will be compared, because walls cannot close them.
        """
        roots = tuple(roots)
        searches = [_Search(root, len(roots)) for root in roots]
        found = tuple(path for search in searches for path in search.found)
        stamps = dict(_stamps(found)) if is_compared else {}
        repositories = frozenset(path for search in searches for path in search.repositories)
        missing = {folder: tuple(_missing(folder)) for folder in repositories}
        is_complete = all(search.is_complete for search in searches)
        return cls(roots, found, repositories, missing, is_complete, is_compared, stamps)

    def changes(self, *, sets_aside: bool = True) -> AutorunChanges:
        """Return the files that are new, different or gone since. Blocks as `take` does.

        sets_aside: what git would obey in a repository that was there, and that was not there itself, is renamed. False: it counts as
        having been there.
        """
        moved = [self._set_aside(path) for path in self._planted()] if sets_aside else []
        now = AutorunSnapshot.take(self.roots, is_compared=self.is_compared)
        new = [path for path in now.stamps if path not in self.stamps]
        # Looked at by their paths, since there may be so much else by now that a search does not come to them.
        known = {path: _stamp(path) for path in self.stamps}
        former = [path for path, stamp in known.items() if path not in self.made and stamp != self.stamps[path]]
        stamps = {**{path: stamp for path, stamp in known.items() if stamp is not None}, **now.stamps}
        nested = [path for path in now.repositories - self.repositories if self._concerns_a_repository(path)]
        kept = attrs.evolve(
            now,
            closed=self.closed,
            repositories=self.repositories | now.repositories,
            missing=self.missing if sets_aside else self._still_missing(),
            stamps=stamps,
            made=self.made.union(new),
        )
        named = self._named
        return AutorunChanges(named(former), named(set(new) - self.made), named(moved), named(nested), kept)

    def _planted(self) -> list[str]:
        """Return the paths that git would obey in a repository that was there, and that are new."""
        paths = [os.path.join(folder, name) for folder, names in self.missing.items() for name in names]
        return [path for path in paths if os.path.lexists(path)]

    def _still_missing(self) -> Mapping[str, tuple[str, ...]]:
        """Return `missing` without those that are there by now."""
        return {
            folder: tuple(filter(set(_missing(folder)).__contains__, names)) for folder, names in self.missing.items()
        }

    def _concerns_a_repository(self, path: str) -> bool:
        """Return whether git may come to a new repository, or file `.git`, by itself: from one around it, or from one within it.

        One in a repository's own folder is obeyed only if a file `.git` leads there.
        """
        if any(is_within(path, folder) for folder in self.missing):
            return False
        place = _tree(path)
        trees = map(_tree, self.missing)
        return any(is_within(place, tree) or is_within(tree, place) for tree in trees)

    def _set_aside(self, path: str) -> str:
        """Rename a file or folder, and return its name for people. If that fails, it stays, and is named all the same."""
        new = f"{path}{_SET_ASIDE}{time.time_ns()}"
        root = max((root for root in self.roots if is_within(path, root)), key=len)
        try:
            # Commands may run, and put a link in the place of a folder on the way.
            GuardedFiles(root).rename(os.path.relpath(path, root), os.path.relpath(new, root))
        except OSError:
            return path
        return f"{path} (now {os.path.basename(new)})"

    def _named(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Return paths as people are told them: those of the first folder first, relative to it."""
        inner = f"{self.roots[0]}/"
        ordered = sorted(paths, key=lambda path: (not path.startswith(inner), path))
        return tuple(path.removeprefix(inner) for path in ordered)


@attrs.frozen(eq=False, repr=False)
class AutorunChanges:
    """Changes since a snapshot. Example: `AutorunChanges((".npmrc",), ("new/.git/config",), (), (), now)`."""

    former: tuple[str, ...]
    """Files that were there and are different or gone."""
    made: tuple[str, ...]
    """Files that were not there; empty if files are not compared."""
    set_aside: tuple[str, ...]
    """Files and folders that git would have obeyed in a repository that was there."""
    nested: tuple[str, ...]
    """New repositories within or around one that was there, and new files `.git` there."""
    now: AutorunSnapshot
    """All of them as they are now."""


class _Search:
    """Search of one folder, near the top first, within the bounds. Example: `_Search("/home/me/work", 1).found`."""

    def __init__(self, root: str, share: int) -> None:
        """Search. share: folders that share the bounds."""
        self.found: list[str] = []
        """Files and folders that were found."""
        self.repositories: set[str] = set()
        """Folders of repositories, and files `.git`."""
        self.is_complete = True
        """False if a bound was reached, or a folder could not be read."""
        self._names = MOST_ENTRIES // share
        """Names that may still be looked at."""
        most, folders = MOST_FOUND // share, MOST_FOLDERS // share
        for path in self._walk(root, folders):
            if len(self.found) >= most:
                self.is_complete = False
                return
            self.found.append(path)

    def _walk(self, root: str, folders: int) -> Iterator[str]:
        """Yield what is found. folders: the most that are looked at."""
        waiting = [root]
        for number, folder in enumerate(waiting):  # grows meanwhile
            if number >= folders or not (self._names or self.is_complete):
                self.is_complete = False
                return
            listed = self._list(folder)
            below = folder[len(root) :]
            # A repository without such a name is one by what is in it; git obeys its settings all the same.
            names = {entry.name for entry in listed}
            is_repository = below.endswith(_GIT_FOLDER) or names >= _SHAPE
            left_out = _STORED if f"{_GIT_FOLDER}/" in below else _PACKAGES
            if (is_repository and "HEAD" in names) or names >= _SHAPE_OF_WORKTREE:
                self.repositories.add(folder)
            for entry in listed:
                if is_repository and entry.name not in _OBEYED:
                    continue
                is_folder = entry.is_dir(follow_symlinks=False)
                name = f"{_GIT_FOLDER}/{entry.name}" if is_repository else entry.path[len(root) + 1 :]
                if _is_autorun(name, is_folder):
                    yield from self._take(entry, name, root)
                elif is_folder and entry.name.endswith(_GIT_FOLDER):
                    waiting.insert(number + 1, entry.path)  # before the other folders, however many there are
                elif is_folder and entry.name not in left_out:
                    waiting.append(entry.path)

    def _take(self, entry: os.DirEntry[str], name: str, root: str) -> Iterator[str]:
        """Yield a file or folder that is run by itself, and what it leads to."""
        if entry.name == _GIT_FOLDER:
            self.repositories.add(entry.path)
        yield entry.path
        if entry.is_symlink():
            yield from _target(entry.path, name, root)

    def _list(self, folder: str) -> list[os.DirEntry[str]]:
        """Return what is in a folder; [] if it cannot be read, and as much as the bounds allow."""
        try:
            with os.scandir(folder) as names:
                listed = list(islice(names, self._names + 1))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError:
            # A folder of somebody else is closed to commands as well. The user's own one they can open.
            with suppress(OSError):
                self.is_complete = self.is_complete and os.lstat(folder).st_uid != os.geteuid()
                return []
            self.is_complete = False
            return []
        if len(listed) > self._names:
            self.is_complete = False
            del listed[self._names :]
        self._names -= len(listed)
        return listed


def _tree(repository: str) -> str:
    """Return the folder that a repository, or a file `.git`, is about; of one without a folder of its own, the repository's."""
    folder, name = os.path.split(repository)
    return folder if name == _GIT_FOLDER else repository


def _missing(folder: str) -> list[str]:
    """Return the names that git would obey in the folder of a repository and that are not there."""
    if not os.path.isdir(folder):
        return []
    return [name for name in _BY_ITSELF if not os.path.lexists(os.path.join(folder, name))]


def _is_autorun(path: str, is_folder: bool) -> bool:
    """Return whether programs run or obey a file, or all of a folder, by themselves."""
    # Most names are told apart without the path, which costs more.
    if not may_be_autorun(path.rpartition("/")[2]):
        return False
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
            if (stamp := _stamp(each)) is None:
                continue
            if S_ISDIR(stamp[-1]):
                with suppress(OSError):
                    waiting += [os.path.join(each, name) for name in os.listdir(each)]
            else:
                yield each, stamp


def _stamp(path: str) -> _Stamp | None:
    """Return the stamp of a file, None if there is none."""
    try:
        state = os.lstat(path)
    except OSError:
        return None
    return state.st_ctime_ns, state.st_size, state.st_ino, state.st_mode
