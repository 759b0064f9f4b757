"""History of typed messages: a file with one JSON string a line, readable by its owner alone.

The prompt reads it for the keys Up and Ctrl-R. A chat that ends before its messages were sent adds those that are not in it yet, so
that nothing that a person has typed is lost.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from pegasus.terminal.tty import repair_unicode
from pegasus.wire import decode_json, encode_json

HISTORY_KEPT: Final = 1000
"""Entries kept when the file is trimmed, which happens when it is loaded and holds twice as many.

Trimming at every start would rewrite the file each time, and lose an entry that another chat appends in that moment.
"""
LONGEST_ENTRY: Final = 20_000
"""Characters above which a message that was sent is not kept: a pasted document is no command to recall."""


class HistoryFile:
    """History of typed messages in a file.

    Never fails: a history that cannot be read or written is one that is not kept. Each entry is appended with one
    write, so that several chats may share the file. It is not synced; a crash of the machine may lose the last entries.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> list[str]:
        """Return the entries, oldest first; torn and foreign lines are skipped."""
        entries: list[str] = []
        with suppress(OSError):
            lines = self._path.read_bytes().splitlines()
            entries = [entry for line in lines for entry in _parse_entry(line)]
            if len(lines) > 2 * HISTORY_KEPT:
                entries = entries[-HISTORY_KEPT:]
                self._replace(entries)
        return entries

    def append(self, *entries: str) -> None:
        """Append entries, readable by their owner alone: one may be a password that was pasted into the wrong window."""
        with suppress(OSError):
            self._write(self._path, os.O_APPEND, entries)

    def _replace(self, entries: list[str]) -> None:
        """Write the entries into a new file and rename it: a crash leaves the old file or the new one."""
        aside = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        self._write(aside, os.O_TRUNC, entries)
        aside.replace(self._path)

    def _write(self, path: Path, flags: int, entries: Iterable[str]) -> None:
        """Write entries with one call, so that lines of two chats do not mix."""
        text = "".join(encode_json(repair_unicode(entry)) + "\n" for entry in entries)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | flags, 0o600)
        try:
            os.write(file, text.encode())
        finally:
            os.close(file)


def _parse_entry(line: bytes) -> Iterable[str]:
    """Yield the entry of a line, nothing for a line that holds none."""
    with suppress(ValueError):
        entry = decode_json(line)
        if isinstance(entry, str) and entry:
            yield entry
