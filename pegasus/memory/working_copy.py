"""The files of memory in the home of a node, where the log and the files themselves are in a database that nodes share.

The log holds the content of every file, so the copy follows from it. Before a look at the folder each file that differs from what the
log says is written. A person may edit the copy as any memory: what was edited is left as it is, found by the look that follows, and
becomes a line of the log like every edit by hand.

What tells an edit from a file that another node has changed meanwhile is `.copy.json`: the hash of each file as it was written here
last. It is written after the files. So a file with another hash was edited, and after a crash one with the hash of the log was
written. Without it, as in a new home, nothing counts as edited that the log knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pegasus.memory.changes import KnownContent, content_hash
from pegasus.storage import Disk, Volume
from pegasus.wire import decode_object, encode_json

RECORD: Final = ".copy.json"
"""File with the hashes, in the folder of memory."""


class WorkingCopy:
    """The copy below the folder of a disk. The caller holds the memory's lock. Every method may raise StorageError.

    Example::

        for path in await copy.behind(history.files):
            await copy.bring(path, history.of(path), content)
        await copy.finish()
    """

    def __init__(self, disk: Disk, base: str) -> None:
        """base: folder of the memory on that disk."""
        self._disk = disk
        self._base = base
        self._written: dict[str, str] | None = None
        """Hashes by path, None before they were read."""
        self._is_new = False
        """True if there were none."""

    async def behind(self, files: Mapping[str, KnownContent]) -> list[str]:
        """Return the files that the log knows otherwise than they were last written here."""
        if self._written is None:
            content = await self._disk.run(Volume.read, f"{self._base}/{RECORD}")
            self._is_new, self._written = not content, {}
            if content:
                try:
                    self._written = {path: str(digest) for path, digest in decode_object(content).items()}
                except ValueError:  # somebody has edited it
                    self._is_new = True
        written = self._written
        return [
            path
            for path in sorted(files.keys() | written.keys())
            if (files[path].hash if path in files else "") != written.get(path, "")
        ]

    async def bring(self, path: str, known: KnownContent, content: bytes) -> None:
        """Let a file be what the log says, unless a person has edited it. known, content: what the log says; nothing = no file."""
        written = self._written if self._written is not None else {}
        place = f"{self._base}/{path}"
        present = content_hash(await self._disk.run(Volume.read, place))
        if present != known.hash and (self._is_new or present == written.get(path, "")):
            await self._disk.run(Volume.replace, place, content)
        written[path] = known.hash

    async def finish(self) -> None:
        """Keep what was written, durably."""
        written = {path: digest for path, digest in (self._written or {}).items() if digest}
        await self._disk.run(Volume.replace, f"{self._base}/{RECORD}", (encode_json(dict(written)) + "\n").encode())
        self._is_new = False
