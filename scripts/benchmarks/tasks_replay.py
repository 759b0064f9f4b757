"""The replay of a long task, beside reading its log line by line with the json module."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.report import Result, compared
from benchmarks.workplace import Workplace
from pegasus.conversation import Entry
from pegasus.messages import Json
from pegasus.models.base import ToolCall
from pegasus.tasks.core.task_events import (
    ReasonDone,
    Reasoning,
    TaskCreated,
    TaskEventData,
    ToolCallDone,
)
from pegasus.tasks.log.format import create_event
from pegasus.tasks.log.replay import replay
from pegasus.tasks.run.stages import make_plan

LINES = 10_000
LIMIT = 4.0
_ID = "00112233aabbccdd"
_BEGAN = 1_767_225_600_000
_RESULT = json.dumps({"path": "notes/harbour.md", "content": "the lamp was lit again this morning " * 8, "size": 296})


def measure(place: Workplace) -> Iterator[Result]:
    path = place.folder / "long.jsonl"
    path.write_bytes(b"".join(log_lines(LINES, _ID)))
    measured: list[float] = []
    floor: list[float] = []
    for _ in range(place.rounds(21, 5)):
        floor.append(_timed(_parse, path))
        measured.append(_timed(_replay, path))
    detail = {"bytes": path.stat().st_size}
    yield compared(f"replay of a log of {LINES:,} lines", measured, floor, "json, line by line", LIMIT, detail=detail)


def log_lines(lines: int, task_id: str) -> Iterator[bytes]:
    """The log of a task that thinks and looks in turn, one call each time, for ever."""
    yield _line(task_id, TaskCreated(input_text="write down what happens in the harbour"), 0)
    for n in range(1, lines):
        yield _thought(task_id, n) if n % 2 else _looked(task_id, n)


def _thought(task_id: str, n: int) -> bytes:
    arguments: dict[str, Json] = {"path": "notes/harbour.md", "offset": n}
    words = "I look at the next part of the notes before I write anything about it."
    reasoning = Reasoning(words, "tool_use", tool_calls=(ToolCall(f"call_{n}", "read_file", arguments),))
    turn = Entry(_BEGAN + n, "assistant", words, (ToolCall(f"call_{n}", "read_file", arguments),))
    return _line(task_id, ReasonDone(reasoning, make_plan(reasoning, "harbour notes"), (turn,)), n)


def _looked(task_id: str, n: int) -> bytes:
    result = Entry(_BEGAN + n, "tool", _RESULT, call_id=f"call_{n - 1}")
    return _line(task_id, ToolCallDone("read_file", 12, (result,)), n)


def _line(task_id: str, data: TaskEventData, n: int) -> bytes:
    return create_event(data, task_id, "bench", _BEGAN + n).line


def _parse(path: Path) -> None:
    with path.open("rb") as file:
        for line in file:
            json.loads(line)


def _replay(path: Path) -> None:
    found = replay(path.read_bytes(), _ID)
    assert (found.lines, found.problems) == (LINES, ())
    assert found.task is not None
    assert len(found.task.context.messages) == LINES


def _timed(work: Callable[[Path], None], path: Path) -> float:
    gc.collect()
    began = time.perf_counter()
    work(path)
    return time.perf_counter() - began
