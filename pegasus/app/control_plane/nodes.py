"""The control plane's methods about the nodes that share a database: which there are, and letting one of them give everything back."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import attrs
import trio

from pegasus.formatting import quote
from pegasus.gateway import Caller, Method, NotFound, Params, require_owner, require_text
from pegasus.messages import Json
from pegasus.settings import LiveValue

if TYPE_CHECKING:
    from pegasus.storage.database import NodeList

NO_NODES = "this agent keeps everything in files (storage.url is empty), so that there is one node"
"""Answer to whoever asks about nodes where there is no database."""


@attrs.frozen(eq=False, repr=False)
class NodeMethods:
    """The nodes: `nodes.list`, `nodes.drain`.

    Example::

        nodes = NodeMethods(NodeList(database, "a"), environment.owners)
        await nodes.drain(caller, {"name": "b"})
    """

    nodes: NodeList | None
    """The nodes that share the database; None: everything is in files."""
    owners: LiveValue[Collection[str]]
    """The setting `agent.owners`."""

    def methods(self) -> dict[str, Method]:
        """Return the methods by the names that they have on the wire."""
        return {"nodes.list": self.list, "nodes.drain": self.drain}

    async def list(self, caller: Caller, params: Params) -> Json:
        """Return the nodes with what each owns; none where everything is in files."""
        if self.nodes is None:
            await trio.lowlevel.checkpoint()
            return {"here": "", "nodes": []}
        return await self.nodes.view()

    async def drain(self, caller: Caller, params: Params) -> Json:
        """Ask the node `name` to give everything back, and to take nothing until it is started again.

        `working` of the answer: number of nodes that go on taking work.
        """
        require_owner(caller, self.owners.now, "drains nodes")
        name = require_text(params, "name")
        if self.nodes is None:
            await trio.lowlevel.checkpoint()
            raise NotFound(f"name: {NO_NODES}")
        if (answer := await self.nodes.drain(name)) is None:
            raise NotFound(f"name: no node called {quote(name)} runs")
        return answer
