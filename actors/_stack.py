"""Where a task waits, seen from outside and without its help."""

from __future__ import annotations

from trio.lowlevel import Task


def stack_of(task: Task | None) -> tuple[str, ...]:
    """Give "file:line in function" for each await, outermost first; then those of the tasks in its nurseries."""
    if task is None:
        return ()
    own = [
        f"{frame.f_code.co_filename}:{line} in {frame.f_code.co_qualname}" for frame, line in task.iter_await_frames()
    ]
    children = [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    return (*own, *(line for child in children for line in stack_of(child)))


def location_of(task: Task | None) -> str | None:
    """The innermost await that is neither Trio's nor of this package."""
    own = [line for line in stack_of(task) if "/trio/" not in line and "/actors/_" not in line]
    return own[-1] if own else None
