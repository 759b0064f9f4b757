"""Messages of the journal actor about the inbox; `messages` has all others and explains the kinds that there are.

They are used by few actors. The intake sends `Accept`, and `Discard` for `/stop`. An agent takes items with `NextItem`,
looks for those that came meanwhile with `NextItemOfAddress` and `TakeItem`, and ends each with `CompleteItem`. With an agent for
each chat, `NextChat` says which agent has to be started, and `LostChats` which ones have to end. Requests and queries are sent with
`ask`, notes with `tell`.

An item is in one of three states: it waits, it is handed out, or it is done. Only accepting and being done are on disk,
so a restart of the process begins with every item that is not done waiting again.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from actors import Reply
from pegasus.messages import Address, InboundMessage
from pegasus.storage.leases import Lease

MAX_PRIORITY = 9
"""The number of the lowest priority."""


@attrs.frozen
class Item:
    """An accepted message, as it is handed out.

    Example::

        item = await journal.ask(NextItem, "main")
        if item.attempt > 1:
            ...  # it was in work when the taker crashed
        await journal.tell(Done(item.n))
    """

    n: int
    """Number in the inbox. Numbers grow, over restarts too, and none is given twice."""
    message: InboundMessage
    """The message as it was accepted."""
    attempt: int = 1
    """1 when this process hands the item out for the first time, then 2, 3 …; 0 if it is only shown by `NextItemOfAddress`."""
    priority: int = 0
    """The priority that it was accepted with."""


@attrs.frozen
class Accepted:
    """Answer to `Accept`: the message is on disk.

    Example: `Accepted(n=12, duplicate=True)` for a message that the client sends again because it saw no answer.
    """

    n: int
    """Number of the item."""
    duplicate: bool
    """The id was known, so nothing was added. That item may be done already."""


@attrs.frozen
class Overloaded:
    """Answer to `Accept`: the message was not accepted, since too many are waiting.

    Example: `Overloaded(waiting=1_000)`. The sender is told to try again later; nothing is on disk.
    """

    waiting: int
    """Number of items that wait in the lane; of those of the sender, if these are too many."""
    of_sender: bool = False
    """The sender has as many items waiting as one sender may have."""

    @property
    def reason(self) -> str:
        """Part of a sentence for the sender, with what to do."""
        if self.of_sender:
            return f"{self.waiting} messages of yours are waiting already; wait for an answer, then send it again"
        return f"{self.waiting} messages are waiting already; send it again later"


@attrs.frozen(eq=False, repr=False)
class Accept:
    """Request: take responsibility for a message.

    Example::

        match await journal.ask(Accept, message, "main", 5, timeout=10):
            case Accepted(n):
                print("on disk as item", n)
            case Overloaded(waiting):
                print("refused:", waiting, "messages wait")

    StorageError: the disk refused, and the message may be sent again. After a timeout it may be accepted; sending it again
    with the same id gets that answer.
    """

    reply: Reply[Accepted | Overloaded]
    """Handle for the answer, which comes after the sync."""
    message: InboundMessage
    """The message. Its id and channel decide whether it came before."""
    lane: str = "main"
    """The queue to put it in: "main", ordered by priority and age, or "control" for commands that pass that queue."""
    priority: int = 0
    """0 (most urgent) to 9. It is kept over restarts. Any other number fails the request with ValueError."""
    owner: bool = False
    """The item is an owner's: a message, or a report of work for an owner. Items with priority 0 are an owner's in any case."""
    sender: str = ""
    """The sender that is limited; "" = `InboundMessage.account`."""
    max_of_sender: int = 0
    """Items of this sender that may wait in the lane; 0 = any number."""


@attrs.frozen(eq=False, repr=False)
class Discard:
    """Request: drop the messages of people that wait in lane "main" for the conversation of `report`, and accept `report` instead.

    Both are one record on disk. A message that was handed out is not dropped. One that is dropped counts as done: its id is
    recognised when it comes again, and `ItemDone` is answered.

    The answer is the number of messages; 0: none waited, and the report is not accepted. None: a report of this id was accepted
    before, so the messages that waited then are dropped already.

    Example::

        dropped = await journal.ask(Discard, report, item.n, 9, 0)
        if dropped:
            print(dropped, "messages are not worked on")
    """

    reply: Reply[int | None]
    """Handle for the number of dropped messages."""
    report: InboundMessage
    """The message that is accepted instead. Its metadata gets the number of dropped messages as `discarded`."""
    before: int
    """Only items with a smaller number are dropped."""
    priority: int
    """Only items of this priority and of more urgent ones are dropped."""
    report_priority: int
    """Priority of the report."""
    owner: bool = False
    """An owner asks. For anybody else only their own messages are dropped: those of the report's account."""
    lease: Lease | None = None
    """Proof that the asker has the session of the conversation; LeaseLost if somebody else has it."""


@attrs.frozen(eq=False, repr=False)
class NextItem:
    """Query: the item of a lane that is due. It is answered when there is one.

    Due first is an item that was handed out and is not done, since whoever had it has crashed; `attempt` grows then.
    After those, the order of the lane applies (see `item_queue`). An item is handed out only when it is on disk.

    There is one taker for each lane, or for each lane and address: a second query for the same fails the first with StorageError.

    Example::

        while True:
            item = await journal.ask(NextItem, "main")  # waits until there is one
            await work_on(item)
            await journal.tell(Done(item.n))
    """

    reply: Reply[Item]
    """Handle for the item. When its asker has left, nothing is handed out."""
    lane: str = "main"
    """"main" or "control"; each has a taker of its own."""
    address: Address | None = None
    """Only items of this address; None = of all."""
    apart: bool | None = None
    """Only items of conversations with a session of their own (guests are heard, or it is separate), or only others; None = both."""


