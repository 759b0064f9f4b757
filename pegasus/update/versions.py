"""The folder `<home>/versions`: the versions that updates have installed, and where an update stands.

    1, 2 …        environments of versions; the last two stay
    current       link to the version that counts (`pegasus.launching`); without it, the installed program
    lock          held while an update is made: one at a time
    switch.lock   held while no agent may start, by the update and by the version that it tries
    switch.json   what is to be undone if the update goes no further (`Switch`)
    last.json     how the last update ended (`LastUpdate`), for `pegasus doctor`

**The point of no return** is the change of the link, one rename. Before it the old version is what starts, and a start undoes what
the update has begun; behind it the new version starts, and there is nothing to undo. So a process may be killed at any moment, and
only the old version, which has proved itself long ago, ever puts anything back.

**What is undone** is `data`, which the new version may have changed into a form of its own: it is made anew from the backup. Nothing
is accepted, answered or sent between that backup and the point of no return, so nothing is lost by it. The rest of the home belongs
to people and is not touched.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import attrs

from pegasus import __version__
from pegasus.backup import BackupError, restore_backup
from pegasus.host import (
    Home,
    HomeBusy,
    HomeError,
    Notifier,
    own_home,
    print_error,
    sync_folder,
    wall_clock,
    write_private,
)
from pegasus.launching import CURRENT, go_on_as_current
from pegasus.observe import get_logger
from pegasus.wire import decode_json, encode_line, from_wire, to_wire

_LOOK: Final = 0.1
"""Seconds between two looks at a lock that another process holds."""
_DIES: Final = 10.0
"""Seconds that a process which was killed may take to let go of the home."""
_SIGN_OF_LIFE: Final = 5.0
"""Seconds between two signs of life for a service manager, which wants one within half a minute."""
_log = get_logger("update")


@attrs.frozen
class Switch:
    """Update that has stopped the agent and is not complete."""

    to: str
    """Name of the new version's folder."""
    version: str
    backup: str = ""
    """Name of the backup in `<home>/backups`, "" before it is made."""
    restores: bool = False
    """True if `data` may have been changed since the backup."""


@attrs.frozen
class LastUpdate:
    """End of the last update."""

    version: str
    """Version that it was about."""
    before: str
    """Version that ran before."""
    at: int
    """Ms since the epoch."""
    problem: str = ""
    """Reason for which the version before was put back; "" if it was not."""
    backup: str = ""
    """Path of the backup from before it."""


# ------------------------------------------------------------------ the folder


def current_folder(home: Home) -> Path | None:
    """Return the folder of the version that counts, None for the installed program."""
    try:
        return home.versions / os.readlink(home.versions / CURRENT)
    except OSError:
        return None


def set_current(home: Home, name: str) -> None:
    """Let a version count from now on; "": the installed program. Raises HomeError."""
    link, aside = home.versions / CURRENT, home.versions / f".{CURRENT}"
    try:
        if not name:
            link.unlink(missing_ok=True)
        else:
            aside.unlink(missing_ok=True)
            aside.symlink_to(name)
            aside.replace(link)
        sync_folder(home.versions)
    except OSError as error:
        raise HomeError(f"{link}: cannot be changed ({error.strerror})", exit_code=1) from None


def free_folder(home: Home) -> Path:
    """Return the folder of the next version."""
    numbers = [int(path.name) for path in home.versions.iterdir() if path.name.isdecimal()]
    return home.versions / str(max(numbers, default=0) + 1)


def remove_others(home: Home, *keep: Path | None) -> None:
    """Remove versions that nobody needs any more, and what an update that was killed has left."""
    for path in home.versions.iterdir():
        if path.is_dir() and not path.is_symlink() and path not in keep:
            shutil.rmtree(path, ignore_errors=True)


def read_last(home: Home) -> LastUpdate | None:
    """Return how the last update ended, None if there was none."""
    try:
        return from_wire(decode_json((home.versions / "last.json").read_bytes()), LastUpdate)
    except (OSError, ValueError):
        return None


def write_last(home: Home, last: LastUpdate) -> None:
    """Note how an update ended. A disk that refuses changes nothing about it."""
    with suppress(HomeError):
        write_private(home.versions / "last.json", encode_line(to_wire(last)).decode())


# ------------------------------------------------------------------ locks


