"""The skills of an installation: found in folders, read again when a file has changed, and the files that belong to them.

The folders are not watched. Before a skill is used, `refresh` looks at the files, at most once a second. That costs one `stat` for
each, and nothing while there are built-in skills only. A file with a mistake costs only its own skill: the mistake is logged once, and
all other skills work.

Files come from people and from background tasks, so nothing about them is trusted. What is read is
a regular file inside the skills folder (a link that leads out is refused), of bounded size, and
opening it never waits, as a pipe would.

Watching the folders would need a thread or a descriptor for each and would still miss changes on network file
systems. Looking at the time of change before each use is as good, because nobody notices a second.

A refresh builds a complete new snapshot and then replaces the old one in one assignment. So a reader never sees
half of a refresh, and a cancelled or failed one leaves the old snapshot.

Skills that were installed count with exactly the content that was accepted (see `installed`), and never in place of another skill.
The folder in the workspace is different, since tasks write there: its skills count only with the content that the owner has accepted
(see `acceptance`), and never in place of another skill either.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple, TypeVar, TypeVarTuple, Unpack

import attrs
import trio

from pegasus.formatting import quote
from pegasus.guarded_open import open_regular
from pegasus.observe import get_logger
from pegasus.skills.acceptance import AcceptedSkills, Manifest, NotAcceptable, file_hash, manifest_of
from pegasus.skills.installed import InstalledSkill, InstalledSkills
from pegasus.skills.skill import FILE, MAX_BYTES, Skill, parse_skill

_T = TypeVar("_T")
_Args = TypeVarTuple("_Args")

BUILT_IN: Final = Path(__file__).parent / "builtin"
"""The folder of the skills that are part of Pegasus."""
REFRESH_INTERVAL: Final = 1.0
"""Seconds within which the files are not looked at again."""
MAX_SKILLS: Final = 500
"""Skills in one folder; further ones are ignored."""

_log = get_logger("skills")


class SkillProblem(NamedTuple):
    """A mistake in a file.

    Example: `str(SkillProblem("skills/x/SKILL.md", "has no description", True))` ends with "; this skill is left out".
    """

    file: str
    """Path of the file or folder."""
    text: str
    """The mistake, as the end of a sentence that begins with the path."""
    is_fatal: bool
    """True if the skill cannot be used because of it."""

    def __str__(self) -> str:
        """Return the mistake as it is logged and shown by `pegasus skills check`."""
        return f"{self.file}: {self.text}{'; this skill is left out' if self.is_fatal else ''}"


class ProposedSkill(NamedTuple):
    """A skill of the workspace that nobody has accepted with the content that it has."""

    name: str
    """Name of its folder."""
    manifest: Manifest
    """Its files."""
    description: str = ""
    """Its own words, which nobody has accepted."""
    was_accepted: bool = False
    """True if another content of it was accepted."""
    problem: str = ""
    """Reason why it cannot be accepted; "" if it can."""


class _SkillFile(NamedTuple):
    """The content of a SKILL.md as it was read."""

    fingerprint: tuple[int, int, int]
    """Time of change, size and inode. While they are the same, the file is not read again."""
    skill: Skill | None
    """None if the file has a fatal mistake."""
    problems: tuple[SkillProblem, ...]
    """Mistakes in this file, kept with it so that an unchanged file is not parsed again for them."""
    digest: str = ""
    """Hash of the bytes that the skill was read from."""


@attrs.frozen(eq=False, repr=False)
class _Snapshot:
    """The result of one look at all folders."""

    skills: Mapping[str, Skill]
    """Skills by name, those of later folders first."""
    problems: tuple[SkillProblem, ...]
    """Mistakes in all folders and files."""
    files: Mapping[str, _SkillFile]
    """Files by path, for the next look."""
    proposed: tuple[ProposedSkill, ...] = ()
    """Skills of the workspace that do not count."""


class SkillCatalog:
    """The skills below some folders. Of several with the same name, the one in the last folder wins.

    Example::

        catalog = SkillCatalog(BUILT_IN, home / "skills")
        await catalog.refresh()
        skill = catalog.get("commit")

    That order lets a user replace a built-in skill by one of the same name.
    """

    def __init__(
        self,
        *folders: Path,
        accepted: AcceptedSkills | None = None,
        installed: InstalledSkills | None = None,
        in_thread: bool = True,
    ) -> None:
        """Name the folders; they are read at the first use.

        folders: those whose skills count as they are. accepted: those of the workspace; None: there are none. installed: those
        with a source. in_thread: read files in a thread. Tests in virtual time read them directly.
        """
        self._folders = folders
        """Folders whose skills count as they are, the most important last."""
        self._accepted = accepted
        """The skills of the workspace that an owner has accepted; None: there is no such folder."""
        self._installed = installed
        """The skills that were installed; None: none can be."""
        self._in_thread = in_thread
        """True if files are read in a thread."""
        self._snapshot: _Snapshot | None = None
        """The last look; None before the first use."""
        self._own_folders = [
            *(folder for folder in folders if folder != BUILT_IN),
            *(each.folder for each in (accepted, installed) if each is not None),
        ]
        """Folders of people and tasks. Skills that are part of Pegasus do not change while it runs."""
        self._has_own = True
        """One of these was there at the last look, or there was none yet."""
        self._refreshed_at = -REFRESH_INTERVAL
        """Time of Trio's clock. It starts in the past, so that the first refresh always looks."""

    async def refresh(self) -> None:
        """Read files that have changed, unless that was done within the last second. Cancelled: nothing has changed.

        Most people have no skills of their own: then no message waits for a thread that looks at the files.
        """
        now = trio.current_time()
        if now - self._refreshed_at < REFRESH_INTERVAL:
            return
        has_own = any(map(os.path.lexists, self._own_folders))
        if has_own or self._has_own:
            known = self._snapshot.files if self._snapshot else {}
            self._store(await self._run(self._look, known))
        self._has_own, self._refreshed_at = has_own, now

    def get(self, name: str) -> Skill | None:
        """Return the skill of this name, as of the last refresh."""
        return self._current().skills.get(name)

    def all(self) -> tuple[Skill, ...]:
        """Return every skill, as of the last refresh: later folders first, each folder's by name."""
        return tuple(self._current().skills.values())

    @property
    def problems(self) -> tuple[SkillProblem, ...]:
        """Mistakes in files, as of the last refresh. Each is logged when it is first found."""
        return self._current().problems

    async def files(self, skill: Skill) -> tuple[str, ...]:
        """Return the files beside the SKILL.md, as paths below its folder."""
        return await self._run(supporting_files, skill)

    def proposed(self) -> tuple[ProposedSkill, ...]:
        """Return the skills of the workspace that do not count because nobody has accepted them as they are, by name."""
        return self._current().proposed

    async def accept(self, name: str, at: int) -> ProposedSkill:
        """Accept a skill of the workspace as it is now, and return it. On return it is on disk, and counts.

        name: of its folder. at: wall clock, ms. Raises NotAcceptable, which says why, and OSError.
        """
        return await self._run(self.accept_now, name, at)

    def accept_now(self, name: str, at: int) -> ProposedSkill:
        """Do what `accept` does; blocks."""
        if self._accepted is None:
            raise NotAcceptable("skills of the workspace cannot be accepted here")
        snapshot = self._look({})
        waiting = [skill.name for skill in snapshot.proposed]
        if name not in waiting:
            there = ", ".join(waiting) or "none"
            raise NotAcceptable(
                f"there is no skill {quote(name)} in the workspace that waits to be accepted; there are: {there}"
            )
        folder = self._accepted.folder
        found, _ = _judge(folder / name / FILE, folder, None, snapshot.skills, is_wanted=True)
        if found.problem:
            raise NotAcceptable(f"{name} cannot be accepted: {found.problem}")
        self._accepted.accept(name, found.manifest, at)
        self._store(self._look({}))
        return found

    async def read(self, skill: Skill, path: str) -> str:
        """Return one of these files as text. Raises ValueError as `read_supporting_file`.

        path: relative to the skill's folder, as `files` returns it. The text comes from the model and is not
        trusted.
        """
        return await self._run(read_supporting_file, skill, path)

    async def _run(self, read: Callable[[Unpack[_Args]], _T], *args: *_Args) -> _T:
        """Call a function that reads files, in a thread. If cancelled, the thread is left behind: it only reads."""
        if self._in_thread:
            return await trio.to_thread.run_sync(read, *args, abandon_on_cancel=True)
        await trio.lowlevel.checkpoint()
        return read(*args)

    def _current(self) -> _Snapshot:
        """Return the last snapshot. The first use reads the files directly, since the prompt is built before the loop runs."""
        return self._snapshot or self._store(self._look({}))

    def _look(self, known: Mapping[str, _SkillFile]) -> _Snapshot:
        """Read all folders. known: files of the last look, which are not read again if they have not changed."""
        snapshot = _read_folders(self._folders, known)
        if self._installed is not None:
            snapshot = _with_installed(snapshot, self._installed.load(), known)
        if self._accepted is None:
            return snapshot
        return _with_workspace(snapshot, self._accepted.folder, self._accepted.load())

    def _store(self, snapshot: _Snapshot) -> _Snapshot:
        """Make a snapshot the current one, and log the mistakes that the last one did not have."""
        known = set(self._snapshot.problems) if self._snapshot else set()
        for problem in snapshot.problems:
            if problem not in known:
                _log.warning("invalid SKILL.md", problem=str(problem))
        self._snapshot = snapshot
        return snapshot


