"""`pegasus sessions …` and `pegasus skills …`: from the files, whether or not a daemon runs.

**Sessions.** Files may be large and may have bad lines: they are read line by line, a line that is longer than any the agent
writes is skipped, and a line that cannot be parsed is counted and shown as it is. No daemon is asked, because a session is a
file that only grows: what was read is true, though the last turn may be missing. These commands are the ones to look at a home
that was copied from another machine, or whose daemon does not start any more. Times are in UTC, as they stand in the names of
archives.

**Skills.** `check` finds what is wrong with a file, and what would fail later although the file is well-formed: a name that is a
command, a tool that does not exist, a type of task that does not exist, a model without a provider. The second kind is called a
doubt, because the files alone do not decide it: a tool may come with another version, and a model may be
defined tomorrow. The daemon therefore loads such a skill, and it fails when it is called. A problem of the first kind that is
fatal keeps the skill from being loaded at all.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, BinaryIO

import click

from pegasus.cli.commands import JSON, WholeNumber, pegasus, program_name
from pegasus.cli.control import Answer, answering_command, fit_terminal, print_text, report_failure
from pegasus.formatting import format_time, plural, quote
from pegasus.host import Home, wall_clock
from pegasus.intake import COMMANDS
from pegasus.main_agent import (
    CURRENT,
    LONGEST,
    MOST_ROWS,
    PAGE_ROWS,
    find_session,
    line_text,
    list_sessions,
    open_archive,
    session_json,
)
from pegasus.messages import Json
from pegasus.models import ModelConfigError, find_providers, role_spec, split_spec
from pegasus.settings import Settings
from pegasus.skills import (
    BUILT_IN,
    AcceptedSkills,
    NotAcceptable,
    Skill,
    SkillCatalog,
    format_accepted,
    format_proposed,
    skill_view,
)
from pegasus.tasks import BUILT_IN_TYPES, load_task_types
from pegasus.tools import ALL_TASK_TOOLS, MAIN_AGENT_TOOLS

SESSIONS = pegasus.subgroup("sessions", "List and show conversations, also archived ones.")
SKILLS = pegasus.subgroup("skills", "List and check skills: instructions called by name.")

# ------------------------------------------------------------------ sessions


def sessions_text(answer: Answer) -> str:
    """Return a line for each session: file, first and last time, size, the session before it, and the chat that it belongs to.

    The newest stand last, as in a log, so that they are above the prompt. A hint about older ones comes first.
    """
    lines = [fit_terminal(_session_row(session)) for session in answer["sessions"]] or ["No sessions."]
    if answer["next"] is not None:
        lines.insert(0, f"… {plural(answer['total'], 'session')}; --offset {answer['next']} shows those before these")
    return "\n".join(lines)


@answering_command(
    SESSIONS,
    "list",
    click.Option(["--chat"], default="", metavar="TEXT", help="Only chats whose name (TYPE:ID) contains TEXT."),
    click.Option(["--limit"], default=PAGE_ROWS, type=WholeNumber(1, MOST_ROWS), metavar="N", help="Sessions at most."),
    click.Option(["--offset"], default=0, type=WholeNumber(0), metavar="N", help="Newer sessions that are left out."),
    JSON,
    method=None,
    text=sessions_text,
)
def run_list(home: Home, settings: Settings, *, chat: str, limit: int, offset: int) -> Answer:
    """List sessions and their archives, the newest ones, oldest first."""
    page = list_sessions(os.fspath(home.data), chat, offset, limit)
    # A page counts from the newest on, so that --offset 0 always shows what a person looks for.
    rows = [session_json(row) for row in reversed(page.rows)]
    return {"sessions": rows, "total": page.total, "next": page.next}


@SESSIONS.declare(
    "show",
    click.Argument(["name"], default=CURRENT, metavar="[FILE|CHAT]"),
    click.Option(["--json", "as_json"], is_flag=True, help="The lines as they are stored."),
    is_client=True,
)
def run_show(home: Home, settings: Settings, *, name: str, as_json: bool) -> int:
    """Show all of a session, an archive, or a chat (TYPE:ID)."""
    # Only names that a session can have are opened: FILE is no path, so that "../" leads nowhere.
    place = find_session(name)
    if place is None:
        return report_failure(f"{quote(name)} is no session; {program_name()} sessions list shows their names")
    # The stack keeps the errors of opening apart from those of the loop: the file is open when its lines are printed.
    with ExitStack() as stack:
        try:
            folder = os.fspath(home.data / place.files.folder)
            file = stack.enter_context(open_archive(folder, place.name, place.files))
        except FileNotFoundError:
            return report_failure(
                f"there is no session {quote(name)}; {program_name()} sessions list shows their names"
            )
        except OSError as error:
            return report_failure(f"{name} cannot be read: {error.strerror or error}")
        for number, raw in _lines(file):
            # A session may have been damaged by hand. A bad byte must not end the output in the middle.
            line = raw.decode(errors="replace").removesuffix("\n") if as_json else line_text(number, raw)
            print_text(line, always=not as_json)
    return 0


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield the lines with their numbers, from 1 on; of one that is too long only the beginning.

    Memory stays bounded by LONGEST even for a file without a single line break.
    """
    number = 0
    while raw := file.readline(LONGEST + 2):
        number += 1
        rest = raw
        while not rest.endswith(b"\n") and (rest := file.readline(LONGEST)):
            pass  # too long to be one of ours
        yield number, raw


