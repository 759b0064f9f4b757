"""Small homes of other agents, as they write them."""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

FAKE_KEY = f"sk-ant-api03-{'Ab1_' * 12}"
"""It has the format of a key."""


def write(path: Path, content: str | object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def write_lines(path: Path, *lines: object) -> Path:
    return write(path, "".join(json.dumps(line) + "\n" for line in lines))


def openclaw_home(path: Path, *jobs: object) -> Path:
    write(path / "openclaw.json", {"channels": {"telegram": {"botToken": "123:secret-of-the-bot"}}})
    write(path / "workspace/MEMORY.md", f"# Memory\n\n- Likes tea\n- The key is {FAKE_KEY}\n")
    write(path / "workspace/USER.md", "- Name: Ann\n")
    write(path / "workspace/SOUL.md", "Be kind.\n")
    write(path / "workspace/memory/2026-02-06.md", "Met Bob in Vienna.\n")
    sessions = path / "agents/main/sessions"
    write(sessions / "sessions.json", {"agent:main:telegram:direct:42": {"sessionId": "s1", "updatedAt": 1}})
    write_lines(
        sessions / "s1.jsonl",
        {"type": "session", "version": 3, "id": "s1", "timestamp": "2026-02-06T07:49:00.000Z", "cwd": "/x"},
        message("user", [{"type": "text", "text": "where is the giraffe?"}], 1770364143489),
        message(
            "assistant",
            [
                {"type": "thinking", "thinking": "hm"},
                {"type": "toolCall", "id": "c1", "name": "look", "arguments": {"where": "zoo"}},
            ],
            1770364144000,
        ),
        message("toolResult", [{"type": "text", "text": "in the zoo"}], 1770364145000, toolCallId="c1"),
        message("assistant", [{"type": "text", "text": "In the zoo."}, {"type": "image", "data": "…"}], 1770364146000),
    )
    write(path / "cron/jobs.json", {"version": 1, "jobs": list(jobs)})
    return path


OPENCLAW_TABLES = """
CREATE TABLE session_windows (session_id TEXT NOT NULL PRIMARY KEY, session_key TEXT NOT NULL, created_at INTEGER NOT NULL) STRICT;
CREATE TABLE transcript_events (
    session_id TEXT NOT NULL, seq INTEGER NOT NULL, event_json TEXT, created_at INTEGER NOT NULL, event_zstd BLOB,
    navigation_json TEXT, PRIMARY KEY (session_id, seq), CHECK (navigation_json IS NULL OR json_valid(navigation_json))
) STRICT;
CREATE TABLE session_transcript_cold_archives (
    session_id TEXT NOT NULL PRIMARY KEY, archive_name TEXT NOT NULL UNIQUE, storage TEXT NOT NULL, archive_blob BLOB
) STRICT;
"""
OPENCLAW_JOBS = """
CREATE TABLE cron_jobs (store_key TEXT NOT NULL, job_id TEXT NOT NULL, enabled INTEGER NOT NULL, job_json TEXT NOT NULL) STRICT;
"""


def openclaw_store(path: Path, *jobs: dict[str, Any]) -> Path:
    """Return the home as versions since 2026.6 have it: sessions and jobs are in databases, and long events are compressed."""
    openclaw_home(path)
    sessions, database = path / "agents/main/sessions", path / "agents/main/agent/openclaw-agent.sqlite"
    lines = (sessions / "s1.jsonl").read_text().splitlines()
    (sessions / "s1.jsonl").unlink()
    (sessions / "sessions.json").unlink()
    (path / "cron/jobs.json").unlink()
    (sessions / "cold").mkdir()
    (sessions / "cold/ab12.jsonl.zst").write_bytes(zstd.compress("\n".join(lines[:2]).encode()))
    database.parent.mkdir()
    with closing(sqlite3.connect(database)) as agent:
        agent.executescript(OPENCLAW_TABLES)
        agent.execute("INSERT INTO session_windows VALUES ('s1', 'agent:main:telegram:direct:42', 1)")
        agent.execute("INSERT INTO session_transcript_cold_archives VALUES ('s1', 'ab12.jsonl.zst', 'file', NULL)")
        for seq, line in enumerate(lines[2:]):
            row = (line, 1, None, None) if seq != 1 else (None, 1, zstd.compress(line.encode()), "{}")
            agent.execute("INSERT INTO transcript_events VALUES ('s1', ?, ?, ?, ?, ?)", (seq, *row))
        agent.commit()
    (path / "state").mkdir()
    with closing(sqlite3.connect(path / "state/openclaw.sqlite")) as state:
        state.executescript(OPENCLAW_JOBS)
        for job in jobs:
            row = (job["id"], int(job["enabled"]), json.dumps(job))
            state.execute("INSERT INTO cron_jobs VALUES ('default', ?, ?, ?)", row)
        state.commit()
    return path


def message(role: str, content: object, ts: int, **more: Any) -> dict[str, object]:
    inner = {"role": role, "content": content, "timestamp": ts, **more}
    return {"type": "message", "id": "e", "parentId": None, "timestamp": "2026-02-06T07:49:03.491Z", "message": inner}


def openclaw_job(id: str, schedule: object, **more: Any) -> dict[str, Any]:
    return {
        "id": id,
        "name": id,
        "enabled": True,
        "createdAtMs": 1,
        "updatedAtMs": 1,
        "schedule": schedule,
        "sessionTarget": "isolated",
        "wakeMode": "now",
        "payload": {"kind": "agentTurn", "message": f"do {id}"},
        "delivery": {"mode": "announce", "channel": "telegram", "to": "42"},
        "state": {},
        **more,
    }


def nanobot_home(path: Path, *jobs: object) -> Path:
    write(path / "config.json", {"providers": {"anthropic": {"apiKey": "sk-ant-secret"}}})
    write(path / "workspace/memory/MEMORY.md", "Likes coffee.\n")
    write(path / "workspace/memory/HISTORY.md", "[2026-02-06 07:49] Talked about giraffes.\n")
    write_lines(
        path / "workspace/sessions/telegram_42.jsonl",
        {"_type": "metadata", "key": "telegram:42", "created_at": "2026-02-06T07:49:00", "metadata": {}},
        {"role": "user", "content": "where is the okapi?", "timestamp": "2026-02-06T07:49:03.491000"},
        {
            "role": "assistant",
            "content": "",
            "timestamp": "2026-02-06T07:49:04",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"a": 1}'}}],
        },
        {"role": "tool", "tool_call_id": "c1", "name": "look", "content": "there", "timestamp": "2026-02-06T07:49:05"},
        {"role": "assistant", "content": "There.", "timestamp": "2026-02-06T07:49:06"},
    )
    write(path / "cron/jobs.json", {"version": 1, "jobs": list(jobs)})
    return path


