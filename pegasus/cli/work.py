"""Background work: `pegasus tasks …` and `cron …`, from the running daemon or, while none runs, from the files.

Of `tasks`, `list`, `show` and `replay` only read, so that they work without a daemon. The others need one, because only the
daemon may change a task: its log has one writer. `follow` shows the log of a task as it grows (`follow`).

A task is named by its number or its id.

A task that was at work when the daemon ended is shown in the state that its log ends with. That is what the next start finds
as well, so that a person sees here what will be continued. Logs lie in one folder for each day (UTC), which is why the list
without a daemon is that of two days: reading all days would take longer with each of them.

Scheduled jobs are listed without a daemon, too. Everything else about them needs one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click

from pegasus.cli.commands import JSON, Number, OneOf, pegasus, program_name
from pegasus.cli.control import Answer, answering_command, find_daemon, fit_terminal, json_line, show, stored_data
from pegasus.cli.follow import follow_task, print_log
from pegasus.conversation import to_json
from pegasus.events import event_json
from pegasus.formatting import format_day, format_duration, format_time, quote
from pegasus.host import Home, read_daemon, wall_clock
from pegasus.messages import Json
from pegasus.schedule import Job, jobs_view, schedule_text, stored_jobs
from pegasus.settings import Settings
from pegasus.tasks import (
    FOR_PERSON,
    LATELY,
    STOPPED,
    ReplayedTask,
    TaskError,
    is_date,
    read_events,
    read_numbers,
    read_task,
    read_tasks_of_day,
    task_json,
    task_view,
)
from pegasus.wire import from_wire

TASKS = pegasus.subgroup("tasks", "List, show and end background tasks.")
CRON = pegasus.subgroup("cron", "Let jobs run at certain times.")

_TASK_ID = click.Argument(["task_id"], metavar="N")
_STATES = {"idle": "waiting"}
"""Words for states whose own name would mislead: an idle task is one that waits for its turn."""


# ------------------------------------------------------------------ tasks, for people


def list_text(answer: Answer) -> str:
    """Return a line for each task, the newest last, as wide as the terminal: number, state, type, time of creation, subject.

    A task without a number is named by its id.
    """
    tasks = sorted(answer["tasks"], key=lambda task: task["createdAt"])
    if not tasks:
        return "No tasks."
    width = max(len(_name(task)) for task in tasks)
    rows = [
        f"{_name(task):>{width}}  {_state(task):<10} {task['taskType']:<9} {_when(task['createdAt'])}  {_about(task)}"
        for task in tasks
    ]
    return "\n".join(map(fit_terminal, rows))


def show_text(task: Answer) -> str:
    """Return one task in a few lines, then its input, question, result and error as far as there are any.

    Texts are printed in full: this is the command for the task that `list` has shortened.

    Rows without a value are left out. What a task says of itself stands below, since it may be long.
    """
    rows = {
        "Task": f"{_name(task)} ({task['taskType']})",
        "Id": task["taskId"] if task.get("number") else "",
        "About": _about(task),
        "State": _state(task) + (f", at {task['doing']}" if task.get("doing") else ""),
        "Commands": "; ".join(task.get("commands") or ()),
        "Cause": task.get("cause"),
        # Both times as the person's clock shows them; the span between is how long the task has taken so far.
        "Created": _when(task["createdAt"]),
        "Last change": f"{_when(task['updatedAt'])} (after {format_duration((task['updatedAt'] - task['createdAt']) / 1000)})",
        "Rounds": str(task.get("iteration", 0)),
    }
    lines = [f"{name:<13}{value}" for name, value in rows.items() if value or name == "About"]
    end = "Ended" if task.get("reason") == STOPPED else "Error"
    for key, title in (("inputText", "Input"), ("question", "Question"), ("result", "Result"), ("error", end)):
        if task.get(key):
            lines += ["", f"{title}:", str(task[key])]
    return "\n".join(lines)


def replay_text(answer: Answer) -> str:
    """Return the conversation, each message under its role and time.

    Example::

        ── assistant · 2026-02-25 14:30:00
        I look at the page.
        → web_fetch {"url": "https://example.org"}

    It is the conversation as the model has it, with results of tools as messages. Nothing is shortened.
    """
    parts = []
    for message in answer["messages"]:
        lines = [f"── {message['role']} · {_when(message.get('ts', 0))}"]
        if message.get("content"):
            lines.append(str(message["content"]))
        lines += [
            f"→ {call['name']} {json.dumps(call['arguments'], ensure_ascii=False)}"
            for call in message.get("toolCalls", ())
        ]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) or "Nothing was said yet."


def cancelled_text(answer: Answer) -> str:
    """Return what was ended.

    A queued task has no `doing`: it had not begun.
    """
    doing = f", which was at {answer['doing']}" if answer.get("doing") else ""
    return f"Stopped task {_name(answer)}{doing}."


def _name(task: Answer) -> str:
    """Return the name by which a person can call a task: its number, or its id if it has none."""
    return str(task.get("number") or task["taskId"])


def _state(task: Answer) -> str:
    """Return a task's state as people read it.

    A state of a newer version of the daemon is shown under its own name.
    """
    if task.get("waitsFor") == FOR_PERSON:
        return "paused"
    return str(task.get("reason") or _STATES.get(task["state"], task["state"]))


def _about(task: Answer) -> str:
    """Return what a task is about, in one line.

    The description is short and made by the Main Agent; without one the input stands for it.
    """
    return " ".join(str(task.get("description") or task.get("inputText") or "").split())


def _when(at: int) -> str:
    """Return a time in the zone of this machine."""
    return format_time(at, local=True)


# ------------------------------------------------------------------ commands about tasks


def _check_date(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    """Return the date, which need not be given. Raises BadParameter for one of another form.

    A callback of click. The check is that of the control plane, so that both refuse the same dates.
    """
    if value is not None and not is_date(value):
        raise click.BadParameter(f"found {quote(value)}; allowed: YYYY-MM-DD", param_hint="--date")
    return value


_DATE = click.Option(
    ["--date"],
    metavar="YYYY-MM-DD",
    callback=_check_date,
    help="Those of a day (UTC) instead of the unfinished and latest ones.",
)


@answering_command(TASKS, "list", _DATE, JSON, method="tasks.list", text=list_text)
def run_list(home: Home, settings: Settings, *, date: str | None) -> Answer:
    """List background tasks, the newest last.

    The unfinished ones and those of the last 24 hours, or those of a day; where no daemon runs, only the last 24 hours.
    """
    since = 0 if date else wall_clock() - LATELY
    days = [date] if date else [format_day(at) for at in (since, since + LATELY)]
    found = [task for day in days for task in read_tasks_of_day(home.data, day) if task.task is not None]
    tasks = [_stored(home, task) for task in found]
    return {"tasks": [task for task in tasks if task["updatedAt"] >= since]}


@answering_command(TASKS, "show", _TASK_ID, JSON, method="tasks.show", text=show_text)
def run_show(home: Home, settings: Settings, *, task_id: str) -> Answer:
    """Show the state of a task and its result."""
    return _stored(home, _found(home, task_id))


@answering_command(TASKS, "replay", _TASK_ID, JSON, method="tasks.replay", text=replay_text)
def run_replay(home: Home, settings: Settings, *, task_id: str) -> Answer:
    """Show the whole conversation of a task."""
    task = _found(home, task_id).task
    messages = [to_json(entry) for entry in task.context.messages] if task is not None else []
    return {"taskId": task.task_id if task is not None else task_id, "messages": messages}


@answering_command(TASKS, "cancel", _TASK_ID, method="tasks.cancel", text=cancelled_text)
def run_cancel(home: Home, settings: Settings, *, task_id: str) -> None:
    """End a task and every process it has started."""


@answering_command(TASKS, "suspend", _TASK_ID, method="tasks.suspend", text=lambda answer: str(answer["text"]))
def run_suspend(home: Home, settings: Settings, *, task_id: str) -> None:
    """Let a task rest before its next step, until it is continued."""


@answering_command(TASKS, "continue", _TASK_ID, method="tasks.continue", text=lambda answer: str(answer["text"]))
def run_continue(home: Home, settings: Settings, *, task_id: str) -> None:
    """Let a suspended task go on where it was."""


_TEXT = click.Argument(["input"], default="", metavar="[TEXT]")


@answering_command(
    TASKS, "resume", _TASK_ID, _TEXT, method="tasks.resume", text=lambda answer: f"Task {answer['taskId']} goes on."
)
def run_resume(home: Home, settings: Settings, *, task_id: str, input: str) -> None:
    """Continue a suspended or finished task, with TEXT as new input."""


def _found(home: Home, task_id: str) -> ReplayedTask:
    """Return a task from its log. Raises ClickException if there is none, or none of its log can be read.

    A log that is damaged is an error here and nothing else: the other tasks can still be listed.
    """
    try:
        found = read_task(home.data, task_id)
    except TaskError as error:
        raise click.ClickException(str(error)) from None
    if found is None or found.task is None:
        raise click.ClickException(f"there is no task {quote(task_id)}")
    return found


def _stored(home: Home, found: ReplayedTask) -> Answer:
    """Return a task from its log in the form of the daemon's answer, so that one function prints both."""
    task = found.task
    if task is None:
        return {}
    # Numbers are in the index of all tasks, not in the log of one.
    number = read_numbers(home.data, (task.task_id,)).get(task.task_id, 0)
    return task_json(task_view(task, number=number))


