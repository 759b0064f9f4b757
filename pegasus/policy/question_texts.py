"""The question to an owner about a call, as every channel, the terminal and the command line show it.

It shows exactly what will be run, since a person who says yes must know to what. The arguments stand in a code block whose fence is
longer than any in them, so nothing in them looks like the text around it. Cleaning texts for the place where they are shown is the
caller's part: it depends on the place.

Three functions belong together: `shown_subject` gives what is decided about, the caller cleans it for its place, and
`question_text` puts it between headline, warnings and the ways to answer. Long arguments are cut with a note that says how much
is missing and where all of it is; a yes is bound to the whole call, never to what was shown.

    subject = shown_subject(notice)
    text = question_text(notice, subject, "tidy up", now)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from pegasus.formatting import format_duration
from pegasus.host import command_name
from pegasus.messages import ApprovalNotice, Json, OwnerQuestion
from pegasus.policy.approvals import PROMPT_FILE
from pegasus.policy.forms import describe_form
from pegasus.policy.shown_text import host_notes, make_visible
from pegasus.wire import encode_json

APPROVE: Final = "/approve"
"""Command that allows a call."""
DENY: Final = "/deny"
"""Command that refuses a call."""
_ABOUT_A_FILE: Final = "May this text be part of every prompt, in place of the one before?"
"""The question of a notice without a task."""
SHOWN_ARGUMENTS: Final = 3000
"""Characters of the arguments that a question shows; all of them are in `pegasus approvals list --json`."""


def shown_arguments(arguments: Json) -> str:
    r"""Return the arguments of a call for people: each with its name, and with what cannot be seen made visible.

    A name stands at the beginning of a line, and no line of a value does if it has several, so no text looks like another argument.

    >>> shown_arguments({"command": "ls\ncwd: /", "timeout": 5})
    'command:\n  ls\n  cwd: /\ntimeout: 5'
    """
    if not isinstance(arguments, dict):
        return make_visible(encode_json(arguments, indent=2))
    return "\n".join(_shown_argument(name, value) for name, value in arguments.items()) or "(no arguments)"


def _shown_argument(name: str, value: Json) -> str:
    """Return one argument with its name, which is quoted unless it is a plain word."""
    label = make_visible(name if name.replace("-", "_").isidentifier() else encode_json(name))
    text = make_visible(value if isinstance(value, str) else encode_json(value, indent=2))
    if "\n" not in text:
        return f"{label}: {text}"
    return f"{label}:\n  " + text.replace("\n", "\n  ")


def shown_subject(notice: ApprovalNotice) -> str:
    """Return what a person decides about: the arguments of the call, the text of a file, or a question with its form.

    Nothing in it is hidden from a person who reads it (`make_visible`).
    """
    question = notice.question
    if notice.tool == PROMPT_FILE:
        text = f"{notice.arguments.get('path')}\n\n{notice.arguments.get('content') or '(it is gone, or says nothing)'}"
        return make_visible(text)
    if question is None:
        return shown_arguments(notice.arguments)
    return make_visible("\n".join(filter(None, [question.text, question.url, *describe_form(question)])))


def question_text(notice: ApprovalNotice, subject: str, task: str, now: int) -> str:
    """Return the question in Markdown: what would be run, or what a server asks; for whom, why an owner is asked, and how to answer.

    subject: as `shown_subject` gives it, cleaned. task: name of the task, "" if it is not known. now: wall clock, ms. A notice without
    a task is a question of the program itself.
    """
    missing = len(subject) - SHOWN_ARGUMENTS
    if missing > 0:
        subject = f"{subject[:SHOWN_ARGUMENTS]}\n… {missing:,} characters more: {command_name()} approvals list"
    # Grown until it is in none of the lines, so that the arguments cannot end the block and go on as text of the question.
    fence = "```"
    while fence in subject:
        fence += "`"
    left = format_duration(max(0, notice.expires - now) / 1000)
    return "\n".join(
        [
            _headline(notice, f"task {task}" if task else "a task"),
            fence,
            subject,
            fence,
            *_warnings(notice.question),
            *(f"Look twice: {note}." for note in host_notes("\n".join(_texts(notice.arguments)))),
            f"{_asked_for(notice)}Why I ask: {notice.why}.",
            _answers(notice),
            f"Without an answer within {left} it is a no.",
        ]
    )


def _headline(notice: ApprovalNotice, task: str) -> str:
    """Return the line above what is asked about. task: the task that asks, for people."""
    if notice.question is not None:
        return f"The {notice.question.source} asks, called by {task} ({notice.tool}). In its words:"
    return f"May {task} run {notice.tool}?" if notice.task_id else _ABOUT_A_FILE


def _asked_for(notice: ApprovalNotice) -> str:
    """Return a sentence about who has asked for the work, "" if nobody has."""
    if not notice.task_id:
        return ""
    asked = notice.channel
    where = f"on {asked.type} {asked.channel_id}" if asked else "by nobody who is known"
    person = f" by {asked.user_id}" if asked and asked.user_id else ""
    return f"Asked for {where}{person} ({notice.who}). "


def _warnings(question: OwnerQuestion | None) -> list[str]:
    """Return what a person should know before answering a server."""
    if question is None:
        return []
    if question.url:
        # The host alone is what a person can judge; the rest of an address can be made to look like anything.
        host = urlsplit(question.url).hostname
        return [f"This opens {host}. Go there only if you trust that place, and say yes when you are done there."]
    return ["Your answer goes to that server. Never give it passwords or keys."]


def _texts(value: Json) -> Iterator[str]:
    """Yield all texts in the arguments of a call, keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)


def _answers(notice: ApprovalNotice) -> str:
    """Return how to answer: `/approve a-7f3k beds=… · /deny a-7f3k`."""
    id, question = notice.id, notice.question
    if question is None:
        return f"{APPROVE} {id} · {APPROVE} {id} always · {DENY} {id} reason"
    form = "".join(f" {field.name}=…" for field in question.fields)
    yes = f"{APPROVE} {id}{form}"
    # Where every field has a default or may be left out, the bare yes is shown first, since it is the usual answer.
    if form and all(not field.is_required or field.default is not None for field in question.fields):
        yes = f"{APPROVE} {id} · {yes}"
    return f"{yes} · {DENY} {id}"


def end_text(notice: ApprovalNotice) -> str:
    """Return one line about a notice that is not open any more."""
    by = f" by {notice.by}" if notice.by else ""
    return f"{notice.id} ({notice.tool}) is {notice.state}{by}."
