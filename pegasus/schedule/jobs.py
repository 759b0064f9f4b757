"""Jobs: what is to be done when, for whom, and where the result goes; their file, their runs, and the requests about them.

A job runs with the rights of whoever made it, and never with more than the channel that it speaks on has. If the text of a job was
made by a model that had read text from outside, its labels go with it.

`data/cron/jobs.json` is one JSON array, so that a person can read and edit it. It is replaced as a whole when a job changes or has
run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Final, TypeAlias

import attrs

from actors import Reply
from pegasus.access import ROLE, Principal, Role
from pegasus.formatting import quote, truncate
from pegasus.messages import ACCOUNT, APART, INTERNAL_ID_PREFIX, Address, ChannelInfo, InboundMessage, Json, Metadata
from pegasus.outside import OUTSIDE
from pegasus.schedule.heartbeat import PLACED, SCHEDULED
from pegasus.schedule.times import (
    Schedule,
    ScheduleError,
    make_schedule,
    next_run,
    require_one_kind,
    schedule_text,
)
from pegasus.storage import stored_rows
from pegasus.wire import from_wire, to_wire

LONGEST_PROMPT: Final = 10_000
"""Characters of a job's text: it becomes a message each time."""
LONGEST_NAME: Final = 100
"""Characters of a job's name."""
KINDS: Final = ("message", "task")
"""Kinds of a run: a message to the Main Agent, or a background task of its own."""
MISSED: Final = ("once", "skip")
"""Treatment of runs that were missed while the agent was down: one run makes up for all of them, or none does."""


@attrs.frozen(kw_only=True)
class Job:
    """A scheduled job. One that is not kept yet (`draft_job`) has no id and no next time: the keeper adds them when it takes it.

    Example::

        Job(id="j-7f3k", schedule=Schedule(every=900.0), prompt="Is the site up?", channel="cli:main", next=1_772_020_800_000)
    """

    id: str = ""
    """Short name by which people and models refer to it, such as "j-7f3k"; made by the keeper, unique among the jobs."""
    schedule: Schedule
    """The times at which it runs."""
    prompt: str
    """Instruction for the model."""
    channel: str
    """Channel that the result goes to: `<type>:<channelId>`."""
    reply_to: str | None = None
    """The thread there."""
    user_id: str | None = None
    """The person who asked for it there."""
    name: str = ""
    """A few words for people."""
    kind: str = "message"
    """One of KINDS."""
    enabled: bool = True
    """False: it is paused, or is over."""
    missed: str = "once"
    """One of MISSED."""
    next: int | None = None
    """Time of the next run; None if it never does, or is paused."""
    last: int | None = None
    """Time at which its last run was due."""
    runs: int = 0
    """Runs so far."""
    failures: int = 0
    """Tasks of this job that have failed in a row."""
    judged: int | None = None
    """The last run whose end is counted in `failures`, as in `last`."""
    role: Role = Role.OWNER
    """Rights of whoever made it."""
    by: str = ""
    """Person who made it, as `<type>:<userId or channelId>`, or the name of a guest's token."""
    outside: tuple[str, ...] = ()
    """Labels of the text from outside that had been read by then."""
    apart: bool | None = None
    """True if it was made in a conversation in which guests are heard, and speaks there; None: its channel decides."""

    @property
    def channel_info(self) -> ChannelInfo:
        """The channel with thread and person."""
        type, _, channel_id = self.channel.partition(":")
        return ChannelInfo(type, channel_id, self.user_id, self.reply_to)

    @property
    def recorded(self) -> dict[str, Json]:
        """Metadata by which its runs are known to be for whoever made it, in the conversation that it belongs to."""
        apart: dict[str, Json] = {} if self.apart is None else {APART: self.apart}
        if self.role is not Role.GUEST:
            return {ROLE: self.role, **apart}
        return {ROLE: self.role, ACCOUNT: self.by, APART: True, **apart}

    @property
    def title(self) -> str:
        """Name for people: the name, or the beginning of the prompt."""
        return self.name or truncate(self.prompt, 60)

    @property
    def is_placed(self) -> bool:
        """True if it speaks elsewhere than where it was made, and its maker had read text from outside by then."""
        return bool(self.outside) and self.role is Role.OWNER and self.by != self.channel

    def rest(self, now: int) -> str:
        """Word for people about a job that has no next run: "over" if its only time has passed, else "paused"."""
        return "over" if self.is_over(now) else "paused"

    def is_over(self, now: int) -> bool:
        """Return whether its only time has passed, so that it cannot go on. now: ms since the epoch."""
        try:
            return self.next is None and bool(self.schedule.at) and next_run(self.schedule, now) is None
        except ScheduleError:  # a time that somebody has written into the file; the job is paused
            return False

    def is_visible_to(self, principal: Principal) -> bool:
        """Return whether this person may see and change the job: owners all of them, a guest their own.

        Where guests are heard an owner is shown the jobs of that conversation alone, since the guests read along.
        """
        if principal.is_owner and principal.is_apart:
            return (
                self.apart is True and principal.channel is not None and self.channel == str(principal.channel.address)
            )
        return principal.is_owner or (self.role is Role.GUEST and bool(principal.guest) and self.by == principal.guest)


