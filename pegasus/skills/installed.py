"""Skills that were installed from a source (`pegasus skills install`): exactly the files that the owner has accepted.

    <home>/installed-skills/accepted.json            which ones count, with the hash of each file, source and revision
    <home>/installed-skills/<hash>/<name>/SKILL.md   their files; <hash> is that of the manifest

The content decides the folder, so a new version never lies where the old one does. It is written beside, synced and renamed; then one
replacement of `accepted.json` changes over to it. A process that dies before that leaves the old skill, after that the new one. What
nothing refers to is removed by the next change.

Tools cannot write in this folder, as nowhere in the home outside of the workspace. A SKILL.md that is not what was accepted does not
count nevertheless, and a file beside it is compared when it is read.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import attrs

from pegasus.host import sync_folder
from pegasus.messages import Json
from pegasus.skills.acceptance import AcceptedSkills, Manifest, file_hash, manifest_of, parse_manifest
from pegasus.skills.skill import NAME
from pegasus.wire import encode_json

_RECORD: Final = "accepted.json"
_LOCK: Final = "lock"


@attrs.frozen
class InstalledSkill:
    """A skill that was installed."""

    name: str
    folder: Path
    """The folder with its SKILL.md."""
    manifest: Manifest
    """Hashes of the files as they were accepted."""
    source: str
    """A path, or the address of a repository without credentials."""
    revision: str
    """The commit, "" where there is none."""
    at: int
    """Time of the acceptance, ms."""

    def read(self) -> dict[str, bytes]:
        """Return the contents of its files by their paths, {} where they are not what was accepted. Blocks."""
        with suppress(OSError):
            if _holds(self.folder, self.manifest):
                return {path: (self.folder / path).read_bytes() for path in self.manifest}
        return {}


@attrs.frozen(eq=False, repr=False)
class InstalledSkills:
    """The skills in such a folder. All methods block.

    Example: `InstalledSkills(home.installed_skills).load()["pdf"].source`.
    """

    folder: Path

    @property
    def _accepted(self) -> AcceptedSkills:
        return AcceptedSkills(self.folder / _RECORD, self.folder)

    def load(self) -> dict[str, InstalledSkill]:
        """Return what is installed, by name. A record that cannot be read, or that others can write to, installs nothing."""
        with suppress(OSError):
            return self._load()
        return {}

    def _load(self) -> dict[str, InstalledSkill]:
        """Return what is installed. Raises OSError."""
        found = {}
        for name, entry in sorted(self._accepted.entries().items()):
            if (manifest := parse_manifest(entry)) and NAME.fullmatch(name):
                at = entry.get("at")
                found[name] = InstalledSkill(
                    name,
                    self.folder / _content_id(manifest) / name,
                    manifest,
                    str(entry.get("source", "")),
                    str(entry.get("revision", "")),
                    at if isinstance(at, int) else 0,
                )
        return found

    def put(
        self, name: str, files: Mapping[str, bytes], *, source: str, revision: str, at: int, old: Manifest | None
    ) -> None:
        """Install a skill in place of the one with the manifest `old`, None for none. On return it is on disk, and counts.

        Raises OSError, also where another process has changed it meanwhile; then nothing has changed.
        """
        manifest = {path: file_hash(data) for path, data in files.items()}
        about: Mapping[str, Json] = {"source": source, "revision": revision}
        with self._held():
            present = self._load().get(name)
            if (present.manifest if present is not None else None) != old:
                raise OSError(f"{name} was changed by somebody else meanwhile; look at it again")
            place = self.folder / _content_id(manifest)
            if not _holds(place / name, manifest):
                self._write(place, name, files)
            self._accepted.accept(name, manifest, at, about)
            self._sweep()

    def remove(self, name: str) -> bool:
        """Remove a skill; return whether there was one. On return it does not count any more. Raises OSError."""
        with self._held():
            if name not in self._accepted.entries():
                return False
            self._accepted.forget(name)
            self._sweep()
            return True

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Keep other processes from changing anything while the block runs."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _write(self, place: Path, name: str, files: Mapping[str, bytes]) -> None:
        """Write a skill whole, or not at all."""
        aside = self.folder / f".new-{secrets.token_hex(4)}"
        try:
            for path, data in files.items():
                file = aside / name / path
                file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                with os.fdopen(
                    os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb"
                ) as stream:
                    stream.write(data)
                    stream.flush()
                    os.fsync(stream.fileno())
            for inner, _, _ in os.walk(aside):
                sync_folder(Path(inner))
            shutil.rmtree(place, ignore_errors=True)  # the same content once, which was damaged since
            aside.rename(place)
            sync_folder(self.folder)
        except OSError:
            shutil.rmtree(aside, ignore_errors=True)
            raise

    def _sweep(self) -> None:
        """Remove what nothing refers to. What cannot be removed stays until the next time."""
        kept = {_RECORD, _LOCK, *(skill.folder.parent.name for skill in self._load().values())}
        for name in os.listdir(self.folder):
            if name not in kept:
                shutil.rmtree(self.folder / name, ignore_errors=True)


def _content_id(manifest: Manifest) -> str:
    return file_hash(encode_json(dict(sorted(manifest.items()))).encode())[:32]


def _holds(folder: Path, manifest: Manifest) -> bool:
    """Return whether a folder has exactly these files."""
    with suppress(OSError, ValueError):
        return manifest_of(folder) == manifest
    return False
