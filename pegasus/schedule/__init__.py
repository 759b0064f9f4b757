"""The schedule: jobs that run at certain times, and the heartbeat.

A job is a prompt with times: a cron expression with a time zone, an interval, or one point in time. A run of it is a message to the
Main Agent or a background task, with the rights of whoever made the job. docs/user/schedule.md is for people who use it.

* `words`: times as people say them, such as "tomorrow at 9".
* `times`: schedules, and when each comes next; functions only.
* `jobs`: jobs, what is allowed in them, their file, and the requests to the actor about them.
* `heartbeat`: what HEARTBEAT.md asks for, and when it is looked at.
* `scheduler`: the actor that keeps the jobs and runs each once.
* `tool`: the tool by which a model keeps jobs.

A job takes this way: `draft_job` checks the values of a tool call, a program or the command line and makes a `Job` of them; the keeper
gives it an id and its next time, writes the file, and answers `AddJob`. When the job is due, the keeper makes an item of the
inbox (`job_item`) or a task of it, writes the file with the next time, and emits SCHEDULE_FIRED.

Example::

    draft = draft_job({"schedule": {"every": 900}, "prompt": "Is the site up?"}, now, principal, ChannelInfo("cli", "main"))
    job = await keeper.ask(AddJob, draft)  # on disk now
    await keeper.ask(EnableJob, job.id, False)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegasus.late import late_names
from pegasus.schedule.heartbeat import HEARTBEAT, PLACED, QUIET_FAILURE, SCHEDULED, Heartbeat
from pegasus.schedule.times import ScheduleError, next_run, schedule_text
from pegasus.schedule.tool import cron_tool

if TYPE_CHECKING:
    from pegasus.schedule.jobs import (
        AddJob,
        EnableJob,
        Job,
        ListJobs,
        RemoveJob,
        RunJob,
        ScheduleMessage,
        draft_job,
        job_item,
        job_view,
        jobs_view,
        read_job,
        stored_jobs,
    )
    from pegasus.schedule.scheduler import ScheduleServices, serve_schedule
else:
    # Jobs are run behind the ready line.
    __getattr__ = late_names(__name__)

__all__ = [
    "HEARTBEAT",
    "PLACED",
    "QUIET_FAILURE",
    "SCHEDULED",
    "AddJob",
    "EnableJob",
    "Heartbeat",
    "Job",
    "ListJobs",
    "RemoveJob",
    "RunJob",
    "ScheduleError",
    "ScheduleMessage",
    "ScheduleServices",
    "cron_tool",
    "draft_job",
    "job_item",
    "job_view",
    "jobs_view",
    "next_run",
    "read_job",
    "schedule_text",
    "serve_schedule",
    "stored_jobs",
]
