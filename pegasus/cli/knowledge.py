"""Memory and persona: `pegasus memory …` and `persona …`; from the running daemon, or from the files.

With a daemon its own answer is used, since it notices edits by hand and has changes that are being written. Without one the
same functions run here over the files; `undo` then holds the home, so that no daemon starts in the middle of it.

Every change of memory has a number and keeps the lines that it removed and added, so that it can be taken back later, also
when other changes came in between. An undo is a change like any other: it has a number, stands in the log with the person
as its author, and can be undone. It is refused where later changes have touched the same lines.

The agent may propose to change who it is, but only the owner accepts. A decision takes effect at the next start, because the
persona is part of the prompt that providers have cached: a change in the middle would make the next call of every conversation
pay for its whole prompt again. Decisions are events in the journal and not edits of the persona's file, so that each can be
taken back and it stays visible who has decided what. Without a daemon the same event is written here, while the home is held.
"""

from __future__ import annotations

from collections.abc import Mapping

import click
import trio

from actors import Ref
from pegasus.access import RequestRefused
from pegasus.cli.commands import JSON, OneOf, WholeNumber, pegasus, program_name
from pegasus.cli.control import Answer, answering_command, change_files, fit_terminal
from pegasus.formatting import format_time
from pegasus.host import Home, read_if_there, wall_clock
from pegasus.identity import (
    Persona,
    PersonaChanges,
    PersonaError,
    format_decision,
    format_persona,
    persona_of_settings,
    persona_view,
    read_persona_state,
)
from pegasus.memory import (
    FOLDER,
    LOG,
    NOTES,
    Author,
    FolderReader,
    MemoryRefused,
    NotesFile,
    check_logged,
    describe_file,
    files_view,
    memory_in,
    open_searcher,
    read_log,
    read_whole,
    view_of,
)
from pegasus.settings import LiveValue, Settings
from pegasus.storage import FileDisk, FolderFiles, GuardedFiles, JournalMessage, StorageError
from pegasus.tools import found_json

MEMORY = pegasus.subgroup("memory", "Show what the agent remembers, and undo changes.")
PERSONA = pegasus.subgroup("persona", "Show the persona, and decide about its proposals.")

_BY = {"main-agent": "the agent", "hand": "hand", "user": "you"}
"""Words for the authors of changes. "hand" is an edit of the file that the daemon has found; tasks stand under their own kind."""


# ------------------------------------------------------------------ memory, for people


def list_text(answer: Answer) -> str:
    """Return a line for each file, as wide as the terminal: path, size in bytes, summary."""
    files = answer["files"]
    if not files:
        return "Nothing is remembered yet."
    width = max(len(file["path"]) for file in files)
    return "\n".join(
        fit_terminal(f"{file['path']:<{width}}  {file['size']:>7,} B  {file['summary']}") for file in files
    )


def log_text(answer: Answer) -> str:
    """Return each change: number, time, file, author, reason, then the lines removed and added.

    Example of one change::

          12  2026-02-25 14:30  facts/user.md  edit by the agent for cli:main (asked to remember)
            - Lives in Bonn.
            + Lives in Vienna.

    Unlike `memory list` it is not cut at the width of the terminal: a line that was changed is shown whole.
    """
    return (
        "\n".join(line for change in answer["changes"] for line in _change_lines(change)) or "Nothing was changed yet."
    )


