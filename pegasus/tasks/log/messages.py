"""Messages of the persister, the one actor that writes below `data/tasks`.

Requests that read are answered behind the writes that were requested before them. `Forget` has no reply, since nobody needs to
wait for it: forgetting a task too late costs a repeated notification and nothing else.
"""

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

    Example: `await persister.ask(RecordEvents, (created,))`; usually by `record`, which asks again for as long as it must.
    """

    reply: Reply[None]
    """Answered when every line is synced."""
    events: tuple[Event, ...]
    """Events in the order of their lines; they may belong to several tasks."""


@attrs.frozen(eq=False)
class GetPending:
    """Return every pending task, oldest first. A list that was missing or damaged has been rebuilt from the logs."""

    reply: Reply[tuple[PendingTask, ...]]
    """Receives the list as it is in memory, which may be ahead of the file."""


@attrs.frozen
class Forget:
    """Take a task off the pending list: it is over, and its submitter knows.

    Not durable at once: after a crash the task may be pending again, and its end is then notified again under the same number.
    """

    task_id: str
    """Id of the task; one that is not on the list is no error."""


@attrs.frozen(eq=False)
class ReadLogs:
    """Return the whole logs of tasks; b"" for a task without one. A log that cannot be read is an error among the others."""

    reply: Reply[tuple[bytes | StorageError, ...]]
    """Receives a content or an error for each id, in their order. Fails with StorageError if the index cannot be read."""
    task_ids: tuple[str, ...]
    """Ids of the tasks; an invalid id counts as a task without a log."""


@attrs.frozen(eq=False)
class ListLogs:
    """Return the ids of the tasks that were created on a day (UTC, YYYY-MM-DD), oldest first."""

    reply: Reply[tuple[str, ...]]
    """Receives each id once. Fails with StorageError if the index cannot be read."""
    date: str
    """UTC date of the creation."""


PersisterMessage: TypeAlias = RecordEvents | GetPending | Forget | ReadLogs | ListLogs
"""Everything that the persister accepts."""
