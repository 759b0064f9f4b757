"""Writes the tables of docs/compatibility.md: what was tried, with what result, as the tests say it.

A test, or a case of one, is marked with `@pytest.mark.tried(area, what, result)`. Pytest collects the marks of all files that have
such a mark, without running a test. Whether the results are true is what the tests show when they run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "compatibility.md"
BEGIN: Final = "<!-- tables: ./scripts/compatibility -->\n"
"""Line behind which the tables stand, up to the end of the page."""
AREAS: Final = {
    "models": "Models and their servers",
    "services": "Chat services",
    "skills": "Skills",
    "mcp": "MCP servers",
    "clients": "Clients of the API",
    "homes": "Homes of other agents",
    "files": "Files that people attach",
    "databases": "Databases of several nodes",
}
"""Headings by area, in their order."""
_ROWS: Final = "PEGASUS_TRIED_ROWS"
"""Environment variable with the file that the collected rows are written to."""

Row = tuple[str, str, str, str]
"""Area, what was tried, result, file of the test."""


def pytest_collection_finish(session: pytest.Session) -> None:
    """Write the marks of all collected tests, where this module is a plugin of pytest."""
    rows = (
        (*mark.args, item.path.relative_to(ROOT).as_posix())
        for item in session.items
        for mark in item.iter_markers("tried")
    )
    Path(os.environ[_ROWS]).write_text("\n".join("\t".join(row) for row in rows), "utf-8")


def collect_rows(folder: Path) -> list[Row]:
    """Return the rows of all marked tests, sorted, each once. folder: for a temporary file. Raises CalledProcessError."""
    files = sorted(path for path in (ROOT / "tests").rglob("test_*.py") if "mark.tried(" in path.read_text("utf-8"))
    found = folder / "rows"
    command = [sys.executable, "-m", "pytest", "-p", "scripts.compatibility", "-n", "0", "--collect-only", "-qq"]
    environment = {**os.environ, _ROWS: str(found), "PYTHONPATH": str(ROOT)}
    subprocess.run([*command, *map(str, files)], cwd=ROOT, env=environment, check=True, capture_output=True)
    rows = {tuple(line.split("\t")) for line in found.read_text("utf-8").splitlines()}
    return sorted((area, what, result, test) for area, what, result, test in rows)


def format_tables(rows: list[Row]) -> str:
    """Return the tables as Markdown. Raises ValueError for a row of an area that has no heading."""
    if unknown := {row[0] for row in rows} - set(AREAS):
        raise ValueError(f"areas: found {', '.join(sorted(unknown))}; allowed: {', '.join(AREAS)}")
    parts = []
    for area, heading in AREAS.items():
        lines = [f"| {what} | {result} | `{test}` |" for each, what, result, test in rows if each == area]
        if lines:
            parts.append("\n".join([f"## {heading}", "", "| tried | result | test |", "|---|---|---|", *lines]))
    return "\n\n".join(parts) + "\n"


def format_page(folder: Path) -> str:
    """Return the whole page as it should be. folder: for a temporary file."""
    head, _, _ = PAGE.read_text("utf-8").partition(BEGIN)
    return f"{head}{BEGIN}\n{format_tables(collect_rows(folder))}"


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as temporary:
        PAGE.write_text(format_page(Path(temporary)), "utf-8")
