"""A line of a list, for people: as wide as the terminal, and whole where it goes to a file or another program."""

from __future__ import annotations

import shutil
import sys


def fitted(row: str) -> str:
    """The row, or so much of its beginning as the terminal has room for."""
    width = shutil.get_terminal_size().columns
    return row if len(row) <= width or not sys.stdout.isatty() else f"{row[: width - 1]}…"