@contextmanager
def one_update(home: Home) -> Iterator[None]:
    """Hold the lock of updates while the body runs. Raises HomeError: exit code 75 if another one is being made."""
    try:
        home.versions.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(home.versions / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise HomeError(f"{home.versions}: cannot be written ({error.strerror})", exit_code=1) from None
    with os.fdopen(descriptor, "r+") as file:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            who = file.read(20).strip() or "unknown"
            raise HomeError(f"{home}: another update is being made (process {who})", exit_code=75) from None
        with suppress(OSError):  # on a full disk the number is missing, and the lock is held
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
        yield


@contextmanager
def no_start(home: Home) -> Iterator[int]:
    """Let no agent start in the home while the body runs, but for the one that is tried.

    Yields the lock's descriptor. A trial inherits it, and so holds the lock, too: when the update is killed, no agent starts before
    the trial has ended.
    """
    descriptor = os.open(home.versions / "switch.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def no_switch(home: Home) -> Iterator[None]:
    """Let no update switch while the body runs; wait for one that does.

    A service manager is told meanwhile that the process lives.
    """
    waited, notifier, told = False, Notifier.from_environment(dict(os.environ)), 0.0
    descriptor = os.open(home.versions / "switch.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not waited:
                    print_error("pegasus: an update is being made; the agent starts when it has ended")
            waited = True
            if time.monotonic() > told + _SIGN_OF_LIFE:
                notifier.sign_of_life()
                told = time.monotonic()
            time.sleep(_LOOK)
        yield
    finally:
        os.close(descriptor)


# ------------------------------------------------------------------ undoing


def read_switch(home: Home) -> Switch | None:
    """Return where an update stands that is not complete, None if there is none. Raises HomeError."""
    path = home.versions / "switch.json"
    try:
        return from_wire(decode_json(path.read_bytes()), Switch)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise HomeError(f"{path}: cannot be read ({error}); it says how to undo an update") from None


def write_switch(home: Home, switch: Switch) -> None:
    """Note where an update stands. Raises HomeError."""
    write_private(home.versions / "switch.json", encode_line(to_wire(switch)).decode())
    sync_folder(home.versions)


def complete_switch(home: Home) -> None:
    """Forget the update: there is nothing to undo."""
    (home.versions / "switch.json").unlink(missing_ok=True)


def prepare_start(home: Home) -> None:
    """Wait until no update is switching, become the version that counts by then, and undo what was not completed.

    For the start of a daemon. Raises HomeError.
    """
    with no_switch(home):
        go_on_as_current(sys.argv[1:])  # another one may count since this process has begun, whether it waited or not
        undone = undo_switch(home)
    if undone is not None:
        backup = str(home.backups / undone.backup) if undone.backup else ""
        write_last(home, LastUpdate(undone.version, __version__, wall_clock(), "the update was not completed", backup))
        print_error("pegasus: an update was not completed; the version before it runs, with its data")


def undo_switch(home: Home) -> Switch | None:
    """Put back what an incomplete update has changed, and return that; None if there is none.

    Locks the home. Raises HomeError; then nothing may start, and the next call begins anew.
    """
    if (switch := read_switch(home)) is None:
        return None
    current = current_folder(home)
    if current is not None and current.name == switch.to:
        complete_switch(home)  # only the last step was missing
        return None
    with own_when_free(home, _DIES):
        if switch.restores:
            _restore_data(home, switch)
        complete_switch(home)
    _log.warning("an update was undone", version=switch.version, restored=switch.restores)
    return switch


@contextmanager
def own_when_free(home: Home, seconds: float) -> Iterator[None]:
    """Lock the home while the body runs, when who has it lets go. Raises HomeBusy if that takes longer."""
    until = time.monotonic() + seconds
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(own_home(home))
                break
            except HomeBusy:
                if time.monotonic() > until:
                    raise
            time.sleep(_LOOK)
        yield


def _restore_data(home: Home, switch: Switch) -> None:
    """Make `data` anew from the backup. The home is locked. Raises HomeError."""
    backup, apart = home.backups / switch.backup, Home(home.versions / "undo")
    try:
        if apart.path.exists():
            shutil.rmtree(apart.path)
        restore_backup(backup, apart, passphrase=None)
        old = apart.path / "replaced"
        if home.data.exists():
            home.data.rename(old)
        apart.data.rename(home.data)
        sync_folder(home.path)
        shutil.rmtree(apart.path, ignore_errors=True)
    except (BackupError, HomeError, OSError) as error:
        reason = f"{error.filename or home.data}: {error.strerror}" if isinstance(error, OSError) else str(error)
        raise HomeError(
            f"the update to {switch.version} cannot be undone: {reason}; mend that and start again. "
            f"The data from before it is in {backup}",
            exit_code=1,
        ) from None
