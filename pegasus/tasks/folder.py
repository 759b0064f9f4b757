"""The logs of tasks in a data folder, for when no daemon runs. Blocking; nothing is ever written."""

from __future__ import annotations

from pathlib import Path

from pegasus.tasks.index import INDEX, date_in, read_index
from pegasus.tasks.log import FOLDER, is_date, is_task_id, task_path
from pegasus.tasks.replay import ReplayedTask, replay


def find_log(data: Path, task_id: str) -> Path | None:
    """The log of a task, by the index or, where that does not name it, by its name; None if there is none."""
    if not is_task_id(task_id):
        return None
    date = date_in(_read(data / INDEX), task_id)
    if date is not None and (path := data / task_path(task_id, date)).is_file():
        return path
    return next((data / FOLDER).glob(f"*/{task_id}.jsonl"), None)


def read_task(data: Path, task_id: str) -> ReplayedTask | None:
    """A task; None if there is none. OSError if its log cannot be read."""
    path = find_log(data, task_id)
    return replay(path.read_bytes(), task_id) if path is not None else None


def read_tasks_of_day(data: Path, date: str) -> tuple[ReplayedTask, ...]:
    """The tasks that were created on a day (UTC, YYYY-MM-DD), in the order of the index, then those that it does not name."""
    if not is_date(date):
        return ()
    indexed = [entry.task_id for entry in read_index(_read(data / INDEX))[0] if entry.date == date]
    named = sorted(path.stem for path in (data / FOLDER / date).glob("*.jsonl") if is_task_id(path.stem))
    ids = dict.fromkeys((*indexed, *named))
    paths = [data / task_path(task_id, date) for task_id in ids]
    return tuple(replay(path.read_bytes(), path.stem) for path in paths if path.is_file())


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