# ------------------------------------------------------------------ reading SKILL.md


def _read_folders(folders: tuple[Path, ...], known: Mapping[str, _SkillFile]) -> _Snapshot:
    """Read all folders, the last first, so that the first skill of a name wins. Unchanged files are not read."""
    skills: dict[str, Skill] = {}
    problems: list[SkillProblem] = []
    files: dict[str, _SkillFile] = {}
    # The last folder first, and `setdefault` below keeps the first skill of a name.
    for folder in reversed(folders):
        real_folder = Path(os.path.realpath(folder))
        for path in _find_files(folder, problems):
            file = _read_file(path, known.get(str(path)), real_folder)
            if file is None:
                continue
            files[str(path)] = file
            problems += file.problems
            if file.skill is not None:
                skills.setdefault(file.skill.name, file.skill)
    return _Snapshot(skills, tuple(problems), files)


def _find_files(folder: Path, problems: list[SkillProblem]) -> Iterator[Path]:
    """Yield the path of the SKILL.md for each inner folder, by name. Hidden folders are skipped."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir())
    except FileNotFoundError:
        return
    except OSError as error:
        problems.append(SkillProblem(str(folder), f"cannot be read ({error.strerror})", False))
        return
    if len(names) > MAX_SKILLS:
        text = f"has {len(names):,} folders; only the first {MAX_SKILLS} are looked at"
        problems.append(SkillProblem(str(folder), text, False))
    yield from (folder / name / FILE for name in names[:MAX_SKILLS])


def _read_file(path: Path, known: _SkillFile | None, real_folder: Path) -> _SkillFile | None:
    """Return the content of a SKILL.md, which is `known` if it has not changed; None if there is no such file.

    real_folder: the folder of skills, with links resolved. A file outside it is refused.
    """
    fingerprint = (0, 0, 0)
    try:
        # Opened once; all checks are made on this descriptor, so that the file cannot be exchanged in between.
        with open_regular(path, follows=True) as file:
            status = os.fstat(file.fileno())
            fingerprint = (status.st_mtime_ns, status.st_size, status.st_ino)
            if known is not None and known.fingerprint == fingerprint:
                return known
            data = file.read(MAX_BYTES + 1)
        real = Path(os.path.realpath(path))
        if not real.is_relative_to(real_folder):
            raise ValueError(f"is a link to {real}, which is not in {real_folder}; put the skill itself there")
        if len(data) > MAX_BYTES:
            raise ValueError(f"is larger than {MAX_BYTES >> 10} kB; longer material belongs into files beside it")
        skill, warnings = parse_skill(data.decode(), path.parent)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        return _SkillFile(fingerprint, None, (SkillProblem(str(path), _explain(error), True),))
    found = tuple(SkillProblem(str(path), text, False) for text in warnings)
    return _SkillFile(fingerprint, skill, found, file_hash(data))


# ------------------------------------------------------------------ skills that were installed, and those of the workspace


def _with_installed(
    snapshot: _Snapshot, installed: Mapping[str, InstalledSkill], known: Mapping[str, _SkillFile]
) -> _Snapshot:
    """Return the snapshot with the skills that were installed, behind those of all other folders."""
    skills, problems, files = dict(snapshot.skills), list(snapshot.problems), dict(snapshot.files)
    for name, each in installed.items():
        path = each.folder / FILE
        if name in skills:
            problems.append(SkillProblem(str(each.folder), f"does not count: there is a skill {name} already", False))
            continue
        file = _read_file(path, known.get(str(path)), Path(os.path.realpath(each.folder)))
        if file is None or (file.skill is not None and file.digest != each.manifest.get(FILE)):
            how = "its SKILL.md is not the one that was accepted; install it again"
            problems.append(SkillProblem(str(each.folder), f"does not count: {how}", True))
            continue
        files[str(path)] = file
        problems += file.problems
        if file.skill is not None:
            skills[name] = attrs.evolve(file.skill, manifest=each.manifest, source=each.source, revision=each.revision)
    return attrs.evolve(snapshot, skills=skills, problems=tuple(problems), files=files)


def _with_workspace(snapshot: _Snapshot, folder: Path, accepted: Mapping[str, Manifest]) -> _Snapshot:
    """Return the snapshot with the accepted skills of the workspace, behind those of all other folders.

    Nothing of them is taken from the last look: time of change and size of a file are easily forged by those who write it.
    """
    skills, problems, proposed = dict(snapshot.skills), list(snapshot.problems), []
    for path in _find_files(folder, problems):
        if not path.exists():
            continue
        found, skill = _judge(path, folder, accepted.get(path.parent.name), skills)
        if skill is not None:
            skills[skill.name] = skill
        else:
            proposed.append(found)
            why = found.problem or ("its files have changed" if found.was_accepted else "nobody has accepted it")
            problems.append(SkillProblem(str(path.parent), f"does not count: {why}", False))
    return attrs.evolve(snapshot, skills=skills, problems=tuple(problems), proposed=tuple(proposed))


def _judge(
    path: Path, folder: Path, accepted: Manifest | None, others: Mapping[str, Skill], *, is_wanted: bool = False
) -> tuple[ProposedSkill, Skill | None]:
    """Return a skill of the workspace as it is proposed, and as one that counts, None if it does not.

    is_wanted: an owner is about to accept it. The files of any other one that was never accepted are not read: nobody has asked for
    them, and there may be gigabytes of them.
    """
    name = path.parent.name
    found = ProposedSkill(name, {}, was_accepted=accepted is not None)
    # Checked before its files are read: a task could otherwise take the place of a skill that people trust.
    if name in others:  # a skill has the name of its folder
        return found._replace(problem=f"there is a skill {name} already, which it must not replace"), None
    if accepted is None and not is_wanted:
        return found, None
    try:
        manifest = manifest_of(path.parent)
        file = _read_file(path, None, Path(os.path.realpath(folder)))
    except (NotAcceptable, OSError) as error:
        return found._replace(problem=str(error)), None
    if file is None or file.skill is None:
        return found._replace(
            problem="; ".join(problem.text for problem in file.problems) if file else "it is gone"
        ), None
    skill = attrs.evolve(file.skill, manifest=manifest)
    found = found._replace(manifest=manifest, description=skill.description)
    # The text in use is that of the bytes that were read, whatever the file holds by now.
    is_accepted = accepted is not None and manifest == accepted and file.digest == accepted.get(FILE)
    return found, skill if is_accepted else None


def _explain(error: Exception) -> str:
    """Return the reason for people."""
    if isinstance(error, UnicodeDecodeError):
        return f"is not UTF-8 text (byte {error.start:,})"
    if isinstance(error, OSError) and error.errno != errno.EINVAL:
        return f"cannot be read ({error.strerror})"
    return f"is {error.strerror}" if isinstance(error, OSError) else str(error)


# ------------------------------------------------------------------ files beside SKILL.md

MAX_FILES: Final = 50
"""Files of a skill that are listed."""
MAX_DEPTH: Final = 3
"""Levels of folders below the skill's own that are listed."""


