"""`pegasus cron …`: scheduled jobs of the running daemon; the list also from the files, while none runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from pegasus.cli.commands import JSON, Number, pegasus, program_name
from pegasus.cli.control import Answer, fit_terminal, json_line, query, show
from pegasus.formatting import format_time
from pegasus.host import Home, wall_clock
from pegasus.messages import Json
from pegasus.schedule import JOBS_FILE, Job, decode_jobs, jobs_view, schedule_text
from pegasus.settings import Settings
from pegasus.wire import from_wire

CRON = pegasus.subgroup("cron", "Let jobs run at certain times.")
_ID = click.Argument(["id_"], metavar="ID")


def list_text(answer: Answer) -> str:
    """Return a line for each job: id, next run, schedule, where it speaks, what it is."""
    jobs = answer["jobs"]
    if not jobs:
        return f"No jobs; add one with: {program_name()} cron add --cron '0 9 * * 1-5' --prompt 'What is new?' --channel cli:main"
    return "\n".join(fit_terminal(_line(job)) for job in jobs)


def _line(view: Answer) -> str:
    job = from_wire(dict(view), Job)
    following = format_time(job.next, local=True) if job.next else job.rest(wall_clock())
    return f"{job.id}  {following:<19}  {schedule_text(job.schedule)}  {job.kind} for {job.channel}  {job.title}"


def job_text(verb: str) -> Callable[[Answer], str]:
    """Return the function that says what became of a job."""
    return lambda answer: f"{verb} {_line(answer)}"


@query(CRON, "list", JSON, method="cron.list", text=list_text, refusals=(ValueError,))
def run_list(home: Home, settings: Settings) -> Answer:
    """List the jobs."""
    try:
        content = (home.data / JOBS_FILE).read_bytes()
    except FileNotFoundError:
        content = b""
    return jobs_view(decode_jobs(content)[0], wall_clock())


@CRON.declare(
    "add",
    click.Option(["--cron", "cron"], metavar="EXPR", help="minute hour day month weekday, as '0 9 * * 1-5'."),
    click.Option(["--every"], type=Number(), metavar="SECONDS", help="Seconds between two runs."),
    click.Option(["--at"], metavar="TIME", help="Once, as 2026-12-01T09:00."),
    click.Option(["--tz"], metavar="ZONE", help="Time zone, as Europe/Berlin [that of this machine]."),
    click.Option(["--prompt"], required=True, metavar="TEXT", help="What is to be done."),
    click.Option(["--channel"], required=True, metavar="TYPE:ID", help="Where the result goes."),
    click.Option(["--kind"], type=click.Choice(["message", "task"]), help="What a run is [message]."),
    click.Option(["--name"], metavar="NAME", help="A few words."),
    click.Option(["--missed"], type=click.Choice(["once", "skip"]), help="Runs missed while it was down [once]."),
    JSON,
    is_client=True,
)
def run_add(home: Home, settings: Settings, *, as_json: bool = False, **values: Any) -> int:
    """Add a job, with one of --cron, --every and --at."""
    given = {key: value for key, value in values.items() if value is not None}
    schedule: Json = {key: given.pop(key) for key in ("cron", "every", "at", "tz") if key in given}
    text = json_line if as_json else job_text("Added")
    return show(home, settings, "cron.add", {"schedule": schedule, **given}, text, lambda: None)


@query(CRON, "remove", _ID, JSON, method="cron.remove", text=job_text("Removed"))
def run_remove(home: Home, settings: Settings, *, id_: str) -> None:
    """Delete job ID."""


@query(CRON, "pause", _ID, JSON, method="cron.pause", text=job_text("Paused"))
def run_pause(home: Home, settings: Settings, *, id_: str) -> None:
    """Let job ID rest."""


@query(CRON, "resume", _ID, JSON, method="cron.resume", text=job_text("Goes on:"))
def run_resume(home: Home, settings: Settings, *, id_: str) -> None:
    """Let job ID go on with its next time."""


@query(CRON, "run", _ID, JSON, method="cron.run", text=job_text("Ran"))
def run_now(home: Home, settings: Settings, *, id_: str) -> None:
    """Run job ID now."""