def draft_job(
    values: Metadata, now: int, principal: Principal, origin: ChannelInfo | None, outside: Iterable[str] = ()
) -> Job:
    """Return the job that values ask for which come from a tool call, a program or the command line. Raises ScheduleError.

    values: `schedule` (an object with `cron` and `tz`, `every`, `at`, or `when` in words), `prompt`, and maybe `channel`,
    `name`, `kind`, `missed`, `enabled`. principal: who asks for it. origin: the channel of a job that names none; None: it must name
    one. outside: labels of the text from outside that the work has read which asks for it; they go with each run.
    """
    # A misspelt value is refused instead of ignored: a model that is told so repeats the call correctly.
    known = {"schedule", "prompt", "channel", "name", "kind", "missed", "enabled", "replyTo"}
    if unknown := sorted(set(values) - known):
        raise ScheduleError(f"{unknown[0]}: not known here; allowed: {', '.join(sorted(known))}")
    given = values.get("schedule")
    if not isinstance(given, Mapping):
        raise ScheduleError("schedule: an object with one of cron (and tz), every and at is needed")
    if unknown := sorted(set(given) - {"cron", "tz", "every", "at", "when"}):
        raise ScheduleError(f"schedule.{unknown[0]}: not known here; allowed: cron, tz, every, at, when")
    prompt = _text(values, "prompt", LONGEST_PROMPT)
    if not prompt.strip():
        raise ScheduleError("prompt: found nothing, allowed: what is to be done")
    enabled = values.get("enabled", True)
    if not isinstance(enabled, bool):
        raise ScheduleError(f"enabled: found {quote(enabled)}, allowed: true or false")
    channel, asked_on = _channel(values, origin), principal.channel
    is_here = asked_on is not None and asked_on.address == channel.address
    return Job(
        schedule=make_schedule(
            now,
            cron=_text(given, "cron"),
            every=_seconds(given),
            at=_text(given, "at"),
            tz=_text(given, "tz"),
            when=_text(given, "when"),
        ),
        prompt=prompt,
        channel=str(channel.address),
        reply_to=channel.reply_to,
        user_id=channel.user_id,
        name=_text(values, "name", LONGEST_NAME).strip(),
        kind=_one_of(values, "kind", KINDS),
        missed=_one_of(values, "missed", MISSED),
        enabled=enabled,
        role=principal.role,
        by=principal.guest or (str(asked_on.address) if asked_on else ""),
        outside=tuple(outside),
        apart=principal.is_apart if is_here else None,
    )


def _channel(values: Metadata, origin: ChannelInfo | None) -> ChannelInfo:
    """Return the channel of a draft. The thread and the person of `origin` stay if it is the same channel."""
    named, thread = _text(values, "channel"), _text(values, "replyTo")
    if not named:
        if origin is None:
            raise ScheduleError("channel: found nothing, allowed: TYPE:ID")
        return attrs.evolve(origin, reply_to=thread or origin.reply_to)
    address = Address.parse(named)
    if address is None:
        raise ScheduleError(f"channel: found {quote(named)}, allowed: TYPE:ID, as cli:main")
    if origin is not None and address == origin.address:
        # A job for the conversation that it was asked for in keeps the person: the replies go to the one who has asked, also in
        # a group.
        return attrs.evolve(origin, reply_to=thread or origin.reply_to)
    return ChannelInfo(address.type, address.channel_id, reply_to=thread or None)


def _text(values: Metadata, key: str, longest: int = 1_000) -> str:
    """Return a text of the values, "" if it is missing. Raises ScheduleError for another type and for one that is too long."""
    value = values.get(key)
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > longest:
        raise ScheduleError(
            f"{key}: found {truncate(repr(value), 80)}, allowed: a text of at most {longest} characters"
        )
    return value


def _seconds(values: Metadata) -> float:
    """Return the interval in seconds, 0 if it is missing. A 0 that was given is refused, since it would count as a missing one.

    Raises ScheduleError. Numbers without bound, which JSON allows, are cut so that they stay floats; `make_schedule` refuses
    them.
    """
    value = values.get("every")
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not value:
        raise ScheduleError(f"every: found {quote(value)}, allowed: a number of seconds")
    return float(min(value, 1e300))


def _one_of(values: Metadata, key: str, allowed: tuple[str, ...]) -> str:
    """Return a word of the values, the first of the allowed ones if it is missing. Raises ScheduleError for any other."""
    value = values.get(key)
    if value is None:
        return allowed[0]
    if value not in allowed:
        raise ScheduleError(f"{key}: found {truncate(repr(value), 80)}, allowed: {', '.join(allowed)}")
    return str(value)


# ------------------------------------------------------------------ for programs, for people, for the file


def jobs_view(jobs: Iterable[Job], now: int) -> dict[str, Json]:
    """Return jobs as `cron.list` and `GET /api/cron` answer. now: ms since the epoch."""
    return {"jobs": [job_view(job, now) for job in jobs]}


