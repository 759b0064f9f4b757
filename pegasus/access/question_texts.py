"""The question to an owner about calls, as every channel, the terminal and the command line show it.

It shows exactly what will be run, since a person who says yes must know to what. The arguments stand in a code block whose fence is
longer than any in them, so nothing in them looks like the text around it. With several calls each has its number, its tool, its
reason and a part of the room, so that a long first one cannot push the others out of sight. Long arguments are cut with a note that
says how much is missing and where all of it is; a yes is bound to the whole call, never to what was shown.

The program's facts stand first. The words of the agent about its plan stand below them, in a block of their own.

    text = question_text(notice, "tidy up", now, clean=secrets.redact)

`clean` makes a text fit for its place, such as a terminal, or a service that must not learn secrets. It is used before a text is cut,
since half of a secret would not be recognised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from pegasus.access.approvals import PROMPT_FILE
from pegasus.access.grants import AnswerScope
from pegasus.formatting import code_fence, format_duration, plural
from pegasus.host import command_name
from pegasus.messages import ApprovalNotice, Json, NoticeCall, OwnerQuestion
from pegasus.policy import describe_form, make_visible
from pegasus.wire import encode_json

APPROVE: Final = "/approve"
"""Command that allows a call."""
DENY: Final = "/deny"
"""Command that refuses a call."""
APPROVALS: Final = "/approvals"
"""Command that lists what waits and what was granted, and revokes."""
_ABOUT_A_FILE: Final = "May this text be part of every prompt, in place of the one before?"
"""The question of a notice without a task."""
SHOWN_ARGUMENTS: Final = 3000
"""Characters of the arguments that a question shows; all of them are in `pegasus approvals list --json`."""
SHORTEST_PART: Final = 300
"""Characters that each of many calls has at least."""
SHOWN_WORDS: Final = 1000
"""Characters of the agent's words about a plan."""
HASH_DIGITS: Final = 12
"""Digits of the hash of a file, enough to tell whether it has changed."""
ANY_ARGUMENTS: Final = "with any arguments, also those that text from outside suggests"
"""Warning beside each scope beyond exactly these arguments."""

Clean: TypeAlias = Callable[[str], str]
"""Function that makes a text fit for the place where it is shown."""


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