@TASKS.declare(
    "follow",
    _TASK_ID,
    click.Option(["--json", "as_json"], is_flag=True, help="One JSON object a line."),
    is_client=True,
)
def run_follow(home: Home, settings: Settings, *, task_id: str, as_json: bool) -> int:
    """Show the log of a task as it grows, until it has ended.

    The exit code is 0 when the task has completed and 1 when it has failed. Ctrl-C leaves the task running.
    """
    if read_daemon(home) is None:
        with stored_data(home, settings, "tasks/"):
            found = _found(home, task_id)
            events = [event_json(event) for event in read_events(home.data, found.task.task_id if found.task else "")]
            return print_log(_stored(home, found), events, as_json=as_json)
    return follow_task(find_daemon(home, settings), task_id, as_json=as_json)


# ------------------------------------------------------------------ scheduled jobs

_JOB_ID = click.Argument(["id_"], metavar="ID")


def jobs_text(answer: Answer) -> str:
    """Return a line for each job: id, next run, schedule, where it speaks, what it is.

    Where there is none, the command for one is shown with all that it needs.
    """
    jobs = answer["jobs"]
    if not jobs:
        return f"No jobs; add one with: {program_name()} cron add 'every weekday at 9' --prompt 'What is new?' --channel cli:main"
    return "\n".join(fit_terminal(_job_line(job)) for job in jobs)


