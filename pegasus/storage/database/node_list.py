"""The nodes that share a database, as people and programs are shown them, and letting one of them give everything back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from hashlib import sha256
from typing import Final

import attrs

from pegasus.messages import Json
from pegasus.settings import Settings, walk
from pegasus.storage.database.tables import Database, NodeState
from pegasus.wire import decode_object, encode_json

OWN_SECTIONS: Final = frozenset({"node", "storage", "gateway", "http", "log"})
"""Sections of the settings that may differ between nodes."""


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
        pending = await self.database.read_rows("pending-tasks", "")
        tasks = Counter(f"tasks/{decode_object(text).get('owner')}" for text in pending.rows.values())
        return {"here": self.here, "nodes": [_node_view(node, tasks) for node in await self.database.nodes()]}

    async def count_others(self) -> int:
        """Return how many other nodes live. Raises DatabaseDown."""
        nodes = await self.database.nodes()
        return sum(node.is_alive and node.facts.name != self.here for node in nodes)

    async def drain(self, name: str) -> dict[str, Json] | None:
        """Ask the node of this name to give everything back. Return None if none is alive. Raises DatabaseDown.

        `working`: number of nodes that go on taking work.
        """
        if not await self.database.drain(name):
            return None
        working = [node for node in await self.database.nodes() if node.is_alive and not node.is_draining]
        return {"name": name, "working": len(working)}


@attrs.frozen
class DatabaseFacts:
    """Facts about a database that answers."""

    server: str
    """Version of the server."""
    refusal: str
    """Sentence about why no node can use it; "" = it can be used."""
    tables: int
    """Version of the tables; 0 = there are none."""
    known: int
    """Newest version of tables that this program knows."""
    may_write: bool
    """True if the user may make the tables, or write those that are there."""
    is_read_only: bool
    """True if it takes no changes, as a replica does."""
    is_synced: bool
    """True if a commit is answered when it is on disk."""
    replicas: int
    """Replicas that follow it."""
    has_synchronous_replica: bool
    """True if a commit waits for a replica, so that a fail-over loses nothing."""
    ahead: float
    """Seconds that its clock is ahead of this machine's."""
    round_trip: float
    """Seconds from a statement to its answer."""
    others: tuple[tuple[str, str, str, bool], ...]
    """Name, version, digest of the settings, and whether it is drained, of each node that lives."""


def _node_view(node: NodeState, tasks: Mapping[str, int]) -> Json:
    """Return a node as JSON. tasks: how many each run of a node works on, by the owner key of the run."""
    return {
        "name": node.facts.name,
        "address": node.facts.address,
        "version": node.facts.version,
        "settings": node.facts.settings,
        "state": "gone" if not node.is_alive else "draining" if node.is_draining else "up",
        "leaseLeft": round(node.lease_left, 1),
        "chats": sum(key.startswith("chat/") for key in node.keys),
        "tasks": sum(tasks.get(key, 0) for key in node.keys),
        "owns": [key for key in node.keys if key in ("main", "schedule") or key.startswith("channel/")],
    }


def settings_digest(settings: Settings) -> str:
    """Return a text by which nodes notice that their settings differ, and in which sections: `agent=1a2b channels=09fe`.

    Secrets are left out, and what each node has of its own.
    """
    sections: dict[str, list[Json]] = {}
    for path, key, value in walk(settings):
        if not key.secret and path[0] not in OWN_SECTIONS:
            sections.setdefault(path[0], []).append([".".join(path), str(value)])
    return " ".join(f"{name}={sha256(encode_json(keys).encode()).hexdigest()[:4]}" for name, keys in sections.items())


def differing_sections(digest: str, other: str) -> list[str]:
    """Return the names of the sections in which two digests of settings differ, sorted."""
    return sorted({section.partition("=")[0] for section in set(digest.split()) ^ set(other.split())})
