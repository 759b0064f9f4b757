"""The skills there are: read from folders, and read again when a file has changed.

Nobody watches the folders: whoever is about to use a skill looks, which costs a `stat` of each file and happens at most once
a second. A file that is wrong costs its own skill only.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias, TypeVar, TypeVarTuple, Unpack

import attrs
import trio

from pegasus.observe import get_logger
from pegasus.skills.skill import FILE, LARGEST, Skill, parse
from pegasus.skills.supporting import read_supporting, supporting_files

_T = TypeVar("_T")
_Args = TypeVarTuple("_Args")

BUILT_IN: Final = Path(__file__).parent / "builtin"
LOOK_EVERY: Final = 1.0
"""Seconds."""
MOST: Final = 500
"""Skills in one folder."""

_READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC  # not blocking: it may be a pipe, which is then refused

_log = get_logger("skills")


class Problem(NamedTuple):
    """Something wrong with a file. left_out: its skill cannot be used."""

    file: str
    text: str
    left_out: bool

    def __str__(self) -> str:
        return f"{self.file}: {self.text}{'; this skill is left out' if self.left_out else ''}"


class _Read(NamedTuple):
    """What a file held when it looked like this (time of change, size, inode)."""

    look: tuple[int, int, int]
    skill: Skill | None
    problems: tuple[Problem, ...]


_Seen: TypeAlias = Mapping[str, _Read]


@attrs.frozen(eq=False)
class _Found:
    """What one look has found: the skills by name, the user's first; what each file held, for the next look."""

    skills: Mapping[str, Skill]
    problems: tuple[Problem, ...]
    seen: _Seen


class Skills:
    """The skills below some folders, by name; in later folders they win over those of the same name in earlier ones.

    in_thread: read files in a thread. Virtual time wants it without.
    """

    def __init__(self, *folders: Path, in_thread: bool = True) -> None:
        self._folders = folders
        self._in_thread = in_thread
        self._found: _Found | None = None
        self._looked = -LOOK_EVERY

    async def fresh(self) -> None:
        """Take up what has changed, unless that was done within the last second. Cancelled: nothing is taken up."""
        now = trio.current_time()
        if now - self._looked < LOOK_EVERY:
            return
        before = self._found.seen if self._found else {}
        self._take(await self._run(_look, self._folders, before))
        self._looked = now

    def get(self, name: str) -> Skill | None:
        """The skill of this name, as of the last look."""
        return self._latest().skills.get(name)

    def all(self) -> tuple[Skill, ...]:
        """Every skill, as of the last look: those of later folders first, each folder's by name."""
        return tuple(self._latest().skills.values())

    async def files(self, skill: Skill) -> tuple[str, ...]:
        """The files beside its SKILL.md, as paths below its folder."""
        return await self._run(supporting_files, skill)

    async def read(self, skill: Skill, path: str) -> str:
        """One of them as text. Raises ValueError as `read_supporting`."""
        return await self._run(read_supporting, skill, path)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What was wrong with files at the last look; each is logged when it is first seen."""
        return self._latest().problems

    async def _run(self, read: Callable[[Unpack[_Args]], _T], *given: *_Args) -> _T:
        if self._in_thread:
            return await trio.to_thread.run_sync(read, *given, abandon_on_cancel=True)
        await trio.lowlevel.checkpoint()
        return read(*given)

    def _latest(self) -> _Found:
        return self._found or self._take(_look(self._folders, {}))

    def _take(self, found: _Found) -> _Found:
        known = set(self._found.problems) if self._found else set()
        for problem in found.problems:
            if problem not in known:
                _log.warning("a skill", problem=str(problem))
        self._found = found
        return found


def _look(folders: tuple[Path, ...], before: _Seen) -> _Found:
    skills: dict[str, Skill] = {}
    problems: list[Problem] = []
    seen: dict[str, _Read] = {}
    for folder in reversed(folders):
        for file in _files(folder, problems):
            read = _read(file, before.get(str(file)), folder)
            if read is None:
                continue
            seen[str(file)] = read
            problems += read.problems
            if read.skill is not None:
                skills.setdefault(read.skill.name, read.skill)
    return _Found(skills, tuple(problems), seen)


def _files(folder: Path, problems: list[Problem]) -> Iterator[Path]:
    """The SKILL.md of each folder in it, by name; hidden ones are left alone."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir())
    except FileNotFoundError:
        return
    except OSError as error:
        problems.append(Problem(str(folder), f"cannot be read ({error.strerror})", False))
        return
    if len(names) > MOST:
        problems.append(Problem(str(folder), f"has {len(names):,} folders; only the first {MOST} are looked at", False))
    yield from (folder / name / FILE for name in names[:MOST])


def _read(file: Path, before: _Read | None, folder: Path) -> _Read | None:
    """The file's skill, not read again while it looks as before; None where there is no file."""
    try:
        fd = os.open(file, _READ)
    except FileNotFoundError:
        return None
    except OSError as error:
        return _wrong(file, (0, 0, 0), f"cannot be read ({error.strerror})")
    try:
        status = os.fstat(fd)
        look = (status.st_mtime_ns, status.st_size, status.st_ino)
        if before is not None and before.look == look:
            return before
        try:
            skill, warnings = parse(_content(fd, status, file, folder), file.parent)
        except (OSError, ValueError) as error:
            return _wrong(file, look, _words(error))
        return _Read(look, skill, tuple(Problem(str(file), warning, False) for warning in warnings))
    finally:
        os.close(fd)


def _content(fd: int, status: os.stat_result, file: Path, folder: Path) -> str:
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("is no regular file")
    real, inside = Path(os.path.realpath(file)), Path(os.path.realpath(folder))
    if not real.is_relative_to(inside):
        raise ValueError(f"is a link to {real}, which is not in {inside}; put the skill itself there")
    with open(fd, "rb", closefd=False) as stream:
        data = stream.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise ValueError(f"is larger than {LARGEST >> 10} kB; longer material belongs into files beside it")
    return data.decode()


def _words(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"is no UTF-8 text (byte {error.start:,})"
    return getattr(error, "strerror", None) or str(error)


def _wrong(file: Path, look: tuple[int, int, int], text: str) -> _Read:
    return _Read(look, None, (Problem(str(file), text, True),))
