"""The actor that keeps the jobs and runs those that are due.

**Each run once.** A run is made under a key of the job and the time at which it was due: as a message in the inbox, or as a task.
Then the file of the jobs is written, with the next time. A crash between the two makes the run again, and inbox or task system
recognise the key. So a job has run exactly as often as its file says, or is found to have run when it is tried again.

**Missed runs.** A run that is more than MISSED_AFTER late was missed: the process was down, or the machine slept. One run makes up for
all of them, or none does (`Job.missed`).

**No pile.** While the run before still waits or works, the next one is left out: a job that takes longer than its interval runs as
often as it can. A job whose task has failed runs again after a pause that doubles with each failure, and only the first failure in
a row is reported.

**Clocks.** The wall clock decides. It may be set, and machines sleep, so it is looked at every LONGEST_PAUSE seconds at least. A clock
that is set back behind a job's last run makes the job wait for its next time by the new clock.

The jobs are few enough to be held in memory; a heap tells which one is next, so that a look at ten thousand jobs costs nothing.

**One lock.** Requests and the runs that are due both change jobs and then write the whole file. They take turns, so that what is
written last is always the newest state. A look makes all runs that are due and writes the file once for them. If the disk refuses,
memory is ahead of the file (`_ahead`), and the next look writes it; a crash before that makes those runs again, under the keys that
inbox and task system know. What a request changes is on disk before it is in memory, since its sender is told if it has failed.

**Several nodes.** Each answers requests, and the one that owns the schedule runs what is due. Its lease may be lost in the middle of
a run, and the next owner makes that run again, under its key.

**The heartbeat** is no job and has no place in the file. Its interval counts on Trio's clock from the last look at HEARTBEAT.md, and
begins anew with the actor. A look that cannot be put into the inbox is left out: the next one asks about the same things.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from enum import Enum, auto
from functools import partial
from random import Random
from typing import Final

import attrs
import trio

from actors import ActorError, Inbox, Ref, Signal
from pegasus.access import Role
from pegasus.events import BusMessage, Emit, Event, EventType
from pegasus.formatting import quote, typed_id
from pegasus.intake import Priority
from pegasus.messages import ChannelInfo, Json
from pegasus.observe import get_logger
from pegasus.outside import OUTSIDE
from pegasus.retry import growing
from pegasus.schedule.heartbeat import PLACED, QUIET_FAILURE, Heartbeat, heartbeat_item, is_active, things_to_do
from pegasus.schedule.jobs import (
    AddJob,
    EnableJob,
    Job,
    ListJobs,
    RemoveJob,
    RunJob,
    ScheduleMessage,
    job_item,
    job_key,
    read_job,
)
from pegasus.schedule.times import ScheduleError, interval_ms, next_run
from pegasus.settings import LiveValue
from pegasus.storage import Accept, JournalMessage, KeyedStore, Overloaded, StorageError, while_owner
from pegasus.tasks import (
    DEFAULT_TASK_TYPE,
    GetTask,
    Submit,
    TaskAgentMessage,
    TaskError,
    TaskState,
    task_id_of,
    wait_until_running,
)
from pegasus.wire import to_wire

OWNER: Final = "schedule"
"""Owner key of the node that runs what is due."""
MOST_JOBS: Final = 10_000
"""Jobs at a time."""
MOST_OF_A_GUEST: Final = 10
"""Jobs of one guest at a time."""
MISSED_AFTER: Final = 60_000
"""A run that is later than so many ms was missed."""
LONGEST_PAUSE: Final = 30.0
"""Seconds between two looks at the wall clock while jobs wait."""
RETRY: Final = 5.0
"""Seconds until a run is made again that the disk or a full queue has refused."""
FIRST_BACKOFF, LONGEST_BACKOFF = 60_000, 24 * 3_600_000
"""Pauses after failures of a task, ms: at first, and at most."""

_log = get_logger("schedule")


@attrs.frozen(eq=False, repr=False)
class ScheduleServices:
    """The actors and functions that the schedule works with.

    Example: `Child("keeper", serve_schedule, ScheduleServices(journal, tasks, bus, clock, Random()))`.
    """

    journal: Ref[JournalMessage]
    """Keeps the file of the jobs, and takes the messages of jobs into the inbox."""
    tasks: Ref[TaskAgentMessage]
    """Takes the runs that are background tasks, and knows how the one before has ended."""
    bus: Ref[BusMessage]
    """Gets SCHEDULE_FIRED and HEARTBEAT."""
    clock: Callable[[], int]
    """Wall clock, ms."""
    random: Random
    """Makes the ids of jobs and events."""
    heartbeat: LiveValue[Heartbeat] = attrs.field(factory=lambda: LiveValue(Heartbeat()))
    """The heartbeat of the settings in force; none by default."""
    owner_channel: LiveValue[ChannelInfo] = attrs.field(factory=lambda: LiveValue(ChannelInfo("cli", "main")))
    """Channel of the heartbeat."""
    wait_changed: Callable[[], Awaitable[None]] = trio.sleep_forever
    """Waits until the heartbeat may be another one."""
    is_shared: bool = False
    """True if other nodes may change the jobs."""


async def serve_schedule(inbox: Inbox[ScheduleMessage], services: ScheduleServices) -> None:
    """Keep the jobs and run them. It is up when the file is read. Raises StorageError if it cannot be.

    Cancelled: a run that was begun is on disk or is made at the next start.

    Example: `Child("keeper", serve_schedule, ScheduleServices(journal, agent, bus, clock, random))`.
    """
    keeper = _JobScheduler(services)
    await keeper.load()
    inbox.started()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(while_owner, services.journal, OWNER, keeper.work)
        if services.is_shared:
            nursery.start_soon(keeper.follow)
        async for message in inbox:
            try:
                await keeper.handle(message)
            except (ScheduleError, StorageError, ActorError) as error:
                message.reply.fail(error)
        nursery.cancel_scope.cancel()


class _JobScheduler:
    """The jobs in memory, their file, and the order in which they come."""

    def __init__(self, services: ScheduleServices) -> None:
        self._services = services
        self._store = KeyedStore("jobs", read_job, after_read=self._take_over)
        """The jobs as the file has them, oldest first."""
        self.follow = self._store.follow
        """Takes over what other nodes change, until cancelled."""
        self._ahead: dict[str, Job] = {}
        """Jobs by id whose present state the file does not show yet: they were run, or their next time was found."""
        self._known: Mapping[str, Job] = {}
        """The jobs as the file had them when they were read or written last."""
        self._order: list[tuple[int, str]] = []
        """Heap of (next, id). It may hold entries of jobs that have changed; they are skipped."""
        self._lock = trio.Lock()
        """Held while jobs change, so that the file never falls behind."""
        self._changed = Signal()
        """Set when another job may be the next."""
        self._latest = 0
        """The wall clock at the last look, ms."""

    # ------------------------------------------------------------------ the file

    async def load(self) -> None:
        """Read the jobs. Raises StorageError, ActorError."""
        self._store.use(self._services.journal)
        await self._store.ensure_read()

    @property
    def _jobs(self) -> dict[str, Job]:
        """The jobs in their present state by id, oldest first."""
        return self._store.rows | self._ahead

    def _find(self, id: str) -> Job | None:
        return self._ahead.get(id) or self._store.rows.get(id)

    def _take_over(self) -> None:
        """Find the next times by the clock of now, of jobs that were read, or after the clock was set back."""
        rows = self._store.rows
        # What another node has changed or removed is what counts, and not what this one has found of it before.
        self._ahead = {id: job for id, job in self._ahead.items() if rows.get(id) == self._known.get(id)}
        self._known = rows
        for job in self._jobs.values():
            self._put(self._planned(job, self._services.clock()))

    def _planned(self, job: Job, now: int) -> Job:
        """Return a job of the file with its next time, which may be missing or may make no sense by the present clock."""
        try:
            following = next_run(job.schedule, now)
            if not job.enabled:
                return attrs.evolve(job, next=None)
            if job.next is None or (job.schedule.at and job.next != next_run(job.schedule, 0)):  # edited by hand
                return attrs.evolve(job, next=following, enabled=following is not None)
        except ScheduleError as error:
            _log.warning("a scheduled job is paused: its schedule makes no sense", job=job.id, problem=str(error))
            return attrs.evolve(job, enabled=False, next=None)
        # A clock that was set back brings the next time forward; one that has passed is a run that is due.
        return job if job.schedule.at or following is None else attrs.evolve(job, next=min(job.next, following))

    def _put(self, job: Job) -> None:
        """Keep a job in its present state, and put it into the order."""
        if job != self._find(job.id):
            self._ahead[job.id] = job
        if job.next is not None:
            heapq.heappush(self._order, (job.next, job.id))
            self._changed.notify()

    async def _save(self, *changed: Job, remove: str = "") -> None:
        """Write these jobs, and those that were ahead of the file. If the disk refuses, nothing has changed.

        Raises StorageError and ActorError. After an ActorError, and when cancelled, the file is read again before the next change.
        """
        before, ids = self._store.rows, [remove, *(job.id for job in changed)]
        async with self._store.change():
            if any(self._store.rows.get(id) != before.get(id) for id in ids):
                raise StorageError("another node has changed this job; try again")
            put = self._ahead | {job.id: job for job in changed}
            put.pop(remove, None)
            await self._store.save(put, [remove])
            self._known = self._store.rows
            self._ahead.clear()
        for job in changed:
            self._put(job)

    # ------------------------------------------------------------------ requests

    async def handle(self, message: ScheduleMessage) -> None:
        """Carry out a request and answer it. Raises ScheduleError, StorageError, ActorError."""
        async with self._lock:
            match message:
                case ListJobs(reply):
                    reply.send(tuple(self._jobs.values()))
                case AddJob(reply, draft):
                    reply.send(await self._add(draft))
                case RemoveJob(reply, id):
                    job = self._get(id)
                    await self._save(remove=id)
                    reply.send(job)
                case EnableJob(reply, id, enabled):
                    job = self._get(id)
                    next = next_run(job.schedule, self._services.clock()) if enabled else None
                    if enabled and next is None:
                        raise ScheduleError(f"{job.id} is over: its time has passed")
                    changed = attrs.evolve(job, enabled=enabled, next=next, failures=0)
                    await self._save(changed)
                    reply.send(changed)
                case RunJob(reply, id):
                    job, now = self._get(id), self._services.clock()
                    problem = await self._make_run(job, now)
                    if problem:
                        raise ScheduleError(f"{job.id} was not run: {problem}")
                    changed = attrs.evolve(job, last=now, runs=job.runs + 1)
                    await self._save(changed)
                    reply.send(changed)

    def _get(self, id: str) -> Job:
        """Return the job of this id. Raises ScheduleError if there is none."""
        job = self._find(id)
        if job is None:
            raise ScheduleError(f"there is no job {quote(id, 40)}")
        return job

    async def _add(self, draft: Job) -> Job:
        """Keep a draft as a job. Raises ScheduleError if there are too many."""
        now, by = self._services.clock(), draft.by
        if len(self._jobs) >= MOST_JOBS:
            raise ScheduleError(f"there are {MOST_JOBS} jobs already")
        if draft.role is not Role.OWNER and sum(job.by == by for job in self._jobs.values()) >= MOST_OF_A_GUEST:
            raise ScheduleError(f"this person has {MOST_OF_A_GUEST} jobs already, which is the most a guest may have")
        # A point in time that has passed since the draft was checked is due at once.
        next = (next_run(draft.schedule, now) or next_run(draft.schedule, 0)) if draft.enabled else None
        job = attrs.evolve(draft, id=typed_id("j-", 5, self._services.random, self._jobs), next=next)
        await self._save(job)
        return job

    # ------------------------------------------------------------------ running

    async def work(self) -> None:
        """Run the jobs that are due, and look at HEARTBEAT.md, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.run)
            nursery.start_soon(self.beat)

    async def run(self) -> None:
        """Run the jobs that are due, until cancelled."""
        while True:
            seen = self._changed.count
            try:
                async with self._lock:
                    pause = await self._run_due()
            except (StorageError, ActorError) as error:
                _log.error("the file of scheduled jobs is not written; it is tried again", error=str(error))
                pause = RETRY
            with trio.move_on_after(pause):
                await self._changed.wait(seen)

    async def _run_due(self) -> float:
        """Run what is due, and return the seconds until the next look. Raises StorageError, ActorError if the file is not written.

        An entry of the heap whose time is not that of its job any more is skipped: the job has another entry, or none. A run that
        cannot be made now goes back with its own time, so that it keeps its key.
        """
        now, again = self._services.clock(), []
        if now < self._latest - MISSED_AFTER:
            self._take_over()  # the clock was set back; a run that is then made twice is recognised by its key
        self._latest = now
        while self._order and self._order[0][0] <= now:
            due, id = heapq.heappop(self._order)
            job = self._find(id)
            if job is None or job.next != due:
                continue
            try:
                self._put(await self._run_in_turn(job, due, now))
            except (StorageError, ActorError, TooMuch) as error:
                _log.warning("a scheduled job cannot run now; it is tried again", job=id, error=str(error))
                again.append((due, id))
        for entry in again:
            heapq.heappush(self._order, entry)
        if self._ahead:
            await self._save()
        if again:
            return RETRY
        return min(LONGEST_PAUSE, max(0.0, (self._order[0][0] - now) / 1000)) if self._order else math.inf

    async def _run_in_turn(self, job: Job, due: int, now: int) -> Job:
        """Run a job that is due, unless this run is to be left out. Return the job with its next time.

        A job that is a task is asked in this order: does the task of the run before still work, has it failed (each end is counted
        once, `Job.judged`), is the pause after failures over. The inbox knows whether a message of a job still waits (`_accept`).

        Raises TooMuch, StorageError and ActorError if the run has to be made later.
        """
        failures = job.failures
        if job.kind == "task" and (last := job.last) is not None:
            state = await self._outcome(job, last)
            if state is _Outcome.WORKING:
                _log.info("left out a run of a scheduled job: the one before still works", job=job.id)
                return self._after(job, now)
            if last != job.judged:
                failures = failures + 1 if state is _Outcome.FAILED else 0
            job = attrs.evolve(job, failures=failures, judged=last)
            if failures and now < last + growing(FIRST_BACKOFF, LONGEST_BACKOFF, failures):
                return self._after(job, now)
        if now - due > MISSED_AFTER and job.missed == "skip":
            _log.info("left out a missed run of a scheduled job", job=job.id, due=due)
            return self._after(job, now)
        problem = await self._make_run(job, due)
        if problem:
            _log.warning("left out a run of a scheduled job", job=job.id, why=problem)
            return self._after(job, now)
        return self._after(attrs.evolve(job, last=due, runs=job.runs + 1), now)

    def _after(self, job: Job, now: int) -> Job:
        """Return a job with its first time after now. One that has no other time is over.

        An interval goes on from the time at which the job was due, so that it does not drift.
        """
        begin = now
        if job.schedule.every and job.next is not None:
            step = interval_ms(job.schedule)
            begin = job.next + step * ((now - job.next) // step)
        next = next_run(job.schedule, begin)
        return attrs.evolve(job, next=next, enabled=next is not None)

    async def _outcome(self, job: Job, last: int) -> _Outcome:
        """Return how the task of the last run has ended. Raises ActorError, StorageError."""
        # Right after a start the tasks are still being read; until then every task would look as if it had never been.
        await wait_until_running(self._services.tasks)
        task = await self._services.tasks.ask(GetTask, task_id_of(job_key(job, last)))
        if task is None:
            return _Outcome.ENDED
        if not task.is_over:
            return _Outcome.WORKING
        # One that a person has stopped says nothing about the job.
        return _Outcome.FAILED if task.state is TaskState.FAILED and not task.reason else _Outcome.ENDED

    async def _make_run(self, job: Job, due: int) -> str:
        """Make a run, and return "" when it is on disk, or why it never will be.

        Raises TooMuch, StorageError and ActorError if it can be made later.
        """
        problem = await (self._submit(job, due) if job.kind == "task" else self._accept(job, due))
        if not problem:
            fired: dict[str, Json] = {"jobId": job.id, "text": job.prompt, "handledBy": "schedule"}
            self._publish(EventType.SCHEDULE_FIRED, fired)
        return problem

    def _publish(self, type: EventType, payload: dict[str, Json]) -> None:
        """Emit an event. Observers may miss it."""
        with suppress(ActorError):
            self._services.bus.tell_nowait(Emit((Event(type, self._services.clock(), "schedule", payload=payload),)))

    async def _accept(self, job: Job, due: int) -> str:
        """Put a run into the inbox, unless the one before still waits there. Return "", or why the run is left out.

        The journal counts the items of one sender. Each job is a sender of its own with room for one item, so that a job whose
        messages are not worked on cannot fill the queue. Raises TooMuch if the queue as a whole is full, StorageError and
        ActorError.
        """
        item, is_owners = job_item(job, due), job.role is Role.OWNER
        answer = await self._services.journal.ask(Accept, item, "main", Priority.TASK, is_owners, f"job:{job.id}", 1)
        if isinstance(answer, Overloaded):
            if not answer.of_sender:
                raise TooMuch("the queue is full")
            return "the one before still waits"
        return ""

    async def _submit(self, job: Job, due: int) -> str:
        """Begin the task of a run. Return "", or why the task system refuses it.

        The key of the run is that of the task as well, so that a run that is made twice after a crash begins one task. Raises
        StorageError and ActorError if it can be tried again.
        """
        metadata: dict[str, Json] = {"channel": to_wire(job.channel_info), **job.recorded, OUTSIDE: list(job.outside)}
        if job.is_placed:
            metadata[PLACED] = True
        if job.failures:
            # The person has heard of the first failure in a row.
            metadata[QUIET_FAILURE] = True
        await wait_until_running(self._services.tasks)
        try:
            request = (job.prompt, "schedule", DEFAULT_TASK_TYPE, job.title, metadata, job_key(job, due))
            await self._services.tasks.ask(partial(Submit, cause=f"job {job.id}"), *request)
        except TaskError as error:
            return str(error)
        return ""

    # ------------------------------------------------------------------ heartbeat

    async def beat(self) -> None:
        """Look at HEARTBEAT.md again and again, until cancelled.

        The wait ends for two reasons: the time has come, or there may be another heartbeat. Only the first is a look. A look at
        a file that asks for nothing, or outside the active hours, counts as one, so that the interval begins anew.
        """
        services = self._services
        last = trio.current_time()
        while True:
            # Other settings may have another interval, which counts from the last look.
            seconds = services.heartbeat.now.seconds
            due = last + seconds if seconds else math.inf
            with trio.CancelScope(deadline=due) as scope:
                await services.wait_changed()
            if not scope.cancelled_caught:
                continue
            last, heartbeat = trio.current_time(), services.heartbeat.now
            now = services.clock()
            if not is_active(heartbeat.active_hours, datetime.fromtimestamp(now / 1000, UTC).astimezone()):
                continue
            text = things_to_do(await heartbeat.read())
            if not text:
                continue
            item = heartbeat_item(text, services.owner_channel.now, now)
            try:
                await services.journal.ask(Accept, item, "main", Priority.TASK, True, "heartbeat", 1)
            except (StorageError, ActorError) as error:
                _log.warning("left out a heartbeat", error=str(error))
            else:
                self._publish(EventType.HEARTBEAT, {"text": text, "handledBy": "schedule"})


class TooMuch(Exception):
    """A run cannot be taken now, and can be later. str() is the reason.

    The keeper catches it, keeps the run with its own time, and tries again after RETRY. Example: `raise TooMuch("the queue is full")`.
    """


class _Outcome(Enum):
    """State of the task of a run."""

    WORKING = auto()
    FAILED = auto()
    ENDED = auto()
