"""The databases of OpenClaw since 2026.6, which took the place of its files of sessions and jobs.

    agents/<id>/agent/openclaw-agent.sqlite     sessions of an agent: `session_windows`, `transcript_events`
    agents/<id>/sessions/cold/<hash>.jsonl.zst  older parts of sessions, which `session_transcript_cold_archives` names
    state/openclaw.sqlite                       jobs: `cron_jobs`

An event is what a line of a session's file was before, as JSON text or compressed by zstd, and a job what an entry of
`cron/jobs.json` was.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pegasus.importing.conversion import json_object, shown_name
from pegasus.importing.databases import columns_of, open_database
from pegasus.importing.foreign_home import LARGEST_SESSION, CannotRead, Findings, ForeignFolder

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

AGENT: Final = "agent/openclaw-agent.sqlite"
"""Database of an agent, below its folder."""
STATE: Final = "state/openclaw.sqlite"
"""Database of all agents."""
LARGEST_EVENT: Final = 4 << 20
"""Bytes of an event, as OpenClaw itself bounds them."""
_TABLES: Final = ("session_windows", "sessions")
"""Tables with a key for each session, in versions from new to old."""


def stored_sessions(found: Findings, folder: ForeignFolder, agent: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield origin, id, key and lines of each session. agent: its folder, "agents/main". What cannot be read is left out."""
    name = f"{agent}/{AGENT}"
    try:
        with open_database(folder, name) as database:
            if database is None:
                return
            if not {"session_id", "seq", "event_json"} <= columns_of(database, "transcript_events"):
                raise CannotRead("it has no table of sessions that this import knows")
            keys = _keys(database)
            for id in sorted(keys):
                origin = f"{name}: {shown_name(id)}"
                lines = [*_cold_lines(found, folder, database, agent, id, origin), *_events(database, id)]
                yield origin, id, keys[id], "\n".join(lines)
    except CannotRead as error:
        found.skip("session", name, str(error))


def _keys(database: sqlite3.Connection) -> dict[str, str]:
    """Return the key of each session by its id, "" where it is not known."""
    keys = {str(row[0]): "" for row in database.execute("SELECT DISTINCT session_id FROM transcript_events")}
    for table in reversed(_TABLES):
        if {"session_id", "session_key"} <= columns_of(database, table):
            # The name is one of two constants.
            rows = database.execute(f"SELECT session_id, session_key FROM {table}")  # noqa: S608
            keys.update({str(id): str(key or "") for id, key in rows})
    return keys


def _events(database: sqlite3.Connection, id: str) -> Iterator[str]:
    """Yield the events of a session as lines of JSON. One that cannot be unpacked is a line that is no JSON, which is counted."""
    packed = "event_zstd" if "event_zstd" in columns_of(database, "transcript_events") else "NULL"
    size = 0
    query = f"SELECT event_json, {packed} FROM transcript_events WHERE session_id = ? ORDER BY seq"  # noqa: S608
    for text, blob in database.execute(query, (id,)):
        line = text if isinstance(text, str) else _unpacked(blob, LARGEST_EVENT)
        size += len(line)
        if size > LARGEST_SESSION:
            yield "too long"
            return
        # A line break between the parts of an event would make two lines of it.
        yield line.replace("\n", " ")


def _cold_lines(
    found: Findings, folder: ForeignFolder, database: sqlite3.Connection, agent: str, id: str, origin: str
) -> list[str]:
    """Return the lines of a session that were moved out of the table of events."""
    columns = columns_of(database, "session_transcript_cold_archives")
    if not {"session_id", "archive_name", "archive_blob"} <= columns:
        return []
    query = "SELECT archive_name, archive_blob FROM session_transcript_cold_archives WHERE session_id = ?"
    lines: list[str] = []
    for name, content in database.execute(query, (id,)):
        try:
            if content is None and "/" not in str(name):
                content = folder.content(f"{agent}/sessions/cold/{name}", LARGEST_SESSION)
        except CannotRead as error:
            found.skip("session", f"{origin}, its older part", str(error))
            continue
        lines += _unpacked(content, LARGEST_SESSION).split("\n")
    return lines


def _unpacked(content: object, limit: int) -> str:
    """Return a text that was compressed by zstd; a word that is no JSON if it is damaged or larger than `limit`."""
    try:
        unpacker = zstd.ZstdDecompressor()
        text = unpacker.decompress(content if isinstance(content, bytes) else b"", limit)
        return text.decode("utf-8", "replace") if unpacker.eof else "damaged"
    except (zstd.ZstdError, ValueError, MemoryError):
        return "damaged"


def stored_jobs_of(found: Findings, folder: ForeignFolder) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the jobs of the database with a name for people each. What cannot be read is left out."""
    try:
        with open_database(folder, STATE) as database:
            if database is None:
                return
            if not {"job_id", "job_json", "enabled"} <= columns_of(database, "cron_jobs"):
                raise CannotRead("it has no table of jobs that this import knows")
            for id, text, is_enabled in database.execute(
                "SELECT job_id, job_json, enabled FROM cron_jobs ORDER BY job_id"
            ):
                origin, job = f"{STATE}: {shown_name(id)}", json_object(text) if isinstance(text, str) else None
                if job is None or not isinstance(job.get("schedule"), dict):
                    found.skip("job", origin, "it is no job with a schedule")
                else:
                    yield origin, {"enabled": is_enabled == 1, **job}
    except CannotRead as error:
        found.skip("job", STATE, str(error))
