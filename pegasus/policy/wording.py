"""The question to an owner about a call, as every channel, the terminal and the command line show it.

It shows exactly what will be run, since a person who says yes must know to what. The arguments stand in a code block whose fence is
longer than any in them, so nothing in them looks like the text around it. Cleaning texts for the place where they are shown is the
caller's part: it depends on the place.
"""

from __future__ import annotations

from typing import Final

from pegasus.formatting import format_duration
from pegasus.messages import ApprovalNotice, Json
from pegasus.wire import encode_json

APPROVE: Final = "/approve"
"""Command that allows a call."""
DENY: Final = "/deny"
"""Command that refuses a call."""
SHOWN_ARGUMENTS: Final = 3000
"""Characters of the arguments that a question shows; all of them are in `pegasus approvals list --json`."""


def shown_arguments(arguments: Json) -> str:
    """Return arguments for people: the only text as it stands, anything else as JSON."""
    if isinstance(arguments, dict) and len(arguments) == 1 and isinstance(text := next(iter(arguments.values())), str):
        return text
    return encode_json(arguments, indent=2)


def question_text(notice: ApprovalNotice, arguments: str, task: str, now: int) -> str:
    """Return the question in Markdown: what would be run, for whom, why an owner is asked, and how to answer.

    arguments: those of the notice, as `shown_arguments` gives them, cleaned. task: name of the task, "" if it is not known. now: wall
    clock, ms.
    """
    missing = len(arguments) - SHOWN_ARGUMENTS
    if missing > 0:
        arguments = f"{arguments[:SHOWN_ARGUMENTS]}\n… {missing:,} characters more: pegasus approvals list"
    fence = "```"
    while fence in arguments:
        fence += "`"
    asked = notice.channel
    where = f"on {asked.type} {asked.channel_id}" if asked else "by nobody who is known"
    person = f" by {asked.user_id}" if asked and asked.user_id else ""
    id = notice.id
    return "\n".join(
        [
            f"May {f'task {task}' if task else 'a task'} run {notice.tool}?",
            fence,
            arguments,
            fence,
            f"Asked for {where}{person} ({notice.who}). Why I ask: {notice.why}.",
            f"{APPROVE} {id} · {APPROVE} {id} always · {DENY} {id} reason",
            f"Without an answer within {format_duration(max(0, notice.expires - now) / 1000)} it is a no.",
        ]
    )


def end_text(notice: ApprovalNotice) -> str:
    """Return one line about a notice that is not open any more."""
    by = f" by {notice.by}" if notice.by else ""
    return f"{notice.id} ({notice.tool}) is {notice.state}{by}."
