"""Life with an agent that has run for a month: the backup of a home against `tar` on the same files.

The home has 100,000 lines in a session and logs of tasks, and a gigabyte of media that do not shrink. Both copies are on the disk when
they count as done: the backup syncs its file, and so does the floor.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.processes import PYTHON
from benchmarks.report import Result, compared
from benchmarks.workplace import Workplace

BACKUP_LIMIT = 1.5


def measure(place: Workplace) -> Iterator[Result]:
    home = place.home()
    _fill(home, lines=place.rounds(100_000, 10_000), media=place.rounds(256, 32))
    backup = [PYTHON, "-m", "pegasus", "--home", str(home), "backup", str(place.folder / "backup")]
    copy = 'tar -cf "$0" -C "$1" . && sync "$0"'
    tar = ["sh", "-c", copy, str(place.folder / "copy.tar"), str(home)]
    _seconds(backup), _seconds(tar)  # the files are in memory from here on
    rounds = range(place.rounds(7, 3))
    ours, floor = zip(*[(_seconds(backup), _seconds(tar)) for _ in rounds], strict=True)
    # A small home says nothing: starting Python takes as long as copying it.
    yield compared("backup of a month", ours, floor, "tar", None if place.quick else BACKUP_LIMIT, unit="s")


def _fill(home: Path, *, lines: int, media: int) -> None:
    """Write half of the lines into the session, the others into logs of tasks; media: files of 4 MiB."""
    text = json.dumps({"role": "user", "content": "a message of usual length, " * 4})
    rows = [f'{{"ts":{n},{text[1:]}\n' for n in range(lines)]
    (home / "data" / "main" / "current.jsonl").write_text("".join(rows[: lines // 2]))
    for n in range(0, lines // 2, 50):
        folder = home / "data" / "tasks" / f"2026-01-{n // 50 % 28 + 1:02d}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{n}.jsonl").write_text("".join(rows[n : n + 50]))
    folder = home / "data" / "media"
    folder.mkdir()
    for _ in range(media):
        content = os.urandom(4 << 20)
        (folder / f"{hashlib.sha256(content).hexdigest()}.jpg").write_bytes(content)


def _seconds(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began
