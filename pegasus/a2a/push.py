"""Push notifications: the targets that clients name, and the deliveries to them.

A target is a row of the journal with the number of the updates that it has got. The updates themselves follow from the log of the task
(`record`), so nothing else has to be kept: after kill -9 the deliveries go on with the first update whose delivery is not noted. A
crash between the answer of a target and that note delivers one update twice, never none.

Each target has a delivery of its own, so one that is down holds up no other, and the slow ones of a client hold up no other client's.
Updates of a task go out in their order. A target that does not take an update is tried again with growing pauses, for TRIED_FOR, and
is forgotten then. So is one whose client's token was revoked: it gets nothing that happens afterwards.

Addresses are chosen by the client, so each connection is guarded as those of the web tools are: no address of a private network, at
once or by a redirect, unless the settings permit it (`tools.allowed_hosts`). A redirect to another host gets nothing of the update.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Final, TypeAlias
from urllib.parse import urlsplit

import attrs
import trio

from actors import ActorError, Ref, Signal
from pegasus.a2a.record import TaskRecord
from pegasus.a2a.watch import TaskWatch
from pegasus.messages import Json
from pegasus.observe import get_logger
from pegasus.retry import Pauses, retry
from pegasus.storage import JournalMessage, KeyedStore, StorageError
from pegasus.tasks import TaskAgentMessage
from pegasus.wire import encode_json, from_wire

MOST_OF_TASK: Final = 16
"""Targets of one task."""
MOST_TARGETS: Final = 1_000
"""Targets of all tasks. The file is written as a whole for each change."""
ANSWER_WITHIN: Final = 30.0
"""Seconds in which a target has to answer."""
TRIED_FOR: Final = 72 * 3600 * 1000
"""Age of an update in ms at which its delivery is given up."""
BEGUN_WITHIN: Final = 60_000
"""Milliseconds in which a task is begun whose target is kept already."""
MOST_AT_ONCE: Final = 8
"""Requests to targets of one client at the same time."""
MEDIA_TYPE: Final = "application/a2a+json"

Post: TypeAlias = Callable[[str, Mapping[str, str], bytes], Awaitable[int]]
"""Sends a POST to an address and returns the status. Raises OSError if nobody has answered, or the address is not allowed."""
Counts: TypeAlias = Callable[[str], Awaitable[bool]]
"""Returns whether the token of this name counts, "" for the owner's. Raises StorageError, ActorError."""

_log = get_logger("a2a")


class TooManyTargetsError(Exception):
    """There is no room for another target. str() says how many there may be."""


@attrs.frozen
class PushTarget:
    """A target, as it is stored."""

    task_id: str
    id: str
    url: str
    owner: str = ""
    """Name of the token of its client."""
    token: str = attrs.field(default="", repr=False)
    """Sent with each notification, so that its receiver knows it."""
    scheme: str = ""
    """HTTP authentication scheme, with its credentials."""
    credentials: str = attrs.field(default="", repr=False)
    sent: int = 0
    """Updates of the task that it has got."""
    created: int = 0
    """Wall clock, ms."""

    @property
    def key(self) -> str:
        """Key of its row."""
        return f"{self.task_id}/{self.id}"

    def json(self) -> dict[str, Json]:
        """Return it as clients see it."""
        shown: dict[str, Json] = {"id": self.id, "taskId": self.task_id, "url": self.url}
        if self.token:
            shown["token"] = self.token
        if self.scheme:
            secret: dict[str, Json] = {"credentials": self.credentials} if self.credentials else {}
            shown["authentication"] = {"scheme": self.scheme, **secret}
        return shown

    @property
    def headers(self) -> dict[str, str]:
        """Header fields of each notification."""
        fields = {"content-type": MEDIA_TYPE}
        if self.token:
            fields["x-a2a-notification-token"] = self.token
        if self.scheme and self.credentials:
            fields["authorization"] = f"{self.scheme} {self.credentials}"
        return fields


def read_target(_: str, value: Json) -> tuple[str, PushTarget]:
    """Return key and target of a row. Raises WireError."""
    target = from_wire(value, PushTarget)
    return target.key, target


class PushTargets:
    """The targets. All changes go through the journal, one after the other."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._store = KeyedStore("a2a-push", read_target, after_read=self._notify)
        self.follow = self._store.follow
        """Reads them again whenever another node has changed them, until cancelled."""
        self._clock = clock
        self._finished: set[str] = set()
        self.on_change: Callable[[], None] = lambda: None
        """Called when a target was put or deleted."""

    def _notify(self) -> None:
        self.on_change()

    async def open(self, journal: Ref[JournalMessage]) -> None:
        """Read them. A file that cannot be read is read again before the next change."""
        await self._store.open(journal)

    @property
    def all(self) -> Sequence[PushTarget]:
        """All targets, oldest first."""
        return list(self._store.rows.values())

    async def of_task(self, task_id: str) -> Sequence[PushTarget]:
        """Return the targets of a task. Raises StorageError, ActorError."""
        await self._store.ensure_read()
        return [target for target in self._store.rows.values() if target.task_id == task_id]

    def find(self, key: str) -> PushTarget | None:
        """Return a target, None if there is none."""
        return self._store.rows.get(key)

    def note_finished(self, key: str) -> None:
        """Note that nothing is to be delivered to a target any more; it may make room for another one."""
        self._finished.add(key)

    async def put(self, target: PushTarget) -> PushTarget:
        """Keep a target, in place of one with the same id, and return it. Raises TooManyTargetsError, StorageError, ActorError."""
        async with self._store.change():
            rows, over = self._store.rows, list[str]()
            known = rows.get(target.key)
            if known is None:
                if sum(each.task_id == target.task_id for each in rows.values()) >= MOST_OF_TASK:
                    raise TooManyTargetsError(f"the task has {MOST_OF_TASK} targets, which is the most there may be")
                if len(rows) >= MOST_TARGETS:
                    over = [key for key in rows if key in self._finished][:1]
                if len(rows) - len(over) >= MOST_TARGETS:
                    raise TooManyTargetsError(f"there are {MOST_TARGETS} targets, which is the most there may be")
            target = attrs.evolve(target, created=self._clock(), sent=known.sent if known else target.sent)
            await self._store.save({target.key: target}, over)
            self._finished.difference_update([target.key, *over])
        self.on_change()
        return target

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete targets; those that do not exist are deleted already. Raises StorageError, ActorError."""
        async with self._store.change():
            if any(key in self._store.rows for key in keys):
                await self._store.save({}, keys)
            self._finished.difference_update(keys)
        self.on_change()

    async def note_sent(self, key: str, sent: int) -> None:
        """Note how many updates a target has got. Raises StorageError, ActorError."""
        async with self._store.change():
            if (target := self._store.rows.get(key)) is not None:
                await self._store.save({key: attrs.evolve(target, sent=sent)})


