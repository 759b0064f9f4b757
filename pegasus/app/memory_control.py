"""The control plane's methods about memory (interfaces section 3): memory.list, .show, .log, .undo and .search."""

from __future__ import annotations

import attrs

from pegasus.app.params import number_of, text_of
from pegasus.gateway import BadParams, Caller, Params
from pegasus.memory import Author, Memory, MemoryRefused, files_view, view_of
from pegasus.messages import Json
from pegasus.tools import found_json

LOG: int = 50
"""Changes that memory.log gives if nobody says how many."""
MOST: int = 200


@attrs.frozen(eq=False)
class MemoryControl:
    """What a program may ask of memory."""

    memory: Memory

    async def list(self, caller: Caller, params: Params) -> Json:
        """Every file: path, summary, size, marked."""
        return files_view(await self.memory.list())

    async def show(self, caller: Caller, params: Params) -> Json:
        """path: the whole file."""
        path = text_of(params, "path")
        try:
            return {"path": path, "content": await self.memory.read(path)}
        except MemoryRefused as error:
            raise BadParams(f"path: {error}") from None

    async def log(self, caller: Caller, params: Params) -> Json:
        """The last changes, newest first. path?: of one file. limit?: at most 200. before?: with smaller numbers."""
        path = text_of(params, "path") if params.get("path") is not None else None
        limit, before = number_of(params, "limit", LOG), number_of(params, "before", 0)
        changes = await self.memory.log(path, min(limit or LOG, MOST), before or None)
        return {"changes": [view_of(change) for change in changes]}

    async def undo(self, caller: Caller, params: Params) -> Json:
        """n: the change to take back. Answers with the change that does it."""
        n = number_of(params, "n", 0)
        if not n:
            raise BadParams(f"n: found {params.get('n')!r}, allowed: the number of a change, see memory.log")
        by = Author("user", user=caller.user_id or "", channel=f"{caller.type}:{caller.channel_id or '*'}")
        try:
            return {"change": view_of(await self.memory.undo(n, by))}
        except MemoryRefused as error:
            raise BadParams(f"n: {error}") from None

    async def search(self, caller: Caller, params: Params) -> Json:
        """query, limit?, in?: as the tool memory_search."""
        query, where = text_of(params, "query"), params.get("in") or ""
        try:
            return found_json(await self.memory.search(query, number_of(params, "limit", 8) or 8, str(where)))
        except MemoryRefused as error:
            raise BadParams(str(error)) from None