def _change_lines(change: Answer) -> list[str]:
    """Return the lines of one change: the head, then each removed and each added line.

    "removed" is None for a change that was too large to be kept.
    """
    # The head reads as a sentence, and leaves out what the change has not.
    by, what = change["by"], f"undo of {change['undoes']}" if change.get("undoes") else change["how"]
    who = " ".join(filter(None, (_BY.get(by["kind"], by["kind"]), by.get("task"), by.get("user"))))
    about = [
        f"by {who}",
        f"for {by['channel']}" if by.get("channel") else "",
        f"({by['why']})" if by.get("why") else "",
    ]
    source = f"[source: {by['source']}]" if by.get("source") else ""
    # In the zone of this machine, since the person compares it with what they remember.
    at = format_time(change["ts"], local=True)
    lines = [" ".join(filter(None, (f"{change['n']:>4}  {at}  {change['path']}  {what}", *about, source)))]
    if change["removed"] is None:
        return [*lines, "      (too large to be kept: it cannot be taken back)"]
    # As in a diff: lines that were taken out, then those that were put in.
    lines += [f"    - {line}" for line in change["removed"].splitlines()]
    return lines + [f"    + {line}" for line in change["added"].splitlines()]


def found_text(answer: Answer) -> str:
    """Return each passage: its place as `file:line`, which editors open, then its text; at the end what was not searched."""
    lines = []
    for hit in answer["results"]:
        about = hit.get("title") or hit.get("role") or ""
        # A hit in memory has a path, one in an archive a file.
        lines += [f"{hit.get('path') or hit['file']}:{hit['line']}  {about}".rstrip(), f"    {hit['snippet']}"]
    return "\n".join([*lines, *([answer["notice"]] if answer.get("notice") else [])])


def undo_text(answer: Answer) -> str:
    """Return which change was taken back by which.

    Both numbers are named: the second is what undoes the undo.
    """
    change = answer["change"]
    return f"Change {change['undoes']} of {change['path']} is taken back, by change {change['n']}."


# ------------------------------------------------------------------ commands about memory


@answering_command(MEMORY, "list", JSON, method="memory.list", text=list_text)
def run_list(home: Home, settings: Settings) -> Answer:
    """List the files of memory."""
    return files_view(map(describe_file, _folder(home).scan_now()))


@answering_command(
    MEMORY,
    "show",
    click.Argument(["path"]),
    method="memory.show",
    text=lambda answer: str(answer["content"]).rstrip("\n"),
    refusals=(MemoryRefused,),
)
def run_show(home: Home, settings: Settings, *, path: str) -> Answer:
    """Show one file of memory, by its name in the list."""

    async def read() -> Answer:
        """Return the file as it is on disk. Raises MemoryRefused for a name that is none of memory."""
        if path == NOTES:
            # The notes lie in the workspace, where commands of tasks may write: GuardedFiles follows no link out of it.
            content = await NotesFile(FileDisk(home.workspace, GuardedFiles(home.workspace))).read()
        else:
            folder = _folder(home)
            content = await read_whole(path, folder, await folder.scan())
        return {"path": path, "content": content.decode("utf-8-sig", "replace")}

    return trio.run(read)


@answering_command(
    MEMORY,
    "log",
    click.Argument(["path"], required=False),
    click.Option(["--limit"], default=20, type=WholeNumber(1, 200), metavar="N", show_default=True),
    JSON,
    method="memory.log",
    text=log_text,
    refusals=(MemoryRefused,),
)
def run_log(home: Home, settings: Settings, *, path: str | None, limit: int) -> Answer:
    """Show the last changes and who made them, newest first.

    Of one file, with PATH. Without a daemon, edits by hand since its end are not among them.
    """
    data = read_if_there(home.data / FOLDER / LOG)
    # Filtered before the limit counts, so that a file that changes rarely still shows `limit` changes.
    made = [change for change in reversed(read_log(data)[1]) if path in (None, change.path)]
    if path is not None and not made:
        check_logged(path, _folder(home).scan_now())
    return {"changes": [view_of(change) for change in made[:limit]]}


