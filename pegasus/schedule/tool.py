"""The tool `cron`: the Main Agent keeps jobs for people, such as "remind me tomorrow at nine".

The tool is a client of the keeper like any other. Its part is to translate: a call has flat arguments, which models fill in more
reliably than nested ones, and `delay` in place of a point in time, because a model does not know what time it is.

Each call acts with the rights of the person that the turn is for. Owners see and change all jobs. A guest sees their own, and
may only add jobs that speak in the conversation at hand: otherwise a guest could make the agent write to other people at any
time. The labels of text from outside that the turn has read are kept in the job, so that a page cannot plant a prompt that is
trusted later on.

    tool = cron_tool(keeper, clock)
    await tool.run({"action": "add", "prompt": "Stretch", "delay": 3600}, context)  # {"id": "j-7f3k", "next": …}
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from actors import ActorError, Ref
from pegasus.access import Role
from pegasus.formatting import format_time, quote
from pegasus.messages import Json, Metadata
from pegasus.models import ToolSpec
from pegasus.outside import OUTSIDE, Untrusted, join_outside, parse_outside
from pegasus.schedule.times import ScheduleError, schedule_text
from pegasus.storage import StorageError
from pegasus.tools import Effect, LabelledResult, Reach, Tool, ToolContext, ToolError, as_tool_error, parameters

if TYPE_CHECKING:
    from pegasus.schedule.jobs import Job, ScheduleMessage

ACTIONS: Final = ("add", "list", "remove", "pause", "resume", "run")
"""Values of the argument `action`; "add" and "list" need no id."""
MOST_LISTED: Final = 50
"""Jobs that one call lists."""


def _parameter(type: str, description: str) -> Metadata:
    """Return the JSON Schema of a parameter."""
    return {"type": type, "description": description}


_SPEC: Final = ToolSpec(
    "cron",
    "Schedule work and reminders: add (with prompt and one of cron, every, at, delay), list, remove, pause, resume, run. "
    "When a job is due, you get its prompt as a message and then act on it. For one reminder use delay or at.",
    parameters(
        {
            "action": {"type": "string", "enum": list(ACTIONS)},
            "prompt": _parameter("string", "add: what is to be done or said then, complete in itself"),
            "delay": _parameter("number", "add: once, so many seconds from now"),
            "at": _parameter("string", "add: once, at this time in ISO 8601, as 2026-12-01T09:00"),
            "cron": _parameter("string", "add: again and again, as minute hour day month weekday: 0 9 * * 1-5"),
            "every": _parameter("number", "add: again and again, seconds between two runs"),
            "timezone": _parameter("string", "add: IANA name for at and cron; without it, the machine's zone"),
            "name": _parameter("string", "add: a few words"),
            "kind": {"type": "string", "enum": ["message", "task"], "description": "add: task = background work"},
            "channel": _parameter("string", "add: where the result goes, as type:id; without it, this conversation"),
            "id": _parameter("string", "The job, for all but add and list"),
        },
        "action",
    ),
)
"""Name, words and parameters as the model gets them. Only `action` is required, since each action needs others; the rest is checked
when the call is carried out.
"""


def cron_tool(keeper: Ref[ScheduleMessage], clock: Callable[[], int]) -> Tool:
    """Return the tool. keeper: the actor that keeps the jobs. clock: wall clock, ms."""
    # Not safe to repeat, since a second call would add a second job; it reaches nothing but the agent itself.
    return Tool(_SPEC, partial(_run, keeper, clock), "schedule", Effect.ONCE, reach=Reach.INSIDE)


async def _run(
    keeper: Ref[ScheduleMessage], clock: Callable[[], int], arguments: Metadata, context: ToolContext
) -> Json | LabelledResult:
    """Carry out one call. Raises ToolError, whose text says what is allowed.

    A job that the person may not see is treated as one that does not exist: the errors are the same, and tell nothing about it.
    """
    from pegasus.schedule.jobs import EnableJob, RemoveJob, RunJob, job_line

    with as_tool_error(ScheduleError, StorageError, ActorError):
        match arguments["action"]:
            case "add":
                return await _add(keeper, clock(), arguments, context)
            case "list":
                jobs = await _visible(keeper, context)
                shown = jobs[-MOST_LISTED:]
                # A guest has chosen the words of a guest's job, and of others a page may have.
                labels = join_outside(*map(_labels_of, shown))
                return LabelledResult({"jobs": [job_line(job, clock()) for job in shown], "count": len(jobs)}, labels)
            case action:
                job = await _find(keeper, arguments, context)
                if action == "remove":
                    await keeper.ask(RemoveJob, job.id)
                elif action == "run":
                    await keeper.ask(RunJob, job.id)
                else:
                    await keeper.ask(EnableJob, job.id, action == "resume")
                return {"id": job.id, "done": str(action)}


async def _add(keeper: Ref[ScheduleMessage], now: int, arguments: Metadata, context: ToolContext) -> Json:
    """Add a job. Return its id, its times, its next run and its channel, so that the model can say what it has arranged.

    Raises ScheduleError and ToolError for what is not allowed, StorageError and ActorError from the keeper.
    """
    from pegasus.schedule.jobs import AddJob, draft_job

    schedule: dict[str, Json] = {key: arguments[key] for key in ("cron", "every", "at") if arguments.get(key)}
    if arguments.get("timezone"):
        schedule["tz"] = arguments["timezone"]
    if delay := arguments.get("delay"):
        seconds = delay if isinstance(delay, int | float) else 0
        # A delay is one point in time, so that none of the other kinds may stand beside it. The bound keeps the sum within the
        # calendar.
        if schedule.keys() - {"tz"} or not 0 < seconds < 10**9:
            raise ScheduleError("delay: allowed: seconds above 0, and none of cron, every and at beside it")
        schedule["at"] = (datetime.fromtimestamp(now / 1000, UTC) + timedelta(seconds=seconds)).isoformat()
    names = ("prompt", "name", "kind", "channel")
    values = {"schedule": schedule} | {key: arguments[key] for key in names if arguments.get(key)}
    # A job keeps the labels of what was read until now; the turn may read more.
    labels = [str(label) for label in context.outside]
    draft = draft_job(values, now, context.principal, context.origin, labels)
    origin = context.origin
    if not context.principal.is_owner and origin is not None and draft.channel_info.address != origin.address:
        raise ToolError("a guest's job may speak only in the conversation that it was asked for in")
    job = await keeper.ask(AddJob, draft)
    # In the machine's zone, since that is what the model tells the person.
    next_time = format_time(job.next, local=True) if job.next is not None else None
    return {"id": job.id, "schedule": schedule_text(job.schedule), "next": next_time, "channel": job.channel}


async def _find(keeper: Ref[ScheduleMessage], arguments: Metadata, context: ToolContext) -> Job:
    """Return the job that the call names, if the person may see it. Raises ToolError."""
    id = str(arguments.get("id") or "")
    jobs = await _visible(keeper, context)
    found = next((job for job in jobs if job.id == id), None)
    if found is None:
        # Models forget ids; the error gives them back.
        known = ", ".join(job.id for job in jobs[-MOST_LISTED:])
        raise ToolError(f"there is no job {quote(id, 40)}; there are: {known or 'none'}")
    return found


async def _visible(keeper: Ref[ScheduleMessage], context: ToolContext) -> list[Job]:
    """Return the jobs that the person may see, in the list and by an id."""
    from pegasus.schedule.jobs import ListJobs

    return [job for job in await keeper.ask(ListJobs) if job.is_visible_to(context.principal)]


def _labels_of(job: Job) -> tuple[Untrusted, ...]:
    """Return the labels of the words of a job."""
    labels = parse_outside({OUTSIDE: list(job.outside)})
    return labels if job.role is Role.OWNER else (*labels, Untrusted.GUEST)
