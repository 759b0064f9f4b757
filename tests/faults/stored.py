"""What is stored, for the checker: read from the tables."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any, LiteralString
from urllib.parse import unquote

import psycopg

from tests.faults.checker import Stored, StoredItem


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
        tasks: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        chats: dict[str, str] = {}
        for id, event, chat in rows(
            "select body::json ->> 'taskId', body::json ->> 'event', body::json #>> '{data,inputMetadata,channel,channelId}' "
            "from pegasus.line join pegasus.file on file.id = line.file where path like 'tasks/%/%' order by path, no"
        ):
            tasks[chats.setdefault(id, f"web:{chat}")][id].append(event)
    return Stored(items, replies, sessions, numbers, tasks)
