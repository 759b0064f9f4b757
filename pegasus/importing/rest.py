"""The rest of a foreign home: files that no part of the import has asked for, named with the reason.

Agents move their files with every version. A file that was looked for where it no longer is would be missed without a word, so the
report names whatever is left: each file of a folder from which something was read, and other folders as a whole, with the number of
their files. Nothing of it is opened.
"""

from __future__ import annotations

from contextlib import suppress
from fnmatch import fnmatchcase
from typing import Final

from pegasus.formatting import plural
from pegasus.importing.conversion import SETTINGS_STAY, masked
from pegasus.importing.foreign_home import MOST_FILES, CannotRead, Findings, ForeignFolder

MOST_NAMED: Final = 100
"""Files of one folder that are named; further ones are counted."""

_KEYS: Final = (
    *(".env*", "*config*", "*auth*", "*credential*", "*secret*", "*token*", "*.key", "*.pem", "*.p8"),
    *("identity", "devices", "pairing*", "*approvals*", "*allowlist*", "openclaw.json*"),
)
"""Names of keys and settings, whichever agent has written them."""
_REASONS: Final = (
    (("*.jsonl.deleted.*",), "it was deleted there"),
    (
        ("*.bak*", "*.corrupt*", "*backup*", "*.migrated*", "*.imported-*", "*-import-archive", "*-migration-runs"),
        "it is an older copy",
    ),
    (("*skills", "skill-bundles"), "skills are not imported; copy what you want into skills/ of the home"),
    (("media", "images", "uploads", "audio*"), "files are not imported; copy what you need into workspace/"),
    (
        ("log", "logs", "*.log", "*cache*", "tmp", "*.lock", "*.pid", "*.sock", "run"),
        "it is nothing that was said or remembered",
    ),
)
"""Reasons by patterns of a name. The first that fits counts."""
_UNKNOWN: Final = "this import does not know it; look whether you miss something that is in it"
"""Reason for all other names."""


def add_rest(found: Findings, folder: ForeignFolder) -> None:
    """Say what is in the home besides all that was asked for. Called last."""
    known = folder.known | {item.origin for item in found.left_out}
    parents = {"/".join(name.split("/")[:n]) for name in known for n in range(name.count("/") + 1)}
    _add_folder(found, folder, "", known, parents)


def _add_folder(found: Findings, folder: ForeignFolder, place: str, known: set[str], parents: set[str]) -> None:
    """Say what is left in a folder from which something was read."""
    try:
        entries = folder.entries(place)
    except CannotRead as error:
        found.skip("file", _shown(place), str(error))
        return
    if len(entries) >= MOST_FILES:
        found.skip("file", _shown(place), f"it has more than {MOST_FILES:,} files; the others were not looked at")
    left = [(path, kind) for path, kind in entries if path not in known]
    folders = [path for path, kind in left if kind == "folder"]
    files = [(path, kind == "link") for path, kind in left if kind != "folder"]
    for path, is_link in files[:MOST_NAMED]:
        _add(found, path, path, is_link=is_link)
    if len(files) > MOST_NAMED:
        more = plural(len(files) - MOST_NAMED, "further file")
        found.skip("file", f"{_shown(place)}/", f"{_UNKNOWN}; {more}")
    for path in folders:
        if path in parents or not _can_list(folder, path):
            _add_folder(found, folder, path, known, parents)
        elif count := sum(1 for _ in folder.files(path, "")):
            _add(found, path, f"{path}/", f"; {plural(count, 'file')}")


def _can_list(folder: ForeignFolder, path: str) -> bool:
    with suppress(CannotRead):
        folder.entries(path)
        return True
    return False


def _add(found: Findings, path: str, shown: str, more: str = "", *, is_link: bool = False) -> None:
    name = path.rpartition("/")[2].lower()
    # Of a note or a session called "authors.md" nobody shall read that it holds keys.
    is_note = name.endswith((".md", ".jsonl"))
    if not is_note and any(fnmatchcase(name, pattern) for pattern in _KEYS):
        found.skip("setting", _shown(shown), f"{SETTINGS_STAY}{more}")
        return
    fitting = [reason for patterns, reason in _REASONS if any(fnmatchcase(name, pattern) for pattern in patterns)]
    reason = fitting[0] if fitting and not is_note else _UNKNOWN
    if is_link:
        reason = "it is a link, and no link is followed"
    found.skip("file", _shown(shown), f"{reason}{more}")


def _shown(path: str) -> str:
    """Return a path on one line, without what cannot be shown."""
    return " ".join(masked(path.encode("utf-8", "replace").decode()).split())
