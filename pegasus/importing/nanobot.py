"""Homes of nanobot (`~/.nanobot`).

workspace/memory/MEMORY.md  HISTORY.md  history.jsonl   notes; a history is one of the two
workspace/USER.md
sessions/<id>/*.jsonl                                   sessions by workspace, named by their key in base64
workspace/sessions/*.jsonl  sessions/*.jsonl            sessions of older versions
workspace/cron/jobs.json  cron/jobs.json                {"version": 1, "jobs": […]}
workspace/cron/action.jsonl  cron/action.jsonl          changes of the jobs that no running nanobot has taken over yet
workspace/SOUL.md AGENTS.md …                           its character
config.json                                             settings and keys

Versions of nanobot differ in where they keep these files, so every place is looked at, and a home may have
files in both. A file that is missing is not mentioned in the report.

A session is one file of JSON lines: a line with metadata, which names the chat, then a line for each message. A
file without that line has the chat in its name, in base64 or, as older versions wrote it, with "_".

A job says where it speaks in one of several fields, or only by the session that it was made in. They are tried
in that order. Jobs that the program makes for itself (`system_event`) mean nothing outside of it and are left
out.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from pegasus.formatting import plural
from pegasus.importing.conversion import (
    SaidPart,
    add_job,
    add_missing_workspace,
    add_note,
    add_notes,
    add_persona,
    add_settings,
    address_of,
    cron_values,
    each_job,
    each_session,
    json_lines,
    read_text,
    session_of,
    shown_name,
)
from pegasus.importing.foreign_home import Findings, ForeignFolder, FoundSession

MARKS: Final = ("config.json", "workspace", "sessions", "cron")
"""Names in such a home."""
SETTINGS: Final = ("config.json", ".env")
"""Files of settings and keys, which are named in the report and not read."""


def read_nanobot(folder: ForeignFolder) -> Findings:
    """Return what a home has.

    Blocks while it reads. Notes come first in the report, settings last.
    """
    found = Findings("nanobot")
    add_notes(found, folder, "workspace/memory/MEMORY.md", "facts/nanobot-memory")
    add_notes(found, folder, "workspace/USER.md", "facts/nanobot-user")
    add_notes(found, folder, "workspace/memory/HISTORY.md", "episodes/nanobot-history")
    _add_history(found, folder, "workspace/memory/history.jsonl")
    add_persona(found, folder, "workspace/")
    for place in ("workspace/sessions", "sessions", *folder.folders("sessions")):
        found.sessions += [_session(found, name, text) for name, text in each_session(found, folder, place)]
    for place in ("workspace/cron", "cron"):
        for origin, job in _jobs(found, folder, place):
            _add_job(found, origin, job)
    add_missing_workspace(found, folder)
    add_settings(found, folder, SETTINGS)
    return found


def _add_history(found: Findings, folder: ForeignFolder, name: str) -> None:
    """Add the history of newer versions: lines of `{"cursor", "timestamp", "content"}`. Lines of other forms are counted."""
    text = read_text(found, folder, name, "memory")
    if text is None:
        return
    lines = list(json_lines(text))
    readable = [line for line in lines if line is not None and isinstance(line.get("content"), str)]
    entries = [f"- {line.get('timestamp', '')} {line['content'].strip()}" for line in readable]
    add_note(found, name, "episodes/nanobot-history", "\n".join(entries))
    if damaged := len(lines) - len(readable):
        found.skip("memory", f"{name} ({plural(damaged, 'line')})", "they are damaged, or of another form")


def _session(found: Findings, origin: str, text: str) -> FoundSession:
    """Return a session. Its first line has the key, `<channel>:<chatId>`; without one it is in the name of the file."""
    type, channel_id = _chat_of(origin.rpartition("/")[2].removesuffix(".jsonl"))
    messages: list[SaidPart | None] = []
    for line in json_lines(text):
        if line is None:
            messages.append(None)
        elif line.get("_type") == "provider_state":
            # What a provider wants back with the next request.
            continue
        elif line.get("_type") == "metadata":
            if isinstance(line.get("key"), str) and ":" in line["key"]:
                # The key holds the id as it is; in the name of the file characters may have been replaced.
                type, _, channel_id = line["key"].partition(":")
        else:
            fields = ("role", "content", "timestamp", "tool_calls", "tool_call_id")
            role, content, ts, calls, call_id = map(line.get, fields)
            messages.append((role, content, ts, calls, call_id))
    return session_of(found, origin, type, channel_id, messages)


def _chat_of(name: str) -> tuple[str, str]:
    """Return channel and chat of a session by the name of its file: the key in base64 without "=", or with "_" in place of ":"."""
    with suppress(ValueError):
        key = b64decode(name + "=" * (-len(name) % 4), b"-_", validate=True).decode()
        # A name of the older form can be base64 by chance, but hardly of a readable key.
        if ":" in key and key.isprintable():
            return key.partition(":")[0], key.partition(":")[2]
    type, _, channel_id = name.partition("_")
    return type, channel_id


def _jobs(found: Findings, folder: ForeignFolder, place: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the jobs of a folder, with the changes beside them: of jobs that were added or deleted while nanobot did not run."""
    name, changes = f"{place}/jobs.json", f"{place}/action.jsonl"
    jobs = dict(each_job(found, folder, name))
    damaged = 0
    for line in json_lines(read_text(found, folder, changes, "job") or ""):
        match line:
            case {"action": "del", "params": {"job_id": id}}:
                jobs.pop(f"{name}: {shown_name(id)}", None)
            case {"params": {"id": id, "schedule": dict()} as job}:
                jobs[f"{name}: {shown_name(id)}"] = job
            case _:
                damaged += 1
    if damaged:
        found.skip("job", f"{changes} ({plural(damaged, 'line')})", "they are damaged, or of another form")
    yield from jobs.items()


def _add_job(found: Findings, origin: str, job: Mapping[str, Any]) -> None:
    """Add a job, or the reason why it is left out.

    It becomes a message to the chat that it speaks in.
    """
    payload: Any = job.get("payload") if isinstance(job.get("payload"), dict) else {}
    if payload.get("kind") == "system_event":
        found.skip("job", origin, "it is a job of the program itself")
        return
    # The session's key is `<channel>:<chatId>`, the last resort for a job that names no chat.
    key = str(payload.get("sessionKey") or payload.get("session_key") or "").partition(":")
    channel = payload.get("channel") or payload.get("originChannel") or payload.get("origin_channel") or key[0]
    to = payload.get("to") or payload.get("originChatId") or payload.get("origin_chat_id") or key[2]
    schedule, lost = cron_values(job.get("schedule"))
    is_enabled = job.get("enabled", True) is True
    add_job(found, origin, job, payload.get("message"), schedule, address_of(channel, to), lost, is_enabled=is_enabled)