def _session_row(session: dict[str, Any]) -> str:
    """Return one session in one line.

    Times come from the lines of the file and may be missing, in a session that was copied or damaged.
    """
    began, ended = ("?" if ts is None else format_time(ts) for ts in (session["began"], session["ended"]))
    span = (
        f"{began} – {ended}" if session["ended"] is not None else f"since {began}" if began != "?" else "no time known"
    )
    # A session that was compacted begins with a summary of the one before, which is named.
    before = f"; goes on from {session['previousSession']}" if session["previousSession"] else ""
    how = f"; begins with a summary{before}" if session["summary"] else before
    lines = "" if session["lines"] is None else f"{plural(session['lines'], 'line')}, "
    chat = f"; chat {session['chat']}" if session["chat"] else ""
    return f"{session['file']:<27} {span}  {lines}{session['bytes']:,} bytes{how}{chat}"


# ------------------------------------------------------------------ skills


def skills_text(answer: Answer) -> str:
    """Return a table of the skills: name, origin, context, who may call it, purpose.

    Skills of the workspace that wait to be accepted stand below the table, each with the command for it.
    """
    # Columns have a fixed width: names are short by rule, and a long one moves only its own row.
    row = "{:<16} {:<9} {:<7} {:<10} {}".format
    # By `userInvocable` and `modelInvocable`.
    callers = {(True, True): "you, model", (True, False): "you", (False, True): "model", (False, False): "nobody"}
    lines = [
        fit_terminal(
            row(
                skill["name"],
                skill["source"],
                skill["context"],
                callers[skill["userInvocable"], skill["modelInvocable"]],
                skill["description"],
            )
        )
        for skill in answer["skills"]
    ]
    if lines:
        lines.insert(0, row("NAME", "ORIGIN", "CONTEXT", "CALLED BY", "PURPOSE"))
    lines += [
        format_proposed(skill["name"], skill["problem"] or "", was_accepted=skill["changed"], program=program_name())
        for skill in answer["proposed"]
    ]
    # Each proposed skill is one of the problems; it has a line of its own already.
    problems = len(answer["problems"]) - len(answer["proposed"])
    hint = [f"\n{plural(problems, 'problem')}: see `{program_name()} skills check`."] if problems else []
    return "\n".join([*(lines or ["No skills."]), *hint])


@answering_command(SKILLS, "list", JSON, method=None, text=skills_text)
def run_list_of_skills(home: Home, settings: Settings) -> Answer:
    """List skills: name, origin, who may call it, purpose."""
    skills = skills_of(home)
    rows = [_skill_json(skill, home) for skill in sorted(skills.all(), key=lambda skill: skill.name)]
    proposed: list[Json] = [
        {"name": each.name, "changed": each.was_accepted, "problem": each.problem or None} for each in skills.proposed()
    ]
    return {"skills": rows, "proposed": proposed, "problems": [str(problem) for problem in skills.problems]}


