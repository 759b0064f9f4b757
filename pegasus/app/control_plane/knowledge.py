"""The control plane's methods about what the agent knows and who it is: memory and the persona.

Both have several writers: the agent itself, tasks, the owner by hand or through a program. So a change is attributed
to its caller (`_user_of`) and kept with a number, and a writer may name the text that it has read, which must still
be there. A decision about the persona is recorded with the channel it came from.

Memory checks paths and sizes by itself, and the persona its proposals. The methods only turn a refusal into
`BadParams`, with the name of the param that is meant.
"""

from __future__ import annotations

from collections.abc import Collection

import attrs
import trio

from pegasus.access import RequestRefused
from pegasus.formatting import quote
from pegasus.gateway import (
    BadParams,
    Caller,
    Conflict,
    Method,
    Params,
    bad_params_for,
    read_number,
    require_owner,
    require_text,
)
from pegasus.identity import Persona, PersonaChanges, PersonaError, persona_view
from pegasus.memory import NOTES, Author, Memory, MemoryRefused, files_view
from pegasus.memory import view_of as change_view
from pegasus.messages import Json
from pegasus.settings import LiveValue
from pegasus.tools import found_json

DEFAULT_CHANGES = 50
"""Changes that `memory.log` returns when the caller names no limit."""
MAX_CHANGES = 200
"""Changes that `memory.log` returns at most. Each shows up to 4,000 characters, and an answer must fit into
a frame."""
DEFAULT_HITS = 8
"""Passages that `memory.search` returns when the caller names no limit."""


# ------------------------------------------------------------------ memory


@attrs.frozen(eq=False, repr=False)
class MemoryMethods:
    """Memory: `memory.list`, `.show`, `.log`, `.write`, `.undo`, `.search`.

    Example::

        memory = MemoryMethods(services.memory)
        answer = await memory.log(caller, {"path": "facts/user.md", "limit": 10})
        await memory.undo(caller, {"n": answer["changes"][0]["n"]})
    """

    memory: Memory
    """The agent's memory."""

    def methods(self) -> dict[str, Method]:
        """Return the methods by the names that they have on the wire."""
        return {
            "memory.list": self.list,
            "memory.show": self.show,
            "memory.log": self.log,
            "memory.write": self.write,
            "memory.undo": self.undo,
            "memory.search": self.search,
        }

    async def list(self, caller: Caller, params: Params) -> Json:
        """Return every file with path, summary, size, and whether it holds text from outside."""
        return files_view(await self.memory.list())

    async def show(self, caller: Caller, params: Params) -> Json:
        """Return the whole of the file `path`."""
        path = require_text(params, "path")
        with bad_params_for(MemoryRefused, key="path"):
            content = await (self.memory.read_notes() if path == NOTES else self.memory.read(path))
            return {"path": path, "content": content}

    async def log(self, caller: Caller, params: Params) -> Json:
        """Return the latest changes, newest first: of the file `path` only, at most `limit`, with numbers below `before`."""
        path = require_text(params, "path") if params.get("path") is not None else None
        limit, before = read_number(params, "limit", DEFAULT_CHANGES), read_number(params, "before", 0)
        with bad_params_for(MemoryRefused, key="path"):
            changes = await self.memory.log(path, min(limit or DEFAULT_CHANGES, MAX_CHANGES), before or None)
        # In a thread: each compares two texts, and there may be hundreds.
        views = await trio.to_thread.run_sync(lambda: [change_view(change) for change in changes])
        return {"changes": [*views]}

    async def write(self, caller: Caller, params: Params) -> Json:
        """Make the file `path` hold `content`; "" deletes it. Return its size.

        `was` (a text): what the writer has read; refused if the file holds something else now, so that nobody's change is lost.
        """
        path, content, was = require_text(params, "path"), params.get("content"), params.get("was")
        if not isinstance(content, str):
            raise BadParams(f"content: found {quote(content, 40)}, allowed: a text")
        with bad_params_for(MemoryRefused, key="path"):
            # Between this check and the write another writer may come; the window is a few milliseconds, and undo mends it.
            if isinstance(was, str) and was != await self._read_or_nothing(path):
                raise Conflict(f"was: {path} has been changed since it was read; read it again")
            written = await self.memory.write(path, content, _user_of(caller))
        return {"path": path, "size": written.size}

    async def _read_or_nothing(self, path: str) -> str:
        """Return the text of a file, "" if there is none."""
        is_there = any(file.path == path for file in await self.memory.list())
        return await self.memory.read(path) if is_there else ""

    async def undo(self, caller: Caller, params: Params) -> Json:
        """Undo the change `n`, and return the change that does it."""
        n = read_number(params, "n", 0)
        if not n:
            raise BadParams(f"n: found {quote(params.get('n'))}, allowed: the number of a change, see memory.log")
        with bad_params_for(MemoryRefused, key="n"):
            return {"change": change_view(await self.memory.undo(n, _user_of(caller)))}

    async def search(self, caller: Caller, params: Params) -> Json:
        """Return passages that fit `query`, at most `limit`, `in` memory or archives, as the tool memory_search does."""
        query, where = require_text(params, "query"), params.get("in") or ""
        limit = read_number(params, "limit", DEFAULT_HITS) or DEFAULT_HITS
        with bad_params_for(MemoryRefused):
            return found_json(await self.memory.search(query, limit, str(where)))


