"""The journal: the one actor that writes below `<home>/data`, and what it writes.

Nobody is told that something is accepted, said or kept before it is on disk; see docs/storage.md.
"""

from pegasus.storage.addresses import escape_field
from pegasus.storage.disk import Disk, FileDisk
from pegasus.storage.journal import FLUSH_AFTER, journal
from pegasus.storage.journal import journal as run_journal
from pegasus.storage.jsonl import whole_lines
from pegasus.storage.messages import (
    Accept,
    Accepted,
    Acknowledge,
    Archive,
    ArchiveName,
    Commit,
    Connected,
    Disconnected,
    Done,
    Item,
    JournalMessage,
    KnownAddresses,
    LastSeq,
    Newer,
    NextItem,
    NextReplies,
    Outgoing,
    Overloaded,
    Post,
    Posted,
    PostResult,
    ReadFile,
    ReadFiles,
    ReplaceFile,
    Revoked,
    StorageError,
    Take,
    Unacknowledged,
    Unroutable,
    Waiting,
)
from pegasus.storage.volume import Volume
from pegasus.wire import BadLine, Line, ReadLines, encode_line, number_of, read_lines, text_of
from pegasus.wire import scan_lines as scan

__all__ = [
    "FLUSH_AFTER",
    "Accept",
    "Accepted",
    "Acknowledge",
    "Archive",
    "ArchiveName",
    "BadLine",
    "Commit",
    "Connected",
    "Disconnected",
    "Disk",
    "Done",
    "FileDisk",
    "Item",
    "JournalMessage",
    "KnownAddresses",
    "LastSeq",
    "Line",
    "Newer",
    "NextItem",
    "NextReplies",
    "Outgoing",
    "Overloaded",
    "Post",
    "PostResult",
    "Posted",
    "ReadFile",
    "ReadFiles",
    "ReadLines",
    "ReplaceFile",
    "Revoked",
    "StorageError",
    "Take",
    "Unacknowledged",
    "Unroutable",
    "Volume",
    "Waiting",
    "encode_line",
    "escape_field",
    "journal",
    "number_of",
    "read_lines",
    "run_journal",
    "scan",
    "text_of",
    "whole_lines",
]
