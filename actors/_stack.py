"""Where a task waits, seen from outside and without its help."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import trio
from trio.lowlevel import Task

MACHINERY = (str(Path(__file__).parent), str(Path(trio.__file__).parent))


def stack_of(task: Task | None) -> tuple[str, ...]:
    """Give "file:line in function" for each await, outermost first; those of the tasks in its nurseries follow."""
    return tuple(_describe(frame, line) for frame, line in _awaits(task))


def location_of(task: Task | None) -> str | None:
    """Give the innermost await that is neither Trio's nor this package's."""
    own = [at for at in _awaits(task) if not at[0].f_code.co_filename.startswith(MACHINERY)]
    return _describe(*own[-1]) if own else None


def _awaits(task: Task | None) -> Iterator[tuple[FrameType, int]]:
    if task is None:
        return
    yield from task.iter_await_frames()
    for nursery in task.child_nurseries:
        for child in sorted(nursery.child_tasks, key=lambda child: child.name):
            yield from _awaits(child)


def _describe(frame: FrameType, line: int) -> str:
    return f"{frame.f_code.co_filename}:{line} in {frame.f_code.co_qualname}"
