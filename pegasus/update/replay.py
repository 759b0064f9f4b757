"""The replay of the last days of a copied home with this version: `python -m pegasus.update.replay COPY [--days N]`.

It prints one JSON object, the report, and ends with 0 if nothing is different, 1 if something is, and 2 with a sentence on stderr if
the comparison could not be made.

What came from outside is handed in again in virtual time: messages when they were accepted, answers of models and results of tools
when they came, edits by hand, answers of owners, and the starts of the process. All else the product does itself, on a disk in memory.
Then the record of the replay is compared with that of the home (`comparison`).

Nothing is called. An audit hook refuses connections, programs, and files that are written outside of the copy, whatever the code under
test does.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attrs
import trio
from trio.testing import MockClock

from pegasus.formatting import describe_error, first_cause
from pegasus.host import Home, HomeError, prepare_data
from pegasus.settings import SettingsError, SettingsSource, load_settings
from pegasus.testing import MemoryDisk
from pegasus.update.beginning import choose_beginning, count_left_out, data_before, is_busy, notes_before
from pegasus.update.comparison import Comparison, compare
from pegasus.update.outside_events import OutsideEvent, events_of, starts_of
from pegasus.update.record import Record, all_times, last_time, read_record, time_of
from pegasus.update.recorded_answers import RecordedAnswers, RecordedIds
from pegasus.update.replay_world import WORKSPACE, ReplayWorld, Stage, make_environment, open_replay

DAYS: Final = 7.0
"""Days that are replayed, unless somebody says otherwise."""
_BEFORE: Final = 1_000
"""Time that the tree has to start before the first thing happens, ms."""
_BEHIND: Final = 60
"""Time that is left at the end for what the journal writes a moment later, ms."""


def replay(copy: Path, days: float = DAYS) -> dict[str, Any]:
    """Replay the last days of a copied home, and return the report as JSON. Blocks. Raises what a defect of the version raises."""
    record = read_record(read_folder(copy / "data"), read_folder(copy / WORKSPACE, _is_text))
    since = choose_beginning(record, days)
    prepare_data(Home(copy), lambda path: None)  # brings the copy into the form of this version
    data = read_folder(copy / "data")
    migrated = read_record(data, {})
    files = data_before(migrated, data, since)
    texts = read_folder(copy / WORKSPACE, _is_text)
    files |= {f"{WORKSPACE}/{path}": text for path, text in texts.items() if not path.startswith("memory/")}
    notes_then = notes_before(record, since).items()
    files |= {f"{WORKSPACE}/memory/{name}": text.encode("utf-8", "surrogateescape") for name, text in notes_then}
    end = last_time(record)
    begin = (since or min((at for at in all_times(record) if at), default=0)) - _BEFORE
    found = Comparison()
    disk = MemoryDisk()
    for path, content in files.items():
        disk.put(path, content)
    stage = Stage(RecordedAnswers(record, since), disk, begin, found)
    logs = _keep_lines(disk)
    if end:
        trio.run(_run, stage, copy, since, end, clock=MockClock(autojump_threshold=0.0))
    contents = {path: disk.content(path) for path in disk.paths()} | {path: bytes(log) for path, log in logs.items()}
    notes = {path.removeprefix(f"{WORKSPACE}/"): text for path, text in contents.items() if path.startswith(WORKSPACE)}
    after = read_record({path: text for path, text in contents.items() if not path.startswith(WORKSPACE)}, notes)
    # Only work that was under way may have gone on after the last thing that was recorded.
    compared = compare(record, after, end if is_busy(record) else math.inf)
    # What the change into the form of this version has made of the data, beside what is replayed.
    migrated.notes = record.notes
    changed = compare(record, migrated, math.inf)
    found.take(changed, "after the migration: ")
    replayed = sum(time_of(line, "at") >= since for line in record.messages)
    return {
        "replayed": replayed,
        "same": compared.same,
        "different": [attrs.asdict(each) for each in (*found.different, *compared.different)],
        "more": found.count + compared.count - len(found.different) - len(compared.different),
        "since": since or begin + _BEFORE,
        "leftOut": count_left_out(record, days, since),
    }


def _keep_lines(disk: MemoryDisk) -> dict[str, bytearray]:
    """Return inbox and outbox as they grow from now on. In the files what is done is left out when they are written anew."""
    logs = {path: bytearray(disk.content(path)) for path in ("inbox/inbox.jsonl", "outbox/outbox.jsonl")}
    write = disk.files.write

    def keep(path: str, data: bytes) -> None:
        """Write, and keep what is appended to one of the two."""
        write(path, data)
        if path in logs:
            logs[path] += data

    vars(disk.files)["write"] = keep
    return logs


def read_folder(folder: Path, wanted: Callable[[str], bool] = lambda path: True) -> dict[str, bytes]:
    """Return the contents of the files below a folder, by path, without media."""
    found = {}
    for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
        name = path.relative_to(folder).as_posix()
        if wanted(name) and not name.startswith("media/") and path.is_file() and not path.is_symlink():
            found[name] = path.read_bytes()
    return found


def _is_text(path: str) -> bool:
    """Return whether a file of the workspace is one that the agent itself reads or writes."""
    return path.endswith(".md") and (path.startswith("memory/") or "/" not in path)


async def _run(stage: Stage, copy: Path, since: int, end: int) -> None:
    """Replay everything, one start of the process after the other."""
    record = stage.answers.record
    overrides = json.loads((copy / "overrides.json").read_bytes()) if (copy / "overrides.json").exists() else []
    source = SettingsSource(copy / "pegasus.toml", False, tuple(overrides))
    settings = load_settings(source, {})
    types = sorted(
        {str((line["message"].get("channel") or {}).get("type", "cli")) for line in _spoken(record)} | {"cli"}
    )
    random = RecordedIds(record, since)
    events = events_of(stage, since)
    starts = stage.starts = starts_of(copy, record, since)
    times = sorted(at for at in all_times(record) if at >= since)
    for number, start in enumerate((0, *starts)):
        following = starts[number] if number < len(starts) else None
        stop_at = end + _BEHIND if following is None else max((at for at in times if at < following), default=end)
        stage.ends = math.inf if following is None else max(stop_at, start) + 1
        if start:
            await stage.until(start)
        # Each start reads the settings anew, as the process did.
        environment = make_environment(stage, settings, copy, random)
        async with open_replay(environment, types) as world:
            mine = [event for event in events if event.at <= stop_at]
            events = events[len(mine) :]
            with trio.move_on_at(math.inf if following is None else (stop_at + 1 - stage.begin) / 1000):
                await _play(world, stage, mine)
                await stage.until(stop_at)
                # What came late is worked on, too.
                await trio.sleep(_BEHIND / 1000 if following is None else math.inf)
            if following is not None:
                stage.disk.lose_power()
            began = trio.current_time()
            with trio.CancelScope(shield=True), suppress(Exception):
                await world.stop()
        # Actors whose disk is gone take their time to stop. A process that was killed took none.
        stage.begin -= (trio.current_time() - began) * 1000
        stage.disk.reopen()


async def _play(world: ReplayWorld, stage: Stage, events: Sequence[OutsideEvent]) -> None:
    """Let everything happen that came from outside, in its order."""
    for event in events:
        await stage.until(event.at)
        try:
            await event.act(world)
        except Exception as error:  # whatever the version under test raises
            stage.found.add(event.what, "as recorded", describe_error(error))


def _spoken(record: Record) -> list[dict[str, Any]]:
    return [*record.messages, *record.replies]


# ------------------------------------------------------------------ nothing is called

_REFUSED: Final = (
    "subprocess.Popen",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "os.system",
    "socket.connect",
    "socket.bind",
)


def forbid_outside(copy: Path) -> None:
    """Refuse connections, programs, and files that are opened for writing outside of the copy, in this process and for ever."""
    root = os.path.realpath(copy) + os.sep

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _REFUSED:
            raise PermissionError(f"{event} is not allowed in a replay")
        if event == "open" and isinstance(arguments[0], (str, bytes)):
            path, mode, flags = os.fsdecode(arguments[0]), arguments[1], arguments[2]
            writes = bool(flags & (os.O_WRONLY | os.O_RDWR)) if isinstance(flags, int) else "w" in str(mode)
            if writes and path != os.devnull and not os.path.realpath(path).startswith(root):
                raise PermissionError(f"{path}: is outside of the copy")

    sys.addaudithook(look)


async def _in_place(function: Callable[..., Any], *arguments: Any, **_: Any) -> Any:
    """Call a function that others call in a thread: virtual time must not go on meanwhile."""
    await trio.lowlevel.checkpoint()
    return function(*arguments)


def main(arguments: Sequence[str]) -> int:
    """Replay, print the report, and return the exit code."""
    parser = argparse.ArgumentParser(prog="pegasus.update.replay")
    parser.add_argument("copy", type=Path)
    parser.add_argument("--days", type=float, default=DAYS)
    given = parser.parse_args(arguments)
    out, sys.stdout = sys.stdout, sys.stderr
    sys.dont_write_bytecode = True
    vars(trio.to_thread)["run_sync"] = _in_place
    forbid_outside(given.copy)
    try:
        report = replay(given.copy, given.days)
    except (HomeError, SettingsError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except Exception as error:
        cause = first_cause(error)
        traceback.print_exception(cause)
        sys.stderr.write(f"it failed with {describe_error(cause)}\n")
        return 2
    out.write(json.dumps(report) + "\n")
    return 1 if report["different"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
