"""What may be said to the task persister, the one writer of data/tasks (beside `Record`, by which the bus has events written)."""

from __future__ import annotations

from typing import TypeAlias

import attrs

from actors import Reply
from pegasus.events import Record
from pegasus.storage import StorageError


@attrs.frozen
class Pending:
    """A task that is unfinished, or whose end its submitter may not know. ts: since when, wall clock, ms."""

    task_id: str
    ts: int


@attrs.frozen(eq=False)
class GetPending:
    """Every pending task, oldest first. A list that was missing or damaged has been rebuilt from the logs."""

    reply: Reply[tuple[Pending, ...]]


@attrs.frozen
class Forget:
    """It is finished, and who should know does: not pending any more. Not durable at once: at a crash it may be pending again.

    A task becomes pending by itself, durably, before its TASK_CREATED or TASK_RESUMED is written.
    """

    task_id: str


@attrs.frozen(eq=False)
class ReadLogs:
    """The whole logs of tasks, with everything said before in them; b"" for a task there is none of.

    A log that cannot be read is an error among the others.
    """

    reply: Reply[tuple[bytes | StorageError, ...]]
    task_ids: tuple[str, ...]


@attrs.frozen(eq=False)
class LogsOf:
    """The tasks that were created on a day (UTC, YYYY-MM-DD), oldest first."""

    reply: Reply[tuple[str, ...]]
    date: str


PersisterMessage: TypeAlias = Record | GetPending | Forget | ReadLogs | LogsOf
