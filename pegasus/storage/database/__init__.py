"""The second engine: a database that several nodes share, behind the messages of the journal.

A *node* is one process of the agent. Nodes share nothing but the database. `tables` is what the engine needs of a database, one
transaction for each method; PostgreSQL implements it, and for simulations a database in memory. Nothing of this is imported where
the state is in files.

    engine      the actor, in place of the journal over files; opening the database that the settings name
    accepting   accepting messages, and finding the channels of replies
    items       the items of this node: taken, handed out, done
    replies     replies on their way to the adapters of this node
    files       files and collections
    ownership   what this node owns, and who is told when it does not
    telling     what nodes tell each other beside what is stored
    notes       items that are done and replies that were acknowledged
    node        the lease of this node
    calls       transactions: repeated, in order, some at once
    mirror      sessions as files in the home of a node
    log_files   inbox and outbox as files and as contents of a database
    reading     what is stored, as files beside the journal
    node_list   the nodes, as people and programs are shown them
    examining   a look at a database, for people
    postgres    PostgreSQL as such a database
    connection  its connections on Trio
    contents    everything that it holds, filled and read
    schema      its tables and functions
    tables      what the engine needs of a database
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegasus.late import late_names
from pegasus.storage.database.engine import open_database, run_database_journal
from pegasus.storage.database.log_files import has_messages, inbox_contents, inbox_file, outbox_contents, outbox_file
from pegasus.storage.database.mirror import mirror_sessions
from pegasus.storage.database.node_list import DatabaseFacts, NodeList, differing_sections, settings_digest
from pegasus.storage.database.reading import DatabaseFolder
from pegasus.storage.database.tables import (
    AcceptedItem,
    Content,
    Database,
    DatabaseDown,
    DurableStep,
    FileContents,
    Heard,
    InboxItem,
    KnownAddress,
    NameTaken,
    NewItem,
    NewReply,
    NodeFacts,
    NodeState,
    Notice,
    Numbering,
    Numbers,
    PostedReply,
    Renewal,
    ReplyNumbers,
    Rows,
    RowsContents,
    StoredItem,
    StoredReply,
    dedupe_of,
)

if TYPE_CHECKING:
    from pegasus.storage.database.examining import look_at_database
else:
    # It needs the driver.
    __getattr__ = late_names(__name__)

__all__ = [
    "AcceptedItem",
    "Content",
    "Database",
    "DatabaseDown",
    "DatabaseFacts",
    "DatabaseFolder",
    "DurableStep",
    "FileContents",
    "Heard",
    "InboxItem",
    "KnownAddress",
    "NameTaken",
    "NewItem",
    "NewReply",
    "NodeFacts",
    "NodeList",
    "NodeState",
    "Notice",
    "Numbering",
    "Numbers",
    "PostedReply",
    "Renewal",
    "ReplyNumbers",
    "Rows",
    "RowsContents",
    "StoredItem",
    "StoredReply",
    "dedupe_of",
    "differing_sections",
    "has_messages",
    "inbox_contents",
    "inbox_file",
    "look_at_database",
    "mirror_sessions",
    "open_database",
    "outbox_contents",
    "outbox_file",
    "run_database_journal",
    "settings_digest",
]