def _job_line(view: Answer) -> str:
    """Return one job in one line. A job that rests shows why, in place of its next time."""
    job = from_wire(dict(view), Job)
    following = format_time(job.next, local=True) if job.next else job.rest(wall_clock())
    return f"{job.id}  {following:<19}  {schedule_text(job.schedule)}  {job.kind} for {job.channel}  {job.title}"


def job_text(verb: str) -> Callable[[Answer], str]:
    """Return the function that says what became of a job."""
    return lambda answer: f"{verb} {_job_line(answer)}"


@answering_command(CRON, "list", JSON, method="cron.list", text=jobs_text, refusals=(ValueError,))
def run_cron_list(home: Home, settings: Settings) -> Answer:
    """List the jobs."""
    return jobs_view(stored_jobs(home.data), wall_clock())


@CRON.declare(
    "add",
    click.Argument(["when"], nargs=-1, metavar="[WHEN]"),
    click.Option(["--cron", "cron"], metavar="EXPR", help="minute hour day month weekday, as '0 9 * * 1-5'."),
    click.Option(["--every"], type=Number(), metavar="SECONDS", help="Seconds between two runs."),
    click.Option(["--at"], metavar="TIME", help="Once, as 2026-12-01T09:00."),
    click.Option(["--tz"], metavar="ZONE", help="Time zone, as Europe/Berlin [that of this machine]."),
    click.Option(["--prompt"], required=True, metavar="TEXT", help="What is to be done."),
    click.Option(["--channel"], required=True, metavar="TYPE:ID", help="Where the result goes."),
    click.Option(["--kind"], type=OneOf(["message", "task"]), help="What a run is [message]."),
    click.Option(["--name"], metavar="NAME", help="A few words."),
    click.Option(["--missed"], type=OneOf(["once", "skip"]), help="Runs missed while it was down [once]."),
    JSON,
    is_client=True,
)
def run_cron_add(
    home: Home, settings: Settings, *, when: tuple[str, ...] = (), as_json: bool = False, **values: Any
) -> int:
    """Add a job.

    WHEN is "in 10 minutes", "tomorrow at 9" or "every weekday at 8:30"; or give one of --cron, --every and --at.
    """
    # Values that were not given are not sent, so the defaults are the daemon's. It checks the rest, too: which of the
    # three kinds of schedule were given, the expression, and the channel.
    given = {key: value for key, value in values.items() if value is not None}
    schedule: dict[str, Json] = {key: given.pop(key) for key in ("cron", "every", "at", "tz") if key in given}
    if when:
        schedule["when"] = " ".join(when)
    text = json_line if as_json else job_text("Added")
    return show(home, settings, "cron.add", {"schedule": schedule, **given}, text)


@answering_command(CRON, "remove", _JOB_ID, JSON, method="cron.remove", text=job_text("Removed"))
def run_cron_remove(home: Home, settings: Settings, *, id_: str) -> None:
    """Delete job ID."""


@answering_command(CRON, "pause", _JOB_ID, JSON, method="cron.pause", text=job_text("Paused"))
def run_cron_pause(home: Home, settings: Settings, *, id_: str) -> None:
    """Let job ID rest."""


@answering_command(CRON, "resume", _JOB_ID, JSON, method="cron.resume", text=job_text("Goes on:"))
def run_cron_resume(home: Home, settings: Settings, *, id_: str) -> None:
    """Let job ID go on with its next time."""


@answering_command(CRON, "run", _JOB_ID, JSON, method="cron.run", text=job_text("Ran"))
def run_now(home: Home, settings: Settings, *, id_: str) -> None:
    """Run job ID now."""