def job_view(job: Job, now: int) -> dict[str, Json]:
    """Return a job as programs get it: as in the file, with its name and its state written out. now: ms since the epoch."""
    return {
        **to_wire(job),
        # Values that are their defaults are left out by the wire format; these are written out for programs.
        "name": job.title,
        "kind": job.kind,
        "enabled": job.enabled,
        "over": job.is_over(now),
        "missed": job.missed,
        "runs": job.runs,
    }


def job_line(job: Job, now: int) -> str:
    """Return a line about a job for the model. now: ms since the epoch."""
    state = "" if job.enabled else f", {job.rest(now)}"
    return f"{job.id}: {job.title} ({schedule_text(job.schedule)}, {job.kind} for {job.channel}{state})"


def read_job(_: str, value: Json) -> tuple[str, Job]:
    """Return id and job of an entry of the file. Raises WireError, ScheduleError.

    A person may have edited it, so each job is checked for itself: a mistake in one does not stop the others.
    """
    job = from_wire(value, Job)
    _check(job)
    return job.id, job


def stored_jobs(data: Path) -> Collection[Job]:
    """Return the jobs of a home, for a process that is not the daemon. data: folder of the journal. Raises ScheduleError, OSError."""
    jobs, problems = stored_rows(data, "jobs", read_job)
    if problems and not jobs:
        raise ScheduleError(f"the file of jobs cannot be read: {problems[0]}")
    return jobs.values()


def _check(job: Job) -> None:
    """Raise ScheduleError for values that a file may hold and that no draft could have.

    Only what the keeper relies on is checked. A cron expression that makes no sense is found when the next time is computed, and
    the job is paused then instead of being dropped from the file.
    """
    if not job.id or ":" not in job.channel or job.kind not in KINDS or job.missed not in MISSED:
        raise ScheduleError("id, channel, kind or missed is not what is allowed")
    # A job of the file without a time would never run, and nobody would know.
    require_one_kind(job.schedule)


# ------------------------------------------------------------------ runs


def job_key(job: Job, due: int) -> str:
    """Return the key of one run: a run that is made twice after a crash is recognised by it."""
    return f"schedule/{job.id}/{due}"


def job_item(job: Job, due: int) -> InboundMessage:
    """Return the queue item of a run: nobody on a channel has written it."""
    metadata: dict[str, Json] = {
        "type": SCHEDULED,
        "jobId": job.id,
        "title": job.title,
        **job.recorded,
        OUTSIDE: list(job.outside),
        **({PLACED: True} if job.is_placed else {}),
    }
    return InboundMessage(job.prompt, job.channel_info, INTERNAL_ID_PREFIX + job_key(job, due), metadata)


# ------------------------------------------------------------------ requests to the actor


@attrs.frozen(eq=False, repr=False)
class ListJobs:
    """Return all jobs, oldest first.

    Example: `jobs = await keeper.ask(ListJobs)`. The caller filters them by `Job.is_visible_to`.
    """

    reply: Reply[tuple[Job, ...]]
    """Gets the jobs as they are in memory."""


@attrs.frozen(eq=False, repr=False)
class AddJob:
    """Keep a job. Answered with it when it is on disk. Fails with ScheduleError if there are too many.

    Fails with StorageError if the disk refuses; then there is no such job.

    Example: `job = await keeper.ask(AddJob, draft)`, with a draft of `draft_job`.
    """

    reply: Reply[Job]
    """Gets the job with its id and its next time."""
    draft: Job
    """The job as `draft_job` returns it."""


@attrs.frozen(eq=False, repr=False)
class RemoveJob:
    """Delete a job. Answered with it when that is on disk. Fails with ScheduleError if there is none of this id.

    A run that was made before goes on. Example: `await keeper.ask(RemoveJob, "j-7f3k")`.
    """

    reply: Reply[Job]
    """Gets the job as it was."""
    id: str
    """Id of the job. The keeper does not ask who may remove it: that is checked by the caller."""


@attrs.frozen(eq=False, repr=False)
class EnableJob:
    """Pause a job, or let it go on: from now on, without the runs that were left out. Fails as RemoveJob does.

    Also fails with ScheduleError for a job that is over, since it has no time at which it could go on. Its failures are
    forgotten, and with them the pause after them. Example: `await keeper.ask(EnableJob, "j-7f3k", False)` pauses a job.
    """

    reply: Reply[Job]
    """Gets the job with its new next time, None for a paused one."""
    id: str
    """Id of the job."""
    enabled: bool
    """False: pause it."""


@attrs.frozen(eq=False, repr=False)
class RunJob:
    """Run a job now, whatever its schedule and whether it is paused. Answered when the run is on disk.

    Fails as RemoveJob does, and if the run cannot be taken, with the reason.

    The schedule stays as it is: a run by hand replaces none of the times to come. Example: `job = await keeper.ask(RunJob,
    "j-7f3k")`.
    """

    reply: Reply[Job]
    """Gets the job with this run counted."""
    id: str
    """Id of the job."""


ScheduleMessage: TypeAlias = ListJobs | AddJob | RemoveJob | EnableJob | RunJob
"""Everything that the keeper of the jobs accepts."""
