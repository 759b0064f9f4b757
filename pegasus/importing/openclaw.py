"""Homes of OpenClaw (`~/.openclaw`).

workspace/MEMORY.md  USER.md  memory/YYYY-MM-DD.md     notes
agents/<id>/sessions/<sessionId>.jsonl                 sessions; sessions.json says to which chat each belongs
cron/jobs.json                                         {"version": 1, "jobs": […]}
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

MARKS: Final = ("openclaw.json", "workspace", "agents", "cron")
"""Names in such a home."""
_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
"""Name of a daily note."""
SETTINGS: Final = ("openclaw.json", "credentials", ".env", "auth-profiles.json")
"""Files of settings and keys, which are named in the report and not read."""


def read_openclaw(folder: ForeignFolder) -> Findings:
    """Return what a home has.

    A single file that cannot be read is left out. Raises CannotRead if `workspace/memory` or `agents` is a link
    or cannot be listed, since nothing could be said about what is in it.
    """
    found = Findings("openclaw")
    add_notes(found, folder, "workspace/MEMORY.md", "facts/openclaw-memory")
    add_notes(found, folder, "workspace/USER.md", "facts/openclaw-user")
    for name in folder.names("workspace/memory", ".md"):
        add_notes(found, folder, name, f"episodes/openclaw-{_episode(name)}")
    add_persona(found, folder, "workspace/")
    for agent in folder.names("agents", ""):
        _add_sessions(found, folder, f"{agent}/sessions")
    for origin, job in each_job(found, folder, "cron/jobs.json"):
        _add_job(found, origin, job)
    add_settings(found, folder, SETTINGS)
    return found


def _episode(name: str) -> str:
    """Return the name of a daily note, and for others one without their words: the index of memory shows it to every conversation."""
    day = name.rpartition("/")[2].removesuffix(".md")
    return day if _DAY.fullmatch(day) else f"note-{sha256(name.encode()).hexdigest()[:8]}"


def _add_sessions(found: Findings, folder: ForeignFolder, place: str) -> None:
    """Add the sessions of an agent. The index is read first; without one no session has a chat.

    If there is one that cannot be read, all are left out: a session that was imported without its chat is not imported again.
    """
    index = f"{place}/sessions.json"
    try:
        chats = _chats(folder.text(index) or "")
    except CannotRead as error:
        found.skip("session", index, str(error))
        return
    for name, text in each_session(found, folder, place):
        # The file is named by the session's id.
        session = name.rpartition("/")[2].removesuffix(".jsonl")
        type, channel_id = chats.get(session, ("", ""))
        found.sessions.append(session_of(found, name, type, channel_id, _messages(text)))


def _chats(index: str) -> dict[str, tuple[str, str]]:
    """Return channel type and chat of each session by its id. A key is as `agent:main:telegram:direct:42` or `agent:main:main`."""
    chats = {}
    for key, entry in (json_object(index) or {}).items():
        if not (isinstance(entry, dict) and isinstance(entry.get("sessionId"), str)):
            continue
        parts = key.split(":")
        # A key with fewer parts is that of a session without a chat, such as the main one. A chat's id may hold
        # colons itself.
        if len(parts) >= 5 and parts[0] == "agent":
            chats[entry["sessionId"]] = parts[2], ":".join(parts[4:])
    return chats


def _messages(text: str) -> Iterator[SaidPart | None]:
    """Yield the messages of a session.

    Lines without a message are notes of the program (a model was changed, a context was compacted) and are not counted.
    """
    for line in json_lines(text):
        message = line.get("message") if line is not None else None
        if line is None or not isinstance(message, dict):
            if line is None:
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
