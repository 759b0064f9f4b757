"""Homes of OpenClaw (`~/.openclaw`).

workspace/MEMORY.md  USER.md  memory/YYYY-MM-DD.md     notes; workspace-<id>/ of further agents
agents/<id>/agent/openclaw-agent.sqlite                sessions (`openclaw_store`)
agents/<id>/sessions/<sessionId>.jsonl                 sessions until 2026.5; sessions.json says to which chat each belongs
state/openclaw.sqlite                                  jobs (`openclaw_store`)
cron/jobs.json                                         jobs until 2026.5: {"version": 1, "jobs": […]}
workspace/SOUL.md AGENTS.md IDENTITY.md …              its character
openclaw.json  credentials/  agents/<id>/agent/        settings and keys

A home may have several agents, each with sessions of its own. Those of all of them are imported.

Long-term notes become facts, and daily notes become episodes, which is what they are called here. A session's
file does not say in which chat it was held. The index beside it does, for the sessions that are current; older
ones are imported without a chat.

A job has a session, a payload and a delivery. From these follow its kind and its chat: a job in the main
session is a message there, one in a session of its own is a task. What a job sets for itself (a model, a time
limit) has no counterpart, so such a job is imported as paused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, Final

from pegasus.importing.conversion import (
    SaidPart,
    add_job,
    add_missing_workspace,
    add_notes,
    add_persona,
    add_settings,
    address_of,
    cron_values,
    each_job,
    each_session,
    json_lines,
    json_object,
    session_of,
    time_of,
)
from pegasus.importing.foreign_home import CannotRead, Findings, ForeignFolder
from pegasus.importing.openclaw_store import stored_jobs_of, stored_sessions

MARKS: Final = ("openclaw.json", "workspace", "agents", "cron", "state")
"""Names in such a home."""
_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
"""Name of a daily note."""
_NOTES: Final = (
    "session",
    "model_change",
    "thinking_level_change",
    "compaction",
    "branch_summary",
    "custom",
    "label",
    "session_info",
)
"""Types of the lines of a session that are no messages."""
SETTINGS: Final = ("openclaw.json", "credentials", ".env", "auth-profiles.json")
"""Files of settings and keys, which are named in the report and not read."""


def read_openclaw(folder: ForeignFolder) -> Findings:
    """Return what a home has.

    A single file that cannot be read is left out. Raises CannotRead if `workspace/memory` or `agents` is a link
    or cannot be listed, since nothing could be said about what is in it.
    """
    found = Findings("openclaw")
    workspaces = [path for path in folder.folders("") if path.startswith("workspace")]
    for place in dict.fromkeys(("workspace", *workspaces)):
        _add_workspace(found, folder, place)
    for agent in folder.names("agents", ""):
        _add_sessions(found, folder, agent)
    for origin, job in (*each_job(found, folder, "cron/jobs.json"), *stored_jobs_of(found, folder)):
        _add_job(found, origin, job)
    add_missing_workspace(found, folder)
    add_settings(found, folder, SETTINGS)
    return found


def _add_workspace(found: Findings, folder: ForeignFolder, place: str) -> None:
    """Add the notes of a workspace. Further agents have further ones, with files of the same names."""
    suffix = "" if place == "workspace" else f"-{_short_hash(place)}"
    add_notes(found, folder, f"{place}/MEMORY.md", f"facts/openclaw-memory{suffix}")
    add_notes(found, folder, f"{place}/USER.md", f"facts/openclaw-user{suffix}")
    days = folder.names(f"{place}/memory", ".md")
    for name in (*days, *(name for name in folder.files(f"{place}/memory", ".md") if name not in days)):
        day = name.rpartition("/")[2].removesuffix(".md")
        # A name of other words stays out: the index of memory shows it to every conversation.
        is_day = name in days and _DAY.fullmatch(day)
        add_notes(found, folder, name, f"episodes/openclaw{suffix}-{day if is_day else f'note-{_short_hash(name)}'}")
    add_persona(found, folder, f"{place}/")


def _short_hash(name: str) -> str:
    return sha256(name.encode("utf-8", "replace")).hexdigest()[:8]


def _add_sessions(found: Findings, folder: ForeignFolder, agent: str) -> None:
    """Add the sessions of an agent, those of its database first. agent: its folder.

    The index of the files is read before them; without one none of them has a chat. If there is one that cannot be read, all files
    are left out: a session that was imported without its chat is not imported again.
    """
    stored = set()
    for origin, session, key, lines in stored_sessions(found, folder, agent):
        stored.add(session)
        found.sessions.append(session_of(found, origin, *_chat_of(key), _messages(lines)))
    place = f"{agent}/sessions"
    index = f"{place}/sessions.json"
    try:
        text = folder.text(index) or ""
        chats = _chats(text)
    except CannotRead as error:
        found.skip("session", index, str(error))
        return
    if text.strip() and json_object(text) is None:
        found.skip("session", index, "it is damaged, so the chats of the sessions beside it are not known")
    for name, text in each_session(found, folder, place, "*.jsonl*"):
        # The file is named by the session's id. What was there before `/new` has a time behind its name.
        session, _, when = name.rpartition("/")[2].partition(".jsonl")
        if session in stored and not when:
            found.skip("session", name, "it is in the database of the agent, too")
        elif when and not when.startswith(".reset."):
            found.skip("session", name, "it was deleted there, or is an older copy")
        else:
            found.sessions.append(session_of(found, name, *chats.get(session, ("", "")), _messages(text)))


def _chats(index: str) -> dict[str, tuple[str, str]]:
    """Return channel type and chat of each session by its id. A key is as `agent:main:telegram:direct:42` or `agent:main:main`."""
    chats = {}
    for key, entry in (json_object(index) or {}).items():
        if not (isinstance(entry, dict) and isinstance(entry.get("sessionId"), str)):
            continue
        chats[entry["sessionId"]] = _chat_of(key)
        if isinstance(file := entry.get("sessionFile"), str):
            # That of a thread has its number behind the id.
            chats[file.rpartition("/")[2].removesuffix(".jsonl")] = _chat_of(key)
    return chats


def _chat_of(key: str) -> tuple[str, str]:
    """Return channel type and chat of a session's key; ("", "") for one without a chat, such as the main one."""
    parts = key.split(":")
    # A chat's id may hold colons itself.
    return (parts[2], ":".join(parts[4:])) if len(parts) >= 5 and parts[0] == "agent" else ("", "")