@SKILLS.declare("check", click.Argument(["name"], required=False))
def run_check(home: Home, settings: Settings, *, name: str | None = None) -> int:
    """Check the files of skills, or of the one with this NAME.

    The exit code is 1 if a skill cannot be used as it stands.
    """
    catalog = skills_of(home)
    skills, problems = catalog.all(), catalog.problems
    if name is not None:
        # A skill that is left out is known by its folder only.
        problems = tuple(problem for problem in problems if name in Path(problem.file).parts[-2:])
        skills = tuple(skill for skill in skills if skill.name == name)
        if not skills and not problems:
            names = ", ".join(sorted(skill.name for skill in catalog.all()))
            return report_failure(f"there is no skill {quote(name)}; there are: {names or 'none'}")
    for problem in problems:
        print_text(str(problem))
    # Doubts are printed below problems: first what keeps a skill from being loaded, then what makes it fail later.
    doubts = [f"{skill.folder}: {doubt}" for skill in skills for doubt in doubts_about(skill, home, settings)]
    for doubt in doubts:
        print_text(doubt)
    if doubts or any(problem.is_fatal for problem in problems):
        return 1
    print(f"{plural(len(skills), 'skill')}: ok")
    return 0


@SKILLS.declare("accept", click.Argument(["name"]))
def run_accept(home: Home, settings: Settings, *, name: str) -> int:
    """Accept a skill of the workspace, exactly as its files are now.

    Any later change of a file takes the acceptance back. Read the files before: whoever can write in the workspace has written them.
    """
    try:
        accepted = skills_of(home).accept_now(name, wall_clock())
    except (NotAcceptable, OSError) as error:
        return report_failure(str(error))
    print_text(format_accepted(accepted))
    return 0


def skills_of(home: Home) -> SkillCatalog:
    """Return the skills of a home: the user's win over the built-in ones. Those of the workspace count as far as they are accepted.

    Files with mistakes are in `problems` of the result.

    The catalog is made anew and reads the folders as they are now. The daemon has one of its own.
    """
    accepted = AcceptedSkills(home.accepted_skills, home.workspace / "skills")
    return SkillCatalog(BUILT_IN, home.skills, accepted=accepted)


def doubts_about(skill: Skill, home: Home, settings: Settings) -> Iterator[str]:
    """Yield what will not work although the file is well-formed, one sentence each.

    `pegasus doctor` counts them, too. They depend on the settings and on types of tasks, not on the file alone.
    """
    if skill.by_user and f"/{skill.name}" in COMMANDS:
        yield f"/{skill.name} is a command of Pegasus, so nobody can call the skill by it"
    yield from _doubtful_tools(skill)
    if skill.fork:
        # Problems with the files of types are not reported here: they are not the skill's.
        types, _ = load_task_types(BUILT_IN_TYPES, home.subagents)
        if skill.agent not in types:
            yield f"agent {quote(skill.agent)}: there is no such type of task; there are: {', '.join(types)}"
    if skill.model:
        try:
            providers = find_providers(settings.providers)
            # Raises for a provider that is not configured. Whether the provider has the model is known to the provider alone.
            split_spec(role_spec(skill.model, settings.models, providers), providers, "model")
        except ModelConfigError as error:
            yield str(error)


def _doubtful_tools(skill: Skill) -> Iterator[str]:
    """Yield the tools of a skill that it will not have.

    Names with "__" are passed over. They are those of MCP servers, which this version does not have, in skills that are shared.
    """
    for name in skill.tools or ():
        if "__" in name:
            continue
        # A skill without `context: fork` runs in the conversation, with the tools of the Main Agent only.
        if not skill.fork and not _matches(name, MAIN_AGENT_TOOLS) and _matches(name, ALL_TASK_TOOLS):
            yield f"allowed-tools {name}: only background tasks have it; the skill wants `context: fork`"
        elif not _matches(name, (*MAIN_AGENT_TOOLS, *ALL_TASK_TOOLS, "ask_user")):
            yield f"allowed-tools {name}: there is no such tool"


def _matches(pattern: str, names: Iterable[str]) -> bool:
    """Return True if one of the names fits the pattern, as "memory_*" does. Upper and lower case differ."""
    return any(fnmatchcase(name, pattern) for name in names)


def _skill_json(skill: Skill, home: Home) -> dict[str, Json]:
    """Return a skill as `--json` prints it.

    `folder` and `agent` are of use on this machine only, so the control plane does not send them.
    """
    more: dict[str, Json] = {"folder": str(skill.folder), "agent": skill.agent if skill.fork else None}
    return {**skill_view(skill, home.skills), **more}
