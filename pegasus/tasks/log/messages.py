"""Messages of the persister, the one actor that writes below `data/tasks`."""

from __future__ import annotations

from typing import TypeAlias

import attrs

from actors import Reply
from pegasus.events import Event
from pegasus.storage import StorageError
from pegasus.tasks.log.format import PendingTask


@attrs.frozen(eq=False)
class RecordEvents:
    """Write a line for each of these events, as one durable step, in this order.

    Answered when they are on disk. Fails with StorageError if the disk refuses; then none of them was written. Whoever asks may
    ask again for the same events: they are written once, also if the persister was restarted in between.

    Only one request may be under way for a task: its actor asks while there is one, the agent otherwise.
    """

    reply: Reply[None]
    events: tuple[Event, ...]


@attrs.frozen(eq=False)
class GetPending:
    """Return every pending task, oldest first. A list that was missing or damaged has been rebuilt from the logs."""

    reply: Reply[tuple[PendingTask, ...]]


@attrs.frozen
class Forget:
    """Take a task off the pending list: it is over, and its submitter knows.

    Not durable at once: after a crash the task may be pending again, and its end is then notified again under the same number.
    """

    task_id: str


@attrs.frozen(eq=False)
class ReadLogs:
    """Return the whole logs of tasks; b"" for a task without one. A log that cannot be read is an error among the others."""

    reply: Reply[tuple[bytes | StorageError, ...]]
    task_ids: tuple[str, ...]


@attrs.frozen(eq=False)
class ListLogs:
    """Return the ids of the tasks that were created on a day (UTC, YYYY-MM-DD), oldest first."""

    reply: Reply[tuple[str, ...]]
    date: str


PersisterMessage: TypeAlias = RecordEvents | GetPending | Forget | ReadLogs | ListLogs