def _messages(text: str) -> Iterator[SaidPart | None]:
    """Yield the messages of a session.

    Notes of the program (a model was changed, a context was compacted) are not counted; damaged lines and those of other types are.
    """
    for line in json_lines(text):
        message = line.get("message") if line is not None else None
        if line is None or not isinstance(message, dict):
            if line is None or line.get("type") not in _NOTES:
                yield None
            continue
        # Calls stand among the blocks of text, with the arguments as an object.
        content = message.get("content")
        calls = [block for block in content if _is_call(block)] if isinstance(content, list) else None
        # Either of the two times may be missing.
        ts = time_of(message.get("timestamp")) or line.get("timestamp")
        yield message.get("role"), content, ts, calls, message.get("toolCallId")


def _is_call(block: object) -> bool:
    """Return whether a block of a message is a call of a tool, in the words of either format."""
    return isinstance(block, dict) and block.get("type") in ("toolCall", "tool_use")


def _add_job(found: Findings, origin: str, job: Mapping[str, Any]) -> None:
    """Add a job, or the reason why it is left out."""
    payload: Any = job.get("payload") if isinstance(job.get("payload"), dict) else {}
    if payload.get("kind") == "heartbeat":
        found.skip("job", origin, "it is a job of the program itself")
        return
    delivery: Any = job.get("delivery") if isinstance(job.get("delivery"), dict) else {}
    channel, to = delivery.get("channel", payload.get("channel")), delivery.get("to", payload.get("to"))
    # The main session's home is the terminal here.
    is_main = payload.get("kind") == "systemEvent" and not channel
    schedule, paused = cron_values(job.get("schedule"))
    # Here every job speaks in a chat, so its owner decides whether it should.
    if delivery.get("mode") in ("none", "webhook"):
        paused.append(f"its result goes to {'a webhook' if delivery['mode'] == 'webhook' else 'nobody'} there")
    paused += [f"it sets {key} for itself" for key in ("model", "thinking", "timeoutSeconds") if payload.get(key)]
    add_job(
        found,
        origin,
        job,
        payload.get("text") or payload.get("message"),
        schedule,
        ("cli:main", "") if is_main else address_of(channel, to),
        paused,
        kind="task" if job.get("sessionTarget") == "isolated" else "message",
        # A job that does not say that it is enabled is paused, too: its owner can let it go on.
        is_enabled=job.get("enabled") is True,
    )
