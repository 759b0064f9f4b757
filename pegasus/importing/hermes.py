"""Homes of Hermes Agent (`~/.hermes`).

    memories/MEMORY.md  USER.md     notes; entries are separated by lines with "§"
    state.db                        SQLite: tables `sessions` and `messages`
    cron/jobs.json                  {"jobs": […]}
    SOUL.md                         its character
    .env  auth.json  config.yaml    settings and keys
    profiles/<name>/                the same again, for each further profile

What cannot be read is never an error of the import: it is named in the findings with its reason, and the rest goes on. A database
that fails in the middle has given the sessions that were read before. A job that would do something else here than there (it has a
model, a folder or a number of runs of its own) is imported as paused, until its owner has looked at it. One that runs a program of
the foreign home is left out.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, Final

from pegasus.importing.conversion import (
    add_job,
    add_note,
    add_persona,
    add_settings,
    address_of,
    each_job,
    read_text,
    session_of,
    shown_name,
)
from pegasus.importing.databases import columns_of, open_database
from pegasus.importing.foreign_home import CannotRead, Findings, ForeignFolder, FoundSession
from pegasus.messages import Metadata

MARKS: Final = ("config.yaml", "memories", "state.db", "cron", "profiles")
"""Names in such a home."""
SETTINGS: Final = (".env", "auth.json", "config.yaml")
"""Files of settings and keys, which are named in the report and not read."""
DATABASE: Final = "state.db"
"""Name of the file of all sessions."""
MOST_MESSAGES: Final = 100_000
"""Messages of one session."""
STRUCTURED: Final = "\0json:"
"""Beginning of a content that is a list of blocks."""


def read_hermes(folder: ForeignFolder) -> Findings:
    """Return what a home has.

    Blocks while it reads, up to two minutes for each database.
    """
    found = Findings("hermes")
    _add_profile(found, folder, "", "")
    for place in folder.folders("profiles"):
        _add_profile(found, folder, f"{place}/", f"-{sha256(place.encode()).hexdigest()[:8]}")
    add_settings(found, folder, SETTINGS)
    return found


def _add_profile(found: Findings, folder: ForeignFolder, place: str, suffix: str) -> None:
    """Add what a profile has. place: its folder with a slash at the end, "" for the usual one. suffix: of the files of memory."""
    for name, path in (("MEMORY.md", "memory"), ("USER.md", "user")):
        if (text := read_text(found, folder, f"{place}memories/{name}", "memory")) is not None:
            # An entry may have several lines there; it becomes one item of a list here.
            entries = [" ".join(entry.split()) for entry in text.split("\n§\n")]
            items = "\n".join(f"- {entry.removeprefix('- ')}" for entry in entries if entry)
            add_note(found, f"{place}memories/{name}", f"facts/hermes-{path}{suffix}", items)
    add_persona(found, folder, place)
    _add_sessions(found, folder, place)
    for origin, job in each_job(found, folder, f"{place}cron/jobs.json"):
        _add_job(found, origin, job)


# ------------------------------------------------------------------ sessions


def _add_sessions(found: Findings, folder: ForeignFolder, place: str) -> None:
    """Add the sessions of the database, if there is one. One after the other: an error in the middle keeps those before it."""
    name = f"{place}{DATABASE}"
    try:
        with open_database(folder, name) as database:
            if database is not None:
                for session in _sessions(found, database, name):
                    found.sessions.append(session)
    except CannotRead as error:
        found.skip("session", name, str(error))


def _sessions(found: Findings, database: sqlite3.Connection, name: str) -> Iterator[FoundSession]:
    """Yield the sessions, oldest first. Columns that came with later versions may be missing."""
    # The names of columns are constants, so nothing of the database gets into the query.
    columns = columns_of(database, "sessions")
    chat, user = (column if column in columns else "NULL" for column in ("chat_id", "user_id"))
    query = f"SELECT id, source, {chat}, {user} FROM sessions ORDER BY started_at, id"  # noqa: S608
    for id, source, chat_id, user_id in database.execute(query):
        origin = f"{name}: {shown_name(id)}"
        rows = database.execute(
            "SELECT role, content, timestamp, tool_calls, tool_call_id FROM messages WHERE session_id = ? ORDER BY id LIMIT ?",
            (id, MOST_MESSAGES),
        )
        (all_messages,) = database.execute("SELECT count(*) FROM messages WHERE session_id = ?", (id,)).fetchone()
        if all_messages > MOST_MESSAGES:
            found.skip("session", f"{origin}, its end", f"only the first {MOST_MESSAGES:,} messages are read")
        messages = ((role, _decoded(content), ts, _parse(calls), call_id) for role, content, ts, calls, call_id in rows)
        # A session of the terminal has no chat.
        yield session_of(found, origin, str(source or ""), str(chat_id or user_id or ""), messages)


def _decoded(content: object) -> object:
    """Return a content as `entry_of` takes it: a text, or the list of blocks that STRUCTURED announces; None if it is damaged."""
    if isinstance(content, str) and content.startswith(STRUCTURED):
        return _parse(content.removeprefix(STRUCTURED))
    return content


def _parse(text: object) -> object:
    """Return the JSON value of a text, None for a damaged one."""
    try:
        return json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None


# ------------------------------------------------------------------ jobs


def _add_job(found: Findings, origin: str, job: Mapping[str, Any]) -> None:
    """Add a job, or the reason why it is left out.

    A program of that home is never run: it may be anything, and would run with the rights of this agent.
    """
    if job.get("script") or job.get("no_agent"):
        found.skip("job", origin, "it runs a program of that home")
        return
    schedule, address = _schedule(job["schedule"]), _target(job)
    skills, repeat, paused = job.get("skills") or job.get("skill"), job.get("repeat"), []
    if skills:
        paused.append("it uses skills that there may not be here")
    # A job at a fixed time runs once in any case.
    times = repeat.get("times") if isinstance(repeat, dict) else None
    if times and schedule is not None and "at" not in schedule:
        paused.append(f"it was to run {times} times only")
    # These change what the job does. They have no counterpart here that could be set without asking.
    paused += [f"it sets {key} for itself" for key in ("model", "workdir", "context_from") if job.get(key)]
    is_enabled = job.get("enabled", True) is True and job.get("state") != "paused"
    # Each run has a session of its own there, so it is a task here.
    add_job(found, origin, job, job.get("prompt"), schedule, address, paused, kind="task", is_enabled=is_enabled)


def _schedule(given: Mapping[str, Any]) -> Metadata | None:
    """Return a schedule in the words of `draft_job`, None for one that is none of the three kinds. Intervals are in minutes there."""
    match given.get("kind"):
        case "once" if isinstance(given.get("run_at"), str):
            return {"at": given["run_at"]}
        case "interval" if isinstance(given.get("minutes"), int | float) and given["minutes"] > 0:
            return {"every": given["minutes"] * 60.0}
        case "cron" if isinstance(given.get("expr"), str):
            return {"cron": given["expr"]}
    return None


def _target(job: Mapping[str, Any]) -> tuple[str, str]:
    """Return where a job speaks, and why it is paused if that is not known here.

    A result that went to a file only is said on the terminal, where its owner sees it.
    """
    deliver, origin = job.get("deliver") or "local", job.get("origin")
    if deliver == "origin" and isinstance(origin, dict):
        return address_of(origin.get("platform"), origin.get("chat_id"))
    if isinstance(deliver, str) and ":" in deliver:
        type, _, id = deliver.partition(":")
        # Behind a second colon stands a thread, which a job cannot name here.
        return address_of(type, id.partition(":")[0])
    if deliver == "local":
        return "cli:main", "its result was only kept in a file"
    return "cli:main", "it does not say in which chat it speaks"
