"""Memory as conversations see it in which guests are heard: the files that the owner shares, and the guest's own notes.

The owner shares a file of facts by a line `shared: true` at its beginning, alone, as front matter, or behind `> `. Nothing else of the
owner's memory is listed, found or named there, also not in errors. A guest's own notes are a memory of their own, in
`data/guests/<key>/memory/`: no other guest sees them, and the owner's memory does not have them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import attrs

from pegasus.memory.folder import FileState
from pegasus.memory.memory import Memory
from pegasus.memory.pages import (
    Found,
    Hit,
    MemoryFile,
    MemoryRefused,
    describe_file,
    find,
    index_limit,
    index_message,
    is_shared,
    not_found,
)

LONGEST_LINE: Final = 400
"""Characters of a line that a search shows."""
_WORD: Final = re.compile(r"\w+")


@attrs.frozen
class ApartMemory:
    """Memory that a conversation with guests can reach: `ApartMemory(memory, memory.guest("slack:U1"))`.

    Its methods raise what those of `Memory` raise.
    """

    owners: Memory
    """Memory of the owner, of which the shared files are seen."""
    own: Memory | None = None
    """Notes of the guest; None: the work is for nobody who has some."""

    async def list(self) -> tuple[MemoryFile, ...]:
        """Return the files, by path. A guest's own file hides a shared one of the same name."""
        return tuple(describe_file(file) for file, _ in await self._files())

    async def read(self, path: str) -> str:
        """Return a whole file. Raises MemoryRefused for an unknown path; its text names those that there are."""
        files = await self._files()
        for file, memory in files:
            if file.path == path:
                return await memory.read(path)
        raise not_found(path, [file for file, _ in files])

    async def search(self, query: str, limit: int = 8, where: str = "", prefix: str = "") -> Found:
        """Return the lines that have most of the words. The files are few and small. Archived conversations are not searched."""
        wanted = {word.casefold() for word in _WORD.findall(query)}
        found: list[tuple[int, Hit]] = []
        for file, memory in await self._files():
            place = file.path.partition("/")[0]
            if where not in ("", place):
                continue
            for number, line in enumerate((await memory.read(file.path)).splitlines(), start=1):
                if score := len(wanted & {word.casefold() for word in _WORD.findall(line)}):
                    found.append((score, Hit(place, file.path, number, "", line[:LONGEST_LINE], line)))
        found.sort(key=lambda each: -each[0])
        return Found(tuple(hit for _, hit in found[:limit]))

    async def index_message(self, context_window: int) -> str:
        """Return the index, as `Memory.index_message` does."""
        return index_message(await self.list(), index_limit(context_window))

    async def _files(self) -> Sequence[tuple[FileState, Memory]]:
        found = {file.path: (file, self.owners) for file in await self.owners.scan() if is_shared(file.head)}
        if self.own is not None:
            found |= {file.path: (file, self.own) for file in await self.own.scan()}
        return [found[path] for path in sorted(found)]


def seen_by(memory: Memory, guest: str, *, is_apart: bool) -> Memory | ApartMemory:
    """Return the memory that work sees. guest: account of the guest that it is for, "" = none. is_apart: guests are heard there."""
    return ApartMemory(memory, memory.guest(guest)) if is_apart else memory


async def check_shared(memory: Memory, path: str, text: str, *, has_read_outside: bool) -> None:
    """Raise MemoryRefused if a change may tell guests what its work has read outside.

    text: what is to be written. has_read_outside: the work has read text from outside; it may not share anything, nor change what is.
    """
    if not has_read_outside:
        return
    file = find(path, await memory.scan())
    if (file is not None and is_shared(file.head)) or is_shared(text.encode("utf-8", "replace")):
        raise MemoryRefused(f"{path} is shared with guests: what has read text from outside cannot change or share it")
