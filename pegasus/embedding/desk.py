"""The desk: where everything that the agent says waits until the program around it has taken it.

The desk stands where the gateway stands in the daemon: it is the adapter of all channel types. Its actor only says that there is
something new. What there is, the journal knows: a reply is in the outbox until it is acknowledged, and its key says which message it
came of. So a reply belongs to the turn of exactly that message, however many turns of a chat follow one another. What belongs to no
turn that somebody iterates over, such as the result of a task or a job, is for `next_message`.

A reply is acknowledged when its reader asks for what is next, and when those before it were taken, too (`AckTracker`). A process
that is killed in between is given the others again.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

import attrs
import trio

from actors import ActorError, Inbox, Ref, Signal
from pegasus.channels import AckTracker, AdapterMessage, CatchUp, DeliverReply, TurnFollower
from pegasus.main_agent import item_of_key
from pegasus.messages import Address, OutboundMessage, ReplyDraft
from pegasus.storage import JournalMessage, OpenReplies, UnacknowledgedReply


class AgentClosed(Exception):
    """The block of `Agent.create` was left. A message that was accepted is worked on when an agent of this home runs again.

    Example: `async for message in agent.process_message(…)` raises it when the block of `Agent.create` ends in
    another task.
    """


@attrs.define(eq=False, repr=False)
class EmbeddedTurn:
    """The turn of one message that somebody iterates over.

    Example::

        turn = EmbeddedTurn(Address("cli", "main"), "embed-1")
        desk.expect_turn(turn.address)
        turn.item = accepted.n
        desk.follow_turn(turn)          # drafts and replies of this item go to the turn from now on
    """

    address: Address
    """Conversation of the message."""
    message_id: str
    """Id of the message, by which it can be withdrawn."""
    item: int = 0
    """Number of the message in the queue, once it is accepted."""
    draft: ReplyDraft | None = None
    """The newest draft; None once it was taken."""
    replies: dict[int, OutboundMessage] = attrs.field(factory=dict)
    """Replies that have come, by number."""
    is_done: bool = False
    """All replies have come."""
    error: Exception | None = None
    """Reason why no more will come."""
    changed: Signal = attrs.field(factory=Signal)
    """Given when the reader has something to look at."""

    def wake(self) -> None:
        """Tell the reader that something has changed."""
        self.changed.notify()


class ReplyDesk:
    """Everything that was said and not taken, for the readers of turns and of the rest. The object outlives restarts of its actor.

    Example: `Child("gateway", desk.run, journal)`.
    """

    def __init__(self, journal: Ref[JournalMessage]) -> None:
        self._journal = journal
        self._turns: dict[int, EmbeddedTurn] = {}
        """Turns that somebody iterates over, by item."""
        self._submitting: Counter[Address] = Counter()
        """Messages of each chat that are being accepted: their numbers are not known yet."""
        self._given: defaultdict[Address, set[int]] = defaultdict(set)
        """Numbers of replies that `next_message` has given out and that are not acknowledged."""
        self.follower = TurnFollower(journal, self._check_open)
        self._taken = AckTracker(journal, partial(self.follower.ask, OpenReplies))
        self._backlog: deque[UnacknowledgedReply] = deque()
        """Replies that were found and not given out, so that the journal need not be asked about each."""
        self._reading = trio.Lock()
        """Held by the reader that waits for the next one of them."""
        self._news = Signal()
        """Given when there may be something for `next_message`."""
        self.is_closed = False
        self.token = trio.lowlevel.current_trio_token()

    # ---------------------------------------------------------------- the actor

    async def run(self, inbox: Inbox[AdapterMessage], journal: Ref[JournalMessage]) -> None:
        """Take replies and drafts from the switchboard until stopped."""
        self._wake()
        async for message in inbox:
            match message:
                case DeliverReply(reply):
                    self._announce(reply)
                case ReplyDraft(item=item) if (turn := self._turns.get(item)) is not None:
                    turn.draft = message
                    turn.wake()
                case CatchUp():
                    self._wake()

    def _announce(self, reply: OutboundMessage) -> None:
        """Tell the reader whose reply it is."""
        turn = self._turns.get(item_of_key(reply.key))
        if turn is not None and turn.address == reply.channel.address:
            turn.replies.setdefault(reply.seq, reply)
            turn.draft = None  # the reply ends it
            turn.wake()
        else:
            self._wake()

    # ---------------------------------------------------------------- turns

    def expect_turn(self, address: Address) -> None:
        """Note that a message of a chat is being accepted: until `follow_turn` or `drop_turn`, replies to the chat may be its own."""
        self._submitting[address] += 1

    def follow_turn(self, turn: EmbeddedTurn) -> None:
        """Note the number of a message that was accepted."""
        self._submitted(turn.address)
        self._turns[turn.item] = turn

    def drop_turn(self, turn: EmbeddedTurn) -> None:
        """Note that a message was not accepted."""
        self._submitted(turn.address)
        self._wake()

    def _submitted(self, address: Address) -> None:
        self._submitting[address] -= 1
        if not self._submitting[address]:
            del self._submitting[address]

    def leave_turn(self, turn: EmbeddedTurn) -> None:
        """Forget a turn. What of it was not taken is for `next_message` from now on."""
        if self._turns.get(turn.item) is turn:
            del self._turns[turn.item]
        self._wake()

    async def replies_of(self, turn: EmbeddedTurn) -> tuple[OutboundMessage, ...]:
        """Return the replies of a turn to its own chat that were not acknowledged, with their files. Raises AgentClosed."""
        found = await self.follower.open_replies(turn.address)
        return await self.follower.load([each.key for each in found if item_of_key(each.key) == turn.item])

    # ---------------------------------------------------------------- everything else

    async def next_message(self) -> OutboundMessage:
        """Wait for the next reply that belongs to no turn somebody iterates over. Raises AgentClosed. Cancelled, nothing was given."""
        async with self._reading:
            while True:
                while self._backlog:
                    found = self._backlog.popleft()
                    if self._is_for_anybody(found):
                        self._given[found.address].add(found.seq)
                        # Loading waits for the journal. If the reader is cancelled meanwhile, the reply is
                        # there for the next one.
                        with self._giving_back(found):
                            for reply in await self.follower.load([found.key]):
                                return reply
                seen = self._news.count
                self._backlog.extend(filter(self._is_for_anybody, await self.follower.open_replies(None)))
                if not self._backlog:
                    await self._news.wait(seen)

    @contextmanager
    def _giving_back(self, found: UnacknowledgedReply) -> Iterator[None]:
        """Let a reply be given out again if it could not be loaded."""
        try:
            yield
        except BaseException:
            self._given[found.address].discard(found.seq)
            raise

    def _is_for_anybody(self, found: UnacknowledgedReply) -> bool:
        address, seq = found.address, found.seq
        is_known = seq in self._given.get(address, ()) or self._taken.has(address, seq)
        is_of_turn = item_of_key(found.key) in self._turns or address in self._submitting
        return not is_known and not is_of_turn

    def give_back(self, reply: OutboundMessage) -> None:
        """Have a reply given out again that its reader has not dealt with."""
        self._given[reply.channel.address].discard(reply.seq)
        self._wake()

    async def acknowledge(self, replies: Sequence[OutboundMessage]) -> None:
        """Note that these replies were taken. Raises AgentClosed."""
        self._taken.add(replies)
        for address in {reply.channel.address for reply in replies}:
            with suppress(ActorError):  # it is being restarted; the next acknowledgement makes up for it
                self._forget_given(address, await self._taken.acknowledge(address))

    def _forget_given(self, address: Address, last: int) -> None:
        """Forget what was given out up to the last number that is acknowledged."""
        left = {seq for seq in self._given.pop(address, ()) if seq > last}
        if left:
            self._given[address] = left

    # ---------------------------------------------------------------- both

    def _check_open(self) -> None:
        if self.is_closed:
            raise AgentClosed("the agent was stopped")

    def close(self) -> None:
        """End all readers: the agent stops."""
        self.is_closed = True
        for turn in self._turns.values():
            turn.error = AgentClosed("the agent was stopped while it worked on the message")
            turn.wake()
        self._wake()

    def _wake(self) -> None:
        self._news.notify()
