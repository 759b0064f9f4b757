"""The schedule: jobs that run at certain times, and the heartbeat.

A job is a prompt with times: a cron expression with a time zone, an interval, or one point in time. A run of it is a message to the
Main Agent or a background task, with the rights of whoever made the job. docs/user/schedule.md is for people who use it.

* `times`: schedules, and when each comes next; functions only.
* `jobs`: jobs, what is allowed in them, their file, and the requests to the actor about them.
* `heartbeat`: what HEARTBEAT.md asks for, and when it is looked at.
* `keeper`: the actor that keeps the jobs and runs each once.
* `tool`: the tool by which a model keeps jobs.
"""

from pegasus.schedule.heartbeat import HEARTBEAT, Heartbeat
from pegasus.schedule.jobs import (
    JOBS_FILE,
    QUIET_FAILURE,
    SCHEDULED,
    AddJob,
    EnableJob,
    Job,
    JobDraft,
    ListJobs,
    RemoveJob,
    RunJob,
    ScheduleMessage,
    decode_jobs,
    draft_job,
    encode_job,
    encode_jobs,
    job_item,
    job_view,
    jobs_view,
)
from pegasus.schedule.keeper import ScheduleServices, schedule_keeper
from pegasus.schedule.times import Schedule, ScheduleError, make_schedule, next_run, schedule_text
from pegasus.schedule.tool import cron_tool

__all__ = [
    "HEARTBEAT",
    "JOBS_FILE",
    "QUIET_FAILURE",
    "SCHEDULED",
    "AddJob",
    "EnableJob",
    "Heartbeat",
    "Job",
    "JobDraft",
    "ListJobs",
    "RemoveJob",
    "RunJob",
    "Schedule",
    "ScheduleError",
    "ScheduleMessage",
    "ScheduleServices",
    "cron_tool",
    "decode_jobs",
    "draft_job",
    "encode_job",
    "encode_jobs",
    "job_item",
    "job_view",
    "jobs_view",
    "make_schedule",
    "next_run",
    "schedule_keeper",
    "schedule_text",
]