def nanobot_job(id: str, schedule: object, **payload: Any) -> dict[str, Any]:
    given = {"kind": "agent_turn", "message": f"do {id}", "deliver": True, "channel": "telegram", "to": "42", **payload}
    return {"id": id, "name": id, "enabled": True, "schedule": schedule, "payload": given, "state": {}}


def nanobot_workspaces(path: Path, *jobs: dict[str, Any]) -> Path:
    """Return the home as versions since 0.3 have it: sessions by workspace, and jobs that no running nanobot has taken over yet."""
    nanobot_home(path)
    sessions = path / "sessions/fb833a3227ea5ffc3c3eb427739e8869"
    sessions.mkdir(parents=True)
    (path / "workspace/sessions/telegram_42.jsonl").rename(sessions / "dGVsZWdyYW06NDI.jsonl")
    (path / "workspace/sessions").rmdir()
    write(sessions / ".workspace", f"{path}/workspace\n")
    write(sessions / ".session-files.lock", "")
    (path / "cron/jobs.json").unlink()
    write_lines(path / "workspace/cron/action.jsonl", *({"action": "add", "params": job} for job in jobs))
    return path


HERMES_TABLES = """
CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT NOT NULL, user_id TEXT, chat_id TEXT, title TEXT, started_at REAL NOT NULL);
CREATE TABLE messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, role TEXT NOT NULL, content TEXT, tool_call_id TEXT,
    tool_calls TEXT, tool_name TEXT, timestamp REAL NOT NULL
);
"""


def hermes_home(path: Path, *jobs: object, wal: bool = False) -> Path:
    write(path / ".env", "ANTHROPIC_API_KEY=sk-ant-secret\n")
    write(path / "memories/MEMORY.md", "Likes water.\n§\nWorks at\nnight.\n")
    write(path / "memories/USER.md", "Name: Ann\n")
    with closing(sqlite3.connect(path / "state.db")) as database:
        if wal:
            database.execute("PRAGMA journal_mode = WAL")
        database.executescript(HERMES_TABLES)
        database.execute("INSERT INTO sessions VALUES ('s1', 'telegram', 'u1', '42', 'Zoo', 1770364143.4)")
        rows = [
            ("user", "where is the tapir?", None, None),
            ("assistant", "", None, '[{"id": "c1", "function": {"name": "look", "arguments": "{}"}}]'),
            ("tool", "here", "c1", None),
            ("assistant", '\0json:[{"type": "text", "text": "Here."}]', None, None),
        ]
        for number, (role, content, call_id, calls) in enumerate(rows):
            database.execute(
                "INSERT INTO messages (session_id, role, content, tool_call_id, tool_calls, timestamp) VALUES ('s1', ?, ?, ?, ?, ?)",
                (role, content, call_id, calls, 1770364143.4 + number),
            )
        database.commit()
    write(path / "cron/jobs.json", {"jobs": list(jobs), "updated_at": "2026-02-06T07:49:00"})
    return path


def hermes_job(id: str, schedule: object, **more: Any) -> dict[str, Any]:
    return {
        "id": id,
        "name": id,
        "prompt": f"do {id}",
        "skills": [],
        "schedule": schedule,
        "repeat": {"times": None, "completed": 0},
        "enabled": True,
        "state": "scheduled",
        "deliver": "origin",
        "origin": {"platform": "telegram", "chat_id": "42"},
        **more,
    }
