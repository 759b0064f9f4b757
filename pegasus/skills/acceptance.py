"""Acceptance: which skills of the workspace the owner has accepted, and with which content.

Background tasks write in the workspace, and they read what strangers write. So a skill there counts only after the owner has accepted
exactly this content: SKILL.md and every file beside it. Any other content is not accepted, be it changed by one character or by one
file more. What was accepted is kept outside of the workspace, in `<home>/accepted-skills.json` (0600):

    {"skills":{"deploy":{"files":{"SKILL.md":"<sha256>","steps/one.md":"<sha256>"},"at":1772029800000}}}

Tools can reach neither this file nor the commands that change it. The content that is used is compared, not the content that was
there a moment ago: whoever reads a file of an accepted skill compares the bytes that it has read. So a file that is exchanged between
the check and the use is refused.

`installed` keeps skills that came from a source in the same form, with where each came from.

Functions of this module block: files of skills are few and small (`MOST_FILES`, `MOST_BYTES`), and larger ones cannot be accepted.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, TypeAlias

import attrs

from pegasus.guarded_open import open_regular
from pegasus.host import replace_private, sync_folder
from pegasus.messages import Json
from pegasus.wire import decode_object, encode_json

MOST_FILES: Final = 500
"""Files that a skill may have to be accepted, folders and hidden files included."""
MOST_BYTES: Final = 16 << 20
"""Bytes of all files of a skill that is to be accepted."""
DEEPEST: Final = 8
"""Levels of folders within a skill that is to be accepted."""

Manifest: TypeAlias = Mapping[str, str]
"""The SHA-256 of each file of a skill, in hexadecimal, by its path below the folder of the skill."""


class NotAcceptable(ValueError):
    """A folder that cannot be accepted as a skill. The text says why, for the owner.

    Raised while a folder is judged, by `manifest_of` and by `SkillCatalog.accept`. Nothing was accepted then.

    Example: `await catalog.accept("deploy", now)` raises it for a folder with a link in it, and `/skills` shows the text.
    """


def manifest_of(folder: Path) -> dict[str, str]:
    """Return the manifest of a skill's folder. Raises NotAcceptable for links, special files and too much content, and OSError."""
    manifest: dict[str, str] = {}
    size = 0
    for path, name in _walk(folder, "", DEEPEST):
        with open_regular(path) as file:  # a link that has taken its place is not followed
            data = file.read(MOST_BYTES - size + 1)
        size += len(data)
        if size > MOST_BYTES:
            limit = f"{MOST_BYTES >> 20} MiB"
            raise NotAcceptable(f"{name}: found more than {limit} in the files of the skill, allowed: that much")
        manifest[name] = file_hash(data)
        if len(manifest) > MOST_FILES:
            raise NotAcceptable(f"{folder}: found more than {MOST_FILES} files, allowed: {MOST_FILES}")
    return manifest


def file_hash(data: bytes) -> str:
    """Return the SHA-256 of a file's content, as a manifest has it."""
    return hashlib.sha256(data).hexdigest()


def _walk(folder: Path, prefix: str, levels: int) -> Iterator[tuple[Path, str]]:
    """Yield path and name of every file, hidden ones included."""
    with os.scandir(folder) as listed:
        entries = sorted(listed, key=lambda entry: entry.name)
    for entry in entries:
        name = f"{prefix}{entry.name}"
        if entry.is_dir(follow_symlinks=False):
            if not levels:
                raise NotAcceptable(f"{name}: found folders deeper than {DEEPEST} levels")
            yield from _walk(folder / entry.name, f"{name}/", levels - 1)
        elif entry.is_file(follow_symlinks=False):
            yield folder / entry.name, name
        else:
            raise NotAcceptable(f"{name}: found a link or a special file, allowed: files; put the file itself there")


@attrs.frozen(eq=False, repr=False)
class AcceptedSkills:
    """The skills that the owner has accepted, in a file outside of the workspace.

    Example:
        accepted = AcceptedSkills(home / "accepted-skills.json", workspace / "skills")
        accepted.accept("deploy", manifest_of(accepted.folder / "deploy"), at=now)
        accepted.load()["deploy"]
    """

    path: Path
    """The file that holds what was accepted."""
    folder: Path
    """The folder in the workspace with the skills."""

    def load(self) -> dict[str, Manifest]:
        """Return the accepted manifests by the names of their folders. A file that is missing or cannot be read accepts nothing."""
        try:
            entries = self.entries()
        except OSError:
            return {}
        return {name: manifest for name, entry in entries.items() if (manifest := parse_manifest(entry))}

    def entries(self) -> dict[str, Mapping[str, Json]]:
        """Return what is noted about each accepted skill; {} if the file is damaged, or others can write to it. Raises OSError."""
        try:
            status = self.path.lstat()
            if not stat.S_ISREG(status.st_mode) or status.st_mode & 0o022:
                return {}
            found = decode_object(self.path.read_bytes()).get("skills")
        except (FileNotFoundError, ValueError):
            return {}
        skills = found if isinstance(found, Mapping) else {}
        return {str(name): entry for name, entry in skills.items() if isinstance(entry, Mapping)}

    def accept(self, name: str, manifest: Manifest, at: int, about: Mapping[str, Json] | None = None) -> None:
        """Accept the content of a skill. On return it is on disk. name: of its folder. at: wall clock, ms. Raises OSError.

        about: is noted with it.
        """
        self._write({**self.entries(), name: {"files": dict(manifest), "at": at, **(about or {})}})

    def forget(self, name: str) -> None:
        """Take an acceptance back. On return that is on disk. Raises OSError."""
        self._write({other: entry for other, entry in self.entries().items() if other != name})

    def _write(self, entries: Mapping[str, Json]) -> None:
        # A crash leaves the old file or the new one. The folder is synced too, since the name is an entry of it.
        replace_private(self.path, encode_json({"skills": dict(entries)}) + "\n")
        sync_folder(self.path.parent)


def parse_manifest(entry: object) -> Manifest | None:
    """Return the manifest of an entry, None if it has none that can be read."""
    files = entry.get("files") if isinstance(entry, Mapping) else None
    if not isinstance(files, Mapping) or not files:
        return None
    return {str(name): str(digest) for name, digest in files.items()}
