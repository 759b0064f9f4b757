"""What is stored, for the checker: read from the files of a home, or from the tables."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any, LiteralString
from urllib.parse import unquote

import psycopg

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


def read_tables(url: str) -> Stored:
    """The state of a database that nodes share."""
    with psycopg.connect(url) as connection:

        def rows(statement: LiteralString) -> list[tuple[Any, ...]]:
            return connection.execute(statement).fetchall()

        items: dict[str, list[StoredItem]] = defaultdict(list)
        for address, n, id, is_done in rows(
            "select type || ':' || channel_id, n, message::json ->> 'id', done_at is not null from pegasus.item "
            "where message <> '' order by n"
        ):
            items[address].append(StoredItem(n, id, is_done))
        replies: dict[str, list[tuple[int, str, str]]] = defaultdict(list)
        for address, seq, key, text in rows(
            "select type || ':' || channel_id, seq, key, message::json ->> 'text' from pegasus.reply order by seq"
        ):
            replies[address].append((seq, key, text))
        sessions: dict[str, list[Any]] = defaultdict(list)
        numbers: dict[str, list[int]] = defaultdict(list)
        for path, no, body in rows(
            "select path, no, body from pegasus.line join pegasus.file on file.id = line.file "
            "where path like 'sessions/%' order by path, no"
        ):
            address = unquote(path.removeprefix("sessions/").removesuffix(".jsonl"))
            sessions[address].append(json.loads(body))
            numbers[address].append(no)
    return Stored(items, replies, sessions, numbers)
