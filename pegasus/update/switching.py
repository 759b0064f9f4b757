"""The switch to another version, and back by itself.

1. The agent is stopped in order. Its process does not end but starts again and waits, so that it keeps its environment and its place
   below whoever watches over it: a service manager, a container, a terminal.
2. A backup is made, while nothing runs and nothing can start.
3. The new version is tried on the home itself: it changes the data into its form and starts everything, but the doors accept nothing,
   and nothing is worked on or sent (`pegasus.app.daemon`). It must be ready within a minute, and stay for a while. Where the form of
   the data changes this lasts the whole minute, since going back means the backup.
4. The link to the version that counts is changed. The process that waits goes on as the new version, and is watched until its minute
   is over.

A version that fails in step 3 leaves no trace: `data` is made anew from the backup, and the old version goes on. One that ends in
step 4 is replaced by the old one again. Data of an unchanged form stays as it is then, with everything that was accepted meanwhile.
Data of a newer form is made anew only if the new version was never ready; otherwise people may have written, and nothing that was
accepted is ever thrown away, so the new version is started again.

This code is that of the old version throughout. It may be killed at any moment: `versions` says what happens then.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

import attrs

from pegasus import __version__
from pegasus.backup import SPARE, BackupError, make_backup
from pegasus.host import (
    TRIAL_LINE,
    Home,
    HomeBusy,
    ask_to_start_again,
    free_backup_name,
    is_alive,
    read_daemon,
    read_format,
    wall_clock,
    write_private,
)
from pegasus.launching import AS_IT_IS, OVER
from pegasus.update.candidate import Candidate, UpdateError
from pegasus.update.versions import (
    LastUpdate,
    Switch,
    current_folder,
    no_start,
    own_when_free,
    remove_others,
    set_current,
    undo_switch,
    write_last,
    write_switch,
)

MINUTE: Final = 60.0
"""Seconds that a new version has to be ready, and to stay."""
_STAYS: Final = 1 / 6
"""Part of it that a trial stays when the form of the data is the same."""
_ENDS: Final = 5.0
"""Seconds beyond its grace that a process may take to end."""
_ALARM: Final = 40
"""Seconds behind the minute after which a trial is ended by the system, if the update was killed."""
_LOOK: Final = 0.1
_WITH_ALARM: Final = "import os, signal, sys; signal.alarm(int(sys.argv[1])); os.execv(sys.argv[2], sys.argv[2:])"
"""Program that sets an alarm and becomes another one. The alarm stays, also in a program that hangs before its first line."""


@attrs.frozen
class UpdateWays:
    """Means of an update that depend on how the agent is run."""

    options: Sequence[str]
    """Global options of the command line, which lead to the home and its settings."""
    start: Callable[[], object]
    """Starts an agent in the background when none comes back by itself. Raises UpdateError."""
    say: Callable[[str], object]
    """Shows a line to the person."""
    grace: float
    """Seconds that the agent may take to stop."""
    minute: float = MINUTE


def switch(home: Home, candidate: Candidate, ways: UpdateWays) -> LastUpdate:
    """Let a version take over, or put the one of now back; return how it ended. The lock of updates is held.

    candidate: installed in a folder of `<home>/versions`. Raises UpdateError, HomeError where it could not be tried; then everything
    is as it was, or the error says what is to be done.
    """
    folder = candidate.interpreter.parents[1]
    last = LastUpdate(candidate.version, __version__, wall_clock())
    before, daemon = current_folder(home), read_daemon(home)
    form = read_format(home)
    check_candidate(home, candidate)
    try:
        with no_start(home) as lock:
            write_switch(home, Switch(folder.name, candidate.version))
            try:
                backup = _stop_and_back_up(home, candidate, folder.name, daemon.pid if daemon else None, ways)
                last = attrs.evolve(last, backup=str(home.backups / backup))
                ways.say(f"trying {candidate.version} …")
                problem = _try(home, candidate, backup, form != candidate.format, lock, ways)
                if problem:
                    last = attrs.evolve(last, problem=problem)
                else:
                    write_private(folder / OVER, f"{_installed(before)}\n")
                    set_current(home, folder.name)
                    write_last(home, last)
            finally:
                undo_switch(home)  # behind the change of the link it only forgets the note
        if last.problem or daemon is None:
            return last
        problem, was_ready = _watch(home, candidate.version, daemon.pid, ways)
        if problem:
            last = attrs.evolve(last, problem=problem)
            restores = form != candidate.format
            if restores and was_ready:
                text = f"{problem}. It has changed the form of the data and accepted messages, so it is started again"
                raise UpdateError(f"{text}; the backup from before it is {last.backup}")
            _go_back(home, Switch(folder.name, candidate.version, backup, restores), before, ways)
        return last
    except BaseException as error:
        if current_folder(home) != folder:
            last = attrs.evolve(last, problem=str(error) or "the update was interrupted")
        raise
    finally:
        is_new = current_folder(home) == folder
        write_last(home, last)
        remove_others(home, current_folder(home), before if is_new else None)
        if daemon is not None:
            _ensure_runs(home, daemon.pid, ways)


def check_candidate(home: Home, candidate: Candidate) -> None:
    """Raise UpdateError for a version that does not know the form of the data."""
    form = read_format(home) if home.data.is_dir() else candidate.format
    if candidate.format < form:
        raise UpdateError(
            f"{candidate.version} is older than the data: it knows format {candidate.format}, found {form}; "
            "to go back, restore a backup from before the update"
        )


# ------------------------------------------------------------------ the steps


def _stop_and_back_up(home: Home, candidate: Candidate, to: str, pid: int | None, ways: UpdateWays) -> str:
    """Stop the agent, and make a backup; return its name. Raises UpdateError, HomeError."""
    if pid is not None:
        _ask_to_stop(home, pid)
        ways.say("stopping the agent …")
    try:
        with own_when_free(home, ways.grace + _ENDS if pid is not None else 0.0):
            name = free_backup_name(home, f"before-{re.sub(r'[^0-9A-Za-z.+-]', '_', candidate.version)}")
            ways.say(f"making a backup: {home.backups / name}")
            try:
                made = make_backup(home, home.backups / name, passphrase=None, secrets=True, clock=wall_clock)
            except (BackupError, OSError) as error:
                reason = f"{error.filename or home.backups}: {error.strerror}" if isinstance(error, OSError) else error
                raise UpdateError(f"no update without a backup, which cannot be made: {reason}") from None
            free = shutil.disk_usage(home.path).free
            if free < made.size + SPARE:
                (home.backups / name).unlink()
                needed = (made.size + SPARE) / 1e6
                raise UpdateError(
                    f"{home}: found {free / 1e6:.0f} MB free, needed: {needed:.0f} MB to be able to go back"
                )
            write_switch(home, Switch(to, candidate.version, name, restores=True))
            return name
    except HomeBusy as busy:
        raise UpdateError(
            f"{home}: process {busy.pid or 'of somebody'} does not let go of it; end it, then run this again"
        ) from None


def _try(home: Home, candidate: Candidate, backup: str, changes_form: bool, lock: int, ways: UpdateWays) -> str:
    """Start a version on the home with closed doors; return why it is useless, "" if it is not."""
    began = time.monotonic()
    log = home.versions / "trial.log"
    python = str(candidate.interpreter)
    alarm = [sys.executable, "-I", "-c", _WITH_ALARM, str(int(ways.minute) + _ALARM)]
    command = [*alarm, python, "-P", "-m", "pegasus", *ways.options, "run", "--no-cli", "--trial-of", backup]
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={**os.environ, AS_IT_IS: "1"},
            start_new_session=True,
            pass_fds=(lock,),
        )
    try:
        is_ready = _reads_line(process.stdout, TRIAL_LINE, ways.minute)
        rest = ways.minute - (time.monotonic() - began)
        if not is_ready:
            try:
                return f"it ended with {_code(process.wait(max(rest, _LOOK)))}{_words(log)}"
            except subprocess.TimeoutExpired:
                return f"it was not ready within {ways.minute:g} s"
        with suppress(subprocess.TimeoutExpired):
            code = process.wait(max(rest, 0.0) if changes_form else ways.minute * _STAYS)
            return f"it was ready and then ended with {_code(code)}{_words(log)}"
        process.terminate()
        try:
            code = process.wait(ways.grace + _ENDS)
        except subprocess.TimeoutExpired:
            return "it does not stop in order"
        return "" if code == 0 else f"it did not stop in order: {_code(code)}{_words(log)}"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


def _watch(home: Home, version: str, pid: int, ways: UpdateWays) -> tuple[str, bool]:
    """Watch the new version until its minute is over; return why it failed, "" if it did not, and whether it was ready."""
    until, began, seen = time.monotonic() + ways.minute, time.monotonic(), None
    if not (goes_on := is_alive(pid)):  # a version that does not know how to start again
        ways.start()
    while time.monotonic() < until:
        daemon = read_daemon(home)
        if seen is None and daemon is not None:
            if daemon.version != version:
                return f"{daemon.version} runs instead of it", False
            seen = daemon
            ways.say(f"{version} runs (process {daemon.pid}); it is watched for {until - time.monotonic():.0f} s")
        elif seen is not None and daemon != seen:
            return f"it ended {time.monotonic() - began:.0f} s after its start", True
        elif seen is None and goes_on and not is_alive(pid):
            return "it ended before it was ready", False
        time.sleep(_LOOK)
    return ("", True) if seen is not None else (f"it was not ready within {ways.minute:g} s", False)


def _go_back(home: Home, note: Switch, before: Path | None, ways: UpdateWays) -> None:
    """Put the version before back."""
    ways.say("the version before is put back …")
    with no_start(home):
        daemon = read_daemon(home)
        pid = daemon.pid if daemon is not None else _owner(home)
        if pid is not None:
            _ask_to_stop(home, pid)
        write_switch(home, note)
        set_current(home, before.name if before is not None else "")
        try:
            with own_when_free(home, ways.grace + _ENDS):
                pass
        except HomeBusy as busy:
            if busy.pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(busy.pid, signal.SIGKILL)
        undo_switch(home)


def _ensure_runs(home: Home, pid: int, ways: UpdateWays) -> None:
    """Start an agent if the one that waits does not come back."""
    began = time.monotonic()
    while read_daemon(home) is None:
        if not is_alive(pid) or time.monotonic() > began + ways.minute:
            if _owner(home) is None:
                ways.start()
            return
        time.sleep(_LOOK)


# ------------------------------------------------------------------ processes


def _ask_to_stop(home: Home, pid: int) -> None:
    """Let an agent stop in order, and start again. Raises HomeError."""
    ask_to_start_again(home, pid)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)


def _owner(home: Home) -> int | None:
    """Return the process that has locked the home last, None if it is this one or has ended."""
    with suppress(OSError, ValueError):  # not by locking it: an agent that starts at this moment would be refused
        pid = int(home.lock.read_bytes())
        return pid if pid != os.getpid() and is_alive(pid) else None
    return None


def _reads_line(pipe: IO[bytes] | None, line: str, seconds: float) -> bool:
    """Return True when the line was read, False if it did not come in time or at all."""
    until, seen = time.monotonic() + seconds, b""
    while pipe is not None and (rest := until - time.monotonic()) > 0:
        if select.select([pipe], [], [], rest)[0]:
            chunk = os.read(pipe.fileno(), 4096)
            seen += chunk
            if line.encode() in seen.splitlines():
                return True
            if not chunk:
                return False
    return False


def _installed(before: Path | None) -> str:
    """Return the version of the installed program, over which versions count."""
    if before is not None and Path(sys.prefix).name == before.name:
        with suppress(OSError):
            return (before / OVER).read_text("utf-8").strip()
    return __version__


def _code(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"


def _words(log: Path) -> str:
    """Return what a version has said about its end, "" if nothing."""
    with suppress(OSError):
        lines = [line.strip() for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
        own = [line.removeprefix("pegasus: ") for line in lines if line.startswith("pegasus: ")]
        if found := (own or lines)[-1:]:
            return f": {found[0][:300]}"
    return ""