def shown_subject(notice: ApprovalNotice, clean: Clean = str, longest: int = 0) -> str:
    """Return what a person decides about: the arguments of the calls, the text of a file, or a question with its form.

    Nothing in it is hidden from a person who reads it (`make_visible`). longest: characters for all calls together, of which each
    has an equal part, SHORTEST_PART at least; 0 = no limit.
    """
    question, calls = notice.question, notice.all_calls
    if notice.tool == PROMPT_FILE:
        text = f"{notice.arguments.get('path')}\n\n{notice.arguments.get('content') or '(it is gone, or says nothing)'}"
        return _cut(clean(make_visible(text)), longest)
    if question is not None:
        text = "\n".join(filter(None, [question.text, question.url, *describe_form(question)]))
        return _cut(clean(make_visible(text)), longest)
    part = max(SHORTEST_PART, longest // len(calls)) if longest else 0
    shown = [_cut(clean(_shown_call(call)), part) for call in calls]
    if len(calls) == 1:
        return shown[0]
    return "\n".join(
        f"{number}. {clean(make_visible(call.tool))} ({clean(make_visible(call.why))})\n   "
        + text.replace("\n", "\n   ")
        for number, (call, text) in enumerate(zip(calls, shown, strict=True), 1)
    )


def _shown_call(call: NoticeCall) -> str:
    """Return the arguments of a call, and the files that it names as they were when it was asked about."""
    files = (f"{make_visible(path)}: content {str(hash)[:HASH_DIGITS]}" for path, hash in call.files.items())
    return "\n".join([shown_arguments(call.arguments), *files])


def _cut(text: str, longest: int) -> str:
    missing = len(text) - longest
    if not longest or missing <= 0:
        return text
    return f"{text[:longest]}\n… {missing:,} characters more: {command_name()} approvals list"


def question_text(notice: ApprovalNotice, task: str, now: int, clean: Clean = str) -> str:
    """Return the question in Markdown: what would be run, or what a server asks; for whom, why an owner is asked, and how to answer.

    task: name of the task, "" if it is not known. now: wall clock, ms. A notice without a task is a question of the program itself.
    """
    left = format_duration(max(0, notice.expires - now) / 1000)
    words = clean(make_visible(notice.words)).strip()
    return "\n".join(
        [
            _headline(notice, f"task {task}" if task else "a task"),
            *_block(shown_subject(notice, clean, SHOWN_ARGUMENTS)),
            *_warnings(notice.question),
            *(f"Look twice: {clean(note)}." for note in notice.notes),
            *([f"Read from outside so far: {', '.join(notice.read) or 'nothing'}."] if notice.is_plan else []),
            f"{_asked_for(notice)}Why I ask: {notice.why}.",
            *(["In the agent's own words, which are no facts:", *_block(_cut(words, SHOWN_WORDS))] if words else []),
            *_answers(notice),
            f"Without an answer within {left} it is a no.",
        ]
    )


def _block(text: str) -> tuple[str, str, str]:
    """Return the lines of a code block, which the text cannot end."""
    fence = code_fence(text)
    return fence, text, fence


def _headline(notice: ApprovalNotice, task: str) -> str:
    """Return the line above what is asked about. task: the task that asks, for people."""
    if notice.question is not None:
        return f"The {notice.question.source} asks, called by {task} ({notice.tool}). In its words:"
    if notice.tool == PROMPT_FILE:
        return _ABOUT_A_FILE
    if not notice.task_id:
        return "May I send this?"
    if notice.is_plan:
        return f"May {task} make {plural(len(notice.all_calls), 'call')} later, each of them once?"
    return f"May {task} run {notice.tool}?" if not notice.calls else f"May {task} make these {len(notice.calls)} calls?"


def _asked_for(notice: ApprovalNotice) -> str:
    """Return a sentence about who has asked for the work, "" if nobody has."""
    if notice.tool == PROMPT_FILE:
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


def _answers(notice: ApprovalNotice) -> list[str]:
    """Return how to answer: `/approve a-7f3k beds=… · /deny a-7f3k`, with what a wider yes means."""
    id, question = notice.id, notice.question
    if question is None:
        count = len(notice.all_calls)
        some = [f"{APPROVE} {id} 1{f',{count}' if count > 2 else ''} for a part"] if count > 1 else []
        lines = [" · ".join([f"{APPROVE} {id}", *some, f"{DENY} {id} reason"])]
        if wider := [scope for scope in notice.scopes if scope != AnswerScope.ONCE]:
            lines.append(f"For later calls too: {APPROVE} {id} {'|'.join(wider)}")
        if any_arguments := [scope for scope in wider if scope != AnswerScope.ARGUMENTS]:
            lines.append(f"{', '.join(any_arguments)}: {ANY_ARGUMENTS}.")
        return lines
    form = "".join(f" {field.name}=…" for field in question.fields)
    yes = f"{APPROVE} {id}{form}"
    # Where every field has a default or may be left out, the bare yes is shown first, since it is the usual answer.
    if form and all(not field.is_required or field.default is not None for field in question.fields):
        yes = f"{APPROVE} {id} · {yes}"
    return [f"{yes} · {DENY} {id}"]


def end_text(notice: ApprovalNotice) -> str:
    """Return one line about a notice that is not open any more."""
    by = f" by {notice.by}" if notice.by else ""
    tools = ", ".join(dict.fromkeys(call.tool for call in notice.all_calls))
    return f"{notice.id} ({tools}) is {notice.state}{by}."
