"""What is on disk in a home, read strictly: a line that is not JSON fails the test."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Line = dict[str, Any]


def session_path(home: Path) -> Path:
    return home / "data" / "main" / "current.jsonl"


def session(home: Path) -> list[Line]:
    """The lines of the session; [] if there is no file."""
    path = session_path(home)
    return lines(path) if path.exists() else []


def lines(path: Path) -> list[Line]:
    """All lines of a JSONL file, each of which must be whole."""
    content = path.read_bytes()
    assert not content or content.endswith(b"\n"), f"the last line of {path} is torn: {content[-80:]!r}"
    return [json.loads(line) for line in content.splitlines() if line.strip()]


def write_session(home: Path, entries: Iterable[Line | bytes | str]) -> None:
    """A session made by hand; bytes and str stand in the file as they are, without a newline added."""
    path = session_path(home)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(map(_encode, entries)))


def _encode(entry: Line | bytes | str) -> bytes:
    if isinstance(entry, bytes):
        return entry
    return entry.encode() if isinstance(entry, str) else json.dumps(entry).encode() + b"\n"


def open_calls(entries: Iterable[Line]) -> list[str]:
    """Ids of tool calls without a result right behind their turn, and of results without a call: empty if well-formed."""
    wrong: list[str] = []
    due: list[str] = []
    for entry in entries:
        if entry["role"] == "tool":
            if due and due[0] == entry["toolCallId"]:
                due.pop(0)
            else:
                wrong.append(entry["toolCallId"])
        else:
            wrong += due
            due = [call["id"] for call in entry.get("toolCalls", [])]
    return wrong + due
