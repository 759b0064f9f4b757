"""The nodes that share a database, as people and programs are shown them, and letting one of them give everything back."""

from __future__ import annotations

import attrs

from pegasus.messages import Json
from pegasus.storage.database.tables import Database, NodeState


@attrs.frozen(eq=False, repr=False)
class NodeList:
    """The nodes: `await NodeList(database, "a").view()`."""

    database: Database
    """The database that they share."""
    here: str = ""
    """Name of the node that answers; "" = none does."""

    async def view(self) -> dict[str, Json]:
        """Return the nodes with what each owns, as `nodes.list` and `pegasus nodes --json` answer. Raises DatabaseDown.

        Of chats and tasks only the numbers are said: a node may own ten thousand, and not everybody may know which there are. `owns`
        has what one node does for all, such as "schedule" and "channel/telegram".
        """
        return {"here": self.here, "nodes": [_node_view(node) for node in await self.database.nodes()]}

    async def drain(self, name: str) -> bool:
        """Ask the node of this name to give everything back; return False if none is alive. Raises DatabaseDown."""
        return await self.database.drain(name)


def _node_view(node: NodeState) -> Json:
    return {
        "name": node.facts.name,
        "address": node.facts.address,
        "version": node.facts.version,
        "settings": node.facts.settings,
        "state": "gone" if node.lease_left <= 0 else "draining" if node.is_draining else "up",
        "leaseLeft": round(node.lease_left, 1),
        "chats": sum(key.startswith("chat/") for key in node.keys),
        "tasks": sum(key.startswith("task/") for key in node.keys),
        "owns": [key for key in node.keys if key in ("main", "schedule") or key.startswith("channel/")],
    }
