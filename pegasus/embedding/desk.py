"""The desk: where everything that the agent says waits until the program around it has taken it.

The desk stands where the gateway stands in the daemon: it is the adapter of all channel types. Its actor only says that there is
something new. What there is, the journal knows: a reply is in the outbox until it is acknowledged, and its key says which message it
came of. So a reply belongs to the turn of exactly that message, however many turns of a chat follow one another. What belongs to no
turn that somebody iterates over, such as the result of a task or a job, is for `next_message`.

A reply is acknowledged when its reader asks for what is next, and when those before it were taken, too (`AckTracker`). A process
that is killed in between is given the others again.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain

import trio

from actors import ActorError, Inbox, Ref, Signal
from pegasus.channels import AckTracker, AdapterMessage, CatchUp, DeliverReply, FollowedTurn, TurnFollower
from pegasus.main_agent import item_of_key
from pegasus.messages import Address, OutboundMessage, ReplyDraft
from pegasus.storage import JournalMessage, OpenReplies, UnacknowledgedReply


class AgentClosed(Exception):
    """The block of `Agent.create` was left. A message that was accepted is worked on when an agent of this home runs again.

    Example: `async for message in agent.process_message(…)` raises it when the block of `Agent.create` ends in
    another task.
    """


class ReplyDesk:
    """Everything that was said and not taken, for the readers of turns and of the rest. The object outlives restarts of its actor."""

    def __init__(self, journal: Ref[JournalMessage]) -> None:
        self._journal = journal
        self._turns: defaultdict[Address, list[FollowedTurn]] = defaultdict(list)
        """Turns that somebody iterates over, by chat. The item is 0 while the message is being accepted."""
        self._given: defaultdict[Address, set[int]] = defaultdict(set)
        """Numbers of replies that `next_message` has given out and that are not acknowledged."""
        self.follower = TurnFollower(journal, self._check_open)
        self._taken = AckTracker(journal, partial(self.follower.ask, OpenReplies))
        self._backlog: defaultdict[str, deque[UnacknowledgedReply]] = defaultdict(deque)
        """By type of channel, replies that were found and not given out, so that the journal need not be asked about each."""
        self._finding = trio.Lock()
        """Held while the journal is asked for them."""
        self._found_at = -1
        """Count of the news before the journal was asked last."""
        self._news = Signal()
        """Given when there may be something for `next_message`."""
        self.on_unasked: Callable[[OutboundMessage], None] = lambda reply: None
        """Called with each new reply for `next_message`. May be replaced."""
        self.is_closed = False
        self.token = trio.lowlevel.current_trio_token()

    # ---------------------------------------------------------------- the actor

    async def run(self, inbox: Inbox[AdapterMessage], journal: Ref[JournalMessage]) -> None:
        """Take replies and drafts from the switchboard until stopped."""
        self._wake()
        async for message in inbox:
            match message:
                case DeliverReply(reply):
                    if not self._give(reply):
                        self.on_unasked(reply)
                        self._wake()
                case ReplyDraft():
                    self._give(message)
                case CatchUp():
                    self._wake()

    def _give(self, said: OutboundMessage | ReplyDraft) -> bool:
        """Give it to the turns that it belongs to; return False if nobody iterates over those."""
        return sum(turn.take(said) for turn in self._turns.get(said.channel.address, ())) > 0

    # ---------------------------------------------------------------- turns

    def follow_turn(self, turn: FollowedTurn) -> None:
        """Keep the replies of a turn for its reader. As long as its item is 0, all replies to the chat may be its own."""
        self._turns[turn.address].append(turn)

    def leave_turn(self, turn: FollowedTurn) -> None:
        """Forget a turn. What of it was not taken is for `next_message` from now on."""
        if turn in (turns := self._turns.get(turn.address, [])):
            turns.remove(turn)
        if not turns:
            self._turns.pop(turn.address, None)
        self._wake()

    # ---------------------------------------------------------------- everything else

    async def next_message(self, wants: Callable[[str], bool]) -> OutboundMessage:
        """Wait for the next reply to a type of channel that is wanted, and that belongs to no turn somebody iterates over.

        Raises AgentClosed. Cancelled, nothing was given.
        """
        while True:
            seen = self._news.count
            found = self._next_found(wants)
            if found is None:
                await self._find_all()
                found = self._next_found(wants)
            if found is None:
                await self._news.wait(seen)
                continue
            # Before the journal is asked: another reader may look meanwhile.
            self._given[found.address].add(found.seq)
            try:
                replies = await self.follower.load([found.key])
            except BaseException:
                self._given[found.address].discard(found.seq)
                self._backlog[found.address.type].appendleft(found)
                self._wake()
                raise
            if replies:
                return replies[0]

    def _next_found(self, wants: Callable[[str], bool]) -> UnacknowledgedReply | None:
        """Take the next reply out of the backlog."""
        for type, row in self._backlog.items():
            while row and wants(type):
                if self._is_for_anybody(found := row.popleft()):
                    return found
        return None

    async def _find_all(self) -> None:
        """Fill the backlog, unless that was done since the last news. Raises AgentClosed."""
        async with self._finding:
            count = self._news.count
            if self._found_at != count:
                found = await self.follower.open_replies(None)
                self._backlog.clear()
                for each in filter(self._is_for_anybody, found):
                    self._backlog[each.address.type].append(each)
                self._found_at = count

    def _is_for_anybody(self, found: UnacknowledgedReply) -> bool:
        address, seq = found.address, found.seq
        is_known = seq in self._given.get(address, ()) or self._taken.has(address, seq)
        is_of_turn = any(turn.item in (0, item_of_key(found.key)) for turn in self._turns.get(address, ()))
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
        for turn in chain.from_iterable(self._turns.values()):
            turn.end(AgentClosed("the agent was stopped while it worked on the message"))
        self._wake()

    def _wake(self) -> None:
        self._news.notify()
