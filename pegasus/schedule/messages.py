"""Messages of the actor that runs the jobs, and the queue items that it makes."""

from __future__ import annotations

from typing import Final, TypeAlias

import attrs

from actors import Reply
from pegasus.messages import INTERNAL_ID_PREFIX, ChannelInfo, InboundMessage, Json
from pegasus.outside import OUTSIDE
from pegasus.policy import ROLE, Role
from pegasus.schedule.jobs import Job, JobDraft

SCHEDULED: Final = "scheduled"
"""`metadata.type` of a job's message, in the queue and in the session."""
HEARTBEAT: Final = "heartbeat"
"""`metadata.type` of the heartbeat's message."""
QUIET_FAILURE: Final = "quietFailure"
"""Key in the metadata of a job's task: its failure is not reported, since that of the run before was."""


@attrs.frozen(eq=False, repr=False)
class ListJobs:
    """Return all jobs, oldest first."""

    reply: Reply[tuple[Job, ...]]


@attrs.frozen(eq=False, repr=False)
class AddJob:
    """Make a job. Answered with it when it is on disk. Fails with ScheduleError if there are too many."""

    reply: Reply[Job]
    draft: JobDraft


@attrs.frozen(eq=False, repr=False)
class RemoveJob:
    """Delete a job. Answered with it when that is on disk. Fails with ScheduleError if there is none of this id."""

    reply: Reply[Job]
    id: str


@attrs.frozen(eq=False, repr=False)
class EnableJob:
    """Pause a job, or let it go on: from now on, without the runs that were left out. Fails as RemoveJob does."""

    reply: Reply[Job]
    id: str
    enabled: bool


@attrs.frozen(eq=False, repr=False)
class RunJob:
    """Run a job now, whatever its schedule and whether it is paused. Answered when the run is on disk.

    Fails as RemoveJob does, and if the run cannot be taken, with the reason.
    """

    reply: Reply[Job]
    id: str


ScheduleMessage: TypeAlias = ListJobs | AddJob | RemoveJob | EnableJob | RunJob


def job_key(job: Job, due: int) -> str:
    """Return the key of one run: a run that is made twice after a crash is recognised by it."""
    return f"schedule/{job.id}/{due}"


def job_item(job: Job, due: int) -> InboundMessage:
    """Return the queue item of a run: nobody on a channel has written it."""
    metadata: dict[str, Json] = {
        "type": SCHEDULED,
        "jobId": job.id,
        "title": job.title,
        ROLE: job.role,
        OUTSIDE: list(job.outside),
    }
    return InboundMessage(job.prompt, job.channel_info, INTERNAL_ID_PREFIX + job_key(job, due), metadata)


def heartbeat_item(text: str, channel: ChannelInfo, now: int) -> InboundMessage:
    """Return the queue item of a heartbeat. text: what HEARTBEAT.md asks for. channel: the owner's."""
    metadata: dict[str, Json] = {"type": HEARTBEAT, ROLE: Role.OWNER, OUTSIDE: []}
    return InboundMessage(text, channel, f"{INTERNAL_ID_PREFIX}heartbeat/{now}", metadata)