def _user_of(caller: Caller) -> Author:
    return Author("user", user=caller.user_id or "", channel=f"{caller.type}:{caller.channel_id or '*'}")


# ------------------------------------------------------------------ persona


@attrs.frozen(eq=False, repr=False)
class PersonaMethods:
    """The persona: `persona.list`, `persona.accept`, `persona.reject`.

    Only owners may call them (`Caller.is_owner`).

    Example::

        persona = PersonaMethods(persona_changes, LiveValue(persona), owners=LiveValue(("telegram:42",)))
        await persona.accept(caller, {"n": 3})  # returns the proposal as it is now
    """

    persona_changes: PersonaChanges
    """Proposals and decisions."""
    persona: LiveValue[Persona]
    """The persona of this run; accepted changes count from the next start or reload on."""
    owners: LiveValue[Collection[str]]
    """The setting `agent.owners`."""

    def methods(self) -> dict[str, Method]:
        """Return the methods by the names that they have on the wire."""
        return {
            "persona.list": self.list,
            "persona.accept": self.accept,
            "persona.reject": self.reject,
        }

    async def list(self, caller: Caller, params: Params) -> Json:
        """Return the persona and all proposals."""
        require_owner(caller, self.owners.now, "may see and decide about the persona")
        with bad_params_for(PersonaError):
            return persona_view(await self.persona_changes.read_state(), self.persona.now)

    async def accept(self, caller: Caller, params: Params) -> Json:
        """Accept the proposal `n`."""
        return await self._decide(caller, params, accept=True)

    async def reject(self, caller: Caller, params: Params) -> Json:
        """Reject the proposal `n`, or revert it if it was accepted."""
        return await self._decide(caller, params, accept=False)

    async def _decide(self, caller: Caller, params: Params, *, accept: bool) -> Json:
        """Decide about the proposal `n`, and return it.

        A number that is a text is refused and not converted: a program that sends one has probably another mistake.
        """
        require_owner(caller, self.owners.now, "may see and decide about the persona")
        n = params.get("n")
        if not isinstance(n, int) or isinstance(n, bool):
            raise BadParams(f"n: found {quote(n, 40)}, allowed: the number of a proposal")
        with bad_params_for(RequestRefused, PersonaError):
            by = f"{caller.type}:{caller.channel_id or ''}"
            return await self.persona_changes.decide(n, accept=accept, by=by)