def supporting_files(skill: Skill) -> tuple[str, ...]:
    """Return the files of a skill besides its SKILL.md (references, examples, scripts), as paths below its folder, in order.

    Hidden files and links are left out, and everything beyond `MAX_FILES`. Blocks briefly.
    """
    found: list[str] = []
    # The walk ends at the bound, so that a folder of a million files costs no more than a small one.
    for path in _walk(skill.folder, "", MAX_DEPTH):
        if len(found) == MAX_FILES:
            break
        found.append(path)
    return tuple(found)


def _walk(folder: Path, prefix: str, levels: int) -> Iterator[str]:
    """Yield the files of a skill, by name. A folder that cannot be read is skipped."""
    try:
        with os.scandir(folder) as listed:
            entries = sorted(listed, key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        path = f"{prefix}{entry.name}"
        if entry.name.startswith(".") or not entry.name.isprintable() or path == FILE:
            continue
        if entry.is_file(follow_symlinks=False):
            yield path
        elif levels and entry.is_dir(follow_symlinks=False):
            yield from _walk(folder / entry.name, f"{path}/", levels - 1)


def read_supporting_file(skill: Skill, path: str) -> str:
    """Return a file of a skill as text. Blocks briefly.

    Raises ValueError for a path that leads out of the folder, a hidden file, anything but a regular
    file, a file that is not UTF-8, and one that is too large. The text names the files that there
    are.
    """
    try:
        folder, real = os.path.realpath(skill.folder), os.path.realpath(skill.folder / path)
        if not Path(real).is_relative_to(folder):
            raise ValueError(f"is not in the folder of the skill {skill.name}")
        if any(name.startswith(".") for name in Path(real).relative_to(folder).parts):
            raise ValueError("is hidden")
        with open_regular(real) as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ValueError(f"is larger than {MAX_BYTES >> 10} kB")
        if skill.manifest is not None and skill.manifest.get(Path(real).relative_to(folder).as_posix()) != file_hash(
            data
        ):
            raise ValueError(f"is not as it was when the skill {skill.name} was accepted")
        return data.decode()
    except (OSError, ValueError) as error:
        there = ", ".join(supporting_files(skill)) or "none"
        raise ValueError(f"{path!r} {_explain(error)}; there are: {there}") from None
