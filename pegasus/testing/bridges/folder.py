"""A folder as a service: files in `in` are messages, files in `out` replies. `examples/folder_bridge.sh` is its bridge."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from pegasus.testing.bridges.service import BridgeService
from pegasus.testing.bridges.steps import StepPoints


class FolderService(BridgeService):
    """The folder, whose name the bridge finds in BRIDGE_FOLDER."""

    channel_type = "folder"
    steps = frozenset()  # nobody can see a program read or write a file without disturbing it

    def __init__(self) -> None:
        self._folder = Path()
        self._count = 0

    @asynccontextmanager
    async def open(self, folder: Path, points: StepPoints) -> AsyncIterator[Mapping[str, str]]:
        """Make the folder."""
        self._folder = folder
        (folder / "in").mkdir()
        yield {"BRIDGE_FOLDER": str(folder), "PEGASUS_PAUSE": "0.1"}

    async def write(self, text: str) -> None:
        """Put a file into the folder; it is whole when it appears."""
        self._count += 1
        (self._folder / ".new").write_text(text)
        (self._folder / ".new").rename(self._folder / "in" / f"anna.{self._count}")

    def seen(self) -> Sequence[str]:
        """Return the files of `out`. A reply that comes again is the same file, which nobody can see twice."""
        files = [file for file in (self._folder / "out").glob("*") if file.suffix != ".new"]
        return [file.read_text() for file in sorted(files, key=lambda file: int(file.suffix[1:]))]
