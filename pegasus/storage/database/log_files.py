"""Inbox and outbox as files and as contents of a database: what becomes of them when they move.

`inbox_contents` and `outbox_contents` replay a file as a start of the journal does, so damage means here what it means there. The way
back, `inbox_file` and `outbox_file`, makes what a rewrite would have left, with the texts of what is done as far as they are known.
Numbers, ids, keys and texts are the same; lines that say nothing more are gone. Reading such a file and making it again gives the
same bytes. Pure, but for `has_messages`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attrs

from pegasus.json_lines import BadLine, Line, scan_lines
from pegasus.messages import Address, ChannelInfo
from pegasus.storage.database.tables import (
    Content,
    InboxItem,
    KnownAddress,
    NewItem,
    Numbers,
    PostedReply,
    ReplyNumbers,
)
from pegasus.storage.directory import Directory
from pegasus.storage.inbox import InboxLog, directory_lines, done_line, ids_lines, message_line
from pegasus.storage.item_queue import MAIN, QueuedItem
from pegasus.storage.leases import chat_owner
from pegasus.storage.outbox import OutboxLog, keys_line, numbering_line
from pegasus.storage.record_log import RecordLog, in_pieces
from pegasus.wire import decode_json, encode_json, encode_line

_NO_MESSAGES: Final = encode_line({"type": "compacted", "lastN": 0})
"""All that the inbox of an agent has which has sent replies, such as codes for strangers, and has accepted no message."""
_NOWHERE = Address("", "")
"""Stands for the address of an item of which only the id is known."""


def inbox_contents(content: bytes, scope: str) -> tuple[list[Content], list[BadLine]]:
    """Return what the file of an inbox says, and the lines that are no records. scope: the setting `agent.scope`."""
    directory, bad = Directory(), list[BadLine]()
    log, items, done = InboxLog(directory), dict[int, InboxItem](), dict[int, int]()
    for line in _replayed(log, content, bad):
        record = line.value
        if record["type"] == "done":
            done[record["n"]] = int(record.get("at", 0))
        elif record["type"] == "message" and (item := log.queue.find(record["n"])) is not None:
            items[item.n] = InboxItem(item.n, _accepted(item, scope, encode_json(record["message"])))
    known = {item.item.dedupe for item in items.values()}
    for digest, n in log.ids.items():
        if (dedupe := f"{digest:016x}") not in known:
            items.setdefault(n, InboxItem(n, NewItem("", _NOWHERE, dedupe, "", MAIN, 0, 0), 0))
    contents: list[Content] = [Numbers(log.last_n)]
    contents += (KnownAddress(address, directory.guest_of(address)) for address in directory)
    for n, found in sorted(items.items()):
        is_open = found.done_at is None and log.queue.is_waiting(n)
        contents.append(found if is_open else attrs.evolve(found, done_at=done.get(n, 0)))
    return contents, bad


def _accepted(item: QueuedItem, scope: str, message: str) -> NewItem:
    """Return an item as a database has it."""
    return NewItem(
        chat_owner(item.address) if scope == "chat" or item.has_own_session else "main",
        item.address,
        f"{item.digest:016x}",
        message,
        item.lane,
        item.priority,
        item.at,
        item.is_owners,
        item.sender,
        is_apart=item.is_apart,
        is_internal=item.is_internal,
    )


def inbox_file(contents: Iterable[Content]) -> bytes:
    """Return a file that says this. Contents of other kinds do not count."""
    numbers, addresses, items = Numbers(0), list[KnownAddress](), list[InboxItem]()
    for content in contents:
        match content:
            case Numbers():
                numbers = content
            case KnownAddress():
                addresses.append(content)
            case InboxItem():
                items.append(content)
    ids = [(int(item.item.dedupe, 16), item.n) for item in items if not item.item.message]
    lines = [encode_line({"type": "compacted", "lastN": numbers.last_n}), *ids_lines(ids)]
    whole = [item for item in items if item.item.message]
    for each in whole:
        item = each.item
        message = decode_json(item.message)
        lines.append(message_line(each.n, item.at, item.lane, item.priority, item.is_owners, message))
    lines += [done_line(each.n, each.done_at) for each in whole if each.done_at is not None]
    heard = ((each.address, each.heard) for each in addresses if each.heard)
    return b"".join([*lines, *directory_lines((each.address for each in addresses), heard)])


def outbox_contents(content: bytes, written: int = 0) -> tuple[list[Content], list[BadLine]]:
    """Return the replies to each address that the file of an outbox knows, and the lines that are no records.

    written: wall clock of the last change of the file, ms. It stands for the time of replies of which only the key is known any more:
    a database forgets keys by their age, and a session that goes on may post the last of them again.
    """
    log, bad, texts = OutboxLog(), list[BadLine](), dict[str, str]()
    for line in _replayed(log, content, bad):
        if line.value["type"] == "reply":
            texts.setdefault(line.value["key"], encode_json(line.value["message"]))
    replies: dict[Address, list[PostedReply]] = {}
    for entry in log.keys.values():
        reply = PostedReply(entry.key, entry.channel, entry.seq, texts.get(entry.key, ""), entry.at or written)
        replies.setdefault(entry.channel.address, []).append(reply)
    contents: list[Content] = []
    for address, sequence in sorted(log.sequences.items(), key=lambda pair: (pair[0].type, pair[0].channel_id)):
        contents.append(ReplyNumbers(address, sequence.last, sequence.acked))
        contents += sorted(replies.get(address, ()), key=lambda reply: reply.seq)
    return contents, bad


def outbox_file(contents: Iterable[Content]) -> bytes:
    """Return a file that says this. Contents of other kinds do not count."""
    numbers, replies, gone = list[bytes](), list[bytes](), list[tuple[str, int, ChannelInfo]]()
    for content in contents:
        match content:
            case ReplyNumbers():
                numbers.append(numbering_line(content.address, content.last, content.acked))
            case PostedReply(message=""):
                gone.append((content.key, content.seq, content.channel))
            case PostedReply():
                message = decode_json(content.message)
                replies.append(encode_line({"type": "reply", "key": content.key, "at": content.at, "message": message}))
    return b"".join([*numbers, *map(keys_line, in_pieces(gone)), *replies])


def _replayed(log: RecordLog[Any], content: bytes, bad: list[BadLine]) -> Iterator[Line]:
    """Apply the records of a file one after the other, and yield each that was applied; add the other lines to `bad`."""
    for line in scan_lines(content):
        if isinstance(line, BadLine):
            bad.append(line)
        elif problem := log.replay(line):
            raw = content[line.offset : line.offset + line.length]
            bad.append(BadLine(line.number, line.offset, raw, problem))
        else:
            yield line


def has_messages(data: Path) -> bool:
    """Return whether the folder data of a home holds messages, from before its agent had a database."""
    with suppress(OSError):
        return (data / InboxLog.path).stat().st_size > len(_NO_MESSAGES)
    return False
