"""Leases: who may write what, by owner keys.

An *owner key* names whoever writes some lines and files: a session, a task, the schedule. A lease of the key is the right to write
them, and its fencing token grows with each lease of the same key. Every message with an effect can carry the lease of its asker, and
is refused when a newer one was taken. So whoever was given up, and still runs, changes nothing any more.

The keys that there are:

    main                       the one session of scope "global", with its archives
    chat/<file key>            the session of a chat, as `chat_owner` returns it
    task/<id>                  the log of a task
    tasks                      the index of tasks
    tasks/<run>                the tasks on which a run of a node works
    channel/<type>             what the adapter of a service has sent
    memory, memory/<key>       the memory of the owner, and of a guest
    rows/<collection>[/<owner>]    a collection of rows or lines
    file/<path>                any other file

A key is ASCII of at most 255 bytes and some, whatever a channelId holds, so that a database can have an index of them.
"""

from __future__ import annotations

from typing import Final

import attrs

from actors import Reply
from pegasus.formatting import file_key
from pegasus.messages import Address
from pegasus.storage.row_files import collection_of


@attrs.frozen
class Lease:
    """The right to write what an owner key stands for, until somebody else takes it: `Lease("chat/web%3Ac1", 7)`.

    The key names an owner and no file, so a second engine whose rows have no paths has the same leases.

    Example: `Commit(reply, appends, lease=lease)` fails with LeaseLost once another agent has taken the lease.
    """

    owner: str
    """Owner key, as "chat/web%3Ac1" for the session of a chat."""
    token: int
    """Fencing token: it grows with each lease of the key, and a change with an older one is refused."""


class LeaseLost(Exception):
    """Somebody else has taken the lease since, or may have. The request must not be made again, and nothing done that follows from it.

    Nothing of it has happened, unless the asker was paused while it was carried out.

    Example: `except LeaseLost: return`, since another incarnation works on this session now.
    """


@attrs.frozen(eq=False, repr=False)
class TakeLease:
    """Query: take the lease of an owner key, whoever had it. Whoever had it gets LeaseLost for the next change.

    So a session has one writer at a time, also while a writer that is given up still works. The file engine keeps leases in memory: a
    restart of the journal restarts everybody who holds one. An engine of several machines answers LeaseLost if another machine owns
    the key.
    """

    reply: Reply[Lease]
    """Handle for the lease."""
    owner: str
    """Owner key. Nothing of it need exist."""


@attrs.frozen(eq=False, repr=False)
class LostLease:
    """Query: answered when a lease is not the asker's any more, or may not be: whatever works under it has to end at once.

    The file engine keeps it for ever: who has taken a lease there has also ended whoever had it. Any number of these queries may wait.

    Example: `await journal.ask(LostLease, lease)` beside the work, whose scope is cancelled then.
    """

    reply: Reply[None]
    """Handle for the end of the wait; its value is always None."""
    lease: Lease
    """Lease that `TakeLease` has given."""


@attrs.frozen
class GiveBack:
    """Note: nothing works under a lease any more, so that another node may have the key at once. A stale lease has no effect.

    The file engine has no other node, and does nothing.
    """

    lease: Lease
    """Lease that `TakeLease` has given."""


TASKS: Final = "tasks"
"""Owner key of the index of tasks."""


def chat_owner(chat: Address) -> str:
    """Return the owner key of a chat's session: `chat_owner(Address("web", "c1"))` is "chat/web%3Ac1"."""
    return f"chat/{file_key(str(chat))}"


def task_owner(task_id: str) -> str:
    """Return the owner key of a task's log."""
    return f"task/{task_id}"


def owner_of(path: str) -> str:
    """Return the key of whoever owns a file below data/.

    >>> owner_of("sessions/web%3Ac1.2026-02-25-143000.jsonl")
    'chat/web%3Ac1'
    >>> owner_of("tasks/2026-02-25/20260225-abc.jsonl")
    'task/20260225-abc'
    """
    folder, _, rest = path.partition("/")
    name = rest.rpartition("/")[2].partition(".")[0]
    if (collection := collection_of(path)) is not None:
        return f"channel/{name}" if folder == "channels" else f"rows/{'/'.join(collection)}".rstrip("/")
    match folder:
        case "main" | "memory":
            return folder
        case "sessions":
            return f"chat/{name}"
        case "tasks":
            return task_owner(name) if "/" in rest else TASKS
        case "guests" if "/memory/" in rest:
            return f"memory/{rest.partition('/')[0]}"
    return f"file/{path}"
