"""The control plane's methods about memory (interfaces section 3): memory.list, .show, .log, .undo and .search."""

from __future__ import annotations

from typing import Any

import attrs

from pegasus.gateway import BadParams, Caller, Params
from pegasus.memory import Author, Memory, MemoryRefused
from pegasus.memory.view import files_view, view_of
from pegasus.messages import Json
from pegasus.tools.memory import found_json

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
        path = _text(params, "path")
        try:
            return {"path": path, "content": await self.memory.read(path)}
        except MemoryRefused as error:
            raise BadParams(f"path: {error}") from None

    async def log(self, caller: Caller, params: Params) -> Json:
        """The last changes, newest first. path?: of one file. limit?: at most 200. before?: with smaller numbers."""
        path = _text(params, "path") if params.get("path") is not None else None
        limit, before = _number(params, "limit", LOG), _number(params, "before", 0)
        changes = await self.memory.log(path, min(limit or LOG, MOST), before or None)
        return {"changes": [view_of(change) for change in changes]}

    async def undo(self, caller: Caller, params: Params) -> Json:
        """n: the change to take back. Answers with the change that does it."""
        n = _number(params, "n", 0)
        if not n:
            raise BadParams(f"n: found {params.get('n')!r}, allowed: the number of a change, see memory.log")
        by = Author("user", user=caller.user_id or "", channel=f"{caller.type}:{caller.channel_id or '*'}")
        try:
            return {"change": view_of(await self.memory.undo(n, by))}
        except MemoryRefused as error:
            raise BadParams(f"n: {error}") from None

    async def search(self, caller: Caller, params: Params) -> Json:
        """query, limit?, in?: as the tool memory_search."""
        query, where = _text(params, "query"), params.get("in") or ""
        try:
            return found_json(await self.memory.search(query, _number(params, "limit", 8) or 8, str(where)))
        except MemoryRefused as error:
            raise BadParams(str(error)) from None


def _text(params: Params, key: str) -> str:
    value = params.get(key)
    if not isinstance(value, str) or not value:
        raise BadParams(f"{key}: found {value!r}, allowed: a text")
    return value


def _number(params: Params, key: str, default: int) -> int:
    value: Any = params.get(key)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise BadParams(f"{key}: found {value!r}, allowed: a whole number from 0")
    return value