@attrs.frozen(eq=False, repr=False)
class NextChat:
    """Query: the address whose item is due first, of any lane, commands before others. It is answered when there is one.

    Nothing is handed out. There is one asker: a second query fails the first with StorageError.

    Example::

        address = await journal.ask(NextChat, frozenset(running))
        await start_agent(address)
    """

    reply: Reply[Address]
    """Handle for the address."""
    except_for: frozenset[Address] = frozenset()
    """Addresses that do not count, since somebody takes their items already."""
    lanes: tuple[str, ...] = ("control", "main")
    """The lanes to look at."""
    apart: bool | None = None
    """As in `NextItem`."""


@attrs.frozen(eq=False, repr=False)
class LostChats:
    """Query: the chats of these whose lease is not the newest any more, so that their agents have to end. Answered when there is one.

    It is about leases, since a machine that has lost its chats may have some of them again a moment later. Their agents have the
    old leases, under which they could neither write nor end an item, and would be given it again and again.

    The file engine keeps it for ever, since nobody else takes chats.
    """

    reply: Reply[tuple[Address, ...]]
    """Handle for their addresses."""
    running: Mapping[Address, Lease]
    """Leases of the agents that there are, by address."""


@attrs.frozen(eq=False, repr=False)
class NextItemOfAddress:
    """Query: the oldest item of lane "main" that waits, comes from `address`, and has a number above `after`.

    The item stays in the queue; `TakeItem` hands it out. Any number of these queries may wait.

    Example::

        newer = await journal.ask(Newer, address, item.n)
        if newer is not None:
            item = await journal.ask(Take, newer.n)  # it becomes part of the same turn
    """

    reply: Reply[Item | None]
    """Handle for the item; None if there is none and `wait` is false."""
    address: Address
    """Conversation whose items count."""
    after: int = 0
    """Number above which items count."""
    wait: bool = False
    """Answer when there is such an item, instead of None when there is none."""
    apart: bool | None = None
    """As in `NextItem`."""


@attrs.frozen(eq=False, repr=False)
class TakeItem:
    """Query: hand out this item of lane "main" too, beside those that are handed out. Each of them needs its `CompleteItem`.

    The answer is None if the item is done or does not exist. Taking it again gives it again, with attempt + 1.

    Example: `await journal.ask(TakeItem, newer.n)` for an item that `NextItemOfAddress` has shown.
    """

    reply: Reply[Item | None]
    """Handle for the item, or None."""
    n: int
    """Number of the item."""
    apart: bool | None = None
    """As in `NextItem`: any other item is not there."""
    lease: Lease | None = None
    """Proof that the asker has the session that the item goes to; LeaseLost if somebody else has it."""


@attrs.frozen(eq=False, repr=False)
class ItemDone:
    """Query: answered when the item of this number, of any lane, needs no more work; at once if it is done or does not exist.

    The replies that it has led to are posted by then. Any number of these queries may wait.

    Example::

        await journal.ask(ItemDone, accepted.n)
        replies = await journal.ask(OpenReplies, address)
    """

    reply: Reply[None]
    """Handle for the end of the wait; its value is always None."""
    n: int
    """Number that `Accepted` has given."""


@attrs.frozen(eq=False, repr=False)
class LaneDone:
    """Query: answered when no item of the lane waits or is worked on; at once if none is.

    Example: `await journal.ask(LaneDone, "control")` waits for the commands that were accepted before a crash.
    """

    reply: Reply[None]
    """Handle for the end of the wait; its value is always None."""
    lane: str
    """Name of the lane."""


@attrs.frozen
class CompleteItem:
    """Note: the item needs no more work.

    If a crash loses the note, the item is handed out again, and the session shows that its work is done.

    Example: `await journal.tell(CompleteItem(item.n))`. The note takes effect at once, and is on disk with the next write.
    """

    n: int
    """Number of the item. A number that does not wait has no effect."""
    lease: Lease | None = None
    """Proof that the asker has the session that the item went to. If somebody else has it, the note has no effect."""


@attrs.frozen
class ReturnItem:
    """Note: who had taken the item of lane "main" was stopped before it was done, which is no attempt that has failed.

    An agent gives up its place in memory to that of another chat. Its chat gets one again when one is free, so that without this an
    item could seem to crash its agents although each was only asked to make room.
    """

    n: int
    """Number of the item. A number that does not wait has no effect."""
    lease: Lease | None = None
    """Proof that the asker has the session that the item went to. If somebody else has it, the note has no effect."""


@attrs.frozen(eq=False, repr=False)
class Waiting:
    """Query: the number of items that are not done.

    Example: `await journal.ask(Waiting, address, "main")` is the length of a conversation's queue, for `/status`.
    """

    reply: Reply[int]
    """Handle for the number."""
    address: Address | None = None
    """Count only those of this address; None = all."""
    lane: str | None = None
    """Count only those of this lane; None = all."""
    priority: int | None = None
    """Count only those of this priority and of more urgent ones; None = all."""
    apart: bool | None = None
    """As in `NextItem`."""
