"""The form of the files in `data`, by number: `data/VERSION`.

A program knows the form that it writes (FORMAT), and how to change older ones into it (MIGRATIONS). It refuses a newer one, since it
would misread it and write its own form beside it. A start with older data goes through these steps, each of which may be the last:

1. a backup in `<home>/backups`, with everything that a home of its own needs to start again from it;
2. VERSION says which form is being made, from which, and where that backup is: `3 from 2 data-2-before-3.tar.zst`;
3. the migrations, one after another;
4. VERSION says the new form.

From step 2 on an older program refuses the data, which may be in two forms. A newer start goes on with step 3, and does not make
another backup, which would be one of both forms. So a migration must give the same result when it finds that it was done in part
or as a whole.

Homes without VERSION are older than the file. They have the form UNNAMED.

While a backup is being restored, VERSION says so and nothing starts there; it is the last file that a restore writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import attrs

from pegasus.host.home import Home, HomeError, write_private
from pegasus.host.process import command_name

FORMAT: Final = 2
"""The form that this program reads and writes."""
UNNAMED: Final = 2
"""The form of homes without VERSION."""
MIGRATIONS: Final[Mapping[int, Callable[[Path], None]]] = {}
"""By number of the older form, the function that changes the files in `data` into the next one. A form that is not here differs
from the next one in nothing that files would have to be changed for."""
RESTORING: Final = "restoring"
"""Content of VERSION while a backup is being restored."""
_VERSION: Final = re.compile(r"(?P<format>[0-9]{1,6})(?: from (?P<old>[0-9]{1,6}) (?P<backup>\S+))?")


@attrs.frozen
class _Found:
    """Content of VERSION."""

    format: int
    """The form that data has, or is to get."""
    old: int | None = None
    """The form that it had when a migration began which has not ended; None: none has begun."""
    backup: str = ""
    """Name of the backup from before it."""


def read_format(home: Home) -> int:
    """Return the number of the form of data. Raises HomeError where data is in no form, or in two."""
    found = _read(home)
    if found is None:
        return UNNAMED
    if found.old is not None:
        raise HomeError(
            f"{_path(home)}: data is being changed from format {found.old} to {found.format}; start the agent to go on with that",
            exit_code=1,
        )
    return found.format


def is_being_restored(home: Home) -> bool:
    """Return whether a restore was begun here and has not ended."""
    try:
        return _path(home).read_text("utf-8", "replace").strip() == RESTORING
    except OSError:
        return False


def mark_restoring(home: Home) -> None:
    """Begin a restore. Raises HomeError."""
    write_private(_path(home), f"{RESTORING}\n")


def write_format(home: Home, format: int) -> None:
    """Write the number of the form that data has. Raises HomeError."""
    write_private(_path(home), f"{format}\n")


def prepare_data(home: Home, back_up: Callable[[Path], object]) -> int | None:
    """Bring data into the form of this program, and return the form that it had if that was another one.

    The home must be locked. back_up: makes a backup of the home with this path. Raises HomeError for data that cannot be read, and
    what `back_up` raises; then nothing was changed. Blocks.
    """
    check_format(home)
    found = _read(home)
    if found is None:
        found = _Found(UNNAMED if any(home.data.iterdir()) else FORMAT)
        write_format(home, found.format)
    old = found.format if found.old is None else found.old
    if old == FORMAT and found.old is None:
        return None
    if found.old is None or found.format != FORMAT:
        # A migration to a form between that one and this has the same beginning, so its backup is the one to keep.
        backup = found.backup
        if not backup:
            backup = free_backup_name(home, f"data-{old}-before-{FORMAT}")
            back_up(home.backups / backup)
        write_private(_path(home), f"{FORMAT} from {old} {backup}\n")
    for number in range(old, FORMAT):
        if (migrate := MIGRATIONS.get(number)) is not None:
            migrate(home.data)
    write_format(home, FORMAT)
    return old


def check_format(home: Home) -> None:
    """Raise HomeError for data of a form that this program does not know, or of none. Nothing is changed."""
    found = _read(home)
    if found is not None and found.format > FORMAT:
        raise HomeError(
            f"{_path(home)}: found data of format {found.format}, allowed: up to {FORMAT}; a newer Pegasus has written it, "
            f"so use that one{_way_back(home, found)}"
        )


def _path(home: Home) -> Path:
    return home.data / "VERSION"


def free_backup_name(home: Home, stem: str) -> str:
    """Return a name in the folder of backups that none has: an older one is never overwritten. Makes the folder."""
    try:
        home.backups.mkdir(mode=0o700, exist_ok=True)
        n = 1
        while (home.backups / (name := f"{stem}.tar.zst" if n == 1 else f"{stem}-{n}.tar.zst")).exists():
            n += 1
    except OSError as error:
        raise HomeError(f"{home.backups}: cannot be made ({error.strerror})", exit_code=1) from None
    return name


def _way_back(home: Home, found: _Found) -> str:
    """Return how to go back, if a backup from before the migration is there."""
    if found.backup:
        return f", or go back with {home.backups / found.backup}"
    return f"; backups from before are in {home.backups}" if home.backups.is_dir() else ""


def _read(home: Home) -> _Found | None:
    """Return what VERSION says, None if it is not there. Raises HomeError."""
    path = _path(home)
    try:
        text = path.read_bytes()[:1000].decode("utf-8", "replace").strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise HomeError(f"{path}: cannot be read ({error.strerror})") from None
    if text == RESTORING:
        raise HomeError(
            f"{home}: a restore was begun here and has not ended; run it again: {command_name()} restore FILE"
        )
    if (match := _VERSION.fullmatch(text)) is None:
        raise HomeError(
            f"{path}: found {text[:40]!a}, allowed: the number of a format; restore a backup, or write {FORMAT}"
        )
    old = match["old"]
    return _Found(int(match["format"]), None if old is None else int(old), match["backup"] or "")
