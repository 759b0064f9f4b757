"""What is stored, for the checker: read from the files of a home, or from the tables."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tests.blackbox.support.files import lines
from tests.faults.checker import Stored, StoredItem


def _address(channel: Any) -> str:
    return f"{channel['type']}:{channel['channelId']}"


def read_files(home: Path) -> Stored:
    """The state of a home on which nobody works, whose logs were not rewritten yet."""
    data = home / "data"
    items: dict[str, list[StoredItem]] = defaultdict(list)
    inbox = lines(data / "inbox" / "inbox.jsonl")
    done = {line["n"] for line in inbox if line["type"] == "done"}
    for line in inbox:
        if line["type"] == "message":
            message = line["message"]
            items[_address(message["channel"])].append(StoredItem(line["n"], message["id"], line["n"] in done))
    replies: dict[str, list[tuple[int, str, str]]] = defaultdict(list)
    for line in lines(data / "outbox" / "outbox.jsonl"):
        if line["type"] == "reply":
            message = line["message"]
            replies[_address(message["channel"])].append((message["seq"], line["key"], message["text"]))
    sessions = {unquote(path.stem): lines(path) for path in sorted((data / "sessions").glob("*.jsonl"))}
    return Stored(items, replies, sessions)
