"""Storage: everything that must survive a crash, behind the messages of one actor.

The journal is the only writer below `<home>/data`. Other packages send it the messages of `messages`, and learn from
the answer that something is on disk. They need not know that inbox and outbox are files: a second engine could
implement the same messages with a database. docs/storage.md states what is promised, and why it holds.

    journal = Child("journal", partial(run_journal, clock=now), FileDisk(home.data), mailbox=Mailbox(1024))
    accepted = await ref.ask(Accept, message)

`messages` and, about what was accepted, `inbox_messages` are used by all others. Inside, from the top down:

    keyed_store             the small durable state: rows that are put and deleted by key, and lines
    one_owner               work that one node does at a time
    retention               removal of what is old
    media_files             files that travel with messages, kept by their content
    journal                 the actor: gathers messages, writes them as one batch, answers
    reply_queries           handing out replies
    inbox, outbox           state of the two logs, pure
    item_queue              items that are not done, and handing them out
    directory               known addresses and the way of a reply
    record_log              what the two logs share: staging, reading at a start, rewriting
    disk                    the thread for the disk's work, batches of appends
    volume                  all-or-nothing changes of files
    database                the second engine, for several nodes that share a database server
    files                   the operations of a disk, also below a folder that others write in
    leases                  who may write what
    row_files               place and form of the files of a collection
    stored_files            reading beside the journal

Why one actor, and not a lock: the promises are about order (a reply exists only if its thought is in the session). A
single mailbox makes that order visible and testable. Why files, and not a database: what a crash loses is then decided
by a few lines in `volume`, and `pegasus.testing.memory_disk` can let each of their operations fail.

Imports go downward in this list. Reading from the top answers what is promised, from the bottom what the disk
does.
"""

from pegasus.storage.directory import own_channel
from pegasus.storage.disk import Disk, FileDisk, run_in_thread
from pegasus.storage.files import Files, GuardedFiles
from pegasus.storage.inbox_messages import (
    Accept,
    Accepted,
    CompleteItem,
    Discard,
    Item,
    ItemDone,
    LaneDone,
    LostChats,
    NextChat,
    NextItem,
    NextItemOfAddress,
    Overloaded,
    ReturnItem,
    TakeItem,
    Waiting,
)
from pegasus.storage.journal import FLUSH_AFTER, run_journal
from pegasus.storage.keyed_store import KeyedStore, LineStore, stored_lines, stored_rows
from pegasus.storage.leases import GiveBack, Lease, LeaseLost, LostLease, TakeLease, chat_owner, owner_of
from pegasus.storage.media_files import (
    MEDIA_FOLDER,
    TRANSCRIPTS,
    is_kept_name,
    keep_file,
    kept_path,
    load_files,
    read_kept,
)
from pegasus.storage.messages import (
    Acknowledge,
    Archive,
    ArchiveName,
    Changed,
    Commit,
    Connected,
    Disconnected,
    JournalMessage,
    KnownAddresses,
    LastSeq,
    NextChange,
    NextReplies,
    NextTold,
    OpenReplies,
    Post,
    Posted,
    PostResult,
    PutRows,
    ReadFile,
    ReadFiles,
    ReadRows,
    RemoveOldFiles,
    ReplaceFile,
    ReserveBudget,
    Route,
    SetAside,
    SettleBudget,
    StorageError,
    StoredRows,
    TellNodes,
    Unacknowledged,
    UnacknowledgedChannels,
    UnacknowledgedReply,
    Unroutable,
)
from pegasus.storage.one_owner import run_while_owner, until_owned, until_wanted, while_owner
from pegasus.storage.outbox import UNDELIVERED_REPLY, undelivered_item
from pegasus.storage.retention import RetentionRule, media_rule, remove_old_files
from pegasus.storage.row_files import LINE_FILES, ROW_FILES, collection_of, row_key, rows_path
from pegasus.storage.stored_files import FolderFiles, StoredFiles, read_beside, read_stored, size_of
from pegasus.storage.volume import Volume

__all__ = [
    "FLUSH_AFTER",
    "LINE_FILES",
    "MEDIA_FOLDER",
    "ROW_FILES",
    "TRANSCRIPTS",
    "UNDELIVERED_REPLY",
    "Accept",
    "Accepted",
    "Acknowledge",
    "Archive",
    "ArchiveName",
    "Changed",
    "Commit",
    "CompleteItem",
    "Connected",
    "Discard",
    "Disconnected",
    "Disk",
    "FileDisk",
    "Files",
    "FolderFiles",
    "GiveBack",
    "GuardedFiles",
    "Item",
    "ItemDone",
    "JournalMessage",
    "KeyedStore",
    "KnownAddresses",
    "LaneDone",
    "LastSeq",
    "Lease",
    "LeaseLost",
    "LineStore",
    "LostChats",
    "LostLease",
    "NextChange",
    "NextChat",
    "NextItem",
    "NextItemOfAddress",
    "NextReplies",
    "NextTold",
    "OpenReplies",
    "Overloaded",
    "Post",
    "PostResult",
    "Posted",
    "PutRows",
    "ReadFile",
    "ReadFiles",
    "ReadRows",
    "RemoveOldFiles",
    "ReplaceFile",
    "ReserveBudget",
    "RetentionRule",
    "ReturnItem",
    "Route",
    "SetAside",
    "SettleBudget",
    "StorageError",
    "StoredFiles",
    "StoredRows",
    "TakeItem",
    "TakeLease",
    "TellNodes",
    "Unacknowledged",
    "UnacknowledgedChannels",
    "UnacknowledgedReply",
    "Unroutable",
    "Volume",
    "Waiting",
    "chat_owner",
    "collection_of",
    "is_kept_name",
    "keep_file",
    "kept_path",
    "load_files",
    "media_rule",
    "own_channel",
    "owner_of",
    "read_beside",
    "read_kept",
    "read_stored",
    "remove_old_files",
    "row_key",
    "rows_path",
    "run_in_thread",
    "run_journal",
    "run_while_owner",
    "size_of",
    "stored_lines",
    "stored_rows",
    "undelivered_item",
    "until_owned",
    "until_wanted",
    "while_owner",
]
