"""Where a task waits, in terms of the program's own code."""

from __future__ import annotations

import contextlib

from trio.lowlevel import Task

from actors._incarnation import MACHINERY

OTHERS = (*MACHINERY, contextlib.__file__)
"""Files of code that nobody looks for a fault in."""


def own_stack(task: Task) -> tuple[str, ...]:
    """Where the program's own code waits, and what it calls there, without the depths of Trio and of this package."""
    lines: list[str] = []
    inner = ""
    for frame, line in task.iter_await_frames():
        code = frame.f_code
        if not code.co_filename.startswith(OTHERS):
            lines.append(f"{code.co_filename}:{line} in {code.co_qualname}")
            inner = ""
        elif not inner:
            inner = f"waits in {code.co_qualname}"
    return (*lines, inner) if inner else tuple(lines)


def own_place(task: Task) -> str:
    """The innermost await of the program's own code; "" for a task that has none."""
    place = ""
    for frame, line in task.iter_await_frames():
        if not frame.f_code.co_filename.startswith(OTHERS):
            place = f"{frame.f_code.co_filename}:{line} in {frame.f_code.co_qualname}"
    return place
