"""This process as one of several nodes: the database that they share, the journal over it, and what the node says of itself.

Imported only where `storage.url` is set. Every node starts the same tree. What one of them does at a time (`run_while_owner`) waits on
the others; chats and tasks belong to whichever node has taken them.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from random import Random
from typing import Final

import attrs
import trio

from actors import Inbox, Ref, Supervisor
from pegasus import __version__
from pegasus.app.node_talk import NodeTalk
from pegasus.host import Home
from pegasus.identity import PERSONA_CHANGES
from pegasus.main_agent import MainAgents
from pegasus.observe import Activity
from pegasus.retry import retry
from pegasus.settings import LiveValue, Settings
from pegasus.storage import (
    LINE_FILES,
    Disk,
    JournalMessage,
    NextChange,
    ReadFile,
    StorageError,
    StoredFiles,
    Volume,
)
from pegasus.storage.database import (
    Database,
    DatabaseFolder,
    NodeFacts,
    NodeList,
    has_messages,
    mirror_sessions,
    open_database,
    run_database_journal,
    settings_digest,
)

_NOT_MOVED: Final = (
    "{data} holds messages, and the database of storage.url is empty; move them (pegasus migrate --to, with storage.url not set), "
    "or move the folder away to begin anew"
)


@attrs.frozen(eq=False, repr=False)
class SharedState:
    """The database of the nodes, and this node: `SharedState(database, NodeFacts("a"), 5.0, "chat", home)`."""

    database: Database
    """The database that the nodes share."""
    facts: NodeFacts
    """Facts that this node says of itself."""
    in_force: LiveValue[Settings]
    """The settings, of which the other nodes know a digest."""
    lease: float
    """Seconds of its lease."""
    scope: str
    """The setting `agent.scope`."""
    home: Home
    """Home of this node."""

    async def run_journal(
        self, mailbox: Inbox[JournalMessage], *, clock: Callable[[], int], activity: Activity, hands_out: bool
    ) -> None:
        """Run the journal over the database; see `run_database_journal`."""
        await run_database_journal(
            mailbox,
            self.database,
            facts=self.facts,
            settings=lambda: settings_digest(self.in_force.now),
            clock=clock,
            scope=self.scope,
            lease=self.lease,
            activity=activity,
            hands_out=hands_out,
            unless_unused=_NOT_MOVED.format(data=self.home.data) if has_messages(self.home.data) else "",
        )

    def talk(self, root: Supervisor, journal: Ref[JournalMessage], agents: MainAgents, random: Random) -> NodeTalk:
        """Return the talk with the other nodes. agents: those of this node."""
        return NodeTalk(
            journal, self.nodes, root.ref("channels/switchboard"), root.ref("channels/gateway"), agents, random
        )

    async def follow_nodes(self, on_change: Callable[[int], object]) -> None:
        """Call a function with the number of living nodes, again and again. While the database is down it stays the same."""
        while True:
            with suppress(StorageError):
                on_change(await self.nodes.count_others() + 1)
            await trio.sleep(self.lease)

    async def mirror_sessions(self, inbox: Inbox[object]) -> None:
        """Keep the sessions as files in the home; see `mirror_sessions`."""
        await mirror_sessions(inbox, self.database, self.home.path / "mirror")

    @property
    def stored(self) -> StoredFiles:
        """The files of the database, for reading beside the journal."""
        return DatabaseFolder(self.database)

    async def keep_persona(self, journal: Ref[JournalMessage], disk: Disk, reload: Callable[[], object]) -> None:
        """Keep what was decided about the persona in the home of this node, where starts and reloads read it. Runs until cancelled.

        reload: called if it was not there at this start.
        """
        is_start, lines = True, 0
        while True:
            is_old = False
            for path in (PERSONA_CHANGES, LINE_FILES["persona-proposals"]):
                content = await retry(partial(journal.ask, ReadFile, path), StorageError)
                lines = content.count(b"\n")
                if content != await disk.run(Volume.read, path):
                    is_old = True
                    await disk.run(Volume.replace, path, content)
            if is_start and is_old:
                reload()
            is_start = False
            await retry(partial(journal.ask, NextChange, "persona-proposals", "", lines), StorageError)

    @property
    def nodes(self) -> NodeList:
        """The nodes that share the database."""
        return NodeList(self.database, self.facts.name)


def open_shared_state(in_force: LiveValue[Settings], home: Home, *, is_trial: bool = False) -> SharedState:
    """Return what this process shares with others. Nothing is connected yet. Raises StorageError.

    is_trial: the version is only tried, beside the node that runs.
    """
    settings = in_force.now
    name = settings.node.name or socket.gethostname()
    facts = NodeFacts(f"{name} (trial)" if is_trial else name, settings.node.address, __version__)
    return SharedState(
        open_database(settings.storage.url), facts, in_force, settings.node.lease, settings.agent.scope, home
    )
