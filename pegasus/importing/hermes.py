"""Homes of Hermes Agent (`~/.hermes`).

    memories/MEMORY.md  USER.md     notes; entries are separated by lines with "§"
    state.db                        SQLite: tables `sessions` and `messages`
    cron/jobs.json                  {"jobs": […]}
    SOUL.md                         its character
    .env  auth.json  config.yaml    settings and keys

The database is copied before it is opened, with its write-ahead log, so that nothing in the foreign home changes. It is opened
without trust: no code of its schema runs, and a query that takes too long is ended.

What cannot be read is never an error of the import: it is named in the findings with its reason, and the rest goes on. A database
that fails in the middle has given the sessions that were read before. A job that would do something else here than there (it has a
model, a folder or a number of runs of its own) is imported as paused, until its owner has looked at it. One that runs a program of
the foreign home is left out.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
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
from pegasus.importing.foreign_home import CannotRead, Findings, ForeignFolder, FoundSession
from pegasus.messages import Metadata

MARKS: Final = ("config.yaml", "memories", "state.db", "cron")
"""Names in such a home."""
SETTINGS: Final = (".env", "auth.json", "config.yaml")
"""Files of settings and keys, which are named in the report and not read."""
DATABASE: Final = "state.db"
"""Name of the file of all sessions."""
LARGEST_DATABASE: Final = 512 << 20
"""Bytes of the database."""
MOST_MESSAGES: Final = 100_000
"""Messages of one session."""
QUERY_SECONDS: Final = 120.0
"""Seconds that the database may take in all."""
STRUCTURED: Final = "\0json:"
"""Beginning of a content that is a list of blocks."""


def read_hermes(folder: ForeignFolder) -> Findings:
    """Return what a home has.

    Blocks while it reads, up to QUERY_SECONDS for the database.
    """
    found = Findings("hermes")
    for name, path in (("memories/MEMORY.md", "facts/hermes-memory"), ("memories/USER.md", "facts/hermes-user")):
        if (text := read_text(found, folder, name, "memory")) is not None:
            # An entry may have several lines there; it becomes one item of a list here.
            entries = [" ".join(entry.split()) for entry in text.split("\n§\n")]
            add_note(found, name, path, "\n".join(f"- {entry.removeprefix('- ')}" for entry in entries if entry))
    add_persona(found, folder, "")
    _add_sessions(found, folder)
    for origin, job in each_job(found, folder, "cron/jobs.json"):
        _add_job(found, origin, job)
    add_settings(found, folder, SETTINGS)
    return found


# ------------------------------------------------------------------ sessions


def _add_sessions(found: Findings, folder: ForeignFolder) -> None:
    """Add the sessions of the database, if there is one.

    It is copied together with its write-ahead log, because the last messages may be in the log alone. The copy
    is deleted at the end, also after an error.
    """
    try:
        content = folder.content(DATABASE, LARGEST_DATABASE)
        log = folder.content(f"{DATABASE}-wal", LARGEST_DATABASE)
    except CannotRead as error:
        found.skip("session", DATABASE, str(error))
        return
    if content is None:
        return
    with tempfile.TemporaryDirectory(prefix="pegasus-import-") as temporary:
        copy = Path(temporary) / DATABASE
        copy.write_bytes(content)
        if log:
            copy.with_name(f"{DATABASE}-wal").write_bytes(log)
        try:
            with closing(sqlite3.connect(copy)) as database:
                _guard(database)
                for session in _sessions(found, database):
                    # One after the other: an error in the middle keeps those before it.
                    found.sessions.append(session)
        except (sqlite3.Error, UnicodeError, OverflowError) as error:
            found.skip("session", DATABASE, f"it cannot be read ({error})")


def _guard(database: sqlite3.Connection) -> None:
    """Make a foreign database harmless. After QUERY_SECONDS in all, each query fails with sqlite3.OperationalError.

    Without a trusted schema, its views and triggers can call no function with effects (https://sqlite.org/pragma.html). Texts that are
    no UTF-8 are read with replacements instead of ending the import.
    """
    end = time.monotonic() + QUERY_SECONDS
    database.text_factory = lambda data: data.decode("utf-8", "replace")
    database.execute("PRAGMA trusted_schema = OFF")
    database.set_progress_handler(lambda: int(time.monotonic() > end), 100_000)


def _sessions(found: Findings, database: sqlite3.Connection) -> Iterator[FoundSession]:
    """Yield the sessions, oldest first. Columns that came with later versions may be missing."""
    # The name of the column is one of three constants, so nothing of the database gets into the query.
    columns = {row[1] for row in database.execute("PRAGMA table_info(sessions)")}
    chat = "chat_id" if "chat_id" in columns else "user_id" if "user_id" in columns else "NULL"
    for id, source, channel_id in database.execute(f"SELECT id, source, {chat} FROM sessions ORDER BY started_at, id"):  # noqa: S608
        rows = database.execute(
            "SELECT role, content, timestamp, tool_calls, tool_call_id FROM messages WHERE session_id = ? ORDER BY id LIMIT ?",
            (id, MOST_MESSAGES),
        )
        messages = ((role, _decoded(content), ts, _parse(calls), call_id) for role, content, ts, calls, call_id in rows)
        origin = f"{DATABASE}: {shown_name(id)}"
        # A session of the terminal has no chat.
        yield session_of(found, origin, str(source or ""), str(channel_id or ""), messages)


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
