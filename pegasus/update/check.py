"""The check of an update: the other version replays a copy of the home, in a process of its own and with its own code.

The home is only read. The copy is consistent while the agent runs, as a backup is (`pegasus.backup`): it has the logs, memory, notes,
jobs and skills, and neither media nor the files that tasks have worked on. The token and the keys in the settings stay out of it;
variables that name keys are emptied. The copy lies in the folder for temporary files, and is removed in any case.

The other version gets no environment beside the path of programs and the language. A version that hangs is ended.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import trio

from pegasus.backup import BackupError, FoundFile, Snapshot, with_snapshot, without_secrets
from pegasus.host import Home
from pegasus.settings import SettingsSource
from pegasus.update.candidate import UpdateError
from pegasus.update.report import CheckReport, Difference
from pegasus.wire import decode_json, encode_json

LIMIT: Final = 1800.0
"""Seconds that a replay may take. A week of thousands of messages takes less than a minute."""
_TEXTS: Final = (
    "workspace/memory/",
    "workspace/skills/",
    "data/",
    "skills/",
    "installed-skills/",
    "subagents/",
    "personas/",
)
"""Beginnings of the paths that are copied, beside what lies on top of the home and of the workspace."""
_LEFT_OUT: Final = ("data/media/", "pegasus.toml")
_LARGEST: Final = 1 << 20
"""Bytes of a file outside of `data` that is copied."""
_VARIABLE: Final = re.compile(r"\$\{[^}]*\}")
_READY: Final = re.compile(r"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?)Z?\b.*\bdaemon\b.*\bready\b")
_KEPT_VARIABLES: Final = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "PYTHONPATH")


async def check_update(
    home: Home, source: SettingsSource, command: Sequence[str], *, days: float | None = None, limit: float = LIMIT
) -> CheckReport:
    """Have another version replay a copy of the home, and return what came out differently. Raises UpdateError.

    source: the settings in use. command: the interpreter of the other version, with its options. days: how far to go back; None: a
    week. limit: seconds that it may take. Cancelled: the other version is ended, and the copy removed.
    """
    if not home.data.is_dir():
        raise UpdateError(f"{home}: there is nothing to replay")
    copy = None
    try:
        copy = Path(tempfile.mkdtemp(prefix="pegasus-check-"))
        _copy_home(home, source, copy)
        return await _replayed(command, copy, days, limit)
    except BackupError as error:
        raise UpdateError(f"the home cannot be copied: {error}") from None
    except OSError as error:
        place = error.filename or tempfile.gettempdir()
        raise UpdateError(f"the home cannot be copied: {place}: {error.strerror or error}") from None
    finally:
        if copy is not None:
            shutil.rmtree(copy, ignore_errors=True)


# ------------------------------------------------------------------ the copy


def _copy_home(home: Home, source: SettingsSource, copy: Path) -> None:
    """Copy what is replayed, as it is at one moment. Raises BackupError, OSError, UpdateError."""

    def copy_wanted(snapshot: Snapshot, _: object) -> None:
        for file in filter(_is_wanted, snapshot.files):
            snapshot.copy(home, file, copy / file.path)

    with_snapshot(home, copy_wanted, secrets=False)
    (copy / "data").mkdir(exist_ok=True)
    version = home.data / "VERSION"
    if version.is_file():
        shutil.copyfile(version, copy / "data" / "VERSION")
    (copy / "workspace").mkdir(exist_ok=True)
    _write_settings(source, copy)
    (copy / "starts.json").write_text(encode_json([*sorted(_starts(home))]))


def _is_wanted(file: FoundFile) -> bool:
    path = file.path
    if path.startswith(_LEFT_OUT):
        return False
    is_on_top = "/" not in path.removeprefix("workspace/")
    return path.startswith("data/") or (file.size <= _LARGEST and (is_on_top or path.startswith(_TEXTS)))


def _write_settings(source: SettingsSource, copy: Path) -> None:
    """Write the settings in use without their secrets."""
    text = ""
    if source.file is not None:
        with suppress(FileNotFoundError):
            text = source.file.read_text("utf-8-sig")
    blanked = without_secrets(text)
    if blanked is None:
        raise UpdateError(f"{source.file}: has mistakes, so that its secrets cannot be told from the rest")
    (copy / "pegasus.toml").write_text(_VARIABLE.sub("", blanked.text), "utf-8")
    (copy / "overrides.json").write_text(encode_json([_VARIABLE.sub("", text) for text in source.overrides]))


def _starts(home: Home) -> Iterator[int]:
    """Yield the times at which the agent was started, as its log tells them; ms."""
    for path in home.path.glob("logs/pegasus.log*"):
        try:
            text = path.read_text("utf-8", "replace")
        except OSError:
            continue
        for match in _READY.finditer(text):
            yield int(datetime.fromisoformat(f"{match['time']}+00:00").timestamp() * 1000)


# ------------------------------------------------------------------ the process


async def _replayed(command: Sequence[str], copy: Path, days: float | None, limit: float) -> CheckReport:
    """Run the other version, and read its report. Raises UpdateError, OSError."""
    environment = {name: value for name in _KEPT_VARIABLES if (value := os.environ.get(name)) is not None}
    options = [] if days is None else ["--days", str(days)]
    done = None
    with trio.move_on_after(limit):
        done = await trio.run_process(
            [*command, "-m", "pegasus.update.replay", str(copy), *options],
            stdin=b"",
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            cwd=copy,
            env={**environment, "HOME": str(copy), "PYTHONHASHSEED": "0"},
        )
    if done is None:
        raise UpdateError(f"the other version did not end within {limit:g} s, and was ended")
    report: Any = None
    with suppress(ValueError):
        report = decode_json(done.stdout)
    match report:
        case {"replayed": int(replayed), "same": int(same), "different": list(different)}:
            found = [Difference(str(each["what"]), each.get("before"), each.get("after")) for each in different]
            more, since, left_out = (int(report.get(name, 0)) for name in ("more", "since", "leftOut"))
            return CheckReport(replayed, same, found, more, since, left_out)
    words = done.stderr.decode("utf-8", "replace").strip()
    if "No module named" in words and "pegasus.update" in words:
        raise UpdateError("the other version is older than the check, and cannot replay anything")
    last = words.splitlines()[-1][:300] if words else f"it ended with {done.returncode}"
    raise UpdateError(f"the other version could not replay the home: {last}")
