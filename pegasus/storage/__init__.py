"""The journal: the one actor that writes below `<home>/data`, and what it writes.

Nobody is told that something is accepted, said or kept before it is on disk; see docs/storage.md.
"""

from pegasus.storage.addresses import escape_field
from pegasus.storage.disk import Disk, FileDisk
from pegasus.storage.journal import journal
from pegasus.storage.jsonl import BadLine, ReadLines, encode_line, read_lines
from pegasus.storage.messages import StorageError

__all__ = [
    "BadLine",
    "Disk",
    "FileDisk",
    "ReadLines",
    "StorageError",
    "encode_line",
    "escape_field",
    "journal",
    "read_lines",
]