class PushDeliveries:
    """Delivers the updates of all targets."""

    def __init__(
        self,
        targets: PushTargets,
        watch: TaskWatch,
        tasks: Ref[TaskAgentMessage],
        post: Post,
        counts: Counts,
        clock: Callable[[], int],
        random: Random,
    ) -> None:
        self._targets = targets
        self._watch = watch
        self._tasks = tasks
        self._post = post
        self._counts = counts
        self._clock = clock
        self._random = random
        self._slots = defaultdict[str, trio.CapacityLimiter](partial(trio.CapacityLimiter, MOST_AT_ONCE))
        """By the name of the client's token."""
        self._running: dict[str, trio.CancelScope] = {}
        """Deliveries by the key of their target."""
        self._changed = Signal()
        targets.on_change = self._changed.notify

    async def run(self) -> None:
        """Deliver until cancelled. What is under way then is delivered by the next run."""
        self._running.clear()  # of a run that was cancelled
        await self._tasks.wait_alive()
        async with trio.open_nursery() as nursery:
            while True:
                seen = self._changed.count
                keys = {target.key for target in self._targets.all}
                for key in self._running.keys() - keys:
                    self._running[key].cancel()
                for key in keys - self._running.keys():
                    self._running[key] = trio.CancelScope()
                    nursery.start_soon(self._serve, key, self._running[key])
                await self._changed.wait(seen)

    async def _serve(self, key: str, scope: trio.CancelScope) -> None:
        with scope:
            await self._follow(key)
            await trio.sleep_forever()  # so that the target is known to be served, until it is deleted
        del self._running[key]
        self._changed.notify()

    async def _follow(self, key: str) -> None:
        """Deliver to one target until its task is over, or it is given up."""
        task_id = key.partition("/")[0]
        with self._watch.listen(task_id) as news:
            while True:
                record = await self._patiently(partial(self._watch.read, task_id))
                target = self._targets.find(key)
                if record is None and target is not None and self._clock() - target.created < BEGUN_WITHIN:
                    with trio.move_on_after(BEGUN_WITHIN / 1000):
                        await news.wait()
                    continue
                # Without a record the task was never begun, or its log was removed.
                if record is None or not await self._deliver(key, record):
                    await self._patiently(partial(self._targets.delete, [key]))
                    return
                if record.is_over:
                    target = self._targets.find(key)
                    if target is not None and target.created <= record.at:
                        await self._patiently(partial(self._targets.delete, [key]))
                    # One that was named for a task that was over stays for its client to see.
                    self._targets.note_finished(key)
                    return
                await news.wait()

    async def _deliver(self, key: str, record: TaskRecord) -> bool:
        """Deliver what a target has not got yet. Return False if that is given up, or the target is deleted."""
        pauses = Pauses(1.0, 300.0, self._random)
        # It is looked up for each attempt: its client may name another address meanwhile.
        while (target := self._targets.find(key)) is not None and target.sent < len(record.updates):
            if not await retry(partial(self._counts, target.owner), (StorageError, ActorError)):
                return False
            body = encode_json(record.updates[target.sent]).encode("utf-8", "replace")
            problem = await self._try(target, body)
            if not problem:
                await self._patiently(partial(self._targets.note_sent, key, target.sent + 1))
                pauses.reset()
                continue
            told = {"task": target.task_id, "host": urlsplit(target.url).hostname or "", "problem": problem}
            if self._clock() - record.times[target.sent] > TRIED_FOR:
                _log.warning("a push notification is given up, and its target is forgotten", **told)
                return False
            if pauses.failures == 0:
                _log.warning("a push notification was not taken, and is tried again", **told)
            await trio.sleep(pauses.next())
        return target is not None

    async def _try(self, target: PushTarget, body: bytes) -> str:
        """Return why the target has not taken an update, "" if it has."""
        async with self._slots[target.owner]:
            with trio.move_on_after(ANSWER_WITHIN):
                try:
                    status = await self._post(target.url, target.headers, body)
                except OSError as error:
                    return str(error)
                return "" if 200 <= status < 300 else f"HTTP status {status}"
        return f"no answer within {ANSWER_WITHIN:g} s"

    async def _patiently(self, attempt: Callable[[], Awaitable[TaskRecord | None]]) -> TaskRecord | None:
        """Return what `attempt` returns, made again while the disk refuses or a part of the agent is being restarted."""
        return await retry(attempt, (StorageError, ActorError))