@answering_command(
    MEMORY,
    "undo",
    click.Argument(["n"], type=WholeNumber(1), metavar="N"),
    method="memory.undo",
    text=undo_text,
    refusals=(MemoryRefused, StorageError),  # without a daemon a full disk is met in this process
)
def run_undo(home: Home, settings: Settings, *, n: int) -> Answer:
    """Take change N back; later changes of the file stay."""

    async def undo(journal: Ref[JournalMessage]) -> Answer:
        """Take the change back through a journal. Raises MemoryRefused where later changes have touched the same lines."""
        memory = memory_in(home.data, journal, wall_clock, home.workspace)
        return {"change": view_of(await memory.undo(n, Author("user", channel="cli:memory")))}

    return change_files(home, undo)


@answering_command(
    MEMORY,
    "search",
    click.Argument(["query"]),
    click.Option(["--limit"], default=8, type=WholeNumber(1, 30), metavar="N", show_default=True),
    click.Option(["--in", "in_"], type=OneOf(["facts", "episodes", "sessions"]), help="Only there."),
    JSON,
    method="memory.search",
    text=found_text,
    refusals=(MemoryRefused,),
)
def run_search(home: Home, settings: Settings, *, query: str, limit: int, in_: str | None) -> Answer:
    """Search memory and archived conversations, best first."""

    async def search() -> Answer:
        """Bring the index up to date, and search it. Cancelled: the index is as new as it got; the next search goes on."""
        # The index is a file of the home, which the search first brings up to date with what has changed.
        searcher = open_searcher(home.data, FolderFiles(home.data))
        try:
            answer = found_json(await searcher.search(query, limit, in_ or ""))
        finally:
            searcher.close()
        return answer if isinstance(answer, Mapping) else {}

    return trio.run(search)


def _folder(home: Home) -> FolderReader:
    """Return a reader of the files of memory, which looks at the disk at each call."""
    return FolderReader(home.data / FOLDER)


# ------------------------------------------------------------------ the persona

_NUMBER = click.Argument(["n"], type=WholeNumber(min=1), metavar="N")
"""Number of a proposal, as `persona list` shows it."""
_PROPOSAL_REFUSALS = (RequestRefused, PersonaError, StorageError)
"""Reasons for which a decision is not recorded, such as a number that does not exist."""


def persona_text(view: Answer) -> str:
    """Return the persona, open proposals and the last decisions, with the commands to decide.

    The chat's /persona has the same text with its own commands.
    """
    return format_persona(view, f"{program_name()} persona")


@answering_command(PERSONA, "list", JSON, method="persona.list", text=persona_text, refusals=(PersonaError,))
def run_persona_list(home: Home, settings: Settings) -> Answer:
    """Show the persona, open proposals, and the last decisions."""
    return persona_view(read_persona_state(_base(home, settings), home.data))


@answering_command(
    PERSONA, "accept", _NUMBER, method="persona.accept", text=format_decision, refusals=_PROPOSAL_REFUSALS
)
def run_accept(home: Home, settings: Settings, *, n: int) -> Answer:
    """Accept proposal N, from the next start or reload on."""
    return _decide(home, settings, n, accept=True)


@answering_command(
    PERSONA, "reject", _NUMBER, method="persona.reject", text=format_decision, refusals=_PROPOSAL_REFUSALS
)
def run_reject(home: Home, settings: Settings, *, n: int) -> Answer:
    """Reject proposal N; one that was accepted is taken back."""
    return _decide(home, settings, n, accept=False)


def _decide(home: Home, settings: Settings, n: int, *, accept: bool) -> Answer:
    """Record the decision about a proposal where no daemon runs, with the home held; return the proposal."""

    async def decide(journal: Ref[JournalMessage]) -> Answer:
        """Record the decision as the daemon would. It has no channel; the log shows "the command line" as its place."""
        persona_changes = PersonaChanges(journal, LiveValue(_base(home, settings)), wall_clock)
        return await persona_changes.decide(n, accept=accept, by="the command line")

    return change_files(home, decide)


def _base(home: Home, settings: Settings) -> Persona:
    """Return the persona of the settings, before any accepted proposal. Raises PersonaError for a file with mistakes."""
    return persona_of_settings(settings.agent.persona, home.resolve)
