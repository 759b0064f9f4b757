"""What was typed, kept in `<home>/history` for the next time: one JSON string a line, readable by its owner alone."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from prompt_toolkit.history import History

from pegasus.terminal.neutral import repair

KEEP = 1000
"""Entries kept when the file is trimmed, which happens at the start once it holds twice as many."""
LONGEST = 20_000
"""Characters above which an entry is remembered for this chat only: a pasted document is no command to recall."""


class HistoryFile(History):
    """Never fails: a history that cannot be read or written is one that is not kept."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def load_history_strings(self) -> Iterable[str]:
        """Newest first; torn and foreign lines are skipped."""
        entries: list[str] = []
        with suppress(OSError):
            lines = self._path.read_bytes().splitlines()
            entries = [entry for line in lines for entry in _parse(line)]
            if len(lines) > 2 * KEEP:
                entries = entries[-KEEP:]
                self._replace(entries)
        return reversed(entries)

    def store_string(self, string: str) -> None:
        if len(string) <= LONGEST:
            with suppress(OSError):
                self._write(self._path, os.O_APPEND, [string])

    def _replace(self, entries: list[str]) -> None:
        fresh = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        self._write(fresh, os.O_TRUNC, entries)
        fresh.replace(self._path)

    def _write(self, path: Path, how: int, entries: list[str]) -> None:
        text = "".join(json.dumps(repair(entry), ensure_ascii=False) + "\n" for entry in entries)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | how, 0o600)
        try:
            os.write(file, text.encode())
        finally:
            os.close(file)


def _parse(line: bytes) -> Iterable[str]:
    with suppress(ValueError):
        entry = json.loads(line)
        if isinstance(entry, str) and entry:
            yield entry
